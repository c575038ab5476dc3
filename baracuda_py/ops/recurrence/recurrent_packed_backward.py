"""recurrent_packed_backward: gradients of all steps of a recurrent layer over packed rows, a launch for each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core import (
    Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Step, Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...core.element import unrounded
from ...core.variant import aligned
from ...schedules.geometry import strides_of
from ...schedules.packed_steps import Place, places, runs
from . import recurrent_torch
from .recurrent_formulas import walked_back
from .recurrent_packed import (
    FIRST, GATED, GATES, GRUS, LSTMS, SMEM, STATE, THREADS, WIDE, PackedSteps, RecurrentCell,
    RecurrentPackedDescriptor, step_fields, step_values, tiles_of,
)  # fmt: skip
from .recurrent_walk import weights

_ROWS, _LINE = 32, 512  # items of a block, bytes of k of a slice
_WITH_H = tuple(kind for kind in RecurrentCell if kind is not RecurrentCell.LSTM)


@dataclass(slots=True, kw_only=True)
class RecurrentPackedBackwardArgs(Args):
    """Any strides, fastest where weight is dense along its first axis. gates_h: products of the states before and bias.

    dh, dc: the gradients of h and c of every step. dgates_h is that of gates_h; of other cells than a GRU it is dgates.
    """

    dh: Array = operand(STATE)
    weight: Array = operand("gates_size hidden", values=weights)
    gates: Array | None = operand(GATES, kinds=GATED)
    gates_h: Array | None = operand(GATES, kinds=GATED)
    h: Array | None = operand(STATE, kinds=_WITH_H)
    h0: Array | None = operand(FIRST, kinds=GRUS)
    c: Array | None = operand(STATE, kinds=LSTMS)
    c0: Array | None = operand(FIRST, kinds=LSTMS)
    dc: Array | None = operand(STATE, optional=True, kinds=LSTMS)
    dgates: Array = output(GATES)
    dgates_h: Array | None = output(GATES, needs="h0", kinds=GRUS)
    dh0: Array | None = output(FIRST, optional=True)
    dc0: Array | None = output(FIRST, optional=True, needs="c0", kinds=LSTMS)


def reference(
    desc: RecurrentPackedDescriptor, *, dh: Any, weight: Any, gates: Any = None, gates_h: Any = None, h: Any = None,
    h0: Any = None, c: Any = None, c0: Any = None, dc: Any = None, wanted: Any = None, store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype dh comes in, back from the last step; the slopes of gates pass through `store`."""
    given = {
        "dh": dh,
        "weight": weight,
        "gates": gates,
        "gates_h": gates_h,
        "h": h,
        "h0": h0,
        "c": c,
        "c0": c0,
        "dc": dc,
    }
    return walked_back(desc.kind.value, desc.order, desc.sizes, desc.reverse, given, store)


_STRIDED = ("dh", "weight", "gates", "gates_h", "h", "h0", "c", "c0", "dc", "dgates", "dgates_h", "dh0", "dc0")
PARAMS = Params(
    "RecurrentPackedBackwardParams", **dict.fromkeys(_STRIDED, "ptr"), slopes="ptr", carry="workspace",
    **step_fields(*_STRIDED, "slopes"), later="i64", later_rows="i64", backward_rows=_ROWS, backward_line=_LINE,
    recurrent_threads=THREADS, recurrent_smem=SMEM,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, views, each = p.desc, p.views, 16 // p.desc.element.itemsize
    name = "dgates_h" if desc.kind is RecurrentCell.GRU else "dgates"
    slopes, (down, across) = views[name], p.weight.strides
    carried = aligned(desc.batch * desc.hidden * desc.element.acc.itemsize) if desc.kind in GATED else 0
    columns = (
        (down == 1 or desc.gates_size == 1) and (across % each == 0 or desc.hidden == 1) and p.weight.ptr % 16 == 0
    )
    wide = columns and desc.gates_size % each == 0
    shared: dict[str, Any] = {f"{n}_strides": strides_of(views.get(n), 2) for n in _STRIDED}
    if slopes is None:  # nobody wants them, but the step before needs them: behind the carries
        place, strides = ("@workspace", carried), [desc.gates_size, 1]
        shared |= {name: place, f"{name}_strides": strides, "slopes": place, "slopes_strides": strides}
        nbytes = carried + aligned(sum(desc.sizes) * desc.gates_size * desc.element.itemsize)
    else:
        wide = wide and slopes.inner_dense and slopes.aligned()
        shared |= {"slopes": name, "slopes_strides": strides_of(slopes, 2)}
        nbytes = carried
    shared["carry"] = 0
    steps: list[Step] = []
    for run in runs(_back(desc, p.dh0 is not None or p.views.get("dc0") is not None)):
        at = run.place
        blocks = tiles_of(max(at.rows, at.later_rows), desc.hidden, _ROWS)
        if isinstance(blocks, str):
            return blocks
        values = shared | step_values(desc, run) | {"later": at.later, "later_rows": at.later_rows}
        steps.append(Step("step", blocks, values, {"WIDE": wide}, THREADS, SMEM, times=run.times))
    dense = all(v is None or v.dense for v in views.values())
    return Geometry(tuple(steps), nbytes, "contiguous" if dense else "strided")


def _back(desc: RecurrentPackedDescriptor, firsts: bool) -> list[Place]:
    """The steps from the last that was taken; at the end what goes back to the first states, where that is wanted."""
    taken = places(desc.sizes, desc.reverse)
    last = [Place(0, 0, later=taken[0].start, later_rows=taken[0].rows)] if taken and firsts else []
    return [*reversed(taken), *last]


def _turned(torch: Any, desc: RecurrentPackedDescriptor) -> dict[str, Any]:
    """A benchmark's weight, dense along its first axis, as layers hand it in."""
    made = torch.randn(desc.hidden, desc.gates_size) / desc.hidden**0.5
    return {"weight": made.to(getattr(torch, str(desc.element))).t()}


class RecurrentPackedBackwardPlan(PackedSteps, Plan):
    """Gradients of `RecurrentPackedPlan`: with dh[t] = dy[t] + weightᵀ dgates_h[t + 1] those of gates, h0 and c0.

    Those of the weights are products of dgates_h with the states before, of all steps at once. A launch for each step;
    dgates is rounded to the element, as the product of the step before takes it, and what goes back past the weights is
    kept in float32 (float64 of float64). A row has the same bits in every batch, packed or not.
    """

    op = "recurrence.recurrent_packed_backward"
    direction = "backward"
    descriptor = RecurrentPackedDescriptor
    args = RecurrentPackedBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "steps", _geometry, source="recurrence/recurrent_packed_backward.cu",
            kernels=(
                Kernel(
                    "step", "recurrent_packed_backward<{T}, {KIND}, {WIDE}>", PARAMS, WIDE, threads=THREADS,
                    min_blocks=1,
                ),
            ),
            guarantee=Guarantee(Relative(4), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(recurrent_torch.backward)
    benchmarks = tuple(
        Benchmark(f"{kind.value} 128 × 64 × {hidden} bf16", kind=kind, sizes=(64,) * 128, hidden=hidden,
                  element="bfloat16", also=("dh0",), work=FLOPS, target=None, peers=(), make=_turned)
        for kind in GATED for hidden in (256, 512, 1024)
    )  # fmt: skip


recurrent_packed_backward = functional(RecurrentPackedBackwardPlan)
