"""gemv: known values, any layout, and the same bits for a row alone and beside others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.gemm.gemv import GemvDescriptor, GemvPlan
from baracuda_py.testing.places import call

RNG = np.random.default_rng(0)
ELEMENTS = ("float16", "bfloat16", "float32", "float64")


def small(*shape: int) -> Any:
    """Integers whose products and sums every element holds."""
    return RNG.integers(-2, 3, shape).astype(np.float64)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (1, 33, 40), (3, 40, 264), (8, 7, 31), (16, 64, 100), (2, 9, 9000)]
)
def test_small_integers_are_exact(place: str, element: str, m: int, n: int, k: int) -> None:
    a, b = small(m, k), small(k, n)
    desc = GemvDescriptor(m=m, n=n, k=k, element=element, out_element=ElementKind.of(element).acc)
    assert np.array_equal(call(GemvPlan, desc, ("y",), place, a=a, b=b)["y"], a @ b)


@pytest.mark.parametrize("place", ["emulator", pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_row_has_the_same_bits_alone_and_beside_others(place: str, element: str) -> None:
    kind = ElementKind.of(element)
    a, b, up = RNG.standard_normal((16, 1096)), RNG.standard_normal((1096, 40)), RNG.standard_normal((1096, 40))
    a, b, up = (x.astype(kind.dtype) for x in (a, b, up))

    def product(rows: Any, **more: Any) -> Any:
        desc = GemvDescriptor(m=len(rows), n=40, k=1096, element=kind, out_element=kind.acc)
        return call(GemvPlan, desc, ("y",), place, a=rows, b=b, **more)["y"]

    for more in ({}, {"up": up}):
        whole = product(a, **more)
        for m in (1, 2, 5, 8, 9):
            assert product(a[:m], **more).tobytes() == whole[:m].tobytes()
        assert product(a[11:12], **more).tobytes() == whole[11:12].tobytes()


@pytest.mark.parametrize("element", ["float16", "float32"])
def test_no_layout_changes_a_bit(element: str, emulation: None) -> None:
    """Weights along k, along n, with rows that start anywhere, and every other element."""
    from baracuda_py.core.preference import PlanPreference
    from baracuda_py.core.sku import BackendKind
    from baracuda_py.testing.emulator import emulated_device, emulating
    from baracuda_py.testing.recording import pointer_view

    kind = ElementKind.of(element)
    m, n, k = 3, 72, 520
    a, b = (RNG.standard_normal(shape).astype(kind.dtype) for shape in ((m, k), (k, n)))

    def laid(x: Any, pitch: int, step: int, turned: bool) -> Any:
        rows = x.T if turned else x
        held = np.zeros((rows.shape[0], pitch), kind.dtype)
        view = held[:, : rows.shape[1] * step : step]
        view[...] = rows
        return view.T if turned else view

    found = set()
    for turned, extra, step in [(False, 0, 1), (False, 1, 1), (False, 0, 2), (True, 0, 1), (True, 3, 1), (True, 0, 2)]:
        rows = laid(b, ((k if turned else n) + extra) * step, step, turned)
        assert np.array_equal(rows, b)
        for left in (a, laid(a, k + 1, 1, False)):
            y = np.empty((m, n), kind.acc.dtype)
            desc = GemvDescriptor(m=m, n=n, k=k, element=kind, out_element=kind.acc)
            with emulating():
                ours = PlanPreference(prefer_backend=BackendKind.BESPOKE)
                plan = GemvPlan.select(desc, ours, device=emulated_device(9.0))
                plan.run(plan.args(a=pointer_view(left), b=pointer_view(rows), y=pointer_view(y)))
            found.add(y.tobytes())
    assert len(found) == 1


def test_the_epilogue(place: str) -> None:
    a, b, up = (RNG.standard_normal(shape) for shape in ((2, 24), (24, 10), (24, 10)))
    bias, residual = RNG.standard_normal(10), RNG.standard_normal((2, 10))
    desc = GemvDescriptor(m=2, n=10, k=24, activation="silu", element="float64")
    got = call(GemvPlan, desc, ("y", "pre"), place, a=a, b=b, up=up, bias=bias, residual=residual)
    pre = a @ b + bias
    np.testing.assert_allclose(got["pre"], pre, rtol=1e-12)
    np.testing.assert_allclose(got["y"], pre / (1 + np.exp(-pre)) * (a @ up) + residual, rtol=1e-12)


def test_zero_alpha_leaves_the_operands_out(place: str) -> None:
    bad, c = np.full((4, 8), np.nan), np.ones((4, 8))
    desc = GemvDescriptor(m=4, n=8, k=8, element="float32")
    got = call(GemvPlan, desc, ("y",), place, a=bad, b=np.full((8, 8), np.inf), c=c, alpha=0.0, beta=2.0)["y"]
    assert np.array_equal(got, 2 * c)


def test_a_batch_shares_weights(place: str) -> None:
    a, b = small(3, 2, 16), small(16, 20)
    desc = GemvDescriptor(batch_shape=(3,), m=2, n=20, k=16, element="bfloat16")
    got = call(GemvPlan, desc, ("y",), place, a=a, b=np.broadcast_to(b, (3, 16, 20)))["y"]
    assert np.array_equal(got.astype(np.float64), a @ b)


def test_more_than_sixteen_rows_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match="at most 16, got 17"):
        bc.gemv(np.ones((17, 4), np.float32), np.ones((4, 4), np.float32))
