"""multi_gemm: lists of matrices of any sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.gemm.multi_gemm import MultiGemmDescriptor, MultiGemmPlan
from baracuda_py.testing.places import call

RNG = np.random.default_rng(0)


def lists(count: int) -> tuple[Any, Any]:
    """Small integers, every product of another size."""
    sizes = [(1 + i % 7, 1 + i % 5, i % 9) for i in range(count)]
    a = [RNG.integers(-3, 4, (m, k)).astype(np.float64) for m, _, k in sizes]
    return a, [RNG.integers(-3, 4, (k, n)).astype(np.float64) for _, n, k in sizes]


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
def test_more_products_than_a_launch_holds(place: str, element: str) -> None:
    a, b = lists(75)
    desc = MultiGemmDescriptor(a_shapes=tuple(x.shape for x in a), b_shapes=tuple(x.shape for x in b), element=element)
    got = call(MultiGemmPlan, desc, ("y",), place, a=a, b=b, alpha=2.0)["y"]
    for i, y in enumerate(got):
        assert np.array_equal(y.astype(np.float64), 2 * (a[i] @ b[i])), i


def test_zero_alpha_leaves_the_operands_out(place: str) -> None:
    desc = MultiGemmDescriptor(a_shapes=((2, 3),), b_shapes=((3, 4),), element="float32")
    got = call(MultiGemmPlan, desc, ("y",), place, a=[np.full((2, 3), np.nan)], b=[np.ones((3, 4))], alpha=0.0)["y"]
    assert np.array_equal(got[0], np.zeros((2, 4)))


def test_the_function_takes_views_and_empty_lists() -> None:
    x = RNG.standard_normal((6, 8))
    got = bc.multi_gemm([x, x.T[:, ::2]], [x.T, x[1::2]])
    np.testing.assert_allclose(got[0], x @ x.T)
    np.testing.assert_allclose(got[1], x.T[:, ::2] @ x[1::2])


def test_wrong_lists_are_named() -> None:
    x = np.ones((2, 3))
    with pytest.raises(InvalidProblemError, match=r"a\[1\] has 3 columns and b\[1\] 2 rows"):
        bc.multi_gemm([x, x], [x.T, x])
    with pytest.raises(InvalidProblemError, match="a has 2 matrices and b 1"):
        bc.multi_gemm([x, x], [x.T])
    with pytest.raises(InvalidProblemError, match="must be matrices"):
        bc.multi_gemm([np.ones(3)], [x.T])
