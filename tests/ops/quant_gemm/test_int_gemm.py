"""Products of integers of 8 bits: exact sums over their whole range, scales, zero points, requantising, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.args import arrays_of
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import cast
from baracuda_py.core.tensor import View
from baracuda_py.core.variant import Problem

rng = np.random.default_rng(0)


def whole(*shape: int, dtype: Any = np.int8) -> Any:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape, dtype=dtype)


@pytest.mark.parametrize("left", [np.int8, np.uint8])
@pytest.mark.parametrize("right", [np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 33), (17, 3, 0), (2, 9, 300)])
def test_sums_are_exact(left: Any, right: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = whole(m, k, dtype=left), whole(n, k, dtype=right)
    want = a.astype(np.int64) @ b.T.astype(np.int64)
    got = bc.int_mm(a, b.T)
    assert got.dtype == np.int32 and np.array_equal(got, want)
    zero_a, zero_b = whole(m, dtype=left), whole(n, dtype=right)
    moved = (a.astype(np.int64) - zero_a[:, None]) @ (b.T.astype(np.int64) - zero_b)
    assert np.array_equal(bc.matmul_integer(a, b.T, zero_a, zero_b), moved)


def test_sums_wrap_and_scaled_ones_do_not() -> None:
    k = 131_073
    a, b = np.full((1, k), -128, np.int8), np.full((k, 1), -128, np.int8)
    assert bc.int_mm(a, b)[0, 0] == k * 16384 - 2**32
    assert bc.matmul_int8(a, b, 0.5)[0, 0] == np.float32(k * 8192)


def test_batches_broadcast_and_views_are_taken() -> None:
    a, b = whole(2, 1, 4, 12), whole(3, 9, 12)
    want = a.astype(np.int64) @ b.swapaxes(1, 2).astype(np.int64)
    assert np.array_equal(bc.int_bmm(a, b.swapaxes(1, 2)), want)
    shared, out = whole(2, 3, 4, 12)[..., ::-1], np.zeros((2, 3, 4, 9), np.int32)
    assert bc.int_mm(shared, b[0].T, out=out) is out
    assert np.array_equal(out, shared.astype(np.int64) @ b[0].T.astype(np.int64))


@pytest.mark.parametrize("out", ["float32", "float16", "bfloat16"])
def test_scaled_results_are_rounded_once(out: str) -> None:
    a, b = whole(6, 50), whole(50, 8)
    scale_a, scale_b = (np.exp(rng.standard_normal(s)).astype(np.float32) for s in ((6, 1), (1, 8)))
    bias = (100 * rng.standard_normal(8)).astype(bc.ElementKind.of(out).dtype)
    sums = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.longdouble)
    exact = sums * scale_a * scale_b + bias.astype(np.longdouble)
    got = bc.int_gemm(a, b, scale_a=scale_a, scale_b=scale_b, bias=bias, out_element=out)
    assert np.array_equal(got, cast(exact, out))


def test_groups_of_k() -> None:
    a, b, group = whole(3, 100), whole(100, 5), 32
    scale_a, scale_b = (np.exp(rng.standard_normal(s)).astype(np.float32) for s in ((3, 4), (4, 5)))
    zero_b = whole(4, 5)
    spread = [
        np.repeat(x, group, axis)[(slice(None),) * axis + (slice(100),)] for x, axis in ((scale_a, 1), (scale_b, 0))
    ]
    right = (b.astype(np.int64) - np.repeat(zero_b, group, 0)[:100]) * spread[1].astype(np.float64)
    want = (a * spread[0].astype(np.float64)) @ right
    got = bc.int_gemm(a, b, scale_a=scale_a, scale_b=scale_b, zero_b=zero_b, group=group)
    assert np.allclose(got, want, rtol=1e-5)


def test_requantised_numbers_round_half_to_even_and_saturate() -> None:
    a, b = np.array([[1], [3], [5], [-7], [127], [-128]], np.int8), np.array([[1, 100]], np.int8)
    one, two = np.array(1, np.float32), np.array(2, np.float32)
    got = bc.qlinear_matmul(a, one, None, b, one, None, two, np.array(10, np.int8))
    assert got.T.tolist() == [[10, 12, 12, 6, 74, -54], [60, 127, 127, -128, 127, -128]]
    got = bc.qlinear_matmul(a, one, None, b, one, None, two, np.array(10, np.uint8))
    assert got.dtype == np.uint8 and got.T.tolist() == [[10, 12, 12, 6, 74, 0], [60, 160, 255, 0, 255, 0]]


def test_what_cublas_takes() -> None:
    (row,) = (v for v in bc.IntGemmPlan.variants if v.name == "cublas")

    def said(strides_b: tuple[int, ...] = (1, 48), zero: bool = False, **change: Any) -> Any:
        desc = bc.IntGemmDescriptor(**({"kind": "sums", "m": 5, "n": 64, "k": 48, "element": "int8"} | change))
        views: dict[str, Any] = dict.fromkeys(s.name for s in arrays_of(bc.IntGemmPlan.args))
        views["a"] = View(0, (5, desc.k), (desc.k, 1), desc.element)
        views["b"] = View(0, (desc.k, desc.n), strides_b, desc.b_element)
        views["y"] = View(0, (5, desc.n), (desc.n, 1), desc.out_element)
        views["zero_a"] = View(0, (), (), desc.element) if zero else None
        return row.refuses(desc) or row.geometry(Problem(desc, fake_device(8.0), views))

    assert not isinstance(said(), str)
    assert "k along memory" in said((64, 1)) and "no zero_a" in said(zero=True)
    assert "multiples of 16" in said(k=40) and "int8 by int8" in said(b_element="uint8")


def test_bad_input_is_named() -> None:
    a, b = whole(4, 6), whole(6, 5)
    with pytest.raises(bc.InvalidProblemError, match="a has 6 columns and b 4 rows"):
        bc.int_mm(a, a)
    with pytest.raises(bc.InvalidProblemError, match="a must have rows and columns"):
        bc.int_mm(a[0], b)
    with pytest.raises(bc.UnsupportedError, match="int_mm takes b in int8 or uint8, got float32"):
        bc.int_mm(a, b.astype(np.float32))
    with pytest.raises(bc.UnsupportedError, match="matmul_int8 takes a in int8, got uint8"):
        bc.matmul_int8(a.view(np.uint8), b, 1.0)
    with pytest.raises(bc.InvalidProblemError, match="scale_a must broadcast to shape"):
        bc.int_gemm(a, b, scale_a=np.ones((5, 1), np.float32))
    with pytest.raises(bc.BaracudaError, match="scale_a"):
        bc.int_gemm(a, b, scale_a=np.ones((4, 1)))
    with pytest.raises(bc.BaracudaError, match="zero_a"):
        bc.matmul_integer(a, b, np.array(300, np.int32))
    with pytest.raises(bc.InvalidProblemError, match="group must be 32 or 64 or 128"):
        bc.int_gemm(a, b, scale_b=np.ones((1, 5), np.float32), kind="grouped", group=16)
    with pytest.raises(bc.InvalidProblemError, match="out_element must be int32"):
        bc.int_gemm(a, b, out_element="float32")
