"""Copy: the geometry of moving elements from a view of any strides to another one of its shape.

Axes are put in the order in which y lies in memory and merged. What is dense in both moves flat. Where y and x are
contiguous along different axes, tiles of the two pass through shared memory. Else y is written in words as wide as its
last axis allows: 16 bytes or less where x has them too, or 16 bytes put together of elements that x has repeated, in
the opposite order, apart, or anywhere. `kernels/include/baracuda/copy.cuh` has the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..core.element import ElementKind
from ..core.params import Field, Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Step
from .geometry import Merged, grid
from .map import THREADS, chunked, lay_out, map_params, takes

SOURCE = "layout/copy.cu"
WORDS, PIECES = 4, 2  # that a thread has in flight
_SECTOR = 32  # bytes that memory moves at least
_HOW = ("spread", "turned", "apart", "ragged")
_SPREAD, _TURNED, _APART, _RAGGED = range(4)
"""How x has the elements of a word of y, see `copy_pieces` in copy.cuh."""


@dataclass(frozen=True)
class Moving:
    """Axes of a view that begin where an array of indices on the device says.

    operand: the array of indices; wide: of 64 bits. For each axis: places, where in that array its index stands;
    extents, its extent; limits, the largest index it may begin at; strides, the view's. target: the view is y, not x.
    """

    operand: str
    wide: bool
    places: tuple[int, ...]
    extents: tuple[int, ...]
    limits: tuple[int, ...]
    strides: tuple[int, ...]
    target: bool = False


CONSTANTS: dict[str, Field] = {"Pieces": _HOW, "copy_words_in_flight": WORDS, "copy_pieces_in_flight": PIECES}
_MOVES = dict.fromkeys(("place", "extent", "limit", "shift"), f"i64[{AXES}]")


def moving_params() -> dict[str, Field]:
    """Params fields for axes that move: `copy_shift` of copy.cuh."""
    return {"starts": "ptr", **_MOVES, "moving": "i32", "starts_wide": "i32", "target": "i32", **CONSTANTS}


def still() -> dict[str, Any]:
    """These fields where nothing moves."""
    return {"starts": "@null", **dict.fromkeys(_MOVES, [0] * AXES), "moving": 0, "starts_wide": 0, "target": 0}


COPY = Params("CopyParams", y="ptr", x="ptr", apart="i64", how="i32", **moving_params(), **map_params(2))
TILE = Params(
    "CopyTileParams", y="ptr", x="ptr", blocks="i64", tile_rows="i64", tile_columns="i64", rows="i64", columns="i64",
    x_steps="i64[2]", y_steps="i64[2]", wide_x="i32", wide_y="i32", **map_params(2),
)  # fmt: skip


def _one(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": (kind.itemsize,)}


def _narrow(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": (kind.itemsize,) if kind.itemsize < 16 else ()}


def _wide(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": tuple(b for b in (1, 2, 4, 8, 16) if b >= kind.itemsize)}


def _ends(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": tuple(dict.fromkeys((kind.itemsize, 16)))}


def _flat(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": (kind.itemsize,), "VEC": (16 // kind.itemsize,)}


KERNELS = (
    Kernel("flat", "copy_flat<{BYTES}, Flat<{VEC}>>", COPY, _flat, threads=THREADS, source=SOURCE),
    Kernel("words", "copy_words<{BYTES}>", COPY, _wide, threads=THREADS, source=SOURCE),
    Kernel("pieces", "copy_pieces<{BYTES}>", COPY, _narrow, threads=THREADS, source=SOURCE),
    Kernel("tile", "copy_tile<{BYTES}>", TILE, _one, threads=THREADS, source=SOURCE),
)

PLAIN = (KERNELS[0], Kernel("words", "copy_words<{BYTES}>", COPY, _ends, threads=THREADS, source=SOURCE))
"""Those of an op whose copies are parts of wholes: no tiles, no pieces, and words of 16 bytes or of one element."""


def shifted(view: View, elements: int) -> View:
    """The same view, so many elements further."""
    return replace(view, ptr=view.ptr + elements * view.element.itemsize)


def copy_step(
    y: View, x: View, to: tuple[str, int] = ("y", 0), of: tuple[str, int] = ("x", 0), moving: Moving | None = None,
    plain: bool = False,
) -> Step | str | None:  # fmt: skip
    """The launch that copies view x to view y of its shape; None where nothing moves, a string says why not.

    to, of: their operands, and how many elements the views begin further than these. plain: of an op that has the
    kernels `PLAIN` alone, as views that move want it.
    """
    if 0 in y.shape:
        return None
    found = lay_out((y, x))
    if isinstance(found, str):
        return found
    size = y.element.itemsize
    places = {"y": (to[0], to[1] * size), "x": (of[0], of[1] * size)}
    idle = {**still(), "apart": 0, "how": 0}
    if moving is not None:
        vec = _whole(_word(found, size, moving), size)
        return _words(found, vec, size, {**places, **idle, **_moved(moving, vec)})
    (axes,) = found.groups
    if found.dense and (not axes.shape or found.access(16 // size)):
        vec = 16 // size
        blocks = max(1, -(-(axes.count // vec) // THREADS))
        params = {**places, **idle, **chunked(found, vec)}
        return Step("flat", (blocks, 1, 1), params, {"BYTES": size, "VEC": vec}, THREADS)
    if plain:
        return _words(found, _whole(_word(found, size), size), size, {**places, **idle})
    across = _across(found, size)
    if across is not None:
        return _tile(found, across, size, places)
    vec = _word(found, size)
    how = _pieces(found, size) if vec * size < 16 else None
    if how is not None and (how != _RAGGED or vec * size < 8):
        return _in_pieces(found, how, size, {**places, **idle})
    return _words(found, vec, size, {**places, **idle})


plain_step = partial(copy_step, plain=True)


def zeros_step(y: View, to: tuple[str, int] = ("y", 0)) -> Step | str | None:
    """The launch that makes the elements of a view 0, by the kernels `PLAIN`."""
    return plain_step(y, View(0, y.shape, y.strides, y.element), to, ("@null", 0))


def launched(steps: Sequence[Step | str | None], views: Sequence[View]) -> Geometry | str:
    """The launches of some copies of these operands, or why one is refused."""
    if refused := [step for step in steps if isinstance(step, str)]:
        return refused[0]
    return Geometry(tuple(step for step in steps if isinstance(step, Step)), layout=layout_of(views))


def layout_of(views: Sequence[View]) -> str:
    """The layout class for the SKU."""
    return "contiguous" if all(v.dense for v in views) else "strided"


def _word(found: Merged, size: int, moving: Moving | None = None) -> int:
    """Elements in the widest word that both views have along the last axis, wherever the moving axes begin."""
    (axes,) = found.groups
    if not axes.shape or any(s[-1] != 1 for s in axes.strides):
        return 1
    vec = 16 // size
    while vec > 1 and not (takes(found, vec) and all(s % vec == 0 for s in (moving.strides if moving else ()))):
        vec //= 2
    return vec


def words(found: Merged, size: int) -> Step:
    """The launch in words of 16 bytes, or of one element, without operands."""
    return _words(found, _whole(_word(found, size), size), size, {})


def _whole(vec: int, size: int) -> int:
    """A word of 16 bytes, else of one element."""
    return vec if vec * size == 16 else 1


def _moved(moving: Moving, vec: int) -> Mapping[str, Any]:
    return {
        "starts": moving.operand, "starts_wide": moving.wide, "place": pad(moving.places),
        "extent": pad(moving.extents), "limit": pad(moving.limits), "shift": pad([s // vec for s in moving.strides]),
        "moving": len(moving.limits), "target": moving.target,
    }  # fmt: skip


def _words(found: Merged, vec: int, size: int, params: Mapping[str, Any]) -> Step:
    blocks = max(1, -(-(found.groups[0].count // vec) // (THREADS * WORDS)))
    values = {**params, **chunked(found, vec, words=(0, 1))}
    return Step("words", (blocks, 1, 1), values, {"BYTES": vec * size}, THREADS)


def _pieces(found: Merged, size: int) -> int | None:
    """How x has the elements of a word of 16 bytes that y takes along the last axis; None where y takes none."""
    (axes,) = found.groups
    vec, (y, x) = 16 // size, axes.strides
    alone = replace(found, views=(found.views[0], None))
    if vec == 1 or not axes.shape or y[-1] != 1:
        return None
    if axes.shape[-1] % vec or not alone.access(vec):
        return _RAGGED if alone.dense and found.views[0].ptr % 16 == 0 else None  # type: ignore[union-attr]
    if x[-1] == 0:
        return _SPREAD
    source = found.views[1]
    assert source is not None
    turned = x[-1] == -1 and (source.ptr - (vec - 1) * size) % 16 == 0 and all(s % vec == 0 for s in x[:-1])
    return _TURNED if turned else _APART


def _in_pieces(found: Merged, how: int, size: int, params: Mapping[str, Any]) -> Step:
    (axes,) = found.groups
    vec = 16 // size
    counted = chunked(found, 1 if how == _RAGGED else vec)
    values = {**params, **counted, "how": how, "apart": axes.strides[1][-1]}
    blocks = -(-axes.count // (vec * THREADS)) if how == _RAGGED else -(-(axes.count // vec) // (THREADS * PIECES))
    return Step("pieces", (max(1, blocks), 1, 1), values, {"BYTES": size}, THREADS)


def _across(found: Merged, size: int) -> int | None:
    """The axis along which x is dense, or nearly, if that is another one than y's and both are long enough."""
    (axes,) = found.groups
    if axes.rank < 2:
        return None
    (y, x), last, least = axes.strides, axes.rank - 1, max(1, _SECTOR // size)
    moving = [a for a in range(last) if x[a]]
    if not moving or abs(y[last]) * size >= _SECTOR:
        return None
    across = min(moving, key=lambda a: abs(x[a]))
    nearer = abs(x[across]) < abs(x[last]) and abs(x[across]) * size < _SECTOR
    return across if nearer and min(axes.shape[across], axes.shape[last]) >= least else None


def _side(size: int) -> int:
    """Elements along a side of a tile: `CopyTile` of copy.cuh."""
    return 128 if size == 1 else 64 if size <= 4 else 32


def _tile(found: Merged, across: int, size: int, places: Mapping[str, Any]) -> Step:
    (axes,) = found.groups
    last, (y, x), side, vec = axes.rank - 1, axes.strides, _side(size), 16 // size
    rest = [a for a in range(last) if a != across]
    shape, strides = merge_axes(tuple(axes.shape[a] for a in rest), [tuple(s[a] for a in rest) for s in (y, x)])
    batch = replace(found, groups=(type(axes)(shape, strides),))
    rows, columns = axes.shape[last], axes.shape[across]
    tile_rows, tile_columns = -(-rows // side), -(-columns // side)
    blocks = batch.groups[0].count * tile_rows * tile_columns

    def wide(view: Any, steps: tuple[int, ...], along: int) -> bool:
        others = all(s % vec == 0 for a, s in enumerate(steps) if a != along)
        return steps[along] == 1 and axes.shape[along] % vec == 0 and others and view.ptr % 16 == 0

    params = {
        **places, **chunked(batch, 1), "narrow": found.reach < 2**31, "blocks": blocks, "tile_rows": tile_rows,
        "tile_columns": tile_columns, "rows": rows, "columns": columns, "x_steps": (x[last], x[across]),
        "y_steps": (y[last], y[across]), "wide_x": wide(found.views[1], x, across),
        "wide_y": wide(found.views[0], y, last),
    }  # fmt: skip
    return Step("tile", grid(blocks), params, {"BYTES": size}, THREADS)
