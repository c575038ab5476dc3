"""Concat: the geometry of moving many arrays into places of one along an axis, or these places into arrays.

A part whose elements, as those of its place, are rows without gaps goes with all others of its kind in one launch,
whose parameters have a table of the parts; the words are as wide as the part's rows and pitches allow. Where the whole
is read, the launch goes down its rows band by band, so that what runs together reads neighbours. Any other part
is a strided copy; but arrays that are neighbouring columns of the whole (stack along the last axis) go together through
tiles in shared memory. `kernels/layout/concat.cu` has the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.element import ElementKind
from ..core.params import Field, Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Step
from .copy import CONSTANTS, WORDS, launched, moving_params, shifted, still
from .copy import words as words_step
from .map import THREADS, lay_out, map_params
from .multi_tensor import groups

SOURCE = "layout/concat.cu"
CAPACITY = 80  # parts a launch
_TILE = THREADS * WORDS  # words of a block
_ACROSS_BYTES = 80 * (256 + 16)  # of a tile in shared memory


_CONSTANTS: dict[str, Field] = {"map_threads": THREADS, "across_bytes": _ACROSS_BYTES, **CONSTANTS}


def rows_params(name: str) -> Params:
    """Params of the launches that move rows."""
    table = dict.fromkeys(("width", "words", "pitch", "place"), f"i64[{CAPACITY}]")
    return Params(name, parts=f"ptr[{CAPACITY}]", whole="ptr", whole_pitch="i64", band="i64", **table,
                  first=f"i32[{CAPACITY}]", count="i32", band_blocks="i32", apart="i32", **_CONSTANTS)  # fmt: skip


ROWS = rows_params("ConcatRowsParams")
ACROSS = Params(
    "ConcatAcrossParams", parts=f"ptr[{CAPACITY}]", whole="ptr", words="i64", whole_pitch="i64", count="i32",
    side="i32", wide="i32", dense="i32", apart="i32", **_CONSTANTS,
)  # fmt: skip
PART = Params("ConcatPartParams", part="ptr[1]", whole="ptr", apart="i32", **moving_params(), **map_params(2))


def _one(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": (kind.itemsize,)}


def _wide(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": tuple(b for b in (1, 2, 4, 8, 16) if b >= kind.itemsize)}


def _ends(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": tuple(dict.fromkeys((kind.itemsize, 16)))}


KERNELS = (
    Kernel("rows", "concat_rows<{BYTES}>", ROWS, _wide, threads=THREADS, source=SOURCE),
    Kernel("across", "concat_across<{BYTES}>", ACROSS, _one, threads=THREADS),
    Kernel("part", "concat_part<{BYTES}>", PART, _ends, threads=THREADS),
)


IN_ROWS = (replace(KERNELS[0], axes=_ends),)
"""That of an op whose parts are rows: words of 16 bytes or of one element."""


@dataclass(frozen=True)
class _Rows:
    """A part as rows: the bytes of a word, words in all and in a row, pitches in words, its place in the whole."""

    nbytes: int
    words: int
    width: int
    pitch: int
    whole_pitch: int
    place: int


def _rows(part: View, whole: View, place: int, sizes: Sequence[int] = (16, 8, 4, 2, 1)) -> _Rows | None:
    """A part and its place as rows of words of the first of `sizes` that both allow; None where they are not rows."""
    found = lay_out((whole, part))
    if isinstance(found, str):
        return None
    (axes,) = found.groups
    if axes.rank > 2 or any(s[-1:] not in ((), (1,)) for s in axes.strides):
        return None
    size = part.element.itemsize
    width = axes.shape[-1] if axes.rank else 1
    whole_pitch, pitch = (s[0] for s in axes.strides) if axes.rank == 2 else (0, 0)
    counts = (width, pitch, whole_pitch, place)
    ends = part.ptr | (whole.ptr - place * size)
    nbytes = next(b for b in sizes if b <= size or not (ends % b or any(n * size % b for n in counts)))
    per = nbytes // size
    return _Rows(nbytes, axes.count // per, width // per, pitch // per, whole_pitch // per, place // per)


def concat_geometry(
    whole: View, parts: Sequence[View], axis: int, names: tuple[str, str], apart: bool
) -> Geometry | str:
    """The launches for parts that follow one another along an axis of the whole.

    names: the operands that are the whole and the list of parts. apart: the whole is read and the parts are written.
    """
    places, at = [], 0
    for part in parts:
        places.append(at * whole.strides[axis])
        at += part.shape[axis]
    seen = [shifted(replace(whole, shape=part.shape), place) for part, place in zip(parts, places, strict=True)]
    columns = _columns(parts, seen, places)
    if columns is not None:
        return launched(_across(whole, parts, places[0], columns, names, apart), (whole, *parts))
    rows = [
        _rows(part, own, place) if part.size else None for part, own, place in zip(parts, seen, places, strict=True)
    ]
    steps: list[Step | str | None] = [*_launches(rows, names, apart)]
    for i, (part, own, place) in enumerate(zip(parts, seen, places, strict=True)):
        if part.size and rows[i] is None:
            steps.append(_of_part(i, part, own, place, names, apart))
    return launched(steps, (whole, *parts))


def rows_apart(whole: View, parts: Sequence[View], places: Sequence[int], names: tuple[str, str]) -> list[Step] | None:
    """The launches, by the kernel `IN_ROWS`, that write parts from places of the whole; None where some are not rows.

    places: where each part begins, in elements. names: as of `concat_geometry`.
    """
    rows = []
    for part, place in zip(parts, places, strict=True):
        seen = shifted(replace(whole, shape=part.shape), place)
        rows.append(_rows(part, seen, place, (16, part.element.itemsize)) if part.size else None)
        if part.size and rows[-1] is None:
            return None
    return _launches(rows, names, apart=True)


def _launches(rows: Sequence[_Rows | None], names: tuple[str, str], apart: bool) -> list[Step]:
    """The launches of the parts that are rows."""
    steps: list[Step] = []
    for kind in sorted({(one.nbytes, one.whole_pitch) for one in rows if one}):
        mine = [one if one and (one.nbytes, one.whole_pitch) == kind else None for one in rows]
        steps += _of_rows(mine, names, apart)
    return steps


def _of_rows(rows: Sequence[_Rows | None], names: tuple[str, str], apart: bool) -> list[Step]:
    """The launches of the parts that have words of one width."""
    whole, parts = names
    steps = []
    band, bands = _bands([one for one in rows if one], apart)
    for group in groups([-(-min(one.words, band * one.width) // _TILE) if one else 0 for one in rows], CAPACITY):
        own = rows[group.start : group.stop]
        filled = [*own, *(None,) * (CAPACITY - len(own))]
        one = next(one for one in own if one)
        params = {
            "parts": (parts, group.start, group.stop), "whole": whole, "whole_pitch": one.whole_pitch, "band": band,
            **{f: [getattr(r, f) if r else 0 for r in filled] for f in ("width", "words", "pitch", "place")},
            "first": [*group.first, *(0,) * (CAPACITY - len(own))], "count": len(own), "band_blocks": group.blocks,
            "apart": apart,
        }  # fmt: skip
        steps.append(Step("rows", (group.blocks * bands, 1, 1), params, {"BYTES": one.nbytes}, THREADS))
    return steps


def _bands(rows: Sequence[_Rows], apart: bool) -> tuple[int, int]:
    """The rows of a band, and how many bands there are.

    A band has so few rows that what is left of its blocks' words is a sixteenth at most. Where the whole is written, or
    parts have different numbers of rows, all rows are one band.
    """
    counts = {one.words // one.width for one in rows}
    most = band = max(counts)
    if apart and len(counts) == 1:
        band = 1
        while band < most:
            words = [band * one.width for one in rows]
            if 16 * sum(words) >= 15 * sum(-(-n // _TILE) * _TILE for n in words):
                break
            band *= 2
    return min(band, most), -(-most // min(band, most))


def _columns(parts: Sequence[View], seen: Sequence[View], places: Sequence[int]) -> tuple[int, int] | None:
    """The elements of each of the parts and how far they are apart in the whole, where all are columns side by side."""
    kinds = set()
    for i, (part, own, place) in enumerate(zip(parts, seen, places, strict=True)):
        found = lay_out((own, part)) if part.size and place - places[0] == i else ""
        if isinstance(found, str):
            return None
        (axes,) = found.groups
        if axes.rank != 1 or axes.strides[1] != (1,) or axes.strides[0][0] < len(parts):
            return None
        kinds.add((axes.shape[0], axes.strides[0][0]))
    return kinds.pop() if len(kinds) == 1 and len(parts) > 1 else None


def _across(
    whole: View, parts: Sequence[View], place: int, columns: tuple[int, int], names: tuple[str, str], apart: bool
) -> list[Step]:
    """The launches of parts that are columns side by side."""
    words, pitch = columns
    size, unit = whole.element.itemsize, max(4, whole.element.itemsize)
    steps = []
    for start in range(0, len(parts), CAPACITY):
        own = parts[start : start + CAPACITY]
        row = 4096  # bytes of each part in a tile
        while len(own) * (row + unit) > _ACROSS_BYTES:
            row //= 2
        at = (place + start) * size
        params = {
            "parts": (names[1], start, start + len(own)), "whole": (names[0], at), "words": words,
            "whole_pitch": pitch, "count": len(own), "side": row // size, "apart": apart,
            "wide": all(part.ptr % 16 == 0 for part in own), "dense": pitch == len(own) and (whole.ptr + at) % 16 == 0,
        }  # fmt: skip
        steps.append(Step("across", (-(-words // (row // size)), 1, 1), params, {"BYTES": size}, THREADS))
    return steps


def _of_part(number: int, part: View, own: View, place: int, names: tuple[str, str], apart: bool) -> Step | str:
    """The launch that copies one part, whatever its strides."""
    whole, parts = names
    found = lay_out((part, own) if apart else (own, part))
    if isinstance(found, str):
        return found
    step = words_step(found, part.element.itemsize)
    params = {
        **step.params, **still(), "part": (parts, number, number + 1), "apart": apart,
        "whole": (whole, place * part.element.itemsize),
    }  # fmt: skip
    return replace(step, kernel="part", params=params)


def joined(shapes: Sequence[tuple[int, ...]], axis: int) -> tuple[int, ...]:
    """The shape of the whole."""
    first = shapes[0]
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def elements(shapes: Sequence[tuple[int, ...]]) -> int:
    """Elements of all parts."""
    return sum(map(math.prod, shapes))
