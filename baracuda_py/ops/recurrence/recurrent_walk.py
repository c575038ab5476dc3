"""recurrent_layer: all steps of an LSTM or GRU layer of at most 256 units in one launch."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core import (
    Args, ArchSku, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan,
    Problem, Relative, Step, Variant, choice, derived, element, extent, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import unrounded
from ...schedules.geometry import MOST_BLOCKS, strides_of
from .recurrent import GRU_ORDERS, LSTM_ORDERS
from .recurrent_formulas import walked

MOST_UNITS = 256
_ROWS, _THREADS, _CLUSTER = 8, 256, 8  # _ROWS: items of a block or cluster


_KERNELS = {_CLUSTER: "walk_together", 1: "walk"}


class RecurrentKind(enum.Enum):
    """The cell: c' = f c + i g, h = o tanh(c') of an LSTM, h = (1 - z) n + z h of a GRU."""

    LSTM = "lstm"
    GRU = "gru"

    @property
    def cpp(self) -> str:
        """The cell's C++ name."""
        return f"cell::{self.value.title()}_"

    @property
    def orders(self) -> tuple[str, ...]:
        """The orders of gates; torch's is the first."""
        return LSTM_ORDERS if self is RecurrentKind.LSTM else GRU_ORDERS


LSTMS = (RecurrentKind.LSTM,)


def checked_order(desc: Any, given: str) -> str:
    """The order, where the kind has it."""
    if given not in desc.kind.orders:
        raise InvalidProblemError(f"order of {desc.kind.value} must be one of {desc.kind.orders}, got {given!r}")
    return given


@dataclass(frozen=True, kw_only=True)
class RecurrentLayerDescriptor(Descriptor):
    """gates have shape (steps, batch, n hidden), n being 4 of an LSTM and 3 of a GRU; at most 256 units.

    order: of the gates, "ifgo" or "iofg" of an LSTM, "rzn" or "zrn" of a GRU, default the first. reverse: from the last
    step to the first.
    """

    kind: RecurrentKind = choice(RecurrentKind)
    steps: int = extent()
    batch: int = extent()
    hidden: int = extent()
    order: str = choice((*LSTM_ORDERS, *GRU_ORDERS), derived(lambda desc: desc.kind.orders[0]))
    reverse: bool = flag(False)
    element: ElementKind = element()

    def validate(self) -> None:
        if self.hidden > MOST_UNITS:
            raise InvalidProblemError(f"hidden must be at most {MOST_UNITS}, got {self.hidden}; take lstm or gru")
        checked_order(self, self.order)

    @property
    def gates_size(self) -> int:
        """Columns of the gates."""
        return len(self.order) * self.hidden


def weights(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: rows of length near 1."""
    return rng.standard_normal(shape) / max(1, shape[-1]) ** 0.5


@dataclass(slots=True, kw_only=True)
class RecurrentLayerArgs(Args):
    """Any strides. gates: the input's products with its weights, with their bias; weight and bias: those of h."""

    gates: Array = operand("steps batch gates_size")
    h0: Array = operand("batch hidden")
    weight: Array = operand("gates_size hidden", values=weights)
    bias: Array | None = operand("gates_size", optional=True)
    c0: Array | None = operand("batch hidden", kinds=LSTMS)
    h: Array = output("steps batch hidden")
    c: Array | None = output("steps batch hidden", kinds=LSTMS)


def reference(
    desc: RecurrentLayerDescriptor, *, gates: Any, h0: Any, weight: Any, bias: Any, c0: Any = None,
    wanted: Any = None, store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype gates come in; states pass through `store` from step to step."""
    sizes, packed = (desc.batch,) * desc.steps, (desc.steps * desc.batch, desc.gates_size)
    made = walked(
        desc.kind.value, desc.order, sizes, desc.reverse, gates.reshape(packed), h0, c0, weight, bias, store
    )  # fmt: skip
    return {name: x.reshape(desc.steps, desc.batch, desc.hidden) for name, x in made.items()}


PARAMS = Params(
    "RecurrentStepsParams", **dict.fromkeys(("gates", "h0", "weight", "bias", "c0", "h", "c"), "ptr"),
    **dict.fromkeys(("gates_strides", "h_strides", "c_strides"), "i64[3]"),
    **dict.fromkeys(("h0_strides", "c0_strides", "weight_strides"), "i64[2]"), bias_step="i64", steps="i64",
    batch="i64", hidden="i32", reverse="i32", places="i32[4]", walk_rows=_ROWS, walk_threads=_THREADS,
    walk_units=MOST_UNITS,
)  # fmt: skip


def _geometry(p: Problem, cluster: int) -> Geometry | str:
    desc, views = p.desc, p.views
    blocks = -(-desc.batch // _ROWS) * cluster
    if blocks > MOST_BLOCKS:
        return f"more than {MOST_BLOCKS} blocks"
    places = [desc.order.index(g) for g in desc.kind.orders[0]]
    values = {
        **{f"{n}_strides": strides_of(views.get(n), 3) for n in ("gates", "h", "c")},
        **{f"{n}_strides": strides_of(views.get(n), 2) for n in ("h0", "c0", "weight")},
        "bias_step": strides_of(p.bias, 1)[0], "steps": desc.steps, "batch": desc.batch, "hidden": desc.hidden,
        "reverse": desc.reverse, "places": [*places, 0][:4],
    }  # fmt: skip
    step = Step(_KERNELS[cluster], (max(blocks, cluster), 1, 1), values, {}, _THREADS, 0, cluster)
    dense = all(v is None or v.dense for v in views.values())
    return Geometry((step,), layout="contiguous" if dense else "strided")


def _row(name: str, cluster: int, **facts: Any) -> Variant:
    return Variant(
        name, lambda p: _geometry(p, cluster), source="recurrence/recurrent_steps.cu",
        kernels=(
            Kernel(
                _KERNELS[cluster], f"recurrent_steps<{{T}}, {{KIND}}, {cluster}>", PARAMS, threads=_THREADS,
                min_blocks=1,
            ),
        ),
        guarantee=Guarantee(Relative(4), batch_invariant=True), **facts,
    )  # fmt: skip


class RecurrentLayerPlan(Plan):
    """h[t] = cell(gates[t], weight h[t - 1] + bias, h[t - 1]): the recurrent part of an LSTM or GRU layer.

    gates (steps, batch, n hidden); h0, c0 (batch, hidden); weight (n hidden, hidden); bias (n hidden); h, c (steps,
    batch, hidden), the states after every step, rounded to the element from step to step. On sm_90 clusters of eight
    blocks keep the weights in registers; elsewhere a block reads them every step. `lstm` and `gru` take it where it
    serves; it has no gradient of its own.
    """

    op = "recurrence.recurrent_layer"
    descriptor = RecurrentLayerDescriptor
    args = RecurrentLayerArgs
    kinds = RecurrentKind
    reference = staticmethod(reference)
    variants = (
        _row("cluster", _CLUSTER, design=ArchSku.SM90A,
             elements=(ElementKind.F16, ElementKind.BF16, ElementKind.F32)),
        _row("block", 1),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(f"{kind.value} [128, 32, 256] {name}", kind=kind, steps=128, batch=32, hidden=256, element=name,
                  also=("bias",), target=None, peers=())
        for kind in RecurrentKind for name in ("float16", "float32")
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> RecurrentLayerDescriptor:
        return RecurrentLayerDescriptor(
            kind=draw.kind, steps=draw.integer(0, 4), batch=draw.sizes(1, 3, 9, 0), hidden=draw.sizes(1, 5, 33, 0, 150),
            order=draw.choice(draw.kind.orders), reverse=draw.flag(), element=draw.element,
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        shape = shapes.get("h0")
        if shape is not None and len(shape) == 2:
            facts.setdefault("hidden", shape[1])


recurrent_layer = functional(RecurrentLayerPlan)
