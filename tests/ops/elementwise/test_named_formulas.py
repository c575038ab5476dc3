"""The named formulas against others' functions in float64, their gradients, and their special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.testing import exercise

NAMES = (
    "quick_gelu", "relu_squared", "squareplus", "sparse_plus", "sparse_sigmoid", "log1mexp", "modf", "axpby",
    "dynamic_tanh", "scaled_add",
)  # fmt: skip
ENDS = np.array([-1.0, 1.0, 0.0, -0.0, 0.5, 7.0, -7.0, 40.0, -40.0, 1e30, -1e30])


def _in_torch(torch: Any, name: str) -> Any:
    sigmoid = torch.sigmoid
    return {
        "quick_gelu": lambda x: x * sigmoid(1.702 * x),
        "relu_squared": lambda x: torch.relu(x) ** 2,
        "squareplus": lambda x: (x + torch.sqrt(x * x + 4)) / 2,
        "sparse_plus": lambda x: torch.where(x <= -1, 0, torch.where(x >= 1, x, (x + 1) ** 2 / 4)),
        "sparse_sigmoid": lambda x: torch.where(x <= -1, 0, torch.where(x >= 1, 1, (x + 1) / 2)),
        "log1mexp": lambda x: torch.log(-torch.expm1(-x)),
        "axpby": lambda x, y: x + y,
        "dynamic_tanh": lambda x, weight, bias: weight * torch.tanh(0.5 * x) + bias,
        "scaled_add": lambda x, y: x + y,
    }[name]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "modf"])
def test_values_and_gradients(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(bc, name), _in_torch(torch, name)
    count = len(ours.inputs) - len(ours.defaults)
    rng = np.random.default_rng(5)
    arrays = [np.concatenate([ENDS, 4 * rng.standard_normal(200)]) for _ in range(count)]
    arrays = [x[np.abs(x) < 1e3] if name in ("squareplus", "axpby", "scaled_add") else x for x in arrays]
    if name == "log1mexp":
        arrays = [np.abs(x) + 1e-3 for x in arrays]
    leaves = [torch.tensor(x, requires_grad=True) for x in arrays]
    y = theirs(*leaves)
    dy = rng.standard_normal(y.shape)
    np.testing.assert_allclose(ours(*arrays), y.detach().numpy(), rtol=1e-11, atol=1e-13)
    got = ours.vjp(dy, *arrays)
    want = torch.autograd.grad(y, leaves, torch.tensor(dy))
    for mine, other in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-9, atol=1e-12)


def test_modf() -> None:
    x = np.array([1.5, -1.5, 3.0, -3.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -5e-324])
    for dtype in (np.float64, np.float32, np.float16):
        with np.errstate(over="ignore"):
            given = x.astype(dtype)
        for ours, want in zip(bc.modf(given), np.modf(given), strict=True):
            np.testing.assert_array_equal(ours, want)
            np.testing.assert_array_equal(np.signbit(ours[:-3]), np.signbit(want[:-3]))
    fractions, whole = np.array([1.0, 2.0, 3.0]), np.array([5.0, 5.0, 5.0])
    np.testing.assert_array_equal(bc.modf.vjp(fractions, whole, np.array([1.5, -2.0, -0.0])), fractions)


def test_squareplus_keeps_the_digits_of_small_results() -> None:
    x = -np.logspace(0, 15, 40)
    np.testing.assert_allclose(bc.squareplus(x) * (np.hypot(x, 2) + np.abs(x)), 2, rtol=1e-14)
    np.testing.assert_array_equal(
        bc.squareplus(np.array([np.inf, -np.inf, 3e38], np.float32)), np.array([np.inf, 0, 3e38], np.float32)
    )
    np.testing.assert_allclose(bc.squareplus(np.array([2.0]), b=0.5), (2 + np.sqrt(4.5)) / 2)


def test_log1mexp_at_both_ends() -> None:
    x = np.array([1e-300, 1e-10, 0.5, 0.7, 40.0, 700.0])
    want = [np.log(1e-300), np.log(1e-10) - 5e-11, np.log(-np.expm1(-0.5)), np.log1p(-np.exp(-0.7))]
    np.testing.assert_allclose(bc.log1mexp(x), [*want, -np.exp(-40.0), -np.exp(-700.0)], rtol=1e-14)
    assert bc.log1mexp(np.array([0.0])) == -np.inf
    np.testing.assert_allclose(bc.log1mexp.vjp(np.ones(3), np.array([0.0, np.log(2), np.inf])), [np.inf, 1, 0])
    assert np.isnan(bc.log1mexp(np.array([-1.0])))


@pytest.mark.parametrize("name", NAMES)
def test_nan_stays(name: str) -> None:
    ours = getattr(bc, name)
    made = ours(*[np.full(3, np.nan, np.float32)] * (len(ours.inputs) - len(ours.defaults)))
    assert np.isnan(made).all()
    assert ours.__doc__


@pytest.mark.parametrize("name", NAMES)
def test_generated_checks(name: str) -> None:
    exercise(getattr(bc, name), examples=0, elements=(bc.ElementKind.F32,))
