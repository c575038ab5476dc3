"""The unary kinds: NumPy formulas of each and of its derivative, elements, and error bounds."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...core import FLOATS, ElementKind, Exact, Ulp
from ...core.element import HALVES, SIGNED
from ...core.error_bound import ErrorBound, Relative
from .special import erf, erfc

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

_SELU_SCALE, _SELU_ALPHA = "1.05070098735548049341933498529", "1.67326324235437728481704291672"
_FAR = 100  # beyond it every sigmoid has become 0 or 1, in 80-bit floats too


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), accurate in both tails."""
    return _sigmoids(x)[0]


def _sigmoids(x: Any, both: bool = False) -> tuple[Any, Any]:
    """sigmoid(x) and, if asked for, sigmoid(-x), from one exponential and few temporaries."""
    x = np.asarray(x)
    e = np.abs(x, out=np.empty_like(x))
    np.exp(np.negative(e, out=e), out=e)
    negative, total = x < 0, e + 1
    return np.where(negative, e, 1) / total, np.where(negative, 1, e) / total if both else None


def silu(x: Any) -> Any:
    """x sigmoid(x)."""
    return x * sigmoid(x)


def _silu_slope(x: Any) -> Any:
    """sigmoid(x) (1 + x sigmoid(-x))."""
    s, rest = _sigmoids(x, both=True)
    return s * (1 + x * rest)


def gelu(x: Any) -> Any:
    """x Φ(x), Φ the normal distribution function (Hendrycks and Gimpel 2016)."""
    return x * _half(x) * erfc(-x * np.sqrt(_half(x)))


def gelu_tanh(x: Any) -> Any:
    """x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))) = x sigmoid(x (c₁ + c₂ x²))."""
    return x * sigmoid(_tanh_argument(np.clip(x, -_FAR, _FAR)))


def _half(x: Any) -> Any:
    return x.dtype.type(0.5)


def _tanh_argument(x: Any) -> Any:
    return x * _c1(x) * (1 + x.dtype.type("0.044715") * x * x)


def _c1(x: Any) -> Any:
    return np.sqrt(8 / _pi(x))


def _pi(x: Any) -> Any:
    return 4 * np.arctan(x.dtype.type(1))


def _mish_factor(x: Any) -> Any:
    e = np.exp(np.minimum(x, _FAR))
    n = e * (e + 2)
    return n / (n + 2)


def _selu_constants(x: Any) -> tuple[Any, Any]:
    return x.dtype.type(_SELU_SCALE), x.dtype.type(_SELU_ALPHA)


def _selu(x: Any, _: Any) -> Any:
    scale, alpha = _selu_constants(x)
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _selu_slope(x: Any, _: Any) -> Any:
    scale, alpha = _selu_constants(x)
    return scale * np.where(x <= 0, alpha * np.exp(np.minimum(x, 0)), 1)


def _logit(x: Any, _: Any) -> Any:
    y = 1 - x
    return np.where((x > 0.25) & (x < 0.75), np.log1p((x - y) / y), np.log(x / y))


def _clamp(x: Any, low: float, high: float) -> Any:
    return np.clip(x, low, high)


def _ramp(x: Any) -> Any:
    return _clamp(x + 3, 0, 6) / 6


def _softshrink(x: Any, alpha: Any) -> Any:
    return np.where(x > alpha, x - alpha, np.where(x < -alpha, x + alpha, x * 0))


def _hardswish_slope(x: Any, _: Any) -> Any:
    return np.where(x <= -3, 0, np.where(x < 3, (2 * x + 3) / 6, 1))


def _gelu_slope(x: Any, _: Any) -> Any:
    return _half(x) * erfc(-x * np.sqrt(_half(x))) + x * np.exp(-_half(x) * x * x) / np.sqrt(2 * _pi(x))


def _gelu_tanh_slope(x: Any, _: Any) -> Any:
    near = np.clip(x, -_FAR, _FAR)
    t = _tanh_argument(near)
    slope = _c1(x) * (1 + 3 * x.dtype.type("0.044715") * near * near)
    return sigmoid(t) + x * (sigmoid(t) * sigmoid(-t) * slope)


def _mish_slope(x: Any, _: Any) -> Any:
    factor = _mish_factor(x)
    return factor + x * (sigmoid(x) * (1 - factor) * (1 + factor))


def _sech(x: Any) -> Any:
    h = np.exp(-np.abs(x))
    return 2 * h / (1 + h * h)


Formula = Callable[[Any, Any], Any]

FORWARD: Mapping[UnaryKind, Formula] = {
    K.NEG: lambda x, a: np.negative(x),
    K.ABS: lambda x, a: np.abs(x),
    K.SIGN: lambda x, a: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype),
    K.RECIPROCAL: lambda x, a: 1 / x,
    K.SQUARE: lambda x, a: x * x,
    K.CUBE: lambda x, a: x * x * x,
    K.SQRT: lambda x, a: np.sqrt(x),
    K.RSQRT: lambda x, a: 1 / np.sqrt(x),
    K.CBRT: lambda x, a: np.cbrt(x),
    K.EXP: lambda x, a: np.exp(x),
    K.EXP2: lambda x, a: np.exp2(x),
    K.EXPM1: lambda x, a: np.expm1(x),
    K.LOG: lambda x, a: np.log(x),
    K.LOG2: lambda x, a: np.log2(x),
    K.LOG10: lambda x, a: np.log10(x),
    K.LOG1P: lambda x, a: np.log1p(x),
    K.SIN: lambda x, a: np.sin(x),
    K.COS: lambda x, a: np.cos(x),
    K.TAN: lambda x, a: np.tan(x),
    K.ASIN: lambda x, a: np.arcsin(x),
    K.ACOS: lambda x, a: np.arccos(x),
    K.ATAN: lambda x, a: np.arctan(x),
    K.SINH: lambda x, a: np.sinh(x),
    K.COSH: lambda x, a: np.cosh(x),
    K.TANH: lambda x, a: np.tanh(x),
    K.ASINH: lambda x, a: np.arcsinh(x),
    K.ACOSH: lambda x, a: np.arccosh(x),
    K.ATANH: lambda x, a: np.arctanh(x),
    K.ERF: lambda x, a: erf(x),
    K.ERFC: lambda x, a: erfc(x),
    K.FLOOR: lambda x, a: np.floor(x),
    K.CEIL: lambda x, a: np.ceil(x),
    K.ROUND: lambda x, a: np.rint(x),
    K.TRUNC: lambda x, a: np.trunc(x),
    K.FRAC: lambda x, a: x - np.trunc(x),
    K.SIGMOID: lambda x, a: sigmoid(x),
    K.LOG_SIGMOID: lambda x, a: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    K.LOGIT: _logit,
    K.RELU: lambda x, a: np.maximum(x, 0),
    K.RELU6: lambda x, a: _clamp(x, 0, 6),
    K.LEAKY_RELU: lambda x, a: np.where(x > 0, x, x * a),
    K.ELU: lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
    K.SELU: _selu,
    K.GELU: lambda x, a: gelu(x),
    K.GELU_TANH: lambda x, a: gelu_tanh(x),
    K.SILU: lambda x, a: silu(x),
    K.MISH: lambda x, a: x * _mish_factor(x),
    K.SOFTPLUS: lambda x, a: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    K.SOFTSIGN: lambda x, a: x / (1 + np.abs(x)),
    K.HARDTANH: lambda x, a: _clamp(x, -1, 1),
    K.HARDSIGMOID: lambda x, a: _ramp(x),
    K.HARDSWISH: lambda x, a: x * _ramp(x),
    K.HARDSHRINK: lambda x, a: np.where((x >= -a) & (x <= a), 0, x),
    K.SOFTSHRINK: _softshrink,
}

SLOPE: Mapping[UnaryKind, Formula] = {
    K.NEG: lambda x, a: np.full_like(x, -1),
    K.ABS: lambda x, a: FORWARD[K.SIGN](x, a),
    K.RECIPROCAL: lambda x, a: -1 / (x * x),
    K.SQUARE: lambda x, a: 2 * x,
    K.CUBE: lambda x, a: 3 * x * x,
    K.SQRT: lambda x, a: _half(x) / np.sqrt(x),
    K.RSQRT: lambda x, a: -_half(x) / (x * np.sqrt(x)),
    K.CBRT: lambda x, a: 1 / (3 * np.cbrt(x) ** 2),
    K.EXP: lambda x, a: np.exp(x),
    K.EXP2: lambda x, a: np.exp2(x) * np.log(x.dtype.type(2)),
    K.EXPM1: lambda x, a: np.exp(x),
    K.LOG: lambda x, a: 1 / x,
    K.LOG2: lambda x, a: 1 / (x * np.log(x.dtype.type(2))),
    K.LOG10: lambda x, a: 1 / (x * np.log(x.dtype.type(10))),
    K.LOG1P: lambda x, a: 1 / (1 + x),
    K.SIN: lambda x, a: np.cos(x),
    K.COS: lambda x, a: -np.sin(x),
    K.TAN: lambda x, a: 1 + np.tan(x) ** 2,
    K.ASIN: lambda x, a: 1 / np.sqrt((1 - x) * (1 + x)),
    K.ACOS: lambda x, a: -1 / np.sqrt((1 - x) * (1 + x)),
    K.ATAN: lambda x, a: 1 / (1 + x * x),
    K.SINH: lambda x, a: np.cosh(x),
    K.COSH: lambda x, a: np.sinh(x),
    K.TANH: lambda x, a: _sech(x) ** 2,
    K.ASINH: lambda x, a: 1 / np.hypot(x, 1),
    K.ACOSH: lambda x, a: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)),
    K.ATANH: lambda x, a: 1 / ((1 - x) * (1 + x)),
    K.ERF: lambda x, a: 2 / np.sqrt(_pi(x)) * np.exp(-x * x),
    K.ERFC: lambda x, a: -2 / np.sqrt(_pi(x)) * np.exp(-x * x),
    K.FRAC: lambda x, a: np.ones_like(x),
    K.SIGMOID: lambda x, a: sigmoid(x) * sigmoid(-x),
    K.LOG_SIGMOID: lambda x, a: sigmoid(-x),
    K.LOGIT: lambda x, a: 1 / (x * (1 - x)),
    K.RELU: lambda x, a: np.where(x <= 0, 0, 1),
    K.RELU6: lambda x, a: np.where((x <= 0) | (x >= 6), 0, 1),
    K.LEAKY_RELU: lambda x, a: np.where(x > 0, 1, a),
    K.ELU: lambda x, a: np.where(x <= 0, a * np.exp(np.minimum(x, 0)), 1),
    K.SELU: _selu_slope,
    K.GELU: _gelu_slope,
    K.GELU_TANH: _gelu_tanh_slope,
    K.SILU: lambda x, a: _silu_slope(x),
    K.MISH: _mish_slope,
    K.SOFTPLUS: lambda x, a: sigmoid(x),
    K.SOFTSIGN: lambda x, a: 1 / (1 + np.abs(x)) ** 2,
    K.HARDTANH: lambda x, a: np.where((x <= -1) | (x >= 1), 0, 1),
    K.HARDSIGMOID: lambda x, a: np.where((x > -3) & (x < 3), 1 / x.dtype.type(6), 0),
    K.HARDSWISH: _hardswish_slope,
    K.HARDSHRINK: lambda x, a: np.where((x >= -a) & (x <= a), 0, 1),
    K.SOFTSHRINK: lambda x, a: np.where((x >= -a) & (x <= a), 0, 1),
}
"""Derivatives; kinds that are not here (sign, floor, ceil, round, trunc) have derivative 0 wherever they have one."""

SELECTS = (
    K.NEG, K.ABS, K.FRAC, K.RELU, K.RELU6, K.HARDTANH, K.HARDSHRINK, K.SOFTSHRINK,
)  # fmt: skip
"""Kinds whose gradient is dy, -dy or 0: exact."""

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


_CROSSES_ZERO = (K.GELU, K.GELU_TANH, K.SILU, K.MISH)  # the slope does, so no bound relative to it can hold


def slope_bound(element: ElementKind, kind: Any) -> ErrorBound:
    """The error bound of a backward kind."""
    if kind in SELECTS:
        return Exact()
    if kind in _CROSSES_ZERO:
        return Relative(2)
    return Ulp(_HALF) if element in HALVES else Ulp(8)


def unary_elements(kind: Any) -> tuple[ElementKind, ...]:
    """Floats, and integers where the formula is one of integers."""
    return (*FLOATS, *INTEGERS) if kind in (K.NEG, K.ABS, K.SIGN, K.SQUARE, K.RELU) else FLOATS
