"""What the pages of the selective scan share: the problem, the recurrence, the lanes of a channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Descriptor, InvalidProblemError, Problem, View, element, extent, flag
from ...core.element import ElementKind
from ...schedules.geometry import grid, strides_of
from ..elementwise.unary_formulas import sigmoid, silu

THREADS = 128
STEPS = 8
STATES = (4, 8)  # of a lane
MOST = 32 * STATES[-1]


@dataclass(frozen=True, kw_only=True)
class SelectiveScanDescriptor(Descriptor):
    """u has shape (batch, dim, length), a (dim, states), b and c (batch, groups, states, length), at most 256 states.

    softplus: dt is softplus(delta + delta_bias), else delta + delta_bias.
    """

    batch: int = extent()
    dim: int = extent()
    length: int = extent()
    states: int = extent(minimum=1)
    groups: int = extent(1, minimum=1)
    softplus: bool = flag(False)
    element: ElementKind = element()

    def validate(self) -> None:
        check_states(self.states, self.dim, self.groups)


def check_states(states: int, dim: int, groups: int) -> None:
    """Errors of the extents."""
    if states > MOST:
        raise InvalidProblemError(f"states must be at most {MOST}, got {states}")
    if dim % groups:
        raise InvalidProblemError(f"groups must divide the {dim} channels, got {groups}")


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def slow(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: decays below 1."""
    return -rng.uniform(0.05, 2.0, shape)


def step_sizes(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: steps of time that are positive, or become so."""
    made = rng.standard_normal(shape)
    return made if desc.softplus else np.abs(made) / 2


@dataclass
class Scan:
    """The recurrence in the dtype of u, step by step."""

    dt: Any
    raw: Any
    decay: Any  # (batch, dim, length, states)
    states: Any  # (batch, dim, length + 1, states): before the first step, and after each
    b: Any
    c: Any  # (batch, dim, length, states)

    @classmethod
    def of(cls, desc: Any, u: Any, delta: Any, a: Any, b: Any, c: Any, delta_bias: Any, initial: Any) -> Scan:
        raw = delta if delta_bias is None else delta + delta_bias[:, None]
        dt = softplus(raw) if desc.softplus else raw
        b, c = (np.moveaxis(np.repeat(one, desc.dim // desc.groups, axis=1), 2, 3) for one in (b, c))
        decay = np.exp(dt[..., None] * a[:, None])
        h = np.zeros((desc.batch, desc.dim, desc.length + 1, desc.states), u.dtype)
        if initial is not None:
            h[:, :, 0] = initial
        for t in range(desc.length):
            h[:, :, t + 1] = decay[:, :, t] * h[:, :, t] + (dt[:, :, t] * u[:, :, t])[..., None] * b[:, :, t]
        return cls(dt, raw, decay, h, b, c)

    def outputs(self, u: Any, d: Any) -> Any:
        """y before the gate."""
        y = np.sum(self.states[:, :, 1:] * self.c, axis=-1)
        return y if d is None else y + d[:, None] * u


def gated(y: Any, z: Any) -> Any:
    """y silu(z)."""
    return y if z is None else y * silu(z)


def gate_slopes(dy: Any, y: Any, z: Any) -> tuple[Any, Any]:
    """(dy before the gate, dz)."""
    s = sigmoid(z)
    return dy * (z * s), dy * y * (s * (1 + z * (1 - s)))


def lanes_of(states: int) -> tuple[int, int]:
    """(states of a lane, lanes of a channel)."""
    each = next(n for n in STATES if states <= 32 * n)
    return each, 1 << max(0, -(-states // each) - 1).bit_length()


def wide(views: Mapping[str, View | None], element: ElementKind) -> bool:
    """Whether time lies dense in all of them, so that eight steps are read at once."""
    nbytes = min(16, STEPS * element.itemsize)
    return all(
        v is None or (v.strides[-1] == 1 and v.ptr % nbytes == 0 and all(s % STEPS == 0 for s in v.strides[:-1]))
        for v in views.values()
    )


def channels(p: Problem) -> tuple[int, tuple[int, int, int], dict[str, Any]]:
    """(states of a lane, grid, parameters) of kernels whose blocks have channels."""
    desc = p.desc
    each, lanes = lanes_of(desc.states)
    per_group = desc.dim // desc.groups
    tiles = -(-per_group // (THREADS // lanes))
    values = {
        "batch": desc.batch, "dim": desc.dim, "length": desc.length, "states": desc.states, "groups": desc.groups,
        "per_group": per_group, "tiles": tiles, "lanes": lanes, "softplus": desc.softplus,
    }  # fmt: skip
    return each, grid(desc.batch * desc.groups * tiles), values


COMMON: dict[str, str | int] = {
    **dict.fromkeys(("u", "delta", "a", "b", "c", "d", "z", "delta_bias", "initial_state"), "ptr"),
    **dict.fromkeys(("u_strides", "delta_strides", "z_strides", "y_strides"), "i64[3]"),
    **dict.fromkeys(("initial_strides", "last_strides"), "i64[3]"), "a_strides": "i64[2]",
    **dict.fromkeys(("b_strides", "c_strides"), "i64[4]"),
    **dict.fromkeys(("d_step", "bias_step", "batch", "dim", "length", "states", "groups", "per_group", "tiles"), "i64"),
    "chunks": "i64", "lanes": "i32", "softplus": "i32", "scan_threads": THREADS,
}  # fmt: skip


def common(p: Problem) -> dict[str, Any]:
    """The strides that every kernel has."""
    return {
        **{f"{name}_strides": strides_of(p.views[name], 3) for name in ("u", "delta", "z")},
        "initial_strides": strides_of(p.initial_state, 3), "a_strides": strides_of(p.a, 2),
        "b_strides": strides_of(p.b, 4), "c_strides": strides_of(p.c, 4), "d_step": strides_of(p.d, 1)[0],
        "bias_step": strides_of(p.delta_bias, 1)[0],
    }  # fmt: skip


def scan_case(draw: Any, descriptor: Callable[..., Any]) -> Any:
    """Tests: a few steps and some tiles, one lane to all."""
    groups = draw.sizes(1, 2, 3)
    return descriptor(
        batch=draw.integer(0, 2), dim=groups * draw.sizes(1, 3, 9), length=draw.sizes(1, 0, 5, 8, 24, 37),
        states=draw.sizes(4, 1, 3, 16, 20, rare=(130,)), groups=groups, softplus=draw.flag(), element=draw.element,
    )  # fmt: skip
