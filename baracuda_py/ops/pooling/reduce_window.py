"""reduce_window: y = sum, product, minimum or maximum of the elements under windows sliding over up to three axes."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Relative, Variant, Vjp, choice,
    element, extents, integer, operand, output, pairs, per_axis,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import shown, wholes
from ...core.element import INDICES, REALS
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import permuted, shape_of
from ...core.numbers import plain
from ...schedules.window import Windows, three, window_geometry, window_kernels
from .pool import PARAMS, check_indices, pool_values


class ReduceWindowKind(enum.Enum):
    """What the elements of a window are combined by."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"

    @property
    def cpp(self) -> str:
        """The functor's name in kernels/pooling."""
        return f"{self.name.title()}Pool"


EXTREMES = (ReduceWindowKind.MAX, ReduceWindowKind.MIN)


@dataclass(frozen=True, kw_only=True)
class ReduceWindowDescriptor(Descriptor):
    """x has shape `shape`, over whose last `spatial_rank` axes (1 to 3) windows slide; those before are batch axes.

    Window o of an axis holds the positions o * stride - before + k * dilation, k < kernel_size, that x has; padding is
    (before, after) of each axis, and counts as the value that changes nothing. Sizes are an integer or one for each
    spatial axis.
    """

    kind: ReduceWindowKind = choice(ReduceWindowKind)
    shape: tuple[int, ...] = extents()
    spatial_rank: int = integer(minimum=1, maximum=3)
    kernel_size: Any = per_axis(minimum=1, of="spatial_rank")
    stride: Any = per_axis(1, minimum=1, of="spatial_rank")
    padding: Any = pairs(0, of="spatial_rank")
    dilation: Any = per_axis(1, minimum=1, of="spatial_rank")
    element: ElementKind = element(REALS)

    divisor_override = 1  # a sum is a mean over 1 for the gradient's kernel
    count_include_pad, norm_type = True, None

    def validate(self) -> None:
        if len(self.shape) < self.spatial_rank:
            raise InvalidProblemError(
                f"shape must have at least the {self.spatial_rank} spatial axes of spatial_rank, got {self.shape}"
            )
        if math.prod(self.kernel_size) >= 2**62:
            raise InvalidProblemError(f"kernel_size must have less than 2^62 places, got {self.kernel_size}")

    @property
    def spatial_shape(self) -> tuple[int, ...]:
        """The axes of x that windows slide over."""
        return self.shape[len(self.shape) - self.spatial_rank :]

    @cached_property
    def windows(self) -> Windows:
        """Where the windows lie."""
        axes = zip(self.spatial_shape, self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        outputs, steps = [], []
        for n, k, s, (before, after), d in axes:
            room = n + before + after - ((k - 1) * d + 1)
            outputs.append(room // s + 1 if room >= 0 else 0)
            steps.append(max(1, min(s, n + before)))  # one window needs no step
        before = [pair[0] for pair in self.padding]
        return Windows(
            three(self.spatial_shape, 1), three(outputs, 1), three(self.kernel_size, 1), three(steps, 1),
            three(before, 0), three(self.dilation, 1),
        )  # fmt: skip

    @cached_property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of y."""
        batch = len(self.shape) - self.spatial_rank
        return self.shape[:batch] + self.windows.out_extent[3 - self.spatial_rank :]


@dataclass(slots=True, kw_only=True)
class ReduceWindowArgs(Args):
    """Any strides. `indices` (max, min): the row-major place of each extreme in the spatial axes, int64 or int32."""

    x: Array = operand("*shape")
    y: Array = output("*out_shape")
    indices: Array | None = output("*out_shape", element=INDICES[::-1], kinds=EXTREMES)


def identity(kind: ReduceWindowKind, dtype: np.dtype[Any]) -> Any:
    """What changes nothing."""
    if kind in (ReduceWindowKind.SUM, ReduceWindowKind.PROD):
        return dtype.type(kind is ReduceWindowKind.PROD)
    if dtype.kind == "f":
        return dtype.type(-np.inf if kind is ReduceWindowKind.MAX else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if kind is ReduceWindowKind.MAX else limits.max)


def reference(desc: ReduceWindowDescriptor, *, x: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in: the places of all windows one after the other, in row-major order."""
    windows, kind = desc.windows, desc.kind
    flat = x.reshape(math.prod(x.shape[: x.ndim - desc.spatial_rank]), math.prod(windows.in_extent))
    shape = (flat.shape[0], *windows.out_extent)
    y, indices = np.full(shape, identity(kind, x.dtype)), np.full(shape, -1, np.int64)
    for place, exists in windows.places() if math.prod(shape) else ():
        value = flat[:, place]
        with np.errstate(all="ignore"):
            if kind is ReduceWindowKind.SUM:
                y = np.where(exists, y + value, y)
            elif kind is ReduceWindowKind.PROD:
                y = np.where(exists, y * value, y)
            else:
                beyond = value > y if kind is ReduceWindowKind.MAX else value < y
                better = exists & ((indices < 0) | beyond | (value != value))
                y, indices = np.where(better, value, y), np.where(better, place, indices)
    return {"y": y.reshape(desc.out_shape), "indices": indices.reshape(desc.out_shape)}


def _geometry(p: Problem) -> Geometry | str:
    desc: ReduceWindowDescriptor = p.desc
    return window_geometry((p.x, p.y, p.indices), desc.spatial_rank, desc.windows, pool_values(desc, p.indices))


def unfolded(desc: ReduceWindowDescriptor, x: Any, fill: Any) -> Any:
    """A tensor of x's spatial axes, padded with a value, with the places of each window in a last axis."""
    first = x.dim() - desc.spatial_rank
    wide = [n + sum(pair) for n, pair in zip(x.shape[first:], desc.padding, strict=True)]
    padded = x.new_full((*x.shape[:first], *wide), fill)
    inside = (..., *(slice(pair[0], pair[0] + n) for n, pair in zip(x.shape[first:], desc.padding, strict=True)))
    padded[inside] = x
    for axis, (k, s, d) in enumerate(zip(desc.kernel_size, desc.stride, desc.dilation, strict=True)):
        padded = padded.unfold(first + axis, (k - 1) * d + 1, s)[..., ::d]
    return padded.flatten(-desc.spatial_rank)


def torch_serves(desc: ReduceWindowDescriptor) -> bool:
    """Whether there are windows, which are not huge."""
    return 0 not in desc.out_shape and math.prod(desc.kernel_size) <= 2**16


def in_torch(torch: Any, desc: ReduceWindowDescriptor, *, x: Any, wanted: set[str]) -> Any:
    """Reductions of unfolded windows."""
    if not torch_serves(desc):
        return NotImplemented
    low = float(identity(desc.kind, np.dtype(np.float64)))
    if desc.element.is_integer:
        low = int(identity(desc.kind, desc.element.dtype))
    places = unfolded(desc, x, low)
    if desc.kind not in EXTREMES:
        return getattr(places, desc.kind.value)(-1, dtype=x.dtype)
    made = {"y": places.amax(-1) if desc.kind is ReduceWindowKind.MAX else places.amin(-1)}
    if "indices" in wanted:  # row-major places rise along a window, so that the first is the least
        count = math.prod(desc.spatial_shape)
        place = unfolded(desc, torch.arange(count, device=x.device).reshape(desc.spatial_shape), -1)
        first = torch.where((places == made["y"][..., None]) & (place >= 0), place, count).amin(-1)
        made["indices"] = torch.where(first < count, first, -1)
    return made


def window_case(draw: Any, descriptor: type[ReduceWindowDescriptor], **facts: Any) -> Any:
    """Random windows: overlapping and apart, dilated, padded before and after, also by more than a window; none."""
    spatial = draw.integer(1, 3)
    batch = draw.choice(((2, 16), (3,), (), (2, 3), (0, 2), (2, 5, 8)))
    axes: list[Any] = []
    for axis in range(spatial):
        kernel, dilation = draw.integer(1, 3), draw.integer(1, 2)
        extent = draw.integer(0 if draw.rarely() else 1, 7) + (draw.choice((0, 16, 30)) if axis + 1 == spatial else 0)
        padding = draw.choice(((0, 0), (0, 0), (1, 0), (0, 2), (3, 4)))
        huge = draw.integer(0, 9) == 0  # a window for which 32 bits do not do, nor may the places need 62
        if huge and math.prod(k for _, k, *_ in axes) < 2**32:
            kernel, padding, dilation = 2**30, (2**29, 2**29), 1
        axes.append((extent, kernel, draw.integer(1, 4), padding, dilation))
    shape, kernel, stride, padding, dilation = zip(*axes, strict=True)
    return descriptor(
        shape=batch + shape, spatial_rank=spatial, kernel_size=kernel, stride=stride, padding=padding,
        dilation=dilation, **facts,
    )  # fmt: skip


class ReduceWindowPlan(Plan):
    """y[..., o] = the sum, product, maximum or minimum of x over window o (jax.lax.reduce_window).

    A window without an element gives 0, 1, or the element's lowest or highest value (infinities of floats). Extremes:
    NaN propagates; of equal elements the first counts, of several NaN the last. Integers wrap. Products have no
    gradient.
    """

    op = "pooling.reduce_window"
    kinds = ReduceWindowKind
    descriptor = ReduceWindowDescriptor
    args = ReduceWindowArgs
    reference = staticmethod(reference)
    vjp = Vjp("ReduceWindowBackwardPlan", grads={"x": "dx"}, kinds=(ReduceWindowKind.SUM, *EXTREMES))
    variants = (
        Variant(
            "window", _geometry, source="pooling/pool.cu", elements=REALS,
            kernels=window_kernels("window<{KIND}<{T}>, 3, {LAYOUT}>", PARAMS),
            guarantee=Guarantee(
                lambda element, kind: Exact() if element.is_integer or kind in EXTREMES else Relative(2),
                batch_invariant=True,
            ), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[64, 64, 112, 112] bf16, sum of 3 × 3", kind="sum", shape=(64, 64, 112, 112), spatial_rank=2,
            kernel_size=3, padding=1, element="bfloat16",
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ReduceWindowDescriptor:
        return window_case(draw, ReduceWindowDescriptor, kind=draw.kind, element=draw.element)  # type: ignore[no-any-return]

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_indices(desc, views)


_made: dict[ReduceWindowKind, Any] = {}


def _function(kind: ReduceWindowKind) -> Any:
    if kind not in _made:
        _made[kind] = functional(ReduceWindowPlan, "reduce_window", kind=kind, follows="x")
    return _made[kind]


def _padded(padding: Any, shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Any) -> Any:
    """Pairs for each axis; "SAME" makes ⌈n / stride⌉ windows, the odd place after (or before, "SAME_LOWER")."""
    padding = plain(padding)
    if type(padding) is int:
        return ((padding, padding),) * len(shape)
    if not isinstance(padding, str):
        return padding
    if padding.upper() not in ("VALID", "SAME", "SAME_LOWER"):
        raise InvalidProblemError(f"padding must be pairs, VALID, SAME or SAME_LOWER, got {shown(padding)}")
    found = []
    for n, k, s, d in zip(shape, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) if padding.upper() != "VALID" else 0
        halves = (total // 2, total - total // 2)
        found.append(halves if padding.upper() == "SAME" else halves[::-1])
    return found


@entry(ReduceWindowPlan)
def reduce_window(
    x: Array, kind: str = "sum", *, window_dimensions: Any, window_strides: Any = None, padding: Any = 0,
    window_dilation: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[o] = the sum, prod, max or min of x over the window of `window_dimensions` places at o (jax.lax.reduce_window).

    window_dimensions, window_strides (1 by default) and window_dilation (1) have an integer for each axis of x; padding
    is (before, after) for each axis, an integer, or "VALID" (none), "SAME" or "SAME_LOWER"; it changes nothing. At most
    three axes may have windows of more than one place; where these are not the last, y is a view with its axes in x's
    order.
    """
    chosen = next((one for one in ReduceWindowKind if one.value == kind), None)
    if chosen is None:
        raise InvalidProblemError(f"kind must be one of sum, prod, max, min, got {shown(kind)}")
    shape = shape_of(x, "x")
    given = {
        "window_dimensions": window_dimensions,
        "window_strides": window_strides,
        "window_dilation": window_dilation,
    }
    sizes = {name: wholes(name, (1,) * len(shape) if v is None else v, 1) for name, v in given.items()}
    for name, values in sizes.items():
        if len(values) != len(shape):
            raise InvalidProblemError(f"{name} must have {len(shape)} integers, one for each axis of x, got {values}")
    kernel, stride, dilation = sizes.values()
    pads = _padded(padding, shape, kernel, stride, dilation)
    if not isinstance(pads, Sequence) or len(pads) != len(shape):
        raise InvalidProblemError(f"padding must have {len(shape)} pairs, one for each axis of x, got {shown(pads)}")
    moving = [a for a in range(len(shape)) if (kernel[a], stride[a]) != (1, 1) or tuple(pads[a]) != (0, 0)]
    if len(moving) > 3:
        raise InvalidProblemError(f"windows may slide along three axes at most, got {len(moving)}: axes {moving}")
    moving = moving or [len(shape) - 1] * bool(shape)
    if not moving:
        raise InvalidProblemError("x must have an axis for windows to slide along, got shape ()")
    order = [*(a for a in range(len(shape)) if a not in moving), *moving]
    back = sorted(range(len(shape)), key=order.__getitem__)
    y = _function(chosen)(
        permuted(x, order, "x"), spatial_rank=len(moving), kernel_size=[kernel[a] for a in moving],
        stride=[stride[a] for a in moving], padding=[tuple(pads[a]) for a in moving],
        dilation=[dilation[a] for a in moving], out=None if out is None else permuted(out, order, "out"),
        stream=stream, preference=preference,
    )  # fmt: skip
    return permuted(y, back, "y") if out is None else out
