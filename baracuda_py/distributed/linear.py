"""Linear layers whose weight is spread over ranks (Shoeybi et al. 2019, Megatron-LM; Korthikanti et al. 2022).

A column-parallel layer has rows of the weight [out, in], and so columns of y; a row-parallel one has columns of the
weight, and columns of x. What is summed over ranks is summed in the slices of `shares`: results and gradients have the
same bits on 1, 2, 4, … ranks, up to `slices` of them.
"""

from __future__ import annotations

import math
from typing import Any

from ..calls.composed import composed, may_grow
from ..core import Array
from ..core.arrays import read
from ..core.checked import truth
from ..core.errors import InvalidProblemError
from ..core.views import reshaped, shape_of, transposed
from ..expressions.elementwise import elementwise
from ..ops.elementwise.cast import cast
from ..ops.gemm.gemm import GemmPlan
from ..ops.gemm.linear import linear
from ..ops.gemm.matmul import matmul
from ..ops.reduce.reduce import sum as summed  # type: ignore[attr-defined]
from .chunks import lane_for
from .collectives import all_gather, all_reduce, reduce_scatter
from .overlapped import Gathered, Summed, product_of_gathered
from .shares import (
    SLICES,
    as_rows,
    layer,
    once,
    options,
    own_part,
    product_of_slices,
    refuse_traced,
    size_of,
    slice_bounds,
    wide,
)


def _checked(x: Any, weight: Any, bias: Any, names: tuple[str, str, str]) -> None:
    """The shapes of a layer's operands."""
    refuse_traced(x, weight)
    rows, shape = shape_of(x, names[0]), shape_of(weight, names[1])
    if len(shape) != 2 or not rows or rows[-1] != shape[1]:
        raise InvalidProblemError(
            f"{names[1]} must be [out, in] and {names[0]} [*, in] of the same in, got shapes {shape} and {rows}"
        )
    kinds = [read(one, name).element for one, name in ((x, names[0]), (weight, names[1]))]
    if kinds[0] is not kinds[1]:
        raise InvalidProblemError(f"{names[1]} must be {kinds[0]} as {names[0]} is, got {kinds[1]}; cast one of them")
    if bias is not None and shape_of(bias, names[2]) != shape[:1]:
        raise InvalidProblemError(f"{names[2]} must have shape {shape[:1]}, got {shape_of(bias, names[2])}")


def _summed_over_ranks(partial: Any, lead: tuple[int, ...], comm: Any, scattered: bool, wire: dict[str, Any]) -> Any:
    """The sum of partial [rows, columns] over the ranks, [*lead, columns]: all of it, or this rank's part of axis 0."""
    shape = (*lead, shape_of(partial, "partial")[1])
    whole = partial.reshape(shape)
    if size_of(comm) == 1:
        return whole
    return (reduce_scatter if scattered else all_reduce)(whole, comm, **wire)


def _gathered(x: Any, comm: Any, axis: int, wire: dict[str, Any]) -> Any:
    return x if size_of(comm) == 1 else all_gather(x, comm, axis=axis, **wire)


def _weight_slope(dy: Any, x: Any, like: Any, element: Any, more: dict[str, Any]) -> Any:
    """dyᵀ x in weight's element, or in another."""
    kind = str(read(like, "weight").element) if element is None else str(element)
    return matmul(transposed(dy, "dy"), x, out_element=kind, **more)


def _bias_slope(dy: Any, bias: Any, more: dict[str, Any]) -> Any:
    if bias is None:
        return None
    made = summed(dy, axis=0, **more)  # accumulated in float32 and rounded once
    kind = read(bias, "bias").element
    return made if read(made, "dbias").element is kind else cast(made, str(kind), stream=more["stream"])


def _flags(**flags: Any) -> None:
    for name, value in flags.items():
        truth(name, value)


def column_parallel_linear_backward(
    dy: Array, x: Array, weight_shard: Array, bias_shard: Array | None = None, comm: Any = None, *,
    gather_output: bool = False, sequence_parallel: bool = False, slices: int = SLICES, overlap: int | None = None,
    return_dx: bool = True, return_dweight: bool = True, dweight_element: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(dx, dweight_shard, dbias_shard) of `column_parallel_linear`; those not wanted, or of no bias, are None.

    dy has y's shape; where y was gathered, every rank has the same dy. dx is summed over ranks and then rounded once.
    dweight_element: "float32" gives a weight's gradient as it was accumulated, by default it has the weight's element.
    overlap: dx is summed over ranks in so many chunks of rows while others are multiplied, and x gathered meanwhile; 1
    does one after another, None chooses by time.
    """
    _checked(x, weight_shard, bias_shard, ("x", "weight_shard", "bias_shard"))
    wire, more = options(stream, preference)
    if gather_output:
        dy = own_part(dy, comm, "dy")
    dy, lead = as_rows(dy, "dy")
    dx = dweight = None
    bounds, features = slice_bounds(shape_of(weight_shard, "weight_shard")[0], comm, slices), shape_of(x, "x")[-1]
    facts = shape_of(dy, "dy")[0], features, shape_of(dy, "dy")[1], stream
    lane, chunks = lane_for(overlap, comm, dy, *facts, sums=True) if return_dx else (None, 1)
    if lane is not None and _shared_out(lead, comm, sequence_parallel):
        gathered = None
        if sequence_parallel and return_dweight:
            gathered = Gathered(lane, "column_parallel_linear_backward", as_rows(x, "x")[0])
        total = Summed(
            lane, "column_parallel_linear_backward", dy, weight_shard, bounds, wide(dy, "dy"), chunks,
            sequence_parallel, more,
        )  # fmt: skip
        if return_dweight:
            dweight = _weight_slope(
                dy, as_rows(x, "x")[0] if gathered is None else gathered.all(), weight_shard, dweight_element, more
            )
        dbias = _bias_slope(dy, bias_shard, more)
        return total.result().reshape(shape_of(x, "x")), dweight, dbias
    if return_dx:
        acc = wide(dy, "dy")
        partial = product_of_slices(
            dy, weight_shard, bounds, lambda a, b: matmul(a, b, out_element=acc, **more), stream
        )
        dx = _in_element(_summed_over_ranks(partial, lead, comm, sequence_parallel, wire), x, stream)
    if return_dweight:
        whole = _gathered(x, comm, 0, wire) if sequence_parallel else x
        dweight = _weight_slope(dy, as_rows(whole, "x")[0], weight_shard, dweight_element, more)
    return dx, dweight, _bias_slope(dy, bias_shard, more)


def _flat_rows(out: Any, columns: int) -> Any:
    """A dense `out` as a matrix."""
    return None if out is None else reshaped(out, (math.prod(shape_of(out, "out")[:-1]), columns), "out")


def _shared_out(lead: tuple[int, ...], comm: Any, scattered: bool) -> bool:
    """Whether the ranks can have equal parts of axis 0, where they are to."""
    return not scattered or (bool(lead) and lead[0] % size_of(comm) == 0)


def _in_element(x: Any, like: Any, stream: Any) -> Any:
    kind = read(like, "x").element
    return x if read(x, "x").element is kind else cast(x, str(kind), stream=stream)


def _column_back(dy: Any, **given: Any) -> Any:
    wanted = {"return_dx": may_grow(given["x"]), "return_dweight": may_grow(given["weight_shard"])}
    return column_parallel_linear_backward(dy, **once(dy, given), **wanted)


@layer(GemmPlan)
@composed(_column_back, "x", "weight_shard", "bias_shard", reads=("x", "weight_shard"))
def column_parallel_linear(
    x: Array, weight_shard: Array, bias_shard: Array | None = None, comm: Any = None, *, gather_output: bool = False,
    sequence_parallel: bool = False, slices: int = SLICES, overlap: int | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y = x Wᵀ + b of which this rank has the columns of its rows of W (Megatron's ColumnParallelLinear).

    x: [*, in], the same on every rank; with sequence_parallel this rank's part of its axis 0, which is gathered first.
    weight_shard: [out / ranks, in], rank 0's rows first; bias_shard: [out / ranks]. y: [*, out / ranks], or with
    gather_output [*, out] on every rank. comm: a `Communicator`; None is one rank alone. overlap: above 1, rows that
    are gathered are multiplied in the order in which they come from the ranks, their own first; 1 gathers all, then
    multiplies; None chooses by time. It changes no bits but where a preference asks for rows that are not
    batch-invariant.

    Gradients (torch's autograd, `column_parallel_linear_backward`): dx = Σ over ranks of dy W, summed in `slices`
    slices of `out`, float32 each, in one binary tree, and rounded once; so its bits do not depend on the number of
    ranks, as long as it divides slices. A gathered y is taken to be used alike by every rank, whose dy are then equal.
    Errors: InvalidProblemError for shapes that do not fit, slices that the ranks do not divide.
    """
    _flags(gather_output=gather_output, sequence_parallel=sequence_parallel)
    _checked(x, weight_shard, bias_shard, ("x", "weight_shard", "bias_shard"))
    slice_bounds(shape_of(weight_shard, "weight_shard")[0], comm, slices)
    wire, more = options(stream, preference)
    if sequence_parallel:
        if not gather_output:
            rows, lead = as_rows(x, "x")
            (own, k), columns = shape_of(rows, "x"), shape_of(weight_shard, "weight_shard")[0]
            facts, reads = (own * size_of(comm), columns, k, stream), (x, weight_shard, bias_shard)
            lane, _ = lane_for(overlap, comm, rows, *facts, sums=False, out=out, reads=reads)
            shape = (size_of(comm) * lead[0], *lead[1:], columns) if lead else ()
            if lane is not None and (out is None or shape_of(out, "out") == shape):
                gathered, into = Gathered(lane, "column_parallel_linear", rows), _flat_rows(out, columns)
                y = product_of_gathered(gathered, transposed(weight_shard, "weight_shard"), bias_shard, more, into)
                return y.reshape(shape) if out is None else out
        x = _gathered(x, comm, 0, wire)
    if not gather_output or size_of(comm) == 1:
        return linear(x, weight_shard, bias_shard, out=out, **more)
    return all_gather(linear(x, weight_shard, bias_shard, **more), comm, axis=-1, out=out, **wire)


def row_parallel_linear_backward(
    dy: Array, x_shard: Array, weight_shard: Array, bias: Array | None = None, comm: Any = None, *,
    split_input: bool = False, sequence_parallel: bool = False, slices: int = SLICES, overlap: int | None = None,
    return_dx: bool = True, return_dweight: bool = True, dweight_element: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(dx_shard, dweight_shard, dbias) of `row_parallel_linear`; those not wanted, or of no bias, are None.

    dy: the same on every rank, with sequence_parallel this rank's part of its axis 0. dbias is the same on every rank.
    With split_input dx is gathered. dweight_element as of `column_parallel_linear_backward`; overlap: above 1, rows of
    dy that are gathered are multiplied as they come.
    """
    own = own_part(x_shard, comm, "x") if split_input else x_shard
    _checked(own, weight_shard, bias, ("x_shard", "weight_shard", "bias"))
    wire, more = options(stream, preference)
    dx = dweight = None
    features = shape_of(weight_shard, "weight_shard")[1]
    if sequence_parallel and return_dx and not split_input:
        rows, lead = as_rows(dy, "dy")
        facts = shape_of(rows, "dy")[0] * size_of(comm), features, shape_of(rows, "dy")[1], stream
        lane, _ = lane_for(overlap, comm, rows, *facts, sums=False)
        if lane is not None:
            gathered = Gathered(lane, "row_parallel_linear_backward", rows)
            dx = product_of_gathered(gathered, weight_shard, None, more)
            rows = gathered.all()
            if return_dweight:
                dweight = _weight_slope(rows, as_rows(own, "x_shard")[0], weight_shard, dweight_element, more)
            return dx.reshape((size_of(comm) * lead[0], *lead[1:], features)), dweight, _bias_slope(rows, bias, more)
    dy = _gathered(dy, comm, 0, wire) if sequence_parallel else dy
    rows, lead = as_rows(dy, "dy")
    if return_dx:
        dx = matmul(rows, weight_shard, **more).reshape((*lead, features))
        dx = _gathered(dx, comm, -1, wire) if split_input else dx
    if return_dweight:
        dweight = _weight_slope(rows, as_rows(own, "x_shard")[0], weight_shard, dweight_element, more)
    return dx, dweight, _bias_slope(rows, bias, more)


def _row_back(dy: Any, **given: Any) -> Any:
    wanted = {"return_dx": may_grow(given["x_shard"]), "return_dweight": may_grow(given["weight_shard"])}
    return row_parallel_linear_backward(dy, **once(dy, given), **wanted)


@layer(GemmPlan)
@composed(_row_back, "x_shard", "weight_shard", "bias", reads=("x_shard", "weight_shard"))
def row_parallel_linear(
    x_shard: Array, weight_shard: Array, bias: Array | None = None, comm: Any = None, *, split_input: bool = False,
    sequence_parallel: bool = False, slices: int = SLICES, overlap: int | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y = Σ over ranks of x_shard W_shardᵀ, then + b (Megatron's RowParallelLinear).

    x_shard: [*, in / ranks], what a column-parallel layer gives; with split_input x [*, in], the same on every rank, of
    which this one takes its columns. weight_shard: [out, in / ranks]; bias: [out], the same on every rank and added
    once. y: [*, out] on every rank, or with sequence_parallel this rank's part of its axis 0. overlap: the rows are cut
    into so many chunks, and what is multiplied of one is summed over ranks while the next is multiplied; 1 does one
    after the other; None chooses by time. It changes no bits, as in `column_parallel_linear`.

    The sum over `in` is that of `slices` slices, each float32, in one binary tree of which every rank has a subtree;
    bias is added to it, and the result is rounded once: its bits do not depend on the number of ranks, as long as it
    divides slices. With as many slices as ranks a rank has one product. Gradients: torch's autograd, or
    `row_parallel_linear_backward`. Errors: as `column_parallel_linear`.
    """
    _flags(split_input=split_input, sequence_parallel=sequence_parallel)
    x = own_part(x_shard, comm, "x") if split_input else x_shard
    _checked(x, weight_shard, bias, ("x_shard", "weight_shard", "bias"))
    bounds = slice_bounds(shape_of(weight_shard, "weight_shard")[1], comm, slices)
    wire, more = options(stream, preference)
    acc = wide(x, "x_shard")
    rows, lead = as_rows(x, "x_shard")
    right, columns = transposed(weight_shard, "weight_shard"), shape_of(weight_shard, "weight_shard")[0]
    facts, reads = (*shape_of(rows, "x_shard")[:1], columns, shape_of(rows, "x_shard")[1], stream), (x, right, bias)
    lane, chunks = lane_for(overlap, comm, rows, *facts, sums=True, out=out, reads=reads)
    if lane is not None and _shared_out(lead, comm, sequence_parallel):
        shape = (lead[0] // size_of(comm), *lead[1:], columns) if sequence_parallel else (*lead, columns)
        if out is None or shape_of(out, "out") == shape:
            total = Summed(
                lane, "row_parallel_linear", rows, right, bounds, acc, chunks, sequence_parallel, more, bias,
                _flat_rows(out, columns),
            )  # fmt: skip
            y = total.result()
            return y.reshape(shape) if out is None else out
    partial = product_of_slices(rows, right, bounds, lambda a, b: matmul(a, b, out_element=acc, **more), stream)
    total, kind = _summed_over_ranks(partial, lead, comm, sequence_parallel, wire), str(read(x, "x_shard").element)
    if bias is None:
        return cast(total, kind, out=out, stream=stream)
    return elementwise(f"{kind}(s + b)")(s=total, b=bias, out=out, stream=stream)
