"""linalg.norm: numpy.linalg.norm's orders of vectors and of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

X = np.random.default_rng(0).standard_normal((3, 4, 5))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("x", "order", "axis"),
    [
        (X, None, None), (X[0], None, None), (X[0, 0], None, None), (X[0, 0], 1, None), (X[0, 0], -np.inf, None),
        (X[0], 1, None), (X[0], "nuc", None), (X[0], 2, None), (X[0], "fro", None), (X, None, 1), (X, 3, -1),
        (X, 0, 0), (X, np.inf, (0, 2)), (X, -2, (2, 1)), (X, None, (0, 1)), (X + 1j, 2, (1, 2)),
    ],
)  # fmt: skip
def test_it_is_numpy_s(x: Any, order: Any, axis: Any, keepdims: bool) -> None:
    made = bc.linalg.norm(x, order, axis, keepdims)
    np.testing.assert_allclose(made, np.linalg.norm(x, order, axis, keepdims), rtol=1e-10)


def test_bad_input_is_told() -> None:
    with pytest.raises(InvalidProblemError, match="needs an axis, or two, of an array of 3 axes"):
        bc.linalg.norm(X, 2)
    with pytest.raises(InvalidProblemError, match="axis must be two axes"):
        bc.linalg.norm(X, 2, (0, 1, 2))
    with pytest.raises(InvalidProblemError):
        bc.linalg.norm(X[0], 3)
