"""Concat: the geometry of moving many arrays into places of one along an axis, or these places into arrays.

A part whose elements, as those of its place, are rows without gaps goes with all others of its kind in one launch,
whose parameters have a table of the parts; the words are as wide as the part's rows and pitches allow. Any other part
is a strided copy. `kernels/layout/concat.cu` has the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Step
from .copy import WORDS, launched, moving_params, shifted, still
from .copy import words as words_step
from .map import THREADS, lay_out, map_params
from .multi_tensor import groups

SOURCE = "layout/concat.cu"
CAPACITY = 80  # parts a launch


def rows_params(name: str) -> Params:
    """Params of the launches that move rows."""
    table = dict.fromkeys(("width", "words", "pitch", "place"), f"i64[{CAPACITY}]")
    return Params(name, parts=f"ptr[{CAPACITY}]", whole="ptr", whole_pitch="i64", **table, first=f"i32[{CAPACITY}]",
                  count="i32", apart="i32")  # fmt: skip


ROWS = rows_params("ConcatRowsParams")
PART = Params("ConcatPartParams", part="ptr[1]", whole="ptr", apart="i32", **moving_params(), **map_params(2))


def _wide(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": tuple(b for b in (1, 2, 4, 8, 16) if b >= kind.itemsize)}


def _ends(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": tuple(dict.fromkeys((kind.itemsize, 16)))}


KERNELS = (
    Kernel("rows", "concat_rows<{BYTES}>", ROWS, _wide, threads=THREADS),
    Kernel("part", "concat_part<{BYTES}>", PART, _ends, threads=THREADS),
)


@dataclass(frozen=True)
class _Rows:
    """A part as rows: the bytes of a word, words in all and in a row, pitches in words, its place in the whole."""

    nbytes: int
    words: int
    width: int
    pitch: int
    whole_pitch: int
    place: int


def _rows(part: View, whole: View, place: int) -> _Rows | None:
    """A part and its place as rows of words, or None where they are not."""
    found = lay_out((whole, part))
    if isinstance(found, str):
        return None
    (axes,) = found.groups
    if axes.rank > 2 or any(s[-1:] not in ((), (1,)) for s in axes.strides):
        return None
    size = part.element.itemsize
    width = axes.shape[-1] if axes.rank else 1
    whole_pitch, pitch = (s[0] for s in axes.strides) if axes.rank == 2 else (0, 0)
    nbytes = 16
    while nbytes > size and any(n * size % nbytes for n in (width, pitch, whole_pitch, place)):
        nbytes //= 2
    while nbytes > size and (part.ptr % nbytes or (whole.ptr - place * size) % nbytes):
        nbytes //= 2
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
    rows = [
        _rows(part, own, place) if part.size else None for part, own, place in zip(parts, seen, places, strict=True)
    ]
    steps: list[Step | str | None] = []
    for kind in sorted({(one.nbytes, one.whole_pitch) for one in rows if one}):
        mine = [one if one and (one.nbytes, one.whole_pitch) == kind else None for one in rows]
        steps += _of_rows(mine, names, apart)
    for i, (part, own, place) in enumerate(zip(parts, seen, places, strict=True)):
        if part.size and rows[i] is None:
            steps.append(_of_part(i, part, own, place, names, apart))
    return launched(steps, (whole, *parts))


def _of_rows(rows: Sequence[_Rows | None], names: tuple[str, str], apart: bool) -> list[Step]:
    """The launches of the parts that have words of one width."""
    whole, parts = names
    steps = []
    for group in groups([-(-one.words // (THREADS * WORDS)) if one else 0 for one in rows], CAPACITY):
        own = rows[group.start : group.stop]
        filled = [*own, *(None,) * (CAPACITY - len(own))]
        one = next(one for one in own if one)
        params = {
            "parts": (parts, group.start, group.stop), "whole": whole, "whole_pitch": one.whole_pitch,
            **{f: [getattr(r, f) if r else 0 for r in filled] for f in ("width", "words", "pitch", "place")},
            "first": [*group.first, *(0,) * (CAPACITY - len(own))], "count": len(own), "apart": apart,
        }  # fmt: skip
        steps.append(Step("rows", (group.blocks, 1, 1), params, {"BYTES": one.nbytes}, THREADS))
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
