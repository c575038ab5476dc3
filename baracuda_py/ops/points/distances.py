"""What ops on clouds share: squared distances as the kernels round them, and data of tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Descriptor, ElementKind, element, extent, operand
from ...core.element import INDICES


I32, I64 = ElementKind.I32, ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class CloudQueriesDescriptor(Descriptor):
    """points are [batch_size, point_count, dims], queries [batch_size, query_count, dims]; up to k points of each."""

    batch_size: int = extent()
    point_count: int = extent()
    query_count: int = extent()
    dims: int = extent(minimum=1)
    k: int = extent(minimum=1)
    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()


def cloud_lengths() -> Any:
    """The operand of how many points of each cloud count: the first of them."""
    values = (-1, "point_count")
    return operand("batch_size", element=INDICES[::-1], optional=True, layout="dense", values=values)


def accumulator(element: ElementKind) -> Any:
    """NumPy's float of the element's accumulator."""
    return np.float64 if element is ElementKind.F64 else np.float32


def squared(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Σ_d (x_d - y_d)² of arrays that broadcast, their last axis summed from the first coordinate to the last."""
    total = np.zeros(np.broadcast_shapes(x.shape, y.shape)[:-1], x.dtype)
    with np.errstate(all="ignore"):
        for d in range(x.shape[-1]):
            step = x[..., d] - y[..., d]
            total = total + step * step
    return total


def ends(lengths: Any, batch: int, count: int) -> list[int]:
    """How many points of each cloud count."""
    return [count] * batch if lengths is None else [min(max(int(n), 0), count) for n in lengths]


def random_points(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: points anywhere, or of a coarse grid, of which some coincide and many are as far as others."""
    made = rng.random(shape)
    return made if rng.random() < 0.5 else np.round(4 * made) / 4
