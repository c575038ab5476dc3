"""complex_pair_backward: the gradients of polar and complex for their two real operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, Params, Plan, Problem, Relative, Variant,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.error_bound import ErrorBound
from ...schedules.map import map_geometry, map_params
from .complex_pair import PARTS, ComplexPairDescriptor, ComplexPairKind, pair_kernels


@dataclass(frozen=True, kw_only=True)
class ComplexPairBackwardDescriptor(ComplexPairDescriptor):
    """All operands have shape `shape`; dz is complex, a, b and their gradients hold `element`."""


@dataclass(slots=True, kw_only=True)
class ComplexPairBackwardArgs(Args):
    """Any strides; an unwanted gradient is None. complex does not look at a and b."""

    dz: Array = operand("*shape", element="result")
    a: Array = operand("*shape", values=lambda rng, desc, shape: np.abs(rng.standard_normal(shape)))
    b: Array = operand("*shape")
    da: Array | None = output("*shape", optional=True)
    db: Array | None = output("*shape", optional=True)


def reference(desc: ComplexPairBackwardDescriptor, *, dz: Any, a: Any, b: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in the dtype a and b come in."""
    if desc.kind is ComplexPairKind.COMPLEX:
        return {"da": dz.real.copy(), "db": dz.imag.copy()}
    with np.errstate(all="ignore"):
        c, s = np.cos(b), np.sin(b)
        return {"da": dz.real * c + dz.imag * s, "db": a * (dz.imag * c - dz.real * s)}


PARAMS = Params("ComplexPairBackwardParams", da="ptr", db="ptr", dz="ptr", a="ptr", b="ptr", **map_params(5))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.da, p.db, p.dz, p.a, p.b))


def _bound(kind: ElementKind, op: Any) -> ErrorBound:
    return Relative(2) if op is ComplexPairKind.POLAR else Exact()


class ComplexPairBackwardPlan(Plan):
    """polar: da = Re(dz conj(u)), db = a Im(dz conj(u)) with u = exp(i b); complex: the parts of dz.

    That of polar is the derivative for negative a, too, where PyTorch's da has the other sign, and at a = 0.
    """

    op = "elementwise.complex_pair_backward"
    direction = "backward"
    kinds = ComplexPairKind
    descriptor = ComplexPairBackwardDescriptor
    args = ComplexPairBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="elementwise/complex_pair.cu",
            kernels=pair_kernels("complex_pair_backward<{KIND}, {T}, {LAYOUT}>", PARAMS), elements=PARTS,
            guarantee=Guarantee(_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "polar 67M float32", also=("da", "db"), shape=1 << 26, kind="polar", element="float32", peers=(EAGER,)
        ),
    )

    @staticmethod
    def case(draw: Any) -> ComplexPairBackwardDescriptor:
        return ComplexPairBackwardDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element)


polar_backward = functional(
    ComplexPairBackwardPlan, "polar_backward", "The gradients of polar; see `ComplexPairBackwardPlan`.",
    kind=ComplexPairKind.POLAR,
)  # fmt: skip
complex_backward = functional(
    ComplexPairBackwardPlan, "complex_backward", "The gradients of complex; see `ComplexPairBackwardPlan`.",
    kind=ComplexPairKind.COMPLEX,
)  # fmt: skip
