"""unary: y = f(x), f one of `UnaryKind`, by PyTorch's definitions; and one function per kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Variant, Vjp, element,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.errors import UnsupportedError
from ...schedules.map import map_geometry, map_params
from .complex_unary import of_complex
from .functions.row import EVERY
from .unary_fields import MOST, UnaryFields, fixed_for, packed, refused
from .unary_kinds import (
    ROWS, UnaryKind, draw_coefficients, kernels_of, kinds_of, unary_bound, unary_elements, unary_points,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class UnaryDescriptor(UnaryFields, Descriptor):
    """x and y have shape `shape`; the coefficients are those of `UnaryFields`."""

    element: ElementKind = element(EVERY)

    def validate(self) -> None:
        if self.element not in unary_elements(self.kind):
            raise UnsupportedError(refused(self.kind, self.element))
        super().validate()

    @property
    def result(self) -> ElementKind:
        """The element of y."""
        return self.kind.row.result(self.element)


@dataclass(slots=True, kw_only=True)
class UnaryArgs(Args):
    """y may be x itself; both may have any strides."""

    x: Array = operand("*shape", values=Everywhere(unary_points))
    y: Array = output("*shape", element="result", inplace=("x",))


def reference(desc: UnaryDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        y = np.asarray(desc.kind.row.formula(x, *desc.rounded(x)))
    return {"y": y if desc.kind.row.predicate else y.astype(x.dtype)}


PARAMS = Params("UnaryParams", y="ptr", x="ptr", coefficients=f"f64[{MOST}]", **map_params(2))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.y, p.x), {"coefficients": packed(p.desc)})


def _row(kernel: str) -> Variant:
    return Variant(
        ROWS[kernel], _geometry, source=f"elementwise/{kernel}.cu",
        kernels=kernels_of(kernel, "unary<{KIND}, {T}, {LAYOUT}>", PARAMS), elements=unary_elements,
        kinds=kinds_of(kernel), guarantee=Guarantee(unary_bound, batch_invariant=True),
        may_spill=kernel == "unary_special",
    )  # fmt: skip


def in_torch(torch: Any, desc: UnaryDescriptor, *, x: Any) -> Any:
    """torch's function of the kind."""
    return desc.kind.row.in_torch(torch, x, *desc.coefficients)


class UnaryPlan(Plan):
    """y = f(x) for the kinds of `UnaryKind` (torch.exp, torch.nn.functional.gelu, …).

    Special values follow the formula, as PyTorch does: NaN stays NaN except in `sign`, where it gives 0; silu, gelu,
    mish and hardswish of -inf are NaN. Coefficients have torch's names (`negative_slope`, `min_val`, `beta`, …).
    Functions whose result is a whole number or a piece of x take integers too, which wrap.
    """

    op = "elementwise.unary"
    kinds = UnaryKind
    descriptor = UnaryDescriptor
    args = UnaryArgs
    reference = staticmethod(reference)
    vjp = Vjp(
        "UnaryBackwardPlan", grads={"x": "dx"},
        kinds=tuple(kind for kind in UnaryKind if kind is not UnaryKind.BERNOULLI_NUMBER),  # of whole numbers alone
    )  # fmt: skip
    variants = tuple(map(_row, ROWS))
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{kind} 134M bf16", shape=1 << 27, kind=kind, element="bfloat16")
        for kind in ("silu", "gelu", "exp", "tanh")
    )

    @staticmethod
    def case(draw: Any) -> UnaryDescriptor:
        own = dict(draw_coefficients(draw))
        return UnaryDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element, **own)


def _function(kind: UnaryKind) -> Any:
    also = "".join(f", also called {name}" for name in kind.row.aliases)
    doc = f"y = {kind.value}(x) element by element{also}; see `UnaryPlan`."
    return functional(UnaryPlan, kind.value, doc, overloads=of_complex(kind.names), **fixed_for(kind))


# A function for each row, under its name and its aliases.
globals().update({name: made for kind in UnaryKind for made in (_function(kind),) for name in kind.names})
