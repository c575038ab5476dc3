"""The kinds of functions of one complex number: a kind is a name of a `ComplexFunction`, a row of the table below."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ...core import ElementKind, Exact, Relative, Ulp
from ...core.error_bound import ErrorBound
from ...core.kinds import TableKind, WithFunctor
from . import complex_faddeeva
from . import complex_formulas as f
from . import complex_gradients as g
from .functions import in_torch

Torch: TypeAlias = "str | Callable[[Any, Any], Any]"

POINTS = (
    0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 12, 22, 40, 2.0**15, *(k * math.pi / 4 for k in (1, 2, 3, 4, 6, 8)),
    *(k * end for end in (16.6, 87, 88.7, 104, 127, 708, 709.8, 745.1, 1022) for k in (0.5, 1, 2)),
)  # fmt: skip
"""Values of a part whose neighbours are worth testing."""


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class ComplexFunction(WithFunctor):
    """A row: y = f(z), element by element.

    functor: its file and its name, a template over z's parts; gradient::of_complex::<cpp> stands beside it where there
    is a gradient. formula: NumPy in the dtype of z. gradient(dy, z): dy times the conjugate of f', PyTorch's gradient
    of a holomorphic f; else what PyTorch has. bound, slope: ulp of |f(z)| and of the gradient's magnitude, half as much
    again as was measured over the whole range; where there is no bound, each part is one of an operand. real: y has the
    element of z's parts. predicate: y is bool. zeros: |f(z)| falls to 0 where its terms cancel, around which double
    keeps no bound relative to it. torch: torch's function.
    """

    folder: ClassVar[str] = "elementwise/complex"

    functor: str
    formula: Callable[[Any], Any]
    gradient: Callable[[Any, Any], Any] | None = None
    bound: float | None = None
    real: bool = False
    predicate: bool = False
    torch: Torch = ""
    slope: float = 6
    zeros: bool = False

    def result(self, element: ElementKind) -> ElementKind:
        """The element of y."""
        return ElementKind.BOOL if self.predicate else element.part if self.real else element

    def error_of(self, element: ElementKind, slope: bool = False) -> ErrorBound:
        """The guarantee of f, or of its gradient: of a function with zeros among plain numbers double has no bound."""
        if self.zeros and element is ElementKind.C128:
            return Relative(4, 2)
        return self.slope_error if slope else self.error

    @property
    def error(self) -> ErrorBound:
        """The error bound of f."""
        return Exact() if self.bound is None else Ulp(self.bound)

    @property
    def slope_error(self) -> ErrorBound:
        """The error bound of the gradient."""
        return Exact() if self.bound is None else Ulp(self.slope)

    def in_torch(self, torch: Any, z: Any) -> Any:
        """f(z) by torch's function."""
        name = self.torch or self.cpp.lower()
        return getattr(torch, name)(z) if isinstance(name, str) else name(torch, z)


def _numpy(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """NumPy's function, without the signs of NaN."""
    return lambda z: function(f.plain(z))


class ComplexUnaryKind(TableKind):
    """y = f(z), by PyTorch's names."""

    NEG = "neg", ComplexFunction("linear/Neg", np.negative, g.neg, torch="neg")
    CONJ = "conj", ComplexFunction("linear/Conj", np.conj, g.conj, torch="conj_physical")
    RECIPROCAL = (
        "reciprocal",
        ComplexFunction("power/Reciprocal", lambda z: f.divide(np.ones_like(z), z), g.reciprocal, 2.5),
    )
    SQUARE = "square", ComplexFunction("power/Square", lambda z: f.multiply(z, z), g.square, 2.5)
    SQRT = "sqrt", ComplexFunction("root/Sqrt", _numpy(np.sqrt), g.sqrt, 2.5)
    EXP = "exp", ComplexFunction("exponential/Exp", _numpy(np.exp), g.exp, 3)
    EXPM1 = "expm1", ComplexFunction("exponential/Expm1", f.expm1, g.exp, 5)
    LOG = "log", ComplexFunction("logarithm/Log", _numpy(np.log), g.log, 4)
    LOG2 = "log2", ComplexFunction("logarithm/Log2", _numpy(np.log2), g.log2, 4)
    LOG10 = "log10", ComplexFunction("logarithm/Log10", _numpy(np.log10), g.log10, 4.5)
    LOG1P = "log1p", ComplexFunction("logarithm/Log1p", f.log1p, g.log1p, 5)
    SIN = "sin", ComplexFunction("hyperbolic/Sin", f.sin, g.sin, 3.5)
    COS = "cos", ComplexFunction("hyperbolic/Cos", _numpy(np.cos), g.cos, 3.5)
    TAN = "tan", ComplexFunction("hyperbolic/Tan", _numpy(np.tan), g.tan, 6, slope=10)
    ASIN = "asin", ComplexFunction("inverse/Asin", _numpy(np.arcsin), g.asin, 4)
    ACOS = "acos", ComplexFunction("inverse/Acos", _numpy(np.arccos), g.acos, 4)
    ATAN = "atan", ComplexFunction("inverse/Atan", _numpy(np.arctan), g.atan, 4)
    SINH = "sinh", ComplexFunction("hyperbolic/Sinh", f.sinh, g.sinh, 3.5)
    COSH = "cosh", ComplexFunction("hyperbolic/Cosh", _numpy(np.cosh), g.cosh, 3.5)
    TANH = "tanh", ComplexFunction("hyperbolic/Tanh", _numpy(np.tanh), g.tanh, 6, slope=10)
    ASINH = "asinh", ComplexFunction("inverse/Asinh", _numpy(np.arcsinh), g.asinh, 4)
    ACOSH = "acosh", ComplexFunction("inverse/Acosh", _numpy(np.arccosh), g.acosh, 4)
    ATANH = "atanh", ComplexFunction("inverse/Atanh", _numpy(np.arctanh), g.atanh, 4)
    SIGMOID = "sigmoid", ComplexFunction("sigmoid/Sigmoid", f.sigmoid, g.sigmoid, 6, slope=11)
    WOFZ = (
        "wofz",
        ComplexFunction("wofz/Wofz", complex_faddeeva.wofz, g.wofz, 12, torch=in_torch.wofz, slope=32, zeros=True),
    )
    SGN = "sgn", ComplexFunction("magnitude/Sgn", f.sgn, g.sgn, 3)
    ABS = "abs", ComplexFunction("magnitude/Abs", lambda z: np.hypot(z.real, z.imag), g.abs, 3.5, real=True)
    ANGLE = "angle", ComplexFunction("magnitude/Angle", lambda z: np.arctan2(z.imag, z.real), g.angle, 3.5, real=True)
    REAL = "real", ComplexFunction("linear/Real", lambda z: z.real.copy(), g.real, real=True)
    IMAG = "imag", ComplexFunction("linear/Imag", lambda z: z.imag.copy(), g.imag, real=True)
    ISNAN = "isnan", ComplexFunction("predicates/Isnan", np.isnan, predicate=True)
    ISINF = "isinf", ComplexFunction("predicates/Isinf", np.isinf, predicate=True)
    ISFINITE = "isfinite", ComplexFunction("predicates/Isfinite", np.isfinite, predicate=True)
    ISREAL = "isreal", ComplexFunction("predicates/Isreal", np.isreal, predicate=True)
    ISCOMPLEX = (
        "iscomplex",
        ComplexFunction("predicates/Iscomplex", np.iscomplex, predicate=True, torch=lambda torch, z: ~torch.isreal(z)),
    )

    row: ComplexFunction

    @property
    def cpp(self) -> str:
        """The functor, without its template argument."""
        return f"of_complex::{self.row.cpp}"


K = ComplexUnaryKind
DIFFERENTIABLE = tuple(kind for kind in K if kind.row.gradient is not None)
COMPLEX_RESULT = tuple(kind for kind in DIFFERENTIABLE if not kind.row.real)
REAL_RESULT = tuple(kind for kind in DIFFERENTIABLE if kind.row.real)
