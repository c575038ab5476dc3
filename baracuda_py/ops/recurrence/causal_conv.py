"""What the pages of causal_conv1d share: the problem, the window of every element, the launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Descriptor, ElementKind, InvalidProblemError, Kernel, Params, Problem, Step, View, choice, derived,
    element, extent, flag, integer,
)  # fmt: skip
from ...schedules.geometry import MOST_BLOCKS, grid, strides_of

ACTIVATIONS = ("none", "silu")
I32 = ElementKind.I32
THREADS = 256
STEPS = 8  # of a lane along time, in a tile
TAPS = (2, 3, 4, 8)  # weights a kernel has room for
BUSY = 1 << 17  # threads that fill a large device: where there are fewer, time is cut into shorter pieces
LAYOUTS = ("AlongWide", "AlongAny", "Across")
POLICY = (
    "positions are clamped to the element's own, bounds to [0, length] and to the bound before them; a row that is no "
    "sequence has a state of 0; an element at a negative position is 0"
)


@dataclass(frozen=True, kw_only=True)
class CausalConvDescriptor(Descriptor):
    """x has shape (batch, channels, length), weight (channels, width), width from 2 to 8.

    activation: "none", or "silu" after the sum. packed: the one item of the batch holds `states` sequences, one after
    another; else every item is a sequence.
    """

    batch: int = extent()
    channels: int = extent()
    length: int = extent()
    width: int = integer(minimum=2, maximum=8)
    activation: str = choice(ACTIVATIONS, "none")
    packed: bool = flag(False)
    states: int = extent(derived(lambda desc: desc.batch))
    element: ElementKind = element()

    def validate(self) -> None:
        if self.packed and self.batch != 1:
            raise InvalidProblemError(f"batch must be 1 where sequences are packed, got {self.batch}")
        if not self.packed and self.states != self.batch:
            raise InvalidProblemError(f"states must be the batch, {self.batch}, got {self.states}")
        if self.length >= 2**31:
            raise InvalidProblemError(f"length must be below 2^31, got {self.length}")

    @property
    def kept(self) -> int:
        """Elements that a state has of a channel."""
        return self.width - 1

    @property
    def num_bounds(self) -> int:
        """Length of `bounds`."""
        return self.states + 1

    @property
    def dense(self) -> bool:
        """Every item of the batch is a sequence."""
        return not self.packed


def random_bounds(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: bounds from 0 to the end."""
    bounds = np.sort(rng.integers(0, desc.length + 1, shape))
    bounds[0] = 0
    bounds[-1] = desc.length if len(bounds) > 1 else 0
    return bounds


def random_rows(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: sequences that do not return."""
    return np.sort(rng.integers(0, max(desc.states, 1), shape), axis=-1)


def random_positions(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: positions in sequences of one to a few elements, and at times none."""
    made = np.empty(shape, np.int64)
    for row in made:
        starts = np.where(rng.random(len(row)) < 0.2, np.arange(len(row)), 0)
        row[:] = np.arange(len(row)) - np.maximum.accumulate(starts)
    return np.where(rng.random(shape) < 0.05, -1, made)


def agree(desc: CausalConvDescriptor, arrays: dict[str, Any]) -> None:
    """Rows and positions that go with the bounds."""
    if not desc.packed:
        return
    bounds, t = np.maximum.accumulate(np.clip(arrays["bounds"], 0, desc.length)), np.arange(desc.length)
    rows = np.searchsorted(bounds, t, side="right") - 1
    inside = (rows >= 0) & (rows < desc.states)
    starts = bounds[np.clip(rows, 0, max(desc.states, 0))]
    arrays["rows"] = np.where(inside, rows, -1).astype(np.int32)[None]
    arrays["positions"] = np.where(inside, t - starts, -1).astype(np.int32)[None]


def spans(desc: CausalConvDescriptor, bounds: Any) -> tuple[Any, Any]:
    """(start, end) of every sequence."""
    if bounds is None:
        return np.zeros(desc.states, np.int64), np.full(desc.states, desc.length)
    start = np.clip(bounds[:-1].astype(np.int64), 0, desc.length)
    return start, np.clip(bounds[1:].astype(np.int64), start, desc.length)


@dataclass
class Windows:
    """The elements that each sum is over. reach: those before an element in its own sequence, negative for none."""

    desc: CausalConvDescriptor
    reach: Any  # (batch, length)
    row: Any
    state: Any  # whether a row of initial_states precedes them

    @classmethod
    def of(cls, desc: CausalConvDescriptor, positions: Any, rows: Any, bounds: Any) -> Windows:
        t = np.arange(desc.length)
        reach = np.broadcast_to(t, (desc.batch, desc.length))
        if positions is not None:
            reach = np.minimum(positions.astype(np.int64), t)
        row = np.broadcast_to(np.arange(desc.batch)[:, None], reach.shape) if rows is None else rows.astype(np.int64)
        known = (row >= 0) & (row < desc.states) & (reach >= 0)
        row = np.where(known, row, 0)
        start, _ = spans(desc, bounds)
        return cls(desc, reach, row, known & (start[row] == t - reach) if desc.states else known & False)

    def element(self, x: Any, initial: Any, back: int) -> Any:
        """What stands `back` elements before each, of its sequence or of the state before it: like x."""
        desc = self.desc
        shifted = np.zeros_like(x)
        shifted[..., back:] = x[..., : max(desc.length - back, 0)]
        own = (self.reach >= back)[:, None]
        found = np.where(own, shifted, x.dtype.type(0))
        if initial is not None and desc.states:
            k = np.clip(desc.kept - back + self.reach, 0, desc.kept - 1)
            before = np.moveaxis(initial[self.row, :, k], -1, 1)
            found = np.where(~own & self.state[:, None], before, found)
        return found

    def sums(self, x: Any, weight: Any, bias: Any, initial: Any) -> Any:
        """Before the activation, the oldest element first."""
        total = np.zeros_like(x) if bias is None else np.broadcast_to(bias[:, None], x.shape)
        for back in range(self.desc.kept, -1, -1):
            total = total + weight[:, self.desc.kept - back, None] * self.element(x, initial, back)
        return total


COMMON: dict[str, str | int] = {
    **dict.fromkeys(("x", "weight", "bias", "initial_states", "positions", "rows", "bounds"), "ptr"),
    **dict.fromkeys(("x_strides", "state_strides"), "i64[3]"),
    **dict.fromkeys(("weight_strides", "position_strides", "row_strides"), "i64[2]"),
    **dict.fromkeys(("bias_step", "bounds_step", "batch", "channels", "length", "states"), "i64"),
    **dict.fromkeys(("time_tiles", "channel_tiles", "span"), "i64"),
    **dict.fromkeys(("width", "silu", "time_lanes", "channel_lanes"), "i32"), "conv_threads": THREADS,
}  # fmt: skip


def common(p: Problem) -> dict[str, Any]:
    """The parameters of every kernel but those of a thread's place."""
    desc = p.desc
    return {
        "x_strides": strides_of(p.x, 3), "state_strides": strides_of(p.initial_states, 3),
        "weight_strides": strides_of(p.weight, 2), "position_strides": strides_of(p.positions, 2),
        "row_strides": strides_of(p.rows, 2), "bias_step": strides_of(p.bias, 1)[0],
        "bounds_step": strides_of(p.bounds, 1)[0], "batch": desc.batch, "channels": desc.channels,
        "length": desc.length, "states": desc.states, "width": desc.width, "silu": desc.activation == "silu",
        "time_tiles": 1, "channel_tiles": 1, "span": 1, "time_lanes": 1, "channel_lanes": 1,
    }  # fmt: skip


@dataclass(frozen=True)
class Walk:
    """Which layout of threads walks the arrays like x, and how."""

    layout: str
    grid: tuple[int, int, int]
    params: Mapping[str, Any]
    parts: int


def walk(desc: CausalConvDescriptor, views: tuple[View, ...], span: int) -> Walk | str:
    """Across channels where all arrays have those side by side, else along time; span: a thread's most steps across.

    Shapes alone say how time is cut.
    """
    size = desc.element.itemsize
    wide = 2 if taps(desc) > 4 or size == 8 else 4  # what registers have room for
    across = desc.channels % wide == 0 and all(
        v.strides[1] == 1 and v.ptr % (wide * size) == 0 and v.strides[0] % wide == 0 and v.strides[2] % wide == 0
        for v in views
    )  # fmt: skip
    along = all(
        v.strides[2] == 1 and v.ptr % min(16, STEPS * size) == 0 and v.strides[0] % STEPS == 0
        and v.strides[1] % STEPS == 0
        for v in views
    )  # fmt: skip
    if across and not (along and desc.length > 1):
        chunks = desc.channels // wide
        channel_lanes = min(THREADS, 1 << max(0, chunks - 1).bit_length())
        time_lanes = THREADS // channel_lanes
        while span > STEPS and desc.batch * chunks * -(-desc.length // span) < BUSY:
            span //= 2
        layout, each = "Across", time_lanes * span
    else:
        chunks = desc.channels
        time_lanes = min(32, 1 << max(0, -(-desc.length // STEPS) - 1).bit_length())
        channel_lanes = THREADS // time_lanes
        tiles = -(-desc.length // (time_lanes * STEPS))
        pieces = -(-BUSY // max(1, desc.batch * desc.channels * time_lanes))
        span = each = max(-(-tiles // pieces), min(tiles, 4), 1) * time_lanes * STEPS
        layout = "AlongWide" if along else "AlongAny"
    time_tiles = -(-desc.length // each)
    channel_tiles = -(-chunks // channel_lanes)
    params = {
        "time_tiles": time_tiles, "channel_tiles": channel_tiles, "span": span, "time_lanes": time_lanes,
        "channel_lanes": channel_lanes,
    }  # fmt: skip
    parts = desc.batch * time_tiles
    if parts * channel_tiles > MOST_BLOCKS:
        return f"more than {MOST_BLOCKS} blocks"
    return Walk(layout, grid(parts * channel_tiles), params, parts)


def walk_kernel(name: str, template: str, params: Params) -> Kernel:
    """The kernel of every layout and number of taps."""
    axes = {"LAYOUT": LAYOUTS, "TAPS": TAPS}
    return Kernel(name, template, params, axes, threads=THREADS, min_blocks=_blocks)


def _blocks(element: ElementKind, kind: Any) -> int:
    """Blocks that a multiprocessor is to hold."""
    return 1 if element is ElementKind.F64 else 2


def taps(desc: CausalConvDescriptor) -> int:
    """Weights that the kernel has room for."""
    return next(n for n in TAPS if desc.width <= n)


def state_step(kernel: str, desc: CausalConvDescriptor, values: Mapping[str, Any], axes: Mapping[str, Any]) -> Step:
    """A launch of a thread for each element of the states."""
    count = desc.states * desc.channels * desc.kept
    return Step(kernel, grid(-(-count // THREADS)), values, axes, THREADS)


def layout_class(views: tuple[View, ...], walked: Walk) -> str:
    """The layout of a SKU."""
    if all(v.dense for v in views):
        return "contiguous"
    return "strided" if walked.layout == "AlongAny" else "inner_contiguous"


def activation_name(activation: Any) -> Any:
    """The descriptor's word for None and swish."""
    if activation is None:
        return "none"
    return "silu" if isinstance(activation, str) and activation == "swish" else activation


def conv_case(draw: Any, descriptor: type[CausalConvDescriptor]) -> Any:
    """Tests: tails of tiles, every width, sequences shorter than the window."""
    packed = draw.flag()
    batch = 1 if packed else draw.integer(0, 3)
    return descriptor(
        batch=batch, channels=draw.sizes(1, 3, 8, 16, 5), length=draw.sizes(1, 0, 2, 7, 8, 16, 37), packed=packed,
        width=draw.integer(2, 8), activation=draw.choice(ACTIVATIONS),
        states=draw.integer(0, 4) if packed else batch, element=draw.element,
    )  # fmt: skip
