"""Formulas on a GPU: the checks of all ops, numbers that live on the device, graphs, in place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.expressions.block_mask_plan import block_mask_plan_of
from baracuda_py.testing import GPU_CHECKS, exercise

pytestmark = pytest.mark.gpu

SCORED = bc.attention("softcap(s, cap) + bias[h, q - k]", "q - k < n or doc[b, q] == doc[b, k]").plan(n=int)
DOCUMENTS = bc.attention(mask="q >= k and doc[b, q] == doc[b, k]").formula
HIDDEN = bc.attention(mask="abs(q - k) <= n or t[k]").plan(n=int)
MADE: tuple[tuple[str, Callable[[], type[bc.Plan]]], ...] = (
    ("silu(x) * y + alpha", lambda: bc.elementwise("silu(x) * y + alpha").plan(alpha=float)),
    ("where", lambda: bc.elementwise("where(m, x, 0) if x > n else -x").plan(n=int)),
    ("two outputs", lambda: bc.elementwise("y = a * b; z = float16(y + 1)").plan()),
    ("whole numbers", lambda: bc.elementwise("i // 3 % 5 & j | 1").plan()),
    ("gradient", lambda: bc.elementwise("silu(x) * y + alpha").plan(alpha=float).vjp.plan),  # type: ignore[union-attr]
    ("rms", lambda: bc.reduce("sqrt(mean(x * x) + eps)").plan(eps=float)),
    ("masked sum", lambda: bc.reduce("sum(where(m, x, 0))").plan()),
    ("place", lambda: bc.reduce("argmax(x * y)").plan()),
    ("energy", lambda: bc.scan("sqrt(cumsum(x * x) + eps)").plan(eps=float)),
    ("extreme", lambda: bc.scan("cummax(x * n)").plan(n=int)),
    ("returns", lambda: bc.scan("where(done, 0, gamma) * h + x", "recurrence").plan(gamma=float)),
    ("mixed", lambda: bc.scan("float64(cumsum(x * y + z - w))").plan()),
    ("attention", lambda: SCORED),
    ("attention's gradient", lambda: SCORED.vjp.plan),  # type: ignore[union-attr]
    ("block mask", lambda: block_mask_plan_of(DOCUMENTS.of_mask, ())),  # type: ignore[arg-type]
    ("mask", lambda: HIDDEN),
    ("mask's gradient", lambda: HIDDEN.vjp.plan),  # type: ignore[union-attr]
)


@pytest.mark.parametrize("check", GPU_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("made", [made for _, made in MADE], ids=[name for name, _ in MADE])
def test_formulas_pass_the_checks_of_all_ops(made: Callable[[], type[bc.Plan]], check: object) -> None:
    plan = made()
    if not getattr(check, "applies", lambda plan: True)(plan):
        return
    examples, elements = getattr(check, "examples", 0), None
    if plan.op.startswith("attention."):  # whose every problem compiles kernels, some seconds each
        examples //= 10
        elements = None if examples else (bc.ElementKind.F32, bc.ElementKind.BF16)
    exercise(plan, check, examples=examples, elements=elements)  # type: ignore[arg-type]


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
    shown = capsys.readouterr().out
    assert shown.count("TB/s") == 4 and shown.count("TFLOP/s") == 1


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_attention_by_formulas_is_what_arguments_make(element: str, d: int) -> None:
    """Causality, a window and slopes, written and as arguments, on many tiles; a graph whose number changes."""
    import cupy

    rng = cupy.random.default_rng(0)
    q, dy = (bc.cast(rng.standard_normal((2, 4, 700, d), np.float32), element) for _ in range(2))
    k, v = (bc.cast(rng.standard_normal((2, 2, 900, d), np.float32), element) for _ in range(2))
    slopes = cupy.asarray([0.5, 0.25, 0.125, 0.0625], np.float32)
    plain = {"is_causal": True, "window_left": 300, "slopes": slopes}
    score, mask = "s - m[h] * abs(q - k)", "k <= q and q - k <= n"
    y, lse = bc.flash_sdpa(q, k, v, return_lse=True, **plain)
    made, own = bc.flash_sdpa(q, k, v, score=score, mask=mask, m=slopes, n=300, return_lse=True)
    grads = bc.flash_sdpa_backward(q, k, v, y, lse, dy, **plain)
    mine = bc.flash_sdpa_backward(q, k, v, made, own, dy, score=score, mask=mask, m=slopes, n=300)
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5}[element]
    for one, other in zip((made, own, *mine), (y, lse, *grads), strict=True):
        a, b = (cupy.asnumpy(bc.cast(x, "float32")) for x in (one, other))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())
    n, out = cupy.array(300, np.int64), cupy.empty_like(y)
    run = bc.graph(lambda: bc.flash_sdpa(q, k, v, score=score, mask=mask, m=slopes, n=n, out=out))
    n.fill(20)
    run()
    wanted = bc.flash_sdpa(q, k, v, is_causal=True, window_left=20, slopes=slopes)
    a, b = (cupy.asnumpy(bc.cast(x, "float32")) for x in (out, wanted))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())
