"""Losses of a mixture of experts' router: how evenly it spreads tokens, and how large its logits are.

Autograd and JAX differentiate them call by call. Logits of 16 bits are read as float32, in which sums are made.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, ElementKind
from ...core.element import HALVES
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import shape_of, with_axis
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from ..reduce.reduce import ReducePlan, argmax  # type: ignore[attr-defined]
from ..softmax.softmax_functions import softmax
from .composed_losses import places


@cache
def _reduced(text: str, kind: str, axis: Any = None, then: str | None = None, *numbers: str) -> Any:
    defaults: dict[str, Any] = dict.fromkeys(numbers, 0.0)
    return reduction(text, kind, axis=axis, then=then, **defaults)


@cache
def _mapped(text: str) -> Any:
    return elementwise(text)


def _tokens(router_logits: Any, weight: Any) -> tuple[int, ...]:
    """The shape of the tokens, which that of their weights is, too."""
    shape = shape_of(router_logits, "router_logits")
    if not shape or shape[-1] == 0:
        raise InvalidProblemError(f"router_logits must have shape (…, experts), of one expert at least, got {shape}")
    if weight is not None and shape_of(weight, "weight") != shape[:-1]:
        raise InvalidProblemError(f"weight must have shape {shape[:-1]}, got {shape_of(weight, 'weight')}")
    return shape[:-1]


def _chosen(router_logits: Any, indices: Any, tokens: tuple[int, ...], options: Any) -> Any:
    """The chosen experts, with an axis of 1 behind them."""
    if indices is None:
        return with_axis(with_axis(argmax(router_logits, axis=-1, **options), -1, "indices"), -1, "indices")
    shape = shape_of(indices, "indices")
    if len(shape) != len(tokens) + 1 or shape[:-1] != tokens:
        raise InvalidProblemError(f"indices must have shape {tokens} and an axis of choices, got {shape}")
    return with_axis(indices, -1, "indices")


@entry(ReducePlan)
def load_balancing_loss(
    router_logits: Array, indices: Array | None = None, weight: Array | None = None, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """experts Σ f P: f is an expert's choices per token, P its mean probability; router_logits (…, experts).

    indices (…, choices) are the chosen experts, by default the likeliest one (Fedus et al. 2021, Switch Transformers;
    of several choices it is Mixtral's). Numbers that name no expert choose none. weight (…) counts a token so many
    times, 0 for padding. The gradient is that of the probabilities. Four launches, with weight five.
    """
    tokens, options = _tokens(router_logits, weight), {"stream": stream, "preference": preference}
    experts, axes = shape_of(router_logits, "router_logits")[-1], tuple(range(len(tokens)))
    wide = ElementKind.F32 if read(router_logits, "router_logits").element in HALVES else None
    p = softmax(router_logits, axis=-1, dtype=wide, **options)
    choices = {"i": _chosen(router_logits, indices, tokens, options), "e": places(router_logits, experts, stream)}
    over, scale = (*axes, len(tokens)), {"experts": float(experts), "out": out}
    if weight is None:
        count = _reduced("float32(i == e)", "mean", over)(**choices, **options)
        share = _reduced("p", "mean", axes)(p=p, **options) if axes else p
        each = float(experts * choices["i"].shape[-2])
        return _reduced("f * p", "sum", None, "sum * experts", "experts")(
            f=count, p=share, **{**scale, "experts": each}, **options
        )
    spread = with_axis(weight, -1, "weight")
    count = _reduced("where(i == e, w, 0)", "sum", over)(**choices, w=with_axis(spread, -1, "weight"), **options)
    share = _reduced("w * p", "sum", axes)(w=spread, p=p, **options) if axes else p
    total = _reduced("float32(w)", "sum")(w=weight, **options)
    found = _reduced("(f / n) * (p / n)", "sum", None, "sum * experts", "experts")
    return found(f=count, p=share, n=total, **scale, **options)


@entry(ReducePlan)
def router_z_loss(
    router_logits: Array, weight: Array | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The mean over tokens of logsumexp(router_logits)², router_logits (…, experts) (Zoph et al. 2022, ST-MoE).

    weight (…) counts a token so many times, 0 for padding. Two launches, with weight three.
    """
    _tokens(router_logits, weight)
    options = {"stream": stream, "preference": preference}
    half = read(router_logits, "router_logits").element in HALVES
    z = _reduced("float32(x)" if half else "x", "logsumexp", -1)(x=router_logits, **options)
    if weight is None:
        return _reduced("square(z)", "mean")(z=z, out=out, **options)
    total = _reduced("float32(w)", "sum")(w=weight, **options)
    return _reduced("square(z) * (w / n)", "sum")(z=z, w=weight, n=total, out=out, **options)


@entry(ReducePlan)
def sequence_balancing_loss(
    router_logits: Array, indices: Array, scoring: str = "sigmoid", *, alpha: float = 1.0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """alpha Σ_e f_e P_e of each sequence, their mean: DeepSeek-V3's sequence-wise balance loss.

    arXiv 2412.19437, (17). router_logits: (…, length, experts), of a sequence each; indices: (…, length, choices), the
    experts that each token took, of which numbers that name none count for nothing. f_e = experts / (choices · length)
    times how often e was chosen, P_e the mean of e's score among the scores of its token; scoring: sigmoid, as in
    DeepSeek-V3, softmax, or none of scores that are given. The gradient is that of the scores. Six launches at most.
    """
    tokens, options = _tokens(router_logits, None), {"stream": stream, "preference": preference}
    if not tokens:
        raise InvalidProblemError("router_logits must have shape (…, length, experts), got one axis")
    if scoring not in ("sigmoid", "softmax", "none"):
        raise InvalidProblemError(f"scoring must be 'sigmoid', 'softmax' or 'none', got {scoring!r}")
    experts, axis = shape_of(router_logits, "router_logits")[-1], len(tokens) - 1
    half = read(router_logits, "router_logits").element in HALVES
    if scoring == "softmax":
        p = softmax(router_logits, axis=-1, dtype=ElementKind.F32 if half else None, **options)
    else:
        x = "float32(x)" if half else "x"
        score = f"sigmoid({x})" if scoring == "sigmoid" else x
        total = with_axis(_reduced(score, "sum", -1)(x=router_logits, **options), -1, "scores")
        p = _mapped(f"{score} / t")(x=router_logits, t=total, **options)
    i = _chosen(router_logits, indices, tokens, options)
    share = _reduced("p", "mean", axis)(p=p, **options)
    each = places(router_logits, experts, stream)
    count = _reduced("float32(i == e)", "mean", (axis, axis + 1))(i=i, e=each, **options)
    given = {"f": count, "p": share, "scale": float(alpha) * experts}
    if not axis:
        return _reduced("f * p", "sum", None, "sum * scale", "scale")(**given, out=out, **options)
    losses = _reduced("f * p", "sum", -1, "sum * scale", "scale")(**given, **options)
    return _reduced("x", "mean")(x=losses, out=out, **options)
