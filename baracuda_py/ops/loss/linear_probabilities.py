"""linear_cross_entropy against probabilities of the classes: chunks of rows, each of four calls of plans."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from ...core import Array, ElementKind
from ...core.checked import whole
from ...calls.composed import composed
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.outputs import beside, each_of
from ...core.views import cut, reshaped, shape_of, transposed
from ...expressions.reduce import reduce
from ...interop.packages import package_name
from ...core.arrays import read
from ...interop.torch_rules import requires_grad
from ...schedules.linear_loss import chunk_rows
from ..elementwise.affine import affine
from ..elementwise.binary_functions import add
from ..elementwise.cast import cast
from ..gemm.gemm import dense_gemm
from ..layout.creation import empty, full
from ..layout.concat import cat
from ..layout.moves import copy
from ..reduce.reduce import mean, sum as total  # type: ignore[attr-defined]
from .cross_entropy_terms import CrossEntropyTermsPlan, TargetKind, cross_entropy_of_probabilities
from .cross_entropy_terms_backward import cross_entropy_of_probabilities_backward
from .row_loss import REDUCTIONS

GRADIENTS = ("dx", "dweight", "dbias")


class _Rows:
    """A result of which each chunk makes some rows: in their place, or, in JAX, one below the other."""

    def __init__(self, shape: tuple[int, ...], element: ElementKind, like: Any, stream: Any, given: Any = None) -> None:
        self.array = given
        if given is None and package_name(type(like)) != "jax":
            with beside(like, stream):
                self.array = empty(shape, element, like=like)
        self.parts: list[Any] = []

    def place(self, first: int, stop: int) -> Any:
        """What a call takes as `out=` for some rows."""
        return None if self.array is None else cut(self.array, (slice(first, stop, 1),), "out")

    @property
    def all(self) -> Any:
        """All rows."""
        if self.array is not None:
            return self.array
        return self.parts[0] if len(self.parts) == 1 else cat(self.parts)


@cache
def _column_sums(element: ElementKind) -> Any:
    return reduce(f"{element}(g)", "sum", axis=0)


def _chunks(
    x: Any, weight: Any, q: Any, bias: Any, class_weight: Any, dloss: Any, wanted: set[str],
    terms: Mapping[str, Any], reduction: str, chunk: int, math_precision: str, out: Mapping[str, Any],
    options: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Those of loss, dx, dweight and dbias that are `wanted`, of matrices of rows; dloss: None for 1."""
    rows, hidden = shape_of(x, "x")
    classes, kind = shape_of(weight, "weight")[0], read(x, "x").element
    acc, per_row = kind.acc, reduction == "none"
    size = whole("chunk", chunk, 0) or chunk_rows(rows, classes, hidden, kind, "dweight" in wanted)
    share = 1 / max(rows, 1) if reduction == "mean" else 1.0
    if dloss is None:
        with beside(x, options["stream"]):
            up = full((rows,) if per_row else (), share, acc, like=x)
    else:
        up = affine(dloss, share, **options) if reduction == "mean" else dloss
    losses = (
        _Rows((rows,), acc, x, options["stream"], out.get("loss") if per_row else None) if "loss" in wanted else None
    )
    dx = _Rows((rows, hidden), kind, x, options["stream"], out.get("dx")) if "dx" in wanted else None
    product = {"math_precision": math_precision, **options}
    jax = package_name(type(x)) == "jax"
    dweight = dbias = None
    for first in range(0, rows, size) if rows else (0,):
        stop = min(first + size, rows)
        part, own = cut(x, (slice(first, stop, 1),), "x"), cut(q, (slice(first, stop, 1),), "probabilities")
        z = dense_gemm(part, transposed(weight, "weight"), bias=bias, **product)
        if losses is not None:
            to = losses.place(first, stop)
            losses.parts.append(
                cross_entropy_of_probabilities(z, own, class_weight, reduction="none", **terms, out=to, **options)
            )
        if not wanted & {*GRADIENTS}:
            continue
        g = cross_entropy_of_probabilities_backward(
            cut(up, (slice(first, stop, 1),), "dloss") if per_row else up, z, own, weight=class_weight,
            reduction="none" if per_row else "sum", return_dprobabilities=False, **terms, **options,
        )  # fmt: skip
        if dx is not None:
            dx.parts.append(dense_gemm(g, weight, out=dx.place(first, stop), **product))
        if "dweight" in wanted:
            onto: dict[str, Any] = {} if dweight is None else {"c": dweight}
            to = None if jax else dweight
            if dweight is None and kind is acc:
                to = out.get("dweight")
            dweight = dense_gemm(transposed(g, "g"), part, out_element=acc, out=to, **onto, **product)
        if "dbias" in wanted:
            sums = _column_sums(acc)(g, **options)
            dbias = sums if dbias is None else add(dbias, sums, **options)
    made: dict[str, Any] = {}
    if losses is not None:
        made["loss"] = losses.all
        if not per_row:
            made["loss"] = (mean if reduction == "mean" else total)(losses.all, out=out.get("loss"), **options)
    if dx is not None:
        made["dx"] = dx.all
    sums = {"dweight": dweight, "dbias": dbias}
    return made | {n: _rounded(v, kind, out.get(n), options) for n, v in sums.items() if v is not None}


def _rounded(x: Any, element: ElementKind, to: Any, options: dict[str, Any]) -> Any:
    """Sums of chunks in an element, in `to` where it is given."""
    if read(x, "sums").element is not element:
        return cast(x, element, out=to, **options)
    return x if to is None or x is to else copy(x, out=to, **options)


def _checked(
    x: Any, weight: Any, q: Any, bias: Any, reduction: str, out: Any
) -> tuple[tuple[int, ...], tuple[int, int], list[Any]]:
    """(x's leading axes, rows and classes, x and the probabilities as matrices)."""
    own, shape, wide = shape_of(x, "x"), shape_of(weight, "weight"), shape_of(q, "probabilities")
    if reduction not in REDUCTIONS:
        raise InvalidProblemError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    if not own or len(shape) != 2 or own[-1] != shape[1]:
        raise InvalidProblemError(f"x must be [*, hidden] and weight [classes, hidden], got {own} and {shape}")
    if wide != (*own[:-1], shape[0]):
        raise InvalidProblemError(f"probabilities must have shape {(*own[:-1], shape[0])}, got {wide}")
    if bias is not None and shape_of(bias, "bias") != shape[:1]:
        raise InvalidProblemError(f"bias must have shape {shape[:1]}, got {shape_of(bias, 'bias')}")
    elements = [read(one, name).element for one, name in ((x, "x"), (q, "probabilities"))]
    if elements[0] is not elements[1]:
        raise InvalidProblemError(f"probabilities must hold {elements[0]} as x does, got {elements[1]}; cast them")
    if out is not None and len(own) != 2:
        raise InvalidProblemError(f"out= is for x of two axes [rows, hidden], got shape {own}; reshape it first")
    rows = math.prod(own[:-1])
    matrices = [x, q]
    for place, (one, name) in enumerate(((x, "x"), (q, "probabilities"))):
        seen = reshaped(one, (rows, shape_of(one, name)[-1]), name)
        if seen is None:
            raise InvalidProblemError(f"the rows of {name} are no even steps apart; give a contiguous copy of it")
        matrices[place] = seen
    return own[:-1], (rows, shape[0]), matrices


def soft_targets(
    x: Any, weight: Any, q: Any, bias: Any, class_weight: Any, flags: Collection[str], terms: Mapping[str, Any],
    reduction: str, chunk: int, math_precision: str, out: Any, options: dict[str, Any],
) -> Any:  # fmt: skip
    """The loss, and after it the gradients that `flags` name, for an upstream gradient of 1."""
    names = [name for name in GRADIENTS if name in flags and (name != "dbias" or bias is not None)]
    if not names:
        return linear_cross_entropy_of_probabilities(
            x, weight, q, bias, class_weight, **terms, reduction=reduction, chunk=chunk, math_precision=math_precision,
            out=out, **options,
        )  # fmt: skip
    if requires_grad((x, weight, q, bias, class_weight)) and sys.modules["torch"].is_grad_enabled():
        raise UnsupportedError(
            f"linear_cross_entropy: return_{names[0]}=True makes the gradient itself, and an operand requires grad; "
            "give its .detach(), or leave it to autograd"
        )
    lead, _, (rows, own) = _checked(x, weight, q, bias, reduction, out)
    to = dict(zip(("loss", *names), each_of(out, 1 + len(names)), strict=True))
    made = _chunks(
        rows, weight, own, bias, class_weight, None, {"loss", *names}, terms, reduction, chunk, math_precision, to,
        options,
    )  # fmt: skip
    return (_shaped(made["loss"], lead, reduction), *(_shaped_like(made[n], x, n) for n in names))


def _shaped(loss: Any, lead: tuple[int, ...], reduction: str) -> Any:
    return loss if reduction != "none" or len(lead) == 1 else loss.reshape(lead)


def _shaped_like(made: Any, x: Any, name: str) -> Any:
    shape = shape_of(x, "x")
    return made.reshape(shape) if name == "dx" and len(shape) != 2 else made


@composed("linear_cross_entropy_of_probabilities_backward", "x", "weight", "bias")
@entry(CrossEntropyTermsPlan, kind=TargetKind.PROBABILITIES, ignore_index=-100)
def linear_cross_entropy_of_probabilities(
    x: Array, weight: Array, probabilities: Array, bias: Array | None = None, class_weight: Array | None = None, *,
    label_smoothing: float = 0.0, z_loss: float = 0.0, softcap: float = 0.0, reduction: str = "mean", chunk: int = 0,
    math_precision: str = "element", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`cross_entropy_of_probabilities` of x @ weightᵀ + bias, whose logits are never whole in memory.

    x [*, hidden], weight [classes, hidden], probabilities [*, classes] in x's element, class_weight [classes]. With
    z the logits (softcap tanh(z / softcap)), w the class weights (1 without), ε the label smoothing and q the
    probabilities a row's loss is Σ w[c] ((1 - ε) q[c] + ε / C) (lse - z[c]) + z_loss lse²; the mean is over the rows.

    chunk: rows at a time, 0 for what fits. Each chunk is two calls: the product, rounded to x's element, and
    `CrossEntropyTermsPlan`. The gradient makes the logits again and is of x, weight and bias, summed over the chunks in
    the accumulator's element and rounded once; probabilities and class weights are constants.
    """
    options = {"stream": stream, "preference": preference}
    lead, _, (rows, own) = _checked(x, weight, probabilities, bias, reduction, out)
    terms = {"label_smoothing": label_smoothing, "z_loss": z_loss, "softcap": softcap}
    (to,) = each_of(out, 1)
    made = _chunks(
        rows, weight, own, bias, class_weight, None, {"loss"}, terms, reduction, chunk, math_precision, {"loss": to},
        options,
    )  # fmt: skip
    return _shaped(made["loss"], lead, reduction)


@entry(CrossEntropyTermsPlan, kind=TargetKind.PROBABILITIES, ignore_index=-100)
def linear_cross_entropy_of_probabilities_backward(
    dloss: Array, x: Array, weight: Array, probabilities: Array, bias: Array | None = None,
    class_weight: Array | None = None, *, label_smoothing: float = 0.0, z_loss: float = 0.0, softcap: float = 0.0,
    reduction: str = "mean", chunk: int = 0, math_precision: str = "element", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """(dx, dweight, dbias) of `linear_cross_entropy_of_probabilities`; dbias is None without a bias.

    dloss: [], or [*] of reduction "none", in float32 (float64 of float64). Three products.
    """
    options = {"stream": stream, "preference": preference}
    lead, (count, _), (rows, own) = _checked(x, weight, probabilities, bias, reduction, out)
    wanted = lead if reduction == "none" else ()
    if shape_of(dloss, "dloss") != wanted:
        raise InvalidProblemError(f"dloss must have shape {wanted}, got {shape_of(dloss, 'dloss')}")
    if len(wanted) > 1 or (reduction == "none" and not wanted):
        dloss = reshaped(dloss, (count,), "dloss")
        if dloss is None:
            raise InvalidProblemError("the elements of dloss are no even steps apart; give a contiguous copy of it")
    terms = {"label_smoothing": label_smoothing, "z_loss": z_loss, "softcap": softcap}
    names = GRADIENTS if bias is not None else GRADIENTS[:2]
    to = dict(zip(GRADIENTS, each_of(out, 3), strict=True))
    made = _chunks(
        rows, weight, own, bias, class_weight, dloss, {*names}, terms, reduction, chunk, math_precision, to, options
    )
    return _shaped_like(made["dx"], x, "dx"), made["dweight"], made.get("dbias")
