"""Factorisations in the workspace: matrices by columns there, the copies to it and from it, NaN where none was found.

A routine overwrites its operand, and what it makes may have any strides: so it works on dense pieces of the workspace,
by columns, whose copies cost n² beside its own n³.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..backends.library import Call
from ..core.device import Device
from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Kernel, LibraryStep, Step, aligned
from ..jit.launch import runtime_for
from .in_library import COPY, COPY_SOURCE, Place, Steps, offsets
from .library_matrices import whole
from .map import widths

_THREADS = 256
_FIXED = 1 << 20  # elements of a workspace that cuSOLVER takes of the smallest matrices, at most
_PARAMS = Params("UnconvergedParams", x="ptr", info="ptr", each="i64", count="i64")
UNCONVERGED = Kernel(
    "unconverged", "unconverged<part_t<{T}>>", _PARAMS, threads=_THREADS, source="linalg/unconverged.cu",
    shared="unconverged",
)  # fmt: skip


def _bytes(nbytes: int) -> dict[str, Any]:
    return {"BYTES": (nbytes,), "VEC": widths(nbytes)}


VALUES: Kernel = replace(COPY, name="values", axes=lambda kind: _bytes(kind.part.itemsize), source=COPY_SOURCE)
INFO: Kernel = replace(COPY, name="info", axes=_bytes(ElementKind.I32.itemsize), source=COPY_SOURCE)
"""The copies of real numbers, and of what tells whether they were found."""


def addresses(place: Place, axes: int) -> list[int]:
    """Where each item of a batch is, in bytes from the workspace's start; items have so many axes."""
    return [place.start + at for at in offsets(place.view, axes)]


def cut(view: View, rows: int, cols: int) -> View:
    """The first rows and columns of matrices."""
    return View(view.ptr, (*view.shape[:-2], rows, cols), view.strides, view.element)


def given_out(target: View | None, place: Place, name: str, kernel: Kernel) -> Steps | str:
    """The step that copies vectors (`VALUES`) or numbers (`INFO`) of a piece to an output, if that is wanted."""
    if target is None:
        return ()
    steps = whole(target, place.view, name, place.name, 1 if kernel is VALUES else 0)
    return steps if isinstance(steps, str) else tuple(replace(step, kernel=kernel.name) for step in steps)


def cleared(place: Place, end: int) -> Steps:
    """The step that makes a piece 0."""

    def prepare(device: Device) -> Call:
        clear, nbytes = runtime_for(device).clear, place.view.size * place.view.element.itemsize

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes_there: int, stream: int) -> None:
            clear(workspace + place.start, nbytes, stream)

        return Call(run, end)

    return (LibraryStep(prepare),) if place.view.size else ()


def unconverged(place: Place, info: Place) -> Steps:
    """The step that makes NaN of the items of a piece whose info is not 0."""
    numbers = place.view.size * (place.view.element.itemsize // place.view.element.part.itemsize)
    if not numbers:
        return ()
    params = {"x": place.name, "info": info.name, "each": numbers // max(info.view.size, 1), "count": numbers}
    return (Step("unconverged", (-(-numbers // _THREADS), 1, 1), params, block=_THREADS),)


def bound(element: ElementKind, extents: Sequence[int], squares: int = 4) -> int:
    """More bytes than cuSOLVER asks for (the GPU tests say so).

    Blocked routines take a part that no extent tells: geqrf of 1×1 matrices 3 MB of float32, 12.6 MB of complex128.
    """
    largest = max(extents, default=0)
    return aligned((_FIXED + 1024 * largest + squares * math.prod(extents[:2])) * element.itemsize)
