"""The phases of a convolution of a spread input (polyphase form), each a convolution of the input as it is.

Between the elements of x̂ stand input_dilation - 1 zeros. Outputs whose places leave the same remainder see elements of
x at the same taps, and zeros between at all others: a phase has those outputs and those taps, and no zeros. Its stride,
dilation and padding are whole numbers of elements of x. Outputs that see nothing but zeros are phases without taps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from .conv_problem import Convolution, Filter, Six
from .window import Three

_FILLS = 64  # phases without taps that are launched one by one


@dataclass(frozen=True)
class Axis:
    """What a phase has of an axis: its outputs, taps and numbers; `taps` of 0 where it has none."""

    first: int
    apart: int
    outputs: int
    first_tap: int = 0
    taps_apart: int = 1
    taps: int = 0
    stride: int = 1
    padding: int = 0
    dilation: int = 1


def axis_phases(extent: int, taps: int, stride: int, padding: int, dilation: int, spread: int) -> list[Axis]:
    """Of an axis with `extent` outputs."""
    apart = spread // math.gcd(stride, spread)
    taps_apart = spread // math.gcd(dilation, spread)
    found = []
    for first in range(min(apart, extent)):
        outputs = -(-(extent - first) // apart)
        start = stride * first - padding  # of the window, in x̂
        hits = (k for k in range(min(taps_apart, taps)) if (start + dilation * k) % spread == 0)
        tap = next(hits, None)
        if tap is None:
            found.append(Axis(first, apart, outputs))
            continue
        found.append(
            Axis(
                first, apart, outputs, tap, taps_apart, -(-(taps - tap) // taps_apart), stride * apart // spread,
                -(start + dilation * tap) // spread, dilation * taps_apart // spread,
            )
        )  # fmt: skip
    return found


@dataclass(frozen=True)
class Phase:
    """Outputs first + apart · q, and of the filter taps first_tap + taps_apart · k."""

    conv: Convolution
    first: Three = (0, 0, 0)
    apart: Three = (1, 1, 1)
    first_tap: Three = (0, 0, 0)
    taps_apart: Three = (1, 1, 1)

    def outputs(self, steps: Six) -> tuple[int, Six]:
        """Where an array of outputs begins, in elements, and its strides."""
        return _moved(steps, self.first, self.apart)

    def filter(self, whole: Filter) -> Filter:
        """The taps of a filter that it has."""
        start, steps = _moved(whole.steps, self.first_tap, self.taps_apart)
        return Filter(steps, whole.start + start, whole.ptr)


def _moved(steps: Six, first: Three, apart: Three) -> tuple[int, Six]:
    start = sum(n * s for n, s in zip(first, steps[3:], strict=True))
    return start, (*steps[:3], *(n * s for n, s in zip(apart, steps[3:], strict=True)))


def _phase(conv: Convolution, axes: Iterable[Axis]) -> Phase:
    own: tuple[Axis, ...] = tuple(axes)

    def three(name: str) -> Any:
        return tuple(getattr(axis, name) for axis in own)

    empty = any(axis.taps == 0 for axis in own)
    numbers = {name: three(name) for name in ("stride", "padding", "dilation")}
    kernel = (1, 1, 1) if empty else three("taps")
    dense = replace(conv, out_extent=three("outputs"), kernel=kernel, input_dilation=(1, 1, 1), empty=empty, **numbers)
    if empty:
        return Phase(dense, three("first"), three("apart"))
    return Phase(dense, three("first"), three("apart"), three("first_tap"), three("taps_apart"))


def phases(conv: Convolution, overwrite: bool = True) -> list[Phase]:
    """All of them; overwrite: an output may be written twice, where many see nothing."""
    if conv.input_dilation == (1, 1, 1):
        return [Phase(conv)]
    if not conv.rows:
        return []
    axes = [
        axis_phases(*numbers)
        for numbers in zip(
            conv.out_extent, conv.kernel, conv.stride, conv.padding, conv.dilation, conv.input_dilation, strict=True
        )
    ]
    there = [[axis for axis in own if axis.taps] for own in axes]
    count, full = math.prod(map(len, axes)), math.prod(map(len, there))
    if overwrite and count - full > _FILLS:
        fill = Phase(replace(conv, kernel=(1, 1, 1), input_dilation=(1, 1, 1), empty=True))
        return [fill, *(_phase(conv, own) for own in itertools.product(*there))]
    return [_phase(conv, own) for own in itertools.product(*axes)]


@dataclass(frozen=True)
class Block:
    """A convolution whose rows are blocks of outputs, one of each phase, and whose columns are (phase, output)."""

    conv: Convolution
    whole: Convolution  # of the spread input
    apart: Three

    @property
    def count(self) -> int:
        """Phases."""
        return math.prod(self.apart)


def block_of(conv: Convolution, tile: int, gradient: bool) -> Block | None:
    """That of a spread input, where the products of tiles of `tile` columns are fewer than those of its phases.

    A block's window is the union of its phases' windows. Taps that only some of them have are zeros of the filter, and
    an infinite element of x would make NaN of them: this is for gradients, whose dy is finite or lost.
    """
    if conv.input_dilation == (1, 1, 1) or not conv.rows or not conv.cols:
        return None
    numbers = zip(
        conv.out_extent, conv.kernel, conv.stride, conv.padding, conv.dilation, conv.input_dilation, strict=True
    )
    axes, padding, kernel = [], [], []
    for extent, *rest in numbers:
        own = axis_phases(extent, *rest)
        if not all(axis.taps for axis in own) or len(own) < own[0].apart:
            return None
        before = max(axis.padding for axis in own)
        if any((before - axis.padding) % axis.dilation for axis in own):
            return None
        axes.append(own)
        padding.append(before)
        kernel.append(max((before - axis.padding) // axis.dilation + axis.taps for axis in own))
    exact = all(axis.taps == n for own, n in zip(axes, kernel, strict=True) for axis in own)
    first: Any = [own[0] for own in axes]
    apart: Any = tuple(axis.apart for axis in first)
    cols = conv.cols * math.prod(apart)
    apiece = math.prod(sum(axis.taps for axis in own) for own in axes) * -(-conv.cols // tile)
    if not (exact or gradient) or math.prod(kernel) * -(-cols // tile) > apiece:
        return None
    made = replace(
        conv, cols=cols, out_extent=_of(axis.outputs for axis in first), kernel=_of(kernel), padding=_of(padding),
        input_dilation=(1, 1, 1),
        stride=_of(axis.stride for axis in first), dilation=_of(axis.dilation for axis in first),
    )  # fmt: skip
    return Block(made, conv, apart)


def _of(values: Iterable[int]) -> Any:
    return tuple(values)
