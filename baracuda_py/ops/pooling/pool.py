"""pool: y = max, mean or p-norm of the elements under a window sliding over one to three spatial axes."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Params, Plan, Problem,
    Relative, Variant, Vjp, choice, derived, element, extents, flag, integer, number, operand, output,
    per_axis,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import INDICES, REALS
from ...core.errors import InvalidProblemError, UnsupportedError
from ...schedules.window import Windows, adaptive, sliding, window_geometry, window_kernels, window_params


class PoolKind(enum.Enum):
    """What a window becomes: its maximum, its mean, or the p-norm of its elements."""

    MAX = "max"
    AVG = "avg"
    LP = "lp"

    @property
    def cpp(self) -> str:
        """The functor's name in kernels/pooling."""
        return f"{self.name.title()}Pool"


def pool_elements(kind: PoolKind | None) -> tuple[ElementKind, ...]:
    """Elements that a kind serves."""
    return REALS if kind is PoolKind.MAX else FLOATS


@dataclass(frozen=True, kw_only=True)
class PoolDescriptor(Descriptor):
    """x has shape `shape`, whose last `spatial_rank` axes (1 to 3) are pooled; those before are batch axes.

    Either kernel_size is given, with stride (by default kernel_size), padding (at most half a window), dilation and
    ceil_mode as torch has them, or output_size: then window o of an axis goes from floor(o * in / out) to
    ceil((o + 1) * in / out) (torch's adaptive pools). Sizes are an integer or one for each spatial axis.
    avg: a window's sum is divided by its number of places, with those of the padding if count_include_pad, or by
    divisor_override. lp: norm_type is the p of (sum |x|^p)^(1/p).
    """

    kind: PoolKind = choice(PoolKind)
    shape: tuple[int, ...] = extents()
    spatial_rank: int = integer(minimum=1, maximum=3)
    kernel_size: Any = per_axis(None, minimum=1, of="spatial_rank")
    stride: Any = per_axis(derived(lambda desc: desc.kernel_size), minimum=1, of="spatial_rank")
    padding: Any = per_axis(0, of="spatial_rank")
    dilation: Any = per_axis(1, minimum=1, of="spatial_rank")
    output_size: Any = per_axis(None, minimum=1, of="spatial_rank")
    ceil_mode: bool = flag(False)
    count_include_pad: bool = flag(True)
    divisor_override: int | None = integer(None)
    norm_type: float | None = number(None, above=0.0)
    element: ElementKind = element(REALS)

    def validate(self) -> None:
        """What a kind has no use for is refused."""
        kind = self.kind.value
        if self.element not in pool_elements(self.kind):
            raise UnsupportedError(f"element {self.element} is not for {kind}; cast to a float first")
        if len(self.shape) < self.spatial_rank:
            raise InvalidProblemError(
                f"shape must have at least the {self.spatial_rank} spatial axes of spatial_rank, got {self.shape}"
            )
        if (self.norm_type is None) is (self.kind is PoolKind.LP):
            raise InvalidProblemError(f"norm_type is for lp, and needed there; got {self.norm_type} for {kind}")
        if self.divisor_override == 0:
            raise InvalidProblemError("divisor_override must not be 0")
        if self.kind is not PoolKind.AVG and not (self.count_include_pad and self.divisor_override is None):
            raise InvalidProblemError(f"count_include_pad and divisor_override are for avg, got them for {kind}")
        if (self.kernel_size is None) is (self.output_size is None):
            raise InvalidProblemError(
                f"kernel_size or output_size must be given, got kernel_size {self.kernel_size} and output_size "
                f"{self.output_size}"
            )
        if self.output_size is not None and not self._plain:
            raise InvalidProblemError("output_size fixes the windows: it goes without stride, padding and the like")
        self.windows  # noqa: B018  # raises where an axis has none

    @property
    def _plain(self) -> bool:
        zeros, ones = (0, (0,) * self.spatial_rank), (1, (1,) * self.spatial_rank)
        return self.stride is None and self.padding in zeros and self.dilation in ones and not self.ceil_mode

    @property
    def spatial_shape(self) -> tuple[int, ...]:
        """The pooled axes of x."""
        return self.shape[len(self.shape) - self.spatial_rank :]

    @cached_property
    def windows(self) -> Windows:
        """Where the windows lie."""
        if self.output_size is not None:
            return adaptive(self.spatial_shape, self.output_size)
        return sliding(self.spatial_shape, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    @cached_property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of y."""
        batch = len(self.shape) - self.spatial_rank
        return self.shape[:batch] + self.windows.out_extent[3 - self.spatial_rank :]


@dataclass(slots=True, kw_only=True)
class PoolArgs(Args):
    """Any strides. `indices` (max only): the row-major place of each maximum in the spatial axes, int64 or int32."""

    x: Array = operand("*shape")
    y: Array = output("*out_shape")
    indices: Array | None = output("*out_shape", element=INDICES[::-1], kinds=(PoolKind.MAX,))


def check_indices(desc: PoolDescriptor, views: Mapping[str, Any]) -> None:
    """int32 holds every place of the spatial axes, or is refused."""
    indices = views["indices"]
    places = math.prod(desc.spatial_shape)
    if indices is not None and indices.element is ElementKind.I32 and places > 2**31:
        raise InvalidProblemError(f"indices must be int64 for {places} places, got int32")


def reference(desc: PoolDescriptor, *, x: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in: the places of all windows one after the other, in row-major order."""
    windows = desc.windows
    flat = x.reshape(math.prod(x.shape[: x.ndim - desc.spatial_rank]), math.prod(windows.in_extent))
    shape = (flat.shape[0], *windows.out_extent)
    found = [(flat[:, place], exists, place) for place, exists in windows.places()]
    indices = np.full(shape, -1, np.int64)
    if desc.kind is PoolKind.MAX:
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        y = np.full(shape, lowest, x.dtype)
        for value, exists, place in found:
            better = exists & ((indices < 0) | (value > y) | (value != value))
            y, indices = np.where(better, value, y), np.where(better, place, indices)
    elif desc.kind is PoolKind.AVG:
        y = np.zeros(shape, x.dtype)
        for value, exists, _ in found:
            y = np.where(exists, y + value, y)
        y = y / divisors(desc).astype(x.dtype)
    else:
        power, scale = x.dtype.type(desc.norm_type), np.zeros(shape, x.dtype)
        for value, exists, _ in found:
            scale = np.where(exists, np.maximum(scale, np.abs(value)), scale)
        total = np.zeros(shape, x.dtype)
        for value, exists, _ in found:
            total = np.where(exists, total + (np.abs(value) / scale) ** power, total)
        y = np.where((scale > 0) & np.isfinite(scale), scale * total ** (x.dtype.type(1) / power), scale)
    return {"y": y.reshape(desc.out_shape), "indices": indices.reshape(desc.out_shape)}


def divisors(desc: PoolDescriptor) -> Any:
    """What the sums of avg are divided by."""
    if desc.divisor_override is not None:
        return np.full(desc.windows.out_extent, desc.divisor_override)
    return desc.windows.sizes(desc.count_include_pad)


def pool_values(desc: Any, indices: Any) -> dict[str, Any]:
    """Constant parameters of the kernels, forward and backward."""
    return {
        "divisor": desc.divisor_override or 0, "norm_type": desc.norm_type or 0.0,
        "include_pad": desc.count_include_pad, "indices_wide": indices is None or indices.element is ElementKind.I64,
    }  # fmt: skip


POOL_FIELDS = {"divisor": "i64", "norm_type": "f64", "include_pad": "i32", "indices_wide": "i32"}
PARAMS = Params("PoolParams", x="ptr", y="ptr", indices="ptr", **POOL_FIELDS, **window_params(3))


def _geometry(p: Problem) -> Geometry | str:
    desc: PoolDescriptor = p.desc
    return window_geometry((p.x, p.y, p.indices), desc.spatial_rank, desc.windows, pool_values(desc, p.indices))


def pool_case(draw: Any, descriptor: type[PoolDescriptor], kind: PoolKind, **facts: Any) -> PoolDescriptor:
    """Random windows: whole and partial, overlapping and apart, padded, dilated, adaptive; planes of one element."""
    spatial = draw.integer(1, 3)
    batch = draw.choice(((2, 16), (3,), (), (2, 3), (0, 2), (2, 5, 8)))
    facts |= {"kind": kind, "spatial_rank": spatial}
    if kind is PoolKind.LP:
        facts["norm_type"] = draw.choice((2.0, 1.0, 3.0, 1.5))
    if draw.integer(0, 4) == 0:
        shape = tuple(draw.integer(1, 9) for _ in range(spatial))
        size = tuple(draw.integer(1, 6) for _ in range(spatial))
        return descriptor(shape=batch + shape, output_size=size, **facts)
    if kind is PoolKind.AVG:
        facts["count_include_pad"] = draw.flag()
        facts["divisor_override"] = draw.choice((None, None, 3, -2))
    axes, tiny = [], draw.integer(0, 4) == 0  # tiny: batch axes alone are contiguous, as with channels last
    for axis in range(spatial):
        kernel, dilation = draw.integer(1, 3), draw.integer(1, 2)
        reach = (kernel - 1) * dilation + 1
        padding = draw.integer(0, reach // 2)
        least = max(1, reach - 2 * padding)
        extent = (
            least if tiny else least + draw.integer(0, 6) + (draw.choice((0, 16, 30)) if axis + 1 == spatial else 0)
        )
        if draw.integer(0, 9) == 0:  # a window for which 32 bits do not do
            kernel, padding, dilation = 2**30, 2**29, 1
        axes.append((kernel, draw.integer(1, 4), padding, dilation, extent))
    kernel, stride, padding, dilation, shape = zip(*axes, strict=True)
    return descriptor(
        shape=batch + shape, kernel_size=kernel, stride=draw.choice((stride, None)), padding=padding,
        dilation=dilation, ceil_mode=draw.flag(), **facts,
    )  # fmt: skip


def planes(desc: PoolDescriptor, tensor: Any) -> Any:
    """A tensor for torch's pools of two and three axes: a batch and a channel axis, then two or three."""
    batch, rank = len(desc.shape) - desc.spatial_rank, desc.spatial_rank
    if batch == 2 and rank > 1:
        return tensor
    return tensor.reshape(math.prod(tensor.shape[:batch]), 1, *(1,) * (2 - rank), *tensor.shape[batch:])


def torch_window(desc: PoolDescriptor, *names: str) -> list[tuple[int, ...]]:
    """Fields of `Windows` for the axes of `planes`."""
    return [getattr(desc.windows, name)[3 - max(desc.spatial_rank, 2) :] for name in names]


def torch_avg(desc: PoolDescriptor) -> tuple[Any, ...]:
    """What torch's avg_pool takes behind the tensor."""
    windows = torch_window(desc, "kernel", "stride", "padding")
    return *windows, desc.ceil_mode, desc.count_include_pad, desc.divisor_override


def torch_serves(desc: PoolDescriptor) -> bool:
    """torch dilates no mean, pads a maximum by half a kernel at most, and has no windows that are huge or empty.

    On the CPU it has no adaptive maximum of integers.
    """
    windows = desc.windows
    if desc.output_size is not None and desc.element.is_integer:
        return False
    if desc.kind is PoolKind.AVG and windows.dilation != (1, 1, 1):
        return False
    if desc.kind is PoolKind.MAX and any(p > k // 2 for p, k in zip(windows.padding, windows.kernel, strict=True)):
        return False
    return max(windows.kernel) < 2**16 and bool((windows.sizes(False) > 0).all())


def in_torch(torch: Any, desc: PoolDescriptor, *, x: Any, wanted: Any) -> Any:
    """torch's pools; lp as a convolution with ones, since torch's has no padding and no dilation."""
    rank, kind = max(desc.spatial_rank, 2), desc.kind
    if not torch_serves(desc):
        return NotImplemented
    function = torch.nn.functional
    given = planes(desc, x)
    if kind is PoolKind.AVG:
        if desc.output_size is not None:
            made = [getattr(function, f"adaptive_avg_pool{rank}d")(given, *torch_window(desc, "out_extent"))]
        else:
            made = [getattr(function, f"avg_pool{rank}d")(given, *torch_avg(desc))]
    elif kind is PoolKind.LP:
        if desc.output_size is not None:
            return NotImplemented
        kernel, stride, padding, dilation = torch_window(desc, "kernel", "stride", "padding", "dilation")
        power = float(desc.norm_type or 0)
        powers = given.abs().pow(power)
        powers = powers.reshape(-1, 1, *powers.shape[2:])
        sides = [side for p, more in zip(padding, overhang(desc), strict=True) for side in (more, p)]
        sums = getattr(function, f"conv{rank}d")(
            function.pad(powers, sides[::-1]), powers.new_ones(1, 1, *kernel), None, stride, 0, dilation
        )
        made = [sums.pow(1 / power)]
    elif desc.output_size is not None:
        pool = getattr(function, f"adaptive_max_pool{rank}d")
        made = pool(given, *torch_window(desc, "out_extent"), return_indices="indices" in wanted)
    else:
        facts = (*torch_window(desc, "kernel", "stride", "padding", "dilation"), desc.ceil_mode)
        made = getattr(function, f"max_pool{rank}d")(given, *facts, return_indices="indices" in wanted)
    made = made if isinstance(made, (list, tuple)) else [made]
    return tuple(one.reshape(desc.out_shape) for one in made)


def overhang(desc: PoolDescriptor) -> list[int]:
    """Of each axis of `planes`, what the last window reaches behind x; negative where it ends before."""
    own = torch_window(desc, "out_extent", "stride", "padding", "reach", "in_extent")
    return [(n - 1) * s - p + r - m for n, s, p, r, m in zip(*own, strict=True)]


def pool_benchmarks(make: Callable[[Any, Any], Mapping[str, Any]]) -> tuple[Benchmark, ...]:
    """The stem of a ResNet (3 × 3 every 2), halving (2 × 2), a mean of overlapping windows; channels first and last.

    `make` lays all operands of a problem channels last.
    """
    return tuple(
        Benchmark(
            f"[128, 64, 112, 112] bf16, {kind} {name}, channels {'last' if last else 'first'}", kind=kind,
            shape=(128, 64, 112, 112), spatial_rank=2, kernel_size=kernel, stride=stride, padding=padding,
            element="bfloat16", also=("indices",) if kind == "max" else (), make=make if last else None,
        )
        for kind, name, kernel, stride, padding in (
            ("max", "stem", 3, 2, 1), ("max", "halving", 2, 2, 0), ("avg", "overlapping", 3, 1, 1)
        )
        for last in (True, False)
    )  # fmt: skip


def channels_last(torch: Any, desc: PoolDescriptor, *names: str) -> dict[str, Any]:
    """Operands laid channels last: x and dx of the shape of x, others of that of y."""
    made = {}
    for name in names:
        shape = desc.shape if name in ("x", "dx") else desc.out_shape
        dtype = torch.int64 if name == "indices" else getattr(torch, str(desc.element))
        made[name] = torch.empty(shape, dtype=dtype, memory_format=torch.channels_last)
        if name in ("x", "dy"):
            made[name].normal_()
    if desc.kind is not PoolKind.MAX:
        made.pop("indices", None)
    return made


class PoolPlan(Plan):
    """y[..., o] = max, mean or p-norm of x over window o (torch's max_pool, avg_pool, lp_pool and adaptive pools).

    max: NaN propagates; of equal elements the first is the maximum, of several NaN the last. A window without an
    element, which dilation can make, gives the lowest value and index -1. lp: (sum |x|^p)^(1/p) over the elements that
    exist, which is torch's value where torch's windows are whole and x^p is |x|^p. Windows must start inside x or in
    the padding before it (ceil_mode). Outputs that a function makes have channels last in memory where x of four or
    five axes has.
    """

    op = "pooling.pool"
    kinds = PoolKind
    descriptor = PoolDescriptor
    args = PoolArgs
    reference = staticmethod(reference)
    vjp = Vjp("PoolBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "window", _geometry, source="pooling/pool.cu", elements=pool_elements,
            kernels=window_kernels("window<{KIND}<{T}>, 3, {LAYOUT}>", PARAMS),
            guarantee=Guarantee(
                lambda element, kind: Exact() if kind is PoolKind.MAX else Relative(2), batch_invariant=True
            ), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = pool_benchmarks(lambda torch, desc: channels_last(torch, desc, "x", "y", "indices"))

    @staticmethod
    def case(draw: Any) -> PoolDescriptor:
        return pool_case(draw, PoolDescriptor, draw.kind, element=draw.element)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_indices(desc, views)


def _function(kind: PoolKind, rank: int, is_adaptive: bool = False, indices: bool = False) -> Any:
    name = f"{'adaptive_' if is_adaptive else ''}{kind.value}_pool{rank}d{'_with_indices' if indices else ''}"
    fixed: dict[str, Any] = {} if kind is PoolKind.AVG else {"count_include_pad": True, "divisor_override": None}
    fixed |= {} if kind is PoolKind.LP else {"norm_type": None}
    if is_adaptive:
        fixed |= {"kernel_size": None, "stride": None, "padding": 0, "dilation": 1, "ceil_mode": False,
                  "count_include_pad": True, "divisor_override": None}  # fmt: skip
    else:
        fixed["output_size"] = None
    returns = ("indices",) if indices else ()
    return functional(PoolPlan, name, kind=kind, spatial_rank=rank, returns=returns, follows="x", **fixed)


max_pool1d = _function(PoolKind.MAX, 1)
max_pool2d = _function(PoolKind.MAX, 2)
max_pool3d = _function(PoolKind.MAX, 3)
avg_pool1d = _function(PoolKind.AVG, 1)
avg_pool2d = _function(PoolKind.AVG, 2)
avg_pool3d = _function(PoolKind.AVG, 3)
lp_pool1d = _function(PoolKind.LP, 1)
lp_pool2d = _function(PoolKind.LP, 2)
lp_pool3d = _function(PoolKind.LP, 3)
adaptive_max_pool1d = _function(PoolKind.MAX, 1, True)
adaptive_max_pool2d = _function(PoolKind.MAX, 2, True)
adaptive_max_pool3d = _function(PoolKind.MAX, 3, True)
adaptive_avg_pool1d = _function(PoolKind.AVG, 1, True)
adaptive_avg_pool2d = _function(PoolKind.AVG, 2, True)
adaptive_avg_pool3d = _function(PoolKind.AVG, 3, True)
max_pool1d_with_indices = _function(PoolKind.MAX, 1, False, True)
max_pool2d_with_indices = _function(PoolKind.MAX, 2, False, True)
max_pool3d_with_indices = _function(PoolKind.MAX, 3, False, True)
adaptive_max_pool1d_with_indices = _function(PoolKind.MAX, 1, True, True)
adaptive_max_pool2d_with_indices = _function(PoolKind.MAX, 2, True, True)
adaptive_max_pool3d_with_indices = _function(PoolKind.MAX, 3, True, True)
