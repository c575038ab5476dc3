"""The functions of `SamplingPlan`: sample, logprobs, renormalised and masked rows; cut-offs by row or for all."""

from __future__ import annotations

from typing import Any

from ...core import Array, Scalar
from ...calls.functional import functional
from ...core.checked import check_field
from ...calls.entries import entry
from ...calls.streams import stream_of
from .draws import by_row
from .sampling import SamplingDescriptor, SamplingPlan

_ROWS = {
    "temperature": "temperatures", "top_k": "top_ks", "top_p": "top_ps", "min_p": "min_ps", "typical_p": "typical_ps",
    "epsilon": "epsilons", "eta": "etas", "top_n_sigma": "sigmas", "seed": "seeds",
}  # fmt: skip
_sample = functional(SamplingPlan, "sample", returns=("ids",))


def _cut_offs(given: dict[str, Any]) -> dict[str, Any]:
    """Each option under the name of its scalar, or of its rows where it is an array of one axis."""
    found = by_row(given, _ROWS)
    if "seeds" in found:
        found["seed"] = 0
    return found


@entry(SamplingPlan)
def sample(
    logits: Array, *, temperature: Scalar = 1.0, top_k: Scalar = 0, top_p: Scalar = 1.0, min_p: Scalar = 0.0,
    typical_p: Scalar = 1.0, epsilon: Scalar = 0.0, eta: Scalar = 0.0, top_n_sigma: Scalar = 0.0, seed: Scalar = None,
    offset: Scalar = 0, top_n: int = 0, probabilities: bool = False, index_element: Any = "int64",
    return_logprob: bool = False, return_probs: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """A token id for each row of logits [B, V], or of probabilities where `probabilities` says so; see `SamplingPlan`.

    Each cut-off, the temperature and the seed are a number, a 0-d device array, or an array [B] of float32 (top_k:
    int32 or int64, seed: int64). Returns ids [B], then what is asked for: return_logprob: [B], of the ids; top_n: ids
    and logprobs [B, top_n] of the most likely; return_probs: [B, V], what was drawn with.
    """
    if seed is None:
        seed = stream_of("sample", True, (logits,), stream)
    options = {
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "typical_p": typical_p,
        "epsilon": epsilon, "eta": eta, "top_n_sigma": top_n_sigma, "seed": seed,
    }  # fmt: skip
    top_n = check_field(SamplingDescriptor, "top_n", top_n)
    return _sample(
        logits, **_cut_offs(options), offset=offset, top_n=top_n, probabilities=probabilities,
        index_element=index_element, return_logprob=return_logprob, return_top_ids=top_n > 0,
        return_top_logprobs=top_n > 0, return_probs=return_probs, out=out, stream=stream, preference=preference,
    )  # fmt: skip


@entry(SamplingPlan)
def token_logprobs(
    logits: Array, tokens: Array, *, top_n: int = 0, temperature: Scalar = 1.0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The logprob [B] of tokens [B] (int64 or int32) under softmax(logits / temperature), with no cut-off.

    With top_n also the ids and logprobs [B, top_n] of the most likely. A token outside the row has -inf.
    """
    top_n = check_field(SamplingDescriptor, "top_n", top_n)
    return _sample(
        logits, tokens=tokens, **_cut_offs({"temperature": temperature}), seed=0, top_n=top_n, return_ids=False,
        return_logprob=True, return_top_ids=top_n > 0, return_top_logprobs=top_n > 0, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip


def _renorm(name: str, option: str, what: str) -> Any:
    """Probabilities of what a cut-off keeps."""

    def call(probs: Array, value: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
        return _sample(
            probs, **_cut_offs({option: value}), probabilities=True, seed=0, return_ids=False, return_probs=True,
            out=out, stream=stream, preference=preference,
        )  # fmt: skip

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (
        f"Probabilities [B, V], 0 but for {what}, divided by their sum. `value` is a number or an array [B]; see "
        "`SamplingPlan`."
    )
    return entry(SamplingPlan)(call)


def _mask(name: str, option: str, what: str) -> Any:
    """Logits of what a cut-off keeps."""

    def call(logits: Array, value: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
        return _sample(
            logits, **_cut_offs({option: value}), seed=0, return_ids=False, return_masked=True, out=out, stream=stream,
            preference=preference,
        )  # fmt: skip

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (
        f"Logits [B, V], -inf but for {what}. `value` is a number or an array [B]; see `SamplingPlan`. In place by "
        "out=logits."
    )
    return entry(SamplingPlan)(call)


top_k_renorm = _renorm("top_k_renorm", "top_k", "the k largest")
top_p_renorm = _renorm("top_p_renorm", "top_p", "the shortest descending prefix that reaches p")
min_p_renorm = _renorm("min_p_renorm", "min_p", "those of at least min_p times the largest")
top_k_mask = _mask("top_k_mask", "top_k", "the k largest")
top_p_mask = _mask("top_p_mask", "top_p", "the shortest descending prefix whose probability reaches p")
min_p_mask = _mask("min_p_mask", "min_p", "those whose probability is at least min_p times the largest")
typical_p_mask = _mask("typical_p_mask", "typical_p", "those nearest to the entropy, until they reach typical_p")
epsilon_mask = _mask("epsilon_mask", "epsilon", "probabilities of at least epsilon")
eta_mask = _mask("eta_mask", "eta", "probabilities of at least min(eta, √eta exp(-H))")
top_n_sigma_mask = _mask("top_n_sigma_mask", "top_n_sigma", "logits of at least max - n σ")


@entry(SamplingPlan)
def softmax_with_cut_offs(
    logits: Array, *, temperature: Scalar = 1.0, top_k: Scalar = 0, top_p: Scalar = 1.0, min_p: Scalar = 0.0,
    typical_p: Scalar = 1.0, epsilon: Scalar = 0.0, eta: Scalar = 0.0, top_n_sigma: Scalar = 0.0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The probabilities [B, V] that `sample` draws with; nothing is drawn. Options as of `sample`."""
    options = {
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "typical_p": typical_p,
        "epsilon": epsilon, "eta": eta, "top_n_sigma": top_n_sigma,
    }  # fmt: skip
    return _sample(
        logits, **_cut_offs(options), seed=0, return_ids=False, return_probs=True, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
