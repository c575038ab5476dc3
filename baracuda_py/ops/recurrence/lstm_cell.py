"""lstm_gates: the pointwise part of an LSTM's step (Hochreiter and Schmidhuber 1997), of its gates' products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Guarantee, Kernel, Params, Plan, Relative, Variant, Vjp, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ..elementwise.unary_formulas import sigmoid
from .recurrent import (
    LSTM_ORDERS, THREADS, LstmCellDescriptor, cell_fields, cell_geometry, gates_of, infer_hidden, joined,
)  # fmt: skip

GATES, STATE = "batch gates_size", "batch hidden"


@dataclass(slots=True, kw_only=True)
class LstmCellArgs(Args):
    """Any strides. gates and gates_h are added: the parts of the input and of the state before."""

    gates: Array = operand(GATES)
    c: Array = operand(STATE)
    gates_h: Array | None = operand(GATES, optional=True)
    h: Array = output(STATE)
    c_next: Array | None = output(STATE, optional=True)


def activated(desc: LstmCellDescriptor, gates: Any, gates_h: Any) -> tuple[Any, Any, Any, Any]:
    """(i, f, g, o)."""
    i, f, g, o = gates_of(desc, gates if gates_h is None else gates + gates_h)
    return sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)


def reference(desc: LstmCellDescriptor, *, gates: Any, c: Any, gates_h: Any, wanted: Any) -> Mapping[str, Any]:
    """NumPy in the dtype gates come in."""
    with np.errstate(all="ignore"):
        i, f, g, o = activated(desc, gates, gates_h)
        after = f * c + i * g
        return {"h": o * np.tanh(after), "c_next": after}


PARAMS = Params("LstmCellParams", **cell_fields(4, "gates", "gates_h", "c", "h", "c_next"))


def in_torch(
    torch: Any, desc: LstmCellDescriptor, *, gates: Any, c: Any, gates_h: Any, wanted: set[str]
) -> dict[str, Any]:
    """Its formula."""
    i, f, g, o = gates_of(desc, gates if gates_h is None else gates + gates_h)
    after = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return {"h": torch.sigmoid(o) * torch.tanh(after), "c_next": after}


CELLS: dict[str, Any] = {"batch": 512, "hidden": 1024, "element": "bfloat16", "target": None}


class LstmCellPlan(Plan):
    """c' = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c'), i, f, g, o the parts of gates + gates_h.

    gates, gates_h (batch, 4 hidden): input and state times their weights, biases in either (torch's
    _thnn_fused_lstm_cell); c, c_next, h (batch, hidden). Computed in float32 (float64 of float64), rounded once.
    """

    op = "recurrence.lstm_gates"
    descriptor = LstmCellDescriptor
    args = LstmCellArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "units", cell_geometry, source="recurrence/lstm_cell.cu",
            kernels=(Kernel("cell", "lstm_cell<{T}>", PARAMS, threads=THREADS),),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    vjp = Vjp("LstmCellBackwardPlan", grads={"gates": "dgates", "gates_h": "dgates", "c": "dc"})
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("512 × 1024 bf16", also=("gates_h", "c_next"), **CELLS),)

    @staticmethod
    def case(draw: Any) -> LstmCellDescriptor:
        return LstmCellDescriptor(
            batch=draw.integer(0, 4), hidden=draw.sizes(1, 0, 3, 16, 70), order=draw.choice(LSTM_ORDERS),
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_hidden(shapes, facts, "c")


lstm_gates = functional(LstmCellPlan, returns=("c_next",))


@dataclass(slots=True, kw_only=True)
class LstmCellBackwardArgs(Args):
    """Any strides; operands of the forward. dgates is the gradient of gates and of gates_h both."""

    gates: Array = operand(GATES)
    c: Array = operand(STATE)
    gates_h: Array | None = operand(GATES, optional=True)
    dh: Array | None = operand(STATE, optional=True)
    dc_next: Array | None = operand(STATE, optional=True)
    dgates: Array | None = output(GATES, optional=True)
    dc: Array | None = output(STATE, optional=True)


def backward_reference(
    desc: LstmCellDescriptor, *, gates: Any, c: Any, gates_h: Any, dh: Any, dc_next: Any, wanted: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype gates come in."""
    with np.errstate(all="ignore"):
        i, f, g, o = activated(desc, gates, gates_h)
        t = np.tanh(f * c + i * g)
        dh = np.zeros_like(c) if dh is None else dh
        dc = dh * o * (1 - t * t)
        dc = dc if dc_next is None else dc + dc_next
        parts = [dc * g * (i * (1 - i)), dc * c * (f * (1 - f)), dc * i * (1 - g * g), dh * t * (o * (1 - o))]
        return {"dgates": joined(desc, parts, np.concatenate), "dc": dc * f}


BACKWARD = Params("LstmCellBackwardParams", **cell_fields(4, "gates", "gates_h", "c", "dh", "dc_next", "dgates", "dc"))


class LstmCellBackwardPlan(Plan):
    """Gradients of `LstmCellPlan`, whose gates are activated anew: dgates, of gates and gates_h both, and dc."""

    op = "recurrence.lstm_gates_backward"
    direction = "backward"
    descriptor = LstmCellDescriptor
    args = LstmCellBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "units", cell_geometry, source="recurrence/lstm_cell_backward.cu",
            kernels=(Kernel("cell", "lstm_cell_backward<{T}>", BACKWARD, threads=THREADS),),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("512 × 1024 bf16", also=("gates_h", "dh", "dc_next", "dgates", "dc"), **CELLS),)
    case = staticmethod(LstmCellPlan.case)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_hidden(shapes, facts, "c")


lstm_gates_backward = functional(LstmCellBackwardPlan)
