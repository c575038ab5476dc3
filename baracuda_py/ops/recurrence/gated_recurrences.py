"""Gated recurrences as compositions: min_gru, min_lstm, rglru, slstm_cell, token_shift and gated_short_conv.

Those that are linear in their state are a formula for its factors, one for its terms, and one `linear_scan`, which
composes steps in float64: what papers do in logarithms to keep digits needs none here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...calls.entries import entry
from ...core import Array, InvalidProblemError
from ...core.arrays import read
from ...core.outputs import each_of
from ...core.views import cut, shape_of, with_axis
from ...expressions.elementwise import elementwise
from ..layout.concat import concat
from ..layout.creation import zeros
from ..layout.moves import copy
from ..scan.linear_scan import LinearScanPlan, linear_scan
from .causal_conv1d import CausalConv1dPlan, causal_conv1d
from ...core.outputs import beside

Options = dict[str, Any]


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def _steps(x: Any, name: str) -> tuple[int, int, int]:
    """The shape, (batch, steps, size)."""
    shape = shape_of(x, name)
    if len(shape) != 3:
        raise InvalidProblemError(f"{name} must be [batch, steps, size], got shape {shape}")
    return shape[0], shape[1], shape[2]


def _alike(shape: tuple[int, ...], **given: Any) -> None:
    """Whether other operands have a shape."""
    for name, x in given.items():
        found = shape_of(x, name)
        if found != shape:
            raise InvalidProblemError(f"{name} must have shape {shape}, got {found}")


_POSITIVE = "(v + 0.5 if v >= 0 else sigmoid(v))"


@entry(LinearScanPlan)
def min_gru(
    gate: Array, hidden: Array, initial: Array | None = None, *, positive: bool = True, return_last: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """h[t] = (1 - z) h[t - 1] + z g(hidden), z = sigmoid(gate): minGRU ("Were RNNs All We Needed?", Feng et al. 2024).

    gate, hidden: [batch, steps, size], the two projections of the input; initial: [batch, size], float32 (float64 of
    float64), 0 where absent; g(v) = v + 0.5 where v >= 0, else sigmoid(v), as the paper's logarithmic form has it, or
    with positive=False v itself. With return_last the result is (h, last), last the `initial` of what follows.
    """
    _alike(_steps(gate, "gate"), hidden=hidden)
    options = {"stream": stream, "preference": preference}
    factors = _formula("sigmoid(-k)")(k=gate, **options)
    terms = _formula(f"sigmoid(k) * {_POSITIVE if positive else 'v'}")(k=gate, v=hidden, **options)
    return linear_scan(factors, terms, initial, axis=1, return_carry=return_last, out=out, **options)


@entry(LinearScanPlan)
def min_lstm(
    forget: Array, input_gate: Array, hidden: Array, initial: Array | None = None, *, positive: bool = True,
    return_last: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """h[t] = f' h[t - 1] + i' g(hidden), f' = f / (f + i), i' = i / (f + i): minLSTM (Feng et al. 2024).

    forget, input_gate, hidden: [batch, steps, size], projections of the input, f and i their sigmoids; initial, g,
    positive and return_last as in `min_gru`.
    """
    _alike(_steps(forget, "forget"), input_gate=input_gate, hidden=hidden)
    options = {"stream": stream, "preference": preference}
    share = "sigmoid({0}) / (sigmoid(f) + sigmoid(i))"
    factors = _formula(share.format("f"))(f=forget, i=input_gate, **options)
    terms = _formula(f"{share.format('i')} * {_POSITIVE if positive else 'v'}")(
        f=forget, i=input_gate, v=hidden, **options
    )
    return linear_scan(factors, terms, initial, axis=1, return_carry=return_last, out=out, **options)


@entry(LinearScanPlan)
def rglru(
    x: Array, input_gate: Array, recurrence_gate: Array, decay: Array, initial: Array | None = None, *, c: float = 8.0,
    return_last: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """h[t] = a h[t - 1] + √(1 - a²) sigmoid(input_gate) x, a = exp(-c softplus(decay) sigmoid(recurrence_gate)).

    The real-gated linear recurrent unit of Griffin and RecurrentGemma (De et al. 2024). x and the gates, before their
    sigmoids: [batch, steps, size]; decay: [size], the paper's Λ; initial: [batch, size], float32 (float64 of float64),
    0 where absent. With return_last the result is (h, last).
    """
    shape = _steps(x, "x")
    _alike(shape, input_gate=input_gate, recurrence_gate=recurrence_gate)
    _alike(shape[2:], decay=decay)
    options = {"stream": stream, "preference": preference}
    rate = "-c * softplus(d) * sigmoid(r)"
    given = {"d": decay, "r": recurrence_gate, "c": c}
    factors = _formula(f"exp({rate})")(**given, **options)
    terms = _formula(f"sqrt(-expm1(2 * ({rate}))) * sigmoid(i) * x")(**given, i=input_gate, x=x, **options)
    return linear_scan(factors, terms, initial, axis=1, return_carry=return_last, out=out, **options)


@entry(CausalConv1dPlan)
def token_shift(
    x: Array, mix: Array | None = None, state: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Each token's predecessor, x[t - 1], or with mix x · mix + x[t - 1] · (1 - mix): RWKV's token shift.

    x: [batch, steps, size]; mix: [size], or what broadcasts against x; state: [batch, size], what precedes the first
    token, 0 where absent. The state of what follows is the last token, x[:, -1].
    """
    batch, steps, size = _steps(x, "x")
    options = {"stream": stream, "preference": preference}
    if state is None:
        with beside(x, stream):
            state = zeros((batch, size), read(x, "x").element, like=x)
    _alike((batch, size), state=state)
    if not steps:
        return copy(x, out=out, **options)
    parts = [with_axis(state, 1, "state"), cut(x, (slice(None), slice(0, steps - 1)), "x")]
    if mix is None:
        return concat(parts, axis=1, out=out, **options)
    before = concat(parts, axis=1, **options)
    return _formula("x * m + p * (1 - m)")(x=x, m=mix, p=before, out=out, **options)


@entry(CausalConv1dPlan)
def gated_short_conv(
    b: Array, c: Array, x: Array, weight: Array, bias: Array | None = None, *, seq_idx: Array | None = None,
    cu_seqlens: Array | None = None, initial_states: Array | None = None, return_final_states: bool = False,
    layout: str = "bld", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """c · causal_conv1d(b · x): the gated short convolution of LFM2 (and of Hyena's operators).

    b, c, x: [batch, steps, size], or with layout="bdl" [batch, size, steps], the three parts of the input's
    projection; weight: [size, width]; everything else as in `causal_conv1d`. States are of b · x.
    """
    _alike(_steps(x, "x"), b=b, c=c)
    options = {"stream": stream, "preference": preference}
    outs = each_of(out, 1 + bool(return_final_states))
    made = causal_conv1d(
        _formula("b * x")(b=b, x=x, **options), weight, bias, seq_idx=seq_idx, cu_seqlens=cu_seqlens,
        initial_states=initial_states, return_final_states=return_final_states, layout=layout, **options,
    )  # fmt: skip
    y, *last = made if return_final_states else (made,)
    gated = _formula("c * y")(c=c, y=y, out=outs[0], **options)
    if not last:
        return gated
    final = last[0] if outs[1] is None else copy(last[0], out=outs[1], **options)
    return out if out is not None else (gated, final)


@entry(LinearScanPlan)
def slstm_cell(
    gates: Array, c: Array, n: Array, m: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(h, c, n, m) after one step of xLSTM's sLSTM (Beck et al. 2024), its exponential gates stabilised by m.

    gates: [batch, 4 size], the parts i, f, z and o of the input's and the state's products; c, n, m: [batch, size].
    m' = max(log sigmoid(f) + m, i), i' = exp(i - m'), f' = exp(log sigmoid(f) + m - m'), c' = f' c + i' tanh(z),
    n' = f' n + i', h = sigmoid(o) c' / n'.
    """
    shape = shape_of(c, "c")
    if len(shape) != 2:
        raise InvalidProblemError(f"c must be [batch, size], got shape {shape}")
    _alike(shape, n=n, m=m)
    _alike((shape[0], 4 * shape[1]), gates=gates)
    options = {"stream": stream, "preference": preference}
    outs = each_of(out, 4)
    i, f, z, o = (cut(gates, (slice(None), slice(k * shape[1], (k + 1) * shape[1])), "gates") for k in range(4))
    m_next = _formula("maximum(log_sigmoid(f) + m, i)")(f=f, m=m, i=i, out=outs[3], **options)
    held = {"f": f, "m": m, "i": i, "w": m_next}
    kept = "exp(log_sigmoid(f) + m - w)"
    c_next = _formula(f"{kept} * c + exp(i - w) * tanh(z)")(**held, c=c, z=z, out=outs[1], **options)
    n_next = _formula(f"{kept} * n + exp(i - w)")(**held, n=n, out=outs[2], **options)
    h = _formula("sigmoid(o) * c / n")(o=o, c=c_next, n=n_next, out=outs[0], **options)
    return h, c_next, n_next, m_next
