"""selective_state_update: one step of Mamba's scan for each sequence, states in slots, updated in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Step, Variant, derived, element, extent, flag, inout, operand, output,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from ...schedules.geometry import grid, strides_of
from .selective import (
    STATES, THREADS, apart, check_states, gated, joined, lanes_of, leading, parted, slow, softplus, step_sizes,
)  # fmt: skip


def _state_pair(desc: Any, given: ElementKind) -> ElementKind:
    if given not in (desc.element, desc.element.acc):
        raise InvalidProblemError(f"state_element must be {desc.element} or {desc.element.acc}, got {given}")
    return given


@dataclass(frozen=True, kw_only=True)
class SelectiveStateUpdateDescriptor(Descriptor):
    """u has shape (batch, dim), state (slots, dim, states), b and c (batch, groups, states), at most 256 states.

    softplus: dt is softplus(delta + delta_bias). state_element: of the states, the element or its accumulator.
    """

    batch: int = extent()
    dim: int = extent()
    states: int = extent(minimum=1)
    slots: int = extent()
    groups: int = extent(1, minimum=1)
    softplus: bool = flag(False)
    state_element: ElementKind = element(default=derived(lambda desc: desc.element, _state_pair))
    element: ElementKind = element()

    def validate(self) -> None:
        check_states(self.states, self.dim, self.groups, self.pair)

    @property
    def pair(self) -> int:
        """Parts of a number of the states."""
        return 1

    @property
    def aux_element(self) -> ElementKind | None:
        """The element of the states, where it is another."""
        return None if self.state_element is self.element else self.state_element


def random_slots(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: no slot twice, at times none."""
    return rng.permutation(np.arange(max(desc.slots, shape[0]) + 2) - 1)[: shape[0]]


@dataclass(slots=True, kw_only=True)
class SelectiveStateUpdateArgs(Args):
    """Any strides. state_indices: the slot of each sequence, by default its number, where there are as many."""

    state: Array = inout("slots dim states", element="state_element")
    u: Array = operand("batch dim")
    delta: Array = operand("batch dim", values=step_sizes)
    a: Array = operand("dim states", element="acc", values=slow)
    b: Array = operand("batch groups states")
    c: Array = operand("batch groups states")
    d: Array | None = operand("dim", element="acc", optional=True)
    z: Array | None = operand("batch dim", optional=True)
    delta_bias: Array | None = operand("dim", element="acc", optional=True, values=step_sizes)
    state_indices: Array | None = operand("batch", element=INDICES[::-1], optional=True, values=random_slots)
    y: Array = output("batch dim")


def reference(
    desc: SelectiveStateUpdateDescriptor, *, state: Any, u: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any,
    delta_bias: Any, state_indices: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype u comes in; the states are updated in place."""
    y = np.zeros_like(u)
    slots = np.arange(desc.batch) if state_indices is None else state_indices.astype(np.int64)
    known = np.nonzero((slots >= 0) & (slots < desc.slots))[0]
    with np.errstate(all="ignore"):
        dt = delta if delta_bias is None else delta + delta_bias
        dt = softplus(dt) if desc.softplus else dt
        a, b, c = (joined(desc, one) for one in (a, b, c))
        b, c = (np.repeat(one, desc.dim // desc.groups, axis=1) for one in (b, c))
        at = slots[known]
        before = joined(desc, state[at].astype(u.dtype))
        h = np.exp(dt[known, :, None] * a) * before + (dt * u)[known, :, None] * b[known]
        state[at] = parted(desc, h)
        made = np.sum(h * c[known], axis=-1)
        made = made if desc.pair == 1 else (2 * made.real).astype(u.dtype)
        made = made if d is None else made + d * u[known]
        y[known] = gated(made, None if z is None else z[known])
    return {"y": y, "state": state}


PARAMS = Params(
    "SelectiveStateUpdateParams", **dict.fromkeys(("state", "u", "delta", "a", "b", "c", "d", "z", "y"), "ptr"),
    delta_bias="ptr", state_indices="ptr", state_strides="i64[3]", b_strides="i64[3]", c_strides="i64[3]",
    **dict.fromkeys(("u_strides", "delta_strides", "z_strides", "y_strides", "a_strides"), "i64[2]"),
    **dict.fromkeys(("d_step", "bias_step", "index_step", "batch", "dim", "per_group", "slots", "states"), "i64"),
    **dict.fromkeys(("lanes", "softplus", "wide_state", "wide_indices"), "i32"),
)  # fmt: skip


ROW_STATES = 16  # of the kernel whose threads have a channel each


def _state_elements(element: ElementKind) -> dict[str, Any]:
    return {"S": tuple(dict.fromkeys((element.acc, element)))}


def update_geometry(p: Problem) -> Geometry | str:
    """One launch, of real numbers or of pairs."""
    desc = p.desc
    if (why := apart(p)) is not None:
        return why
    if not max(desc.batch, desc.dim) < 2**31:
        return "batch or dim is 2^31 or more"
    each, lanes = lanes_of(desc.states, desc.pair)
    in_rows = all(p.views[n].inner_dense and p.views[n].aligned() for n in ("state", "a", "b", "c"))
    values = {
        **{f"{n}_strides": leading(p.views[n], 3) for n in ("state", "b", "c")},
        **{f"{n}_strides": strides_of(p.views[n], 2) for n in ("u", "delta", "z", "y")},
        "a_strides": leading(p.a, 2),
        "d_step": strides_of(p.d, 1)[0], "bias_step": strides_of(p.delta_bias, 1)[0],
        "index_step": strides_of(p.state_indices, 1)[0], "batch": desc.batch, "dim": desc.dim,
        "per_group": desc.dim // desc.groups, "slots": desc.slots, "states": desc.states, "lanes": lanes,
        "softplus": desc.softplus, "wide_state": desc.state_element is desc.element.acc,
        "wide_indices": p.state_indices is not None and p.state_indices.element is ElementKind.I64,
    }  # fmt: skip
    dense = all(p.views[n].dense for n in ("state", "u", "b", "c", "y"))
    layout = "contiguous" if dense else "strided"
    if desc.pair == 1 and desc.states == ROW_STATES and in_rows:
        kernel, axes, lanes = "rows", {"S": desc.state_element}, 1
    else:
        kernel, axes = "update", {} if desc.pair == 2 else {"NS": each}
    blocks = grid(-(-desc.batch * desc.dim * lanes // THREADS))
    return Geometry((Step(kernel, blocks, values, axes, THREADS),), layout=layout)


class Slotted:
    """What plans of the update share: a slot for each sequence."""

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        """Refuse states of another number than the sequences without indices."""
        if views.get("state_indices") is None and desc.slots != desc.batch:
            raise InvalidProblemError(
                f"state_indices must be given where there are {desc.slots} slots for {desc.batch} sequences"
            )


def update_fields(draw: Any, rare: int) -> dict[str, Any]:
    """For tests: one lane to all."""
    groups, batch = draw.sizes(1, 2), draw.integer(0, 3)
    return {
        "batch": batch, "dim": groups * draw.sizes(1, 3, 40), "states": draw.sizes(4, 1, 3, 16, rare=(rare,)),
        "slots": batch, "groups": groups, "softplus": draw.flag(), "element": draw.element,
    }  # fmt: skip


class SelectiveStateUpdatePlan(Slotted, Plan):
    """state = exp(dt a) state + dt b u, y = (Σ_n c state + d u) silu(z): selective_state_update of mamba-ssm.

    u, delta, z, y (batch, dim); state (slots, dim, states), updated in place; a (dim, states); b, c (batch, groups,
    states); d, delta_bias (dim); state_indices (batch), int32 or int64, no slot twice. With states in float32 (float64
    of float64) a sequence has the bits of `selective_scan`.
    """

    op = "recurrence.selective_state_update"
    descriptor = SelectiveStateUpdateDescriptor
    args = SelectiveStateUpdateArgs
    reference = staticmethod(reference)
    value_policy = "a sequence whose index is no slot has a y of 0 and changes no state"
    variants = (
        Variant(
            "channels", update_geometry, source="recurrence/selective_state_update.cu",
            kernels=(
                Kernel("update", "selective_state_update<{T}, {NS}>", PARAMS, {"NS": STATES}, threads=THREADS),
                Kernel("rows", "selective_state_rows<{T}, {S}>", PARAMS, _state_elements, threads=THREADS),
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("256 sequences of 5120 channels bf16, 16 states f32", also=("d", "z", "delta_bias"), batch=256,
                  dim=5120, states=16, slots=256, softplus=True, state_element="float32", element="bfloat16",
                  target=None, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SelectiveStateUpdateDescriptor:
        return SelectiveStateUpdateDescriptor(
            **update_fields(draw, 130), state_element=draw.choice((draw.element, draw.element.acc))
        )
