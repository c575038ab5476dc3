"""The schedule of norms over channels: x is (batch, channels, *spatial), in any strides, channels last among them.

Three steps, of which the first and the last read x: the schedule *reduce* makes a partial of every channel (of one
sample, or of the whole batch), one launch makes the statistics of all partials, the schedule *map* writes. Channels
that lie last are read across, others along space, with the same sums.

A statistic belongs to a group of channels. x is looked at as (batch, groups, members, *spatial); a batch norm and an
instance norm have groups of one channel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import (
    Descriptor,
    ElementKind,
    InvalidProblemError,
    Params,
    Problem,
    Step,
    choice,
    derived,
    extent,
    extents,
    integer,
)
from ..core.memo import cached_property
from ..core.params import Field
from ..core.tensor import Shape, View, dense_strides, merge_axes
from ..core.variant import Kernel, aligned
from .geometry import grid
from .norms import Affine, affine_element
from .reduce import REDUCE, SEGMENT, STATE, lanes_of, reduce_launches

OVER = ("batch", "group", "instance")
THREADS = 256
ROW = 32  # bytes of what the map takes of a statistic, at most
FEW = 16  # elements of a channel, below which a group is reduced at once


@dataclass(frozen=True, kw_only=True)
class Planes(Affine, Descriptor):
    """x has shape (batch, channels, *spatial); what belongs to a channel has an axis of them.

    weight_element, of weight and bias: the element (default), or float32 beside float16 and bfloat16 activations.
    """

    batch: int = extent()
    channels: int = extent()
    spatial: tuple[int, ...] = extents()
    weight_element: ElementKind = affine_element()

    @property
    def over(self) -> str:
        """What has one mean and variance: each channel of the batch."""
        return "batch"

    @property
    def num_groups(self) -> int:
        """Every channel is a group."""
        return self.channels

    def validate(self) -> None:
        """The groups are of as many channels each, and there is one a channel unless `over` is "group"."""
        if self.over != "group" and self.num_groups != self.channels:
            raise InvalidProblemError(
                f"num_groups is of group norm; over {self.over!r} it must be {self.channels}, got {self.num_groups}"
            )
        if self.channels and (not self.num_groups or self.channels % self.num_groups):
            raise InvalidProblemError(
                f"num_groups must divide the {self.channels} channels of x, got {self.num_groups}"
            )
        if len(self.spatial) > 5:
            raise InvalidProblemError(f"x must have at most 7 axes, got {len(self.spatial) + 2}")

    @property
    def members(self) -> int:
        """Channels of a group."""
        return self.channels // self.num_groups if self.num_groups else 1

    @property
    def statistic_shape(self) -> Shape:
        """The shape of mean and rstd."""
        return (self.channels,) if self.over == "batch" else (self.batch, self.num_groups)

    @cached_property
    def count(self) -> int:
        """Elements that have one mean."""
        return math.prod(self.spatial) * (self.batch if self.over == "batch" else self.members)

    @property
    def split_shape(self) -> Shape:
        """(batch, groups, members, *spatial)."""
        return (self.batch, self.num_groups, self.members, *self.spatial)

    @property
    def averaged(self) -> tuple[int, ...]:
        """The axes of `split_shape` that a statistic is over."""
        return (*((0, 2) if self.over == "batch" else (2,)), *range(3, 3 + len(self.spatial)))


@dataclass(frozen=True, kw_only=True)
class Channels(Planes):
    """As `Planes`. over: what has one mean and variance: each channel of the whole "batch", or in each sample each
    "group" of channels, or each channel ("instance"). num_groups: as many groups; by default every channel is one.
    """

    over: str = choice(OVER, "batch")
    num_groups: int = integer(derived(lambda desc: desc.channels), minimum=0)


def split(view: View | None, desc: Planes) -> View | None:
    """x, or what is like it, as `split_shape`."""
    if view is None:
        return None
    n, c, *rest = view.strides
    return View(view.ptr, desc.split_shape, (n, desc.members * c, c, *rest), view.element)


def of_channels(view: View | None, desc: Planes) -> View | None:
    """Weight or bias broadcast to `split_shape`; elements are loaded alone, so no pointer is looked at."""
    if view is None:
        return None
    step = view.strides[0]
    strides = (0, desc.members * step, step, *(0 for _ in desc.spatial))
    return View(0, desc.split_shape, strides, desc.element)


def of_statistics(desc: Planes) -> View:
    """A dense array of one item a statistic, broadcast to `split_shape`."""
    first = 0 if desc.over == "batch" else desc.num_groups
    return View(0, desc.split_shape, (first, 1, 0, *(0 for _ in desc.spatial)), desc.element)


@dataclass(frozen=True)
class Parts:
    """The first step: its launches, where its results and the table of statistics are, and the end of the workspace."""

    steps: tuple[Any, ...]
    members: int  # partials of a statistic
    table: int
    used: int


def partial_launches(p: Problem, operands: tuple[View, ...], whole: bool, packed: int = 0) -> Parts | str:
    """A partial of every channel at byte 0 of the workspace: of a sample, or of the batch where statistics are of that.

    whole: groups of few elements have one partial each. The operands have `split_shape`. packed: x, as it is (0), or a
    map of operands of which so many are `packed` in `reduce_launches`.
    """
    desc: Planes = p.desc
    at_once = whole and math.prod(desc.spatial) < FEW
    reduced = desc.averaged if desc.over == "batch" or at_once else tuple(range(3, 3 + len(desc.spatial)))
    kept = tuple(n for a, n in enumerate(desc.split_shape) if a not in reduced)
    count, rows = math.prod(kept), math.prod(desc.statistic_shape)
    table = aligned(count * STATE)
    result = View(0, kept, dense_strides(kept), ElementKind.F64)
    found = reduce_launches(
        p.device, operands, (result,), reduced, mapped=packed > 0, values={"y": ("@workspace", 0)},
        base=table + aligned(rows * ROW), width=16 // desc.element.itemsize, packed=packed,
    )  # fmt: skip
    if isinstance(found, str):
        return found
    members = 1 if desc.over == "batch" or at_once else desc.members
    return Parts(found.steps, members, table, found.used)


def fold_lanes(most: int) -> int:
    """Lanes that add up at most so many partials, one after another."""
    return lanes_of(4 * max(most, 1))  # a partial a lane, up to a warp


def fold_step(kernel: str, jobs: int, lanes: int, values: Mapping[str, Any]) -> Step:
    """A launch of a group of lanes for each of `jobs`."""
    blocks = -(-jobs * lanes // THREADS)
    return Step(kernel, (max(1, blocks), 1, 1), {**values, "lanes": lanes}, {}, THREADS)


_DOWN = (64, 32, 16)  # rows of a thread that walks across channels: what belongs to those is read once for so many
_BLOCKS = 16  # of such threads for a multiprocessor, below which fewer rows are taken: the last to end work alone


def across_params(name: str, moved: int, **fields: str) -> Params:
    """The parameter struct of a kernel that walks across channels, over `moved` arrays like x, the result last."""
    return Params(
        name, **fields, table="workspace", samples="i64", parts="i64", tiles="i64", span="i64", rows="i64",
        channels="i64", groups="i64", members="i64", steps=f"i64[{moved}][2]", across="i32", wide="i32",
        across_threads=THREADS,
    )  # fmt: skip


def across_step(p: Problem, kernel: str, moved: Sequence[View], values: Mapping[str, Any]) -> Step | None:
    """A launch whose threads have a chunk of channels each, where all arrays have their channels last; else None."""
    desc: Planes = p.desc
    width, first = 16 // desc.element.itemsize, moved[0]
    if desc.channels % width or any(v.strides[1] != 1 or v.ptr % 16 for v in moved) or 0 in first.shape:
        return None
    whole = desc.over == "batch"  # then rows of all samples are alike
    shape, steps = merge_axes((first.shape[0], *first.shape[2:]), [(v.strides[0], *v.strides[2:]) for v in moved])
    samples, starts = 1, [0] * len(moved)
    if not whole or len(shape) > 1:
        shape, steps = merge_axes(first.shape[2:], [v.strides[2:] for v in moved])
        samples, starts = desc.batch, [v.strides[0] for v in moved]
    rows, downs = math.prod(shape), [s[0] if s else 0 for s in steps]
    if len(shape) > 1 or rows < FEW or any(step % width for step in (*starts, *downs)):
        return None
    chunks = desc.channels // width
    across = min(THREADS, 1 << (chunks - 1).bit_length())
    tiles, beside = -(-chunks // across), THREADS // across
    enough = _BLOCKS * p.device.sms
    down = next((n for n in _DOWN if samples * tiles * -(-rows // (beside * n)) >= enough), _DOWN[-1])
    span, parts = beside * down, -(-rows // (beside * down))
    constants = {
        "samples": samples, "parts": parts, "tiles": tiles, "span": span, "rows": rows, "channels": desc.channels,
        "groups": 0 if whole else desc.num_groups, "members": desc.members,
        "steps": [list(pair) for pair in zip(starts, downs, strict=True)], "across": across,
        "wide": desc.weight_element is not desc.element, **values,
    }  # fmt: skip
    return Step(kernel, grid(samples * parts * tiles), constants, {}, THREADS)


HELD_THREADS = 512
_PAIR = 320  # threads of a block, of which two fit the registers of a multiprocessor
_LEAST = 2048  # bytes of a row, below which a block has too little to do


def held_params(name: str, moved: Sequence[str], **fields: Field) -> Params:
    """The parameter struct of a kernel that holds the row of a statistic in shared memory; `moved` are like x."""
    return Params(
        name, **dict.fromkeys(moved, "ptr"), **fields, rows="i64", groups="i64",
        **{f"{n}_strides": "i64[3]" for n in moved}, members="i32", segments="i32", chunks="i32", segment_lanes="i32",
        merging="i32", lanes="i32", wide="i32", across_threads=THREADS, **REDUCE,
    )  # fmt: skip


def held_step(p: Problem, moved: Sequence[str], held: int, lanes: int, values: Mapping[str, Any]) -> Step | str:
    """A launch of a block for each row that fits its shared memory, with the sums of the three steps.

    moved: operands like x, of which `held` are in shared memory. lanes: those of `fold_step`.
    """
    desc: Planes = p.desc
    views = {name: split(p.views[name], desc) for name in moved}
    width, plane = 16 // desc.element.itemsize, math.prod(desc.spatial)
    rows, nbytes = math.prod(desc.statistic_shape), desc.members * plane * desc.element.itemsize
    if desc.over == "batch" or plane < FEW:
        return "a statistic is of one sample, and of planes"
    if plane % width or not all(_planes_of_chunks(view, width) for view in views.values() if view is not None):
        return f"the planes of {', '.join(moved)} are whole chunks of 16 aligned bytes, each dense"
    if nbytes < _LEAST or 8 * rows < p.device.sms:
        return "rows are long, and many"
    chunks = plane // width
    segments = -(-chunks // SEGMENT)
    smem = held * nbytes + (desc.members * segments + 1) * STATE
    if smem + 1024 > p.device.smem or segments > SEGMENT:
        return f"a row takes {smem} bytes of shared memory, the device has {p.device.smem}"
    own = lanes_of(chunks)
    units, most = desc.members * segments, _PAIR if 2 * (smem + 1024) <= p.device.smem else HELD_THREADS
    rounds = -(-units * own // most)
    at_once = -(-units // rounds)  # as many in each round, so that no thread waits for the last ones
    threads = -(-at_once * own // 32) * 32
    strides = {f"{n}_strides": [0] * 3 if view is None else list(view.strides[:3]) for n, view in views.items()}
    constants = {
        **strides, "rows": rows, "groups": desc.num_groups, "members": desc.members, "segments": segments,
        "chunks": chunks, "segment_lanes": own, "merging": lanes_of(segments), "lanes": lanes,
        "wide": desc.weight_element is not desc.element, **values,
    }  # fmt: skip
    return Step("held", grid(rows), constants, {}, threads, smem=smem)


def _planes_of_chunks(view: View, width: int) -> bool:
    plane = View(0, view.shape[3:], view.strides[3:], view.element)
    return plane.dense and view.ptr % 16 == 0 and all(s % width == 0 for s in view.strides[:3])


def single_kernel(name: str, template: str, params: Params) -> Kernel:
    """A kernel of one instance an element."""
    return Kernel(name, template, params, threads=THREADS)


def channel_case(draw: Any, over: str | None = None) -> dict[str, Any]:
    """Tests: 2-D to 5-D, groups of one to all channels, planes from one element to several segments."""
    over = over or draw.choice(OVER)
    groups = draw.sizes(2, 1, 3, 8)
    channels = groups * (draw.sizes(1, 2, 3, 8, 40) if over == "group" else 1)
    spatial: tuple[int, ...] = draw.choice(
        ((), (draw.integer(0, 40),), draw.shape(2, 2, 1, 9), draw.shape(3, 3, 1, 5), (draw.sizes(16, 64, 1000),))
    )
    if draw.rarely():
        spatial = (draw.sizes(4099, 9000),)
    batch = draw.integer(0, 5) if over != "batch" else draw.sizes(3, 1, 2, 0, 40)
    return {"over": over, "batch": batch, "channels": channels, "spatial": spatial,
            **({"num_groups": groups} if over == "group" else {})}  # fmt: skip
