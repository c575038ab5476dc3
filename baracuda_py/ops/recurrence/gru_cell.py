"""gru_gates: the pointwise part of a GRU's step (Cho et al. 2014), from its gates' pre-activations."""

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
from .lstm_cell import CELLS, GATES, STATE
from .recurrent import (
    GRU_ORDERS, THREADS, GruCellDescriptor, cell_fields, cell_geometry, gates_of, infer_hidden, joined,
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class GruCellArgs(Args):
    """Any strides. gates: the part of the input, gates_h that of the state before, biases in them."""

    gates: Array = operand(GATES)
    gates_h: Array = operand(GATES)
    h: Array = operand(STATE)
    h_next: Array = output(STATE)


def activated(desc: GruCellDescriptor, gates: Any, gates_h: Any) -> tuple[Any, Any, Any, Any]:
    """(r, z, n, what r multiplies)."""
    own, other = gates_of(desc, gates), gates_of(desc, gates_h)
    r, z = sigmoid(own[0] + other[0]), sigmoid(own[1] + other[1])
    return r, z, np.tanh(own[2] + r * other[2]), other[2]


def reference(desc: GruCellDescriptor, *, gates: Any, gates_h: Any, h: Any) -> Mapping[str, Any]:
    """NumPy in the dtype gates come in."""
    with np.errstate(all="ignore"):
        _, z, n, _ = activated(desc, gates, gates_h)
        return {"h_next": (1 - z) * n + z * h}


PARAMS = Params("GruCellParams", **cell_fields(3, "gates", "gates_h", "h", "h_next"))


def in_torch(torch: Any, desc: GruCellDescriptor, *, gates: Any, gates_h: Any, h: Any) -> Any:
    """Its formula."""
    own, other = gates_of(desc, gates), gates_of(desc, gates_h)
    r, z = torch.sigmoid(own[0] + other[0]), torch.sigmoid(own[1] + other[1])
    return (1 - z) * torch.tanh(own[2] + r * other[2]) + z * h


class GruCellPlan(Plan):
    """h' = (1 - z) n + z h; r, z the sigmoids of their parts of gates + gates_h, n = tanh(gates + r gates_h).

    gates, gates_h (batch, 3 hidden): input and state times their weights, each with its bias (torch's
    _thnn_fused_gru_cell; Keras's reset_after); h, h_next (batch, hidden). Computed in float32 (float64 of float64),
    rounded once.
    """

    op = "recurrence.gru_gates"
    descriptor = GruCellDescriptor
    args = GruCellArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "units", cell_geometry, source="recurrence/gru_cell.cu",
            kernels=(Kernel("cell", "gru_cell<{T}>", PARAMS, threads=THREADS),),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    vjp = Vjp("GruCellBackwardPlan", grads={"gates": "dgates", "gates_h": "dgates_h", "h": "dh"})
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("512 × 1024 bf16", **CELLS),)

    @staticmethod
    def case(draw: Any) -> GruCellDescriptor:
        return GruCellDescriptor(
            batch=draw.integer(0, 4), hidden=draw.sizes(1, 0, 3, 16, 70), order=draw.choice(GRU_ORDERS),
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_hidden(shapes, facts, "h")


gru_gates = functional(GruCellPlan)


@dataclass(slots=True, kw_only=True)
class GruCellBackwardArgs(Args):
    """Any strides; operands of the forward. Each output may be None."""

    dh_next: Array = operand(STATE)
    gates: Array = operand(GATES)
    gates_h: Array = operand(GATES)
    h: Array = operand(STATE)
    dgates: Array | None = output(GATES, optional=True)
    dgates_h: Array | None = output(GATES, optional=True)
    dh: Array | None = output(STATE, optional=True)


def backward_reference(
    desc: GruCellDescriptor, *, dh_next: Any, gates: Any, gates_h: Any, h: Any, wanted: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype gates come in."""
    with np.errstate(all="ignore"):
        r, z, n, hidden = activated(desc, gates, gates_h)
        dn = dh_next * (1 - z) * (1 - n * n)
        parts = [dn * hidden * (r * (1 - r)), dh_next * (h - n) * (z * (1 - z)), dn]
        return {
            "dgates": joined(desc, parts, np.concatenate),
            "dgates_h": joined(desc, [*parts[:2], dn * r], np.concatenate), "dh": dh_next * z,
        }  # fmt: skip


BACKWARD = Params(
    "GruCellBackwardParams", **cell_fields(3, "dh_next", "gates", "gates_h", "h", "dgates", "dgates_h", "dh")
)


class GruCellBackwardPlan(Plan):
    """Gradients of `GruCellPlan`, whose gates are activated anew: dgates, dgates_h and dh."""

    op = "recurrence.gru_gates_backward"
    direction = "backward"
    descriptor = GruCellDescriptor
    args = GruCellBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "units", cell_geometry, source="recurrence/gru_cell_backward.cu",
            kernels=(Kernel("cell", "gru_cell_backward<{T}>", BACKWARD, threads=THREADS),),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("512 × 1024 bf16", also=("dgates", "dgates_h", "dh"), **CELLS),)
    case = staticmethod(GruCellPlan.case)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_hidden(shapes, facts, "h")


gru_gates_backward = functional(GruCellBackwardPlan)
