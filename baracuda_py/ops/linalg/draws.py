"""Data of factorisations and solves: matrices that are no one's hard case, and small ones that are timed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.element import ElementKind

ELEMENTS = (ElementKind.F32, ElementKind.F64, ElementKind.C64, ElementKind.C128)


def tame(x: Any) -> Any:
    """The numbers in [-4, 4] and as steps of 1/64, so that no product of them leaves the range or is subnormal."""
    parts = [np.round(np.clip(np.nan_to_num(part), -4, 4) * 64) / 64 for part in (x.real, x.imag)]
    return (parts[0] + (1j * parts[1] if x.dtype.kind == "c" else 0)).astype(x.dtype)


def pivoted(x: Any) -> Any:
    """Matrices of which in each column one number, in no other's row, is so large that pivots are beyond doubt."""
    m, n = x.shape[-2:]
    rows = np.random.default_rng(m * 1009 + n).permutation(m)[: min(m, n)]
    made = tame(x)
    if made.size:
        made[..., rows, np.arange(len(rows))] += 16 * max(m, n) + 16
    return made


def row_size(x: Any) -> Any:
    """The largest sum of |x| along a row, of each matrix."""
    return np.abs(x).sum(-1).max(-1, initial=0)


def solved(upper: Any, b: Any) -> Any:
    """U⁻¹ b by substitution, infinite or NaN where U is singular, as BLAS has it."""
    x = np.array(b)
    for row in reversed(range(x.shape[-2])):
        x[..., row, :] -= (upper[..., row, None, row + 1 :] @ x[..., row + 1 :, :])[..., 0, :]
        x[..., row, :] /= upper[..., row, row, None]
    return x


def batches(*sizes: tuple[int, int, int]) -> tuple[Benchmark, ...]:
    """Benchmarks of so many small matrices of so many rows and columns, beside torch."""
    return tuple(
        Benchmark(
            f"{count} of {m} x {n} f32", batch_shape=(count,), m=m, n=n, element="float32", work=FLOPS, target=None,
            peers=(EAGER,),
        )
        for count, m, n in sizes
    )  # fmt: skip
