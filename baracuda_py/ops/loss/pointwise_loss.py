"""pointwise_loss: a loss of every element by one of `LossKind`, or their mean or sum; and one function per kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Params, Plan, Problem,
    Relative, Variant, View, Vjp, choice, derived, element, extents, flag, number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...calls.entries import entry
from ...core.tensor import Shape, broadcast_shape
from ...core.views import shape_of, with_axis
from ...core.numbers import plain
from ...schedules.loss_sums import to_one
from ...schedules.map import map_geometry, map_kernels, map_params
from ...schedules.reduce import reduce_geometry, reduce_kernels, reduce_params
from .loss_kinds import OPTIONS, LossKind, random_weights, values

K = LossKind
REDUCTIONS = ("none", "mean", "sum", "batchmean")


def _default(name: str) -> Any:
    """What a kind has for a field that is not given."""
    return derived(lambda desc: desc.kind.row.takes.get(name, OPTIONS[name]))


@dataclass(frozen=True, kw_only=True)
class PointwiseLossDescriptor(Descriptor):
    """Operands have shapes that broadcast to `shape`; the loss has shape () or, with reduction "none", `shape`.

    beta: of smooth_l1_loss (from 0 on; at 0 it is l1_loss) and of generalized_jsd_loss (in [0, 1]). delta: of
    huber_loss. margin: of hinge_embedding_loss and margin_ranking_loss. eps: what poisson_nll_loss adds to the input
    before its logarithm, and the least variance of gaussian_nll_loss; variance: its variance where var is None. alpha
    (below 0: none) and gamma: of sigmoid_focal_loss. log_target, log_input and full are PyTorch's.
    """

    kind: LossKind = choice(LossKind)
    shape: Shape = extents()
    reduction: str = choice(REDUCTIONS, derived(lambda desc: desc.kind.row.reduction))
    beta: float = number(_default("beta"), minimum=0.0)
    delta: float = number(_default("delta"), above=0.0)
    margin: float = number(_default("margin"))
    eps: float = number(_default("eps"), minimum=0.0)
    alpha: float = number(_default("alpha"), maximum=1.0)
    gamma: float = number(_default("gamma"), minimum=0.0)
    variance: float = number(_default("variance"), minimum=0.0)
    log_target: bool = flag(_default("log_target"))
    log_input: bool = flag(_default("log_input"))
    full: bool = flag(_default("full"))
    element: ElementKind = element()

    def validate(self) -> None:
        row, name = self.kind.row, self.kind.value
        for option, usual in OPTIONS.items():
            value = getattr(self, option)
            if option not in row.takes and value != usual:
                raise InvalidProblemError(f"{name} has no {option}; it must be {usual}, got {value}")
        if self.kind is K.JSD and self.beta > 1:
            raise InvalidProblemError(f"beta of {name} must be in [0, 1], got {self.beta}")
        if self.reduction == "batchmean" and not (row.rows and self.shape):
            raise InvalidProblemError(
                f'reduction "batchmean" is for kl_div_loss and generalized_jsd_loss of one axis at least, got {name} '
                f"of shape {self.shape}"
            )

    @property
    def loss_shape(self) -> Shape:
        """One loss an element, or one in all."""
        return self.shape if self.reduction == "none" else ()

    @property
    def loss_element(self) -> ElementKind:
        """The operands' element for losses of elements; their means and sums are in the accumulator's."""
        return self.element if self.reduction == "none" else self.acc

    @property
    def divisor(self) -> int | None:
        """What a sum of the terms is divided by; None for a sum."""
        if self.reduction == "mean":
            return math.prod(self.shape)
        return self.shape[0] if self.reduction == "batchmean" else None


@dataclass(slots=True, kw_only=True)
class PointwiseLossArgs(Args):
    """Any strides; operands broadcast. loss is in the operands' element, means and sums in the accumulator's.

    weight: each term is multiplied by it. other: the second input of margin_ranking_loss. var: of gaussian_nll_loss.
    pos_weight: of binary_cross_entropy_with_logits.
    """

    x: Array = operand("*shape", broadcast=True, values=values("x"))
    other: Array | None = operand("*shape", broadcast=True, kinds=(K.MARGIN_RANKING,), values=values("v"))
    target: Array = operand("*shape", broadcast=True, values=values("t"))
    var: Array | None = operand("*shape", broadcast=True, optional=True, kinds=(K.GAUSSIAN_NLL,), values=values("v"))
    weight: Array | None = operand("*shape", broadcast=True, optional=True, values=random_weights)
    pos_weight: Array | None = operand(
        "*shape", broadcast=True, optional=True, kinds=(K.BCE_WITH_LOGITS,), values=values("v")
    )
    loss: Array = output("*loss_shape", element="loss_element")


def third_of(desc: Any, operands: Mapping[str, Any], dtype: Any) -> Any:
    """The third operand of a term, or the number in its place."""
    found = operands.get(desc.kind.row.third)
    return dtype.type(third_number(desc)) if found is None else found


def third_number(desc: Any) -> float:
    """What stands in the place of a third operand that is absent."""
    return float(desc.variance) if desc.kind is K.GAUSSIAN_NLL else 1.0


def reference(
    desc: PointwiseLossDescriptor, *, x: Any, other: Any, target: Any, var: Any, weight: Any, pos_weight: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in."""
    v = third_of(desc, {"other": other, "var": var, "pos_weight": pos_weight}, x.dtype)
    with np.errstate(all="ignore"):
        terms = np.asarray(desc.kind.row.term(desc, x, target, v), x.dtype)
        terms = np.broadcast_to(terms if weight is None else terms * weight, desc.shape)
        if desc.reduction == "none":
            return {"loss": terms}
        return {"loss": np.sum(terms) / denominator(desc, weight, x.dtype)}


def denominator(desc: Any, weight: Any, dtype: Any) -> Any:
    """What the sum of the terms is divided by, in NumPy; 1 for a sum."""
    if by_weight(desc, weight):
        return np.sum(np.broadcast_to(weight, desc.shape))
    return dtype.type(1) if desc.divisor is None else np.asarray(desc.divisor).astype(dtype)


def by_weight(desc: Any, weight: Any) -> bool:
    """Whether the mean is divided by the sum of the weights."""
    return weight is not None and desc.reduction == "mean" and desc.kind.row.by_weight


NUMBERS = {"first": "f64", "second": "f64", "third_number": "f64", "divisor": "f64", "flags": "i32", "divided": "i32"}
OPERANDS = ("x", "target", "third", "weight")
MAP = Params("PointwiseLossParams", y="ptr", **dict.fromkeys(OPERANDS, "ptr"), **NUMBERS, **map_params(5))


def constants(desc: Any) -> dict[str, Any]:
    """The options as the functors read them."""
    row = desc.kind.row
    first, second = (*(getattr(desc, name) for name in row.numbers), 0.0, 0.0)[:2]
    return {
        "first": first, "second": second, "third_number": third_number(desc), "divisor": desc.divisor or 0,
        "flags": sum(getattr(desc, name) << i for i, name in enumerate(row.flags)),
        "divided": int(desc.divisor is not None),
    }  # fmt: skip


def operands_of(p: Problem) -> dict[str, View | None]:
    """x, target, the third operand and the weights, broadcast; None for those that are absent."""
    third = p.desc.kind.row.third
    found = (p.x, p.target, p.views[third] if third else None, p.weight)
    return {n: None if v is None else v.broadcast_to(p.desc.shape) for n, v in zip(OPERANDS, found, strict=True)}


def names_of(desc: Any, views: Mapping[str, View | None], absent: str) -> dict[str, str]:
    """What the kernels' pointers mean: the operands' names, and `absent` for those that are not there."""
    named = {"x": "x", "target": "target", "third": desc.kind.row.third, "weight": "weight"}
    return {n: named[n] if views[n] is not None else absent for n in OPERANDS}


def _sum(p: Problem) -> Geometry | str:
    views = operands_of(p)
    if p.desc.reduction == "none":
        return "the losses are not added up"
    if views["weight"] is not None or (views["third"] is None) != (p.desc.kind not in _THREE):
        return "there are weights, or a number in the place of an operand"
    held = [view for view in views.values() if view is not None]
    at = {**names_of(p.desc, views, "x"), "y": "loss", **constants(p.desc)}
    if p.desc.kind not in _THREE:
        at = {n: v for n, v in at.items() if n != "third"}
    at.pop("weight")
    return reduce_geometry(p, held, (p.loss,), _every(p), mapped=True, values=at)


def _every(p: Problem) -> tuple[int, ...]:
    return tuple(range(len(p.desc.shape)))


def stand_in(view: View, shape: Shape) -> View:
    """What is read, and not used, in the place of an operand that is absent: the first element of another."""
    return View(view.ptr, shape, (0,) * len(shape), view.element)


def _general(p: Problem) -> Geometry | str:
    """Losses of elements by the map; sums of any operands."""
    views = operands_of(p)
    if p.desc.reduction == "none":
        at = {**names_of(p.desc, views, "@null"), "y": "loss", **constants(p.desc)}
        return map_geometry(p, (p.loss, *views.values()), at)
    held = [stand_in(p.x, p.desc.shape) if v is None else v for v in views.values()]
    bits = (views["third"] is not None) + 2 * (views["weight"] is not None)
    at = {**names_of(p.desc, views, "x"), "y": "loss", **constants(p.desc), "present": bits}
    if by_weight(p.desc, p.weight):
        at["divided"] = 2
    return reduce_geometry(p, held, (p.loss,), _every(p), mapped=True, values=at, prefix="weighted_")


_THREE = (K.GAUSSIAN_NLL, K.MARGIN_RANKING)
_TWO = tuple(kind for kind in LossKind if kind not in _THREE)
_SOURCE, _SUM_SOURCE = "loss/pointwise_loss.cu", "loss/pointwise_loss_sum.cu"
_BOUND = Guarantee(Relative(2), batch_invariant=True)


def _row(name: str, kinds: tuple[LossKind, ...], operands: int) -> Variant:
    types = ", ".join(["{T}"] * operands)
    params = reduce_params(f"PointwiseLoss{operands}Params", OPERANDS[:operands], **NUMBERS)
    return Variant(
        name, _sum, source=_SUM_SOURCE, kinds=kinds, guarantee=_BOUND,
        kernels=to_one(
            reduce_kernels("LossSum<{T}>", params, source=f"Mapped<LossTerm<{{KIND}}<{{A}}>, {{T}}>, {types}>")
        ), may_spill=kinds is _TWO,
    )  # fmt: skip


_GENERAL = reduce_params("PointwiseLossWeightedParams", OPERANDS, present="i32", **NUMBERS)


def in_torch(
    torch: Any, desc: PointwiseLossDescriptor, *, x: Any, other: Any, target: Any, var: Any, weight: Any,
    pos_weight: Any,
) -> Any:  # fmt: skip
    """PyTorch's function of the kind."""
    v = {"other": other, "var": var, "pos_weight": pos_weight}.get(desc.kind.row.third)
    if v is None and desc.kind is K.GAUSSIAN_NLL:
        v = torch.full((), desc.variance, dtype=x.dtype, device=x.device)
    whole = [None if one is None else one.broadcast_to(desc.shape) for one in (x, target, v, weight)]
    made = desc.kind.row.torch(torch.nn.functional, desc, *whole, desc.reduction)
    return made if desc.reduction == "none" else made.to(torch.promote_types(made.dtype, torch.float32))


class PointwiseLossPlan(Plan):
    """A loss of every element of x and target by `LossKind`, or their mean or sum (torch.nn.functional's losses).

    With d = x - target: mse d², l1 |d|, smooth_l1 d² / (2 beta) for |d| < beta and |d| - beta / 2 else, huber d² / 2
    for |d| <= delta and delta (|d| - delta / 2) else. binary_cross_entropy of probabilities, whose logarithms are -100
    at least, and of logits, where pos_weight multiplies the target's part; of infinite logits it is the limit.
    kl_div_loss (torch's kl_div): target (log target - x), 0 for a target of 0. poisson_nll, gaussian_nll (the variance
    is eps at least, and has its gradient there, too), hinge_embedding, soft_margin and margin_ranking are PyTorch's,
    sigmoid_focal_loss torchvision's. generalized_jsd_loss of log-probabilities x = log q and target = log p:
    beta p (log p - log m) + (1 - beta) q (log q - log m) with m = beta p + (1 - beta) q, the divergence of p from q for
    beta = 0 and of q from p for beta = 1 (Liger Kernel's).

    weight multiplies every term. The mean is the sum over the number of elements, of mse_loss and l1_loss with weights
    over the sum of those; "batchmean" is the sum over the first extent. The mean of nothing is NaN. Terms are computed
    and added in float32 (float64 of float64), in an order that the number of elements alone fixes.
    """

    op = "loss.pointwise_loss"
    kinds = LossKind
    descriptor = PointwiseLossDescriptor
    args = PointwiseLossArgs
    reference = staticmethod(reference)
    value_policy = (
        "a probability outside [0, 1] has a loss of NaN; a variance below eps counts as eps; a target of a margin loss "
        "that is neither 1 nor -1 enters the formula as it is"
    )
    vjp = Vjp("PointwiseLossBackwardPlan", grads={"x": "dx", "other": "dother", "target": "dtarget", "var": "dvar"})
    variants = (
        _row("sum", _TWO, 2),
        _row("sum_three", _THREE, 3),
        Variant(
            "general", _general, source=_SUM_SOURCE, guarantee=_BOUND,
            kernels=(*map_kernels("pointwise_loss<{KIND}<{A}>, {T}, {LAYOUT}>", MAP, source=_SOURCE),
                     *to_one(reduce_kernels("WeightedLossSum<{T}>", _GENERAL, prefix="weighted_",
                                            source="Mapped<WeightedLossTerm<{KIND}<{A}>, {T}>, {T}, {T}, {T}, {T}>"))),
            may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{kind} 134M bf16, {reduction}", shape=1 << 27, kind=kind, reduction=reduction, element="bfloat16")
        for kind in ("mse_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits", "kl_div_loss")
        for reduction in ("mean", "none")
    )

    @staticmethod
    def case(draw: Any) -> PointwiseLossDescriptor:
        return PointwiseLossDescriptor(kind=draw.kind, **loss_case(draw), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", broadcast_shape(shapes, ("x", "other", "target", "var", "weight", "pos_weight")))

    @classmethod
    def check_values(cls, desc: PointwiseLossDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """Probabilities are in [0, 1], variances not negative."""
        if desc.kind is K.BCE and np.any((arrays["x"] < 0) | (arrays["x"] > 1)):
            return "an input of binary_cross_entropy is outside [0, 1]"
        if desc.kind is K.GAUSSIAN_NLL and arrays["var"] is not None and np.any(arrays["var"] < 0):
            return "a variance of gaussian_nll_loss is negative"
        return None


def loss_case(draw: Any) -> dict[str, Any]:
    """Shapes of every schedule, every reduction, options of the kind."""
    row = draw.kind.row
    shape = draw.shape(0, 4, 0, 9)
    if draw.flag():
        long = draw.sizes(9, 40, 131, 1030, rare=(9000, 70000))
        shape = (long,) if long > 2000 else draw.choice(((long,), (draw.sizes(3, 8, 33), long), (long, 8)))
    reductions = REDUCTIONS if row.rows and shape else REDUCTIONS[:3]
    facts: dict[str, Any] = {"shape": shape, "reduction": draw.choice(reductions)}
    choices = {
        "beta": (0.5, 1.0, 0.0) if draw.kind is K.JSD else (1.0, 0.25, 0.0), "delta": (1.0, 0.3), "margin": (0.0, 0.7),
        "eps": (1e-4,), "alpha": (0.25, -1.0), "gamma": (2.0, 0.0, 1.5), "variance": (1.0, 0.5),
        "log_target": (False, True), "log_input": (True, False), "full": (False, True),
    }  # fmt: skip
    return facts | {name: draw.choice(choices[name]) for name in row.takes}


def fixed_for(kind: LossKind) -> dict[str, Any]:
    """What the function of a kind does not ask."""
    return {name: usual for name, usual in OPTIONS.items() if name not in kind.row.takes}


def _function(kind: LossKind) -> Callable[..., Any]:
    options = "".join(f", {name}" for name in kind.row.takes)
    doc = f"{kind.value} of every element, or its mean or sum (reduction{options}); see `PointwiseLossPlan`."
    return functional(PointwiseLossPlan, kind.value, doc, kind=kind, **fixed_for(kind))


mse_loss = _function(K.MSE)
l1_loss = _function(K.L1)
smooth_l1_loss = _function(K.SMOOTH_L1)
huber_loss = _function(K.HUBER)
binary_cross_entropy = _function(K.BCE)
binary_cross_entropy_with_logits = _function(K.BCE_WITH_LOGITS)
kl_div_loss = _function(K.KL_DIV)
poisson_nll_loss = _function(K.POISSON_NLL)
_gaussian = _function(K.GAUSSIAN_NLL)
hinge_embedding_loss = _function(K.HINGE_EMBEDDING)
soft_margin_loss = _function(K.SOFT_MARGIN)
margin_ranking_loss = _function(K.MARGIN_RANKING)
sigmoid_focal_loss = _function(K.SIGMOID_FOCAL)
generalized_jsd_loss = _function(K.JSD)


@entry(PointwiseLossPlan, kind=K.GAUSSIAN_NLL)
def gaussian_nll_loss(
    x: Array, target: Array, var: Any, weight: Array | None = None, *, full: Any = False, eps: Any = 1e-6,
    reduction: Any = "mean", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(log v + (x - target)² / v) / 2, v = max(var, eps), and with `full` log(2 π) / 2 (torch's gaussian_nll_loss).

    var: an array that broadcasts to x, one without x's last axis, or a number. See `PointwiseLossPlan`.
    """
    facts: dict[str, Any] = {"full": full, "eps": eps, "reduction": reduction}
    facts |= {"out": out, "stream": stream, "preference": preference}
    var = plain(var)
    if isinstance(var, (int, float)):
        return _gaussian(x, target, None, weight, variance=var, **facts)
    shape, own = shape_of(x, "x"), shape_of(var, "var")
    return _gaussian(x, target, with_axis(var, -1, "var") if shape and own == shape[:-1] else var, weight, **facts)
