"""array_equal and array_equiv against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc

X = np.array([[1.0, np.nan, -0.0], [np.inf, 5.0, 2.0]])


@pytest.mark.parametrize("equal_nan", (False, True))
@pytest.mark.parametrize("other", (X, -X, X[:1], X[0], X[:, :2], np.float64(1), np.where(np.isnan(X), 0, X)))
def test_array_equal(other: np.ndarray, equal_nan: bool) -> None:
    other = np.asarray(other)
    for a, b in ((X, other), (other, X), (X[::-1, ::2], other[..., ::2] if other.ndim else other)):
        got = bc.array_equal(a, b, equal_nan=equal_nan)
        assert got.shape == () and got.dtype == np.bool_
        assert got == np.array_equal(a, b, equal_nan=equal_nan)


@pytest.mark.parametrize("element", ("int64", "uint8", "bool", "float16", "float32"))
def test_elements(element: str) -> None:
    a = np.array([0, 1, 1, 0, 1], element)
    assert bc.array_equal(a, a.copy()) and not bc.array_equal(a, a[::-1])
    assert bc.array_equal(a[:0], a[:0]) and not bc.array_equal(a[:0], a)


def test_array_equiv() -> None:
    assert bc.array_equiv(np.ones((3, 4)), np.ones(4)) and bc.array_equiv(np.ones((3, 4)), np.ones(()))
    assert not bc.array_equiv(np.ones((3, 2)), np.array([1.0, 2.0]))
    with pytest.raises(bc.InvalidProblemError):
        bc.array_equiv(np.ones(3), np.ones(2))
