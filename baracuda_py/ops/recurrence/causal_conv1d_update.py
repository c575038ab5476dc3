"""causal_conv1d_update: the next elements of a causal convolution; states in slots are moved on in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Step, Variant, choice, element, extent, inout, integer, operand, output,
)  # fmt: skip
from ...calls.entries import entry
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import shown
from ...core.element import INDICES, unrounded
from ...core.outputs import each_of
from ...core.views import shape_of, transposed, with_axis, without_axes
from ...schedules.geometry import grid, strides_of
from ..elementwise.unary_formulas import silu
from .causal_conv import ACTIVATIONS, TAPS, THREADS, activation_name, taps


@dataclass(frozen=True, kw_only=True)
class CausalConv1dUpdateDescriptor(Descriptor):
    """x has shape (batch, channels, tokens), conv_state (slots, channels, state_len), state_len at least width - 1."""

    batch: int = extent()
    channels: int = extent()
    tokens: int = extent()
    slots: int = extent()
    state_len: int = extent()
    width: int = integer(minimum=2, maximum=8)
    activation: str = choice(ACTIVATIONS, "none")
    element: ElementKind = element()

    def validate(self) -> None:
        if self.state_len < self.width - 1:
            raise InvalidProblemError(f"state_len must be at least width - 1 = {self.width - 1}, got {self.state_len}")

    @property
    def dense(self) -> bool:
        """Item b of the batch may have slot b."""
        return self.slots == self.batch


def random_slots(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: no slot twice, at times none."""
    places = np.arange(max(desc.slots, shape[0]) + 2) - 1
    return rng.permutation(places)[: shape[0]]


@dataclass(slots=True, kw_only=True)
class CausalConv1dUpdateArgs(Args):
    """Any strides. conv_state_indices: the slot of each item, by default its number, where there are as many.

    intermediate_states: the state after each token, of which one is taken where later tokens are rejected. in_gate
    multiplies x and out_gate the sum, both in the element: states have gated elements.
    """

    x: Array = operand("batch channels tokens")
    conv_state: Array = inout("slots channels state_len")
    weight: Array = operand("channels width")
    bias: Array | None = operand("channels", optional=True)
    conv_state_indices: Array | None = operand("batch", element=INDICES[::-1], optional=True, values=random_slots)
    in_gate: Array | None = operand("batch channels tokens", optional=True)
    out_gate: Array | None = operand("batch channels tokens", optional=True)
    y: Array = output("batch channels tokens")
    intermediate_states: Array | None = output("batch tokens channels state_len", optional=True)


def reference(
    desc: CausalConv1dUpdateDescriptor, *, x: Any, conv_state: Any, weight: Any, bias: Any, conv_state_indices: Any,
    in_gate: Any, out_gate: Any, wanted: Any, store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in; conv_state is updated in place."""
    y = np.zeros_like(x)
    with np.errstate(all="ignore"):
        x = x if in_gate is None else store(in_gate * x)
    kept = np.zeros((desc.batch, desc.tokens, desc.channels, desc.state_len), x.dtype)
    slots = range(desc.batch) if conv_state_indices is None else conv_state_indices.tolist()
    begin = desc.state_len - (desc.width - 1)
    for b, slot in enumerate(slots):
        if not 0 <= slot < desc.slots:
            continue
        seen = np.concatenate([conv_state[slot], x[b]], -1)
        with np.errstate(all="ignore"):
            z = np.zeros_like(x[b]) if bias is None else np.broadcast_to(bias[:, None], x[b].shape)
            for k in range(desc.width):
                z = z + weight[:, k, None] * seen[:, begin + k : begin + k + desc.tokens]
            z = silu(z) if desc.activation == "silu" else z
            y[b] = z if out_gate is None else out_gate[b] * store(z)
        for t in range(desc.tokens):
            kept[b, t] = seen[:, t + 1 : t + 1 + desc.state_len]
        conv_state[slot] = seen[:, desc.tokens :]
    return {"y": y, "conv_state": conv_state, "intermediate_states": kept}


PARAMS = Params(
    "CausalConv1dUpdateParams", x="ptr", conv_state="ptr", weight="ptr", bias="ptr", conv_state_indices="ptr", y="ptr",
    in_gate="ptr", out_gate="ptr", intermediate_states="ptr", x_strides="i64[3]", y_strides="i64[3]",
    in_strides="i64[3]", out_strides="i64[3]", state_strides="i64[3]", kept_strides="i64[4]",
    weight_strides="i64[2]", bias_step="i64", index_step="i64", batch="i64", channels="i64", tokens="i64",
    slots="i64", state_len="i64", width="i32", silu="i32", wide_indices="i32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, index = p.desc, p.conv_state_indices
    values = {
        "x_strides": strides_of(p.x, 3), "y_strides": strides_of(p.y, 3), "state_strides": strides_of(p.conv_state, 3),
        "in_strides": strides_of(p.in_gate, 3), "out_strides": strides_of(p.out_gate, 3),
        "kept_strides": strides_of(p.intermediate_states, 4), "weight_strides": strides_of(p.weight, 2),
        "bias_step": strides_of(p.bias, 1)[0], "index_step": strides_of(index, 1)[0], "batch": desc.batch,
        "channels": desc.channels, "tokens": desc.tokens, "slots": desc.slots, "state_len": desc.state_len,
        "width": desc.width, "silu": desc.activation == "silu",
        "wide_indices": index is not None and index.element is ElementKind.I64,
    }  # fmt: skip
    blocks = -(-desc.batch * desc.channels // THREADS)
    step = Step("update", grid(blocks), values, {"TAPS": taps(desc)}, THREADS)
    views = (p.x, p.y, p.conv_state)
    return Geometry((step,), layout="contiguous" if all(v.dense for v in views) else "strided")


class CausalConv1dUpdatePlan(Plan):
    """y of the next tokens, and conv_state the last state_len elements: causal_conv1d_update of Dao's causal-conv1d.

    x, y (batch, channels, tokens); conv_state (slots, channels, state_len), state_len >= width - 1, the oldest element
    first, updated in place; weight (channels, width); bias (channels); conv_state_indices (batch), int32 or int64; no
    slot may stand there twice; in_gate, out_gate (batch, channels, tokens) make it LFM2's gated short convolution. The
    bits are those of `causal_conv1d`, or `gated_short_conv`, of the whole sequence.
    """

    op = "recurrence.causal_conv1d_update"
    descriptor = CausalConv1dUpdateDescriptor
    args = CausalConv1dUpdateArgs
    reference = staticmethod(reference)
    value_policy = "an item whose index is no slot has y and intermediate states of 0, and changes no state"
    variants = (
        Variant(
            "channels", _geometry, source="recurrence/causal_conv1d_update.cu",
            kernels=(Kernel("update", "causal_conv1d_update<{T}, {TAPS}>", PARAMS, {"TAPS": TAPS}, threads=THREADS),),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("256 sequences of 8192 channels bf16, width 4", also=("bias",), batch=256, channels=8192, tokens=1,
                  slots=256, state_len=3, width=4, activation="silu", element="bfloat16", target=None, peers=()),
        Benchmark("256 sequences of 2048 channels bf16, width 3, gated", also=("in_gate", "out_gate"), batch=256,
                  channels=2048, tokens=1, slots=256, state_len=2, width=3, element="bfloat16", target=None, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CausalConv1dUpdateDescriptor:
        width, batch = draw.integer(2, 8), draw.integer(0, 3)
        return CausalConv1dUpdateDescriptor(
            batch=batch, channels=draw.sizes(1, 3, 8, 40), tokens=draw.sizes(1, 2, 0, 5, 9), slots=batch,
            state_len=width - 1 + draw.sizes(0, 1, 4), width=width, activation=draw.choice(ACTIVATIONS),
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def check(cls, desc: CausalConv1dUpdateDescriptor, views: Mapping[str, Any]) -> None:
        if views.get("conv_state_indices") is None and desc.slots != desc.batch:
            raise InvalidProblemError(
                f"conv_state_indices must be given where there are {desc.slots} slots for {desc.batch} sequences"
            )


_update: Any = functional(CausalConv1dUpdatePlan, "causal_conv1d_update")


@entry(CausalConv1dUpdatePlan)
def causal_conv1d_update(
    x: Array, conv_state: Array, weight: Array, bias: Array | None = None, *, activation: str | None = None,
    conv_state_indices: Array | None = None, return_intermediate_states: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y of the next tokens of each sequence; conv_state is moved on in place (causal_conv1d_update of causal-conv1d).

    x: [batch, channels] of one token, or [batch, channels, tokens]; conv_state: [slots, channels, state_len] with
    state_len >= width - 1, the oldest element first; weight: [channels, width]; bias: [channels]. conv_state_indices:
    [batch], the slot of each sequence, none twice; one outside [0, slots) is skipped, and its y is 0. activation: None,
    "silu" or "swish". With return_intermediate_states the result is (y, states), states [batch, tokens, channels,
    state_len] after each token: where only some drafted tokens are accepted, the state after the last of them goes back
    into the slot. There is no gradient. JAX's arrays do not change: conv_state as it is then is the last result.
    """
    shape = shape_of(x, "x")
    if len(shape) not in (2, 3):
        raise InvalidProblemError(f"x must be [batch, channels] or [batch, channels, tokens], got shape {shape}")
    return _made(
        {"x": x}, len(shape) == 2, False, out, conv_state=conv_state, weight=weight, bias=bias,
        conv_state_indices=conv_state_indices, activation=activation_name(activation),
        return_intermediate_states=return_intermediate_states, stream=stream, preference=preference,
    )  # fmt: skip


@entry(CausalConv1dUpdatePlan)
def gated_short_conv_update(
    b: Array, c: Array, x: Array, conv_state: Array, weight: Array, bias: Array | None = None, *,
    conv_state_indices: Array | None = None, return_intermediate_states: bool = False, layout: str = "bld",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """c · causal_conv1d_update(b · x) in one launch: the next tokens of `gated_short_conv`, in its bits (LFM2).

    b, c, x: [batch, size] of one token, or [batch, tokens, size], with layout="bdl" [batch, size, tokens]: the three
    parts of the input's projection, in any strides; y is like x. conv_state: [slots, size, state_len] of b · x,
    moved on in place; weight: [size, width]; everything else as in `causal_conv1d_update`. In 16 bits b · x and the sum
    are rounded before they are multiplied on, as there. There is no gradient.
    """
    shape = shape_of(x, "x")
    if layout not in ("bdl", "bld"):
        raise InvalidProblemError(f'layout must be "bdl" or "bld", got {shown(layout)}')
    if len(shape) not in (2, 3):
        raise InvalidProblemError(f"x must be [batch, size] or have three axes, {layout!r}, got shape {shape}")
    for name, gate in (("b", b), ("c", c)):
        if shape_of(gate, name) != shape:
            raise InvalidProblemError(f"{name} must have shape {shape}, got {shape_of(gate, name)}")
    return _made(
        {"x": x, "in_gate": b, "out_gate": c}, len(shape) == 2, layout == "bld", out, conv_state=conv_state,
        weight=weight, bias=bias, conv_state_indices=conv_state_indices,
        return_intermediate_states=return_intermediate_states, stream=stream, preference=preference,
    )  # fmt: skip


def _made(arrays: dict[str, Any], one: bool, turned: bool, out: Any, **operands: Any) -> Any:
    """The plan's y for arrays of one token without an axis of tokens, or turned with the channels last."""

    def seen(x: Any, name: str) -> Any:
        return with_axis(x, -1, name) if one else transposed(x, name) if turned else x

    states = operands["return_intermediate_states"]
    outs = list(each_of(out, 1 + bool(states)))
    outs[0] = None if outs[0] is None else seen(outs[0], "out")
    into = None if out is None else tuple(outs) if states else outs[0]
    made = _update(**{name: seen(x, name) for name, x in arrays.items()}, **operands, out=into)
    if out is not None:
        return out
    y, *rest = made if isinstance(made, tuple | list) else (made,)  # with JAX's the state as it is then, last
    y = without_axes(y, {2}, "y") if one else transposed(y, "y") if turned else y
    return (y, *rest) if rest else y
