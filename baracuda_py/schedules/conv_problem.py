"""The numbers of a convolution, its operands' strides and its filter's (kernels/conv)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.memo import cached_property
from ..core.tensor import View
from .map import divider
from .products import Place
from .window import Three, three

Six = tuple[int, ...]  # strides of batch, group, channel and three spatial axes; of a filter group, output, channel, …


@dataclass(frozen=True)
class Convolution:
    """The numbers of a convolution: x̂ [batch, groups · channels, …] → [batch, groups · cols, …]."""

    batch: int
    groups: int
    channels: int
    cols: int
    in_extent: Three
    out_extent: Three
    kernel: Three
    stride: Three
    padding: Three  # before x̂, negative where it is cut
    dilation: Three
    input_dilation: Three
    transposed: bool
    empty: bool = False  # without taps, where a phase sees nothing but zeros

    @cached_property
    def rows(self) -> int:
        """Places of the result."""
        return self.batch * math.prod(self.out_extent)

    @property
    def taps(self) -> int:
        """Places of a window."""
        return 0 if self.empty else math.prod(self.kernel)

    @property
    def turned(self) -> Convolution:
        """Of the result's gradient, what gives that of x."""
        axes = zip(self.kernel, self.dilation, self.padding, strict=True)
        before = three([(k - 1) * d - p for k, d, p in axes], 0)
        return replace(
            self, channels=self.cols, cols=self.channels, in_extent=self.out_extent, out_extent=self.in_extent,
            stride=self.input_dilation, input_dilation=self.stride, padding=before,
            transposed=not self.transposed,
        )  # fmt: skip

    @property
    def few(self) -> bool:
        """Whether groups are too narrow for tiles: what is told by the descriptor alone."""
        return self.groups > 1 and self.cols <= 8 and self.channels <= 8

    @property
    def folded(self) -> Convolution:
        """Of windows' lines along the last axis, whose channels are (tap, channel)."""
        return replace(
            self, channels=self.kernel[2] * self.channels, kernel=(*self.kernel[:2], 1),
            in_extent=(*self.in_extent[:2], self.out_extent[2]), stride=(*self.stride[:2], 1),
            padding=(*self.padding[:2], 0), dilation=(*self.dilation[:2], 1),
        )  # fmt: skip

    def folds(self, each: int) -> bool:
        """Whether lines of a window have fewer pieces of `each` than their taps have."""
        line, apart = self.kernel[2] * self.channels, self.kernel[2] * -(-self.channels // each)
        return self.groups == 1 and self.channels > 0 and self.input_dilation == (1, 1, 1) and -(-line // each) < apart

    @property
    def inside(self) -> bool:
        """Whether all windows lie inside of x."""
        axes = zip(self.in_extent, self.out_extent, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return all(p <= 0 and (m - 1) * s - p + (k - 1) * d < n for n, m, k, s, p, d in axes)

    @property
    def depthwise(self) -> bool:
        """Whether a group is one channel and one output."""
        return self.groups > 1 and self.cols == self.channels == 1 and self.taps > 0

    @property
    def short(self) -> bool:
        """Whether places, with windows around them, stay below 2^29."""
        places = zip(
            self.in_extent, self.out_extent, self.kernel, self.stride, self.padding, self.dilation, self.input_dilation,
            strict=True,
        )  # fmt: skip
        return all(max(n * e, (m - 1) * s + k * d + abs(p)) < 2**29 for n, m, k, s, p, d, e in places)

    def values(self) -> dict[str, Any]:
        """Fields of `PARAMS`."""
        narrow = self.rows < 2**31
        return {
            "narrow": narrow, "dividers": [divider(n) if narrow and n else (0, 0, 0) for n in self.out_extent],
            "rows": self.rows, "cols": self.cols, "channels": self.channels, "taps": self.taps, "groups": self.groups,
            "split_rows": 0, "in_extent": self.in_extent, "out_extent": self.out_extent, "kernel": self.kernel,
            "stride": self.stride, "padding": self.padding, "dilation": self.dilation, "w_start": 0, "bias_step": 0,
            "activation": 0, "wide": 0, "apart": (1, 1, 1), "full_extent": self.out_extent, "phase_cols": self.cols,
            "channels_inner": 0, "x": "@null", "w": "@null", "bias": "@null", "z": "@null", "y": "@null",
            "pre": "@null", "parts": "@null", "x_steps": (0,) * 6, "w_steps": (0,) * 6, "y_steps": [(0,) * 6] * 3,
        }  # fmt: skip


def convolution_of(desc: Any) -> Convolution:
    """The numbers of a descriptor of `ConvPlan` or its gradients."""
    return Convolution(
        math.prod(desc.batch_shape), desc.groups, desc.in_channels // desc.groups, desc.out_channels // desc.groups,
        three(desc.in_shape, 1), three(desc.spatial_shape, 1), three(desc.kernel_size, 1), three(desc.stride, 1),
        three([before for before, _ in desc.padding], 0), three(desc.dilation, 1), three(desc.input_dilation, 1),
        desc.transposed,
    )  # fmt: skip


@dataclass(frozen=True)
class Field:
    """An operand [batch, groups · channels, …]: where it is and its strides."""

    place: Place
    steps: Six
    aligned: bool  # to 16 bytes
    whole: bool = False  # zeros fill up the last piece of channels

    def pieces(self, extents: Sequence[int], channels: int, each: int) -> bool:
        """Whether channels lie together in whole pieces of `each`; extents: batch, groups and three axes."""
        outer = zip((*self.steps[:2], *self.steps[3:]), extents, strict=True)
        together = self.steps[2] == 1 or channels == 1
        return (
            self.aligned
            and together
            and (self.whole or channels % each == 0)
            and all(s % each == 0 for s, n in outer if n > 1)
        )


def field_of(name: str, view: View, rank: int, channels: int) -> Field:
    """An operand of a plan, whose groups have `channels`."""
    strides = [0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True)]
    batch = strides[0] if len(strides) > rank + 1 else 0
    step = view.strides[-rank - 1] if view.shape[-rank - 1] > 1 else 1
    return Field(
        Place(name), (batch, step * channels, step, *three(strides[len(strides) - rank :], 0)), view.ptr % 16 == 0
    )


@dataclass(frozen=True)
class Filter:
    """A filter as a convolution reads or a gradient writes it: its strides, where its first tap is, its address."""

    steps: Six
    start: int
    ptr: int


def filter_of(view: View, conv: Convolution) -> Filter:
    """That of a plan."""
    first, second, *places = view.strides
    own = three(places, 0)
    if not conv.transposed:
        return Filter((conv.cols * first, first, second, *own), 0, view.ptr)
    start = sum((k - 1) * s for k, s in zip(conv.kernel, own, strict=True))
    return Filter((conv.channels * first, second, first, *(-s for s in own)), start, view.ptr)
