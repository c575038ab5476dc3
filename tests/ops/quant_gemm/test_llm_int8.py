"""llm_int8_linear beside float64 sums of the numbers that it decodes, its gradient, bounds and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind

RNG = np.random.default_rng(5)


def layer(rows: tuple[int, ...], k: int, n: int, element: str, outliers: int) -> tuple[Any, Any, Any, Any]:
    x = RNG.standard_normal((*rows, k))
    x[..., RNG.permutation(k)[:outliers]] *= 20
    dtype = ElementKind.of(element).dtype
    weight, scale = RNG.integers(-127, 128, (n, k), dtype=np.int8), RNG.uniform(0.002, 0.01, n).astype(np.float32)
    return x.astype(dtype), weight, scale, RNG.standard_normal(n).astype(dtype)


def wanted(x: Any, weight: Any, scale: Any, bias: Any, threshold: float, most: int) -> Any:
    """In float64, of the columns that are outliers and of the codes of the others."""
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
    peaks = np.abs(rows).max(0)
    large = np.sort([c for c in np.argsort(-peaks, kind="stable")[:most] if peaks[c] >= threshold]).astype(int)
    rest = rows.copy()
    rest[:, large] = 0
    by = np.maximum((np.abs(rest).max(1, keepdims=True) / 127).astype(np.float32), np.float32(2.0**-126))
    codes = np.rint((rest.astype(np.float32) / by).astype(np.float32)).astype(np.float64)
    real = weight * scale[:, None].astype(np.float64)
    near = real.astype(np.float32).astype(x.dtype).astype(np.float64)
    y = codes @ weight.T * by * scale + bias.astype(np.float64) + rows[:, large] @ near[:, large].T
    return y.reshape(*x.shape[:-1], -1)


@pytest.mark.parametrize("element", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("rows", "k", "n", "outliers", "most"),
    [((7,), 67, 5, 3, 128), ((2, 3), 130, 9, 0, 4), ((1,), 33, 17, 33, 33), ((), 40, 3, 2, 8), ((5,), 64, 8, 9, 4)],
)
def test_sums(element: str, rows: tuple[int, ...], k: int, n: int, outliers: int, most: int) -> None:
    x, weight, scale, bias = layer(rows, k, n, element, outliers)
    want = wanted(x, weight, scale, bias, 6.0, most)
    y = bc.llm_int8_linear(x, weight, scale, bias, max_outliers=most)
    assert y.shape == want.shape and y.dtype == x.dtype
    step = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[element]
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=0, atol=step * (1 + np.abs(want).max()))
    again = bc.llm_int8_linear(x, weight, scale, bias, max_outliers=most)
    assert np.array_equal(y, again, equal_nan=True)


def test_no_threshold_and_no_outlier_are_quantized_linear() -> None:
    x, weight, scale, bias = layer((6,), 48, 7, "float32", 2)
    plain = bc.quantized_linear(x, weight, scale, bias)
    assert np.array_equal(bc.llm_int8_linear(x, weight, scale, bias, threshold=0), plain)
    assert np.array_equal(bc.llm_int8_linear(x, weight, scale, bias, max_outliers=0), plain)
    assert np.array_equal(bc.llm_int8_linear(x, weight, scale, bias, threshold=1e4), plain)
    exact = x.astype(np.float64) @ (weight * scale[:, None]).T + bias
    y = bc.llm_int8_linear(x, weight, scale, bias)
    assert np.linalg.norm(y - exact) < 0.2 * np.linalg.norm(plain - exact)


def test_special_numbers_stay_in_their_rows() -> None:
    x, weight, scale, _ = layer((4,), 24, 3, "float32", 1)
    x[1, 3], x[2, 5] = np.nan, np.inf
    y = bc.llm_int8_linear(x, weight, scale)
    assert np.isnan(y[1]).all() and not np.isfinite(y[2]).any() and np.isfinite(y[[0, 3]]).all()


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 8)])
def test_empty(shape: tuple[int, ...]) -> None:
    weight, scale = np.ones((5, shape[-1]), np.int8), np.ones(5, np.float32)
    y = bc.llm_int8_linear(np.zeros(shape, np.float32), weight, scale)
    assert y.shape == (*shape[:-1], 5) and not y.any()


def test_gradient_is_straight_through() -> None:
    torch = pytest.importorskip("torch")
    x, weight, scale, bias = layer((2, 3), 40, 5, "float32", 2)
    held = torch.from_numpy(x).requires_grad_()
    y = bc.llm_int8_linear(held, torch.from_numpy(weight), torch.from_numpy(scale), torch.from_numpy(bias))
    dy = RNG.standard_normal((2, 3, 5)).astype(np.float32)
    y.backward(torch.from_numpy(dy))
    np.testing.assert_allclose(held.grad.numpy(), dy @ (weight * scale[:, None]), rtol=1e-4, atol=1e-5)
    assert np.array_equal(bc.llm_int8_linear_backward(dy, x, weight, scale, bias), held.grad.numpy())


def test_errors() -> None:
    x, weight, scale, _ = layer((2,), 8, 3, "float32", 0)
    for facts, match in (({"threshold": -1.0}, "threshold must be"), ({"max_outliers": -1}, "max_outliers must be")):
        with pytest.raises(bc.InvalidProblemError, match=match):
            bc.llm_int8_linear(x, weight, scale, **facts)
    with pytest.raises(bc.InvalidProblemError, match=r"x must be \[\*, in\]"):
        bc.llm_int8_linear(x[:, :7], weight, scale)
