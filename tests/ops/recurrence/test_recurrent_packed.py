"""recurrent_packed and its gradient: torch's cells in float64, the same bits packed or not, and one launch a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError
from baracuda_py.ops.recurrence.recurrent_packed import RecurrentCell, RecurrentPackedDescriptor, RecurrentPackedPlan
from baracuda_py.ops.recurrence.recurrent_packed_backward import RecurrentPackedBackwardPlan
from baracuda_py.schedules.packed_steps import Place, places, runs
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.operands import operands
from baracuda_py.testing.places import call
from baracuda_py.testing.recording import pointer_view

torch = pytest.importorskip("torch")
KINDS = [kind.value for kind in RecurrentCell]
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


def problem(kind: str, sizes: tuple[int, ...], hidden: int) -> dict[str, Any]:
    columns = GATES[kind] * hidden
    given = {
        "gates": made(sum(sizes), columns), "h0": made(sizes[0], hidden), "weight": made(columns, hidden) / 2,
        "bias": made(columns, seed=1),
    }  # fmt: skip
    return given | ({"c0": made(sizes[0], hidden, seed=2)} if kind == "lstm" else {})


def in_torch(kind: str, sizes: tuple[int, ...], reverse: bool, given: dict[str, Any]) -> list[Any]:
    """The states of all steps by torch's cells, packed as gates are."""
    columns = given["weight"].shape[0]
    eye, none = torch.eye(columns, dtype=torch.float64), torch.zeros(columns, dtype=torch.float64)
    starts = np.cumsum([0, *sizes])
    states: Any = [given["h0"], given.get("c0")]
    done: dict[int, list[Any]] = {}
    for t in range(len(sizes))[:: -1 if reverse else 1]:
        n, x = sizes[t], given["gates"][starts[t] : starts[t + 1]]
        before = [None if s is None else s[:n] for s in states]
        params = (eye, given["weight"], none, given["bias"])
        if kind == "lstm":
            after = list(torch.lstm_cell(x, tuple(before), *params))
        else:
            after = [getattr(torch, f"{kind}_cell")(x, before[0], *params), None]
        states = [None if s is None else torch.cat([s, old[n:]]) for s, old in zip(after, states, strict=True)]
        done[t] = after
    kept = 2 if kind == "lstm" else 1
    return [torch.cat([done[t][i] for t in range(len(sizes))]) for i in range(kept)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", [(3, 3, 3), (4, 3, 3, 1), (2,)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_torchs(kind: str, sizes: tuple[int, ...], reverse: bool) -> None:
    given = problem(kind, sizes, 5)
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in given.items()}
    wanted = in_torch(kind, sizes, reverse, leaves)
    facts: dict[str, Any] = {"kind": kind, "sizes": sizes, "reverse": reverse}
    got = bc.recurrent_packed(**given, **facts, **({"return_c": True} if kind == "lstm" else {}))
    states = list(got) if kind == "lstm" else [got]
    for a, b in zip(states, wanted, strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-12, atol=1e-12)
    slopes = [made(*x.shape, seed=7 + i) for i, x in enumerate(states)]
    firsts = [leaves[n] for n in ("gates", "h0", "c0") if n in leaves]
    expected = torch.autograd.grad(wanted, firsts, [torch.tensor(s) for s in slopes])
    saved: dict[str, Any] = {"h": states[0]} if kind != "lstm" else {"c": states[1], "c0": given["c0"], "dc": slopes[1]}
    if kind in ("lstm", "gru"):
        h = torch.tensor(states[0])
        rows = {at.start + r: (at, r) for at in places(sizes, reverse) for r in range(at.rows)}
        before = np.stack([
            h[at.before + r].numpy() if r < at.known else given["h0"][r] for at, r in (rows[n] for n in range(len(h)))
        ])  # fmt: skip
        saved |= {"gates": given["gates"], "gates_h": before @ given["weight"].T + given["bias"]}
    if kind == "gru":
        saved["h0"] = given["h0"]
    back = bc.recurrent_packed_backward(slopes[0], given["weight"], **saved, **facts)
    found = [back[0], *back[2:]] if kind == "gru" else list(back)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_runs_are_the_walk(reverse: bool) -> None:
    sizes = (7, 7, 7, 7, 4, 4, 4, 1)
    found = []
    for run in runs(places(sizes, reverse)):
        at, move = run.place, run.advance
        for n in range(run.times):
            starts = (at.start + n * move, at.rows, at.before + n * move, at.known, at.later + n * move, at.later_rows)
            found.append(Place(*starts))
    assert tuple(found) == places(sizes, reverse)
    assert len(list(runs(places((7,) * 1000, reverse)))) == 3


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("plan", [RecurrentPackedPlan, RecurrentPackedBackwardPlan])
@pytest.mark.parametrize(
    ("element", "kind", "sizes", "hidden", "reverse"),
    [
        ("float16", "lstm", (67, 67, 67), 24, False),  # two blocks of rows, three runs
        ("bfloat16", "gru", (3, 2, 2, 2, 2), 144, True),  # two slices, rows that begin later
        ("float32", "rnn_relu", (2, 2, 2, 1), 68, True),
        ("float64", "lstm", (2, 1), 33, False),  # pieces of 16 bytes are not whole
    ],
)  # fmt: skip
def test_kernels(plan: Any, element: str, kind: str, sizes: tuple[int, ...], hidden: int, reverse: bool) -> None:
    desc = RecurrentPackedDescriptor(
        kind=RecurrentCell(kind), sizes=sizes, hidden=hidden, reverse=reverse, element=element
    )  # fmt: skip
    optional = {"bias": True} if plan is RecurrentPackedPlan else {"dh0": True}
    ready = operands(fill(plan, desc, np.random.default_rng(1), optional))
    emulate(plan.select(desc, device=emulated_device(8.0)), ready)


def emulated(sizes: tuple[int, ...], pick: Any, given: dict[str, Any], element: str) -> np.ndarray:
    """States on the emulator, of the rows that `pick` gives."""
    kind, hidden = RecurrentCell.GRU, given["weight"].shape[1]
    desc = RecurrentPackedDescriptor(kind=kind, sizes=sizes, hidden=hidden, element=element)
    ready = operands(fill(RecurrentPackedPlan, desc, np.random.default_rng(1), {"bias": True}))
    held = {spec.name: one for spec, _, one in ready.items()}
    for name, x in given.items():
        held[name].view[...] = x[pick] if name == "gates" else x[: sizes[0]] if name == "h0" else x
    with emulating():
        RecurrentPackedPlan.select(desc, device=emulated_device(8.0)).run(ready.args(pointer_view))
    return np.array(held["h"].view)


@pytest.mark.parametrize("element", ["float16", "float32"])
def test_a_row_has_the_same_bits_in_every_batch(element: str) -> None:
    """Packed beside shorter ones, or alone."""
    lengths, hidden = (4, 4, 2), 40
    padded = problem("gru", (3,) * 4, hidden)
    given = {name: x.astype(element) for name, x in padded.items()}
    whole = emulated((3,) * 4, slice(None), given, element).reshape(4, 3, hidden)
    packed = emulated((3, 3, 2, 2), [0, 1, 2, 3, 4, 5, 6, 7, 9, 10], given, element)
    alone = emulated((1,) * 4, [0, 3, 6, 9], given, element)
    np.testing.assert_array_equal(alone, whole[:, 0])
    starts = [0, 3, 6, 8]
    for row, length in enumerate(lengths):
        np.testing.assert_array_equal(packed[[starts[t] + row for t in range(length)]], whole[:length, row])


@pytest.mark.parametrize(
    ("change", "said"),
    [({"sizes": (1, 2)}, "not grow"), ({"sizes": (2, 0)}, "positive"), ({"sizes": 3}, "integers"),
     ({"order": "rzn"}, "order of lstm")],
)  # fmt: skip
def test_bad_problems_are_named(change: dict[str, Any], said: str) -> None:
    facts: dict[str, Any] = {"kind": RecurrentCell.LSTM, "sizes": (1,), "hidden": 4, "element": "float32"}
    with pytest.raises(InvalidProblemError, match=said):
        RecurrentPackedDescriptor(**(facts | change))


def test_what_nobody_wants_is_kept_all_the_same(place: str) -> None:
    """The cells of an LSTM and a GRU's slopes of products are needed by the next step: without them, the same bits."""
    rng, sizes, hidden = np.random.default_rng(4), (3, 3, 2, 1), 5
    rows, first = sum(sizes), sizes[0]

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    desc = bc.RecurrentPackedDescriptor(kind="lstm", order="ifgo", sizes=sizes, hidden=hidden, element="float32")
    given = {
        "gates": drawn(rows, 4 * hidden), "h0": drawn(first, hidden), "c0": drawn(first, hidden),
        "weight": drawn(4 * hidden, hidden), "bias": drawn(4 * hidden),
    }  # fmt: skip
    both = call(bc.RecurrentPackedPlan, desc, ("h", "c"), place, **given)
    np.testing.assert_array_equal(call(bc.RecurrentPackedPlan, desc, ("h",), place, **given)["h"], both["h"])
    desc = bc.RecurrentPackedDescriptor(kind="gru", order="rzn", sizes=sizes, hidden=hidden, element="float32")
    given = {
        "dh": drawn(rows, hidden), "weight": drawn(3 * hidden, hidden), "gates": drawn(rows, 3 * hidden),
        "gates_h": drawn(rows, 3 * hidden), "h": drawn(rows, hidden), "h0": drawn(first, hidden),
    }  # fmt: skip
    both = call(bc.RecurrentPackedBackwardPlan, desc, ("dgates", "dgates_h", "dh0"), place, **given)
    for wanted in (("dgates",), ("dgates", "dh0")):
        made = call(bc.RecurrentPackedBackwardPlan, desc, wanted, place, **given)
        for name in wanted:
            np.testing.assert_array_equal(made[name], both[name])
