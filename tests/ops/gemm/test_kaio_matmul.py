"""KAIO's products by their names: any m, n, k, float32 out, what they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind

NAMES = ("matmul_tc", "matmul_tc_async", "matmul_tc_bf16", "matmul_tc_bf16_async")
rng = np.random.default_rng(0)


def kind_of(name: str) -> ElementKind:
    return ElementKind.BF16 if "bf16" in name else ElementKind.F16


def make(name: str, *shape: int) -> Any:
    return rng.integers(-8, 9, shape).astype(kind_of(name).dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(16, 8, 16), (7, 5, 16), (33, 17, 1), (1, 3, 21), (4, 4, 0)])
def test_small_integers_are_exact_in_float32(name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = make(name, m, k), make(name, k, n)
    want = a.astype(np.float64) @ b.astype(np.float64)
    out = np.full((m, n), 7, np.float32)
    got = getattr(bc, name)(a, b)
    assert got.dtype == np.float32 and np.array_equal(got, want)
    assert getattr(bc, name)(a, b, out=out) is out and np.array_equal(out, want)


@pytest.mark.parametrize("name", NAMES)
def test_batches_and_views(name: str) -> None:
    a, b = make(name, 3, 5, 12), make(name, 9, 12)
    want = a.astype(np.float64) @ b.T.astype(np.float64)
    assert np.array_equal(getattr(bc, name)(a, b.T), want)


@pytest.mark.parametrize("name", NAMES)
def test_other_elements_are_refused(name: str) -> None:
    other = "matmul_tc_bf16" if kind_of(name) is ElementKind.F16 else "matmul_tc"
    with pytest.raises(bc.UnsupportedError, match=f"{name} takes a in {kind_of(name)}"):
        getattr(bc, name)(make(other, 2, 3), make(name, 3, 2))
    with pytest.raises(bc.UnsupportedError, match=f"{name} takes b in {kind_of(name)}, got float32"):
        getattr(bc, name)(make(name, 2, 3), np.ones((3, 2), np.float32))
    with pytest.raises(bc.InvalidProblemError, match="unexpected keyword argument 'alpha'"):
        getattr(bc, name)(make(name, 2, 3), make(name, 3, 2), alpha=2.0)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", [None, "bespoke"])
@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 50, 64), (1023, 1023, 1024), (257, 129, 515)])
def test_on_a_gpu(name: str, backend: str | None, shape: tuple[int, int, int]) -> None:
    import cupy

    m, n, k = shape
    a, b = make(name, m, k), make(name, k, n)
    got = getattr(bc, name)(cupy.asarray(a), cupy.asarray(b), preference=bc.PlanPreference(prefer_backend=backend))
    assert np.array_equal(got.get(), a.astype(np.float64) @ b.astype(np.float64))
