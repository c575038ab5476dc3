"""affine: y = alpha x + beta with scalars that may live on the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Everywhere, Exact, Forward, Geometry, Guarantee,
    Params, Plan, Problem, Scalar, Variant, element, extents, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import SIGNED
from ...calls.composed import composed
from ...calls.entries import entry
from ...core.numbers import modulo
from ...core.params import exactly
from ...schedules.map import map_geometry, map_kernels, map_params
from ...core.benchmark import Benchmark

INTEGERS = (*SIGNED, ElementKind.U8)


@dataclass(frozen=True, kw_only=True)
class AffineDescriptor(Descriptor):
    """x and y have shape `shape`."""

    shape: tuple[int, ...] = extents()
    element: ElementKind = element((*FLOATS, *INTEGERS))


@dataclass(slots=True, kw_only=True)
class AffineArgs(Args):
    """y may be x itself; both may have any strides."""

    x: Array = operand("*shape", values=Everywhere())
    y: Array = output("*shape", inplace=("x",))
    alpha: Scalar = scalar(1, meets="coefficient")
    beta: Scalar = scalar(0, meets="coefficient")


def reference(desc: AffineDescriptor, *, x: Any, alpha: Any, beta: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in; integers wrap."""
    if desc.element in INTEGERS:
        with np.errstate(over="ignore"):
            return {"y": np.asarray(x * modulo(alpha, desc.element) + modulo(beta, desc.element))}
    return {"y": np.asarray(x * x.dtype.type(alpha) + x.dtype.type(beta))}


PARAMS = Params(
    "AffineParams",
    y="ptr",
    x="ptr",
    alpha="scalar",
    beta="scalar",
    alpha_whole="iscalar",
    beta_whole="iscalar",
    **map_params(2),
)


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.y, p.x), exactly(p.desc.element in INTEGERS, "alpha", "beta"))


def in_torch(torch: Any, desc: AffineDescriptor, *, x: Any, alpha: Any, beta: Any) -> Any:
    """The formula."""
    if desc.element in INTEGERS:
        return (x.to(torch.int64) * int(alpha) + int(beta)).to(x.dtype)
    return x * alpha + beta


class AffinePlan(Plan):
    """y = alpha x + beta, rounded once after alpha and beta are rounded to the accumulator (f32, f64 for f64).

    Integers take whole numbers of int64 for them, and y is right modulo 2ⁿ.
    """

    op = "elementwise.affine"
    descriptor = AffineDescriptor
    args = AffineArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="elementwise/affine.cu", kernels=map_kernels("affine<{T}, {LAYOUT}>", PARAMS),
            elements=(*FLOATS, *INTEGERS),
            guarantee=Guarantee(lambda kind, _: Exact() if kind in INTEGERS else Forward(1), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("134M bf16", shape=1 << 27, element="bfloat16", make=lambda torch, desc: {"alpha": 2.0, "beta": 0.5}),
    )

    @staticmethod
    def case(draw: Any) -> AffineDescriptor:
        return AffineDescriptor(shape=draw.shape(0, 4, 0, 17), element=draw.element)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return 2 * int(np.prod(desc.shape, dtype=np.int64))


_affine = functional(AffinePlan, "affine")


@composed(
    lambda dy, x, alpha, beta, preference: _affine(dy, alpha=alpha, beta=0.0, preference=preference), "x", reads=()
)
@entry(AffinePlan)
def affine(
    x: Array, alpha: Scalar = 1.0, beta: Scalar = 0.0, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """alpha x + beta; see `AffinePlan`."""
    return _affine(x, alpha=alpha, beta=beta, out=out, stream=stream, preference=preference)
