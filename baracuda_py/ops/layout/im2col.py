"""im2col and col2im: windows as columns (torch.nn.functional.unfold), and their sum (fold), the other's gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative,
    Step, Variant, View, element, extent, extents, operand, output, pairs, per_axis,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.checked import whole, wholes
from ...calls.composed import composed
from ...core.element import COMPLEX
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.tensor import Shape
from ...core.views import shape_of, with_axis, without_axes
from ...schedules.copy import layout_of
from ...schedules.geometry import grid
from ...schedules.map import THREADS, divider, widths
from ..indexing.indexed import MOVED


@dataclass(frozen=True, kw_only=True)
class Im2colDescriptor(Descriptor):
    """Images of shape (batch, channels, *spatial), of one to three spatial axes, and their windows as columns.

    Columns have shape (batch, channels · product of kernel_size, number of windows). Along each spatial axis windows of
    kernel_size elements, `dilation` apart, begin every `stride` elements of the image with `padding` zeros about it,
    (before, after).
    """

    batch: int = extent()
    channels: int = extent()
    spatial: tuple[int, ...] = extents()
    kernel_size: tuple[int, ...] = per_axis(minimum=1, of="spatial")
    dilation: tuple[int, ...] = per_axis(1, minimum=1, of="spatial")
    padding: tuple[tuple[int, int], ...] = pairs(0, of="spatial")
    stride: tuple[int, ...] = per_axis(1, minimum=1, of="spatial")
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        """One to three spatial axes."""
        if not 1 <= len(self.spatial) <= 3:
            raise InvalidProblemError(f"spatial must have one to three axes, got {self.spatial}")

    @cached_property
    def windows(self) -> Shape:
        """How many windows there are along each axis."""
        return tuple(
            max(0, (n + before + after - d * (k - 1) - 1) // s + 1) if n + before + after > d * (k - 1) else 0
            for n, k, d, (before, after), s in zip(
                self.spatial, self.kernel_size, self.dilation, self.padding, self.stride, strict=True
            )
        )

    @property
    def image(self) -> Shape:
        """The shape of the image."""
        return (self.batch, self.channels, *self.spatial)

    @property
    def columns(self) -> Shape:
        """The shape of the columns."""
        return (self.batch, self.channels * math.prod(self.kernel_size), math.prod(self.windows))


@dataclass(slots=True, kw_only=True)
class Im2colArgs(Args):
    """Any strides."""

    x: Array = operand("*image")
    y: Array = output("*columns")


def _places(desc: Im2colDescriptor) -> tuple[Any, Any]:
    """For each place in a window and each window the number of the element of the image; whether it lies inside."""
    rank = len(desc.spatial)
    number, inside = np.zeros((1,) * (2 * rank), np.int64), np.ones((1,) * (2 * rank), bool)
    for a, n in enumerate(desc.spatial):
        k = np.arange(desc.kernel_size[a]).reshape(-1, *(1,) * (2 * rank - a - 1)) * desc.dilation[a]
        o = np.arange(desc.windows[a]).reshape(-1, *(1,) * (rank - a - 1)) * desc.stride[a]
        i = k + o - desc.padding[a][0]
        number, inside = number * n + i, inside & (i >= 0) & (i < n)
    shape = (math.prod(desc.kernel_size), math.prod(desc.windows))
    return np.where(inside, number, 0).reshape(shape), inside.reshape(shape)


def reference(desc: Im2colDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    if 0 in desc.image or 0 in desc.columns:
        return {"y": np.zeros(desc.columns, x.dtype)}
    number, inside = _places(desc)
    y = x.reshape(desc.batch, desc.channels, -1)[:, :, number]
    return {"y": np.where(inside, y, np.zeros((), x.dtype)).reshape(desc.columns)}


_SPACE = dict.fromkeys(("extent", "windows", "kernel", "stride", "dilation", "padding"), "i64[3]")
PARAMS = Params("Im2colParams", x="ptr", y="ptr", count="i64", channels="i64", **_SPACE, x_steps="i64[5]",
                y_steps="i64[3]", dividers="u32[7][3]", narrow="i32", map_threads=THREADS)  # fmt: skip


def _axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": (kind.itemsize,), "V": widths(kind.itemsize)}


def _constants(desc: Im2colDescriptor, image: View, columns: View, divisors: tuple[Shape, Shape]) -> dict[str, Any]:
    """What both kernels read. divisors: what they divide by along the spatial axes, first and second."""
    added = 3 - len(desc.spatial)

    def three(values: Any, fill: int) -> list[int]:
        return [*(fill,) * added, *values]

    steps = image.strides
    reach = max(
        image.size,
        columns.size,
        *(n + before + after for n, (before, after) in zip(desc.spatial, desc.padding, strict=True)),
    )
    return {
        "dividers": [divider(n) for n in (*three(divisors[0], 1), *three(divisors[1], 1), max(desc.channels, 1))],
        "narrow": reach < 2**31 - 4 * THREADS * 16,
        "channels": max(desc.channels, 1), "extent": three(desc.spatial, 1), "windows": three(desc.windows, 1),
        "kernel": three(desc.kernel_size, 1), "stride": three(desc.stride, 1), "dilation": three(desc.dilation, 1),
        "padding": three([before for before, _ in desc.padding], 0),
        "x_steps": [*steps[:2], *three(steps[2:], 0)], "y_steps": columns.strides,
    }  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, y, size = p.desc, p.y, p.desc.element.itemsize
    wide = widths(size)[0]
    fits = y.strides[2] == 1 and y.shape[2] % wide == 0 and not any(s % wide for s in y.strides[:2]) and y.aligned(16)
    v = wide if fits else 1
    blocks = max(1, -(-y.size // (THREADS * (v if v > 1 else 4))))
    params = {**_constants(desc, p.x, y, (desc.windows, desc.kernel_size)), "count": y.size}
    step = Step("im2col", (blocks, 1, 1), params, {"BYTES": size, "V": v}, THREADS)
    return Geometry((step,), layout=layout_of((p.x, y)))


def in_torch(torch: Any, desc: Im2colDescriptor, *, x: Any) -> Any:
    """torch's unfold, which is for floats, with two spatial axes and even padding."""
    even = all(before == after for before, after in desc.padding)
    if len(desc.spatial) != 2 or not even or 0 in desc.columns or 0 in desc.image or x.dtype is torch.int64:
        return NotImplemented
    facts = (desc.kernel_size, desc.dilation, [before for before, _ in desc.padding], desc.stride)
    if x.is_complex():
        return torch.complex(*(torch.nn.functional.unfold(part, *facts) for part in (x.real, x.imag)))
    return torch.nn.functional.unfold(x if x.is_floating_point() else x.double(), *facts).to(x.dtype)


_FIELDS: dict[str, Any] = {
    "batch": 32, "channels": 64, "spatial": (112, 112), "kernel_size": 3, "padding": 1, "element": "float32"
}  # fmt: skip


class Im2colPlan(Plan):
    """y[n, (c, k), o] = x[n, c, o · stride + k · dilation - padding], 0 in the padding (torch.nn.functional.unfold)."""

    op = "layout.im2col"
    descriptor = Im2colDescriptor
    args = Im2colArgs
    raw = True
    reference = staticmethod(reference)
    variants = (
        Variant(
            "windows", _geometry, "layout/im2col.cu",
            (Kernel("im2col", "im2col<{BYTES}, {V}>", PARAMS, _axes, threads=THREADS),), elements=MOVED,
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("[32, 64, 112, 112] f32, 3 × 3", work=BYTES, **_FIELDS),)

    @staticmethod
    def case(draw: Any) -> Im2colDescriptor:
        return Im2colDescriptor(**drawn(draw), element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int((math.prod(desc.image) + math.prod(desc.columns)) * desc.element.itemsize)


def drawn(draw: Any) -> dict[str, Any]:
    """A small image, at times with as many windows as whole words have."""
    rank = draw.choice((2, 2, 1, 3))
    if draw.integer(0, 3) == 0:
        shape = {"batch": 2, "channels": draw.integer(1, 2), "spatial": (1,) * (rank - 1) + (16,), "kernel_size": 1}
        return {**shape, "stride": 1}
    spatial = tuple(draw.integer(1, 6) for _ in range(rank))
    before, after = draw.integer(0, 2), draw.integer(0, 2)
    padding = (after, after) if draw.flag() else (before, after)
    return {
        "batch": draw.integer(0, 2), "channels": draw.integer(0, 3), "spatial": spatial,
        "kernel_size": tuple(draw.integer(1, 3) for _ in range(rank)), "stride": draw.integer(1, 3),
        "dilation": draw.integer(1, 2), "padding": (padding,) * rank,
    }  # fmt: skip


# ---- col2im --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Col2imDescriptor(Im2colDescriptor):
    """As `Im2colDescriptor`."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


@dataclass(slots=True, kw_only=True)
class Col2imArgs(Args):
    """Any strides."""

    x: Array = operand("*columns")
    y: Array = output("*image")


def col2im_reference(desc: Col2imDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    y = np.zeros((desc.batch, desc.channels, math.prod(desc.spatial)), x.dtype)
    if y.size and x.size:
        number, inside = _places(desc)
        columns = x.reshape(desc.batch, desc.channels, *number.shape)
        for at, one in zip(number[inside], np.moveaxis(columns[:, :, inside], 2, 0), strict=True):
            y[:, :, at] += one
    return {"y": y.reshape(desc.image)}


def _col2im_geometry(p: Problem) -> Geometry | str:
    constants = _constants(p.desc, p.y, p.x, (p.desc.spatial, p.desc.stride))
    params = {**constants, "count": p.y.size, "x": "y", "y": "x"}
    step = Step("col2im", grid(-(-p.y.size // THREADS)), params, {}, THREADS)
    return Geometry((step,), layout=layout_of((p.x, p.y)))


def col2im_in_torch(torch: Any, desc: Col2imDescriptor, *, x: Any) -> Any:
    """torch's fold, of floats with two spatial axes and even padding."""
    even = all(before == after for before, after in desc.padding)
    if len(desc.spatial) != 2 or not even or 0 in desc.columns or 0 in desc.image:
        return NotImplemented
    padding = [before for before, _ in desc.padding]
    return torch.nn.functional.fold(x, desc.spatial, desc.kernel_size, desc.dilation, padding, desc.stride)


class Col2imPlan(Plan):
    """y = the sum of the columns' elements over the windows that have each element of the image (fold)."""

    op = "layout.col2im"
    descriptor = Col2imDescriptor
    args = Col2imArgs
    reference = staticmethod(col2im_reference)
    variants = (
        Variant(
            "gather", _col2im_geometry, "layout/im2col.cu",
            (
                Kernel(
                    "col2im", "col2im<{T}>", PARAMS, threads=THREADS,
                ),
            ), elements=(*FLOATS, *COMPLEX),
            guarantee=Guarantee(Relative(2), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(col2im_in_torch)
    benchmarks = (Benchmark("[32, 64, 112, 112] f32, 3 × 3", work=BYTES, **_FIELDS),)

    @staticmethod
    def case(draw: Any) -> Col2imDescriptor:
        return Col2imDescriptor(**drawn(draw), element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int((math.prod(desc.image) + math.prod(desc.columns)) * desc.element.itemsize)


_im2col = functional(Im2colPlan, "im2col")
_col2im = functional(Col2imPlan, "col2im")


def _sizes(value: Any, rank: int, name: str) -> Shape:
    found = (int(value),) * rank if isinstance(value, (int, np.integer)) else wholes(name, value)
    if len(found) != rank:
        raise InvalidProblemError(f"{name} must be an integer or one for each of {rank} spatial axes, got {value}")
    return found


def _im2col_back(dy: Any, x: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any, preference: Any) -> Any:
    spatial = x.shape[-_rank(kernel_size) :]
    return col2im(dy, spatial, kernel_size, dilation, padding, stride, preference=preference)


def _rank(kernel_size: Any) -> int:
    return 2 if isinstance(kernel_size, (int, np.integer)) else len(wholes("kernel_size", kernel_size))


@composed(_im2col_back, "x", reads=())
@entry(Im2colPlan)
def im2col(
    x: Array, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The windows of images as columns (torch.nn.functional.unfold); see `Im2colPlan`.

    x: (batch, channels, *spatial), or without batch; as many spatial axes as kernel_size has, two where it is a number.
    The result is (batch, channels · product of kernel_size, windows). padding may have (before, after) for each axis.
    """
    rank = _rank(kernel_size)
    shape = shape_of(x, "x")
    if len(shape) not in (rank + 1, rank + 2):
        raise InvalidProblemError(f"x must be ([batch], channels, *{rank} spatial axes), got shape {shape}")
    alone = len(shape) == rank + 1
    seen = with_axis(x, 0, "x") if alone else x
    batch, channels, *spatial = shape_of(seen, "x")
    facts = {"kernel_size": _sizes(kernel_size, rank, "kernel_size"), "dilation": dilation, "padding": padding,
             "stride": stride}  # fmt: skip
    to = with_axis(out, 0, "out") if alone and out is not None else out
    made = _im2col(
        seen, batch=batch, channels=channels, spatial=tuple(spatial), **facts, out=to, stream=stream,
        preference=preference,
    )  # fmt: skip
    return out if out is not None else without_axes(made, (0,), "y") if alone else made


def _col2im_back(
    dy: Any, x: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any, preference: Any
) -> Any:
    size = _sizes(kernel_size, len(tuple(output_size)), "kernel_size")
    return im2col(dy, size, dilation, padding, stride, preference=preference)


@composed(_col2im_back, "x", reads=())
@entry(Col2imPlan)
def col2im(
    x: Array, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Images that add up the columns of windows (torch.nn.functional.fold), in a fixed order; see `Col2imPlan`.

    x: (batch, channels · product of kernel_size, windows), or without batch; output_size: the spatial extents.
    """
    spatial = wholes("output_size", output_size)
    size = _sizes(kernel_size, len(spatial), "kernel_size")
    shape = shape_of(x, "x")
    if len(shape) not in (2, 3) or shape[-2] % whole("kernel_size", math.prod(size), 1):
        raise InvalidProblemError(f"x must be ([batch], channels · {math.prod(size)}, windows), got shape {shape}")
    alone = len(shape) == 2
    seen = with_axis(x, 0, "x") if alone else x
    batch, rows, _ = shape_of(seen, "x")
    facts = {"kernel_size": size, "dilation": dilation, "padding": padding, "stride": stride, "spatial": spatial}
    to = with_axis(out, 0, "out") if alone and out is not None else out
    made = _col2im(
        seen, batch=batch, channels=rows // math.prod(size), **facts, out=to, stream=stream, preference=preference
    )
    return out if out is not None else without_axes(made, (0,), "y") if alone else made


fold = col2im
