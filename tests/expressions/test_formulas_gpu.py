"""Formulas on a GPU: the checks of all ops, numbers that live on the device, graphs, in place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.testing import GPU_CHECKS, exercise

pytestmark = pytest.mark.gpu

MADE: tuple[tuple[str, Callable[[], type[bc.Plan]]], ...] = (
    ("silu(x) * y + alpha", lambda: bc.elementwise("silu(x) * y + alpha").plan(alpha=float)),
    ("where", lambda: bc.elementwise("where(m, x, 0) if x > n else -x").plan(n=int)),
    ("two outputs", lambda: bc.elementwise("y = a * b; z = float16(y + 1)").plan()),
    ("whole numbers", lambda: bc.elementwise("i // 3 % 5 & j | 1").plan()),
    ("gradient", lambda: bc.elementwise("silu(x) * y + alpha").plan(alpha=float).vjp.plan),  # type: ignore[union-attr]
    ("rms", lambda: bc.reduce("sqrt(mean(x * x) + eps)").plan(eps=float)),
    ("masked sum", lambda: bc.reduce("sum(where(m, x, 0))").plan()),
    ("place", lambda: bc.reduce("argmax(x * y)").plan()),
)


@pytest.mark.parametrize("check", GPU_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("made", [made for _, made in MADE], ids=[name for name, _ in MADE])
def test_formulas_pass_the_checks_of_all_ops(made: Callable[[], type[bc.Plan]], check: object) -> None:
    plan = made()
    if getattr(check, "applies", lambda plan: True)(plan):
        exercise(plan, check, examples=getattr(check, "examples", 0))  # type: ignore[arg-type]


def test_a_number_on_the_device_may_change_in_a_graph() -> None:
    import cupy

    f = bc.elementwise("x * alpha + n")
    x, alpha, n = cupy.arange(5, dtype=np.float32), cupy.array(2.0), cupy.array(3, np.int64)
    out = cupy.empty_like(x)
    run = bc.graph(lambda: f(x, alpha, n, out=out))
    for scale, shift in ((2.0, 3), (0.5, -7)):
        alpha.fill(scale)
        n.fill(shift)
        run()
        np.testing.assert_array_equal(out.get(), np.arange(5) * scale + shift)


def test_in_place_and_on_views() -> None:
    import cupy

    x = cupy.arange(24, dtype=np.float32).reshape(4, 6)
    wanted = x.get()
    wanted[:, ::2] = wanted[:, ::2] ** 2 + wanted[:, ::2]
    view = x[:, ::2]
    assert bc.elementwise("x * x + x")(view, out=view) is view
    np.testing.assert_array_equal(x.get(), wanted)


def test_the_example_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "examples"))
    sys.modules.pop("expressions", None)
    from expressions import main

    assert main(["--rows", "256", "--columns", "512"]) == 0
    assert capsys.readouterr().out.count("TB/s") == 5
