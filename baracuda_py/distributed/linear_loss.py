"""The cross entropy of a layer whose rows, the classes, are spread over ranks, without its logits in memory."""

from __future__ import annotations

from typing import Any

from ..calls.composed import composed, may_grow
from ..core import Array
from ..core.arrays import read
from ..core.checked import truth
from ..core.errors import InvalidProblemError
from ..core.views import constant, shape_of
from ..interop.dynamo import uncompiled
from ..ops.elementwise.cast import cast
from ..ops.layout.concat import concat, stack
from ..ops.loss.linear_cross_entropy import LinearCrossEntropyPlan
from ..ops.loss.linear_cross_entropy_backward import linear_cross_entropy_backward
from ..ops.loss.linear_losses import linear_cross_entropy
from ..ops.reduce.reduce import logsumexp  # type: ignore[attr-defined]
from ..ops.reduce.reduce import sum as summed  # type: ignore[attr-defined]
from .collectives import all_gather, all_reduce
from .shares import (
    GRAPH,
    SLICES,
    TreeSum,
    as_rows,
    flat,
    layer,
    once,
    options,
    rank_of,
    refuse_traced,
    size_of,
    slice_bounds,
    wide,
)
from .vocabulary import Terms, formula, upstream


def _back(slopes: Any, y: Any, **given: Any) -> Any:
    facts = once(slopes, given) | {"stream": None}
    wanted: dict[str, Any] = {"return_dx": may_grow(given["x"]), "return_dweight": may_grow(given["weight_shard"])}
    return _slopes(slopes[0], slopes[1], y[1], y[2], **facts, **wanted)


@layer(LinearCrossEntropyPlan)
@composed(_back, "x", "weight_shard", "bias_shard", result=True)
def _loss(
    x: Array, weight_shard: Array, targets: Array, bias_shard: Array | None, comm: Any, ignore_index: int,
    z_loss: float, softcap: float, reduction: str, slices: int, chunk: int, out: Any, stream: Any, preference: Any,
) -> Any:  # fmt: skip
    """(loss, lse, parts): parts [slices of this rank, rows] is log Σ exp of each slice's logits."""
    refuse_traced(x, weight_shard, targets)
    shape, table = shape_of(x, "x"), shape_of(weight_shard, "weight_shard")
    if len(table) != 2 or not shape or shape[-1] != table[1] or shape_of(targets, "targets") != shape[:-1]:
        raise InvalidProblemError(
            f"x must be [*, hidden], weight_shard [classes, hidden] and targets [*], got {shape}, {table} and "
            f"{shape_of(targets, 'targets')}"
        )
    bounds, first_class = slice_bounds(table[0], comm, slices), rank_of(comm) * table[0]
    if any(first == end for first, end in bounds):
        raise InvalidProblemError(f"{table[0] * size_of(comm)} classes have no {slices} slices; give fewer")
    terms = Terms(table[0] * size_of(comm), ignore_index, 0.0, z_loss, reduction, stream)
    wire, _ = options(stream, preference)
    more = {"stream": stream, "preference": preference}  # slices have one shape on any number of ranks, and so one row
    matrix, lead = as_rows(x, "x")
    rows = shape_of(matrix, "x")[0]
    aims, found = flat(targets, stream), []
    for first, end in bounds:
        _, lse, target = linear_cross_entropy(
            matrix, weight_shard[first:end], aims, None if bias_shard is None else bias_shard[first:end],
            ignore_index=ignore_index, softcap=softcap, reduction="none", class_start=first_class + first, chunk=chunk,
            return_lse=True, return_target_logit=True, **more,
        )  # fmt: skip
        found += [lse, target]
    packed = stack(found, 0, stream=stream).reshape((len(bounds), 2, rows))
    every = packed if size_of(comm) == 1 else all_gather(packed, comm, axis=0, **wire)
    lse = logsumexp(every[:, 0], axis=0, stream=stream)
    rise = formula("l - t")(l=lse, t=summed(every[:, 1], axis=0, stream=stream), stream=stream)
    valid = terms.valid(aims)
    losses = terms.losses(valid, lse, rise, None)
    losses = losses.reshape(lead) if reduction == "none" else losses
    return terms.reduced(losses, valid, out), lse.reshape(lead), packed[:, 0]


@uncompiled(GRAPH)
def vocab_parallel_linear_cross_entropy(
    x: Array, weight_shard: Array, targets: Array, bias_shard: Array | None = None, comm: Any = None, *,
    ignore_index: int = -100, z_loss: float = 0.0, softcap: float = 0.0, reduction: str = "mean",
    slices: int = SLICES, chunk: int = 0, return_lse: bool = False, return_dx: bool = False,
    return_dweight: bool = False, return_dbias: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`bc.linear_cross_entropy` of a weight of which every rank has some rows: the logits are never in memory.

    x: [*, hidden] and targets: int32 or int64 [*], the same on every rank; weight_shard: [classes / ranks, hidden],
    rank 0's classes first; bias_shard: [classes / ranks]. With l = softcap tanh(x Wᵀ / softcap), or x Wᵀ + b,

        loss_i = lse - l[t] + ζ lse²           0 where t is ignore_index, or no class

    Loss and lse [*] (return_lse) are float32 (float64 of float64) and the same on every rank. Ranks exchange two
    numbers a row and slice. Gradients: dx, summed over slices and ranks in one binary tree of float32, and those of
    this rank's rows of weight and bias; bits do not depend on the number of ranks. Every slice's logits are made again
    for it. return_dx, return_dweight, return_dbias: the gradients for an upstream gradient of 1, too. out= is the loss.
    label_smoothing is not offered: `vocab_parallel_cross_entropy` of the logits has it.
    """
    flags = {"lse": return_lse, "dx": return_dx, "dweight": return_dweight, "dbias": return_dbias}
    flags = {name: truth(f"return_{name}", flag) for name, flag in flags.items()}
    facts: dict[str, Any] = {
        "comm": comm, "ignore_index": ignore_index, "z_loss": z_loss, "softcap": softcap, "reduction": reduction,
        "slices": slices, "chunk": chunk, "stream": stream, "preference": preference,
    }  # fmt: skip
    loss, lse, parts = _loss(x, weight_shard, targets, bias_shard, **facts, out=out)
    made = [loss, *([lse] if return_lse else [])]
    if return_dx or return_dweight or (return_dbias and bias_shard is not None):
        given = {"x": x, "weight_shard": weight_shard, "targets": targets, "bias_shard": bias_shard}
        held: dict[str, Any] = {name: None if one is None else constant(one) for name, one in given.items()}
        held |= {"return_dx": return_dx, "return_dweight": return_dweight}
        up = upstream(constant(loss), stream)
        slopes = _slopes(up, None, constant(lse), constant(parts), **held, **facts)
        made += [one for one, on in zip(slopes, (return_dx, return_dweight, return_dbias), strict=True) if on]
    return made[0] if len(made) == 1 else tuple(one for one in made if one is not None)


def _slopes(
    dloss: Any, dlse: Any, lse: Any, parts: Any, x: Any, weight_shard: Any, targets: Any, bias_shard: Any, comm: Any,
    ignore_index: int, z_loss: float, softcap: float, reduction: str, slices: int, chunk: int, stream: Any,
    preference: Any, return_dx: bool, return_dweight: bool,
) -> Any:  # fmt: skip
    """(dx, dweight_shard, dbias_shard), those not wanted, or of no bias, None. lse: [*]; parts: [this rank's slices,
    rows], each slice's own lse."""
    table = shape_of(weight_shard, "weight_shard")
    bounds, first_class = slice_bounds(table[0], comm, slices), rank_of(comm) * table[0]
    terms = Terms(table[0] * size_of(comm), ignore_index, 0.0, z_loss, reduction, stream)
    wire, _ = options(stream, preference)
    more = {"stream": stream, "preference": preference}  # slices have one shape on any number of ranks, and so one row
    matrix, lead = as_rows(x, "x")
    aims, whole = flat(targets, stream), flat(lse, stream)
    pull, hit = None, formula("0.0 * l")(l=whole, stream=stream)
    if dloss is not None:
        up = terms.slopes(dloss if reduction != "none" else flat(dloss, stream), terms.valid(aims))
        pull = formula("u * (1 + 2 * zeta * l) if u != 0 else 0.0")(u=up, l=whole, zeta=terms.zeta, stream=stream)
        hit = formula("-u")(u=up, stream=stream)
    if dlse is not None:
        own = flat(dlse, stream)
        pull = own if pull is None else formula("a + b")(a=pull, b=own, stream=stream)
    none = formula("0.0 * l")(l=hit, stream=stream)
    total, dweights, dbiases = TreeSum(stream=stream), [], []
    for part, (first, end) in zip(parts, bounds, strict=True):
        share = formula("p * exp(part - whole) if p != 0 else 0.0")(p=pull, part=part, whole=whole, stream=stream)
        made = linear_cross_entropy_backward(
            none, matrix, weight_shard[first:end], aims, part, None if bias_shard is None else bias_shard[first:end],
            dlse=share, dtarget_logit=hit, ignore_index=ignore_index, softcap=softcap, reduction="none",
            class_start=first_class + first, chunk=chunk, return_dx=return_dx, return_dweight=return_dweight,
            return_dbias=bias_shard is not None, **more,
        )  # fmt: skip
        rest = list(made) if isinstance(made, tuple) else [made]
        if return_dx:
            total.add(cast(rest.pop(0), wide(matrix, "x"), stream=stream), own=True)
        dweights += [rest.pop(0)] if return_dweight else []
        dbiases += rest
    dx = None
    if return_dx:
        dx = total.result() if size_of(comm) == 1 else all_reduce(total.result(), comm, **wire)
        dx = cast(dx, str(read(matrix, "x").element), stream=stream).reshape((*lead, table[1]))
    return dx, _joined(dweights, stream), _joined(dbiases, stream)


def _joined(parts: list[Any], stream: Any) -> Any:
    return None if not parts else parts[0] if len(parts) == 1 else concat(parts, 0, stream=stream)
