"""pool_backward: dx from dy, each element a sum over the windows that hold it; no atomics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative,
    Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.element import INDICES
from ...core.errors import UnsupportedError
from ...schedules.map import widths
from ...core.tensor import View
from ...schedules.window import THREADS, Windows, lay_out, points_geometry, window_params
from .pool import (
    POOL_FIELDS, PoolDescriptor, PoolKind, channels_last, check_indices, divisors, overhang, planes, pool_benchmarks,
    pool_case, pool_values, torch_avg, torch_serves, torch_window,
)  # fmt: skip


def random_places(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Saved places as a forward makes them, one that the window has; every other time, now and then none of its own."""
    windows = desc.windows
    places = np.full((int(np.prod(shape[: len(shape) - desc.spatial_rank])), *windows.out_extent), -1)
    for place, exists in windows.places():
        places = np.where(exists & ((places < 0) | (rng.random(places.shape) < 0.4)), place, places)
    lost = rng.random(places.shape) < rng.choice((0.0, 0.05))
    return np.where(lost, rng.integers(-3, int(np.prod(windows.in_extent)) + 3, places.shape), places).reshape(shape)


@dataclass(frozen=True, kw_only=True)
class PoolBackwardDescriptor(PoolDescriptor):
    """The forward's fields."""

    def validate(self) -> None:
        """As the forward, for floats."""
        if self.element not in FLOATS:
            raise UnsupportedError(f"element {self.element} has no gradient; it may be one of {FLOATS}")
        PoolDescriptor.validate(self)


@finite_only  # it is what the forward makes of x
def _norms(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: norms of windows."""
    return rng.uniform(0.5, 2.0, shape)


@dataclass(slots=True, kw_only=True)
class PoolBackwardArgs(Args):
    """Any strides. max takes the forward's `indices`, lp its x and y, avg neither."""

    dy: Array = operand("*out_shape")
    x: Array | None = operand("*shape", kinds=(PoolKind.LP,))
    y: Array | None = operand("*out_shape", kinds=(PoolKind.LP,), values=_norms)
    indices: Array | None = operand("*out_shape", element=INDICES[::-1], kinds=(PoolKind.MAX,), values=random_places)
    dx: Array = output("*shape")


def reference(desc: PoolBackwardDescriptor, *, dy: Any, x: Any, y: Any, indices: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: place by place of all windows."""
    windows = desc.windows
    shape = (math.prod(desc.shape[: len(desc.shape) - desc.spatial_rank]), math.prod(windows.in_extent))
    grids = (shape[0], *windows.out_extent)
    dx, slopes = np.zeros(shape, dy.dtype), dy.reshape(grids)
    if desc.kind is PoolKind.AVG:
        slopes = slopes / divisors(desc).astype(dy.dtype)
    for place, exists in windows.places():
        part = slopes
        if desc.kind is PoolKind.MAX:
            part = np.where(indices.reshape(grids) == place, part, dy.dtype.type(0))
        elif desc.kind is PoolKind.LP:
            own, norm = x.reshape(shape)[:, place], y.reshape(grids)
            power = dy.dtype.type(desc.norm_type) - dy.dtype.type(1)
            size = np.where((own == 0) | (norm == 0), 0, (np.abs(own) / norm) ** power)
            part = np.asarray(part * np.copysign(size, own), dy.dtype)
        np.add.at(dx.T, place[exists], part[:, exists].T)
    return {"dx": dx.reshape(desc.shape)}


def known_places(windows: Windows, indices: Any) -> str | None:
    """What is wrong with saved places that no forward makes."""
    if not np.size(indices):
        return None
    saved = np.asarray(indices).reshape(-1, *windows.out_extent)
    known = (saved == -1) & (windows.sizes(False) == 0)
    for place, exists in windows.places():
        known |= exists & (saved == place)
    return None if known.all() else "an index must name a place of its window, as the forward saved it"


PARAMS = Params(
    "PoolBackwardParams", dx="ptr", x="ptr", dy="ptr", indices="ptr", y="ptr", **POOL_FIELDS, **window_params(5)
)


def _geometry(p: Problem) -> Geometry | str:
    return backward_geometry(p.desc, (p.dx, p.x, p.dy, p.indices, p.y), pool_values(p.desc, p.indices))


def backward_geometry(desc: Any, views: tuple[View | None, ...], values: Mapping[str, Any]) -> Geometry | str:
    """The launch for dx, x, dy, indices and y, and what the kernels' other parameters are."""
    spatial, windows = desc.spatial_rank, desc.windows
    vec, across, kernel = 16 // desc.element.itemsize, True, "across"
    found = lay_out(views, spatial, 0)
    if isinstance(found, str):
        return found
    if not all(found.together(i, vec) for i in range(len(views))):
        rows = lay_out(views, spatial, None)
        if not isinstance(rows, str) and all(rows.together(i, vec, "last") for i in (0, 1)):
            found, across, kernel = rows, False, "along"
        else:
            vec = 1
    return points_geometry(
        found, windows, windows.in_extent, values, kernel=kernel, vec=vec, axes={"VEC": vec}, across=across
    )


_TEMPLATE = "pool_backward<{{KIND}}Slope<{{T}}>, {{VEC}}, {}, {{I}}>"


def _kernel(name: str, across: str, some: slice) -> Kernel:
    def axes(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": widths(kind.itemsize)[some], "I": ("i32", "i64")}

    return Kernel(name, _TEMPLATE.format(across), PARAMS, axes, threads=THREADS, min_blocks=2)


KERNELS = (_kernel("across", "true", slice(2)), _kernel("along", "false", slice(1)))


def in_torch(torch: Any, desc: PoolBackwardDescriptor, *, dy: Any, x: Any, y: Any, indices: Any) -> Any:
    """torch's gradients from what the forward saved; lp by hand, through a transposed convolution with ones."""
    if not torch_serves(desc):
        return NotImplemented
    aten, rank, fixed = torch.ops.aten, max(desc.spatial_rank, 2), desc.output_size is not None
    slopes = planes(desc, dy)
    if desc.kind is PoolKind.LP:
        if fixed:
            return NotImplemented
        power, own = float(desc.norm_type or 0) - 1, planes(desc, x)
        slopes = slopes * planes(desc, y).pow(-power)
        kernel, stride, padding, dilation = torch_window(desc, "kernel", "stride", "padding", "dilation")
        spread = getattr(torch.nn.functional, f"conv_transpose{rank}d")(
            slopes.reshape(-1, 1, *slopes.shape[2:]), slopes.new_ones(1, 1, *kernel), None, stride, dilation=dilation
        )
        sides = [side for p, more in zip(padding, overhang(desc), strict=True) for side in (-more, -p)]
        spread = torch.nn.functional.pad(spread, sides[::-1]).reshape(own.shape)
        return (spread * torch.sign(own) * own.abs().pow(power)).reshape(desc.shape)
    last = not slopes.is_contiguous() and slopes.dim() == 4 and slopes.is_contiguous(memory_format=torch.channels_last)
    layout = {"memory_format": torch.channels_last} if last else {}
    like = planes(desc, torch.empty(desc.shape, dtype=dy.dtype, device=dy.device, **layout))
    if desc.kind is PoolKind.AVG:
        if fixed:
            dx = getattr(aten, f"_adaptive_avg_pool{rank}d_backward")(slopes, like)
        else:
            dx = getattr(aten, f"avg_pool{rank}d_backward")(slopes, like, *torch_avg(desc))
    elif fixed:
        dx = getattr(aten, f"adaptive_max_pool{rank}d_backward")(slopes, like, planes(desc, indices.long()))
    else:
        facts = (*torch_window(desc, "kernel", "stride", "padding", "dilation"), desc.ceil_mode)
        function = getattr(aten, f"max_pool{rank}d_with_indices_backward")
        dx = function(slopes, like, *facts, planes(desc, indices.long()))
    return dx.reshape(desc.shape)


def _channels_last(torch: Any, desc: PoolBackwardDescriptor) -> Mapping[str, Any]:
    """The operands, and for max the x of the forward that makes the indices."""
    names = ("x", "indices") if desc.kind is PoolKind.MAX else ()
    return channels_last(torch, desc, "dy", "dx", *names)


class PoolBackwardPlan(Plan):
    """dx[..., i] = sum over the windows that hold i of what they hand back, in the windows' row-major order.

    max: dy where the saved index is i. avg: dy over the forward's divisor. lp: dy sign(x) (|x| / y)^(p - 1), 0 where x
    or y is 0.
    """

    op = "pooling.pool_backward"
    direction = "backward"
    kinds = PoolKind
    descriptor = PoolBackwardDescriptor
    args = PoolBackwardArgs
    reference = staticmethod(reference)
    value_policy = "an index that names no place of its window hands nothing back"
    variants = (
        Variant(
            "window", _geometry, source="pooling/pool_backward.cu", kernels=KERNELS,
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = pool_benchmarks(_channels_last)

    @staticmethod
    def case(draw: Any) -> PoolBackwardDescriptor:
        return pool_case(draw, PoolBackwardDescriptor, draw.kind, element=draw.element)  # type: ignore[return-value]

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_indices(desc, views)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return known_places(desc.windows, arrays["indices"]) if desc.kind is PoolKind.MAX else None


pool_backward = functional(PoolBackwardPlan, follows="dy")
