"""NumPy's numbers are numbers wherever a function takes one: results are those of Python's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
CALLS: list[tuple[Any, Any, type]] = [
    (lambda n: bc.add(X, n), 2.0, np.float32),
    (lambda n: bc.add(n, X), 2.0, np.float64),
    (lambda n: bc.add(X > 0, n), True, np.bool_),
    (lambda n: bc.logical_or(X, n), True, np.bool_),
    (lambda n: bc.add(X, X, alpha=n), 2.5, np.float32),
    (lambda n: bc.pow(n, X), 2, np.uint8),
    (lambda n: bc.where(X > 0, n, X), 1, np.int64),
    (lambda n: bc.clamp(X, n), 0.5, np.float16),
    (lambda n: bc.full((2,), n), 1, np.uint8),
    (lambda n: bc.sum(X, axis=n), 1, np.int64),
    (lambda n: bc.sum(X, axis=(n,), keepdims=np.bool_(True)), 1, np.uint8),
    (lambda n: bc.norm_except_dim(X, axis=n), 1, np.int64),
    (lambda n: bc.gradient(X, axis=n), 1, np.int64),
    (lambda n: bc.gradient(X, n), 0.5, np.float32),
    (lambda n: bc.gaussian_nll_loss(X, X, n), 0.5, np.float32),
    (lambda n: bc.softmax(X, temperature=n), 2.0, np.float32),
    (lambda n: bc.log_softmax(X, temperature=n), 2, np.int64),
    (lambda n: bc.histc(X, 5, n, n), 0, np.int64),
    (lambda n: bc.diagonal(X, n), 1, np.uint8),
    (lambda n: bc.arange(n), 5, np.uint8),
    (lambda n: bc.arange(0, n, 2), 5, np.uint8),
    (lambda n: bc.range_closed(0, n, 2), 5, np.uint8),
    (lambda n: bc.geomspace(n, 8.0, 3), 1.0, np.float32),
    (lambda n: bc.reduce_window(X, window_dimensions=(2, 2), padding=n), 0, np.int64),
    (lambda n: bc.weight_norm(X, X[:, :1], axis=n), 0, np.int64),
    (lambda n: bc.roll(X, n, axis=n), 1, np.uint8),
    (lambda n: bc.topk(X, n, axis=n), 1, np.uint8),
    (lambda n: bc.permute(X, (n, 0)), 1, np.uint8),
]


def flat(value: Any) -> list[Any]:
    return [one for each in value for one in flat(each)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("place", range(len(CALLS)))
def test_numpys_number_is_pythons(place: int) -> None:
    call, number, kind = CALLS[place]
    for ours, expected in zip(flat(call(kind(number))), flat(call(number)), strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(ours, expected)
