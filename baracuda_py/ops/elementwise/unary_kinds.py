"""The unary kinds: their coefficients, elements, the error bounds of the forward ones, and values worth testing."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Any

from ...core import FLOATS, ElementKind, Exact, Ulp
from ...core.element import HALVES, SIGNED
from ...core.error_bound import ErrorBound

INTEGERS = (*SIGNED, ElementKind.U8)


class UnaryKind(enum.Enum):
    """y = f(x), by PyTorch's names and definitions (`cube`, `cbrt`, `exp10` by NumPy's habit)."""

    NEG = "neg"
    ABS = "abs"
    SIGN = "sign"
    RECIPROCAL = "reciprocal"
    SQUARE = "square"
    CUBE = "cube"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    CBRT = "cbrt"
    EXP = "exp"
    EXP2 = "exp2"
    EXPM1 = "expm1"
    LOG = "log"
    LOG2 = "log2"
    LOG10 = "log10"
    LOG1P = "log1p"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    ERFC = "erfc"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"
    TRUNC = "trunc"
    FRAC = "frac"
    SIGMOID = "sigmoid"
    LOG_SIGMOID = "log_sigmoid"
    LOGIT = "logit"
    RELU = "relu"
    RELU6 = "relu6"
    LEAKY_RELU = "leaky_relu"
    ELU = "elu"
    SELU = "selu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SILU = "silu"
    MISH = "mish"
    SOFTPLUS = "softplus"
    SOFTSIGN = "softsign"
    HARDTANH = "hardtanh"
    HARDSIGMOID = "hardsigmoid"
    HARDSWISH = "hardswish"
    HARDSHRINK = "hardshrink"
    SOFTSHRINK = "softshrink"

    @property
    def cpp(self) -> str:
        """The functor's name in kernels/elementwise/functors.cuh."""
        return "".join(part.capitalize() for part in self.value.split("_"))


K = UnaryKind
ALPHA: Mapping[UnaryKind, float] = {K.LEAKY_RELU: 0.01, K.ELU: 1.0, K.HARDSHRINK: 0.5, K.SOFTSHRINK: 0.5}
"""Kinds with a coefficient, and PyTorch's default for it."""


def rounded_alpha(desc: Any, x: Any) -> Any:
    """The coefficient as kernels have it, in the dtype of x: rounded to the accumulator."""
    return None if desc.alpha is None else x.dtype.type(desc.element.acc.dtype.type(desc.alpha))


POINTS = (
    0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 6, 2.0**15, *(k * math.pi / 4 for k in (1, 2, 3, 4, 6, 8)),
    *(k * end for end in (16.6, 87.3, 88.7, 104, 127, 149, 708.4, 709.8, 745.1, 1022, 1074) for k in (0.5, 1, 2)),
)  # fmt: skip


def unary_points(desc: Any) -> tuple[float, ...]:
    """Values whose neighbours are worth testing: kinks, ends of domains, poles, and where exponentials leave a type."""
    return POINTS if desc.alpha is None else (*POINTS, desc.alpha)


EXACT = (
    K.NEG, K.ABS, K.SIGN, K.FLOOR, K.CEIL, K.ROUND, K.TRUNC, K.FRAC, K.RELU, K.RELU6, K.HARDTANH, K.HARDSHRINK,
)  # fmt: skip
_ROUNDED_ONCE = (K.RECIPROCAL, K.SQUARE, K.SQRT)

# Float and double: the CUDA math library's documented maximum (CUDA Programming Guide, Mathematical Functions) and
# half an ulp, or that of the formulas built on it.
_ULPS: Mapping[UnaryKind, tuple[float, float]] = {
    K.CUBE: (1.5, 1.5), K.RSQRT: (2.5, 1.5), K.CBRT: (1.5, 1.5),
    K.EXP: (1.5, 1.5), K.EXP2: (2.5, 1.5), K.EXPM1: (1.5, 1.5), K.LOG: (1.5, 1.5), K.LOG2: (1.5, 1.5),
    K.LOG10: (2.5, 1.5), K.LOG1P: (1.5, 1.5),
    K.SIN: (2.5, 2.5), K.COS: (2.5, 2.5), K.TAN: (4.5, 2.5), K.ASIN: (2.5, 2.5), K.ACOS: (2.5, 2.5), K.ATAN: (2.5, 2.5),
    K.SINH: (3.5, 2.5), K.COSH: (2.5, 1.5), K.TANH: (2.5, 2.5), K.ASINH: (3.5, 3.5), K.ACOSH: (4.5, 2.5),
    K.ATANH: (3.5, 2.5), K.ERF: (2.5, 2.5), K.ERFC: (4.5, 5.5),
    K.SIGMOID: (5, 5), K.LOG_SIGMOID: (4, 4), K.LOGIT: (4, 4), K.SOFTPLUS: (4, 4), K.SOFTSIGN: (1.5, 1.5),
    K.LEAKY_RELU: (1.5, 1.5), K.ELU: (3, 3), K.SELU: (4, 4), K.SOFTSHRINK: (1, 1),
    K.GELU: (9, 12), K.GELU_TANH: (9, 5), K.SILU: (8, 5), K.MISH: (8, 8), K.HARDSIGMOID: (1.5, 1.5),
    K.HARDSWISH: (2, 2),
}  # fmt: skip
_DOUBLE_ONCE = 0.501  # a double rounded once, against a truth that has 64 bits itself
_HALF = 0.51  # a float result of a few ulp, rounded once more


def unary_bound(element: ElementKind, kind: Any) -> ErrorBound:
    """The error bound of a forward kind."""
    if kind in EXACT or element in INTEGERS:
        return Exact()
    if element in HALVES:
        if kind in (K.GELU, K.ERFC) and element is ElementKind.BF16:
            return Ulp(0.52)
        return Exact() if kind is K.SQRT else Ulp(_HALF)
    if kind in _ROUNDED_ONCE:
        return Exact() if element is ElementKind.F32 else Ulp(_DOUBLE_ONCE)
    return Ulp(_ULPS[kind][element is ElementKind.F64])


def unary_elements(kind: Any) -> tuple[ElementKind, ...]:
    """Floats, and integers where the formula is one of integers."""
    return (*FLOATS, *INTEGERS) if kind in (K.NEG, K.ABS, K.SIGN, K.SQUARE, K.RELU) else FLOATS
