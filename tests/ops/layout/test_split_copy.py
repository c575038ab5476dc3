"""split_copy and unbind_copy against NumPy's splits and torch's gradients; lax.broadcast."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

X = np.arange(24, dtype=np.int16).reshape(4, 6)


def test_parts_have_memory_of_their_own() -> None:
    for view in (X, X.T, X[::-1, ::2]):
        parts = bc.split_copy(view, 2, axis=-1)
        for one, want in zip(parts, np.split(view, range(2, view.shape[1], 2), axis=1), strict=True):
            np.testing.assert_array_equal(one, want)
            assert not np.shares_memory(one, X)
    assert [y.tolist() for y in bc.split_with_sizes_copy(X, (1, 0, 3))] == [X[:1].tolist(), [], X[1:].tolist()]
    outs = [np.zeros((4, 3), np.int16) for _ in range(2)]
    assert all(a is b for a, b in zip(bc.split_copy(X, 3, axis=1, out=outs), outs, strict=True))
    np.testing.assert_array_equal(np.hstack(outs), X)
    with pytest.raises(InvalidProblemError, match="out= must give 2"):
        bc.split_copy(X, 3, axis=1, out=outs[:1])
    with pytest.raises(InvalidProblemError, match="6 together"):
        bc.split_copy(X, (1, 2), axis=1)


def test_slices_of_an_axis() -> None:
    for axis in (0, 1, -1):
        for one, want in zip(bc.unbind_copy(X, axis), np.moveaxis(X, axis, 0), strict=True):
            np.testing.assert_array_equal(one, want)
            assert not np.shares_memory(one, X)
    assert bc.unbind_copy(np.zeros((0, 3))) == []


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: tuple(bc.split_copy(x, (1, 3, 2), axis=1)), (x,))
    assert torch.autograd.gradcheck(lambda x: tuple(bc.unbind_copy(x, 1)), (x,))


def test_axes_before_its_own() -> None:
    y = bc.broadcast(X, (2, 3))
    assert y.shape == (2, 3, 4, 6) and y.strides[:2] == (0, 0) and (y == X).all()


def test_a_function_over_axes() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    for axes in ((0, 2), -1, (1, 0, -1)):
        np.testing.assert_allclose(bc.apply_over_axes(bc.sum, x, axes), np.apply_over_axes(np.sum, x, axes))
    np.testing.assert_array_equal(bc.apply_over_axes(bc.cumsum, x, 1), np.cumsum(x, 1))
    with pytest.raises(InvalidProblemError, match="keep the 3 axes"):
        bc.apply_over_axes(lambda x, axis: bc.sum(x), x, 0)
