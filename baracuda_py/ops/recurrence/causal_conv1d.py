"""causal_conv1d: a short depthwise convolution of the present and the past, as state-space models have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Step, Variant, Vjp, operand, output,
)  # fmt: skip
from ...calls.entries import entry
from ...calls.functional import functional
from ...core.arrays import read
from ...core.benchmark import Benchmark
from ...core.checked import shown
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import cut, shape_of, transposed, with_axis
from ..attention.cache.batch_indices_positions import batch_indices_positions
from ..elementwise.binary_functions import lt, ne, subtract
from ..elementwise.cast import cast
from ..elementwise.ternary_functions import clip, where
from ..elementwise.unary_formulas import silu
from ..layout.concat import concat
from ..layout.creation import arange
from ..scan.scan_extreme import cummax
from ...schedules.geometry import strides_of
from .causal_conv import (
    COMMON, I32, POLICY, THREADS, CausalConvDescriptor, Windows, activation_name, agree, common, conv_case,
    layout_class, random_bounds, random_positions, random_rows, spans, state_step, taps, walk, walk_kernel,
)  # fmt: skip

X, STATES = "batch channels length", "states channels kept"


@dataclass(frozen=True, kw_only=True)
class CausalConv1dDescriptor(CausalConvDescriptor):
    """As `CausalConvDescriptor`."""


@dataclass(slots=True, kw_only=True)
class CausalConv1dArgs(Args):
    """Any strides: channels first or last. A state has the last width - 1 elements of a sequence, the oldest first.

    positions: how many elements of its own sequence precede each, negative for an element of none. Of packed sequences
    rows has the sequence of each element and bounds where each begins, and the last ends; they go with positions.
    """

    x: Array = operand(X)
    weight: Array = operand("channels width")
    bias: Array | None = operand("channels", optional=True)
    initial_states: Array | None = operand(STATES, optional=True)
    positions: Array | None = operand("batch length", element=I32, optional=True, values=random_positions)
    rows: Array | None = operand("batch length", element=I32, instead="dense", values=random_rows)
    bounds: Array | None = operand("num_bounds", element=I32, instead="dense", values=random_bounds)
    y: Array | None = output(X, optional=True)
    final_states: Array | None = output(STATES, optional=True)


def reference(
    desc: CausalConv1dDescriptor, *, x: Any, weight: Any, bias: Any, initial_states: Any, positions: Any, rows: Any,
    bounds: Any, wanted: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in: the oldest element of a window first."""
    windows = Windows.of(desc, positions, rows, bounds)
    with np.errstate(all="ignore"):
        z = windows.sums(x, weight, bias, initial_states)
        y = np.where((windows.reach >= 0)[:, None], silu(z) if desc.activation == "silu" else z, x.dtype.type(0))
    return {"y": y, "final_states": last_states(desc, x, initial_states, bounds)}


def last_states(desc: CausalConvDescriptor, x: Any, initial: Any, bounds: Any) -> Any:
    """The last width - 1 elements of every sequence and of the state before it."""
    last = np.zeros((desc.states, desc.channels, desc.kept), x.dtype)
    for s, (start, end) in enumerate(zip(*spans(desc, bounds), strict=True)):
        before = np.zeros_like(last[s]) if initial is None else initial[s]
        seen = np.concatenate([before, x[0 if desc.packed else s, :, start:end]], -1)
        last[s] = seen[:, seen.shape[-1] - desc.kept :]
    return last


PARAMS = Params("CausalConv1dParams", **COMMON, y="ptr", final_states="ptr", y_strides="i64[3]", final_strides="i64[3]")
_SPAN = 128  # steps of a thread across channels: what precedes them is read again


def _geometry(p: Problem) -> Geometry | str:
    desc, views = p.desc, (p.x,) if p.y is None else (p.x, p.y)
    found = walk(desc, views, _SPAN)
    if isinstance(found, str):
        return found
    values = {**common(p), "y_strides": strides_of(p.y, 3), "final_strides": strides_of(p.final_states, 3)}
    steps = []
    if p.y is not None:
        axes = {"LAYOUT": found.layout, "TAPS": taps(desc)}
        steps.append(Step("convolve", found.grid, {**values, **found.params}, axes, THREADS))
    if p.final_states is not None:
        steps.append(state_step("last", desc, values, {}))
    return Geometry(tuple(steps), layout=layout_class(views, found))


def in_torch(
    torch: Any, desc: CausalConv1dDescriptor, *, x: Any, weight: Any, bias: Any, initial_states: Any, positions: Any,
    rows: Any, bounds: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """A grouped convolution of padded x, of sequences one by one where there are several in an item."""
    if 0 in (desc.batch, desc.channels) or (positions is not None and not desc.packed):
        return NotImplemented
    conv, pad, kept = torch.nn.functional.conv1d, torch.nn.functional.pad, desc.kept

    def one(part: Any, before: Any) -> tuple[Any, Any]:
        seen = pad(part, (kept, 0)) if before is None else torch.cat((before, part), -1)
        if not part.shape[-1]:
            return part, seen
        z = conv(seen, weight[:, None], bias, groups=desc.channels)
        return torch.nn.functional.silu(z) if desc.activation == "silu" else z, seen[..., -kept:]

    if not desc.packed:
        y, last = one(x, initial_states)
        return {"y": y, "final_states": last}
    start, end = spans(desc, bounds.cpu().numpy())
    parts, lasts, at = [], [], 0
    for s, (a, b) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        parts.append(torch.zeros_like(x[..., at:a]))
        y, last = one(x[..., a:b], None if initial_states is None else initial_states[s : s + 1])
        parts.append(y)
        lasts.append(last)
        at = max(at, b)
    parts.append(torch.zeros_like(x[..., at:]))
    last = torch.cat(lasts) if lasts else x.new_zeros((0, desc.channels, kept))
    return {"y": torch.cat(parts, -1), "final_states": last}


def conv_benchmarks(*also: str) -> tuple[Benchmark, ...]:
    """Mamba's and gated delta networks' convolutions, channels first and last."""

    def last(torch: Any, desc: Any) -> dict[str, Any]:
        shape = (desc.batch, desc.length, desc.channels)
        names = ("x", "dy", "dx") if "dx" in also else ("x", "y")
        return {name: torch.randn(shape, dtype=torch.bfloat16).transpose(1, 2) for name in names}

    facts: dict[str, Any] = {
        "batch": 8, "channels": 8192, "length": 4096, "width": 4, "activation": "silu", "element": "bfloat16",
    }  # fmt: skip
    return (
        Benchmark("[8, 8192, 4096] bf16, width 4", also=also, **facts),
        Benchmark("[8, 8192, 4096] bf16, width 4, channels last", also=also, make=last, **facts),
    )


class CausalConv1dPlan(Plan):
    """y[b, c, t] = act(bias[c] + Σ_j weight[c, width - 1 - j] x[b, c, t - j]), causal_conv1d_fn of Dao's causal-conv1d.

    x, y (batch, channels, length) in any strides; weight (channels, width), width 2 to 8; bias (channels);
    initial_states, final_states (states, channels, width - 1): what precedes and what ends each sequence, zeros where
    absent. Sums are float32 (float64 of float64), the oldest element first in every layout, so that a sequence has the
    same bits alone, in a batch, packed, or continued from its state.
    """

    op = "recurrence.causal_conv1d"
    descriptor = CausalConv1dDescriptor
    args = CausalConv1dArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (
        Variant(
            "walk", _geometry, source="recurrence/causal_conv1d.cu",
            kernels=(
                walk_kernel("convolve", "causal_conv1d<{T}, conv::{LAYOUT}, {TAPS}>", PARAMS),
                Kernel("last", "causal_conv_last<{T}>", PARAMS, threads=THREADS),
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    vjp = Vjp(
        "CausalConv1dBackwardPlan",
        grads={"x": "dx", "weight": "dweight", "bias": "dbias", "initial_states": "dinitial_states"},
    )
    torch = staticmethod(in_torch)
    benchmarks = conv_benchmarks("bias", "y")

    @staticmethod
    def case(draw: Any) -> CausalConv1dDescriptor:
        made: CausalConv1dDescriptor = conv_case(draw, CausalConv1dDescriptor)
        return made

    @classmethod
    def complete(cls, desc: CausalConv1dDescriptor, arrays: dict[str, Any]) -> None:
        agree(desc, arrays)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_states(shapes, facts)


def infer_states(shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
    """The functional layer's `packed` and `states`, from the bounds."""
    bounds = shapes.get("bounds")
    if bounds is not None and len(bounds) == 1 and bounds[0]:
        facts["packed"] = True
        facts["states"] = bounds[0] - 1


_conv: Any = functional(CausalConv1dPlan, "causal_conv1d", returns=("y",))


@entry(CausalConv1dPlan)
def causal_conv1d(
    x: Array, weight: Array, bias: Array | None = None, *, seq_idx: Array | None = None,
    cu_seqlens: Array | None = None, initial_states: Array | None = None, return_final_states: bool = False,
    activation: str | None = None, layout: str = "bdl", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[b, c, t] = act(bias[c] + Σ_k weight[c, k] x[b, c, t - (width - 1) + k]), causal_conv1d_fn of causal-conv1d.

    x: [batch, channels, length] in any strides, or with layout="bld" [batch, length, channels], channels that lie last
    in memory being as fast; y is like it. weight: [channels, width], width from 2 to 8; bias: [channels]; activation:
    None, "silu" or "swish". initial_states: [batch, channels, width - 1], what precedes x, the oldest first, zeros
    where absent; with return_final_states the result is (y, final_states), the last width - 1 elements.
    seq_idx: int32 [batch, length], the sequence of each element: a window ends where the number changes, and y is 0
    where it is negative; it goes with no states. cu_seqlens: int32 or int64 [sequences + 1], the bounds of sequences
    packed into a batch of one, with states of [sequences, channels, width - 1]; they are clamped to [0, length] and to
    the largest bound before them, and elements of no sequence have a y of 0. Gradients of x, weight, bias and
    initial_states.
    """
    shape = shape_of(x, "x")
    if len(shape) != 3:
        raise InvalidProblemError(f"x must have three axes, {layout!r}, got shape {shape}")
    if layout not in ("bdl", "bld"):
        raise InvalidProblemError(f'layout must be "bdl" or "bld", got {shown(layout)}')
    turned = layout == "bld"
    options: dict[str, Any] = {"stream": stream, "preference": preference}
    outs = list(each_of(out, 1 + bool(return_final_states)))
    if turned:
        x = transposed(x, "x")
        outs[0] = None if outs[0] is None else transposed(outs[0], "out")
    given = places(shape_of(x, "x"), seq_idx, cu_seqlens, initial_states, return_final_states, options)
    into = None if out is None else tuple(outs) if return_final_states else outs[0]
    made = _conv(
        x, weight, bias, initial_states, activation=activation_name(activation),
        return_final_states=return_final_states, out=into, **given, **options,
    )  # fmt: skip
    if out is not None:
        return out
    y, *last = made if return_final_states else (made,)
    y = transposed(y, "y") if turned else y
    return (y, *last) if last else y


def places(
    shape: tuple[int, ...], seq_idx: Any, cu_seqlens: Any, initial: Any, final: bool, options: dict[str, Any]
) -> dict[str, Any]:
    """The plan's positions, rows and bounds; nothing where every item of the batch is a sequence."""
    batch, _, length = shape
    if seq_idx is not None:
        if cu_seqlens is not None or initial is not None or final:
            raise InvalidProblemError("seq_idx goes with no cu_seqlens, initial_states and final states; give those")
        found = read(seq_idx, "seq_idx")
        if found.shape != (batch, length) or found.element is not I32:
            raise InvalidProblemError(
                f"seq_idx must be int32 of shape {(batch, length)}, got {found.element} {found.shape}"
            )
        return {"positions": _runs(seq_idx, batch, length, options)}
    if cu_seqlens is None:
        return {}
    if batch != 1:
        raise InvalidProblemError(f"x must have a batch of 1 with cu_seqlens, got {batch}")
    found = read(cu_seqlens, "cu_seqlens")
    if found.element not in INDICES or len(found.shape) != 1 or not found.shape[0]:
        raise InvalidProblemError(
            f"cu_seqlens must be int32 or int64 [sequences + 1], got {found.element} {found.shape}"
        )
    bounds = cummax(clip(cu_seqlens, 0, length, **options), **options)[0]
    bounds = bounds if found.element is I32 else cast(bounds, I32, **options)
    starts, ends = (cut(bounds, (part,), "cu_seqlens") for part in (slice(0, found.shape[0] - 1), slice(1, None)))
    rows, positions = batch_indices_positions(bounds, subtract(ends, starts, **options), num_tokens=length, **options)
    positions = where(lt(rows, 0, **options), -1, positions, **options)
    return {
        "positions": with_axis(positions, 0, "positions"), "rows": with_axis(rows, 0, "rows"), "bounds": bounds,
    }  # fmt: skip


def _runs(seq_idx: Any, batch: int, length: int, options: dict[str, Any]) -> Any:
    """How many elements of the same number stand before each; -1 of negative numbers."""
    if length < 2 or not batch:
        return clip(seq_idx, -1, 0, **options)
    with beside(seq_idx, options["stream"]):
        steps = arange(1, length, element=I32, like=seq_idx)
    before, after = (cut(seq_idx, (slice(None), part), "seq_idx") for part in (slice(0, length - 1), slice(1, None)))
    starts = cummax(where(ne(before, after, **options), steps, 0, **options), axis=1, **options)[0]
    column = cut(seq_idx, (slice(None), slice(0, 1)), "seq_idx")
    first = subtract(column, column, **options)
    runs = concat([first, subtract(steps, starts, **options)], axis=1, **options)
    return where(lt(seq_idx, 0, **options), -1, runs, **options)
