"""Reductions and scans are what torch's functions of the same name are, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
REDUCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in (
        "sum", "mean", "amax", "amin", "nansum", "logsumexp", "var", "std", "count_nonzero", "any", "all",
    )},
    "l1_norm": lambda x, dim: torch.linalg.vector_norm(x, 1, dim),
    "l2_norm": lambda x, dim: torch.linalg.vector_norm(x, 2, dim),
    "sum_squares": lambda x, dim: torch.sum(x * x, dim),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [(0,), (1, 3), (-1, 0), (0, 1, 2, 3)])
def test_reductions(name: str, axis: tuple[int, ...]) -> None:
    x = np.random.default_rng(7).standard_normal((3, 4, 2, 5))
    x[0, 1, 0, 2], x[1, :, 1, :] = np.nan if name in ("nansum", "amax", "sum", "any") else 0, 0
    got = getattr(bc, name)(x, axis=axis)
    wanted = REDUCTIONS[name](torch.from_numpy(x), dim=axis).numpy()
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-13)


def test_places_and_products() -> None:
    x = np.random.default_rng(8).standard_normal((3, 4, 5))
    given = torch.from_numpy(x)
    for name in ("argmax", "argmin", "prod"):
        np.testing.assert_allclose(getattr(bc, name)(x, axis=1), getattr(torch, name)(given, dim=1).numpy())
        np.testing.assert_allclose(getattr(bc, name)(x), getattr(torch, name)(given).numpy())
    assert bc.argmax(x, axis=(0, 2), keepdims=True).shape == (1, 4, 1)
    assert bc.sum(x, axis=()).tolist() == x.tolist()


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scans(name: str, axis: int) -> None:
    x = np.random.default_rng(3).standard_normal((3, 4, 5))
    wanted = getattr(torch, name)(torch.from_numpy(x), dim=axis).numpy()
    np.testing.assert_allclose(getattr(bc, name)(x, axis=axis), wanted, rtol=1e-13)
    back = np.flip(getattr(bc, name)(np.flip(x, axis).copy(), axis=axis), axis)
    np.testing.assert_allclose(getattr(bc, name)(x, axis=axis, reverse=True), back, rtol=1e-13)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes(name: str) -> None:
    x = np.random.default_rng(2).integers(-3, 4, (3, 50)).astype(np.float32)
    x[1, [20, 30]] = np.nan
    x[2] = -np.inf
    wanted = getattr(torch, name)(torch.from_numpy(x), dim=1)
    values, places = getattr(bc, name)(x, axis=1)
    np.testing.assert_array_equal(values, wanted.values.numpy())
    np.testing.assert_array_equal(places, wanted.indices.numpy())
