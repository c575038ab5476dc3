"""A product's formula for operands of given elements: its steps, its device code, and what it does in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..core.memo import cached_property, keep
from .cpp import functor, headers, value_type
from .formula import Formula
from .program import Program, program_of, result_of
from .reference import evaluate
from .shape import Roles, Shape
from .signature import Signature

PRODUCT = "x"
"""What the product is called in formulas."""
_PROGRAMS = 1024


@dataclass(frozen=True)
class ProductShape:
    """A formula of x, its first input, and of operands that are what `roles` says."""

    formula: Formula
    roles: Roles
    header: ClassVar[str] = "gemm/formula_epilogue.cuh"
    what: ClassVar[str] = "product"

    @cached_property
    def whole(self) -> Shape:
        """The formula of arrays and numbers that it is, x among the arrays."""
        return Shape(self.formula, ("array", *self.roles))

    @property
    def arrays(self) -> tuple[str, ...]:
        """The operands that are arrays."""
        return self.whole.arrays[1:]

    @property
    def numbers(self) -> Mapping[str, bool]:
        """The operands that are numbers, and whether they are integers."""
        return self.whole.scalars

    @property
    def digest(self) -> str:
        """A hash of the tree and of what the operands are."""
        return self.whole.digest

    def program(self, kind: Signature) -> Program:
        """The steps for operands of these elements: that of a and b, then those of the arrays."""
        return _programs.get((self, kind)) or keep(_programs, (self, kind), self._program(kind), _PROGRAMS)

    def _program(self, kind: Signature) -> Program:
        acc = kind.elements[0].acc
        elements = dict(zip((PRODUCT, *self.arrays), (acc, *kind.elements[1:]), strict=True))
        made = program_of(self.formula, elements, self.numbers, [acc])
        ((index, _),) = made.outputs
        if not (found := result_of(made.steps[index])).is_float:
            raise self.formula.wrong(
                f"a {self.what}'s formula gives floats, got {found}; write float32(…)", self.formula.roots[0]
            )
        return made

    def ulps(self, kind: Signature) -> float:
        """The largest error of a function that it calls."""
        return max((step.value.ulps for step in self.program(kind).steps if step.form == "call"), default=0.0)

    def code(self, kind: Signature) -> str:
        """The text behind `header`: `ProductFormula`."""
        program = self.program(kind)
        reads = [
            f"const auto x{i + 1} = columns.template get<{element.ctype}, N>(columns.p.o{i}, {i});"
            for i, element in enumerate(program.inputs[1:])
        ]
        ((index, _),) = program.outputs
        passed = ", ".join([*(f"x{i}[k]" for i in range(len(program.inputs))), "y[k]"])
        return f"""#include "{self.header}"
{headers(program)}namespace baracuda {{
{functor("ProductElement", program)}
struct ProductFormula {{
  const ProductElement f;
  template <class P> BARACUDA_D explicit ProductFormula(const P& p) : f(p) {{}}
  template <class A, int N, class P>
  BARACUDA_D auto operator()([[maybe_unused]] const FormulaColumns<P>& columns, const Vec<A, N>& x0) const {{
    {(chr(10) + "    ").join(reads)}
    Vec<{value_type(result_of(program.steps[index]))}, N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) f({passed});
    return y;
  }}
}};
}}  // namespace baracuda
"""

    def value(self, kind: Signature, x: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
        """The formula in NumPy, in the dtype of x."""
        arrays = [x, *(given[name] for name in self.arrays)]
        (y,) = evaluate(self.program(kind), arrays, [given[name] for name in self.numbers], x.dtype)
        return np.array(np.broadcast_to(y, x.shape))


_programs: dict[tuple[ProductShape, Signature], Program] = {}
