"""Different slices along an axis, interpolation, complex numbers in order: against NumPy's, torch's and JAX's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool, np.uint16])
@pytest.mark.parametrize("shape, axis", [((6, 2), 0), ((3, 7), -1), ((2, 5, 3), 1), ((8,), 0), ((5, 1, 5), 0)])
def test_slices_that_differ(shape: Any, axis: int, dtype: Any) -> None:
    for _ in range(3):
        x = RNG.integers(0, 2, shape).astype(dtype)
        want = np.unique(x, axis=axis, return_index=True, return_inverse=True, return_counts=True)
        values, inverse, counts, first, number = bc.unique(
            x, axis=axis, return_index=True, return_inverse=True, return_counts=True
        )
        n = int(number)
        assert n == want[0].shape[axis]
        np.testing.assert_array_equal(np.take(values, range(n), axis), want[0])
        np.testing.assert_array_equal(inverse, want[2].reshape(-1))
        np.testing.assert_array_equal(counts[:n], want[3])
        np.testing.assert_array_equal(first[:n], want[1])


@pytest.mark.parametrize("shape, axis", [((6, 2), 0), ((2, 7), 1), ((2, 5, 1), 1), ((8,), 0)])
def test_runs_of_slices(shape: Any, axis: int) -> None:
    torch = pytest.importorskip("torch")
    x = RNG.integers(0, 2, shape).astype(np.float32)
    want = torch.unique_consecutive(torch.from_numpy(x), dim=axis, return_inverse=True, return_counts=True)
    values, inverse, counts, number = bc.unique_consecutive(
        x, axis=axis, return_inverse=True, return_counts=True, fill_value=np.float32(9)
    )
    n = int(number)
    np.testing.assert_array_equal(np.take(values, range(n), axis), want[0].numpy())
    assert (np.take(values, range(n, shape[axis]), axis) == 9).all()
    np.testing.assert_array_equal(inverse, want[1].numpy())
    np.testing.assert_array_equal(counts[:n], want[2].numpy())


def test_nan_and_zeros_in_slices() -> None:
    x = np.float32([[1, np.nan], [0, -0.0], [1, np.nan], [-0.0, 0]])
    for function, rows, alone, equal in ((bc.unique, [0, 1, 2, 3], 3, 2), (bc.unique_consecutive, [1, 3, 0, 2], 3, 2)):
        assert int(function(x[rows], axis=0)[-1]) == alone
        assert int(function(x[rows], axis=0, equal_nan=True)[-1]) == equal
    for empty in (np.zeros((0, 3)), np.zeros((3, 0))):
        assert int(bc.unique(empty, axis=0)[-1]) == min(len(empty), 1)
    with pytest.raises(InvalidProblemError, match="axis"):
        bc.unique(np.array(1.0), axis=0)


def test_slices_have_gradients() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0]], requires_grad=True)
    values, number = bc.unique(x, axis=0, size=2)
    values.sum().backward()
    assert int(number) == 2 and x.grad.tolist() == [[1, 1], [1, 1], [0, 0]]


@pytest.mark.parametrize("left, right", [(None, None), (1.5, None), (None, -7.0), (0.0, np.nan)])
def test_between_points(left: Any, right: Any) -> None:
    for n in (1, 2, 3, 8):
        for xp in (np.sort(RNG.integers(0, 9, n) / 2), np.sort(RNG.standard_normal(n))):  # some are equal
            fp = RNG.standard_normal(n)
            x = np.concatenate([RNG.standard_normal(5) * 3, xp, RNG.integers(-2, 9, 4) / 2]).reshape(1, -1)
            want = np.interp(x, xp, fp, left, right)
            np.testing.assert_allclose(bc.interp(x, xp, fp, left, right), want, rtol=1e-12, atol=1e-13)
    assert np.isnan(bc.interp(np.array([np.nan]), xp, fp))


@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64])
def test_beside_a_value_that_is_not_finite(element: Any) -> None:
    """At a point its value; between an infinite one and a finite one infinite; of opposite infinities NaN."""
    i, n = np.inf, np.nan
    x, xp = np.array([-1, 0, 0.5, 1, 1.5, 2, 3, n], element), np.array([0, 1, 2], element)
    for fp, want in (
        ([0, i, 1], [0, 0, i, i, i, 1, 1, n]), ([i, 0, 1], [i, i, i, 0, 0.5, 1, 1, n]),
        ([0, 1, -i], [0, 0, 0.5, 1, -i, -i, -i, n]), ([i, i, 1], [i, i, i, i, i, 1, 1, n]),
        ([0, -i, i], [0, 0, -i, -i, n, i, i, n]), ([n, 0, 1], [n, n, n, 0, 0.5, 1, 1, n]),
    ):  # fmt: skip
        np.testing.assert_array_equal(bc.interp(x, xp, np.array(fp, element)), np.array(want, element))
    most = np.finfo(element).max
    wide = np.array([-most, most])
    np.testing.assert_array_equal(bc.interp(np.array([-most, 0, most], element), wide, wide), [-most, 0, most])
    far = bc.interp(np.array([-i, 0, 5, i], element), np.array([-i, 1, i], element), np.array([3, 4, 5], element))
    np.testing.assert_array_equal(far, [3, 4, 4, 5])


def test_the_gradient_beside_a_value_that_is_not_finite() -> None:
    torch = pytest.importorskip("torch")
    x, xp, fp = (
        torch.tensor(one, dtype=torch.float64, requires_grad=True)
        for one in ([0.0, 0.25, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 4.0], [0.0, np.inf, 1.0, 5.0])
    )
    bc.interp(x, xp, fp).sum().backward()
    assert fp.grad.tolist() == [1.75, 1.25, 1.5, 0.5] and x.grad.tolist() == [0, np.inf, 0, 2, 2]


def test_between_points_of_a_period_and_beyond_them() -> None:
    xp, fp, x = RNG.standard_normal(6) * 5, RNG.standard_normal(6), RNG.standard_normal((3, 4)) * 9
    for period in (3.0, -3.0):
        want = np.interp(x, xp, fp, period=period)
        np.testing.assert_allclose(bc.interp(x, xp, fp, period=period), want, rtol=1e-10, atol=1e-12)
    xp = np.array([0.0, 1.0, 3.0])
    y = bc.interp(np.array([-2.0, 5.0]), xp, np.array([1.0, 2.0, 8.0]), "extrapolate", "extrapolate")
    np.testing.assert_array_equal(y, [-1.0, 14.0])
    with pytest.raises(InvalidProblemError, match="one float"):
        bc.interp(x, xp, np.arange(3))
    with pytest.raises(InvalidProblemError, match="extrapolate"):
        bc.interp(x, xp, xp, left="nearest")


def test_gradients_between_points() -> None:
    torch = pytest.importorskip("torch")
    given = ([-2.0, 0.1, 0.7, 1.4, 5.0], [-1.0, 0.0, 0.5, 2.0], [1.0, -2.0, 3.0, 0.5])
    x, xp, fp = (torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in given)
    for facts in ({}, {"left": 0.0, "right": 1.0}, {"left": "extrapolate"}, {"period": 2.6}):
        assert torch.autograd.gradcheck(lambda x, xp, fp, facts=facts: bc.interp(x, xp, fp, **facts), (x, xp, fp))
    twice = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64, requires_grad=True)
    bc.interp(torch.tensor([1.0, 2.0], dtype=torch.float64), twice, fp[:3]).sum().backward()
    assert torch.isfinite(twice.grad).all() and fp.grad.tolist() == [0, 0, 2, 0]


def test_complex_numbers_in_order() -> None:
    n = np.nan
    x = np.array([[2, 1 + n * 1j, complex(n, 1), complex(n, n), 1 + 2j, 1 - 1j, complex(0, n), complex(n, 0), 2 - 5j]])
    x[0, 1] = complex(1, n)
    np.testing.assert_array_equal(bc.sort_complex(x), np.sort_complex(x))
    x = (RNG.integers(0, 3, (3, 7)) + 1j * RNG.integers(0, 3, (3, 7))).astype(np.complex64)
    np.testing.assert_array_equal(bc.sort_complex(x), np.sort_complex(x))
    with pytest.raises(InvalidProblemError, match="complex"):
        bc.sort_complex(x.real)
