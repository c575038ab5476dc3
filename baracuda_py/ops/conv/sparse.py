"""Sparse convolutions: over sites of a grid that are listed, not over all of it (spconv, MinkowskiEngine, torchsparse).

A site is a row (batch, place along each axis) of integers. Which input an output meets at each place of the filter is a
table of integers, made once for a set of sites by a sort and binary searches; the product is a gather of rows and one
matrix product, whose sum goes over places of the filter and channels in that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import whole, wholes
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import reshaped, shape_of, with_axis, without_axes
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce
from ..gemm.matmul import matmul
from ..indexing.take import TakePlan, take
from ..layout.concat import stack
from ..layout.creation import arange, full
from ..layout.views import part
from ..sort.searchsorted import searchsorted
from ..sort.sort import sort
from ..sort.unique import unique

_AXES, _PLACES = 3, 2**62
_ABSENT = -(2**63)  # a row that `take` reads as zeros
Sizes = tuple[int, ...]


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def _number(rank: int, place: Any, size: str) -> str:
    """The number of a place on the grid, the last axis fastest."""
    text = "int64(batch)"
    for d in range(rank):
        text = f"({text} * {size}{d} + {place(d)})"
    return text


@cache
def _most() -> Any:
    return reduce("k", "max", axis=(0, 1))


@cache
def _own(rank: int) -> Any:
    """The number of a site, -1 outside of the grid."""
    inside = " and ".join(f"x{d} >= 0 and x{d} < size{d}" for d in range(rank))
    return elementwise(f"where(batch >= 0 and {inside}, {_number(rank, 'int64(x{})'.format, 'size')}, int64(-1))")


@cache
def _read(rank: int) -> Any:
    """The number of the site that an output meets at a place of the filter."""
    at = [f"(int64(x{d}) * stride{d} + shift{d})" for d in range(rank)]
    inside = " and ".join(f"{a} >= 0 and {a} < size{d}" for d, a in enumerate(at))
    return elementwise(f"where(batch >= 0 and {inside}, {_number(rank, at.__getitem__, 'size')}, int64(-1))")


@cache
def _written(rank: int) -> Any:
    """The number of the output that meets a site at a place of the filter, where the quotient is whole."""
    from_ = [f"(int64(x{d}) - shift{d})" for d in range(rank)]
    inside = " and ".join(
        f"x{d} >= 0 and x{d} < size{d} and {a} >= 0 and {a} % stride{d} == 0 and {a} // stride{d} < out{d}"
        for d, a in enumerate(from_)
    )
    at = [f"({a} // stride{d})" for d, a in enumerate(from_)]
    return elementwise(f"where(batch >= 0 and {inside}, {_number(rank, at.__getitem__, 'out')}, none)")


@cache
def _place(rank: int, d: int) -> Any:
    """Axis d of the site of a number, -1 where that is none; d = -1: its batch."""
    inner = " * ".join(f"out{e}" for e in range(d + 1, rank)) or "1"
    return elementwise(f"where(n < none, n // ({inner}){'' if d < 0 else f' % out{d}'}, int64(-1))")


class _Window:
    """Sizes of a filter and how it moves, a number for each axis of the grid."""

    def __init__(self, spatial_shape: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> None:
        self.shape = wholes("spatial_shape", spatial_shape, 1)
        rank = len(self.shape)
        if not 1 <= rank <= _AXES:
            raise InvalidProblemError(f"spatial_shape must have 1 to {_AXES} axes, got {self.shape}")

        def each(name: str, value: Any, least: int) -> Sizes:
            many = wholes(name, value, least) if isinstance(value, Sequence) else (whole(name, value, least),) * rank
            if len(many) != rank:
                raise InvalidProblemError(f"{name} must be a number or {rank} of them, got {value}")
            return many

        self.kernel, self.stride = each("kernel_size", kernel_size, 1), each("stride", stride, 1)
        self.padding, self.dilation = each("padding", padding, 0), each("dilation", dilation, 1)
        self.out = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(self.shape, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )
        if min(self.out) < 1:
            raise InvalidProblemError(f"a filter of {self.kernel} does not fit in {self.shape} with its padding")

    def numbers(self, *names: str) -> dict[str, int]:
        """The numbers of formulas."""
        every = {"size": self.shape, "out": self.out, "stride": self.stride}
        return {f"{name}{d}": value for name in names for d, value in enumerate(every[name])}

    def shifts(self, like: Any, options: dict[str, Any]) -> dict[str, Any]:
        """How far each place of the filter is from where an output begins, along each axis: [1, places]."""
        with beside(like, options["stream"]):
            place = with_axis(arange(0, math.prod(self.kernel), element="int64", like=like), 0, "places")
        return {
            f"shift{d}": _formula("k // inner % kernel * dilation - padding")(
                k=place, inner=math.prod(self.kernel[d + 1 :]), kernel=self.kernel[d], dilation=self.dilation[d],
                padding=self.padding[d], **options,
            )
            for d in range(len(self.kernel))
        }  # fmt: skip


def _columns(sites: Any, rank: int, name: str) -> dict[str, Any]:
    """The coordinates of sites [n, 1 + rank], each [n, 1]."""
    shape, kind = shape_of(sites, name), read(sites, name).element
    if len(shape) != 2 or shape[1] != 1 + rank or kind.value not in ("int32", "int64"):
        raise InvalidProblemError(
            f"{name} must be int32 or int64 [n, {1 + rank}] of batch and places, got {kind} {shape}"
        )
    return {f"x{d - 1}" if d else "batch": part(sites, 1, d, d + 1) for d in range(1 + rank)}


@entry(TakePlan)
def sparse_conv_table(
    sites: Array, targets: Array, kernel_size: Any, *, spatial_shape: Any, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, transposed: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The row of `sites` that each target meets at each place of a filter: [targets, places] int64, -2⁶³ for none.

    sites: [n, 1 + D] of int32 or int64, (batch, place along each of D = 1 to 3 axes), in any order; of two alike the
    first counts, and one outside of spatial_shape (or of a negative batch) is none. targets: [m, 1 + D], places of the
    output. A target at o meets the site at o · stride - padding + k · dilation, as a dense convolution does, k in
    row-major order of kernel_size. transposed: the other way round, of a convolution from `targets` to `sites`, which
    are then of the strided grid, spatial_shape still that of the fine one (spconv's SparseInverseConv). A sort of n
    numbers and a binary search for each entry; there is no gradient.
    """
    window = _Window(spatial_shape, kernel_size, stride, padding, dilation)
    rank, options = len(window.shape), {"stream": stream, "preference": preference}
    columns, wanted = _columns(sites, rank, "sites"), _columns(targets, rank, "targets")
    shifts = window.shifts(sites, options)
    grid = window.numbers("out" if transposed else "size")
    numbers = _own(rank)(**columns, **{f"size{d}": n for d, n in enumerate(grid.values())}, **options)
    if transposed:
        keys = _written(rank)(**wanted, **shifts, none=-1, **window.numbers("size", "out", "stride"), **options)
    else:
        keys = _read(rank)(**wanted, **shifts, **window.numbers("size", "stride"), **options)
    ordered, order = sort(without_axes(numbers, [1], "sites"), **options)
    at = searchsorted(ordered, keys, **options)
    found = take(ordered, at, axis=0, **options)
    row = take(order, at, axis=0, **options)
    # behind the last of the sites `found` is 0, which the first place has too
    made = _formula("where(key >= 0 and at < count and found == key, row, absent)")
    return made(key=keys, at=at, count=shape_of(sites, "sites")[0], found=found, row=row, absent=_ABSENT, out=out,
                **options)  # fmt: skip


@entry(TakePlan)
def sparse_conv_sites(
    sites: Array, kernel_size: Any, *, spatial_shape: Any, max_sites: int, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(targets [max_sites, 1 + D] int64, count): the places of the output that meet a site, in row-major order.

    What spconv's SparseConv writes: every output place for which some place of the filter lies on a site. Behind the
    last of them targets are -1, which no table takes for a site. count: how many there are, an int64 of no axes on
    the device; where it is above max_sites the last ones are left out. Options as in `sparse_conv_table`.
    """
    window = _Window(spatial_shape, kernel_size, stride, padding, dilation)
    rank, options = len(window.shape), {"stream": stream, "preference": preference}
    most = whole("max_sites", max_sites, 0)
    columns = _columns(sites, rank, "sites")
    to = each_of(out, 2)
    shifts = window.shifts(sites, options)
    keys = _written(rank)(**columns, **shifts, none=_PLACES, **window.numbers("size", "out", "stride"), **options)
    with beside(sites, stream):
        none = full((), _PLACES, "int64", like=sites)
    numbers, found = unique(keys, size=most + 1, fill_value=none, **options)
    numbers = part(numbers, 0, 0, most)
    outs = window.numbers("out")
    made = [_place(rank, d)(n=numbers, none=_PLACES, **{k: v for k, v in outs.items() if int(k[3:]) >= max(d, 0)},
                            **options) for d in range(-1, rank)]  # fmt: skip
    targets = stack(made, 1, out=to[0], **options)
    if not math.prod(shape_of(keys, "keys")):
        return targets, _formula("where(f > 0, f, f)")(f=found, out=to[1], **options)
    last = _most()(k=keys, **options)
    count = _formula("int64(f) - where(last < none, int64(0), int64(1))")(f=found, last=last, none=_PLACES, out=to[1],
                                                                          **options)  # fmt: skip
    return targets, count


def _matrix(w: Any, places: int) -> tuple[Any, int, int]:
    """A filter [places or kernel..., channels, outputs] as a matrix, its channels and outputs."""
    shape = shape_of(w, "w")
    if len(shape) < 3 or math.prod(shape[:-2]) != places:
        raise InvalidProblemError(f"w must be [kernel..., channels, outputs] of {places} places, got shape {shape}")
    matrix = reshaped(w, (places * shape[-2], shape[-1]), "w")
    if matrix is None:
        raise InvalidProblemError("w must be one run of memory over its axes but the last; copy it to a dense array")
    return matrix, shape[-2], shape[-1]


@entry(TakePlan)
def sparse_conv(
    x: Array, table: Array, w: Array, bias: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y[i] = Σ_k x[table[i, k]] w[k] + bias: a convolution over the sites of a table (`sparse_conv_table`).

    x: [n, channels], of sites; table: [m, places]; w: [kernel..., channels, outputs] (MinkowskiEngine's; spconv's
    [outputs, kernel..., channels] with its first axis moved last); bias: [outputs]; y: [m, outputs]. A row that a table
    has not counts 0. The rows are gathered, m · places · channels elements, and multiplied once: the sum goes over
    places in row-major order and channels. Gradients of x, w and bias; that of x adds in the order of targets, then
    places.
    """
    options = {"stream": stream, "preference": preference}
    shape, listed = shape_of(x, "x"), shape_of(table, "table")
    if len(shape) != 2 or len(listed) != 2:
        raise InvalidProblemError(f"x must be [n, channels] and table [m, places], got {shape} and {listed}")
    matrix, channels, _ = _matrix(w, listed[1])
    if channels != shape[1]:
        raise InvalidProblemError(f"w must have the {shape[1]} channels of x before its outputs, got {channels}")
    rows = take(x, table, axis=0, **options)
    rows = reshaped(rows, (listed[0], listed[1] * channels), "rows")
    if bias is None:
        return matmul(rows, matrix, out=out, **options)
    return _formula("y + bias")(y=matmul(rows, matrix, **options), bias=bias, out=out, **options)


@entry(TakePlan)
def submanifold_conv(
    x: Array, sites: Array, w: Array, bias: Array | None = None, *, spatial_shape: Any, dilation: Any = 1,
    table: Array | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The convolution whose outputs are at the sites of its inputs alone (Graham et al. 2018; spconv's SubMConv).

    x: [n, channels]; sites: [n, 1 + D]; w: [kernel..., channels, outputs] of D odd sizes, centred on a site. table:
    that of an earlier layer of the same sites and sizes, else it is made (`sparse_conv_table`). As `sparse_conv` else.
    """
    kernel = shape_of(w, "w")[:-2]
    rank = len(wholes("spatial_shape", spatial_shape, 1))
    if len(kernel) != rank or any(k % 2 == 0 for k in kernel):
        raise InvalidProblemError(f"w must be [{rank} odd sizes, channels, outputs], got shape {shape_of(w, 'w')}")
    if shape_of(x, "x")[:1] != shape_of(sites, "sites")[:1]:
        raise InvalidProblemError(
            f"x must have a row for each site, got {shape_of(x, 'x')}, {shape_of(sites, 'sites')}"
        )
    options = {"stream": stream, "preference": preference}
    if table is None:
        spread = tuple(dilation) if isinstance(dilation, Sequence) else (dilation,) * rank
        table = sparse_conv_table(
            sites, sites, kernel, spatial_shape=spatial_shape, dilation=dilation,
            padding=tuple(k // 2 * whole("dilation", d, 1) for k, d in zip(kernel, spread, strict=True)), **options,
        )  # fmt: skip
    return sparse_conv(x, table, w, bias, out=out, **options)
