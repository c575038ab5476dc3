"""diff: the n-th differences of neighbours along one axis (torch.diff, numpy.diff)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Relative, Variant, Vjp, axis,
    element, extent, extents, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.error_bound import ErrorBound
from ...core.errors import InvalidProblemError
from ...core.tensor import Shape, View, dense_strides
from ...core.variant import Step
from ..reduce.reduce_kinds import EVERY
from .differences import KERNELS, Levels, copied, in_a_row, subtract


@dataclass(frozen=True, kw_only=True)
class DiffDescriptor(Descriptor):
    """x has shape `shape`; differences are taken n times along `axis`, negative counting from the end; 0 times: y is x.

    before, after: how many elements `prepend` and `append` have along it.
    """

    shape: Shape = extents()
    axis: int = axis(-1)
    n: int = integer(1, minimum=0)
    before: int = extent(0)
    after: int = extent(0)
    element: ElementKind = element(EVERY)

    def validate(self) -> None:
        if self.n == 0 and (self.before or self.after):
            raise InvalidProblemError("n is 0, so that y is x: prepend and append have no part in it; leave them out")

    @property
    def lead(self) -> Shape:
        """The extents before the axis."""
        return self.shape[: self.axis]

    @property
    def tail(self) -> Shape:
        """The extents behind the axis."""
        return self.shape[self.axis + 1 :]

    @property
    def whole(self) -> int:
        """Elements along the axis before the first difference."""
        return self.before + self.shape[self.axis] + self.after

    @property
    def left(self) -> int:
        """Elements along the axis after the last."""
        return max(self.whole - self.n, 0)


@dataclass(slots=True, kw_only=True)
class DiffArgs(Args):
    """Any strides."""

    x: Array = operand("*shape")
    prepend: Array | None = operand("*lead before *tail", optional=True)
    append: Array | None = operand("*lead after *tail", optional=True)
    y: Array = output("*lead left *tail")


def reference(desc: DiffDescriptor, *, x: Any, prepend: Any, append: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    parts = [part for part in (prepend, x, append) if part is not None]
    with np.errstate(all="ignore"):
        return {"y": np.diff(np.concatenate(parts, desc.axis), desc.n, desc.axis)}


def _geometry(p: Problem) -> Geometry | str:
    desc, axis = p.desc, p.desc.axis
    counts = {"prepend": desc.before, "x": desc.shape[axis], "append": desc.after}
    x = in_a_row([(name, count, p.views[name] or _dense(desc, count)) for name, count in counts.items()])
    levels = Levels(p.y, axis, desc.whole)
    steps: list[Step] = []
    if desc.n == 0:
        found = copied(p, axis, in_a_row((("y", desc.left, p.y),)), x)
        return found if isinstance(found, str) else Geometry(tuple(found), 0, "strided")
    for count in reversed(range(desc.left, desc.whole)) if desc.left else ():
        y = levels.next(count, count) if count > desc.left else in_a_row((("y", count, p.y),))
        found = subtract(p, axis, y, x, 1)
        if isinstance(found, str):
            return found
        steps, x = [*steps, *found], y
    return Geometry(tuple(steps), levels.used, "strided")


def _dense(desc: DiffDescriptor, count: int) -> View:
    """An operand that a row is chosen without: as if dense."""
    shape = (*desc.lead, count, *desc.tail)
    return View(0, shape, dense_strides(shape), desc.element)


def diff_bound(kind: ElementKind, _: Any = None) -> ErrorBound:
    """Of several differences each rounds to the accumulator."""
    return Relative(4) if kind.is_float else Exact()


def in_torch(torch: Any, desc: DiffDescriptor, *, x: Any, prepend: Any, append: Any) -> Any:
    """torch.diff."""
    return torch.diff(x, desc.n, desc.axis, prepend, append) if desc.n else x.clone()


class DiffPlan(Plan):
    """y[i] = x[i + 1] - x[i] along `axis`, n times (torch.diff); x stands between `prepend` and `append`.

    Floats are rounded to the accumulator (float32, float64 of float64), and the last difference to the element;
    integers wrap; of bool y says whether neighbours differ. Where n is no less than there are elements y is empty.
    """

    op = "scan.diff"
    descriptor = DiffDescriptor
    args = DiffArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="scan/difference.cu", elements=EVERY, kernels=KERNELS,
            guarantee=Guarantee(diff_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    vjp = Vjp("DiffBackwardPlan", grads={"x": "dx", "prepend": "dprepend", "append": "dappend"})
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"[16384, 8192] bf16, axis {along}", shape=(16384, 8192), axis=along, element="bfloat16")
        for along in (1, 0)
    )

    @staticmethod
    def case(draw: Any) -> DiffDescriptor:
        few = draw.flag()
        shape = draw.shape(1, 4, 0, 9) if few else (draw.integer(1, 3), draw.sizes(70, 131, 600))
        n = draw.integer(0, 3)
        return DiffDescriptor(
            shape=shape, axis=draw.integer(0, len(shape) - 1), n=n, before=draw.integer(0, 2) if n else 0,
            after=draw.integer(0, 2) if n else 0, element=draw.element,
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """The extents of prepend and append along the axis; where their shapes do not fit, they are refused later."""
        for name, count in (("prepend", "before"), ("append", "after")):
            shape, along = shapes.get(name), facts.get("axis", -1)
            if shape is not None and -len(shape) <= along < len(shape):
                facts.setdefault(count, shape[along])

    @classmethod
    def check(cls, desc: DiffDescriptor, views: Mapping[str, Any]) -> None:
        for name, count, field in (("prepend", desc.before, "before"), ("append", desc.after, "after")):
            if count and views.get(name) is None:
                raise InvalidProblemError(
                    f"{name} has {count} elements along the axis ({field}) and must be given, got None"
                )

    @classmethod
    def complete(cls, desc: DiffDescriptor, arrays: dict[str, Any]) -> None:
        """What the descriptor counts is there."""
        for name, count in (("prepend", desc.before), ("append", desc.after)):
            if count and arrays[name] is None:
                arrays[name] = np.ones((*desc.lead, count, *desc.tail), arrays["x"].dtype)


diff = functional(DiffPlan)
