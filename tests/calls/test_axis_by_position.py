"""An axis may follow the array it is of, as in NumPy and torch."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

X = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize(
    "name",
    ["sum", "mean", "amax", "prod", "argmax", "all", "logsumexp", "var", "cumsum", "cumprod", "cummax", "nancumsum",
     "cumulative_sum", "sort", "argsort", "softmax", "log_softmax", "softmin", "sparsemax", "nansum", "unwrap"],
)  # fmt: skip
def test_it_is_the_axis_given_by_name(name: str) -> None:
    function = getattr(bc, name)
    np.testing.assert_equal(function(X, 1), function(X, axis=1))


def test_keepdims_follows_it() -> None:
    np.testing.assert_allclose(bc.sum(X, (0, 2), True), X.sum((0, 2), keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(bc.norm(X, 2, 1, True), np.linalg.norm(X, 2, 1, True), rtol=1e-5)


def test_what_follows_an_axis_is_what_a_scan_begins_with() -> None:
    first = np.float32(3)
    np.testing.assert_allclose(bc.cumsum(X[0, 0], 0, np.array(first)), X[0, 0].cumsum() + first, rtol=1e-5)
    with pytest.raises(InvalidProblemError, match="axis"):
        bc.cumsum(X[0, 0], np.zeros(3, np.float32))
