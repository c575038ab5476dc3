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
