"""Keys: index arrays, one for each of some axes, that broadcast together; for kernels/indexing/index.cu."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.params import Field, Params
from ..core.tensor import AXES, View, dense_strides, pad
from ..core.variant import Geometry, Kernel, Step
from .gather import WORDS, word
from .geometry import Merged
from .map import THREADS, chunked, lay_out, map_params

KEYS = 8  # at most
FEW = 2  # keys of the faster instance


MODES = ("from_end", "strict", "wrap", "clip")
"""How an index counts: from the end where negative, not below 0, modulo the extent, or moved to the ends."""

_FIELDS: dict[str, Field] = {
    "indices": f"ptr[{KEYS}]", "status": "status", "extents": f"i64[{KEYS}]", "steps": f"i64[{KEYS}]", "keys": "i32",
    "mode": "i32", "wide": "u32", "IndexMode": MODES,
}  # fmt: skip


def index_params(name: str) -> Params:
    """Params of the kernel that picks words of x."""
    return Params(name, y="ptr", x="ptr", **_FIELDS, **map_params(2 + KEYS))


def position_params(name: str) -> Params:
    """Params of the kernel that makes positions of keys."""
    return Params(name, y="ptr", **_FIELDS, **map_params(1 + KEYS))


def index_kernel(params: Params) -> Kernel:
    """The kernel of words, over their widths and numbers of keys."""

    def axes(kind: ElementKind) -> Mapping[str, Any]:
        return {"BYTES": tuple(b for b in (1, 2, 4, 8, 16) if b >= kind.itemsize), "KEYS": (FEW, KEYS)}

    return Kernel("index", "index_words<{BYTES}, {KEYS}>", params, axes, threads=THREADS)


def position_kernel(params: Params, source: str = "") -> Kernel:
    """The kernel of positions. source: its file, if it is not the row's."""
    axes = {"KEYS": (FEW, KEYS)}
    return Kernel("positions", "index_positions<{KEYS}>", params, axes, threads=THREADS, source=source)


def _told(keys: Sequence[View], extents: Sequence[int], steps: Sequence[int], mode: str) -> dict[str, Any]:
    wide = sum(1 << k for k, key in enumerate(keys) if key.element is ElementKind.I64)
    return {
        "indices": ("indices", 0, len(keys)), "extents": pad(extents), "steps": pad(steps), "keys": len(keys),
        "mode": MODES.index(mode), "wide": wide,
    }  # fmt: skip


def _filled(params: Mapping[str, Any], operands: int) -> dict[str, Any]:
    """Strides for all operands that the struct has room for."""
    missing = operands - len(params["strides"])
    return {**params, "strides": [*params["strides"], *[[0] * AXES] * missing]}


def along(view: View, shape: Sequence[int], axes: Sequence[int | None]) -> View:
    """A view along axes of another array of some shape: for each of those its own axis, or None."""
    strides = tuple(0 if a is None else view.strides[a] for a in axes)
    return View(view.ptr, tuple(shape), strides, view.element)


def index_geometry(y: View, base: View, x: View, keys: Sequence[View], axes: Sequence[int]) -> Geometry | str:
    """The launch: base is x along the axes of y, and so are the keys, of the axes `axes` of x."""
    found = lay_out((y, base, *keys))
    if isinstance(found, str):
        return found
    steps = [x.strides[a] if x.shape[a] > 1 else 0 for a in axes]
    size = x.element.itemsize
    vec = word(found, math.gcd(*steps), (0, 1), range(2, 2 + len(keys)), size)
    few = len(keys) <= FEW
    told = _told(keys, [x.shape[a] for a in axes], [s // vec for s in steps], MODES[0])
    params = {**told, **_filled(chunked(found, vec, words=(0, 1)), 2 + KEYS)}
    grid = max(1, -(-(found.groups[0].count // vec) // (THREADS * (WORDS if few else 1))))
    axes_of = {"BYTES": vec * size, "KEYS": FEW if few else KEYS}
    dense = all(view.dense for view in (y, x))
    layout = "contiguous" if dense else "inner_contiguous" if vec > 1 else "strided"
    return Geometry((Step("index", (grid, 1, 1), params, axes_of, THREADS),), layout=layout)


def position_step(
    y: View, keys: Sequence[View], extents: Sequence[int], steps: Sequence[int], where: Any = None,
    mode: str = MODES[0],
) -> Step | str:  # fmt: skip
    """The launch that makes y of keys of its shape; `where`: what stands behind y, if it is no operand."""
    found: Merged | str = lay_out((y, *keys))
    if isinstance(found, str):
        return found
    few = len(keys) <= FEW
    params = {**_told(keys, extents, steps, mode), **_filled(chunked(found, 1), 1 + KEYS)}
    if where is not None:
        params["y"] = where
    grid = max(1, -(-found.groups[0].count // (THREADS * (WORDS if few else 1))))
    return Step("positions", (grid, 1, 1), params, {"KEYS": FEW if few else KEYS}, THREADS)


def row_major(extents: Sequence[int]) -> tuple[int, ...]:
    """How far positions lie apart along each of some axes."""
    return dense_strides(extents)
