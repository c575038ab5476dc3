"""What the pages of recurrent cells share: the problem, the places of gates, the launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core import Descriptor, ElementKind, Geometry, Problem, Step, choice, element, extent
from ...schedules.geometry import grid, strides_of

THREADS = 128
LSTM_ORDERS = ("ifgo", "iofg")  # of torch and Keras; of ONNX
GRU_ORDERS = ("rzn", "zrn")  # of torch; of Keras and ONNX


@dataclass(frozen=True, kw_only=True)
class LstmCellDescriptor(Descriptor):
    """gates have shape (batch, 4 hidden), states (batch, hidden).

    order: of the gates, input, forget, cell and output in torch's and Keras's "ifgo", or ONNX's "iofg".
    """

    batch: int = extent()
    hidden: int = extent()
    order: str = choice(LSTM_ORDERS, "ifgo")
    element: ElementKind = element()

    @property
    def gates_size(self) -> int:
        """Columns of the gates."""
        return 4 * self.hidden


@dataclass(frozen=True, kw_only=True)
class GruCellDescriptor(Descriptor):
    """gates have shape (batch, 3 hidden), states (batch, hidden).

    order: of the gates, reset, update and new in torch's "rzn", or Keras's and ONNX's "zrn".
    """

    batch: int = extent()
    hidden: int = extent()
    order: str = choice(GRU_ORDERS, "rzn")
    element: ElementKind = element()

    @property
    def gates_size(self) -> int:
        """Columns of the gates."""
        return 3 * self.hidden


def gates_of(desc: Any, gates: Any) -> list[Any]:
    """The gates apart, in torch's order."""
    return [gates[:, desc.order.index(g) * desc.hidden :][:, : desc.hidden] for g in torchs_order(desc)]


def torchs_order(desc: Any) -> str:
    """The names of the gates in torch's order."""
    return LSTM_ORDERS[0] if len(desc.order) == len(LSTM_ORDERS[0]) else GRU_ORDERS[0]


def joined(desc: Any, parts: list[Any], concatenate: Any) -> Any:
    """Gates, given in torch's order, side by side in that of the descriptor."""
    usual = torchs_order(desc)
    return concatenate([parts[usual.index(g)] for g in desc.order], 1)


def infer_hidden(shapes: Mapping[str, Any], facts: dict[str, Any], name: str) -> None:
    """The functional layer's `hidden`, from a state."""
    shape = shapes.get(name)
    if shape is not None and len(shape) == 2:
        facts.setdefault("hidden", shape[1])


def cell_geometry(p: Problem) -> Geometry:
    """A thread for each unit of each item."""
    desc, views, usual = p.desc, p.views, torchs_order(p.desc)
    values = {
        **{f"{name}_strides": strides_of(view, 2) for name, view in views.items()}, "batch": desc.batch,
        "hidden": desc.hidden, "places": [desc.order.index(g) for g in usual],
    }  # fmt: skip
    step = Step("cell", grid(-(-desc.batch * desc.hidden // THREADS)), values, {}, THREADS)
    dense = all(v is None or v.dense for v in views.values())
    return Geometry((step,), layout="contiguous" if dense else "strided")


def cell_fields(gates: int, *names: str) -> dict[str, str]:
    """Params fields: a pointer and two strides for each operand."""
    return {
        **dict.fromkeys(names, "ptr"), **{f"{name}_strides": "i64[2]" for name in names}, "batch": "i64",
        "hidden": "i64", "places": f"i32[{gates}]",
    }  # fmt: skip
