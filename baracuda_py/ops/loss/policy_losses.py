"""ppo_loss, grpo_loss and clipped_value_loss: `PolicyLossPlan` by the names and defaults of the papers.

Operands are [sequences, tokens], or [tokens] of one sequence.
"""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...calls.functional import functional
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import shape_of, with_axis
from .policy_loss import PolicyLossKind, PolicyLossPlan

K = PolicyLossKind
_policy: Any = functional(PolicyLossPlan, "policy_loss", kind=K.POLICY)
_value: Any = functional(
    PolicyLossPlan, "value_loss", kind=K.VALUE, delta=0.0, beta=0.0, kl_estimator="k3",
    importance_sampling_level="token", entropy_coef=0.0,
)  # fmt: skip
LOSS_TYPES = {"grpo": "sequence_mean", "bnpo": "token_mean", "dapo": "token_mean", "dr_grpo": "length_mean"}


def _call(call: Any, name: str, given: dict[str, Any], reduction: Any, out: Any, facts: dict[str, Any]) -> Any:
    """A call with operands of one sequence or of several; advantages of an axis less are one a sequence.

    name: what `policy`, which all shapes follow, is to the caller.
    """
    shape = shape_of(given["policy"], name)
    if len(shape) not in (1, 2):
        raise InvalidProblemError(f"{name} must have shape [sequences, tokens] or [tokens], got {shape}")
    if len(shape_of(given["advantages"], "advantages")) == len(shape) - 1:
        given["advantages"] = with_axis(given["advantages"], -1, "advantages")
    if len(shape) == 2:
        return call(**given, reduction=reduction, out=out, **facts)
    if reduction == "none" and out is not None:
        raise InvalidProblemError(f"out= of losses of tokens is for {name} of two axes, got shape {shape}")
    rows = {name: None if x is None else with_axis(x, 0, name) for name, x in given.items()}
    made = call(**rows, reduction=reduction, out=out, **facts)
    if reduction != "none":
        return made
    return (made[0][0], *made[1:]) if isinstance(made, tuple) else made[0]


@entry(PolicyLossPlan, kind=K.POLICY)
def ppo_loss(
    policy: Array, old: Array, advantages: Array, mask: Array | None = None, entropy: Array | None = None, *,
    epsilon_low: float = 0.2, epsilon_high: float | None = None, delta: float | None = None,
    entropy_coef: float | None = None, reduction: str = "token_mean", return_clip_fraction: bool = False,
    return_approx_kl: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """-min(r A, clip(r, 1 - epsilon_low, 1 + epsilon_high) A) of tokens, r = exp(policy - old) (Schulman et al. 2017).

    policy, old: log-probabilities [sequences, tokens] of the tokens by the model and by the one that made them;
    advantages A: of tokens, or [sequences]; mask: bool, the tokens that count. epsilon_high: by default epsilon_low.
    delta: the dual clip (Ye et al. 2020), the most that r may be. entropy: of the tokens' distributions; entropy_coef
    (0.01) times it is subtracted. reduction: "none", "sum", "token_mean", "sequence_mean" or "length_mean". It may
    return the fraction of clipped tokens and the mean of r - 1 - log r, too. `policy` and `entropy` have gradients. See
    `PolicyLossPlan`.
    """
    if entropy is None and entropy_coef is not None:
        raise InvalidProblemError(f"entropy is required for entropy_coef={shown(entropy_coef)}, got None")
    given = {"policy": policy, "old": old, "advantages": advantages, "mask": mask, "entropy": entropy}
    facts: dict[str, Any] = {
        "epsilon_low": epsilon_low, "delta": 0.0 if delta is None else delta, "stream": stream,
        "preference": preference, "return_clip_fraction": return_clip_fraction, "return_approx_kl": return_approx_kl,
        "entropy_coef": (0.0 if entropy is None else 0.01) if entropy_coef is None else entropy_coef,
        "epsilon_high": epsilon_low if epsilon_high is None else epsilon_high,
    }  # fmt: skip
    return _call(_policy, "policy", given, reduction, out, facts)


@entry(PolicyLossPlan, kind=K.POLICY)
def grpo_loss(
    policy: Array, old: Array, advantages: Array, reference: Array | None = None, mask: Array | None = None, *,
    epsilon_low: float = 0.2, epsilon_high: float | None = None, delta: float | None = None, beta: float | None = None,
    kl_estimator: str = "k3", loss_type: str = "grpo", importance_sampling_level: str = "token",
    max_completion_length: int | None = None, return_clip_fraction: bool = False, return_approx_kl: bool = False,
    return_kl: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The clipped surrogate of `ppo_loss` + beta KL(policy ‖ reference), advantages [sequences] (Shao et al. 2024).

    loss_type: "grpo", the mean over sequences of the means over their tokens; "bnpo" and "dapo" the mean over all
    tokens (Yu et al. 2025, who take epsilon_high = 0.28); "dr_grpo" the sum over sequences × max_completion_length, by
    default the tokens' extent (Liu et al. 2025). importance_sampling_level: "token", or "sequence", whose ratio is the
    geometric mean of its tokens' (GSPO, Zheng et al. 2025). kl_estimator: with d = reference - policy, "k1" -d, "k2"
    d² / 2, "k3" exp(d) - 1 - d; beta is 0.04 by default. delta: the most that a ratio may be. mask: bool, the
    tokens that count. It may return the fraction of clipped tokens, the mean of r - 1 - log r and that of KL, too. Only
    `policy` has a gradient. See `PolicyLossPlan`.
    """
    if loss_type not in LOSS_TYPES:
        raise InvalidProblemError(f"loss_type must be one of {list(LOSS_TYPES)}, got {shown(loss_type)}")
    if max_completion_length is not None and loss_type != "dr_grpo":
        raise InvalidProblemError(
            f'max_completion_length is for loss_type "dr_grpo", got {loss_type!r} with {shown(max_completion_length)}'
        )
    if reference is None and (beta is not None or return_kl):
        asked = "return_kl" if beta is None else f"beta={shown(beta)}"
        raise InvalidProblemError(f"reference, log-probabilities of the reference model, is required for {asked}")
    given = {"policy": policy, "old": old, "advantages": advantages, "reference": reference, "mask": mask}
    facts: dict[str, Any] = {
        "epsilon_low": epsilon_low, "epsilon_high": epsilon_low if epsilon_high is None else epsilon_high,
        "delta": 0.0 if delta is None else delta, "kl_estimator": kl_estimator, "stream": stream,
        "beta": (0.0 if reference is None else 0.04) if beta is None else beta, "preference": preference,
        "importance_sampling_level": importance_sampling_level, "return_clip_fraction": return_clip_fraction,
        "return_approx_kl": return_approx_kl, "return_kl": return_kl,
    }  # fmt: skip
    if max_completion_length is not None:
        facts["max_length"] = max_completion_length
    return _call(_policy, "policy", given, LOSS_TYPES[loss_type], out, facts)


@entry(PolicyLossPlan, kind=K.VALUE)
def clipped_value_loss(
    values: Array, old: Array, returns: Array, mask: Array | None = None, *, epsilon_low: float = 0.2,
    epsilon_high: float | None = None, reduction: str = "token_mean", return_clip_fraction: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """max((v - R)², (clip(v, old - epsilon_low, old + epsilon_high) - R)²) / 2: PPO's loss of values.

    values v, old (the values when the tokens were made) and returns R are [sequences, tokens]; reduction and mask as in
    `ppo_loss`. Only `values` has a gradient. See `PolicyLossPlan`.
    """
    facts: dict[str, Any] = {
        "epsilon_low": epsilon_low, "epsilon_high": epsilon_low if epsilon_high is None else epsilon_high,
        "return_clip_fraction": return_clip_fraction, "stream": stream, "preference": preference,
    }  # fmt: skip
    given = {"policy": values, "old": old, "advantages": returns, "mask": mask}
    return _call(_value, "values", given, reduction, out, facts)
