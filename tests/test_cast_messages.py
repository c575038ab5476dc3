"""Functions of `baracuda_py` promote nothing unasked: an error names the operand and the cast that would do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import BaracudaError

X, D, I = np.ones((3, 4), np.float32), np.ones((3, 4)), np.arange(12).reshape(3, 4)  # noqa: E741
B = X > 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bc.sin(I), r"sin of int64 .*: write cast\(x, 'float32'\)"),
        (lambda: bc.square(B), r"square of bool .*: write cast\(x, 'float32'\)"),
        (lambda: bc.div(I, I), r"div of int64 .*: write cast\(a, 'float32'\) and cast\(b, 'float32'\)"),
        (lambda: bc.div(I, 2), r"div of int64 .*: write cast\(a, 'float32'\)$"),
        (lambda: bc.add(I, 2.5), r"a is int64 and b is 2.5; .*: write add\(cast\(a, 'float32'\), 2.5\)"),
        (lambda: bc.add(X, D), r"write add\(cast\(a, 'float64'\), b\)"),
        (lambda: bc.mean(I), r"int64 has no mean .*: write cast\(x, 'float32'\)"),
        (lambda: bc.logcumsumexp(I), r"logcumsumexp of int64 .*: write cast\(x, 'float32'\)"),
        (lambda: bc.dropout(I, seed=1), r"int64 is not supported; .*: write cast\(x, 'float32'\)"),
        (lambda: bc.trapezoid(I), r"int64 is not supported; .*: write cast\(y, 'float32'\)"),
        (lambda: bc.mse_loss(X, D), r"target must be float32, got float64; write cast\(target, 'float32'\)"),
        (lambda: bc.concat([X, D]), r"xs\[1\] must be float32, got float64; write cast\(xs\[1\], 'float32'\)"),
        (lambda: bc.where(B, X, D), r"b must be float32, got float64; write cast\(b, 'float32'\)"),
        (lambda: bc.where(X, X, X), r"condition must be bool, got float32; write cast\(condition, 'bool'\)"),
        (lambda: bc.clamp(X, D), r"min must be float32, got float64; write cast\(min, 'float32'\)"),
        (lambda: bc.clamp(I, 0.5), r"min must be an integer for int64, got 0.5; .*cast\(…, 'float32'\)"),
        (lambda: bc.clamp(B, B, B), r"write cast\(min, 'float32'\) and cast\(max, 'float32'\)"),
        (lambda: bc.igamma(X, D), r"a must be float64, got float32; write cast\(a, 'float64'\)"),
        (lambda: bc.gather(X, X, axis=1), r"index must be int64 or int32, got float32; write cast\(index, 'int64'\)"),
        (lambda: bc.layer_norm(X, D[0]), r"got float64; write cast\(weight, 'float32'\)"),
        (lambda: bc.isin(X, D), r"write cast\(test_elements, 'float32'\)"),
        (lambda: bc.cov(I), r"write cast\(x, 'float32'\)"),
    ],
)
def test_the_operand_and_the_cast_are_named(call: Any, says: str) -> None:
    with pytest.raises(BaracudaError, match=says):
        call()


def test_bytes_that_may_be_floats_are_to_be_named() -> None:
    q, k, w = np.zeros((2, 8, 32), np.uint8), np.zeros((1, 16, 32), np.uint8), np.zeros((2, 8), np.float32)
    with pytest.raises(BaracudaError, match=r"of bytes say what they hold, as element='float8_e4m3fn'$"):
        bc.indexer_logits(q, k, w)
    assert bc.indexer_logits(q, k, w, element="float8_e4m3fn").shape == (2, 16)


@pytest.mark.parametrize(
    "call", [lambda: bc.angle(X), lambda: bc.bitwise_not(X), lambda: bc.sort(X.astype("complex64"))]
)
def test_no_cast_is_named_that_would_not_do(call: Any) -> None:
    with pytest.raises(BaracudaError) as raised:
        call()
    assert "cast(" not in str(raised.value)
