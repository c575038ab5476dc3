"""Mamba-2's state-space duality around linear attention, and HGRN's recurrence: compositions."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import real, wholes
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import permuted, shape_of, with_axis
from ..elementwise.binary_functions import add, mul
from ..elementwise.cast import cast
from ..elementwise.ternary_functions import clamp
from ..elementwise.unary import exp, silu, softplus  # type: ignore[attr-defined]
from ..layout.moves import copy
from ..scan.linear_scan import LinearScanPlan, linear_scan
from .attend import attend, in_acc
from .kinds import RecurrenceKind
from .linear_attention import LinearAttentionPlan


def _turned(state: Any, name: str) -> Any:
    if len(shape_of(state, name)) != 4:
        raise InvalidProblemError(f"{name} must have four axes, got shape {shape_of(state, name)}")
    return permuted(state, (0, 1, 3, 2), name)


def _in_element(x: Any, like: Any, name: str, options: dict[str, Any]) -> Any:
    kind = read(like, "x").element
    return x if read(x, name).element is kind else cast(x, kind, **options)


@entry(LinearAttentionPlan, kind=RecurrenceKind.SCALAR)
def mamba2_ssd(
    x: Array, dt: Array, A: Array, B: Array, C: Array, chunk_size: int | None = None, D: Array | None = None,
    z: Array | None = None, dt_bias: Array | None = None, initial_states: Array | None = None,
    dt_softplus: bool = False, dt_limit: tuple[float, float] | None = None, return_final_states: bool = False,
    cu_seqlens: Array | None = None, *, stepwise: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Mamba-2: S[t] = exp(Δ[t] A) S[t - 1] + Δ[t] x[t] B[t]ᵀ, y[t] = (S[t] C[t] + D x[t]) silu(z[t]).

    x, z [batch, steps, heads, d], dt [batch, steps, heads], A [heads], B, C [batch, steps, groups, n], D [heads] or
    [heads, d], dt_bias [heads]; A float32 (float64 of float64), the others of x's element or of that one. Δ is dt +
    dt_bias, its softplus with dt_softplus, clamped to dt_limit. States are [batch, heads, d, n], as `initial_states`
    and with return_final_states; with cu_seqlens one for each of the sequences packed into a batch of 1.

    A composition around `simple_gla`, whose q, k and v are C, B and Δ x: states are copied to its order of axes, and
    returned as a view. chunk_size is there for calls of mamba_ssm's `mamba_chunk_scan_combined`: chunks have 64 steps.
    Gradients of all array operands. Dao and Gu 2024 (arXiv:2405.21060).
    """
    options = {"stream": stream, "preference": preference}
    if chunk_size is not None:
        wholes("chunk_size", (chunk_size,), 1, 2**31, "a number above 0")
    shape = shape_of(x, "x")
    if len(shape) != 4 or shape_of(dt, "dt") != shape[:3]:
        raise InvalidProblemError(
            f"x must be [batch, steps, heads, d] and dt its first three axes, got {shape} and {shape_of(dt, 'dt')}"
        )
    for name, given in (("A", A), ("dt_bias", dt_bias)):
        if given is not None and shape_of(given, name) != shape[2:3]:
            raise InvalidProblemError(f"{name} must have shape {shape[2:3]}, got {shape_of(given, name)}")
    kind = read(x, "x").element
    step = in_acc(dt, x, "dt", options)
    if dt_bias is not None:
        step = add(step, in_acc(dt_bias, x, "dt_bias", options), **options)
    if dt_softplus:
        step = softplus(step, **options)
    if dt_limit is not None:
        low, high = dt_limit
        step = clamp(step, real("dt_limit", low), real("dt_limit", high), **options)
    wide = x if kind is kind.acc else cast(x, kind.acc, **options)
    v = mul(wide, with_axis(step, 3, "dt"), **options)
    v = v if kind is kind.acc else cast(v, kind, **options)
    g = mul(step, in_acc(A, x, "A", options), **options)
    first = None if initial_states is None else copy(_turned(initial_states, "initial_states"), **options)
    made = attend(
        RecurrenceKind.SCALAR, C, B, v, options, g=g, scale=1.0, initial_state=first,
        output_final_state=return_final_states, cu_seqlens=cu_seqlens, stepwise=stepwise,
    )  # fmt: skip
    to_y, to_state = each_of(out, 2) if return_final_states else (*each_of(out, 1), None)
    y = made[0] if return_final_states else made
    if D is not None:
        skip = _in_element(D, x, "D", options)
        skip = with_axis(skip, 1, "D") if len(shape_of(D, "D")) == 1 else skip
        y = add(y, mul(x, skip, **options), **options)
    if z is not None:
        y = mul(y, silu(z, **options), **options)
    if to_y is not None:
        y = copy(y, out=to_y, **options)
    if not return_final_states:
        return y
    state = _turned(made[1], "final_states")
    return y, state if to_state is None else copy(state, out=to_state, **options)


ssd_chunk_scan = mamba2_ssd


@entry(LinearScanPlan)
def hgrn(
    x: Array, g: Array, initial_state: Array | None = None, output_final_state: bool = False, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """h[t] = exp(g[t]) h[t - 1] + x[t] for each channel: HGRN's recurrence (arXiv:2311.04823).

    x, g [batch, steps, channels], initial_state [batch, channels] in the accumulator's element; with
    output_final_state also the last h in that. A composition of `exp` and `linear_scan`, with their gradients.
    flash-linear-attention's `chunk_hgrn`.
    """
    options = {"stream": stream, "preference": preference}
    if len(shape_of(x, "x")) != 3 or shape_of(g, "g") != shape_of(x, "x"):
        raise InvalidProblemError(
            f"x and g must be [batch, steps, channels], got {shape_of(x, 'x')} and {shape_of(g, 'g')}"
        )
    return linear_scan(exp(g, **options), x, initial_state, axis=1, return_carry=output_final_state, out=out, **options)
