"""Convolutions as products of windows and a filter, which nothing stores (kernels/conv).

One form serves a convolution, its transposed one and the gradient of its input, which differ in numbers alone: x is
spread by `input_dilation`, windows lie `stride` apart, and a filter that is `transposed` is read backwards with its
channels exchanged. Tensor cores read channels last in pieces of 16 bytes; what lies otherwise is packed so into the
workspace first. k is (axes of the window, channels) in every design.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.element import ElementKind
from ..core.memo import cached_property
from ..core.tensor import View, merge_axes, pad
from ..core.variant import Geometry, Problem, Step, aligned
from .conv_kernels import SIMT, THREADS, WGMMA_ROWS, WGMMA_THREADS, register_rows, ring_bytes, wgmma_bytes
from .gemm import ACTIVATIONS, MMA_THREADS, dense
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

    @cached_property
    def rows(self) -> int:
        """Places of the result."""
        return self.batch * math.prod(self.out_extent)

    @property
    def taps(self) -> int:
        """Places of a window."""
        return math.prod(self.kernel)

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
    def depthwise(self) -> bool:
        """Whether a group is one channel and one output, of an input that is not spread."""
        return self.groups > 1 and self.cols == self.channels == 1 and self.input_dilation == (1, 1, 1)

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
            "stride": self.stride, "padding": self.padding, "dilation": self.dilation,
            "input_dilation": self.input_dilation, "w_start": 0, "bias_step": 0, "activation": 0, "wide": 0,
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


def filter_steps(view: View, conv: Convolution) -> tuple[Six, int]:
    """Strides of a filter, and where its first place is, as a convolution reads or a gradient writes it."""
    first, second, *places = view.strides
    own = three(places, 0)
    if not conv.transposed:
        return (conv.cols * first, first, second, *own), 0
    start = sum((k - 1) * s for k, s in zip(conv.kernel, own, strict=True))
    return (conv.channels * first, second, first, *(-s for s in own)), start


def tiles(conv: Convolution, size: int, rows: int = 0) -> int:
    """Blocks of a launch with tiles of `size`, or so many columns and `rows`."""
    return int(conv.groups * -(-conv.rows // (rows or size)) * -(-conv.cols // size))


class Launches:
    """Collects the steps and the workspace of a problem."""

    def __init__(self, p: Problem, warpgroups: bool = False) -> None:
        self.p, self.steps, self.used, self.warpgroups = p, list[Step](), 0, warpgroups
        self.element: ElementKind = p.desc.element
        self.each = 16 // self.element.itemsize

    def geometry(self) -> Geometry:
        """All of them."""
        return Geometry(tuple(self.steps), self.used, "contiguous" if dense(self.p) else "strided")

    def reserve(self, nbytes: int) -> Place:
        """Room in the workspace."""
        place = Place("@workspace", self.used)
        self.used += aligned(nbytes)
        return place

    def packed(
        self, place: Place, shape: Sequence[int], steps: Sequence[int], channels: int, step: int, start: int = 0,
        through: tuple[str, Sequence[int], int] | None = None,
    ) -> tuple[Place, int]:  # fmt: skip
        """A copy [*shape, channels] with zeros behind the channels, and its pitch.

        through: the operand that the activation had, its strides and that of its channels, where the copy is a gradient
        that has gone through the activation.
        """
        pitch, count = -(-channels // self.each) * self.each, math.prod(shape)
        to = self.reserve(count * pitch * self.element.itemsize)
        name, others, other = through or ("@null", (0,) * len(shape), 0)
        merged, strides = merge_axes(tuple(shape), [tuple(steps), tuple(others)])
        params = {
            "from": place.slot, "pre": name, "to": to.slot if self.used else "@null", "count": count, "pitch": pitch,
            "channels": channels, "start": start, "shape": pad(merged), "steps": [pad(s) for s in strides],
            "channel_step": (step, other), "rank": len(merged), "down": step != 1,
            "activation": ACTIVATIONS.index(self.p.desc.activation) if through else 0,
        }  # fmt: skip
        blocks = -(-count * (pitch // self.each) // THREADS)
        if blocks:
            params["to"] = ("@workspace", to.offset)
            self.steps.append(Step("pack", (blocks, 1, 1), params, {}, THREADS))
        return to, pitch

    def near(self, field: Field, conv: Convolution) -> bool:
        """Whether pieces of an input are less than 2^30 apart."""
        extents = (conv.batch, conv.groups, 1, *conv.in_extent)
        span = sum(abs(s) * n for s, n in zip(field.steps, extents, strict=True))
        return bool(span < 2**30 * self.each)

    def packed_field(self, field: Field, conv: Convolution, through: tuple[str, Six] | None = None) -> Field:
        """An input of a convolution, packed."""
        shape = (conv.batch, *conv.in_extent, conv.groups)

        def outer(steps: Six) -> tuple[int, ...]:
            return (steps[0], *steps[3:], steps[1])

        given = None if through is None else (through[0], outer(through[1]), through[1][2])
        place, pitch = self.packed(field.place, shape, outer(field.steps), conv.channels, field.steps[2], through=given)
        wide = conv.groups * pitch
        _, b, c = conv.in_extent
        return Field(place, (wide * math.prod(conv.in_extent), pitch, 1, b * c * wide, c * wide, wide), True, True)

    def ready(self, field: Field, conv: Convolution) -> Field:
        """An input as tensor cores read it: itself, or packed."""
        extents = (conv.batch, conv.groups, *conv.in_extent)
        return field if field.pieces(extents, conv.channels, self.each) else self.packed_field(field, conv)

    def filter(self, view: View, conv: Convolution) -> tuple[Place, Six]:
        """A filter as tensor cores read it, [group][output][k]."""
        steps, start = filter_steps(view, conv)
        a, b, c = conv.kernel
        lines = (conv.channels * b * c, conv.channels * c, conv.channels)
        dense_k = all(n == 1 or s == m for n, s, m in zip(conv.kernel, steps[3:], lines, strict=True))
        outer = ((conv.groups, steps[0]), (conv.cols, steps[1]))
        whole = conv.channels % self.each == 0 and all(n == 1 or s % self.each == 0 for n, s in outer)
        if not start and dense_k and whole and view.ptr % 16 == 0 and (steps[2] == 1 or conv.channels == 1):
            return Place("w"), steps
        shape = (conv.groups, conv.cols, a, b, c)
        place, pitch = self.packed(Place("w"), shape, (*steps[:2], *steps[3:]), conv.channels, steps[2], start)
        each = conv.taps * pitch
        return place, (conv.cols * each, each, 1, b * c * pitch, c * pitch, pitch)

    def product(self, conv: Convolution, x: Field, w: View, values: Mapping[str, Any], inner: bool) -> str | None:
        """The convolution on tensor cores; values: fields of the epilogue. A string says why not.

        inner: results that are neighbours in memory are channels.
        """
        if conv.few:
            return "groups of few channels are for threads"
        if not conv.short or conv.taps * conv.channels >= 2**30:
            return "places need more than 32 bits"
        if not conv.rows or not conv.cols:
            return None
        if not conv.channels or not math.prod(conv.in_extent):
            return "the sums are empty"
        size = 128 if tiles(conv, 128) >= self.p.device.sms and conv.cols > 64 * self.warpgroups else 64
        blocks = tiles(conv, size, WGMMA_ROWS if self.warpgroups else size)
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        place, steps = self.filter(w, conv)
        x, each = self.ready(x, conv), self.each
        if not self.near(x, conv):
            return f"x has pieces of 16 bytes that are more than {2**30} apart"
        params = conv.values() | {
            "channels_inner": inner, "x": x.place.slot, "x_steps": x.steps, "w": place.slot, "w_steps": steps,
            "channels": -(-conv.channels // each) * each, **values,
        }  # fmt: skip
        self.steps.append(self.tile(size, blocks, params, conv.input_dilation != (1, 1, 1)))
        return None

    def tile(self, size: int, blocks: int, params: Mapping[str, Any], spread: bool) -> Step:
        """The launch of a product in tiles of `size`."""
        if self.warpgroups:
            axes = {"COLS": size, "SPREAD": spread}
            return Step("wgmma", (blocks, 1, 1), params, axes, WGMMA_THREADS, wgmma_bytes(size))
        return Step("mma", (blocks, 1, 1), params, {"SIZE": size, "SPREAD": spread}, MMA_THREADS, ring_bytes(size))

    def simple(self, conv: Convolution, x: Field, w: View, values: Mapping[str, Any], inner: bool) -> str | None:
        """The convolution in any strides."""
        if not conv.rows or not conv.cols:
            return None
        if conv.depthwise:
            return self.depthwise(conv, x, w, values, inner)
        steps, start = filter_steps(w, conv)
        params = conv.values() | {"x": x.place.slot, "x_steps": x.steps, "w": "w", "w_steps": steps, "w_start": start}
        params |= {**values, "channels_inner": inner}
        direct = conv.few or conv.cols < 8
        blocks = -(-conv.rows * conv.cols * conv.groups // THREADS) if direct else tiles(conv, SIMT)
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        self.steps.append(Step("direct" if direct else "simt", (blocks, 1, 1), params, {}, THREADS))
        return None

    def depthwise(self, conv: Convolution, x: Field, w: View, values: Mapping[str, Any], inner: bool) -> str | None:
        """The convolution of groups of one channel, neighbouring ones together where they lie so."""
        steps, start = filter_steps(w, conv)
        place, each, vector = Place("w"), self.each, 1
        if self.depthwise_pieces(conv, x):
            vector, inner = each, True
            lines = zip(conv.kernel, steps[3:], strict=True)
            if start or steps[0] != 1 or w.ptr % 16 or any(s % each for n, s in lines if n > 1):
                place, pitch = self.packed(place, conv.kernel, steps[3:], conv.groups, steps[0], start)
                _, b, c = conv.kernel
                steps, start = (1, 0, 0, b * c * pitch, c * pitch, pitch), 0
        plain = conv.stride[2] == 1 and conv.dilation[2] == 1 and conv.kernel[2] in register_rows(self.element)
        outer = conv.batch * conv.out_extent[0] * conv.out_extent[1]
        blocks = -(-outer * -(-conv.out_extent[2] // 4) * (conv.groups // vector) // THREADS)
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        params = conv.values() | {"x": x.place.slot, "x_steps": x.steps, "w": place.slot, "w_steps": steps}
        params |= {**values, "w_start": start, "channels_inner": inner}
        wide = params["wide"]
        if vector > 1:
            wide = sum(1 << n for n, s in enumerate(params["y_steps"]) if self.wide_line(conv, n, s))
        axes = {"N": vector, "K": conv.kernel[2] if plain else 0}
        self.steps.append(Step("depthwise", (blocks, 1, 1), {**params, "wide": wide}, axes, THREADS))
        return None

    def depthwise_pieces(self, conv: Convolution, x: Field) -> bool:
        """Whether neighbouring groups lie together in whole pieces."""
        outer = zip((x.steps[0], *x.steps[3:]), (conv.batch, *conv.in_extent), strict=True)
        together = x.steps[1] == 1 and conv.groups % self.each == 0 and x.aligned
        return together and all(s % self.each == 0 for s, n in outer if n > 1)

    def wide_line(self, conv: Convolution, which: int, steps: Six) -> bool:
        """Likewise for a result: which of y (or a gradient), pre and z."""
        view = self.p.views.get(("y", "pre", "z")[which]) if "y" in self.p.views else self.p.views["dx"]
        if view is None or view.ptr % 16:
            return False
        outer = zip((steps[0], *steps[3:]), (conv.batch, *conv.out_extent), strict=True)
        return steps[1] == 1 and conv.groups % self.each == 0 and all(s % self.each == 0 for s, n in outer if n > 1)


def epilogue(p: Problem, conv: Convolution) -> dict[str, Any]:
    """Fields of `PARAMS` for what `ConvPlan` does with the sums."""
    rank, each = len(p.desc.kernel_size), 16 // p.desc.element.itemsize
    extents = (conv.batch, conv.groups, *conv.out_extent)
    fields = [
        None if p.views[name] is None else field_of(name, p.views[name], rank, conv.cols) for name in ("y", "pre", "z")
    ]
    wide = sum(
        1 << n
        for n, f in enumerate(fields)
        if f is not None and f.pieces(extents, each if conv.groups == 1 else conv.cols, each) and f.steps[2] == 1
    )
    found: dict[str, Any] = {name: name if f is not None else "@null"
                             for name, f in zip(("y", "pre", "z"), fields, strict=True)}  # fmt: skip
    return found | {
        "bias": "@null" if p.bias is None else "bias", "bias_step": 0 if p.bias is None else p.bias.strides[0],
        "y_steps": [f.steps if f is not None else (0,) * 6 for f in fields], "wide": wide,
        "activation": ACTIVATIONS.index(p.desc.activation),
    }  # fmt: skip


def gradient_values(name: str, field: Field, conv: Convolution, each: int) -> dict[str, Any]:
    """Those of a launch that writes the sums as they are."""
    extents = (conv.batch, conv.groups, *conv.out_extent)
    wide = field.pieces(extents, each if conv.groups == 1 else conv.cols, each) and field.steps[2] == 1
    return {"y": name, "y_steps": [field.steps, (0,) * 6, (0,) * 6], "wide": int(wide)}


def channels_inner(view: View, rank: int) -> bool:
    """Whether channels lie closer together than places do."""
    channel, last = view.strides[-rank - 1], view.strides[-1]
    return view.shape[-rank - 1] > 1 and (view.shape[-1] == 1 or abs(channel) < abs(last))


def forward(tensor_cores: bool, warpgroups: bool = False) -> Any:
    """The geometry of a row of `ConvPlan`."""

    def geometry(p: Problem) -> Geometry | str:
        conv, launches = convolution_of(p.desc), Launches(p, warpgroups)
        rank = len(p.desc.kernel_size)
        x, values = field_of("x", p.x, rank, conv.channels), epilogue(p, conv)
        launch = launches.product if tensor_cores else launches.simple
        why = launch(conv, x, p.w, values, channels_inner(p.y, rank))
        return why or launches.geometry()

    return geometry
