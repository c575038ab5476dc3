"""The losses of elements: a kind is a row of this table and a functor, `kernels/loss/terms/<kind>.cuh`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ...core.kinds import TableKind
from . import loss_formulas as of

Term: TypeAlias = Callable[[Any, Any, Any, Any], Any]
Values: TypeAlias = Callable[[np.random.Generator, Any, tuple[int, ...]], Any]


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class Loss:
    """A row.

    cpp: the functor. term(desc, x, t, v) and slopes, its derivatives by x, target and the third operand, in that order,
    None where the loss has none. torch(F, desc, x, t, v, weight, reduction): PyTorch's function. third: the name of
    the third operand. takes: fields of the descriptor and their defaults; `numbers` of them go to the functor in that
    order, `flags` too. rows: whether a reduction "batchmean" exists. by_weight: whether the mean is divided by the sum
    of the weights. reduction: the default. x, t, v: values for tests.
    """

    cpp: str
    term: Term
    slopes: tuple[Term | None, ...]
    torch: Callable[..., Any]
    third: str = ""
    takes: Mapping[str, Any] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    rows: bool = False
    by_weight: bool = False
    reduction: str = "mean"
    x: Values | None = None
    t: Values | None = None
    v: Values | None = None


def _usual(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Numbers of several sizes."""
    return rng.standard_normal(shape) * rng.choice((0.3, 1.0, 4.0), shape)


def _part(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.02, 0.98, shape)


def _sign(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    return rng.choice((-1.0, 1.0), shape)


def _positive(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.25, 3.0, shape)


def _logarithm(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    return np.log(rng.uniform(0.02, 0.98, shape))


def _kl_target(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    return (_logarithm if desc.log_target else _part)(rng, desc, shape)


def _count(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    return rng.integers(0, 9, shape) + 0.25


def _rate(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    return (_usual if desc.log_input else _positive)(rng, desc, shape)


def _weighted(function: str, *names: str) -> Callable[..., Any]:
    """A function of PyTorch that takes weights itself."""

    def call(F: Any, d: Any, x: Any, t: Any, v: Any, weight: Any, reduction: str) -> Any:
        options = {name: getattr(d, name) for name in names}
        return getattr(F, function)(x, t, weight=weight, reduction=reduction, **options)

    return call


def _plain(function: str, *names: str, third: bool = False) -> Callable[..., Any]:
    """One that takes none: terms are weighted and reduced here."""

    def call(F: Any, d: Any, x: Any, t: Any, v: Any, weight: Any, reduction: str) -> Any:
        options = {name: getattr(d, name) for name in names}
        operands = ((x, v, t) if function == "margin_ranking_loss" else (x, t, v)) if third else (x, t)
        if weight is None:
            return getattr(F, function)(*operands, reduction=reduction, **options)
        return reduced(getattr(F, function)(*operands, reduction="none", **options) * weight, reduction)

    return call


def reduced(terms: Any, reduction: str) -> Any:
    """Terms as tensors, reduced."""
    if reduction == "none":
        return terms
    return terms.sum() if reduction == "sum" else terms.mean() if reduction == "mean" else terms.sum() / len(terms)


def _bce_logits(F: Any, d: Any, x: Any, t: Any, v: Any, weight: Any, reduction: str) -> Any:
    return F.binary_cross_entropy_with_logits(x, t, weight, pos_weight=v, reduction=reduction)


def _kl(F: Any, d: Any, x: Any, t: Any, v: Any, weight: Any, reduction: str) -> Any:
    terms = F.kl_div(x, t, reduction="none", log_target=d.log_target)
    return reduced(terms if weight is None else terms * weight, reduction)


def _focal(F: Any, d: Any, x: Any, t: Any, v: Any, weight: Any, reduction: str) -> Any:
    p, entropy = x.sigmoid(), F.binary_cross_entropy_with_logits(x, t, reduction="none")
    terms = entropy * (1 - (p * t + (1 - p) * (1 - t))) ** d.gamma
    terms = terms * (d.alpha * t + (1 - d.alpha) * (1 - t)) if d.alpha >= 0 else terms
    return reduced(terms if weight is None else terms * weight, reduction)


def _jsd(F: Any, d: Any, x: Any, t: Any, v: Any, weight: Any, reduction: str) -> Any:
    p, q = t.exp(), x.exp()
    if d.beta in (0, 1):
        terms = p * (t - x) if d.beta == 0 else q * (x - t)
    else:
        m = (d.beta * p + (1 - d.beta) * q).log()
        terms = d.beta * p * (t - m) + (1 - d.beta) * q * (x - m)
    return reduced(terms if weight is None else terms * weight, reduction)


class LossKind(TableKind):
    """What a term is, by PyTorch's names where it has one."""

    MSE = ("mse_loss", Loss("Mse", of.mse, (of.mse_x, of.minus(of.mse_x)), _weighted("mse_loss"), by_weight=True))
    L1 = "l1_loss", Loss("L1", of.l1, (of.l1_x, of.minus(of.l1_x)), _weighted("l1_loss"), by_weight=True)
    SMOOTH_L1 = (
        "smooth_l1_loss",
        Loss("SmoothL1", of.smooth_l1, (of.smooth_l1_x, of.minus(of.smooth_l1_x)), _plain("smooth_l1_loss", "beta"),
             takes={"beta": 1.0}, numbers=("beta",)),
    )  # fmt: skip
    HUBER = (
        "huber_loss",
        Loss("Huber", of.huber, (of.huber_x, of.minus(of.huber_x)), _weighted("huber_loss", "delta"),
             takes={"delta": 1.0}, numbers=("delta",)),
    )  # fmt: skip
    BCE = (
        "binary_cross_entropy",
        Loss("Bce", of.bce, (of.bce_x, of.bce_t), _weighted("binary_cross_entropy"), x=_part, t=_part),
    )
    BCE_WITH_LOGITS = (
        "binary_cross_entropy_with_logits",
        Loss("BceWithLogits", of.bce_logits, (of.bce_logits_x, of.bce_logits_t), _bce_logits, third="pos_weight",
             t=_part, v=_positive),
    )  # fmt: skip
    KL_DIV = (
        "kl_div_loss",
        Loss("KlDiv", of.kl, (of.kl_x, of.kl_t), _kl, takes={"log_target": False}, flags=("log_target",), rows=True,
             x=_logarithm, t=_kl_target),
    )  # fmt: skip
    POISSON_NLL = (
        "poisson_nll_loss",
        Loss("PoissonNll", of.poisson, (of.poisson_x, of.poisson_t),
             _plain("poisson_nll_loss", "log_input", "full", "eps"),
             takes={"log_input": True, "full": False, "eps": 1e-8}, numbers=("eps",), flags=("log_input", "full"),
             x=_rate, t=_count),
    )  # fmt: skip
    GAUSSIAN_NLL = (
        "gaussian_nll_loss",
        Loss("GaussianNll", of.gaussian, (of.gaussian_x, of.minus(of.gaussian_x), of.gaussian_v),
             _plain("gaussian_nll_loss", "full", "eps", third=True), third="var",
             takes={"full": False, "eps": 1e-6, "variance": 1.0}, numbers=("eps",), flags=("full",), v=_positive),
    )  # fmt: skip
    HINGE_EMBEDDING = (
        "hinge_embedding_loss",
        Loss("HingeEmbedding", of.hinge, (of.hinge_x,), _plain("hinge_embedding_loss", "margin"),
             takes={"margin": 1.0}, numbers=("margin",), t=_sign),
    )  # fmt: skip
    SOFT_MARGIN = (
        "soft_margin_loss",
        Loss("SoftMargin", of.soft_margin, (of.soft_margin_x,), _plain("soft_margin_loss"), t=_sign),
    )
    MARGIN_RANKING = (
        "margin_ranking_loss",
        Loss("MarginRanking", of.ranking, (of.ranking_x, of.ranking_t, of.ranking_v),
             _plain("margin_ranking_loss", "margin", third=True), third="other", takes={"margin": 0.0},
             numbers=("margin",), t=_sign),
    )  # fmt: skip
    SIGMOID_FOCAL = (
        "sigmoid_focal_loss",
        Loss("SigmoidFocal", of.focal, (of.focal_x, of.focal_t), _focal, takes={"alpha": 0.25, "gamma": 2.0},
             numbers=("alpha", "gamma"), reduction="none", t=_part),
    )  # fmt: skip
    JSD = (
        "generalized_jsd_loss",
        Loss("Jsd", of.jsd, (of.jsd_x, of.jsd_t), _jsd, takes={"beta": 0.5}, numbers=("beta",), rows=True,
             reduction="batchmean", x=_logarithm, t=_logarithm),
    )  # fmt: skip

    row: Loss

    @property
    def cpp(self) -> str:
        """The functor, without its template argument."""
        return f"losses::{self.row.cpp}"

    @property
    def header(self) -> str:
        """The file of the functor."""
        return f"loss/terms/{self.value}.cuh"


OPTIONS: dict[str, Any] = {
    "beta": 1.0, "delta": 1.0, "margin": 0.0, "eps": 1e-8, "alpha": 0.25, "gamma": 2.0, "variance": 1.0,
    "log_target": False, "log_input": True, "full": False,
}  # fmt: skip
"""What only some kinds take, and the value that the others have."""


def with_slope(place: int) -> tuple[LossKind, ...]:
    """The kinds with a derivative by x (0), the target (1) or the third operand (2)."""
    return tuple(kind for kind in LossKind if len(kind.row.slopes) > place and kind.row.slopes[place] is not None)


def values(place: str) -> Values:
    """Test data of an operand: x, t or v of the kind's row."""

    def made(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
        return (getattr(desc.kind.row, place) or _usual)(rng, desc, shape)

    return made


def random_weights(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: weights are positive."""
    return _positive(rng, desc, shape)
