"""diff_backward: the gradient of diff, the same differences with the other sign and nothing beyond the ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Geometry, Guarantee, Plan, Problem, Variant, element, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.variant import Step
from .diff import DiffDescriptor, DiffPlan, diff_bound
from .differences import KERNELS_BACKWARD, Levels, copied, in_a_row, subtract


@dataclass(frozen=True, kw_only=True)
class DiffBackwardDescriptor(DiffDescriptor):
    """The forward's fields."""

    element: ElementKind = element(FLOATS)


@dataclass(slots=True, kw_only=True)
class DiffBackwardArgs(Args):
    """Any strides; a gradient not asked for is None."""

    dy: Array = operand("*lead left *tail")
    dx: Array | None = output("*shape", optional=True)
    dprepend: Array | None = output("*lead before *tail", optional=True)
    dappend: Array | None = output("*lead after *tail", optional=True)


def reference(desc: DiffBackwardDescriptor, *, dy: Any, wanted: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: dx[i] = dy[i - 1] - dy[i], n times."""
    slopes = np.moveaxis(dy, desc.axis, -1)
    nothing = np.zeros((*slopes.shape[:-1], 1), dy.dtype)
    with np.errstate(all="ignore"):
        for _ in range(desc.whole - desc.left):
            slopes = np.concatenate([nothing, slopes], -1) - np.concatenate([slopes, nothing], -1)
    first, last = desc.before, desc.whole - desc.after
    parts = {"dprepend": slopes[..., :first], "dx": slopes[..., first:last], "dappend": slopes[..., last:]}
    return {name: np.array(np.moveaxis(part, -1, desc.axis)) for name, part in parts.items()}


def _geometry(p: Problem) -> Geometry | str:
    desc, axis = p.desc, p.desc.axis
    given = (("dprepend", desc.before, p.dprepend), ("dx", desc.shape[axis], p.dx), ("dappend", desc.after, p.dappend))
    slopes, levels = in_a_row((("dy", desc.left, p.dy),)), Levels(p.dy, axis, desc.whole)
    steps: list[Step] = []
    if desc.n == 0:
        found = copied(p, axis, in_a_row(given), slopes)
        return found if isinstance(found, str) else Geometry(tuple(found), 0, "strided")
    # Where there are no differences nothing is handed back: the last level alone, from nothing.
    for count in range(desc.left + 1 if desc.left else desc.whole, desc.whole + 1):
        out = levels.next(count, count) if count < desc.whole else in_a_row(given)
        found = subtract(p, axis, out, slopes, -1)
        if isinstance(found, str):
            return found
        steps, slopes = [*steps, *found], out
    return Geometry(tuple(steps), levels.used, "strided")


def in_torch(torch: Any, desc: DiffBackwardDescriptor, *, dy: Any, wanted: Any) -> Any:
    """autograd of torch.diff, which is linear, at 0."""
    shapes = ((*desc.lead, desc.before, *desc.tail), desc.shape, (*desc.lead, desc.after, *desc.tail))
    parts = [dy.new_zeros(shape).requires_grad_() for shape in shapes]
    with torch.enable_grad():
        y = torch.diff(parts[1], desc.n, desc.axis, parts[0], parts[2]) if desc.n else parts[1].clone()
        found = torch.autograd.grad(y, parts, dy, allow_unused=True)
    names = ("dprepend", "dx", "dappend")
    return {n: torch.zeros_like(z) if g is None else g for n, z, g in zip(names, parts, found, strict=True)}


class DiffBackwardPlan(Plan):
    """dx[i] = dy[i - 1] - dy[i] along `axis`, n times, dy being 0 beyond its ends; likewise for prepend and append.

    Differences are rounded to the accumulator (float32, float64 of float64), and the last to the element.
    """

    op = "scan.diff_backward"
    direction = "backward"
    descriptor = DiffBackwardDescriptor
    args = DiffBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="scan/difference.cu", kernels=KERNELS_BACKWARD,
            guarantee=Guarantee(diff_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("[16384, 8192] bf16, axis 1", shape=(16384, 8192), axis=1, also=("dx",), element="bfloat16"),
    )

    @staticmethod
    def case(draw: Any) -> DiffBackwardDescriptor:
        found = DiffPlan.case(draw)
        return DiffBackwardDescriptor(
            shape=found.shape, axis=found.axis, n=found.n, before=found.before, after=found.after, element=draw.element
        )


diff_backward = functional(DiffBackwardPlan)
