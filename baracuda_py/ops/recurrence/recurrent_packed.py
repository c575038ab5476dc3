"""recurrent_packed: all steps of a recurrent layer of any size over packed rows, a launch for each step."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Step, Variant,
    choice, derived, element, extent, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...core.checked import checked
from ...core.element import unrounded
from ...core.variant import aligned
from ...schedules.geometry import strides_of
from ...schedules.packed_steps import Run, places, runs, sizes_of
from . import recurrent_torch
from .recurrent import GRU_ORDERS, LSTM_ORDERS
from .recurrent_formulas import walked
from .recurrent_walk import checked_order, weights

THREADS, SMEM = 512, 96 * 1024
_ROWS, _LINE = 64, 256  # items of a block, bytes of k of a slice
_MOST_TILES = 65535
ELMAN_ORDER = "h"
WIDE = {"WIDE": (True, False)}  # whether rows are dense along sums, in pieces of 16 bytes


class RecurrentCell(enum.Enum):
    """c' = f c + i g, h = o tanh(c') of an LSTM, h = (1 - z) n + z h of a GRU, tanh or relu of an Elman cell."""

    LSTM = "lstm"
    GRU = "gru"
    RNN_TANH = "rnn_tanh"
    RNN_RELU = "rnn_relu"

    @property
    def cpp(self) -> str:
        """The cell's C++ name."""
        return f"cell::{self.value.title().replace('_', '')}_"

    @property
    def orders(self) -> tuple[str, ...]:
        """The orders of gates; torch's is the first."""
        return {"lstm": LSTM_ORDERS, "gru": GRU_ORDERS}.get(self.value, (ELMAN_ORDER,))


LSTMS, GRUS, GATED = (RecurrentCell.LSTM,), (RecurrentCell.GRU,), (RecurrentCell.LSTM, RecurrentCell.GRU)
STATE, FIRST, GATES = "rows hidden", "batch hidden", "rows gates_size"


@dataclass(frozen=True, kw_only=True)
class RecurrentPackedDescriptor(Descriptor):
    """gates have shape (rows, n hidden), n being 4 of an LSTM, 3 of a GRU and 1 of an Elman cell.

    sizes: the rows of each step, positive and not growing, as batch_sizes of torch's PackedSequence; rows is their sum,
    and batch the first of them. order: of the gates, "ifgo" or "iofg" of an LSTM, "rzn" or "zrn" of a GRU, default the
    first. reverse: from the last step to the first.
    """

    kind: RecurrentCell = choice(RecurrentCell)
    sizes: tuple[int, ...] = checked(sizes_of, accepts="Sequence[int]")
    hidden: int = extent()
    order: str = choice((*LSTM_ORDERS, *GRU_ORDERS, ELMAN_ORDER), derived(lambda desc: desc.kind.orders[0]))
    reverse: bool = flag(False)
    element: ElementKind = element()

    def validate(self) -> None:
        checked_order(self, self.order)

    @property
    def rows(self) -> int:
        """Rows of all steps."""
        return sum(self.sizes)

    @property
    def batch(self) -> int:
        """Rows of the step that has most."""
        return self.sizes[0] if self.sizes else 0

    @property
    def gates_size(self) -> int:
        """Columns of the gates."""
        return len(self.order) * self.hidden


@dataclass(slots=True, kw_only=True)
class RecurrentPackedArgs(Args):
    """Any strides. gates: the input's products with its weights, with their bias; weight and bias: those of h."""

    gates: Array = operand(GATES)
    h0: Array = operand(FIRST)
    weight: Array = operand("gates_size hidden", values=weights)
    bias: Array | None = operand("gates_size", optional=True)
    c0: Array | None = operand(FIRST, kinds=LSTMS)
    h: Array = output(STATE)
    c: Array | None = output(STATE, kinds=LSTMS)


def reference(
    desc: RecurrentPackedDescriptor, *, gates: Any, h0: Any, weight: Any, bias: Any, c0: Any = None,
    wanted: Any = None, store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype gates come in; states pass through `store` from step to step."""
    return walked(desc.kind.value, desc.order, desc.sizes, desc.reverse, gates, h0, c0, weight, bias, store)


def step_fields(*names: str) -> dict[str, str]:
    """Fields that both directions have: places of the step, and two strides of each operand."""
    return {
        **{f"{n}_strides": "i64[2]" for n in names},
        **dict.fromkeys(("turn", "advance", "start", "rows", "before", "known"), "i64"), "hidden": "i32",
        "places": "i32[4]",
    }  # fmt: skip


def step_values(desc: Any, run: Run) -> dict[str, Any]:
    """What those fields are for one run."""
    at = run.place
    return {
        "turn": 0, "advance": run.advance, "start": at.start, "rows": at.rows, "before": at.before, "known": at.known,
        "hidden": desc.hidden, "places": [*(desc.order.index(g) for g in desc.kind.orders[0]), 0, 0, 0][:4],
    }  # fmt: skip


def tiles_of(rows: int, hidden: int, tile: int) -> tuple[int, int, int] | str:
    """The grid of blocks that have `tile` rows and a unit for every other thread."""
    tiles = -(-rows // tile)
    if tiles > _MOST_TILES:
        return f"more than {_MOST_TILES * tile} rows in a step"
    return max(1, -(-hidden // (THREADS // tile))), max(1, tiles), 1


PARAMS = Params(
    "RecurrentPackedParams", **dict.fromkeys(("gates", "h0", "weight", "bias", "c0", "h", "c"), "ptr"),
    **step_fields("gates", "h0", "weight", "c0", "h", "c"), bias_step="i64", forward_rows=_ROWS, forward_line=_LINE,
    recurrent_threads=THREADS, recurrent_smem=SMEM,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, views, each = p.desc, p.views, 16 // p.desc.element.itemsize
    wide = desc.hidden % each == 0 and all(v.inner_dense and v.aligned() for v in (p.h0, p.h, p.weight))
    shared: dict[str, Any] = {"bias_step": strides_of(p.bias, 1)[0]}
    shared |= {f"{n}_strides": strides_of(views.get(n), 2) for n in ("gates", "h0", "weight", "c0", "h", "c")}
    nbytes = 0
    if desc.kind is RecurrentCell.LSTM and p.c is None:  # nobody wants the cells, but the step behind needs them
        shared |= {"c": ("@workspace", 0), "c_strides": [desc.hidden, 1]}
        nbytes = aligned(sum(desc.sizes) * desc.hidden * desc.element.itemsize)
    steps = []
    for run in runs(places(desc.sizes, desc.reverse)):
        blocks = tiles_of(run.place.rows, desc.hidden, _ROWS)
        if isinstance(blocks, str):
            return blocks
        steps.append(
            Step("step", blocks, shared | step_values(desc, run), {"WIDE": wide}, THREADS, SMEM, times=run.times)
        )
    dense = all(v is None or v.dense for v in views.values())
    return Geometry(tuple(steps), nbytes, "contiguous" if dense else "strided")


def _drawn(draw: Any) -> tuple[int, ...]:
    """For tests: batches of one size, and those that shrink."""
    first, steps = draw.sizes(1, 3, 9, rare=(70,)), draw.integer(0, 4)
    shrinks = draw.flag()
    return tuple(max(1, first - t // 2 * shrinks) for t in range(steps))


def case(draw: Any) -> RecurrentPackedDescriptor:
    """A random problem."""
    return RecurrentPackedDescriptor(
        kind=draw.kind, sizes=_drawn(draw), hidden=draw.sizes(1, 5, 33, 0, 24, 144), reverse=draw.flag(),
        order=draw.choice(draw.kind.orders), element=draw.element,
    )  # fmt: skip


def products(desc: Any) -> int:
    """Operations of the products with the states' weights."""
    return int(2 * desc.rows * desc.gates_size * desc.hidden)


class PackedSteps:
    """What the plans of both directions share."""

    kinds = RecurrentCell
    case = staticmethod(case)

    @classmethod
    def flops(cls, desc: RecurrentPackedDescriptor) -> int:
        return products(desc)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        shape = shapes.get("weight")
        if shape is not None and len(shape) == 2:
            facts.setdefault("hidden", shape[1])


class RecurrentPackedPlan(PackedSteps, Plan):
    """h[t] = cell(gates[t], weight h[t - 1] + bias, h[t - 1]): the recurrent part of a layer, over packed rows.

    gates (rows, n hidden); h0, c0 (batch, hidden); weight (n hidden, hidden); bias (n hidden); h, c (rows, hidden), the
    states after every step, rounded to the element from step to step. A launch for each step makes the products, by
    tensor cores of 16-bit elements, and the cell. A row has the same bits in every batch, packed or not. `lstm`, `gru`,
    `rnn_tanh` and `rnn_relu` take it where `recurrent_layer` does not serve; its gradient is that of those.
    """

    op = "recurrence.recurrent_packed"
    descriptor = RecurrentPackedDescriptor
    args = RecurrentPackedArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "steps", _geometry, source="recurrence/recurrent_packed.cu",
            kernels=(
                Kernel("step", "recurrent_packed<{T}, {KIND}, {WIDE}>", PARAMS, WIDE, threads=THREADS, min_blocks=1),
            ),
            guarantee=Guarantee(Relative(4), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(recurrent_torch.forward)
    benchmarks = tuple(
        Benchmark(f"{kind.value} 128 × 64 × {hidden} bf16", kind=kind, sizes=(64,) * 128, hidden=hidden,
                  element="bfloat16", work=FLOPS, target=None, peers=())
        for kind in GATED for hidden in (256, 512, 1024)
    )  # fmt: skip


recurrent_packed = functional(RecurrentPackedPlan)
