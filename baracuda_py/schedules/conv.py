"""Convolutions as products of windows and a filter, which nothing stores (kernels/conv).

One form serves a convolution, its transposed one and the gradient of its input, which differ in numbers alone: x is
spread by `input_dilation`, windows lie `stride` apart, and a filter that is `transposed` is read backwards with its
channels exchanged. A spread input takes a launch for each of its phases (conv_phases). Tensor cores read channels last
in pieces of 16 bytes; what lies otherwise is packed so into the workspace first. k is (axes of the window, channels) in
every design.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.tensor import View, merge_axes, pad
from ..core.variant import Geometry, Problem, Step, aligned
from .conv_boxes import tile_step
from .conv_kernels import (
    PLACES,
    SIMT,
    THREADS,
    WGMMA_ROWS,
    WGMMA_THREADS,
    depthwise_vector,
    register_rows,
    ring_bytes,
    wgmma_bytes,
)  # fmt: skip
from .conv_phases import Block, Phase, block_of, phases
from .conv_problem import Convolution, Field, Filter, Six, convolution_of, field_of, filter_of
from .gemm import ACTIVATIONS, MMA_THREADS, dense
from .products import Place

_TILE = 64  # columns of the smallest tile on tensor cores


def tiles(conv: Convolution, size: int, rows: int = 0) -> int:
    """Blocks of a launch with tiles of `size`, or so many columns and `rows`."""
    return int(conv.groups * -(-conv.rows // (rows or size)) * -(-conv.cols // size))


class Launches:
    """Collects the steps and the workspace of a problem."""

    def __init__(self, p: Problem, warpgroups: bool = False) -> None:
        self.p, self.steps, self.used, self.warpgroups = p, list[Step](), 0, warpgroups
        self.element: ElementKind = p.desc.element
        self.each = 16 // self.element.itemsize
        self.lines = 0  # which results of a depthwise convolution are stored in whole pieces, a bit each

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

    def filter(self, w: Filter, conv: Convolution) -> tuple[Place, Six]:
        """A filter as tensor cores read it, [group][output][k]."""
        steps, start = w.steps, w.start
        if conv.empty:
            return Place("w"), steps  # which nothing reads
        a, b, c = conv.kernel
        lines = (conv.channels * b * c, conv.channels * c, conv.channels)
        dense_k = all(n == 1 or s == m for n, s, m in zip(conv.kernel, steps[3:], lines, strict=True))
        outer = ((conv.groups, steps[0]), (conv.cols, steps[1]))
        whole = conv.channels % self.each == 0 and all(n == 1 or s % self.each == 0 for n, s in outer)
        if not start and dense_k and whole and w.ptr % 16 == 0 and (steps[2] == 1 or conv.channels == 1):
            # Copies of rows that are none have an address, too, which must be aligned.
            return Place("w"), (steps[0], steps[1] if conv.cols > 1 else 0, *steps[2:])
        shape = (conv.groups, conv.cols, a, b, c)
        place, pitch = self.packed(Place("w"), shape, (*steps[:2], *steps[3:]), conv.channels, steps[2], start)
        each = conv.taps * pitch
        return place, (conv.cols * each, each, 1, b * c * pitch, c * pitch, pitch)

    def convolve(
        self, conv: Convolution, x: Field, w: View, values: Mapping[str, Any], inner: bool, tensor_cores: bool
    ) -> str | None:
        """The convolution, a launch for each of its phases; values: fields of the epilogue. A string says why not.

        inner: results that are neighbours in memory are channels.
        """
        if tensor_cores and conv.few:
            return "groups of few channels are for threads"
        whole = filter_of(w, conv)
        if tensor_cores and conv.rows and conv.cols and conv.folds(self.each):
            made = self.folded_filter(whole, conv)
            return self.product(conv.folded, self.folded_field(x, conv), whole, values, inner, made)
        if tensor_cores and conv.rows and conv.cols:
            x = self.ready(x, conv)
        self.lines = values["wide"]
        if "formula_steps" not in values:
            self.lines = sum(1 << n for n, s in enumerate(values["y_steps"]) if self.wide_line(conv, n, s))
        block = block_of(conv, _TILE, "dy" in self.p.views) if tensor_cores else None
        if block is not None:
            values = {**values, "apart": block.apart, "full_extent": conv.out_extent, "phase_cols": conv.cols}
            made = self.block_filter(whole, block)
            return self.product(block.conv, x, whole, values, inner, made, True)
        return self.by_phases(self.product if tensor_cores else self.simple, conv, x, whole, values, inner)

    def by_phases(
        self, launch: Callable[..., str | None], conv: Convolution, x: Field, w: Filter, values: Mapping[str, Any],
        inner: bool,
    ) -> str | None:  # fmt: skip
        """A launch for each phase. An output is written once where what is added to it may be the same array."""
        overwrite = values.get("z", "@null") == "@null" and "o0" not in values
        for phase in phases(conv, overwrite):
            why = launch(phase.conv, x, phase.filter(w), self._of_phase(values, phase), inner)
            if why:
                return why
        return None

    def _of_phase(self, values: Mapping[str, Any], phase: Phase) -> dict[str, Any]:
        """Fields of the epilogue for the outputs of a phase."""
        found = dict(values)
        operands = [f"o{n}" for n in range(len(values.get("formula_steps", ())))]
        for steps, names in (("y_steps", ("y", "pre", "z")), ("formula_steps", operands)):
            moved = [phase.outputs(own) for own in values.get(steps, ())]
            for name, (start, _) in zip(names, moved, strict=True):
                if start:
                    view = self.p.views[name if name in self.p.views else found[name]]
                    found[name] = (found[name], start * view.element.itemsize)
            if moved:
                found[steps] = [own for _, own in moved]
        return found

    def block_filter(self, w: Filter, block: Block) -> tuple[Place, Six]:
        """The filter of a block, [group][phase][output][k]."""
        conv, whole = block.conv, block.whole
        pitch = -(-conv.channels // self.each) * self.each
        count = conv.groups * conv.cols * conv.taps * pitch
        place = self.reserve(count * self.element.itemsize)
        params = {
            "w": "w", "to": ("@workspace", place.offset), "groups": conv.groups, "phases": block.count,
            "cols": whole.cols, "taps": conv.taps, "pitch": pitch, "channels": conv.channels, "start": w.start,
            "steps": w.steps, "window": conv.kernel, "window_dilation": conv.dilation, "window_padding": conv.padding,
            "apart": block.apart, "spread": whole.input_dilation, "stride": whole.stride, "padding": whole.padding,
            "dilation": whole.dilation, "kernel": whole.kernel,
        }  # fmt: skip
        self.steps.append(Step("block_filter", (-(-count // self.each // THREADS), 1, 1), params, {}, THREADS))
        _, b, c = conv.kernel
        each = conv.taps * pitch
        return place, (conv.cols * each, each, 1, b * c * pitch, c * pitch, pitch)

    def _runs(
        self, place: Place, shape: Sequence[int], steps: Sequence[int], start: int, line: Mapping[str, int]
    ) -> tuple[Place, int]:
        """Lines (tap, channel) of windows along the last axis, [*shape, places, pitch], and their pitch."""
        pitch = -(-line["taps"] * line["channels"] // self.each) * self.each
        count = math.prod(shape) * line["places"]
        to = self.reserve(count * pitch * self.element.itemsize)
        params = {
            "x": place.slot, "to": ("@workspace", to.offset), "count": count, "pitch": pitch, "start": start,
            "shape": pad(shape), "steps": pad(steps), "rank": len(shape), **line,
        }  # fmt: skip
        blocks = -(-count * (pitch // self.each) // THREADS)
        if blocks:
            self.steps.append(Step("pack_runs", (blocks, 1, 1), params, {}, THREADS))
        return to, pitch

    def folded_field(self, x: Field, conv: Convolution) -> Field:
        """An input as `conv.folded` reads it."""
        a, b, places = (*conv.in_extent[:2], conv.out_extent[2])
        line = {
            "places": places, "stride": conv.stride[2], "padding": conv.padding[2], "dilation": conv.dilation[2],
            "extent": conv.in_extent[2], "taps": conv.kernel[2], "channels": conv.channels, "place_step": x.steps[5],
            "channel_step": x.steps[2],
        }  # fmt: skip
        place, pitch = self._runs(x.place, (conv.batch, a, b), (x.steps[0], *x.steps[3:5]), 0, line)
        each = places * pitch
        return Field(place, (a * b * each, 0, 1, b * each, each, pitch), True, True)

    def folded_filter(self, w: Filter, conv: Convolution) -> tuple[Place, Six]:
        """A filter as `conv.folded` reads it."""
        a, b, taps = conv.kernel
        line = {
            "places": 1, "stride": 0, "padding": 0, "dilation": 1, "extent": taps, "taps": taps,
            "channels": conv.channels, "place_step": w.steps[5], "channel_step": w.steps[2],
        }  # fmt: skip
        place, pitch = self._runs(Place("w"), (conv.cols, a, b), (w.steps[1], *w.steps[3:5]), w.start, line)
        return place, (0, a * b * pitch, 1, b * pitch, pitch, pitch)

    def product(
        self, conv: Convolution, x: Field, w: Filter, values: Mapping[str, Any], inner: bool,
        made: tuple[Place, Six] | None = None, blocks_of_outputs: bool = False,
    ) -> str | None:  # fmt: skip
        """A phase, or blocks of them, on tensor cores; made: the filter as they read it."""
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
        place, steps = made or self.filter(w, conv)
        each = self.each
        if not self.near(x, conv):
            return f"x has pieces of 16 bytes that are more than {2**30} apart"
        params = conv.values() | {
            "channels_inner": inner, "x": x.place.slot, "x_steps": x.steps, "w": place.slot, "w_steps": steps,
            "channels": -(-conv.channels // each) * each, **values,
        }  # fmt: skip
        boxed = self.warpgroups and not blocks_of_outputs
        step = self.boxes(conv, x, (place, steps), params) if boxed else None
        self.steps.append(step or self.tile(size, blocks, params, blocks_of_outputs))
        return None

    def boxes(self, conv: Convolution, x: Field, w: tuple[Place, Six], params: Mapping[str, Any]) -> Step | None:
        """The launch of a product whose operands TMA copies, or None."""
        return tile_step(conv, x, w, params, self.element, self.p.device.sms)

    def tile(self, size: int, blocks: int, params: Mapping[str, Any], blocks_of_outputs: bool) -> Step:
        """The launch of a product in tiles of `size`."""
        if self.warpgroups:
            axes = {"COLS": size, "BLOCKS": blocks_of_outputs}
            return Step("wgmma", (blocks, 1, 1), params, axes, WGMMA_THREADS, wgmma_bytes(size))
        axes = {"SIZE": size, "BLOCKS": blocks_of_outputs}
        return Step("mma", (blocks, 1, 1), params, axes, MMA_THREADS, ring_bytes(size))

    def simple(self, conv: Convolution, x: Field, w: Filter, values: Mapping[str, Any], inner: bool) -> str | None:
        """A phase in any strides."""
        if not conv.rows or not conv.cols:
            return None
        if conv.depthwise:
            return self.depthwise(conv, x, w, values, inner)
        params = conv.values() | {"x": x.place.slot, "x_steps": x.steps, "w": "w", "w_steps": w.steps}
        params |= {**values, "w_start": w.start, "channels_inner": inner}
        direct = conv.few or conv.cols < 8
        blocks = -(-conv.rows * conv.cols * conv.groups // THREADS) if direct else tiles(conv, SIMT)
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        self.steps.append(Step("direct" if direct else "simt", (blocks, 1, 1), params, {}, THREADS))
        return None

    def depthwise(self, conv: Convolution, x: Field, w: Filter, values: Mapping[str, Any], inner: bool) -> str | None:
        """A phase where groups have one channel, neighbouring ones together where they lie so."""
        steps, start = w.steps, w.start
        place, each, vector = Place("w"), self.each, 1
        if self.depthwise_pieces(conv, x):
            vector, inner = depthwise_vector(self.element), True
            lines = zip(conv.kernel, steps[3:], strict=True)
            if start or steps[0] != 1 or w.ptr % 16 or any(s % each for n, s in lines if n > 1):
                place, pitch = self.packed(place, conv.kernel, steps[3:], conv.groups, steps[0], start)
                _, b, c = conv.kernel
                steps, start = (1, 0, 0, b * c * pitch, c * pitch, pitch), 0
        plain = conv.stride[2] == 1 and conv.dilation[2] == 1 and conv.kernel[2] in register_rows(self.element)
        outer = conv.batch * conv.out_extent[0] * conv.out_extent[1]
        chunks = -(-conv.out_extent[2] // PLACES[vector > 1])
        blocks = -(-outer * chunks * (conv.groups // vector) // THREADS)
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        params = conv.values() | {"x": x.place.slot, "x_steps": x.steps, "w": place.slot, "w_steps": steps}
        params |= {**values, "w_start": start, "channels_inner": inner}
        wide = self.lines if vector > 1 else params["wide"]
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
    """The geometry of a row of `ConvPlan`; beside: the fields of a formula's epilogue."""

    def geometry(p: Problem, beside: Mapping[str, Any] | None = None) -> Geometry | str:
        conv, launches = convolution_of(p.desc), Launches(p, warpgroups)
        rank = len(p.desc.kernel_size)
        x, values = field_of("x", p.x, rank, conv.channels), epilogue(p, conv) | dict(beside or {})
        why = launches.convolve(conv, x, p.w, values, channels_inner(p.y, rank), tensor_cores)
        return why or launches.geometry()

    return geometry
