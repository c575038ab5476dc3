"""recurrent_layer: the steps of torch's cells in float64, its rows on the emulator, and the same bits from both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError
from baracuda_py.ops.recurrence.recurrent_walk import RecurrentKind, RecurrentLayerDescriptor, RecurrentLayerPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.operands import operands
from baracuda_py.testing.recording import pointer_view

torch = pytest.importorskip("torch")


def made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_is_torchs_cells(kind: str, reverse: bool) -> None:
    gates, steps, batch, hidden = (4 if kind == "lstm" else 3), 6, 3, 5
    x, weight, bias = made(steps, batch, gates * hidden), made(gates * hidden, hidden), made(gates * hidden, seed=1)
    h0, c0 = made(batch, hidden), made(batch, hidden, seed=2)
    given = {"c0": c0, "return_c": True} if kind == "lstm" else {}
    got = bc.recurrent_layer(x, h0, weight, bias, **given, kind=kind, reverse=reverse)
    eye, none = torch.eye(gates * hidden, dtype=torch.float64), torch.zeros(gates * hidden, dtype=torch.float64)
    w, b, h, c = (torch.tensor(one) for one in (weight, bias, h0, c0))
    for t in range(steps)[:: -1 if reverse else 1]:
        at = torch.tensor(x[t])
        if kind == "lstm":
            h, c = torch.lstm_cell(at, (h, c), eye, w, none, b)
            np.testing.assert_allclose(got[1][t], c.numpy(), rtol=1e-12, atol=1e-12)
        else:
            h = torch.gru_cell(at, h, eye, w, none, b)
        np.testing.assert_allclose((got[0] if kind == "lstm" else got)[t], h.numpy(), rtol=1e-12, atol=1e-12)


PROBLEMS = [("float32", "lstm", 3, 9, 33, False), ("float16", "gru", 2, 3, 150, True)]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("cc", [8.0, 9.0])
@pytest.mark.parametrize(("element", "kind", "steps", "batch", "hidden", "reverse"), PROBLEMS)
def test_kernels(element: str, kind: str, steps: int, batch: int, hidden: int, reverse: bool, cc: float) -> None:
    desc = RecurrentLayerDescriptor(
        kind=RecurrentKind(kind), steps=steps, batch=batch, hidden=hidden, reverse=reverse, element=element
    )  # fmt: skip
    chosen = RecurrentLayerPlan.select(desc, device=emulated_device(cc))
    ready = operands(fill(RecurrentLayerPlan, desc, np.random.default_rng(1), {"bias": True}))
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    assert geometry.steps[0].cluster == (8 if cc == 9.0 else 1)
    emulate(chosen, ready)


def test_clusters_have_the_bits_of_a_block() -> None:
    desc = RecurrentLayerDescriptor(kind=RecurrentKind.LSTM, steps=3, batch=2, hidden=140, element="float32")
    found = []
    for cc in (8.0, 9.0):
        ready = operands(fill(RecurrentLayerPlan, desc, np.random.default_rng(1), {"bias": True, "c": True}))
        with emulating():
            RecurrentLayerPlan.select(desc, device=emulated_device(cc)).run(ready.args(pointer_view))
        found.append([np.array(one.view) for spec, _, one in ready.items() if spec.writes])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("change", "said"), [({"hidden": 257}, "at most 256"), ({"order": "rzn"}, "order of lstm")])
def test_bad_problems_are_named(change: dict[str, Any], said: str) -> None:
    facts: dict[str, Any] = {"kind": RecurrentKind.LSTM, "steps": 1, "batch": 1, "hidden": 4, "element": "float32"}
    with pytest.raises(InvalidProblemError, match=said):
        RecurrentLayerDescriptor(**(facts | change))
