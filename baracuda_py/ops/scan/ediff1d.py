"""ediff1d: differences of neighbours in a row, between values that are put before and behind them (numpy.ediff1d)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Variant, Vjp, element, extent,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ..layout.views import raveled
from ...core.tensor import View
from ..reduce.reduce_kinds import NUMBERS
from .diff import diff_bound
from .differences import SINGLE, SINGLE_BACKWARD, Piece, copied, in_a_row, subtract


@dataclass(frozen=True, kw_only=True)
class Ediff1dDescriptor(Descriptor):
    """x has n elements, to_begin and to_end `begin` and `end`, y those and one for each pair of neighbours."""

    n: int = extent()
    begin: int = extent(0)
    end: int = extent(0)
    element: ElementKind = element(NUMBERS)

    @property
    def between(self) -> int:
        """Pairs of neighbours."""
        return max(self.n - 1, 0)

    @property
    def total(self) -> int:
        """Elements of y."""
        return self.begin + self.between + self.end


@dataclass(slots=True, kw_only=True)
class Ediff1dArgs(Args):
    """Any strides."""

    x: Array = operand("n")
    to_begin: Array | None = operand("begin", optional=True)
    to_end: Array | None = operand("end", optional=True)
    y: Array = output("total")


def reference(desc: Ediff1dDescriptor, *, x: Any, to_begin: Any, to_end: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        return {"y": np.concatenate([part for part in (to_begin, np.diff(x), to_end) if part is not None])}


def _thirds(desc: Ediff1dDescriptor, name: str, view: View) -> list[list[Piece]]:
    """The elements of y or dy: before the differences, they, and behind them, each counted from 0."""
    whole, found, start = Piece(0, desc.total, view, name), [], 0
    for count in (desc.begin, desc.between, desc.end):
        part, (where, base) = whole.part(0, start, count)
        found.append([Piece(0, count, part, where, base)] if count else [])
        start += count
    return found


def _together(*launches: Any) -> Geometry | str:
    steps: list[Any] = []
    for found in launches:
        if isinstance(found, str):
            return found
        steps += found
    return Geometry(tuple(steps), layout="strided")


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    before, between, behind = _thirds(desc, "y", p.y)

    def given(name: str, count: int) -> list[Piece]:
        """An operand; one that a row is chosen without as if dense."""
        return in_a_row(((name, count, p.views[name] or View(0, (count,), (1,), desc.element)),))

    return _together(
        copied(p, 0, before, given("to_begin", desc.begin)),
        subtract(p, 0, between, given("x", desc.n), 1),
        copied(p, 0, behind, given("to_end", desc.end)),
    )


def in_torch(torch: Any, desc: Ediff1dDescriptor, *, x: Any, to_begin: Any, to_end: Any) -> Any:
    """torch.diff between what is put beside it."""
    return torch.cat([part for part in (to_begin, torch.diff(x), to_end) if part is not None])


def _case(draw: Any) -> dict[str, int]:
    return {"n": draw.sizes(0, 1, 2, 40, 700), "begin": draw.integer(0, 3), "end": draw.integer(0, 3)}


class Ediff1dPlan(Plan):
    """y = to_begin, then x[i + 1] - x[i] of all neighbours, then to_end (numpy.ediff1d). Integers wrap."""

    op = "scan.ediff1d"
    descriptor = Ediff1dDescriptor
    args = Ediff1dArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="scan/difference.cu", elements=NUMBERS, kernels=SINGLE,
            guarantee=Guarantee(diff_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    vjp = Vjp("Ediff1dBackwardPlan", grads={"x": "dx", "to_begin": "dto_begin", "to_end": "dto_end"})
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("[134M] bf16", n=1 << 27, element="bfloat16"),)

    @staticmethod
    def case(draw: Any) -> Ediff1dDescriptor:
        return Ediff1dDescriptor(**_case(draw), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        for name, count in (("to_begin", "begin"), ("to_end", "end")):
            shape = shapes.get(name)
            if shape is not None and len(shape) == 1:
                facts.setdefault(count, shape[0])

    @classmethod
    def check(cls, desc: Ediff1dDescriptor, views: Mapping[str, Any]) -> None:
        for name, count in (("to_begin", desc.begin), ("to_end", desc.end)):
            if count and views.get(name) is None:
                raise InvalidProblemError(f"{name} has {count} elements and must be given, got None")

    @classmethod
    def complete(cls, desc: Ediff1dDescriptor, arrays: dict[str, Any]) -> None:
        """What the descriptor counts is there."""
        for name, count in (("to_begin", desc.begin), ("to_end", desc.end)):
            if count and arrays[name] is None:
                arrays[name] = np.ones(count, arrays["x"].dtype)


# ---- backward -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ediff1dBackwardDescriptor(Ediff1dDescriptor):
    """The forward's fields."""

    element: ElementKind = element(FLOATS)


@dataclass(slots=True, kw_only=True)
class Ediff1dBackwardArgs(Args):
    """Any strides; a gradient not asked for is None."""

    dy: Array = operand("total")
    dx: Array | None = output("n", optional=True)
    dto_begin: Array | None = output("begin", optional=True)
    dto_end: Array | None = output("end", optional=True)


def backward_reference(desc: Ediff1dBackwardDescriptor, *, dy: Any, wanted: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    before, between, behind = np.split(dy, [desc.begin, desc.begin + desc.between])
    dx = np.zeros(desc.n, dy.dtype)
    with np.errstate(all="ignore"):
        dx[1:] += between
        dx[: desc.between] -= between
    return {"dx": dx, "dto_begin": before.copy(), "dto_end": behind.copy()}


def _backward_geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    before, between, behind = _thirds(desc, "dy", p.dy)
    return _together(
        copied(p, 0, in_a_row((("dto_begin", desc.begin, p.dto_begin),)), before),
        subtract(p, 0, in_a_row((("dx", desc.n, p.dx),)), between, -1),
        copied(p, 0, in_a_row((("dto_end", desc.end, p.dto_end),)), behind),
    )


def backward_in_torch(torch: Any, desc: Ediff1dBackwardDescriptor, *, dy: Any, wanted: Any) -> Any:
    """autograd of torch.diff, which is linear, at 0, between what stands beside the differences."""
    before, between, behind = torch.split(dy, [desc.begin, desc.between, desc.end])
    x = dy.new_zeros(desc.n).requires_grad_()
    with torch.enable_grad():
        (dx,) = torch.autograd.grad(torch.diff(x), x, between)
    return {"dx": dx, "dto_begin": before, "dto_end": behind}


class Ediff1dBackwardPlan(Plan):
    """dx[i] = dy of the difference before x[i] less that of the one behind it; what stood beside them as it is."""

    op = "scan.ediff1d_backward"
    direction = "backward"
    descriptor = Ediff1dBackwardDescriptor
    args = Ediff1dBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "map", _backward_geometry, source="scan/difference.cu", kernels=SINGLE_BACKWARD,
            guarantee=Guarantee(diff_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(backward_in_torch)
    benchmarks = (Benchmark("[134M] bf16", n=1 << 27, also=("dx",), element="bfloat16"),)

    @staticmethod
    def case(draw: Any) -> Ediff1dBackwardDescriptor:
        return Ediff1dBackwardDescriptor(**_case(draw), element=draw.element)


_ediff1d: Any = functional(Ediff1dPlan)
ediff1d_backward = functional(Ediff1dBackwardPlan)


@entry(Ediff1dPlan)
def ediff1d(
    x: Array, to_end: Array | None = None, to_begin: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The differences of neighbours in x, behind to_begin and before to_end (numpy.ediff1d).

    x is taken as one row, which is a view, or else of a copy.
    """
    return _ediff1d(raveled(x, stream), to_begin, to_end, out=out, stream=stream, preference=preference)
