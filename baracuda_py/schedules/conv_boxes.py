"""Convolutions whose operands TMA copies, in boxes of places (kernels/conv/boxes.cuh).

What the places of a box see at one tap of their windows is a box of x. A result's tile is a box of up to 128 places; a
slice of a filter's gradient is one of 64 places, which must fill the axes: a place beyond them would see elements of x
that no window has there, and infinite ones times zero are no zeros. Of the batch both operands are zeros beyond.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..core.element import ElementKind
from ..core.tensor_map import TensorMap
from ..core.variant import Step
from .conv_kernels import BOX_COLS, BOX_THREADS, WGMMA_ROWS
from .conv_problem import Convolution, Field, Six
from .map import divider
from .products import Place

_LINE = 128  # bytes of channels that a box has
_DEPTH = 64  # places of a slice of 16-bit elements, and their channels in a line
_SMS = 132  # multiprocessors of sm_90a, whatever the device has: a filter's bits follow from the extents alone
_FULL = 0.7  # of a tile's rows, or of the columns and slices of a filter's gradient, that must exist
# Of a split of a filter's gradient, in slices: what its end costs, a part that is written and read, and how long it is.
_END, _PART, _SHORTEST = 4, 0.1, 8


_STAGES = {256: 4, 192: 4, 128: 6, 64: 8}  # by columns of a tile
_SLOWER = {256: 1.05, 192: 1.08, 128: 1.15, 64: 1.4}  # products of a narrower tile, which copies more for each


def shared_memory(cols: int) -> int:
    """Bytes of a block: up to 1024 before the ring, stages, what eight warps finish by, barriers."""
    return 1024 + _STAGES[cols] * ((WGMMA_ROWS + cols) * 128 + 16) + 8 * 4096 + 8


@dataclass(frozen=True)
class Boxes:
    """Places of a box along w, h, d and the batch, and how many boxes there are along each."""

    box: tuple[int, int, int, int]
    boxes: tuple[int, int, int, int]

    @property
    def places(self) -> int:
        """Of a box."""
        return math.prod(self.box)

    @property
    def count(self) -> int:
        """Of boxes."""
        return math.prod(self.boxes)

    def values(self, batch: int) -> dict[str, Any]:
        """Fields of `BOX_PARAMS`."""
        return {
            "box": self.box, "boxes": self.boxes, "box_dividers": [divider(n) for n in self.box[:3]],
            "box_count": self.count, "box_bytes": self.places * _LINE, "k": 0, "split_boxes": 0, "kept": 0,
            "batch": batch,
        }  # fmt: skip


def _axes(conv: Convolution) -> tuple[int, ...]:
    """Extents of w, h, d and the batch."""
    return (*reversed(conv.out_extent), conv.batch)


@lru_cache(1024)
def tile_boxes(axes: tuple[int, ...]) -> Boxes:
    """The boxes of at most 128 places that are fewest, of those the longest along w."""

    def sides(extent: int) -> set[int]:
        return {min(extent, 1 << n) for n in range(8)} | ({extent} if extent <= WGMMA_ROWS else set())

    best: tuple[Any, ...] = ()
    w, h, d, batch = axes
    for bw in sides(w):
        for bh in sides(h):
            if bw * bh > WGMMA_ROWS:
                continue
            for bd in sides(d):
                room = WGMMA_ROWS // (bw * bh * bd)
                if not room:
                    continue
                box = (bw, bh, bd, min(batch, room))
                boxes = tuple(-(-n // b) for n, b in zip(axes, box, strict=True))
                found = (math.prod(boxes), -bw, -bh, -bd, box, boxes)
                best = min(best, found) if best else found
    return Boxes(*best[-2:])


def slice_boxes(axes: tuple[int, ...]) -> Boxes:
    """The boxes of 64 places that fill all axes but the batch."""
    left, box = _DEPTH, []
    for extent in axes[:3]:
        box.append(math.gcd(extent, left))
        left //= box[-1]
    box.append(left)
    return Boxes(tuple(box), tuple(-(-n // b) for n, b in zip(axes, box, strict=True)))  # type: ignore[arg-type]


def _map(
    place: Place, element: ElementKind, shape: list[int], steps: list[int], box: tuple[int, ...]
) -> TensorMap | None:  # fmt: skip
    """The map of an array, its innermost axis dense; None where TMA cannot read it. steps: in elements."""
    strides: list[int] = []
    for n, (extent, step) in enumerate(zip(shape[1:], steps, strict=True)):
        if extent > 1 and step <= 0:
            return None
        before = (strides[-1] if strides else element.itemsize) * shape[n]
        strides.append(step * element.itemsize if extent > 1 else -(-before // 16) * 16)
    made = TensorMap(
        place.name, element, tuple(shape), tuple(strides), (_LINE // element.itemsize, *box), offset=place.offset
    )
    return None if made.refusal(0) else made


def field_map(
    field: Field, extents: tuple[int, ...], channels: int, groups: int, element: ElementKind, box: tuple[int, ...]
) -> TensorMap | None:  # fmt: skip
    """A field's map with axes (channel, w, h, d, batch); extents: d, h and w, and the batch in front."""
    if not field.aligned or (groups > 1 and field.steps[1] <= 0):
        return None
    wide = (groups - 1) * field.steps[1] + channels
    shape = [wide, *reversed(extents[1:]), extents[0]]
    return _map(field.place, element, shape, [*reversed(field.steps[3:]), field.steps[0]], box)


def windows_map(x: Field, conv: Convolution, channels: int, element: ElementKind, box: tuple[int, ...]) -> Any:
    """That of x as windows see it, and whether axes of places between two windows stand in the place of others."""
    strides = conv.stride
    if strides == (1, 1, 1):
        found = field_map(x, (conv.batch, *conv.in_extent), channels, conv.groups, element, box)
        return None if found is None else (found, False)
    flat = conv.in_extent[0] == conv.out_extent[0] == conv.kernel[0] == strides[0] == 1 and conv.padding[0] == 0
    whole = all(n % s == 0 for n, s in zip(conv.in_extent, strides, strict=True))
    if not flat or not whole or not x.aligned or x.steps[5] <= 0 or (conv.groups > 1 and x.steps[1] <= 0):
        return None
    wide = (conv.groups - 1) * x.steps[1] + channels + (strides[2] - 1) * x.steps[5]
    shape = [wide, conv.in_extent[2] // strides[2], strides[1], conv.in_extent[1] // strides[1], conv.batch]
    steps = [strides[2] * x.steps[5], x.steps[4], strides[1] * x.steps[4], x.steps[0]]
    found = _map(x.place, element, shape, steps, (box[0], 1, box[1], box[3]))
    return None if found is None else (found, True)


def _served(conv: Convolution) -> bool:
    """Whether boxes are numbered in 32 bits, and there are any."""
    return 0 < conv.rows < 2**31 and conv.cols < 2**29 and conv.taps * conv.channels > 0


def tile_step(
    conv: Convolution, x: Field, w: tuple[Place, Six], params: Mapping[str, Any], element: ElementKind, sms: int,
    widths: tuple[int, ...] = BOX_COLS,
) -> Step | None:  # fmt: skip
    """The launch of a convolution by boxes in tiles of one of `widths`; None where numbers or operands are not so."""
    if not _served(conv) or conv.channels % (_LINE // element.itemsize) or conv.taps * conv.channels >= 2**31:
        return None
    boxes = tile_boxes(_axes(conv))
    if conv.rows < _FULL * WGMMA_ROWS * boxes.count:
        return None
    found = windows_map(x, conv, conv.channels, element, boxes.box)
    if found is None:
        return None
    x_map, between = found
    place, steps = w

    def cost(cols: int) -> float:
        tiles = conv.groups * boxes.count * -(-conv.cols // cols)
        return -(-tiles // sms) * cols * _SLOWER[cols]

    cols = min(widths, key=cost)
    w_map = _map(
        place, element, [conv.taps * conv.channels, conv.cols, conv.groups], [steps[1], steps[0]], (cols, 1)
    )  # fmt: skip
    total = conv.groups * boxes.count * -(-conv.cols // cols)
    if w_map is None or total >= 2**31:
        return None
    values = {**params, **boxes.values(conv.batch), "x_map": x_map, "y_map": None, "w_map": w_map, "total": total}
    return Step(
        "boxes", (min(total, sms), 1, 1), values | {"between": between}, {"COLS": cols}, BOX_THREADS,
        shared_memory(cols),
    )  # fmt: skip


@lru_cache(1024)
def splits_of(boxes: int, tiles: int) -> tuple[float, int, int]:
    """The slices in a row that so many tiles take, how many splits their boxes have, and boxes of a split."""
    best: tuple[float, int, int] = (math.inf, 1, boxes)
    for count in range(1, min(_SMS, max(1, boxes // _SHORTEST)) + 1):
        each = -(-boxes // count)
        splits = -(-boxes // each)
        cost = -(-tiles * splits // _SMS) * (each + _END) + (_PART * tiles * splits if splits > 1 else 0)
        best = min(best, (cost, splits, each))
    return best


def filter_launch(
    conv: Convolution, x: Field, dy: Field, channels: int, element: ElementKind
) -> tuple[dict[str, Any], int, int] | None:  # fmt: skip
    """Of a filter's gradient by boxes its parameters, columns of a tile, and splits.

    None where another launch takes it. channels: of a tap, with what fills up its last piece.
    """
    if element.itemsize != 2 or not _served(conv):
        return None
    boxes, each = slice_boxes(_axes(conv)), -(-channels // _DEPTH)
    full = conv.rows / (boxes.count * _DEPTH) * channels / (each * _DEPTH)
    if full < _FULL or conv.taps * each >= 2**24:
        return None
    found = windows_map(x, conv, channels, element, boxes.box)
    y_map = field_map(dy, (conv.batch, *conv.out_extent), conv.cols, conv.groups, element, boxes.box)
    if found is None or y_map is None:
        return None
    panels = conv.taps * each

    def tiles_of(cols: int) -> int:
        return conv.groups * -(-conv.cols // WGMMA_ROWS) * -(-panels // (cols // _DEPTH))

    cols = min(BOX_COLS, key=lambda cols: splits_of(boxes.count, tiles_of(cols))[0] * cols * _SLOWER[cols])
    tiles, (_, splits, own) = tiles_of(cols), splits_of(boxes.count, tiles_of(cols))
    if tiles * splits >= 2**31:
        return None
    values = boxes.values(conv.batch) | {
        "x_map": found[0], "y_map": y_map, "w_map": None, "between": found[1], "split_boxes": own,
        "total": tiles * splits,
    }  # fmt: skip
    return values, cols, splits
