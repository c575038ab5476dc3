"""adaptive_log_softmax_with_loss: softmax of many classes by clusters of rare ones (Grave et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ...core import Array
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import shape_of
from ...expressions.elementwise import elementwise
from ..gemm.linear import linear
from ..reduce.reduce import mean  # type: ignore[attr-defined]
from .linear_cross_entropy import LinearCrossEntropyPlan
from .linear_losses import linear_cross_entropy


_NO_TARGET = -(2**31)  # the head ignores nothing, so that a checked run reports targets that are no class


@cache
def _formula(text: str, *numbers: str) -> Any:
    return elementwise(text, **dict.fromkeys(numbers, 0))


@cache
def _head_target(tails: int) -> Any:
    """The head's class of a target: itself, which may be none, or that of its cluster; -1 beyond all of them."""
    text = "-1"
    for k in reversed(range(tails)):
        text = f"where(t < end{k}, shortlist + {k}, {text})"
    return elementwise(f"where(t < shortlist, t, {text})", shortlist=0, **{f"end{k}": 0 for k in range(tails)})


def _ends(head_weight: Any, tails: Sequence[Any]) -> list[int]:
    """Where the shortlist and the clusters end among the classes."""
    shape = shape_of(head_weight, "head_weight")
    if len(shape) != 2 or shape[0] < len(tails):
        raise InvalidProblemError(f"head_weight must be [shortlist + {len(tails)} clusters, in], got {shape}")
    ends = [shape[0] - len(tails)]
    for k, pair in enumerate(tails):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidProblemError(f"tails[{k}] must be a pair (projection, weight), got {type(pair).__name__}")
        down, up = (shape_of(w, f"tails[{k}]") for w in pair)
        if len(down) != 2 or len(up) != 2 or down[1] != shape[1] or up[1] != down[0]:
            raise InvalidProblemError(
                f"tails[{k}] must be a projection [hidden, {shape[1]}] and a weight [classes, hidden], got {down} and "
                f"{up}"
            )
        ends.append(ends[-1] + up[0])
    return ends


@entry(LinearCrossEntropyPlan)
def adaptive_log_softmax_with_loss(
    x: Array, target: Array, head_weight: Array, tails: Sequence[tuple[Array, Array]] = (),
    head_bias: Array | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(output, loss): each row's log-probability of its target, and -mean of them: torch.nn.AdaptiveLogSoftmaxWithLoss.

    x [*, in], target [*] of int32 or int64. head_weight [shortlist + clusters, in] and head_bias have the frequent
    classes and then one for each cluster; tails has the clusters in order, pairs (projection [hidden, in], weight
    [classes, hidden]). Output and loss are in float32 at least.

    No logits in memory, and nothing is read back to the host: a cluster's projection is made for all rows, while its
    logits are made for the rows that it holds (`linear_cross_entropy`). A target that is no class has the output 0.
    """
    options, outs = {"stream": stream, "preference": preference}, each_of(out, 2)
    ends = _ends(head_weight, tails)
    bounds = {"shortlist": ends[0]} | {f"end{k}": end for k, end in enumerate(ends[1:])}
    facts = {"reduction": "none", **options}
    head = _head_target(len(tails))(t=target, **bounds, **options)
    terms = {"a": linear_cross_entropy(x, head_weight, head, head_bias, ignore_index=_NO_TARGET, **facts)}
    inside = _formula("where(t < start, -1, where(t < end, t - start, -1))", "start", "end")
    for k, (down, up) in enumerate(tails):
        local = inside(t=target, start=ends[k], end=ends[k + 1], **options)
        terms[f"b{k}"] = linear_cross_entropy(linear(x, down, **options), up, local, ignore_index=-1, **facts)
    output = _formula(f"-({' + '.join(terms)})")(**terms, out=outs[0], **options)
    return output, mean(_formula("-x")(x=output, **options), out=outs[1], **options)
