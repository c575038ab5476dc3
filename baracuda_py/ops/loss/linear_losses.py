"""Losses of a layer's logits without the logits: linear_cross_entropy, linear_kl and linear_log_prob of any axes."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array, ElementKind
from ...calls.functional import functional
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import reshaped, shape_of
from ...core.arrays import read
from ..elementwise.unary import neg  # type: ignore[attr-defined]
from .linear_cross_entropy import LinearCrossEntropyPlan
from .linear_kl import LinearKlPlan
from .linear_probabilities import soft_targets

_forward, _kl = functional(LinearCrossEntropyPlan), functional(LinearKlPlan)
_PER_ROW = ("lse", "target_logit")


@entry(LinearCrossEntropyPlan)
def linear_cross_entropy(
    x: Array, weight: Array, targets: Array, bias: Array | None = None, class_weight: Array | None = None, *,
    ignore_index: int = -100, label_smoothing: float = 0.0, z_loss: float = 0.0, softcap: float = 0.0,
    reduction: str = "mean", class_start: int | None = None, chunk: int = 0, math_precision: str = "element",
    logits_element: Any = None, return_lse: bool = False, return_target_logit: bool = False,
    return_total_weight: bool = False, return_dx: bool = False, return_dweight: bool = False,
    return_dbias: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """cross_entropy of x @ weightᵀ + bias (torch.nn.functional.linear_cross_entropy), whose logits are never whole in
    memory: x [*, hidden], weight [classes, hidden], targets [*]. See `LinearCrossEntropyPlan`.

    targets may be probabilities [*, classes] in x's element, see `linear_cross_entropy_of_probabilities`: they take no
    ignore_index, class_start, logits_element, and none of lse, target_logit and total_weight.

    With return_dx, return_dweight and return_dbias it gives the gradients for an upstream gradient of 1, too, which
    takes three products; autograd makes the logits again and takes four.
    """
    flags = {
        "lse": return_lse, "target_logit": return_target_logit, "total_weight": return_total_weight, "dx": return_dx,
        "dweight": return_dweight, "dbias": return_dbias,
    }  # fmt: skip
    facts = {
        "ignore_index": ignore_index, "label_smoothing": label_smoothing, "z_loss": z_loss, "softcap": softcap,
        "reduction": reduction, "class_start": class_start, "chunk": chunk, "math_precision": math_precision,
        "stream": stream, "preference": preference, **{f"return_{name}": flag for name, flag in flags.items()},
    }  # fmt: skip
    facts |= {} if logits_element is None else {"logits_element": ElementKind.of(logits_element)}
    whole, found = shape_of(x, "x"), read(targets, "targets")
    if found.element.is_float:
        refused = {
            "ignore_index": ignore_index != -100, "class_start": class_start is not None, "return_lse": return_lse,
            "return_target_logit": return_target_logit, "return_total_weight": return_total_weight,
            "logits_element": logits_element is not None and ElementKind.of(logits_element) is not found.element,
        }  # fmt: skip
        if names := [name for name, given in refused.items() if given]:
            raise InvalidProblemError(f"targets are probabilities, with which {names[0]} has no meaning; leave it out")
        return soft_targets(
            x, weight, targets, bias, class_weight, {name for name, flag in flags.items() if flag},
            {"label_smoothing": label_smoothing, "z_loss": z_loss, "softcap": softcap}, reduction, chunk,
            math_precision, out, {"stream": stream, "preference": preference},
        )  # fmt: skip
    if len(whole) == 2:
        return _forward(x, weight, targets, bias, class_weight, out=out, **facts)
    _check(whole, shape_of(targets, "targets"), out)
    rows = math.prod(whole[:-1])
    made = _forward(
        _rows(x, (rows, whole[-1]), "x"), weight, _rows(targets, (rows,), "targets"), bias, class_weight, **facts
    )
    return _of_rows(made, whole, reduction, flags, bias)


def _of_rows(made: Any, whole: tuple[int, ...], reduction: str, flags: dict[str, bool], bias: Any) -> Any:
    """The results for rows of x in the shape of x, `whole`; flags: which others than the loss there are."""
    lead = whole[:-1]
    names = ["loss", *(name for name, flag in flags.items() if flag and (name != "dbias" or bias is not None))]
    shapes = dict.fromkeys(_PER_ROW, lead) | {"dx": whole} | ({"loss": lead} if reduction == "none" else {})
    results = [
        one.reshape(shapes[name]) if name in shapes else one
        for name, one in zip(names, made if isinstance(made, tuple) else (made,), strict=True)
    ]
    return results[0] if len(results) == 1 else tuple(results)


@entry(LinearKlPlan)
def linear_kl(
    x: Array, weight: Array, teacher_x: Array, teacher_weight: Array, targets: Array | None = None,
    bias: Array | None = None, teacher_bias: Array | None = None, *, divergence: str = "forward", beta: float = 0.5,
    temperature: float = 1.0, ignore_index: int = -100, reduction: str = "mean", chunk: int = 0,
    math_precision: str = "element", return_dx: bool = False, return_dweight: bool = False, return_dbias: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The divergence of softmax(x @ weightᵀ + bias) from a teacher's, whose logits are never whole in memory either.

    x [*, hidden], weight [classes, hidden], teacher_x [*, its own], teacher_weight likewise, targets [*]. See
    `LinearKlPlan`. return_dx, return_dweight, return_dbias: the gradients for an upstream gradient of 1, too.
    """
    flags = {"dx": return_dx, "dweight": return_dweight, "dbias": return_dbias}
    facts = {
        "divergence": divergence, "beta": beta, "temperature": temperature, "ignore_index": ignore_index,
        "reduction": reduction, "chunk": chunk, "math_precision": math_precision, "stream": stream,
        "preference": preference, **{f"return_{name}": flag for name, flag in flags.items()},
    }  # fmt: skip
    whole = shape_of(x, "x")
    if len(whole) == 2:
        return _kl(x, weight, teacher_x, teacher_weight, targets, bias, teacher_bias, out=out, **facts)
    _check(whole, whole[:-1] if targets is None else shape_of(targets, "targets"), out)
    taught, rows = shape_of(teacher_x, "teacher_x"), math.prod(whole[:-1])
    if taught[:-1] != whole[:-1]:
        raise InvalidProblemError(f"teacher_x must have the leading axes of x, {whole[:-1]}, got shape {taught}")
    made = _kl(
        _rows(x, (rows, whole[-1]), "x"), weight, _rows(teacher_x, (rows, taught[-1]), "teacher_x"), teacher_weight,
        None if targets is None else _rows(targets, (rows,), "targets"), bias, teacher_bias, **facts,
    )  # fmt: skip
    return _of_rows(made, whole, reduction, flags, bias)


def _rows(x: Any, shape: tuple[int, ...], name: str) -> Any:
    """x with all its rows along one axis."""
    view = reshaped(x, shape, name)
    if view is None:
        raise InvalidProblemError(f"the rows of {name} are no even steps apart; give a copy of it, reshaped to {shape}")
    return view


def _check(whole: tuple[int, ...], targets: tuple[int, ...], out: Any) -> None:
    """x of other than two axes: its targets have all but the last, and its results are views of what is made."""
    if not whole or targets != whole[:-1]:
        raise InvalidProblemError(
            f"targets must have the shape of x without its last axis, {whole[:-1]}, got {targets}"
        )
    if out is not None:
        raise InvalidProblemError(f"out= is for x of two axes [rows, hidden], got shape {whole}; reshape it first")


@entry(LinearCrossEntropyPlan)
def linear_log_prob(
    x: Array, weight: Array, targets: Array, bias: Array | None = None, *, ignore_index: int = -100,
    softcap: float = 0.0, chunk: int = 0, math_precision: str = "element", logits_element: Any = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """log softmax(x @ weightᵀ + bias)[target] of every row, 0 where it is ignored: x [*, hidden], targets [*].

    What DPO, ORPO, SimPO and GRPO sum over tokens, without the logits in memory. See `LinearCrossEntropyPlan`.
    """
    rest = {"stream": stream, "preference": preference}
    loss = linear_cross_entropy(
        x, weight, targets, bias, ignore_index=ignore_index, softcap=softcap, reduction="none", chunk=chunk,
        math_precision=math_precision, logits_element=logits_element, **rest,
    )  # fmt: skip
    return neg(loss, out=out, **rest)
