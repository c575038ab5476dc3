"""A vocabulary spread over ranks: its embedding, and the cross entropy of logits of which each has some classes.

Shoeybi et al. 2019 (Megatron-LM). Every rank has as many rows or classes, rank 0's first.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..calls.composed import composed
from ..core import Array
from ..core.arrays import read
from ..core.checked import real, shown, truth, whole
from ..core.errors import InvalidProblemError
from ..core.outputs import beside
from ..core.views import constant, shape_of
from ..expressions.elementwise import elementwise
from ..interop.dynamo import uncompiled
from ..ops.elementwise.cast import cast
from ..ops.embedding.embedding import EmbeddingPlan
from ..ops.embedding.embedding_backward import embedding_backward
from ..ops.embedding.embedding_forms import vocab_parallel_embedding as rows_of_part
from ..ops.indexing.mask_functions import take_along_axis
from ..ops.layout.concat import stack
from ..ops.layout.creation import arange, ones_like
from ..ops.loss.cross_entropy import REDUCTIONS, CrossEntropyLossPlan, cross_entropy
from ..ops.reduce.reduce import amax  # type: ignore[attr-defined]
from ..ops.reduce.reduce import sum as summed  # type: ignore[attr-defined]
from .collectives import all_gather, all_reduce, reduce_scatter
from .shares import (
    GRAPH,
    SLICES,
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
    wide_sum,
)


@cache
def formula(text: str) -> Any:
    """The function of a formula; made once."""
    return elementwise(text)


def own_rows(indices: Any, rows: int, comm: Any, stream: Any) -> Any:
    """Indices of a table as those of this rank's rows, below 0 where another rank has the row."""
    start = rank_of(comm) * rows
    return formula("int64(i) - n if i >= n and i < e else -1")(i=indices, n=start, e=start + rows, stream=stream)


def vocab_parallel_embedding_backward(
    dy: Array, indices: Array, weight_shard: Array, comm: Any = None, *, sequence_parallel: bool = False,
    dweight_element: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The gradient of weight_shard in `vocab_parallel_embedding`; of weight_shard itself only the shape is read.

    dy: [*indices, dim], the same on every rank, with sequence_parallel this rank's part of axis 0. dweight_element as
    of `column_parallel_linear_backward`.
    """
    wire, _ = options(stream, preference)
    if sequence_parallel and size_of(comm) > 1:
        dy = all_gather(dy, comm, axis=0, **wire)
    rows, _ = shape_of(weight_shard, "weight_shard")
    own = own_rows(indices, rows, comm, stream)
    made = embedding_backward(dy, own, num_embeddings=rows, stream=stream)
    return made if dweight_element is None else cast(made, str(dweight_element), stream=stream)


def _embedding_back(dy: Any, **given: Any) -> Any:
    return vocab_parallel_embedding_backward(dy, **once(dy, given))


@layer(EmbeddingPlan)
@composed(_embedding_back, "weight_shard", reads=("indices",))
def vocab_parallel_embedding(
    indices: Array, weight_shard: Array, comm: Any = None, *, sequence_parallel: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """weight[indices] of a table of which every rank has some rows (Megatron's VocabParallelEmbedding).

    indices: int32 or int64, any shape, the same on every rank, of the whole table; those outside give rows of 0.
    weight_shard: [rows / ranks, dim]. The result, [*indices, dim], is on every rank; with sequence_parallel each has
    its part of axis 0. One rank alone has each row, so the sum over ranks is exact. The gradient of weight_shard is
    that of its own rows, in a fixed order of sums. `bc.vocab_parallel_embedding` is the part without the sum.
    """
    truth("sequence_parallel", sequence_parallel)
    refuse_traced(indices, weight_shard)
    shape = shape_of(weight_shard, "weight_shard")
    if len(shape) != 2:
        raise InvalidProblemError(f"weight_shard must be [rows, dim], got shape {shape}")
    wire, more = options(stream, preference)
    if size_of(comm) == 1:
        return rows_of_part(indices, weight_shard, 0, out=out, **more)
    found = rows_of_part(indices, weight_shard, rank_of(comm) * shape[0], **more)
    return (reduce_scatter if sequence_parallel else all_reduce)(found, comm, out=out, **wire)


class Terms:
    """The facts of a loss of classes: checked numbers, and its formulas of per-row arrays.

    lse = top + log(total), t the target's logit, mass = Σ logits; valid rows have a target that is not ignore_index.
    """

    def __init__(
        self, classes: int, ignore_index: int, label_smoothing: float, z_loss: float, reduction: str, stream: Any
    ) -> None:
        self.ignore = whole("ignore_index", ignore_index)
        self.eps, self.zeta = real("label_smoothing", label_smoothing), real("z_loss", z_loss)
        if not 0 <= self.eps <= 1 or self.zeta < 0:
            raise InvalidProblemError(
                f"label_smoothing must be in [0, 1] and z_loss at least 0, got {label_smoothing} and {z_loss}"
            )
        if reduction not in REDUCTIONS:
            raise InvalidProblemError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {shown(reduction)}")
        self.classes, self.reduction, self.more = classes, reduction, {"stream": stream}

    def valid(self, targets: Any) -> Any:
        """Of every row, whether it counts, as an integer."""
        return formula("int64(t != ignore and t >= 0 and t < classes)")(
            t=targets, ignore=self.ignore, classes=self.classes, **self.more
        )

    def losses(self, valid: Any, lse: Any, rise: Any, mass: Any) -> Any:
        """Of every row; rise = lse - t."""
        if mass is None:
            made = formula("r + zeta * l * l if v > 0 else 0.0")
            return made(r=rise, l=lse, v=valid, zeta=self.zeta, **self.more)
        text = "(1 - eps) * r + eps * (l - m / n) + zeta * l * l if v > 0 else 0.0"
        facts = {"eps": self.eps, "zeta": self.zeta, "n": float(self.classes)}
        return formula(text)(r=rise, l=lse, m=mass, v=valid, **facts, **self.more)

    def reduced(self, losses: Any, valid: Any, out: Any) -> Any:
        """The loss that is asked for; the mean over no rows is NaN."""
        if self.reduction == "none":
            return losses if out is None else cast(losses, str(read(losses, "losses").element), out=out, **self.more)
        total = summed(losses, out=out if self.reduction == "sum" else None, **self.more)
        if self.reduction == "sum":
            return total
        return formula("s / n")(s=total, n=summed(valid, **self.more), out=out, **self.more)

    def slopes(self, dloss: Any, valid: Any) -> Any:
        """The upstream gradient of every row's loss, 0 of rows that do not count."""
        if self.reduction != "mean":
            return formula("d if v > 0 else 0.0")(d=dloss, v=valid, **self.more)
        count = summed(valid, **self.more)
        return formula("d / n if v > 0 else 0.0")(d=dloss, v=valid, n=count, **self.more)


def _stats(
    logits: Any, targets: Any, bounds: Any, smoothing: bool, comm: Any, wire: dict[str, Any], more: dict[str, Any]
) -> Any:
    """[slices, 3 or 4, rows] of all ranks: maximum, Σ exp(logit - maximum), the target's logit where the rank has it
    (in its first slice, else 0), and with smoothing Σ logits."""
    (rows, classes), stream = shape_of(logits, "logits_shard"), more["stream"]
    acc = wide(logits, "logits_shard")
    own = own_rows(targets, classes, comm, stream)
    column = formula("max(i, 0)")(i=own, stream=stream).reshape((rows, 1))
    found = take_along_axis(logits, column, -1, **more).reshape((rows,))
    target = formula(f"{acc}(x) if i >= 0 else 0.0")(x=found, i=own, stream=stream)
    none = formula("0 * i")(i=own, stream=stream)
    made = []
    for first, end in bounds:
        _, stats = cross_entropy(logits[:, first:end], none, reduction="none", return_stats=True, **more)
        made += [stats[:, 0], stats[:, 1], target]
        made += [wide_sum(logits[:, first:end], -1, more)] if smoothing else []
        target = formula("0 * x")(x=target, stream=stream)
    packed = stack(made, 0, stream=stream).reshape((len(bounds), 3 + smoothing, rows))
    return packed if size_of(comm) == 1 else all_gather(packed, comm, axis=0, **wire)


def _loss_back(slopes: Any, y: Any, **given: Any) -> Any:
    facts = once(slopes, given) | {"stream": None}
    facts.pop("preference")
    return _slope(slopes[0], slopes[1], y[1], y[2], **facts)


@layer(CrossEntropyLossPlan)
@composed(_loss_back, "logits_shard", result=True)
def _loss(
    logits_shard: Array, targets: Array, comm: Any, ignore_index: int, label_smoothing: float, z_loss: float,
    reduction: str, slices: int, out: Any, stream: Any, preference: Any,
) -> Any:  # fmt: skip
    """(loss, lse, stats): what the gradient needs of all ranks is in stats, [2, rows]."""
    refuse_traced(logits_shard, targets)
    shape, size = shape_of(logits_shard, "logits_shard"), size_of(comm)
    if not shape or shape_of(targets, "targets") != shape[:-1]:
        raise InvalidProblemError(
            f"targets must have the shape of logits_shard without its last axis, got {shape_of(targets, 'targets')} "
            f"beside {shape}"
        )
    bounds = slice_bounds(shape[-1], comm, slices)
    if any(first == end for first, end in bounds):
        raise InvalidProblemError(f"a vocabulary of {shape[-1] * size} classes has no {slices} slices; give fewer")
    terms = Terms(shape[-1] * size, ignore_index, label_smoothing, z_loss, reduction, stream)
    wire, more = options(stream, preference)
    logits, lead = as_rows(logits_shard, "logits_shard")
    aims = flat(targets, stream)
    every = _stats(logits, aims, bounds, terms.eps > 0, comm, wire, more)
    top = amax(every[:, 0], axis=0, stream=stream)
    share = formula("s * exp(m - top) if m > -inf else 0.0")(s=every[:, 1], m=every[:, 0], top=top, stream=stream)
    total, target = (summed(x, axis=0, stream=stream) for x in (share, every[:, 2]))
    mass = summed(every[:, 3], axis=0, stream=stream) if terms.eps else None
    lse = formula("top + log(total)")(top=top, total=total, stream=stream)
    rise = formula("log(total) - (t - top)")(total=total, t=target, top=top, stream=stream)
    valid = terms.valid(aims)
    losses = terms.losses(valid, lse, rise, mass)
    if reduction == "none":
        losses = losses.reshape(lead)
    loss = terms.reduced(losses, valid, out)
    return loss, lse.reshape(lead), stack([top, total], 0, stream=stream)


@uncompiled(GRAPH)
def vocab_parallel_cross_entropy(
    logits_shard: Array, targets: Array, comm: Any = None, *, ignore_index: int = -100, label_smoothing: float = 0.0,
    z_loss: float = 0.0, reduction: str = "mean", slices: int = SLICES, return_lse: bool = False,
    return_dlogits: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`bc.cross_entropy` of logits of which every rank has some classes (Megatron's vocab_parallel_cross_entropy).

    logits_shard: [*, classes / ranks], rank 0's classes first; targets: int32 or int64 [*], of all classes, the same on
    every rank. With lse = log Σ over all ranks of exp(l), ε the label smoothing, ζ the z-loss and C all classes

        loss_i = (1 - ε) (lse - l[t]) + ε / C Σ_c (lse - l[c]) + ζ lse²       0 where t is ignore_index, or no class

    The loss, and lse [*] with return_lse, are float32 (float64 of float64) and the same on every rank. Ranks exchange
    three or four numbers a row and slice, once: each slice's maximum, Σ exp and sum, and the target's logit; sums over
    slices are each rank's own, so that bits do not depend on the number of ranks. The gradient of logits_shard, by
    torch's autograd or, for an upstream gradient of 1, with return_dlogits, exchanges nothing. out= is the loss.
    Errors: InvalidProblemError for shapes, options and slices that do not fit.
    """
    facts: dict[str, Any] = {
        "comm": comm, "ignore_index": ignore_index, "label_smoothing": label_smoothing, "z_loss": z_loss,
        "reduction": reduction, "slices": slices, "stream": stream,
    }  # fmt: skip
    flags = truth("return_lse", return_lse), truth("return_dlogits", return_dlogits)
    loss, lse, stats = _loss(logits_shard, targets, **facts, out=out, preference=preference)
    made = [loss, *([lse] if flags[0] else [])]
    if flags[1]:
        up, logits = upstream(constant(loss), stream), constant(logits_shard)
        made.append(_slope(up, None, constant(lse), constant(stats), logits, targets, **facts))
    return made[0] if len(made) == 1 else tuple(made)


def upstream(loss: Any, stream: Any) -> Any:
    """The upstream gradient 1 of a loss, or of the losses of all rows."""
    with beside(loss, stream):
        return ones_like(loss)


def _slope(
    dloss: Any, dlse: Any, lse: Any, stats: Any, logits_shard: Any, targets: Any, comm: Any, ignore_index: int,
    label_smoothing: float, z_loss: float, reduction: str, slices: int, stream: Any,
) -> Any:  # fmt: skip
    """The gradient of logits_shard, in its element. stats: [2, rows], each row's maximum and Σ exp of all ranks."""
    shape = shape_of(logits_shard, "logits_shard")
    classes, rows = shape[-1], shape_of(stats, "stats")[1]
    terms = Terms(classes * size_of(comm), ignore_index, label_smoothing, z_loss, reduction, stream)
    logits, _ = as_rows(logits_shard, "logits_shard")
    valid = terms.valid(flat(targets, stream))
    arrays = {"l": logits, "top": stats[0].reshape((rows, 1)), "total": stats[1].reshape((rows, 1))}
    facts: dict[str, Any] = {}
    pull, hit = "0.0", ""
    if dloss is not None:
        with beside(logits, stream):
            arrays["c"] = arange(classes, element="int64", like=logits)
        arrays["i"] = own_rows(flat(targets, stream), classes, comm, stream).reshape((rows, 1))
        up = terms.slopes(dloss if reduction != "none" else flat(dloss, stream), valid)
        arrays["up"] = up.reshape((rows, 1))
        facts |= {"eps": terms.eps, "share": terms.eps / terms.classes}
        pull, hit = "up", " - up * ((1 - eps if c == i else 0.0) + share)"
        if terms.zeta:
            arrays["lse"], facts["zeta"] = lse.reshape((rows, 1)), terms.zeta
            pull = "up * (1 + 2 * zeta * lse)"
    if dlse is not None:
        arrays["dlse"] = flat(dlse, stream).reshape((rows, 1))
        pull = f"{pull} + dlse"
    kind, slope = str(read(logits, "logits_shard").element), f"exp(l - top) / total * ({pull}){hit}"
    if dlse is None:  # a row that is left out has the gradient 0, whatever its logits are
        arrays["v"] = valid.reshape((rows, 1))
        slope = f"{slope} if v > 0 else 0.0"
    return formula(f"{kind}({slope})")(**arrays, **facts, stream=stream).reshape(shape)
