"""Cut-offs that draw or follow what was drawn before: XTC and Mirostat, of softmax, reductions and formulas."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...calls.entries import entry
from ...calls.streams import stream_of
from ...core import Array, Scalar
from ...core.arrays import read
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import shape_of, with_axis
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce
from ..elementwise.cast import cast
from ..layout.moves import copy
from ..softmax.softmax_functions import log_softmax
from .draws import is_array
from .random_functions import rand
from .sampling import SamplingPlan
from .sampling_functions import sample

Options = dict[str, Any]


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@cache
def _least() -> Any:
    return reduce("where(exp(lp) >= t, lp, inf)", "amin", axis=-1, keepdims=True)


@cache
def _most() -> Any:
    return reduce("lp", "amax", axis=-1, keepdims=True)


def _logprobs(logits: Any, options: Options) -> tuple[int, Any]:
    """Rows, and their log probabilities in the element's accumulator."""
    shape, kind = shape_of(logits, "logits"), read(logits, "logits").element
    if len(shape) != 2 or not kind.is_float:
        raise InvalidProblemError(f"logits must be [B, V] of a floating element, got {kind} of shape {shape}")
    wide = logits if kind is kind.acc else cast(logits, kind.acc, **options)
    return shape[0], log_softmax(wide, axis=-1, **options)


def _of_rows(name: str, value: Any, rows: int) -> Any:
    """A number as it is, an array [B] as a column."""
    if not is_array(value) or (shape := shape_of(value, name)) == ():
        return value
    if shape != (rows,):
        raise InvalidProblemError(f"{name} must be a number or have shape ({rows},), got {shape}")
    return with_axis(value, -1, name)


@entry(SamplingPlan)
def xtc_mask(
    logits: Array, threshold: Any = 0.1, probability: Any = 0.5, *, seed: Scalar = None, offset: Scalar = 0,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Logits [B, V] where, with `probability`, the top choices are -inf (XTC, p-e-w 2024).

    Top choices are tokens of at least `threshold` probability but the least likely of these, and all that are as likely
    as it, so a row keeps one of them. Each row draws once, uniformly, number b of the stream (seed, offset). threshold
    and probability are numbers, 0-d device arrays or arrays [B] of float32. In place by out=logits. The gradient is
    that of the kept logits.
    """
    options = {"stream": stream, "preference": preference}
    if seed is None:
        seed = stream_of("xtc_mask", True, (logits,), stream)
    rows, lp = _logprobs(logits, options)
    t, chance = _of_rows("threshold", threshold, rows), _of_rows("probability", probability, rows)
    u = rand((rows, 1), seed=seed, offset=offset, element=read(lp, "logits").element, like=lp, **options)
    least = _least()(lp=lp, t=t, **options)
    return _formula("where(u < chance and lp > least, -inf, x)")(
        u=u, chance=chance, lp=lp, least=least, x=logits, out=out, **options
    )


@entry(SamplingPlan)
def mirostat_mask(logits: Array, mu: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Logits [B, V], -inf where the surprise -log₂ p is above mu; the most likely stay (Mirostat 2, Basu et al. 2021).

    mu is a number, a 0-d device array or an array [B] of float32. In place by out=logits.
    """
    options = {"stream": stream, "preference": preference}
    rows, lp = _logprobs(logits, options)
    best = _most()(lp=lp, **options)
    return _formula("where(lp < best and lp * -1.4426950408889634 > mu, -inf, x)")(
        lp=lp, best=best, mu=_of_rows("mu", mu, rows), x=logits, out=out, **options
    )


@entry(SamplingPlan)
def mirostat_sample(
    logits: Array, mu: Any, *, tau: Any = 5.0, eta: Any = 0.1, seed: Scalar = None, offset: Scalar = 0,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """A token of each row of logits [B, V], and the mu [B] of the next step (Mirostat 2, Basu et al. 2021; llama.cpp).

    A token is drawn from what `mirostat_mask(logits, mu)` keeps; its surprise s there, in bits, gives
    mu - eta (s - tau): so the text's surprise comes near tau. Begin with mu = 2 tau. mu: [B] float32 (float64 of
    float64 logits); tau and eta are numbers, 0-d device arrays or arrays [B]. Returns ids [B] int64 and mu; out= is a
    pair.
    """
    options = {"stream": stream, "preference": preference}
    if seed is None:
        seed = stream_of("mirostat_sample", True, (logits,), stream)
    ids_out, mu_out = each_of(out, 2)
    if (shape := shape_of(mu, "mu")) != (rows := shape_of(logits, "logits")[:1]):
        raise InvalidProblemError(f"mu must have shape {rows}, got {shape}")
    kept = mirostat_mask(logits, mu, **options)
    ids, logprob = sample(kept, seed=seed, offset=offset, return_logprob=True, **options)
    following = _formula("mu - eta * (lp * -1.4426950408889634 - tau)")(
        mu=mu, eta=eta, lp=logprob, tau=tau, out=mu_out, **options
    )
    return ids if ids_out is None else copy(ids, out=ids_out, **options), following
