"""What routines of factorisations and solves need beside `in_library`: matrices by columns, whole copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..backends.cusolver import leading
from ..backends.library import Call
from ..core.checked import INT32
from ..core.device import Device
from ..core.element import ElementKind
from ..core.tensor import View
from ..jit.launch import runtime_for
from .in_library import Place, Steps, copied, offsets, piece, swapped


def piece_by_columns(shape: tuple[int, ...], element: ElementKind, start: int) -> tuple[Place, int]:
    """A piece of the workspace whose matrices lie by columns, and where the next piece may start."""
    made, end = piece((*shape[:-2], *shape[:-3:-1]), element, start)
    return replace(made, view=swapped(made.view), by_rows=False), end


def work_by_columns(operand: str, view: View, start: int) -> tuple[Place, int]:
    """An operand whose matrices lie by columns, or such a piece of the workspace, and where the next piece begins."""
    found = leading(swapped(view))
    if found is None or not found[1]:
        return piece_by_columns(view.shape, view.element, start)
    return Place(operand, 0, view, found[0], False), start


def as_rows(view: View, axes: int = 1) -> View:
    """Vectors (of one axis) or numbers (of none), as matrices of one row."""
    lead = len(view.shape) - axes
    shape = (*view.shape[:lead], *(1,) * (2 - axes), *view.shape[lead:])
    return View(view.ptr, shape, (*view.strides[:lead], *(0,) * (2 - axes), *view.strides[lead:]), view.element)


def whole(target: View, source: View, to: Any, of: Any, axes: int = 2) -> Steps | str:
    """The step that copies all of what has so many axes beside the batch (see `copied`)."""
    target, source = (view if axes == 2 else as_rows(view, axes) for view in (target, source))
    return copied(target, source, to, of, diagonal=max(target.shape[-1] - 1, 0))


def too_large(**extents: int) -> str | None:
    """Why the library's 32-bit integers cannot say a problem, or None."""
    for name, extent in extents.items():
        if extent > INT32:
            return f"{name} = {extent} is beyond the library's 32-bit integers"
    return None


def cleared(info: Place, end: int, operands: Sequence[str]) -> Callable[[Device], Call]:
    """Matrices without elements: info is 0. The workspace is of `end` bytes."""
    find = info.finder(operands)

    def prepare(device: Device) -> Call:
        clear, places = runtime_for(device).clear, offsets(info.view, 0)

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            told = find(pointers, workspace)
            for one in places:
                clear(told + one, ElementKind.I32.itemsize, stream)

        return Call(run, end)

    return prepare
