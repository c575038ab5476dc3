"""triangle: a part of matrices on and above, or below, a diagonal is copied, and zeros beyond it are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Step
from .map import STRIDED, THREADS, chunked, lay_out, map_params, strided, takes, widths

PARAMS = Params("TriangleParams", y="ptr", x="ptr", diagonal="i64", step="i32", upper="i32", **map_params(3))


def _axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": (kind.itemsize,), "VEC": widths(kind.itemsize)}


KERNELS = (Kernel("triangle", f"triangle<{{BYTES}}, {STRIDED}>", PARAMS, _axes, threads=THREADS),)


def triangle_geometry(y: View, x: View, names: Mapping[str, Any], upper: bool, diagonal: int) -> Geometry | str:
    """y = a triangle of x, of y's shape; names: where the kernel finds the two, as `Step.params` says it."""
    rank, size = len(y.shape), y.element.itemsize
    number = View(0, y.shape, (*(0,) * (rank - 2), -1, 1), y.element)
    found = lay_out((y, x, number))
    if isinstance(found, str):
        return found
    moved, (axes,) = replace(found, views=(y, x, None)), found.groups
    vec = next(w for w in widths(size) if takes(moved, w))
    params = {
        **names, **chunked(found, vec), "diagonal": diagonal, "upper": upper,
        "step": axes.strides[2][-1] if axes.rank else 0,
    }  # fmt: skip
    blocks = max(1, -(-(axes.count // vec) // (THREADS * strided(vec))))
    step = Step("triangle", (blocks, 1, 1), params, {"BYTES": size, "VEC": vec}, THREADS)
    return Geometry((step,), layout=moved.layout(moved.inner))
