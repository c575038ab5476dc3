"""mlstm: xLSTM's matrix memory, linear attention with exponential gates, a stabiliser and a normaliser."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...calls.entries import entry
from ...core import Array, InvalidProblemError
from ...core.arrays import read
from ...core.checked import real
from ...core.outputs import beside, each_of
from ...core.views import cut, shape_of, with_axis, without_axes
from ...expressions.elementwise import elementwise
from ..elementwise.cast import cast
from ..layout.concat import concat
from ..layout.creation import ones, zeros
from ..layout.moves import copy
from ..scan.scan import cumsum
from ..scan.scan_extreme import cummax
from .attend import attend, heads_of, in_acc
from .kinds import RecurrenceKind
from .linear_attention import LinearAttentionPlan

_PAD = 8  # columns beside v: the ones that give the normaliser, and zeros, so that rows keep their alignment


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@entry(LinearAttentionPlan, kind=RecurrenceKind.SCALAR)
def mlstm(
    q: Array, k: Array, v: Array, i: Array, f: Array, *, scale: float | None = None, eps: float = 1e-6,
    initial_state: Any = None, output_final_state: bool = False, stepwise: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """h[t] = C[t]ᵀ q / (max(|n[t] · q|, exp(-m[t])) + eps): xLSTM's mLSTM (Beck et al. 2024, arXiv:2405.04517).

    m[t] = max(log sigmoid(f) + m[t - 1], i), i' = exp(i - m[t]), f' = exp(log sigmoid(f) + m[t - 1] - m[t]),
    C[t] = f' C[t - 1] + i' k vᵀ, n[t] = f' n[t - 1] + i' k, and q is scaled by `scale`, default 1 / √d_k.
    q, k [batch, steps, heads, d_k] and v [batch, steps, heads, d_v] as in `linear_attention`; i, f [batch, steps,
    heads], before their exponential and sigmoid, of q's element or its accumulator's. With output_final_state the
    result is (h, (C, n, m)), the `initial_state` of what follows: C [batch, heads, d_k, d_v], n [batch, heads, d_k],
    m [batch, heads], float32 (float64 of float64), zeros where absent. A decoding step is a call of one step.

    A composition: m of all steps from a sum and a maximum along them, `simple_gla` of v beside a column of ones, whose
    column of the result is n · q, and a formula. In chunks of 64 on tensor cores for 16-bit operands with d_k ≤ 128;
    stepwise: step by step. Gradients of all array operands.
    """
    options: dict[str, Any] = {"stream": stream, "preference": preference}
    real("eps", eps)
    heads = heads_of(("q", q), ("k", k), ("v", v))
    batch, steps = shape_of(q, "q")[:2]
    if len(shape_of(v, "v")) != 4 or len(shape_of(q, "q")) != 4:
        raise InvalidProblemError(f"q and v must have four axes, got {shape_of(q, 'q')} and {shape_of(v, 'v')}")
    d_k, d_v = shape_of(q, "q")[3], shape_of(v, "v")[3]
    for name, gate in (("i", i), ("f", f)):
        if shape_of(gate, name) != (batch, steps, heads):
            raise InvalidProblemError(f"{name} must have shape {(batch, steps, heads)}, got {shape_of(gate, name)}")
    if shape_of(v, "v")[2] != heads:
        raise InvalidProblemError(f"v must have {heads} heads, got {shape_of(v, 'v')[2]}")
    kind = read(q, "q").element
    c, n, m = _state(initial_state, (batch, heads, d_k, d_v), q, stream)
    i, f = (in_acc(gate, q, name, options) for name, gate in (("i", i), ("f", f)))
    # m[t] is F[t] plus the largest of m before the first step and of i[s] - F[s] up to t, F the sum of log sigmoid(f).
    first = with_axis(m, 1, "m")
    if steps:
        logs = _formula("log_sigmoid(f)")(f=f, **options)
        total = cumsum(logs, axis=1, **options)
        most = cummax(_formula("i - s")(i=i, s=total, **options), axis=1, **options)[0]
        place = _formula("s + maximum(b, m)")(s=total, b=most, m=first, **options)
    else:
        logs = place = i
    before = concat([first, cut(place, (slice(None), slice(0, max(steps - 1, 0))), "m")], axis=1, **options)
    before = cut(before, (slice(None), slice(0, steps)), "m")
    g = _formula("l + a - b")(l=logs, a=before, b=place, **options)
    gate = with_axis(_formula("exp(i - m)")(i=i, m=place, **options), 3, "i")
    with beside(q, stream):
        one, none = (make((1, 1, 1, size), kind.acc, like=q) for make, size in ((ones, 1), (zeros, _PAD - 1)))
        rest = zeros((batch, heads, d_k, _PAD - 1), kind.acc, like=q)
    written = _formula("e * v")(e=gate, v=v if kind is kind.acc else cast(v, kind.acc, **options), **options)
    beside_v = _formula("e * u")(e=gate, u=concat([one, none], axis=3, **options), **options)
    memory = concat([c, with_axis(n, 3, "n"), rest], axis=3, **options)
    values = concat([written, beside_v], axis=3, **options)
    made = attend(
        RecurrenceKind.SCALAR, q, k, values if kind is kind.acc else cast(values, kind, **options), options, g=g,
        scale=scale, initial_state=memory, output_final_state=output_final_state, stepwise=stepwise,
    )  # fmt: skip
    y, last = made if output_final_state else (made, None)
    parts = [cut(y, (slice(None),) * 3 + (at,), "y") for at in (slice(0, d_v), slice(d_v, d_v + 1))]
    if kind is not kind.acc:
        parts = [cast(x, kind.acc, **options) for x in parts]
    outs = each_of(out, 2) if output_final_state else (*each_of(out, 1), None)
    h = _formula("y / (maximum(abs(d), exp(-m)) + eps)")(
        y=parts[0], d=parts[1], m=with_axis(place, 3, "m"), eps=eps, out=outs[0] if kind is kind.acc else None,
        **options,
    )  # fmt: skip
    h = h if kind is kind.acc else cast(h, kind, out=outs[0], **options)
    if not output_final_state:
        return h if out is None else out
    whole = (slice(None),) * 3
    states = (
        cut(last, (*whole, slice(0, d_v)), "C"),
        without_axes(cut(last, (*whole, slice(d_v, d_v + 1)), "n"), {3}, "n"),
        without_axes(cut(place, (slice(None), slice(steps - 1, steps)), "m"), {1}, "m") if steps else m,
    )  # fmt: skip
    if outs[1] is None:
        return h, states
    for x, to in zip(states, each_of(outs[1], 3), strict=True):
        copy(x, out=to, **options)
    return out


def _state(given: Any, shape: tuple[int, ...], q: Any, stream: Any) -> tuple[Any, Any, Any]:
    """(C, n, m), of the shapes that they must have; zeros where there are none."""
    shapes = {"C": shape, "n": shape[:3], "m": shape[:2]}
    kind = read(q, "q").element.acc
    if given is None:
        with beside(q, stream):
            c, n, m = (zeros(wanted, kind, like=q) for wanted in shapes.values())
        return c, n, m
    if not isinstance(given, (tuple, list)) or len(given) != 3:
        raise InvalidProblemError("initial_state must be (C, n, m)")
    for x, (name, wanted) in zip(given, shapes.items(), strict=True):
        found = read(x, name)
        if found.shape != wanted or found.element is not kind:
            raise InvalidProblemError(f"{name} must be {kind} of shape {wanted}, got {found.element} {found.shape}")
    return given[0], given[1], given[2]
