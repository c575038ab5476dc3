"""The launches of a convolution's gradients: dx is a convolution itself, dw and dbias sums over the result's places.

Places are cut into splits by a rule that knows the extents alone, and the splits are added in their order.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..core.tensor import merge_axes
from ..core.variant import Geometry, Problem, Step
from .conv import Launches, channels_inner, gradient_values
from .conv_boxes import filter_launch, shared_memory
from .conv_kernels import BOX_THREADS, THREADS, WGMMA_ROWS, WGMMA_THREADS, ring_bytes, wgmma_bytes
from .conv_pairs import Pairs, along_channels, pairs_of
from .conv_phases import phases
from .conv_problem import Convolution, Field, Filter, convolution_of, field_of, filter_of
from .gemm import MMA_THREADS
from .products import Place

_PRODUCTS = (256, 512, 64)  # blocks of a launch that splits make; rows of a split at least; splits at most
_BIASES = (2048, 256, 1024)
_MANY = 16  # splits that several threads add


def splits_of(rows: int, blocks: int, limits: tuple[int, int, int] = _PRODUCTS) -> tuple[int, int]:
    """How many splits rows have where one has so many blocks, and rows of a split, a multiple of 64."""
    wanted, shortest, most = limits
    count = max(1, min(-(-wanted // max(blocks, 1)), rows // shortest, most))
    each = -(-max(1, -(-rows // count)) // 64) * 64
    return -(-rows // each), each


class BackwardLaunches(Launches):
    """Collects those of dx, dw and dbias, as far as they are wanted."""

    def __init__(self, p: Problem, tensor_cores: bool, warpgroups: bool) -> None:
        super().__init__(p, warpgroups)
        self.conv, self.tensor_cores, self.rank = convolution_of(p.desc), tensor_cores, len(p.desc.kernel_size)

    def run(self) -> Geometry | str:
        """All launches, or why there are none."""
        p, conv, turned = self.p, self.conv, self.conv.turned
        dy = field_of("dy", p.dy, self.rank, conv.cols)
        if conv.rows and conv.cols and p.desc.activation != "none":
            dy = self._through(dy, field_of("pre", p.pre or p.dy, self.rank, conv.cols))
        why = None
        if self.tensor_cores:
            if (p.dx is None or not turned.rows) and (p.dw is None or not conv.rows):
                return "there are no products"
            if conv.few:
                return "groups of few channels are for threads"
            if conv.rows and conv.cols:
                dy = self.ready(dy, turned)
        if p.dx is not None:
            x = field_of("dx", p.dx, self.rank, conv.channels)
            values = gradient_values("dx", x, turned, self.each)
            why = self.convolve(turned, dy, p.w, values, channels_inner(p.dx, self.rank), self.tensor_cores)
        if p.dw is not None and not why:
            why = self._filter(dy)
        if p.dbias is not None and not why:
            why = self._bias(dy)
        return why or self.geometry()

    def _through(self, dy: Field, pre: Field) -> Field:
        """dy through the activation, packed: group by group for tensor cores, otherwise all channels together."""
        turned, through = self.conv.turned, ("pre", pre.steps)
        if self.tensor_cores:
            return self.packed_field(dy, turned, through)
        flat = replace(turned, groups=1, channels=turned.groups * turned.channels)
        made = self.packed_field(dy, flat, through)
        return Field(made.place, (made.steps[0], turned.channels, *made.steps[2:]), True)

    def _filter(self, dy: Field) -> str | None:
        """dw, phase by phase; each tap is of one of them at most."""
        p, conv = self.p, self.conv
        if 0 in p.desc.filter_shape:
            return None
        x, whole = field_of("x", p.x, self.rank, conv.channels), filter_of(p.dw, conv)
        if self.tensor_cores and conv.rows:
            if not conv.short:
                return "places need more than 32 bits"
            if not math.prod(conv.in_extent):
                return "the sums are empty"
            if conv.folds(self.each):
                return self._product_of(conv.folded, self.folded_field(x, conv), dy, whole, conv.channels)
            x = self.ready(x, conv)
        found = [phase for phase in phases(conv) if not phase.conv.empty]
        if sum(phase.conv.taps for phase in found) < conv.taps:
            self._merge(None, "dw", conv, whole, conv.channels, 0)  # taps that see nothing
        for phase in found:
            start, steps = phase.outputs(dy.steps)
            start *= self.element.itemsize
            place = Place(dy.place.name, dy.place.offset + start)
            own = Field(place, steps, dy.aligned and start % 16 == 0, dy.whole)
            few = not self.tensor_cores and (conv.few or conv.cols < 8)
            launch = self._pairs if few else self._product_of
            why = launch(phase.conv, x, own, phase.filter(whole))
            if why:
                return why
        return None

    def _product_of(self, conv: Convolution, x: Field, dy: Field, to: Filter, run: int = 0) -> str | None:
        """A phase of dw as products of dy and windows of x; run: channels of a tap, where windows' lines are folded."""
        if self.tensor_cores and conv.rows and not self.near(x, conv):
            return f"x has pieces of 16 bytes that are more than {2**30} apart"
        channels, size, there = conv.channels, 64, self.tensor_cores and bool(conv.rows)
        if there:
            channels = -(-conv.channels // self.each) * self.each
        width = conv.taps * channels
        if there and self.warpgroups and not self._boxes(conv, x, dy, to, channels, run):
            return None
        if self.warpgroups:
            size = 128 if width > 64 else 64  # columns
        elif there:
            size = 128 if conv.cols > 64 and width > 64 else 64
        blocks = conv.groups * -(-conv.cols // (WGMMA_ROWS if self.warpgroups and there else size)) * -(-width // size)
        splits, each = splits_of(conv.rows, blocks)
        kernel, axes, block, smem = "filter_simt", dict[str, Any](), THREADS, 0
        if there and self.warpgroups:
            kernel, axes, block, smem = "filter_wgmma", {"COLS": size}, WGMMA_THREADS, wgmma_bytes(size)
        elif there:
            kernel, axes, block, smem = "filter_mma", {"SIZE": size}, MMA_THREADS, ring_bytes(size)
        if there:
            dy = self._even(dy, conv)
        values = conv.values() | {"x": x.place.slot, "x_steps": x.steps, "channels": channels, "split_rows": each}
        values |= {"y": dy.place.slot, "y_steps": [dy.steps, (0,) * 6, (0,) * 6]}
        parts = self._sums(kernel, values, axes, blocks * splits, splits * conv.groups * conv.cols * width, block, smem)
        if isinstance(parts, str):
            return parts
        self._merge(parts, "dw", conv, to, channels, splits, run=run)
        return None

    def _boxes(self, conv: Convolution, x: Field, dy: Field, to: Filter, channels: int, run: int) -> bool:
        """The launch by boxes; False where it is there."""
        found = filter_launch(conv, x, dy, channels, self.element)
        if found is None:
            return True
        values, cols, splits = found
        values = conv.values() | {"x_steps": x.steps, "channels": channels, **values}
        values |= {"y_steps": [dy.steps, (0,) * 6, (0,) * 6]}
        blocks, smem = min(values["total"], self.p.device.sms), shared_memory(cols)
        parts = None
        if splits == 1 and run in (0, channels):
            whole = all(s % self.each == 0 for s in (*to.steps[:2], *to.steps[3:], conv.channels, to.start))
            wide = whole and to.steps[2] == 1 and to.ptr % 16 == 0
            values |= {"y": "dw", "w_steps": to.steps, "w_start": to.start, "wide": wide, "kept": conv.channels}
        else:
            parts = self.reserve(splits * conv.groups * conv.cols * conv.taps * channels * 4)
            values["parts"] = ("@workspace", parts.offset)
        self.steps.append(Step("filter_boxes", (blocks, 1, 1), values, {"COLS": cols}, BOX_THREADS, smem))
        if parts is not None:
            self._merge(parts, "dw", conv, to, channels, splits, run=run)
        return False

    def _pairs(self, conv: Convolution, x: Field, dy: Field, to: Filter) -> str | None:
        """A phase of dw where groups have few channels."""
        pieces = self.depthwise_pieces(conv, x) and self.depthwise_pieces(conv.turned, dy)
        made: Pairs = pairs_of(conv, x, dy, to, self.element, pieces)
        parts = self._sums(
            "filter_pairs", made.values, made.axes, made.blocks, made.splits * conv.taps * made.pairs, made.threads, 0
        )
        if isinstance(parts, str):
            return parts
        self._merge(parts, "dw", made.conv, made.to, conv.channels, made.splits, taps_first=True)
        return None

    def _sums(
        self, kernel: str, values: dict[str, Any], axes: dict[str, Any], blocks: int, count: int, block: int, smem: int
    ) -> Place | str:  # fmt: skip
        """The launch that makes the splits' sums, `count` in all, and where they are."""
        parts = self.reserve(count * self.element.acc.itemsize)
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        if blocks:
            values = {**values, "parts": ("@workspace", parts.offset)}
            self.steps.append(Step(kernel, (blocks, 1, 1), values, axes, block, smem))
        return parts

    def _merge(
        self, parts: Place | None, to: str, conv: Convolution, steps: Filter, channels: int, splits: int,
        taps_first: bool = False, run: int = 0,
    ) -> None:  # fmt: skip
        taps = conv.taps if to == "dw" else 1
        lines = 8 if splits >= _MANY else 1
        values = {
            "parts": ("@workspace", parts.offset) if parts and splits else "@null", "to": to, "groups": conv.groups,
            "cols": conv.cols, "taps": taps, "channels": channels, "kept": conv.channels if to == "dw" else 1,
            "splits": splits, "kernel": conv.kernel if to == "dw" else (1, 1, 1), "w_steps": steps.steps,
            "w_start": steps.start, "run": run or channels or 1, "taps_first": taps_first,
        }  # fmt: skip
        blocks = -(-conv.groups * conv.cols * taps * channels // (THREADS // lines))
        self.steps.append(Step("merge", (blocks, 1, 1), values, {"LINES": lines}, THREADS))

    def _even(self, dy: Field, conv: Convolution) -> Field:
        """dy [row][group][output] with one step from row to row."""
        shape = (conv.batch, *conv.out_extent)
        merged, strides = merge_axes(shape, [(dy.steps[0], *dy.steps[3:])])
        if len(merged) > 1:
            dy = self.packed_field(dy, conv.turned)
            pitch = dy.steps[5]
        else:
            pitch = strides[0][0] if merged else 0
        return Field(dy.place, (0, dy.steps[1], 1, 0, 0, pitch), True)

    def _bias(self, dy: Field) -> str | None:
        p, conv = self.p, self.conv
        outputs = conv.groups * conv.cols
        if not outputs:
            return None
        inner = along_channels(conv, dy.steps)
        splits, each = splits_of(conv.rows, -(-outputs // 32), _BIASES)
        values = conv.values() | {"y": dy.place.slot, "y_steps": [dy.steps, (0,) * 6, (0,) * 6], "split_rows": each}
        values["channels_inner"] = inner
        blocks = splits * -(-outputs // (32 if inner else THREADS // 32))
        parts = self._sums("bias", values, {}, blocks, splits * outputs, THREADS, 0)
        if isinstance(parts, str):
            return parts
        step = p.dbias.strides[0]
        self._merge(parts, "dbias", conv, Filter((conv.cols * step, step, 0, 0, 0, 0), 0, 0), 1, splits)
        return None


def backward(tensor_cores: bool, warpgroups: bool = False) -> Any:
    """The geometry of a row of `ConvBackwardPlan`."""
    return lambda p: BackwardLaunches(p, tensor_cores, warpgroups).run()
