"""Losses of log-probabilities of answers: DPO, CPO, SimPO, ORPO and KTO; and the clipped surrogate of PPO, any shape.

Each is one formula, reduced while it is computed: one launch, and a gradient of one launch for each operand. Operands
broadcast. reduction is "mean", "sum" or "none". 16-bit floats are computed and added in float32.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array
from ...core.checked import real, shown
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce as reduction_of
from ..reduce.reduce import ReducePlan


@cache
def _formula(text: str, reduction: str, numbers: tuple[str, ...]) -> Any:
    defaults: dict[str, Any] = dict.fromkeys(numbers, 0.0)
    return elementwise(text, **defaults) if reduction == "none" else reduction_of(text, reduction, **defaults)


def reduced_formula(text: str, reduction: str, operands: dict[str, Any], options: Any, **numbers: Any) -> Any:
    """A formula of every element of arrays, by their names in it, and of numbers; or its mean or sum."""
    if reduction not in ("none", "mean", "sum"):
        raise InvalidProblemError(f'reduction must be "none", "mean" or "sum", got {shown(reduction)}')
    held = {name: real(name, value) for name, value in numbers.items()}
    return _formula(text, reduction, tuple(held))(**operands, **held, **options)


_SIGMOID = "(1 - smoothing) * softplus(-({z})) + smoothing * softplus({z})"
_MARGIN = "beta * ((chosen - rejected) - (chosen_reference - rejected_reference))"
_DPO = {
    "sigmoid": _SIGMOID.format(z=_MARGIN), "hinge": f"maximum(1 - {_MARGIN}, 0)",
    "ipo": "square((chosen - rejected) - (chosen_reference - rejected_reference) - 0.5 / beta)",
}  # fmt: skip


@entry(ReducePlan)
def dpo_loss(
    chosen: Array, rejected: Array, chosen_reference: Array, rejected_reference: Array, *, beta: float = 0.1,
    label_smoothing: float = 0.0, kind: str = "sigmoid", reduction: str = "mean", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Direct preference optimization (Rafailov et al. 2023), of log-probabilities of answers.

    With h = (chosen - rejected) - (chosen_reference - rejected_reference), the last two those of the reference model:
    kind "sigmoid": -(1 - ε) log σ(beta h) - ε log σ(-beta h), ε the label smoothing; "hinge": max(0, 1 - beta h);
    "ipo": (h - 1 / (2 beta))² (Azar et al. 2023).
    """
    if kind not in _DPO:
        raise InvalidProblemError(f"kind must be one of {list(_DPO)}, got {shown(kind)}")
    numbers = {"beta": beta} | ({"smoothing": label_smoothing} if kind == "sigmoid" else {})
    if kind != "sigmoid" and label_smoothing:
        raise InvalidProblemError(f'label_smoothing is for kind "sigmoid", got kind {shown(kind)}')
    operands = {
        "chosen": chosen, "rejected": rejected, "chosen_reference": chosen_reference,
        "rejected_reference": rejected_reference,
    }  # fmt: skip
    options = {"out": out, "stream": stream, "preference": preference}
    return reduced_formula(_DPO[kind], reduction, operands, options, **numbers)


@entry(ReducePlan)
def simpo_loss(
    chosen: Array, rejected: Array, *, beta: float = 2.0, gamma: float = 1.0, label_smoothing: float = 0.0,
    reduction: str = "mean", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """SimPO (Meng et al. 2024): -(1 - ε) log σ(z) - ε log σ(-z), z = beta (chosen - rejected) - gamma.

    chosen and rejected are log-probabilities of answers, divided by their lengths.
    """
    text = _SIGMOID.format(z="beta * (chosen - rejected) - gamma")
    operands, options = (
        {"chosen": chosen, "rejected": rejected},
        {"out": out, "stream": stream, "preference": preference},
    )
    return reduced_formula(text, reduction, operands, options, beta=beta, gamma=gamma, smoothing=label_smoothing)


@entry(ReducePlan)
def orpo_loss(
    chosen: Array, rejected: Array, *, beta: float = 0.1, reduction: str = "mean", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The odds-ratio term of ORPO (Hong et al. 2024): -beta log σ(log odds(chosen) - log odds(rejected)).

    chosen and rejected are log-probabilities of answers divided by their lengths, below 0; log odds(x) is
    x - log(1 - exp(x)). ORPO adds it to the cross entropy of the chosen answers.
    """
    text = "beta * softplus((rejected - log(-expm1(rejected))) - (chosen - log(-expm1(chosen))))"
    operands, options = (
        {"chosen": chosen, "rejected": rejected},
        {"out": out, "stream": stream, "preference": preference},
    )
    return reduced_formula(text, reduction, operands, options, beta=beta)


@entry(ReducePlan)
def kto_loss(
    policy: Array, reference: Array, desirable: Array, *, kl: float = 0.0, beta: float = 0.1,
    desirable_weight: float = 1.0, undesirable_weight: float = 1.0, reduction: str = "mean", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """KTO (Ethayarajh et al. 2024): weight (1 - σ(±beta (policy - reference - kl))), + where `desirable` is 1.

    policy and reference are log-probabilities of answers, desirable 1 or 0 in their element, kl the estimate of the
    divergence of the two models, which has no gradient.
    """
    text = (
        "desirable * good * sigmoid(-(beta * (policy - reference - kl)))"
        " + (1 - desirable) * bad * sigmoid(beta * (policy - reference - kl))"
    )
    operands = {"policy": policy, "reference": reference, "desirable": desirable}
    numbers = {"beta": beta, "kl": kl, "good": desirable_weight, "bad": undesirable_weight}
    options = {"out": out, "stream": stream, "preference": preference}
    return reduced_formula(text, reduction, operands, options, **numbers)


_CPO = {
    "sigmoid": _SIGMOID.format(z="beta * (chosen - rejected)"), "hinge": "maximum(1 - beta * (chosen - rejected), 0)",
    "ipo": "square((chosen - rejected) - 0.5 / beta)",
}  # fmt: skip


@entry(ReducePlan)
def cpo_loss(
    chosen: Array, rejected: Array, nll: Array | None = None, *, beta: float = 0.1, alpha: float = 1.0,
    label_smoothing: float = 0.0, kind: str = "sigmoid", reduction: str = "mean", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """CPO (Xu et al. 2024): `dpo_loss` without a reference model, + alpha nll of the chosen answers where it is given.

    chosen and rejected are log-probabilities of answers, nll the mean cross entropies of the chosen ones. With
    h = chosen - rejected: kind "sigmoid": -(1 - ε) log σ(beta h) - ε log σ(-beta h), ε the label smoothing; "hinge":
    max(0, 1 - beta h); "ipo": (h - 1 / (2 beta))².
    """
    if kind not in _CPO:
        raise InvalidProblemError(f"kind must be one of {list(_CPO)}, got {shown(kind)}")
    if kind != "sigmoid" and label_smoothing:
        raise InvalidProblemError(f'label_smoothing is for kind "sigmoid", got kind {shown(kind)}')
    text, operands, numbers = _CPO[kind], {"chosen": chosen, "rejected": rejected}, {"beta": beta}
    if kind == "sigmoid":
        numbers["smoothing"] = label_smoothing
    if nll is not None:
        text, operands["nll"], numbers["alpha"] = f"{text} + alpha * nll", nll, alpha
    options = {"out": out, "stream": stream, "preference": preference}
    return reduced_formula(text, reduction, operands, options, **numbers)


_RATIO = "exp(policy - old)"
_CLIPPED = f"-minimum({_RATIO} * advantages, minimum(maximum({_RATIO}, 1 - low), 1 + high) * advantages)"


@entry(ReducePlan)
def clipped_policy_loss(
    policy: Array, old: Array, advantages: Array, reference: Array | None = None, *, clip_low: float = 0.2,
    clip_high: float = 0.2, beta: float = 0.0, reduction: str = "mean", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The clipped surrogate of PPO and GRPO: -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), r = exp(policy - old).

    policy and old are log-probabilities of tokens, advantages A broadcast to them. With `reference`, those of the
    reference model, beta (exp(d) - d - 1) is added, d = reference - policy (Shao et al. 2024). Operands have any shape;
    `ppo_loss` and `grpo_loss` have masks and reductions over sequences.
    """
    operands = {"policy": policy, "old": old, "advantages": advantages}
    options, numbers = {"out": out, "stream": stream, "preference": preference}, {"low": clip_low, "high": clip_high}
    if reference is None:
        if beta:
            raise InvalidProblemError(f"beta={beta} takes reference=, the log-probabilities of the reference model")
        return reduced_formula(_CLIPPED, reduction, operands, options, **numbers)
    text = f"{_CLIPPED} + beta * (expm1(reference - policy) - (reference - policy))"
    return reduced_formula(text, reduction, {**operands, "reference": reference}, options, beta=beta, **numbers)
