"""What the named forms of linear attention share: the call, and its gates in the accumulator's element."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core.arrays import read
from ...core.errors import InvalidProblemError
from ...core.views import broadcast, shape_of
from ..elementwise.cast import cast
from ..layout.made import from_host
from .kinds import RecurrenceKind
from .linear_attention import LinearAttentionPlan

call = functional(LinearAttentionPlan)


def in_acc(x: Any, q: Any, name: str, options: dict[str, Any]) -> Any:
    """A gate in the element of states: cast from q's where it comes in that."""
    if x is None:
        return None
    kind, found = read(q, "q").element, read(x, name).element
    if found is kind.acc:
        return x
    if found is not kind:
        raise InvalidProblemError(f"{name} must hold {kind} as q does or {kind.acc}, got {found}; cast it first")
    return cast(x, kind.acc, **options)


def of_heads(q: Any, logs: np.ndarray, options: dict[str, Any]) -> Any:
    """A log of decay for each head, as a view for every batch and step."""
    held = from_host(logs.astype(read(q, "q").element.acc.dtype), q, options["stream"])
    return broadcast(held, (*shape_of(q, "q")[:2], len(logs)), "g")


def heads_of(*named: tuple[str, Any]) -> int:
    """The most heads among operands [batch, steps, heads, …]."""
    shapes = [(name, shape_of(x, name)) for name, x in named if x is not None]
    for name, shape in shapes:
        if len(shape) < 3:
            raise InvalidProblemError(f"{name} must have axes [batch, steps, heads, …], got shape {shape}")
    return max(shape[2] for _, shape in shapes)


def attend(
    kind: RecurrenceKind, q: Any, k: Any, v: Any, options: dict[str, Any], *, g: Any = None, g_channel: Any = None,
    beta: Any = None, a: Any = None, b: Any = None, bonus: Any = None, scale: Any = None, initial_state: Any = None,
    output_final_state: bool = False, cu_seqlens: Any = None, use_qk_l2norm: bool = False, stepwise: bool = False,
    out: Any = None,
) -> Any:  # fmt: skip
    """y, or (y, final state) with output_final_state."""
    gates = {"g": g, "g_channel": g_channel, "beta": beta, "bonus": bonus}
    gates = {name: in_acc(x, q, name, options) for name, x in gates.items()}
    return call(
        q, k, v, gates["g"], gates["g_channel"], gates["beta"], a, b, gates["bonus"], initial_state, cu_seqlens,
        kind=kind, scale=scale, use_qk_l2norm=use_qk_l2norm, stepwise=stepwise,
        return_final_state=output_final_state, out=out, **options,
    )  # fmt: skip
