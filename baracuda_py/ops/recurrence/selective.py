"""What the pages of the selective scan share: the problem, the recurrence, the lanes of a channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Descriptor, InvalidProblemError, Kernel, Params, Problem, View, derived, element, extent, flag, integer,
)  # fmt: skip
from ...core.element import ElementKind
from ...schedules.geometry import grid, strides_of
from ..attention.packed.ragged import settled, wrong_bounds
from ..elementwise.unary_formulas import sigmoid, silu

THREADS = 128
STEPS = 8
STATES = (4, 8)  # of a lane
MOST = 32 * STATES[-1]
COMPLEX_STATES = 2  # of a lane
MOST_COMPLEX = 32 * COMPLEX_STATES


@dataclass(frozen=True, kw_only=True)
class SelectiveScanDescriptor(Descriptor):
    """u has shape (batch, dim, length), a (dim, states), b and c (batch, groups, states, length), at most 256 states.

    softplus: dt is softplus(delta + delta_bias), else delta + delta_bias. num_states: sequences. None is batch; of
    packed ones, in a batch of 1, it is their number.
    """

    batch: int = extent()
    dim: int = extent()
    length: int = extent()
    states: int = extent(minimum=1)
    groups: int = extent(1, minimum=1)
    softplus: bool = flag(False)
    num_states: int = integer(derived(lambda desc: desc.batch), minimum=0)
    element: ElementKind = element()

    def validate(self) -> None:
        check_states(self.states, self.dim, self.groups, self.pair)
        if self.batch not in (1, self.num_states):
            raise InvalidProblemError(
                f"num_states must be batch, {self.batch}, or batch 1 for packed sequences, got {self.num_states}"
            )

    @property
    def num_bounds(self) -> int:
        """Length of cu_seqlens."""
        return self.num_states + 1

    @property
    def pair(self) -> int:
        """Parts of a number of the states."""
        return 1


@dataclass(frozen=True, kw_only=True)
class SelectiveScanComplexDescriptor(SelectiveScanDescriptor):
    """The same with a, b, c and states of complex numbers, whose parts are a last axis of 2; at most 64 states."""

    @property
    def pair(self) -> int:
        """Parts of a number of the states."""
        return 2


def joined(desc: Any, x: Any) -> Any:
    """Pairs as complex numbers, where they are."""
    return x if x is None or desc.pair == 1 else x[..., 0] + 1j * x[..., 1]


def parted(desc: Any, x: Any) -> Any:
    """Complex numbers as pairs."""
    return x if desc.pair == 1 else np.stack([x.real, x.imag], axis=-1)


def check_states(states: int, dim: int, groups: int, pair: int = 1) -> None:
    """Errors of the extents."""
    most = MOST if pair == 1 else MOST_COMPLEX
    if states > most:
        raise InvalidProblemError(f"states must be at most {most}, got {states}")
    if dim % groups:
        raise InvalidProblemError(f"groups must divide the {dim} channels, got {groups}")


POLICY = (
    "NaN and infinities go on with the state; bounds are clamped to [0, length] and to the largest bound before them; "
    "steps of no sequence give zeros"
)


class PackedScan:
    """What plans of the scan share: sequences, packed or one an item of the batch, and their states."""

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        """Refuse states of another number than the sequences."""
        if views.get("cu_seqlens") is not None:
            if desc.batch != 1:
                raise InvalidProblemError(
                    f"with cu_seqlens the sequences are packed into a batch of 1, got batch {desc.batch}"
                )
        elif desc.num_states != desc.batch:
            raise InvalidProblemError(
                f"without cu_seqlens each sequence has a state: num_states must be batch {desc.batch}, "
                f"got {desc.num_states}"
            )

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """The functional layer's num_states."""
        bounds = shapes.get("cu_seqlens")
        if bounds is not None and len(bounds) == 1 and bounds[0]:
            facts.setdefault("num_states", bounds[0] - 1)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        """What is wrong with cu_seqlens, or None."""
        bounds = arrays.get("cu_seqlens")
        return None if bounds is None else wrong_bounds(bounds, desc.length, desc.length, "cu_seqlens")

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """For tests and benchmarks: sequences are packed where the batch is 1 and there are states of more or fewer."""
        if desc.batch != 1 or desc.num_states == 1:
            arrays["cu_seqlens"] = None
        elif arrays.get("cu_seqlens") is None:
            arrays["cu_seqlens"] = np.linspace(0, desc.length, desc.num_bounds).astype(np.int64)


OF_TIME = ("dy", "u", "delta", "b", "c", "z", "y", "du", "ddelta", "db", "dc", "dz")  # time is the last axis
PAIRS = ("a", "b", "c", "state", "initial_state", "last_state", "dlast_state", "da", "db", "dc", "dinitial_state")
OF_SEQUENCES = ("initial_state", "dlast_state", "last_state", "dinitial_state")


def one_by_one(desc: Any, bounds: Any, arrays: Mapping[str, Any]) -> Iterator[tuple[int, slice, Any, dict[str, Any]]]:
    """(number, steps, descriptor, operands) of every packed sequence alone."""
    ends = settled(bounds, desc.length)
    for n in range(desc.num_states):
        rows = slice(int(ends[n]), int(ends[n + 1]))
        one = replace(desc, length=rows.stop - rows.start, num_states=1)
        found = dict(arrays)
        for name in OF_TIME:
            if found.get(name) is not None:
                found[name] = found[name][..., rows]
        for name in OF_SEQUENCES:
            if found.get(name) is not None:
                found[name] = found[name][n : n + 1]
        yield n, rows, one, found


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
        h = np.zeros((desc.batch, desc.dim, desc.length + 1, desc.states), np.result_type(u, a))
        if initial is not None:
            h[:, :, 0] = initial
        for t in range(desc.length):
            h[:, :, t + 1] = decay[:, :, t] * h[:, :, t] + (dt[:, :, t] * u[:, :, t])[..., None] * b[:, :, t]
        return cls(dt, raw, decay, h, b, c)

    def outputs(self, u: Any, d: Any) -> Any:
        """y before the gate."""
        y = np.sum(self.states[:, :, 1:] * self.c, axis=-1)
        y = (2 * y.real).astype(u.dtype) if np.iscomplexobj(y) else y
        return y if d is None else y + d[:, None] * u


def gated(y: Any, z: Any) -> Any:
    """y silu(z)."""
    return y if z is None else y * silu(z)


def gate_slopes(dy: Any, y: Any, z: Any) -> tuple[Any, Any]:
    """(dy before the gate, dz)."""
    s = sigmoid(z)
    return dy * (z * s), dy * y * (s * (1 + z * (1 - s)))


def lanes_of(states: int, pair: int = 1) -> tuple[int, int]:
    """(states of a lane, lanes of a channel)."""
    each = next(n for n in STATES if states <= 32 * n) if pair == 1 else COMPLEX_STATES
    return each, 1 << max(0, -(-states // each) - 1).bit_length()


def _blocks(element: ElementKind, kind: Any) -> int:
    """Blocks of those that walk forward that a multiprocessor is to hold: a model's channels are there at once."""
    return 4 if element.itemsize == 2 else 0


def walking(name: str, template: str, params: Params, pair: int = 1) -> tuple[Kernel, ...]:
    """A kernel that walks forward for each number of states of a lane."""
    if pair == 2:
        each = COMPLEX_STATES
        return (
            Kernel(f"{name}_{each}", f"{template}<{{T}}, {each}, {{WIDE}}, true>", params, {"WIDE": (True, False)},
                   threads=THREADS),
        )  # fmt: skip
    return tuple(
        Kernel(f"{name}_{each}", f"{template}<{{T}}, {each}, {{WIDE}}>", params, {"WIDE": (True, False)},
               threads=THREADS, min_blocks=_blocks if each == STATES[0] else 0)
        for each in STATES
    )  # fmt: skip


def wide(views: Mapping[str, View | None], element: ElementKind) -> bool:
    """Whether time lies dense in all of them, so that eight steps are read at once."""
    nbytes = min(16, STEPS * element.itemsize)

    def dense(v: View) -> bool:
        pair = len(v.shape) - 3 if len(v.shape) == 5 else 1  # of steps of two parts
        steps = v.strides[-1] == 1 and (pair == 1 or v.strides[-2] == 2)
        return steps and v.ptr % nbytes == 0 and all(s % STEPS == 0 for s in v.strides[: 3 if pair == 2 else -1])

    return all(v is None or dense(v) for v in views.values())


def apart(p: Problem) -> str | None:
    """Why parts of complex numbers are not where kernels look."""
    if p.desc.pair == 1:
        return None
    names = [
        n for n, v in p.views.items() if v is not None and v.shape[-1:] == (2,) and v.strides[-1] != 1 and n in PAIRS
    ]
    return f"the parts of {names[0]} do not lie side by side" if names else None


def leading(view: View | None, rank: int) -> list[int]:
    """The strides of an operand without that of parts, zeros for one that is absent."""
    return strides_of(view, rank)[:rank]


def channels(p: Problem) -> tuple[int, tuple[int, int, int], dict[str, Any]]:
    """(states of a lane, grid, parameters) of kernels whose blocks have channels."""
    desc = p.desc
    each, lanes = lanes_of(desc.states, desc.pair)
    per_group = desc.dim // desc.groups
    tiles = -(-per_group // (THREADS // lanes))
    values = {
        "batch": desc.batch, "dim": desc.dim, "length": desc.length, "states": desc.states, "groups": desc.groups,
        "per_group": per_group, "tiles": tiles, "lanes": lanes, "softplus": desc.softplus,
        "sequences": desc.num_states,
    }  # fmt: skip
    return each, grid(max(desc.num_states, desc.batch) * desc.groups * tiles), values


COMMON: dict[str, str | int] = {
    **dict.fromkeys(("u", "delta", "a", "b", "c", "d", "z", "delta_bias", "initial_state"), "ptr"), "bounds": "ptr",
    **dict.fromkeys(("u_strides", "delta_strides", "z_strides", "y_strides"), "i64[3]"),
    **dict.fromkeys(("initial_strides", "last_strides"), "i64[3]"), "a_strides": "i64[2]",
    **dict.fromkeys(("b_strides", "c_strides"), "i64[4]"),
    **dict.fromkeys(("d_step", "bias_step", "batch", "dim", "length", "states", "groups", "per_group", "tiles"), "i64"),
    **dict.fromkeys(("chunks", "sequences", "bound_step"), "i64"),
    **dict.fromkeys(("lanes", "softplus", "wide_bounds", "pair"), "i32"), "scan_threads": THREADS,
}  # fmt: skip


def common(p: Problem) -> dict[str, Any]:
    """The strides that every kernel has."""
    return {
        **{f"{name}_strides": strides_of(p.views[name], 3) for name in ("u", "delta", "z")},
        "initial_strides": leading(p.initial_state, 3), "a_strides": leading(p.a, 2),
        "b_strides": leading(p.b, 4), "c_strides": leading(p.c, 4), "d_step": strides_of(p.d, 1)[0],
        "bias_step": strides_of(p.delta_bias, 1)[0], "bound_step": strides_of(p.cu_seqlens, 1)[0],
        "pair": p.desc.pair,
        "bounds": "@null" if p.cu_seqlens is None else "cu_seqlens",
        "wide_bounds": p.cu_seqlens is not None and p.cu_seqlens.element is ElementKind.I64,
    }  # fmt: skip


def scan_case(draw: Any, descriptor: Callable[..., Any], rare: tuple[int, ...] = (130,)) -> Any:
    """Tests: a few steps and some tiles, one lane to all."""
    groups, batch = draw.sizes(1, 2, 3), draw.integer(0, 2)
    return descriptor(
        batch=batch, num_states=draw.choice((1, 3, 0)) if batch == 1 else batch, dim=groups * draw.sizes(1, 3, 9),
        length=draw.sizes(1, 0, 5, 8, 24, 37),
        states=draw.sizes(4, 1, 3, 16, 20, rare=rare), groups=groups, softplus=draw.flag(), element=draw.element,
    )  # fmt: skip
