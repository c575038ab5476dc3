"""What pages that draw a number for each element share: which element has which draw, and streams for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import ElementKind, View
from ...core.tensor import dense_strides


def numbered(shape: Sequence[int], element: ElementKind, axis: Sequence[int] | None = None) -> View:
    """An operand without memory, whose offsets are the numbers of draws: row-major over `axis`, by default all axes."""
    own = range(len(shape)) if axis is None else axis
    steps = iter(dense_strides([shape[a] for a in own]))
    strides = tuple(next(steps) if a in own else 0 for a in range(len(shape)))
    return View(0, tuple(shape), strides, element)


def streams(shape: Sequence[int], arrays: dict[str, Any]) -> None:
    """Seeds and offsets of 64 bits, by the shape alone: a captured graph keeps them."""
    pick = len(shape) + sum(shape)
    arrays["seed"], arrays["offset"] = (1, -5, 2**63 - 3)[pick % 3], (0, 2**40 + 7)[pick % 2]
