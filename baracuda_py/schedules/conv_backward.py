"""The launches of a convolution's gradients: dx is a convolution itself, dw and dbias sums over the result's places.

Places are cut into splits by a rule that knows the extents alone, and the splits are added in their order.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.tensor import merge_axes
from ..core.variant import Geometry, Problem, Step
from .conv import (
    Convolution,
    Field,
    Launches,
    channels_inner,
    convolution_of,
    field_of,
    filter_steps,
    gradient_values,
)  # fmt: skip
from .conv_kernels import THREADS, WGMMA_ROWS, WGMMA_THREADS, ring_bytes, wgmma_bytes
from .gemm import MMA_THREADS
from .products import Place

_BLOCKS, _SHORTEST, _MOST = 256, 512, 64  # of a launch that splits make; rows of a split at least; splits at most
_LANES = 32


def splits_of(rows: int, blocks: int) -> tuple[int, int]:
    """How many splits rows have where one has so many blocks, and rows of a split, a multiple of 64."""
    count = max(1, min(-(-_BLOCKS // max(blocks, 1)), rows // _SHORTEST, _MOST))
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
            pre = field_of("pre", p.pre or p.dy, self.rank, conv.cols)
            dy = self.packed_field(dy, turned, ("pre", pre.steps))
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
            launch = self.product if self.tensor_cores else self.simple
            why = launch(turned, dy, p.w, values, channels_inner(p.dx, self.rank))
        if p.dw is not None and not why:
            why = self._filter(dy)
        if p.dbias is not None and not why:
            why = self._bias(dy)
        return why or self.geometry()

    def _filter(self, dy: Field) -> str | None:
        p, conv, size = self.p, self.conv, 64
        if 0 in p.desc.filter_shape:
            return None
        x = field_of("x", p.x, self.rank, conv.channels)
        channels, width = conv.channels, conv.taps * conv.channels
        there = bool(conv.rows)
        if self.tensor_cores and there:
            if not conv.short:
                return "places need more than 32 bits"
            if not math.prod(conv.in_extent):
                return "the sums are empty"
            x = self.ready(x, conv)
            if not self.near(x, conv):
                return f"x has pieces of 16 bytes that are more than {2**30} apart"
            channels = -(-conv.channels // self.each) * self.each
            width = conv.taps * channels
            size = 128 if conv.cols > 64 and width > 64 else 64
        direct = not self.tensor_cores and (conv.few or conv.cols < 8)
        if self.warpgroups:
            size = 128 if width > 64 else 64  # columns
        if direct:
            blocks = -(-conv.groups * conv.cols // _LANES) * width
        else:
            rows = WGMMA_ROWS if self.warpgroups and there else size
            blocks = conv.groups * -(-conv.cols // rows) * -(-width // size)
        splits, each = splits_of(conv.rows, blocks)
        values = conv.values() | {"x": "x" if x.place.name == "x" else x.place.slot, "x_steps": x.steps}
        kernel, axes, block, smem = "filter_simt", dict[str, Any](), THREADS, 0
        if direct:
            kernel, axes = "filter_direct", {"BIAS": False}
        elif self.tensor_cores and there:
            axes = {"COLS" if self.warpgroups else "SIZE": size, "SPREAD": conv.input_dilation != (1, 1, 1)}
            kernel, block, smem = "filter_mma", MMA_THREADS, ring_bytes(size)
            if self.warpgroups:
                kernel, block, smem = "filter_wgmma", WGMMA_THREADS, wgmma_bytes(size)
            dy = self._even(dy)
        values |= {"channels": channels, "y": dy.place.slot, "y_steps": [dy.steps, (0,) * 6, (0,) * 6]}
        parts = self._sums(kernel, values, axes, blocks, splits, each, width, block, smem)
        if isinstance(parts, str):
            return parts
        steps, start = filter_steps(p.dw, conv)
        self._merge(parts, "dw", conv, steps, start, channels, splits)
        return None

    def _sums(
        self, kernel: str, values: dict[str, Any], axes: dict[str, Any], blocks: int, splits: int, each: int,
        width: int, block: int, smem: int,
    ) -> Place | str:  # fmt: skip
        """The launch that makes the splits' sums of `width` columns for every output, and where they are."""
        conv = self.conv
        parts = self.reserve(splits * conv.groups * conv.cols * width * self.element.acc.itemsize)
        if blocks * splits >= 2**31:
            return f"needs {blocks * splits} blocks, a grid has 2**31 - 1"
        if splits:
            values = {**values, "split_rows": each, "parts": ("@workspace", parts.offset)}
            self.steps.append(Step(kernel, (blocks * splits, 1, 1), values, axes, block, smem))
        return parts

    def _merge(
        self, parts: Place, to: str, conv: Convolution, steps: tuple[int, ...], start: int, channels: int, splits: int,
        taps: int | None = None,
    ) -> None:  # fmt: skip
        taps = conv.taps if taps is None else taps
        count = conv.groups * conv.cols * taps * channels
        values = {
            "parts": ("@workspace", parts.offset) if splits else "@null", "to": to, "groups": conv.groups,
            "cols": conv.cols, "taps": taps, "channels": channels, "kept": conv.channels if to == "dw" else 1,
            "splits": splits, "kernel": conv.kernel if to == "dw" else (1, 1, 1), "w_steps": steps, "w_start": start,
        }  # fmt: skip
        self.steps.append(Step("merge", (-(-count // THREADS), 1, 1), values, {}, THREADS))

    def _even(self, dy: Field) -> Field:
        """dy [row][group][output] with one step from row to row."""
        conv = self.conv
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
        if not conv.groups * conv.cols:
            return None
        blocks = -(-conv.groups * conv.cols // _LANES)
        splits, each = splits_of(conv.rows, blocks)
        values = conv.values() | {"y": dy.place.slot, "y_steps": [dy.steps, (0,) * 6, (0,) * 6]}
        parts = self._sums("filter_direct", values, {"BIAS": True}, blocks, splits, each, 1, THREADS, 0)
        if isinstance(parts, str):
            return parts
        step = p.dbias.strides[0]
        self._merge(parts, "dbias", conv, (conv.cols * step, step, 0, 0, 0, 0), 0, 1, splits, 1)
        return None


def backward(tensor_cores: bool, warpgroups: bool = False) -> Any:
    """The geometry of a row of `ConvBackwardPlan`."""
    return lambda p: BackwardLaunches(p, tensor_cores, warpgroups).run()
