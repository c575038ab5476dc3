"""Where operands lie: strided views inside guarded buffers, and what must still hold after a run.

A `Placement` says how an array's axes are walked in memory: order, step, direction, gaps, and how far the pointer is
off its alignment. Every byte of the buffer that the view does not own is a guard. Outputs are poisoned, so that an
element nobody wrote shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .draw import Draw

GUARD = 256  # bytes on either side; keeps the 256-byte alignment of the buffer
KINDS = ("dense", "offset", "padded", "permuted", "step", "negative", "broadcast", "mixed")
_RULES = {
    "dense": ("dense", "offset"),
    "inner": ("dense", "offset", "padded", "permuted", "step", "negative", "broadcast", "mixed"),
    "any": KINDS,
}


@dataclass(frozen=True)
class Placement:
    """How an array of some rank lies. Axes are logical; `order` lists them from slowest to fastest in memory."""

    name: str = "dense"
    order: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    flips: tuple[bool, ...] = ()
    broadcast: tuple[int, ...] = ()
    offset: int = 0


def place(draw: Draw, array: np.ndarray, rule: str = "any", *, reads_only: bool = True, name: str = "") -> Placement:
    """A placement that the layout rule ("any", "inner", "dense") permits; stride 0 only where nothing is written."""
    rank = array.ndim
    name = name or draw.choice(_RULES[rule])
    fixed = 1 if rule == "inner" and rank else 0  # the last axis stays dense
    order, steps, pads, flips = list(range(rank)), [1] * rank, [0] * rank, [False] * rank
    free = rank - fixed
    everything = name == "mixed"
    if free > 1 and (everything or name == "permuted"):
        head = order[:free]
        shift = draw.integer(1, free - 1)
        order = head[shift:] + head[:shift] + order[free:]
    if name == "padded" or (everything and rule != "dense"):
        for axis in range(rank - 1):
            pads[axis + 1 if order == list(range(rank)) else axis] = draw.integer(0, 3)
    if free and (everything or name == "step"):
        steps[draw.integer(0, free - 1)] = 2
    if free and (everything or name == "negative"):
        flips[draw.integer(0, free - 1)] = True
    if fixed:
        steps[-1], flips[-1] = 1, False
    broadcast = _repeated(array)[: free + 1] if reads_only and name == "broadcast" else ()
    broadcast = tuple(a for a in broadcast if a < free)
    offset = draw.choice((1, 3)) if name == "offset" else draw.choice((0, 0, 1)) if everything else 0
    return Placement(name, tuple(order), tuple(steps), tuple(pads), tuple(flips), broadcast, offset)


def _repeated(array: np.ndarray) -> tuple[int, ...]:
    """Axes along which all values are the same bytes."""
    if not array.size:
        return ()
    raw = np.ascontiguousarray(array)
    bits = raw.view(np.dtype((np.void, raw.itemsize))) if raw.ndim else raw
    return tuple(a for a in range(raw.ndim) if raw.shape[a] > 1 and bool((bits == np.take(bits, [0], a)).all()))


@dataclass
class Laid:
    """An array laid out in a guarded buffer. `strides` are bytes; `start` is where the view's first element is."""

    buffer: np.ndarray  # uint8, 256-byte aligned
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    placement: Placement
    before: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))

    @property
    def view(self) -> np.ndarray:
        """The operand."""
        made: np.ndarray = np.ndarray(self.shape, self.dtype, self.buffer.data, self.start, self.strides)
        return made

    def mask(self) -> np.ndarray:
        """Which bytes of the buffer belong to the view."""
        owned = np.zeros(self.buffer.size, np.bool_)
        cells = np.ndarray(self.shape, np.dtype((np.void, self.dtype.itemsize)), owned.data, self.start, self.strides)
        cells[...] = np.frombuffer(b"\x01" * self.dtype.itemsize, cells.dtype)[0]
        return owned

    def seal(self) -> None:
        """Remember the bytes as they are now."""
        self.before = self.buffer.copy()

    def damage(self, writes: bool, after: np.ndarray | None = None) -> str | None:
        """What changed that must not: anything for an input, the bytes between and around for an output."""
        changed = (self.buffer if after is None else after) != self.before
        if writes:
            changed &= ~self.mask()
        if not changed.any():
            return None
        first = int(np.flatnonzero(changed)[0]) - self.start
        what = "outside the view" if writes else "of an input"
        return f"{int(changed.sum())} bytes {what} changed, the first at {first} from the pointer ({self.placement})"


def lay_out(array: np.ndarray, placement: Placement | None = None, poison: int | None = None) -> Laid:
    """`array` in a guarded buffer; with `poison` the view is filled with that byte (NaN for floats) instead."""
    placement = placement or Placement()
    rank, size = array.ndim, array.dtype.itemsize
    order = placement.order or tuple(range(rank))
    strides = [0] * rank
    step = 1
    for axis in reversed(order):
        extent = array.shape[axis]
        if axis in placement.broadcast:
            continue
        step *= placement.steps[axis] if placement.steps else 1
        strides[axis] = step
        step = step * max(extent, 1) + (placement.pads[axis] if placement.pads else 0)
    low = 0
    for axis in range(rank):
        if placement.flips and placement.flips[axis] and array.shape[axis] and axis not in placement.broadcast:
            strides[axis] = -strides[axis]
            low += (array.shape[axis] - 1) * -strides[axis]
    reach = sum((n - 1) * abs(s) for n, s in zip(array.shape, strides, strict=True)) + 1 if array.size else 0
    total = GUARD + (placement.offset + max(reach, 1)) * size + GUARD
    buffer = aligned_bytes(-(-total // 256) * 256)
    buffer[:] = np.arange(buffer.size, dtype=np.uint32).astype(np.uint8) ^ np.uint8(0xA5)
    start = GUARD + (placement.offset + (low if array.size else 0)) * size
    laid = Laid(buffer, start, array.shape, tuple(s * size for s in strides), array.dtype, placement)
    if poison is None:
        laid.view[...] = array
    elif array.size:
        laid.view[...] = _poison(array.dtype, poison)
    laid.seal()
    return laid


def _poison(dtype: Any, byte: int) -> Any:
    if dtype == np.bool_:
        return bool(byte & 1)
    return np.frombuffer(bytes([byte]) * dtype.itemsize, dtype)[0]  # 0xFF… is a NaN in every float kind


def aligned_bytes(count: int, boundary: int = 256) -> np.ndarray:
    """Uninitialised bytes at a multiple of `boundary`."""
    raw = np.empty(count + boundary, np.uint8)
    start = -raw.ctypes.data % boundary
    return raw[start : start + count]


def simple(rule: str) -> Iterator[str]:
    """The names a rule permits, for loops that want each."""
    yield from _RULES[rule]
