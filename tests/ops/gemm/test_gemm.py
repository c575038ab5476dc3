"""dense_gemm: what BLAS promises, and which row takes which layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import Problem
from baracuda_py.core.element import ElementKind
from baracuda_py.core.error_bound import Forward
from baracuda_py.core.args import arrays_of
from baracuda_py.core.tensor import View, dense_strides
from baracuda_py.testing.draw import Case
from baracuda_py.testing.truth import Truth

RNG = np.random.default_rng(0)
H200 = fake_device(9.0)


def row_for(desc: bc.GemmDescriptor, **strides: tuple[int, ...]) -> str:
    """The row that operands with these strides take on a fake device."""
    plan = bc.GemmPlan.select(desc, device=H200)
    shapes = {"a": (desc.m, desc.k), "b": (desc.k, desc.n), "y": (desc.m, desc.n)}
    views = {n: View(0, s, strides.get(n, dense_strides(s)), ElementKind.F32) for n, s in shapes.items()}
    problem = Problem(desc, H200, dict.fromkeys((o.name for o in arrays_of(bc.GemmArgs)), None) | views)
    return next(v.name for v in plan.rows if not isinstance(v.geometry(problem), str))


def test_any_transposition_goes_to_cublas_and_any_other_stride_to_simt():
    desc = bc.GemmDescriptor(m=8, n=16, k=32, element="float32")
    assert row_for(desc) == "cublas"
    assert row_for(desc, a=(1, 8), b=(1, 32), y=(1, 8)) == "cublas"
    assert row_for(desc, a=(64, 1)) == "cublas"  # a pitch
    assert row_for(desc, a=(64, 2)) == "simt"
    assert row_for(desc, b=(-16, 1)) == "simt"
    assert row_for(desc, y=(32, 2)) == "simt"


def test_tf32_is_taken_only_where_it_is_asked_for():
    asked = bc.GemmDescriptor(m=8, n=8, k=8, element="float32", math_precision="tf32")
    assert row_for(asked) == "cublas_tf32"
    assert bc.GemmPlan.select(asked, device=H200).sku.precision_guarantee.math_precision == "tf32"
    strict = bc.GemmPlan.select(bc.GemmDescriptor(m=8, n=8, k=8, element="float32"), device=H200)
    assert strict.precision_guarantee.math_precision == "float32"
    with pytest.raises(bc.InvalidProblemError, match="tf32"):
        bc.GemmDescriptor(m=8, n=8, k=8, element="bfloat16", math_precision="tf32")


def test_an_empty_inner_extent_gives_beta_c():
    desc = bc.GemmDescriptor(m=2, n=3, k=0, element="float32")
    assert row_for(desc) == "simt"
    c = RNG.standard_normal((2, 3)).astype(np.float32)
    assert np.array_equal(bc.matmul(np.ones((2, 0), np.float32), np.ones((0, 3), np.float32), c, beta=2.0), 2 * c)


def test_batches_broadcast_by_stride_and_accumulate_in_place():
    a = RNG.standard_normal((3, 4, 5))
    b = np.broadcast_to(RNG.standard_normal((5, 6)), (3, 5, 6))
    y = RNG.standard_normal((3, 4, 6))
    want = 0.5 * a @ b + 2.0 * y
    assert bc.matmul(a, b, y, alpha=0.5, beta=2.0, out=y) is y
    np.testing.assert_allclose(y, want, rtol=1e-14, atol=1e-14)


def test_sixteen_bit_operands_give_float32_when_asked():
    a = RNG.standard_normal((16, 64)).astype(np.float16)
    y = bc.matmul(a, a.T, out_element="float32")
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, a.astype(np.float64) @ a.astype(np.float64).T, rtol=1e-6)
    with pytest.raises(bc.InvalidProblemError, match="out_element"):
        bc.matmul(a, a.T, out_element="float64")


@pytest.mark.gpu
@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
def test_scalars_may_live_on_the_device(element):
    import cupy

    kind = ElementKind.of(element)
    a, b, c = (cupy.asarray(RNG.standard_normal((64, 64)).astype(kind.dtype)) for _ in range(3))
    scalars = [cupy.asarray(value, kind.acc.dtype) for value in (0.5, 2.0)]
    got = bc.matmul(a, b, c, alpha=scalars[0], beta=scalars[1])
    want = bc.matmul(a, b, c, alpha=0.5, beta=2.0)
    np.testing.assert_allclose(got.get().astype(np.float64), want.get().astype(np.float64), rtol=2e-2, atol=2e-2)
    with pytest.raises(bc.InvalidProblemError, match="both"):
        bc.matmul(a, b, c, alpha=scalars[0], beta=2.0)


@pytest.mark.gpu
def test_a_sixteen_bit_sum_in_place_is_rounded_once():
    import cupy

    a, b = (RNG.standard_normal((128, 256)).astype(np.float16) for _ in range(2))
    c = (100 * RNG.standard_normal((128, 128))).astype(np.float16)
    y = cupy.asarray(c)
    bc.matmul(cupy.asarray(a), cupy.asarray(b).T, y, out=y)
    truth = a.astype(np.float64) @ b.astype(np.float64).T + c
    half = 0.5 * np.spacing(np.abs(truth).astype(np.float16)).astype(np.float64)
    # 1e-4 is room for float32 sums of 256 products; a product rounded on its own would be off by up to 8e-3 more.
    assert np.all(np.abs(y.get().astype(np.float64) - truth) <= half + 1e-4)


def test_cublas_gets_the_pointers_of_its_operands(monkeypatch):
    """By name among all the operands that a product may have."""
    seen = []

    class Recorded:
        def __init__(self, problem, device):
            pass

        def run(self, *args):
            seen.append(args)

    monkeypatch.setattr("baracuda_py.backends.cublas.prepare", Recorded)
    desc = bc.GemmDescriptor(m=8, n=16, k=32, element="float32")
    names = [operand.name for operand in arrays_of(bc.GemmArgs)]
    shapes = {"a": (8, 32), "b": (32, 16), "c": (8, 16), "y": (8, 16)}
    views = {name: View(0, s, dense_strides(s), ElementKind.F32) for name, s in shapes.items()}
    views = {name: views.get(name) for name in names}
    row = next(v for v in bc.GemmPlan.variants if v.name == "cublas")
    (step,) = row.geometry(Problem(desc, H200, views)).steps
    step.prepare(H200)(tuple(map(ord, "".join(name[-1] for name in names))), ((0, 0.5), (0, 2.0)), 7, 8, 9)
    assert seen == [(*map(ord, "abcy"), 0.5, 2.0, 7, 8, 9, [])]


def test_nan_serves_where_a_scaled_product_underflows_before_an_infinite_scale() -> None:
    """The formula in float32 has 0 times infinity there; in float64 the product is not yet 0."""
    desc = bc.GemmDescriptor(m=1, n=2, k=1, element="float32")
    tiny = np.float32(2.0**-126)
    given = {"a": [[tiny]], "b": [[0.5, 0.5]], "c": [[1, 1]], "scale_a": [tiny], "scale_b": [np.inf, 1]}
    arrays: dict[str, Any] = dict.fromkeys(spec.name for spec in arrays_of(bc.GemmArgs))
    arrays |= {name: np.array(values, np.float32) for name, values in given.items()} | {"alpha": 1.0, "beta": 1.0}
    truth = Truth(Case(bc.GemmPlan, desc, arrays, frozenset({"y"})))
    for y, right in (([np.nan, 1], True), ([np.inf, 1], True), ([np.nan, np.nan], False), ([0, 1], False)):
        assert (truth.wrong({("y", 0): np.array([y], np.float32)}, Forward(128)) is None) is right
