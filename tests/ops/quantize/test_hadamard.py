"""Hadamard transforms: the matrices, known values, inverse and gradient, blocks and axes, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import scipy.linalg

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.quantize.hadamard_matrix import hadamard_matrix
from baracuda_py.schedules.hadamard import Tiling

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("n", [1, 2, 4, 12, 20, 24, 28, 40, 64, 112, 448])
def test_matrices(n: int) -> None:
    """1 and -1, symmetric, and H H = n I; of powers of two that of SciPy."""
    h = hadamard_matrix(n)
    np.testing.assert_array_equal(np.abs(h), 1)
    np.testing.assert_array_equal(h, h.T)
    np.testing.assert_array_equal(h @ h, n * np.eye(n))
    if not n & n - 1:
        np.testing.assert_array_equal(h, scipy.linalg.hadamard(n))
    np.testing.assert_array_equal(bc.hadamard_transform(np.eye(n)), h)


@pytest.mark.parametrize("n", [16, 56, 96])
def test_signs_scale_and_blocks(n: int) -> None:
    x, signs, after = RNG.standard_normal((3, 2 * n)), *RNG.choice([-1.0, 1.0], (2, 2 * n))
    y = bc.hadamard_transform(x, signs, after, block=n, scale=0.25, normalized=True)
    wanted = (x * signs).reshape(3, 2, n) @ hadamard_matrix(n) * (0.25 / np.sqrt(n))
    np.testing.assert_allclose(y, wanted.reshape(3, -1) * after, rtol=1e-13, atol=1e-13)


def test_the_normalized_transform_is_its_own_inverse() -> None:
    x = RNG.standard_normal((5, 3, 80)).astype(np.float32)
    back = bc.hadamard_transform(bc.hadamard_transform(x, normalized=True, axis=-1), normalized=True)
    np.testing.assert_allclose(back, x, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_any_axis_and_in_place(axis: int) -> None:
    x = RNG.standard_normal((8, 12, 20))
    wanted = np.moveaxis(np.moveaxis(x, axis, -1) @ hadamard_matrix(x.shape[axis]), -1, axis)
    np.testing.assert_allclose(bc.hadamard_transform(x, axis=axis), wanted, rtol=1e-12, atol=1e-12)
    same = bc.hadamard_transform(x, axis=axis, out=x)
    assert np.shares_memory(same, x)
    np.testing.assert_allclose(x, wanted, rtol=1e-12, atol=1e-12)


def test_sums_are_rounded_once() -> None:
    """In bfloat16 256 + 1 - 256 is 0 where sums are rounded on the way."""
    x = np.array([256, 1, -256, 0], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(bc.hadamard_transform(x).astype(np.float32), [1, -1, 512, 512])


def test_infinities_meet_as_in_a_sum() -> None:
    y = bc.hadamard_transform(np.array([[np.inf, 1, 2, 3], [np.inf, np.inf, 0, 0], [np.nan, 0, 0, 0]], np.float32))
    np.testing.assert_array_equal(y[0], np.inf)
    np.testing.assert_array_equal(y[1], [np.inf, np.nan, np.inf, np.nan])
    assert np.isnan(y[2]).all()


def test_the_gradient_is_the_transpose() -> None:
    x, dy = RNG.standard_normal((2, 4, 24))
    signs, after = RNG.standard_normal((2, 24))
    dx = bc.hadamard_backward(dy, signs, after, scale=3.0)
    y = bc.hadamard_transform(x, signs, after, scale=3.0)
    np.testing.assert_allclose((y * dy).sum(), (x * dx).sum(), rtol=1e-12)


@pytest.mark.parametrize("element", ["float16", "float32", "float64"])
def test_rounds_do_every_level_once(element: str) -> None:
    kind = bc.ElementKind.of(element)
    for base in (1, 12, 20, 28):
        for k in range(12):
            tiling = Tiling(kind, base, k)
            rounds, levels = tiling.rounds(), []
            for at, (shift, low, high) in enumerate(rounds):
                inner = 0 < at < len(rounds) - 1
                held = [] if inner else [*range(tiling.chunk)]
                held += range(shift, shift + tiling.levels - len(held))
                assert held[-1] < tiling.bits
                assert not inner or shift == tiling.chunk + (at - 1) * tiling.levels
                levels += [q for q in held if low <= q < high]
            assert sorted(levels) == [*range(k)]


@pytest.mark.parametrize("n", [3, 6, 36, 44, 100])
def test_orders_without_a_matrix_are_refused(n: int) -> None:
    with pytest.raises(InvalidProblemError, match=f"block must be 2\\^k.*got {n}"):
        bc.hadamard_transform(np.zeros((2, n)))


def test_refusals() -> None:
    with pytest.raises(InvalidProblemError, match="blocks of 8"):
        bc.hadamard_transform(np.zeros((2, 12)), block=8)
    with pytest.raises(InvalidProblemError, match="axis"):
        bc.hadamard_transform(np.zeros(()))
    with pytest.raises(InvalidProblemError, match="axis"):
        bc.hadamard_transform(np.zeros((2, 8)), axis=2)
    with pytest.raises(InvalidProblemError, match="signs"):
        bc.hadamard_transform(np.zeros((2, 8)), np.zeros(4))
