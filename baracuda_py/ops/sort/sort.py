"""sort: the elements of rows in order, and where each stood (torch.sort, torch.argsort)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Plan, Problem, Variant, Vjp, derived,
    element, flag, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.tensor import Shape
from ...schedules.radix_sort import Strided, rows_of, sort_kernels, sort_params, sort_steps
from .order import EVERY, KEYS, RowDescriptor, lengths, order_of, rows_back, rows_last, torch_keys


@dataclass(frozen=True, kw_only=True)
class SortDescriptor(RowDescriptor):
    """x has shape `shape`; rows are along `axis`, sorted upwards or, if `descending`, downwards.

    start, stop: of a sorted row the elements start … stop - 1 are made; by default all.
    """

    descending: bool = flag(False)
    start: int = integer(0, minimum=0)
    stop: int = integer(derived(lambda desc: desc.count), minimum=0)
    element: ElementKind = element(EVERY)

    def validate(self) -> None:
        """A window within the row."""
        if not self.start <= self.stop <= self.count:
            raise InvalidProblemError(
                f"start and stop must be 0 <= start <= stop <= {self.count}, the elements of a row, got {self.start} "
                f"and {self.stop}"
            )
        if not self.shape and self.stop - self.start != 1:
            raise InvalidProblemError(
                f"start and stop must be 0 and 1 for x of rank 0, got {self.start} and {self.stop}"
            )

    @property
    def picked_shape(self) -> Shape:
        """The shape of what is made."""
        return self.resized(self.stop - self.start)


@dataclass(slots=True, kw_only=True)
class SortArgs(Args):
    """Any strides. y: the sorted rows; indices: where each of their elements stood. One of both is enough."""

    x: Array = operand("*shape", values=KEYS)
    y: Array | None = output("*picked_shape", optional=True)
    indices: Array | None = output("*picked_shape", element=ElementKind.I64, optional=True)


def reference(desc: SortDescriptor, *, x: Any, wanted: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    rows = rows_last(desc, x)
    order = order_of(rows, desc.descending)[..., desc.start : desc.stop]
    y, count = np.take_along_axis(rows, order, -1), desc.stop - desc.start
    return {"y": rows_back(desc, y, count), "indices": rows_back(desc, order, count)}


PARAMS = sort_params("SortParams")


def _geometry(p: Problem) -> Geometry | str:
    axis = p.desc.axis
    rows, cols = rows_of(p.x, axis)
    keys, y, indices = (Strided.of(name, p.views[name], axis) for name in ("x", "y", "indices"))
    assert keys is not None
    found = sort_steps(
        p, keys, p.desc.element, rows, cols, sorted=y, places=indices, descending=p.desc.descending,
        window=(p.desc.start, p.desc.stop),
    )  # fmt: skip
    if isinstance(found, str):
        return found
    dense = all(view.dense for view in p.flat())
    layout = "contiguous" if dense else "inner_contiguous" if keys.step == 1 else "strided"
    return Geometry(found.steps, found.workspace, layout)


def in_torch(torch: Any, desc: SortDescriptor, *, x: Any, wanted: Any) -> Any:
    """torch's stable sort."""
    keys = torch_keys(torch, x)
    if keys is NotImplemented:
        return NotImplemented
    made = torch.sort(keys, dim=desc.axis, descending=desc.descending, stable=True)
    y, indices = made if not desc.shape else (a.narrow(desc.axis, desc.start, desc.stop - desc.start) for a in made)
    return {"y": y.to(x.dtype), "indices": indices}


class SortPlan(Plan):
    """y = x with every row along `axis` sorted; indices[…, j, …] is where y[…, j, …] stood in its row (torch.sort).

    start and stop: y is elements start … stop - 1 of the sorted row, which costs less writing.

    The sort is stable: equal elements keep their order, of a descending sort too. A NaN is above every number, so
    it stands last, or first where the order is descending; -0 and +0 are equal. y has the bits of x: the signs of zeros
    and the payloads of NaN stay. The gradient of x is dy, put back to where it came from.
    """

    op = "sort.sort"
    descriptor = SortDescriptor
    args = SortArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "radix", _geometry, source="sort/sort.cu", kernels=sort_kernels(PARAMS), elements=EVERY,
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True), may_spill=True,
        ),
    )  # fmt: skip
    vjp = Vjp("SortBackwardPlan", grads={"x": "dx"})
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("[64 Mi] f32", shape=(1 << 26,), element="float32", also=("indices",)),
        Benchmark("[65536, 1024] f32", shape=(65536, 1024), element="float32", also=("indices",)),
        Benchmark("[16384, 4096] f32", shape=(16384, 4096), element="float32", also=("indices",)),
        Benchmark("[4096, 16384] f32", shape=(4096, 16384), element="float32", also=("indices",)),
        Benchmark("[64 Mi] i64", shape=(1 << 26,), element="int64", also=("indices",)),
    )

    @staticmethod
    def case(draw: Any) -> SortDescriptor:
        shape, along = lengths(draw)
        count = shape[along] if shape else 1
        start = draw.integer(0, count) if shape and draw.flag() else 0
        stop = draw.integer(start, count) if start else count
        return SortDescriptor(
            shape=shape, axis=along, descending=draw.flag(), start=start, stop=stop, element=draw.element
        )


sort = functional(SortPlan, returns=("y", "indices"))
argsort = functional(
    SortPlan, "argsort", "Where the elements of every row along `axis` stand in order (torch.argsort); see `SortPlan`.",
    returns=("indices",),
)  # fmt: skip
msort = functional(
    SortPlan, "msort", "y = x sorted along its first axis (torch.msort); see `SortPlan`.", returns=("y",), axis=0,
    descending=False,
)  # fmt: skip
partition = functional(
    SortPlan, "partition", "y = x sorted, as numpy.partition leaves open for any kth; see `SortPlan`.", returns=("y",),
    descending=False,
)  # fmt: skip
argpartition = functional(
    SortPlan, "argpartition", "`argsort`, as numpy.argpartition leaves open for any kth; see `SortPlan`.",
    returns=("indices",), descending=False,
)  # fmt: skip
