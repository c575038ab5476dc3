"""special_function: y = f(a, b[, c[, d]]) with broadcasting, f one of `SpecialFunctionKind`; b may be a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar, Variant, Vjp,
    choice, element, extents, operand, output, scalar,
)  # fmt: skip
from ...core.args import no_subnormals
from ...core.benchmark import EAGER, Benchmark
from ...core.error_bound import ErrorBound
from ...core.tensor import View, broadcast_shape
from ...core.variant import Step
from ...schedules.map import THREADS, chunked, lay_out, map_kernels, map_params, strided
from .special_function_kinds import DIFFERENTIABLE, WITH_FOUR, WITH_THREE, SpecialFunctionKind


@dataclass(frozen=True, kw_only=True)
class SpecialFunctionDescriptor(Descriptor):
    """y has shape `shape`; the operands have shapes that broadcast to it."""

    kind: SpecialFunctionKind = choice(SpecialFunctionKind)
    shape: tuple[int, ...] = extents()
    element: ElementKind = element()


def drawn(operand: int) -> Any:
    """Values for tests of an operand: where its kind says, a few elsewhere.

    Of subnormal parameters no accuracy is promised: their reciprocals, which series and gradients begin with, overflow.
    """

    @no_subnormals
    def values(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
        return desc.kind.row.drawn[operand](rng, shape)

    return values


@dataclass(slots=True, kw_only=True)
class SpecialFunctionArgs(Args):
    """Any strides; y may be an operand itself where that has y's shape.

    For b None, b is `b_number`, rounded to the accumulator (f32, f64 for f64). c is of `betainc`, `hyp1f1`,
    `hyp2f1` and `sph_legendre_p`, d of `hyp2f1`.
    """

    a: Array = operand("*shape", broadcast=True, values=drawn(0))
    b: Array | None = operand("*shape", broadcast=True, optional=True, values=drawn(1))
    c: Array | None = operand("*shape", broadcast=True, kinds=WITH_THREE, values=drawn(2))
    d: Array | None = operand("*shape", broadcast=True, kinds=WITH_FOUR, values=drawn(3))
    y: Array = output("*shape", inplace=("a", "b", "c", "d"))
    b_number: Scalar = scalar(0.0)


def operands_of(desc: Any, a: Any, b: Any, c: Any, d: Any, b_number: Any) -> tuple[Any, ...]:
    """What f takes, the number as the kernel has it."""
    b = np.asarray(a.dtype.type(desc.element.acc.dtype.type(b_number))) if b is None else b
    return tuple(x for x in (a, b, c, d) if x is not None)


def reference(desc: SpecialFunctionDescriptor, *, a: Any, b: Any, c: Any, d: Any, b_number: Any) -> Mapping[str, Any]:
    """NumPy in the dtype a comes in."""
    with np.errstate(all="ignore"):
        y = desc.kind.row.formula(*operands_of(desc, a, b, c, d, b_number))
    return {"y": np.broadcast_to(np.asarray(y, a.dtype), desc.shape)}


PARAMS = Params(
    "SpecialFunctionParams", y="ptr", a="ptr", b="ptr", c="ptr", d="ptr", b_number="scalar", **map_params(5)
)


def kernels_of(template: str, params: Params) -> tuple[Kernel, ...]:
    """Arithmetic bounds these kernels, so one that visits elements one by one, in any layout, serves all problems."""
    return map_kernels(template, params, widths_of=lambda element: (1,))[1:]


def one_by_one(p: Problem, views: tuple[View | None, ...], values: Mapping[str, Any] | None = None) -> Geometry | str:
    """The launch of such a kernel, outputs first; operands may broadcast to y's shape."""
    found = lay_out([None if view is None else view.broadcast_to(p.desc.shape) for view in views])
    if isinstance(found, str):
        return found
    (axes,) = found.groups
    grid = max(1, -(-axes.count // (THREADS * strided(1))))
    step = Step("strided", (grid, 1, 1), {**(values or {}), **chunked(found, 1)}, {"VEC": 1}, THREADS)
    return Geometry((step,), layout="strided")


def _geometry(p: Problem) -> Geometry | str:
    return one_by_one(p, (p.y, p.a, p.b, p.c, p.d))


def _bound(element: ElementKind, kind: SpecialFunctionKind) -> ErrorBound:
    return kind.row.error(element)


def in_torch(torch: Any, desc: Any, *, a: Any, b: Any, c: Any, d: Any, b_number: Any) -> Any:
    """torch's function of the kind."""
    b = torch.full_like(a, b_number) if b is None else b
    y = desc.kind.row.in_torch(torch, *(x for x in (a, b, c, d) if x is not None))
    return y if y is NotImplemented else torch.broadcast_to(y, desc.shape)


class SpecialFunctionPlan(Plan):
    """y = f(a, b) for the kinds of `SpecialFunctionKind` (torch.special, jax.scipy.special), the operands broadcast.

    All compute in double. Outside the domain y is NaN, as in PyTorch and SciPy. gammainc, gammaincc: a is the argument
    x >= 0, b the parameter >= 0. betainc: a in [0, 1], the parameters b and c >= 0. zeta: a is q, b is s >= 1. expn: b
    is a whole order from 0 on. comb is 0 for b < 0 and b > a. rel_entr and kl_div are infinite where an operand is
    negative. boxcox is log(a) for b = 0. Polynomials: b is the degree, cut to a whole number; below 0 y is 0, beyond
    65536 NaN; where a polynomial overflows among its zeros it is NaN, beyond them an infinity. Terms of incomplete
    functions grow with the root of their parameters. igamma_grad_a, random_gamma_grad: as gammainc. owens_t: any a and
    b. jn: b is a whole order of at most 65536. sph_legendre_p: a is an angle, b a degree from 0 to 65536, c an order,
    0 for |c| > b. hyp1f1: a is the argument, |a| <= 5000, b and c the parameters; NaN where c is 0, -1, -2, … and
    where terms of its series cancel by more than 2^40, as for c of the other sign or far from b and a large argument.
    hyp2f1: a is the argument, at most 1 or, where the series ends, any up to 2^256; b, c and d are the parameters, at
    most 1024; NaN where d is 0, -1, -2, … and the series does not end before, and where terms cancel so.
    """

    op = "elementwise.special_function"
    kinds = SpecialFunctionKind
    descriptor = SpecialFunctionDescriptor
    args = SpecialFunctionArgs
    reference = staticmethod(reference)
    vjp = Vjp("SpecialFunctionBackwardPlan", grads={"a": "da", "b": "db"}, kinds=DIFFERENTIABLE)
    value_policy = "a degree or an order beyond 65536 gives NaN"
    variants = (
        Variant(
            "map", _geometry, source="elementwise/special_function.cu",
            kernels=kernels_of("special_function<{KIND}, {T}, {LAYOUT}>", PARAMS),
            guarantee=Guarantee(_bound, batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("gammainc 16M f32", shape=1 << 24, kind="gammainc", element="float32"),
        Benchmark("legendre 16M f32", shape=1 << 24, kind="legendre_polynomial_p", element="float32", peers=(EAGER,)),
    )

    @staticmethod
    def case(draw: Any) -> SpecialFunctionDescriptor:
        return SpecialFunctionDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 9), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", broadcast_shape(shapes, ("a", "b", "c", "d"), ", "))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        complete_number(desc, arrays)


def complete_number(desc: Any, arrays: dict[str, Any]) -> None:
    """A number for tests, by the descriptor alone: one that a drawn array might hold."""
    rng = np.random.default_rng(len(desc.shape) + sum(desc.shape))
    arrays["b_number"] = float(np.float32(desc.kind.row.drawn[1](rng, ())))
