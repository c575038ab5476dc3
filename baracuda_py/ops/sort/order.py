"""What ops that sort share: rows along one axis, their elements, the order of keys in NumPy and in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import FLOATS, Descriptor, ElementKind, Everywhere, axis, extents
from ...core.element import INTS
from ...core.tensor import Shape

EVERY = (*FLOATS, *INTS, ElementKind.BOOL)
"""The elements of keys."""


def apart(rng: Any, desc: Any, shape: Shape) -> Any:
    """Numbers that are far from each other, so that small differences leave their order as it is."""
    return 0.25 * rng.permutation(int(np.prod(shape))).reshape(shape) - 3


KEYS = Everywhere(smooth=apart)
"""Keys of tests: of the whole range, many of them equal."""


def sorted_rows(name: str, shape: str = "shape") -> Callable[[Any, Any], Mapping[str, Any]]:
    """What makes the operand `name` of a benchmark: random numbers, sorted along the last axis.

    shape: the field that says its extents.
    """

    def make(torch: Any, desc: Any) -> Mapping[str, Any]:
        extents = getattr(desc, shape)
        size = extents if isinstance(extents, tuple) else (extents,)
        whole = desc.element.is_integer
        random = torch.randint(-(2**31), 2**31 - 1, size) if whole else torch.randn(size)
        return {name: random.to(getattr(torch, desc.element.value)).sort(-1).values}

    return make


@dataclass(frozen=True, kw_only=True)
class RowDescriptor(Descriptor):
    """Operands have shape `shape`; rows are along `axis`, negative counting from the end."""

    shape: Shape = extents()
    axis: int = axis(-1, scalar=True)

    @property
    def count(self) -> int:
        """Elements of a row."""
        return self.shape[self.axis] if self.shape else 1

    def resized(self, count: int) -> Shape:
        """The shape with rows of `count`; of rank 0 it has none."""
        return (*self.shape[: self.axis], count, *self.shape[self.axis + 1 :]) if self.shape else ()

    @property
    def kept_shape(self) -> Shape:
        """The shape without the axis."""
        return (*self.shape[: self.axis], *self.shape[self.axis + 1 :])


def rows_last(desc: RowDescriptor, x: Any) -> Any:
    """x with its rows along the last axis."""
    return np.moveaxis(x.reshape(desc.shape or (1,)), desc.axis, -1)


def rows_back(desc: RowDescriptor, rows: Any, count: int | None = None) -> Any:
    """The array whose `rows_last` these are, of rows of another length where `count` says so."""
    shape = desc.resized(desc.count if count is None else count)
    return np.array(np.moveaxis(rows, -1, desc.axis)).reshape(shape)


def order_of(rows: Any, descending: bool = False) -> Any:
    """The places of every row's elements in stable order: NaN last, or first of a descending one, zeros equal."""
    if rows.dtype == ElementKind.BF16.dtype:
        rows = rows.astype(np.float32)  # NumPy's sorts put NaN last in its own dtypes alone
    if not descending:
        return np.argsort(rows, axis=-1, kind="stable")
    return rows.shape[-1] - 1 - np.argsort(rows[..., ::-1], axis=-1, kind="stable")[..., ::-1]


def torch_keys(torch: Any, x: Any) -> Any:
    """x in a dtype that torch sorts, in the same order; NotImplemented where it has none."""
    if x.dtype == torch.uint64:
        return NotImplemented
    return x.to(torch.int64) if x.dtype in (torch.uint16, torch.uint32) else x


def lengths(draw: Any) -> tuple[Shape, int]:
    """Short rows along any axis, and longer ones for every kernel."""
    if draw.flag():
        shape = draw.shape(0, 4, 0, 7)
        return shape, draw.integer(-max(len(shape), 1), max(len(shape), 1) - 1)
    n = draw.sizes(31, 32, 33, 128, 129, 300, 1100, rare=(2100, 8300, 16500))
    many = draw.sizes(1, 3, 5) if n < 1100 else draw.sizes(1, 2)
    return ((many, n), -1) if draw.flag() else ((n, many), 0)
