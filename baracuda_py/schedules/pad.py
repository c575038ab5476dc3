"""Pad: the geometry of axes with more or fewer elements at their ends; `kernels/layout/pad.cu` has the kernels.

Axes are merged where neither is padded, or where the inner one is not and the outer one is padded so that whole runs of
the inner one go along (a constant, circular). Where words of several elements lie in y as they lie in x, they move as
one; else a dense y of rows of 16 bytes at least is written so many at a time, and any other one element by element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, pad
from ..core.variant import Kernel, Step
from .geometry import grid
from .map import THREADS, divider

MODES = ("constant", "reflect", "replicate", "circular", "symmetric")
_WHOLE = ("constant", "circular")  # modes in which a run of elements goes along as a whole
_WORDS = 4  # that a thread has in flight
_BACKWARD_ELEMENTS = 4  # of x that a thread of the gradient has


@dataclass(frozen=True)
class Axis:
    """One axis: its extent in y and in x, elements before the first of x, the distance of neighbours, the strides."""

    length: int
    extent: int
    before: int
    gap: int
    y: int
    x: int

    @property
    def plain(self) -> bool:
        """Whether y has it as x does."""
        return self.length == self.extent and self.before == 0 and self.gap == 1


def pad_params(name: str, **more: str) -> Params:
    """Params of the kernels; `more` are further fields."""
    return Params(
        name, y="ptr", x="ptr", count="i64", shape=f"i64[{AXES}]", extent=f"i64[{AXES}]", before=f"i64[{AXES}]",
        gap=f"i64[{AXES}]", y_steps=f"i64[{AXES}]", x_steps=f"i64[{AXES}]", value="i64[2]", rank="i32", mode="i32",
        narrow="i32", dividers=f"u32[{AXES}][3]", PadMode=MODES, map_threads=THREADS, pad_in_flight=_WORDS,
        pad_backward_elements=_BACKWARD_ELEMENTS, **more,
    )  # fmt: skip


PARAMS = pad_params("PadParams")
BACKWARD = pad_params("PadBackwardParams", once=f"i64[2][{AXES}]")


def _wide(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": tuple(b for b in (1, 2, 4, 8, 16) if b >= kind.itemsize)}


def _narrow(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": (kind.itemsize,) if kind.itemsize < 16 else ()}


SOURCE = "layout/pad.cu"
KERNELS = (
    Kernel("pad_words", "pad_words<{BYTES}>", PARAMS, _wide, threads=THREADS, source=SOURCE),
    Kernel("pad_pieces", "pad_pieces<{BYTES}>", PARAMS, _narrow, threads=THREADS, source=SOURCE),
)


def axes_of(y: View, x: View, before: Sequence[int], gap: Sequence[int], mode: str) -> list[Axis] | str:
    """The axes, outermost first and merged; a string says why they are too many."""
    found: list[Axis] = []
    for one in map(Axis, y.shape, x.shape, before, gap, y.strides, x.strides):
        if one.plain and one.length == 1:
            continue
        outer = found[-1] if found else None
        if (
            outer
            and one.plain
            and outer.y == one.length * one.y
            and outer.x == one.length * one.x
            and (outer.plain or (mode in _WHOLE and outer.gap == 1))
        ):
            n = one.length
            found[-1] = Axis(outer.length * n, outer.extent * n, outer.before * n, 1, one.y, one.x)
        else:
            found.append(one)
    return found if len(found) <= AXES else f"more than {AXES} axes remain after merging"


def pad_step(
    y: View, x: View, before: Sequence[int], gap: Sequence[int], mode: str, value: bytes, names: tuple[str, str]
) -> Step | str:
    """The launch that pads x into y; `value` are the 16 bytes of a word of padding. names: the operands y and x."""
    axes = axes_of(y, x, before, gap, mode)
    if isinstance(axes, str):
        return axes
    size, params = y.element.itemsize, {"y": names[0], "x": names[1]}
    vec = _word(y, x, axes, mode)
    if vec * size < 16 and axes and _near(axes[-1], mode, size) and y.dense and y.ptr % 16 == 0:
        chunks = -(-y.size // (16 // size))
        values = {**params, **constants(axes, mode, value)}
        return Step("pad_pieces", (-(-chunks // THREADS), 1, 1), values, {"BYTES": size}, THREADS)
    *outer, last = axes or [Axis(1, 1, 0, 1, 0, 0)]
    steps = [replace(a, y=a.y // vec, x=a.x // vec) for a in outer]
    last = replace(last, length=last.length // vec, extent=last.extent // vec, before=last.before // vec)
    values = {**params, **constants([*steps, last], mode, value)}
    blocks = max(1, -(-values["count"] // (THREADS * _WORDS)))
    return Step("pad_words", (blocks, 1, 1), values, {"BYTES": vec * size}, THREADS)


def backward_step(dx: View, dy: View, before: Sequence[int], mode: str, names: tuple[str, str]) -> Step | str:
    """The launch that adds up what padding read; names: the operands dx and dy."""
    axes = axes_of(dy, dx, before, (1,) * len(before), mode)
    if isinstance(axes, str):
        return axes
    once = [_read_once(axis, mode) for axis in axes]
    values = {
        **constants(axes, mode, bytes(16)), "x": names[0], "y": names[1], "count": dx.size,
        "once": [pad([low for low, _ in once]), pad([high for _, high in once])],
        "narrow": dx.size < 2**31 - 4 * THREADS * _BACKWARD_ELEMENTS,
        "dividers": [divider(n) for n in pad([a.extent for a in axes])],
    }  # fmt: skip
    return Step("pad_backward", grid(-(-dx.size // (THREADS * _BACKWARD_ELEMENTS))), values, {}, THREADS)


def _read_once(axis: Axis, mode: str) -> tuple[int, int]:
    """The indices [low, high) of x along an axis that one place of y reads, the one `before` further."""
    n, front, behind = axis.extent, axis.before, axis.length - axis.before - axis.extent
    if axis.plain:
        return 0, n
    low, high = max(0, -front), n - max(0, -behind)  # those that y has
    front, behind = max(front, 0), max(behind, 0)
    if mode == "replicate":
        return max(low, int(front > 0)), min(high, n - int(behind > 0))
    if n == 1 or front >= n or behind >= n:  # padding may read every element
        return 0, 0
    if mode == "circular":
        return max(low, behind), min(high, n - front)
    ends = int(mode == "reflect")  # the first and the last stand once
    return max(low, front + ends if front else 0), min(high, n - behind - (ends if behind else 0))


def _word(y: View, x: View, axes: Sequence[Axis], mode: str) -> int:
    """Elements in the widest word that lies in x as it does in y."""
    if not axes:
        return 1
    *outer, last = axes
    if (last.y, last.x) != (1, 1) or not (last.plain or (mode in _WHOLE and last.gap == 1)):
        return 1
    size = y.element.itemsize
    vec = 16 // size
    numbers = [last.length, last.extent, last.before, *(s for a in outer for s in (a.y, a.x))]
    while vec > 1 and (any(n % vec for n in numbers) or any(v.ptr % (vec * size) for v in (y, x))):
        vec //= 2
    return vec


def _near(last: Axis, mode: str, size: int) -> bool:
    """Whether `pad_pieces` takes the last axis: a row has 16 bytes, and no padding is longer than x (`pad_near`)."""
    if size == 16 or last.length * size < 16 or last.gap != 1:
        return False
    most = last.extent - (mode == "reflect")  # elements of padding at one end
    return mode in ("constant", "replicate") or max(last.before, last.length - last.before - last.extent) <= most


def constants(axes: Sequence[Axis], mode: str, value: bytes) -> dict[str, Any]:
    """The constant parameters."""
    count = 1
    for axis in axes:
        count *= axis.length
    words = [int.from_bytes(value[i : i + 8], "little", signed=True) for i in (0, 8)]
    return {
        "count": count, "shape": pad([a.length for a in axes]), "extent": pad([a.extent for a in axes]),
        "before": pad([a.before for a in axes]), "gap": pad([a.gap for a in axes]),
        "y_steps": pad([a.y for a in axes]), "x_steps": pad([a.x for a in axes]), "value": words, "rank": len(axes),
        "mode": MODES.index(mode), "narrow": count < 2**31 - 4 * THREADS,
        "dividers": [divider(n) for n in pad([a.length for a in axes])],
    }  # fmt: skip
