"""Window: the geometry of ops that combine the elements under a window sliding over one to three spatial axes.

Operands have batch axes and then the spatial ones: over the positions (x, dx) or over the windows (y, dy). Batch axes
are merged; the one along which neighbours lie closest in memory may be the *inner* axis of a launch. Three launches
come out: *points* with a vector of the inner axis (channels last), *tiles* of contiguous rows through shared memory,
and points of single elements at any strides. The elements of a window are combined in one order in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.element import ElementKind
from ..core.errors import InvalidProblemError
from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Step
from .map import divider, widths

THREADS = 256
SMEM = 24 * 1024  # bytes of a tile: four blocks an SM where 99 KB are there, eight on larger ones
OUTPUTS = 1024  # of a tile: four a thread
ROW = 128  # outputs of a row of a tile at most
Three = tuple[int, int, int]


@dataclass(frozen=True)
class Windows:
    """The windows of three spatial axes; those an op lacks have extent 1.

    Window o of an axis holds the positions o * stride - padding + k * dilation (0 <= k < kernel) in [0, in_extent), or,
    if `adaptive`, those from floor(o * in / out) up to ceil((o + 1) * in / out).
    """

    in_extent: Three
    out_extent: Three
    kernel: Three = (1, 1, 1)
    stride: Three = (1, 1, 1)
    padding: Three = (0, 0, 0)
    dilation: Three = (1, 1, 1)
    adaptive: bool = False

    @property
    def reach(self) -> Three:
        """The most positions from the first of a window to behind its last, existing or not."""
        return tuple(
            -(-n // m) + 1 if self.adaptive else (k - 1) * d + 1
            for n, m, k, d in zip(self.in_extent, self.out_extent, self.kernel, self.dilation, strict=True)
        )  # type: ignore[return-value]

    @property
    def narrow(self) -> bool:
        """Whether the kernels' arithmetic of positions stays below 2^31."""
        if math.prod(self.in_extent) >= 2**31 or math.prod(self.out_extent) >= 2**31:
            return False
        if self.adaptive:
            return all(n * (m + 1) + m < 2**31 for n, m in zip(self.in_extent, self.out_extent, strict=True))
        spans = zip(self.in_extent, self.reach, self.padding, self.dilation, self.stride, strict=True)
        return all(n + r + 2 * p + d + s < 2**31 for n, r, p, d, s in spans)

    def covered(self, outputs: Three) -> Three:
        """The most positions that so many neighbouring windows of each axis reach over."""
        if self.adaptive:
            sizes = [-(-t * n // m) + 1 for t, n, m in zip(outputs, self.in_extent, self.out_extent, strict=True)]
        else:
            sizes = [(t - 1) * s + r for t, s, r in zip(outputs, self.stride, self.reach, strict=True)]
        return tuple(min(size, n) for size, n in zip(sizes, self.in_extent, strict=True))  # type: ignore[return-value]

    def taps(self) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
        """For references: of each place of a window, row-major, the positions along the axes, and which exist."""
        columns = [list(self._columns(axis)) for axis in range(3)]
        for a, b, c in np.ndindex(*(len(column) for column in columns)):
            picked = [columns[0][a], columns[1][b], columns[2][c]]
            exists = picked[0][1][:, None, None] & picked[1][1][:, None] & picked[2][1]
            yield [at for at, _ in picked], exists

    def places(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """As `taps`, with the row-major positions."""
        for (a, b, c), exists in self.taps():
            yield (a[:, None, None] * self.in_extent[1] + b[:, None]) * self.in_extent[2] + c, exists

    def _columns(self, axis: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        extent, windows = self.in_extent[axis], np.arange(self.out_extent[axis])
        if not extent or not windows.size:
            return
        if self.adaptive:
            start = windows * extent // self.out_extent[axis]
            count, step = -(-(windows + 1) * extent // self.out_extent[axis]) - start, 1
        else:
            start = windows * self.stride[axis] - self.padding[axis]
            count, step = np.full_like(windows, self.kernel[axis]), self.dilation[axis]
        first = np.maximum(-(start // step), 0)
        last = np.minimum(count, -((start - extent) // step))
        for k in range(int(first.min()), int(last.max())):
            at = start + k * step
            exists = (k < count) & (at >= 0) & (at < extent)
            if exists.any():
                yield np.where(exists, at, 0), exists

    def sizes(self, with_padding: bool) -> np.ndarray:
        """Places of each window: those that exist, or also those of the padding as far as it reaches."""
        result = np.ones(self.out_extent, np.int64)
        for axis in range(3):
            extent, windows = self.in_extent[axis], np.arange(self.out_extent[axis])
            if self.adaptive:
                size = -(-(windows + 1) * extent // self.out_extent[axis]) - windows * extent // self.out_extent[axis]
            else:
                start, d, k = windows * self.stride[axis] - self.padding[axis], self.dilation[axis], self.kernel[axis]
                end = extent + self.padding[axis] if with_padding else extent
                first = 0 if with_padding else -(-np.maximum(-start, 0) // d)
                size = np.maximum(np.minimum(k, -(-(end - start) // d)) - first, 0)
            result *= size.reshape([-1 if a == axis else 1 for a in range(3)])
        return result


def three(values: Sequence[int], missing: int) -> Three:
    """Values of one to three axes as those of the last of three."""
    return (*(missing,) * (3 - len(values)), *values)  # type: ignore[return-value]


def sliding(
    extents: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool,
) -> Windows:  # fmt: skip
    """Windows as torch counts them; raises where an axis has none, or padding is more than half a window."""
    outputs = []
    for axis, (n, k, s, p, d) in enumerate(zip(extents, kernel, stride, padding, dilation, strict=True)):
        reach = (k - 1) * d + 1
        if p > reach // 2:
            raise InvalidProblemError(
                f"padding must be at most half a window, got padding {p} with kernel_size {k} and dilation {d} "
                f"(spatial axis {axis}), which allow {reach // 2}"
            )
        room = n + 2 * p - reach
        if n < 1 or room < 0:
            raise InvalidProblemError(
                f"shape must hold a window: spatial axis {axis} has {n} elements and padding {p}, "
                f"kernel_size {k} with dilation {d} needs {reach}"
            )
        outputs.append((room + (s - 1 if ceil_mode else 0)) // s + 1)
        if ceil_mode and (outputs[-1] - 1) * s >= n + p:  # a window must start inside, or in the padding before
            outputs[-1] -= 1
    if math.prod(kernel) >= 2**62:
        raise InvalidProblemError(f"kernel_size must have less than 2^62 places, got {tuple(kernel)}")
    steps = [min(s, n + p) for s, n, p in zip(stride, extents, padding, strict=True)]  # one window needs no step
    return Windows(
        three(extents, 1), three(outputs, 1), three(kernel, 1), three(steps, 1), three(padding, 0), three(dilation, 1)
    )


def adaptive(extents: Sequence[int], outputs: Sequence[int]) -> Windows:
    """Windows that cut each axis into so many parts of nearly one size, overlapping where they do not divide it."""
    if min(extents) < 1:
        raise InvalidProblemError(f"shape must have spatial axes of at least 1 element, got {tuple(extents)}")
    return Windows(three(extents, 1), three(outputs, 1), adaptive=True)


def window_params(operands: int) -> dict[str, str | int]:
    """Params fields for `operands` operands; `kernels/include/baracuda/window.cuh` reads them."""
    return {
        "items": "i64", "inner": "i64", "inner_strides": f"i64[{operands}]", "batch_count": "i64",
        "batch_shape": "i64[8]", "batch": f"i64[{operands}][8]", "space": f"i64[{operands}][3]", "points": "i64[3]",
        "in_extent": "i64[3]", "out_extent": "i64[3]", "kernel": "i64[3]", "stride": "i64[3]", "padding": "i64[3]",
        "dilation": "i64[3]", "lane_strides": f"i64[{operands}]", "batch_rank": "i32", "adaptive": "i32",
        "together": "u32", "dividers": "u32[4][3]", "planes": "i32", "tile_out": "i32[3]", "tile_in": "i32[3]",
        "tiles": "u32[3][3]", "tile_by": "u32[6][3]", "window_threads": THREADS,
    }  # fmt: skip


@dataclass(frozen=True)
class WindowLayout:
    """Merged geometry of operands (an absent one has zero strides); `inner` is the batch axis taken out, if any."""

    views: tuple[View | None, ...]
    spatial: int
    shape: tuple[int, ...]  # of the other batch axes
    strides: tuple[tuple[int, ...], ...]
    inner: int
    inner_strides: tuple[int, ...]
    space: tuple[Three, ...]

    @property
    def layout(self) -> str:
        """The layout class for the SKU."""
        present = [view for view in self.views if view is not None]
        dense = all(view.dense for view in present)
        inner = all(k == 1 or s[2] == 1 for k, s in zip(self.inner_strides, self.space, strict=True))
        return "contiguous" if dense else "inner_contiguous" if inner else "strided"

    @property
    def wide(self) -> bool:
        """Whether offsets pass 32 bits."""
        return any(view.wide_index for view in self.views if view is not None)

    def together(self, operand: int, vec: int, along: str = "inner") -> bool:
        """Whether chunks of `vec` neighbours along the inner, or the last spatial, axis lie together and aligned."""
        view = self.views[operand]
        if view is None:
            return True
        outer = list(zip(self.strides[operand], self.shape, strict=True))
        space = list(zip(self.space[operand], three(view.shape[len(view.shape) - self.spatial :], 1), strict=True))
        inner = (self.inner_strides[operand], self.inner)
        step, extent = inner if along == "inner" else space.pop()
        others = [*outer, *space, *(() if along == "inner" else (inner,))]
        aligned = view.ptr % min(16, vec * view.element.itemsize) == 0
        return step == 1 and extent % vec == 0 and aligned and all(k % vec == 0 for k, n in others if n > 1)


def lay_out(views: Sequence[View | None], spatial: int, lead: int | None) -> WindowLayout | str:
    """Merge the batch axes of operands whose last `spatial` axes slide; a string says why not.

    lead: the operand whose closest batch axis becomes the inner one if its neighbours lie closer there than along the
    last spatial axis; None for no inner axis.
    """
    first = next(v for v in views if v is not None)
    batch = len(first.shape) - spatial
    shape, merged = merge_axes(
        first.shape[:batch], [v.strides[:batch] if v is not None else (0,) * batch for v in views]
    )
    space = tuple(three(v.strides[batch:], 0) if v is not None else (0, 0, 0) for v in views)
    strides, inner, inner_strides = list(merged), 1, (0,) * len(views)
    view = None if lead is None else views[lead]
    if lead is not None and view is not None and shape:
        axis = min(range(len(shape)), key=lambda a: (abs(strides[lead][a]) or 2**63, -a))
        row = abs(view.strides[-1]) if view.shape[-1] > 1 else 2**63
        if 0 < abs(strides[lead][axis]) < row:
            inner, inner_strides = shape[axis], tuple(s[axis] for s in strides)
            shape = (*shape[:axis], *shape[axis + 1 :])
            strides = [(*s[:axis], *s[axis + 1 :]) for s in strides]
    if len(shape) > AXES:
        return f"more than {AXES} batch axes remain after merging"
    return WindowLayout(tuple(views), spatial, shape, tuple(strides), inner, inner_strides, space)


def window_kernels(template: str, params: Params) -> tuple[Kernel, Kernel]:
    """The kernels of an op that combines: `template` calls them with {LAYOUT}, the launch policy, as last argument."""

    def points(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": widths(kind.itemsize), "I": ("i32", "i64")}

    def tile(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": widths(kind.itemsize)}

    made = {
        "points": (template.replace("{LAYOUT}", "Points<{VEC}, {I}>"), points),
        "tile": (template.replace("{LAYOUT}", "Tile<{VEC}>"), tile),
    }
    return tuple(  # type: ignore[return-value]
        Kernel(name, call, params, axes, threads=THREADS, min_blocks=2) for name, (call, axes) in made.items()
    )


def window_geometry(
    views: Sequence[View | None], spatial: int, windows: Windows, values: Mapping[str, Any] | None = None
) -> Geometry | str:
    """The launch of an op that combines: x first, then what is over the windows; `values` are its own parameters."""
    found = lay_out(views, spatial, 0)
    if isinstance(found, str):
        return found
    x = found.views[0]
    assert x is not None
    vec = widths(x.element.itemsize)[0]
    if not found.together(0, vec):
        tiles = tile_geometry(views, spatial, windows, values or {}, kernel="tile")
        if not isinstance(tiles, str):
            return tiles
        vec = 1
        if isinstance(found := lay_out(views, spatial, 1), str):
            return found
    return points_geometry(
        found, windows, windows.out_extent, values or {}, kernel="points", vec=vec, axes={"VEC": vec}
    )


def points_geometry(
    found: WindowLayout, windows: Windows, points: Three, values: Mapping[str, Any], *, kernel: str, vec: int,
    axes: Mapping[str, Any], across: bool = True,
) -> Geometry:  # fmt: skip
    """A thread for each `vec` of the points (outputs, or on the way back positions) along the inner or last axis."""
    if across:
        found_inner, scale = found.inner // vec, vec
    else:
        found_inner, scale, points = found.inner, 1, (points[0], points[1], points[2] // vec)
    items = math.prod(found.shape) * found_inner * math.prod(points)
    narrow = windows.narrow and not found.wide and items < 2**31 - THREADS
    together = sum(1 << i for i in range(len(found.views)) if vec > 1 and across and found.together(i, vec))
    params = {
        **values, **_constants(found, windows), "items": items, "inner": found_inner,
        "inner_strides": [k * scale for k in found.inner_strides], "points": points, "together": together,
        "dividers": [divider(n) if narrow else (0, 0, 0) for n in (*points, found_inner)],
        "planes": 0, "tile_out": [0] * 3, "tile_in": [0] * 3, "tiles": [0] * 9, "tile_by": [0] * 18,
    }  # fmt: skip
    grid = max(1, -(-items // THREADS))
    index = {"I": "i32" if narrow else "i64"}
    return Geometry((Step(kernel, (grid, 1, 1), params, {**axes, **index}, THREADS),), layout=found.layout)


def tile_geometry(
    views: Sequence[View | None], spatial: int, windows: Windows, values: Mapping[str, Any], *, kernel: str
) -> Geometry | str:
    """Tiles of rows for the first operand, x, contiguous along the last axis; a string says why they would not do."""
    found = lay_out(views, spatial, None)
    if isinstance(found, str):
        return found
    x = views[0]
    assert x is not None
    if 0 in windows.out_extent:
        return "there are no windows"
    if not windows.narrow or (windows.in_extent[2] > 1 and found.space[0][2] != 1):
        return "x is not contiguous along the last axis"
    if any(s > r for s, r in zip(windows.stride, windows.reach, strict=True)):
        return "windows lie apart"
    size = x.element.itemsize
    vec = 16 // size if found.together(0, 16 // size, "last") else 1
    planes, outputs, inputs = _tile(windows, math.prod(found.shape), vec, size)
    if planes * math.prod(inputs) * size > SMEM:
        return "a window's rows do not fit in shared memory"
    count = math.prod(found.shape)
    tiles = [-(-n // t) for n, t in zip(windows.out_extent, outputs, strict=True)]
    params = {
        **values, **_constants(found, windows), "items": 0, "inner": 1, "inner_strides": [0] * len(views),
        "points": windows.out_extent, "together": 0, "dividers": [0] * 12, "planes": planes, "tile_out": outputs,
        "tile_in": inputs, "tiles": [divider(n) for n in tiles],
        "tile_by": [divider(n) for n in (inputs[2] // vec, inputs[1], inputs[0], *outputs)],
    }  # fmt: skip
    grid = max(1, -(-count // planes) * math.prod(tiles))
    if grid >= 2**31:
        return "more than 2^31 blocks"
    shared = planes * math.prod(inputs) * size
    return Geometry((Step(kernel, (grid, 1, 1), params, {"VEC": vec}, THREADS, shared),), layout=found.layout)


def _tile(windows: Windows, planes: int, vec: int, size: int) -> tuple[int, Three, Three]:
    """Planes of a tile, its outputs an axis, and its positions an axis, rows in whole chunks of `vec`."""

    def positions(outputs: Three) -> Three:
        n = windows.covered(outputs)
        row = min(n[2] + vec - 1, windows.in_extent[2]) if windows.out_extent[2] > outputs[2] else windows.in_extent[2]
        return (n[0], n[1], -(-row // vec) * vec)

    def fits(outputs: Three, count: int = 1) -> bool:
        return count * math.prod(positions(outputs)) * size <= SMEM

    best = [1, 1, 1]
    for axis in (2, 1, 0):
        extent = windows.out_extent[axis]
        room = min(extent, ROW if axis == 2 else max(1, OUTPUTS // math.prod(best)))
        while room > 1 and not fits((*best[:axis], room, *best[axis + 1 :])):  # type: ignore[arg-type]
            room = -(-room // 2)
        best[axis] = -(-extent // -(-extent // room))  # parts of one size
    outputs: Three = (best[0], best[1], best[2])
    count = 1
    if outputs == windows.out_extent:
        while count < planes and 2 * count * math.prod(outputs) <= OUTPUTS and fits(outputs, 2 * count):
            count *= 2
    return count, outputs, positions(outputs)


def _constants(found: WindowLayout, windows: Windows) -> Mapping[str, Any]:
    return {
        "batch_count": math.prod(found.shape), "batch_shape": pad(found.shape),
        "batch": [pad(s) for s in found.strides], "space": list(found.space), "in_extent": windows.in_extent,
        "out_extent": windows.out_extent, "kernel": windows.kernel, "stride": windows.stride,
        "padding": windows.padding, "dilation": windows.dilation, "lane_strides": found.inner_strides,
        "batch_rank": len(found.shape), "adaptive": windows.adaptive,
    }  # fmt: skip
