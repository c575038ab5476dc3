"""Matrices that a library's routine works on in place, and the copies around it.

A routine overwrites its operand and takes matrices of which one axis is dense. So a triangle of the operand, zeros
beyond it, is copied to where the routine works: to the output itself where its layout will do, else to a piece of the
workspace, by rows, from which another copy follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..backends.cusolver import leading
from ..core.element import ElementKind
from ..core.tensor import View, dense_strides
from ..core.variant import Kernel, aligned
from .triangle import KERNELS, triangle_geometry

COPY: Kernel = replace(KERNELS[0], shared="triangle")
COPY_SOURCE = "layout/triangle.cu"


def swapped(view: View) -> View:
    """The view with its last two axes exchanged."""
    return View(
        view.ptr, (*view.shape[:-2], *view.shape[:-3:-1]), (*view.strides[:-2], *view.strides[:-3:-1]), view.element
    )


def offsets(view: View, axes: int) -> list[int]:
    """Bytes from a view's start to each matrix of its batch, which is all axes but the last `axes`, in C order."""
    rank = len(view.shape) - axes
    found = np.zeros((), np.int64)
    for extent, stride in zip(view.shape[:rank], view.strides[:rank], strict=True):
        found = found[..., None] + np.arange(extent, dtype=np.int64) * stride
    return [int(at) * view.element.itemsize for at in found.reshape(-1)]


@dataclass(frozen=True)
class Place:
    """Where a routine works: on an operand, or on a piece of the workspace that starts at a byte."""

    operand: str
    start: int
    view: View
    ld: int = 1
    by_rows: bool = True

    @property
    def name(self) -> Any:
        """As `Step.params` says it."""
        return self.operand or ("@workspace", self.start)

    def finder(self, operands: Sequence[str]) -> Callable[[tuple[int, ...], int], int]:
        """What finds its address among a call's pointers and workspace."""
        if not self.operand:
            return lambda pointers, workspace: workspace + self.start
        at = operands.index(self.operand)
        return lambda pointers, workspace: pointers[at]


def work_on(operand: str, view: View, start: int) -> tuple[Place, int]:
    """An operand, or a dense piece of the workspace from `start` on, and where the next piece may start."""
    found = leading(view)
    return piece(view.shape, view.element, start) if found is None else (Place(operand, 0, view, *found), start)


def piece(shape: tuple[int, ...], element: ElementKind, start: int) -> tuple[Place, int]:
    """A dense piece of the workspace, matrices by rows in it, and where the next piece may start."""
    view = View(0, shape, dense_strides(shape), element)
    ld = max(shape[-1], 1) if shape else 1
    return Place("", start, view, ld), start + aligned(view.size * element.itemsize)


Steps = tuple[Any, ...]


def copied(target: View, source: View, to: Any, of: Any, *, diagonal: int = 0) -> Steps | str:
    """The step that copies what lies on and below a diagonal, and zeros above it, or why not; none without elements.

    to, of: what the two are, as `Step.params` says it. Of diagonal n - 1 it is the whole matrix.
    """
    if not target.size:
        return ()
    made = triangle_geometry(target, source, {"y": to, "x": of}, upper=False, diagonal=diagonal)
    return made if isinstance(made, str) else made.steps


def sequence(*parts: Steps | str) -> Steps | str:
    """The steps one after another, or the first reason why not."""
    steps: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            return part
        steps += part
    return tuple(steps)
