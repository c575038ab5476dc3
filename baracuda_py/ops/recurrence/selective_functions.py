"""selective_scan and selective_state_update: Mamba's scan under the names of mamba-ssm, of real and of complex A."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import Array, InvalidProblemError
from ...core.arrays import read
from ...core.outputs import each_of
from ...core.views import broadcast, shape_of, with_axis
from ..layout.repeats import repeat_interleave
from .selective_pairs import is_complex, pairs, pairs_of_inputs, whole
from .selective_scan import SelectiveScanPlan
from .selective_scan_complex import selective_scan_complex
from .selective_state_update import SelectiveStateUpdatePlan
from .selective_state_update_complex import selective_state_update_complex

_scan: Any = functional(SelectiveScanPlan, "selective_scan")
_update: Any = functional(SelectiveStateUpdatePlan, "selective_state_update")


def of_inputs(x: Any, name: str, batch: int, length: int) -> Any:
    """b or c as (batch, groups, states, length): of (dim, states), (batch, states, length), or as it is."""
    shape = shape_of(x, name)
    if len(shape) == 2:
        whole = with_axis(with_axis(x, 0, name), -1, name)
        return broadcast(whole, (batch, *shape, length), name)
    if len(shape) == 3:
        return with_axis(x, 1, name)
    if len(shape) != 4:
        raise InvalidProblemError(
            f"{name} must be [dim, states], [batch, states, length] or [batch, groups, states, length], got {shape}"
        )
    return x


@entry(SelectiveScanPlan)
def selective_scan(
    u: Array, delta: Array, A: Array, B: Array, C: Array, D: Array | None = None, z: Array | None = None,
    delta_bias: Array | None = None, delta_softplus: bool = False, return_last_state: bool = False, *,
    initial_state: Array | None = None, cu_seqlens: Array | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Mamba's recurrence h = exp(dt A) h + dt B u, y = (C h + D u) silu(z), selective_scan_fn of mamba-ssm.

    u, delta, z: [batch, dim, length]; dt = delta + delta_bias, or its softplus with delta_softplus. A: [dim, states],
    at most 256; B, C: [batch, groups, states, length], [batch, states, length], or [dim, states] for all times; D,
    delta_bias: [dim]. A, D, delta_bias and the states are float32 beside float16 and bfloat16 u. initial_state: [batch,
    dim, states], zeros where absent; with return_last_state the result is (y, last_state). cu_seqlens: int32 or int64
    [sequences + 1], the bounds of sequences packed into a batch of one, with states of [sequences, dim, states]; they
    are clamped to [0, length] and to the largest bound before them, and steps of no sequence have a y of 0. Gradients
    of all of them, without atomics, the states being made anew from one in 32.

    A complex A, of at most 64 states, makes h, the states and what B and C say complex, and y = (2 Re C h + D u)
    silu(z). B and C are complex then, or real with pairs along time, [..., states, 2 length], as mamba-ssm has them.
    """
    shape = shape_of(u, "u")
    if len(shape) != 3:
        raise InvalidProblemError(f"u must be [batch, dim, length], got shape {shape}")
    options = {"stream": stream, "preference": preference}
    turns = is_complex(A, "A")
    if turns:
        b, c = (pairs_of_inputs(x, name, shape[0], shape[2], options) for x, name in ((B, "B"), (C, "C")))
    else:
        b, c = (of_inputs(x, name, shape[0], shape[2]) for x, name in ((B, "B"), (C, "C")))
    groups = {name: shape_of(x, name)[1] for x, name in ((b, "B"), (c, "C"))}
    most = max(groups.values())
    b, c = (_grouped(x, name, most, options) for x, name in ((b, "B"), (c, "C")))
    settings = {"softplus": delta_softplus, "return_last_state": return_last_state, **options}
    if not turns:
        return _scan(u, delta, A, b, c, D, z, delta_bias, initial_state, cu_seqlens, out=out, **settings)
    outs = list(each_of(out, 1 + bool(return_last_state)))
    if return_last_state and outs[1] is not None:
        outs[1] = pairs(outs[1], options)
    made = selective_scan_complex(
        u, delta, pairs(A, options), b, c, D, z, delta_bias, pairs(initial_state, options), cu_seqlens,
        out=None if out is None else tuple(outs) if return_last_state else outs[0], **settings,
    )  # fmt: skip
    if out is not None or not return_last_state:
        return made if out is None else out
    return made[0], whole(made[1], options)


@entry(SelectiveStateUpdatePlan)
def selective_state_update(
    state: Array, x: Array, dt: Array, A: Array, B: Array, C: Array, D: Array | None = None, z: Array | None = None,
    dt_bias: Array | None = None, dt_softplus: bool = False, *, state_batch_indices: Array | None = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y [batch, dim] of the next step; state [slots, dim, states] moves on in place (mamba-ssm's, by its names).

    x, dt, z: [batch, dim]; A: [dim, states]; B, C: [batch, states] or [batch, groups, states]; D, dt_bias: [dim]; A, D
    and dt_bias in float32 beside float16 and bfloat16, state in either. state_batch_indices: [batch], the slot of each
    sequence, none twice; one outside [0, slots) is skipped, and its y is 0. There is no gradient.

    A complex A, of at most 64 states, goes with a complex state of A's element and complex B and C, and y is that of
    `selective_scan` of such an A, bit for bit: (2 Re C h + D x) silu(z).
    """
    options: dict[str, Any] = {"stream": stream, "preference": preference}
    b, c = (with_axis(one, 1, name) if len(shape_of(one, name)) == 2 else one for one, name in ((B, "B"), (C, "C")))
    settings = {"state_indices": state_batch_indices, "softplus": dt_softplus, "out": out, **options}
    if not is_complex(A, "A"):
        return _update(state, x, dt, A, b, c, D, z, dt_bias, **settings)
    for one, name in ((state, "state"), (b, "B"), (c, "C")):
        if not is_complex(one, name):
            raise InvalidProblemError(f"{name} must be complex as A is, got {read(one, name).element}")
    state, rates, b, c = (pairs(one, options) for one in (state, A, b, c))
    made = selective_state_update_complex(state, x, dt, rates, b, c, D, z, dt_bias, **settings)
    return (made[0], whole(made[1], options)) if isinstance(made, tuple | list) else made  # with JAX's the state


def _grouped(x: Any, name: str, groups: int, options: dict[str, Any]) -> Any:
    """x with so many groups, of which it has as many or a divisor of them."""
    batch, own, *rest = shape_of(x, name)
    if own == groups or not own or groups % own:
        return x
    if own == 1:
        return broadcast(x, (batch, groups, *rest), name)
    return repeat_interleave(x, groups // own, 1, **options)
