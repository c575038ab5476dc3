"""The unary kinds: a kind is a name of a row of `functions` and a functor of kernels/elementwise/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core import ElementKind, Kernel, Params
from ...core.error_bound import ErrorBound
from ...core.kinds import TableKind
from ...schedules.map import MIN_BLOCKS, map_kernels
from .functions import (
    activations, airy, arithmetic, bessel, bits, cylinder, exponential, factorial, gamma, integrals, normal, piecewise,
    predicates, rounding, trigonometric,
)  # fmt: skip
from .functions.row import EVERY, POINTS, Function


class UnaryKind(TableKind):
    """y = f(x), by PyTorch's names and definitions (`cube`, `cbrt`, `exp10` by NumPy's habit)."""

    NEG = "neg", arithmetic.NEG
    ABS = "abs", arithmetic.ABS
    SIGN = "sign", arithmetic.SIGN
    POSITIVE = "positive", arithmetic.POSITIVE
    RECIPROCAL = "reciprocal", arithmetic.RECIPROCAL
    SQUARE = "square", arithmetic.SQUARE
    CUBE = "cube", arithmetic.CUBE
    SQRT = "sqrt", arithmetic.SQRT
    RSQRT = "rsqrt", arithmetic.RSQRT
    CBRT = "cbrt", arithmetic.CBRT
    DEG2RAD = "deg2rad", arithmetic.DEG2RAD
    RAD2DEG = "rad2deg", arithmetic.RAD2DEG
    NAN_TO_NUM = "nan_to_num", arithmetic.NAN_TO_NUM
    EXP = "exp", exponential.EXP
    EXP2 = "exp2", exponential.EXP2
    EXP10 = "exp10", exponential.EXP10
    EXPM1 = "expm1", exponential.EXPM1
    LOG = "log", exponential.LOG
    LOG2 = "log2", exponential.LOG2
    LOG10 = "log10", exponential.LOG10
    LOG1P = "log1p", exponential.LOG1P
    ENTR = "entr", exponential.ENTR
    SIN = "sin", trigonometric.SIN
    COS = "cos", trigonometric.COS
    TAN = "tan", trigonometric.TAN
    ASIN = "asin", trigonometric.ASIN
    ACOS = "acos", trigonometric.ACOS
    ATAN = "atan", trigonometric.ATAN
    SINH = "sinh", trigonometric.SINH
    COSH = "cosh", trigonometric.COSH
    TANH = "tanh", trigonometric.TANH
    ASINH = "asinh", trigonometric.ASINH
    ACOSH = "acosh", trigonometric.ACOSH
    ATANH = "atanh", trigonometric.ATANH
    ERF = "erf", normal.ERF
    ERFC = "erfc", normal.ERFC
    ERFCX = "erfcx", normal.ERFCX
    ERFINV = "erfinv", normal.ERFINV
    NDTR = "ndtr", normal.NDTR
    NDTRI = "ndtri", normal.NDTRI
    LOG_NDTR = "log_ndtr", normal.LOG_NDTR
    LGAMMA = "lgamma", gamma.LGAMMA
    DIGAMMA = "digamma", gamma.DIGAMMA
    POLYGAMMA = "polygamma", gamma.POLYGAMMA
    I0 = "i0", bessel.I0
    I0E = "i0e", bessel.I0E
    I1 = "i1", bessel.I1
    I1E = "i1e", bessel.I1E
    BESSEL_J0 = "bessel_j0", cylinder.BESSEL_J0
    BESSEL_J1 = "bessel_j1", cylinder.BESSEL_J1
    BESSEL_Y0 = "bessel_y0", cylinder.BESSEL_Y0
    BESSEL_Y1 = "bessel_y1", cylinder.BESSEL_Y1
    MODIFIED_BESSEL_K0 = "modified_bessel_k0", cylinder.MODIFIED_BESSEL_K0
    MODIFIED_BESSEL_K1 = "modified_bessel_k1", cylinder.MODIFIED_BESSEL_K1
    SCALED_MODIFIED_BESSEL_K0 = "scaled_modified_bessel_k0", cylinder.SCALED_MODIFIED_BESSEL_K0
    SCALED_MODIFIED_BESSEL_K1 = "scaled_modified_bessel_k1", cylinder.SCALED_MODIFIED_BESSEL_K1
    AIRY_AI = "airy_ai", airy.AIRY_AI
    GAMMA = "gamma", factorial.GAMMA
    GAMMASGN = "gammasgn", factorial.GAMMASGN
    FACTORIAL = "factorial", factorial.FACTORIAL
    MULTIGAMMALN = "multigammaln", factorial.MULTIGAMMALN
    BERNOULLI_NUMBER = "bernoulli_number", factorial.BERNOULLI_NUMBER
    EXP1 = "exp1", integrals.EXP1
    EXPI = "expi", integrals.EXPI
    DAWSN = "dawsn", integrals.DAWSN
    FRESNEL_S = "fresnel_s", integrals.FRESNEL_S
    FRESNEL_C = "fresnel_c", integrals.FRESNEL_C
    SINE_INTEGRAL = "sine_integral", integrals.SINE_INTEGRAL
    COSINE_INTEGRAL = "cosine_integral", integrals.COSINE_INTEGRAL
    SPENCE = "spence", integrals.SPENCE
    SINC = "sinc", bessel.SINC
    SPHERICAL_BESSEL_J0 = "spherical_bessel_j0", bessel.SPHERICAL_BESSEL_J0
    FLOOR = "floor", rounding.FLOOR
    CEIL = "ceil", rounding.CEIL
    ROUND = "round", rounding.ROUND
    TRUNC = "trunc", rounding.TRUNC
    FRAC = "frac", rounding.FRAC
    SIGMOID = "sigmoid", activations.SIGMOID
    LOG_SIGMOID = "log_sigmoid", activations.LOG_SIGMOID
    LOGIT = "logit", activations.LOGIT
    RELU = "relu", piecewise.RELU
    RELU6 = "relu6", piecewise.RELU6
    LEAKY_RELU = "leaky_relu", piecewise.LEAKY_RELU
    ELU = "elu", activations.ELU
    CELU = "celu", activations.CELU
    SELU = "selu", activations.SELU
    GELU = "gelu", activations.GELU
    GELU_TANH = "gelu_tanh", activations.GELU_TANH
    SILU = "silu", activations.SILU
    MISH = "mish", activations.MISH
    SOFTPLUS = "softplus", activations.SOFTPLUS
    SOFTSIGN = "softsign", activations.SOFTSIGN
    HARDTANH = "hardtanh", piecewise.HARDTANH
    HARDSIGMOID = "hardsigmoid", piecewise.HARDSIGMOID
    HARDSWISH = "hardswish", piecewise.HARDSWISH
    HARDSHRINK = "hardshrink", piecewise.HARDSHRINK
    SOFTSHRINK = "softshrink", piecewise.SOFTSHRINK
    TANHSHRINK = "tanhshrink", activations.TANHSHRINK
    THRESHOLD = "threshold", piecewise.THRESHOLD
    ISNAN = "isnan", predicates.ISNAN
    ISINF = "isinf", predicates.ISINF
    ISFINITE = "isfinite", predicates.ISFINITE
    ISPOSINF = "isposinf", predicates.ISPOSINF
    ISNEGINF = "isneginf", predicates.ISNEGINF
    ISREAL = "isreal", predicates.ISREAL
    ISCOMPLEX = "iscomplex", predicates.ISCOMPLEX
    SIGNBIT = "signbit", predicates.SIGNBIT
    LOGICAL_NOT = "logical_not", predicates.LOGICAL_NOT
    BITWISE_NOT = "bitwise_not", bits.BITWISE_NOT
    POPCOUNT = "popcount", bits.POPCOUNT
    CLZ = "clz", bits.CLZ
    CTZ = "ctz", bits.CTZ

    row: Function


DIFFERENTIABLE = tuple(kind for kind in UnaryKind if kind.row.gradient is not None)
"""Of the others the derivative is 0 wherever there is one, or they are functions of integers."""


SPECIAL = {"unary_special": "special", "unary_bessel": "bessel", "unary_gamma": "gamma", "unary_integral": "integral"}
ROWS = {"unary": "map", "unary_predicate": "predicate", **SPECIAL}
"""Files of kernels/elementwise/ with functors, and what the row of a dispatch table that takes them is called."""


def kernels_of(kernel: str, template: str, params: Params) -> tuple[Kernel, Kernel]:
    """The kernels of such a file; special functions are bound by arithmetic, and take the registers they need."""
    return map_kernels(template, params, min_blocks=0 if kernel in SPECIAL else MIN_BLOCKS)


def kinds_of(kernel: str) -> tuple[UnaryKind, ...]:
    """The kinds whose functors are in a file of kernels/elementwise/."""
    return tuple(kind for kind in UnaryKind if kind.row.kernel == kernel)


def unary_elements(kind: UnaryKind | None) -> tuple[ElementKind, ...]:
    """The elements a kind takes."""
    return EVERY if kind is None else kind.row.elements


def unary_bound(element: ElementKind, kind: Any) -> ErrorBound:
    """The error bound of a forward kind."""
    found: ErrorBound = kind.row.error(element)
    return found


def slope_bound(element: ElementKind, kind: Any) -> ErrorBound:
    """The error bound of a backward kind; gradients that are dy, -dy or 0 are exact."""
    found: ErrorBound = kind.row.slope(element)
    return found


def unary_points(desc: Any) -> tuple[float, ...]:
    """`POINTS`, those of the kind, and its coefficients that are numbers."""
    return (*POINTS, *desc.kind.row.points, *(c for c in desc.coefficients if abs(c) < 1e30))


def draw_coefficients(draw: Any) -> Iterator[tuple[str, Any]]:
    """Coefficients of a drawn problem: half the time torch's own, where x can be compared with them."""
    for one in draw.kind.row.coefficients:
        low, high = one.drawn
        required = one.absent is None and one.default_for(draw.element) is None
        if draw.element.is_integer:
            if one.floats:
                continue
            yield one.name, draw.integer(int(max(low, draw.element.limits.min)), int(high))
        elif required or draw.flag():
            yield one.name, draw.integer(int(low), int(high)) if one.whole else draw.number(low, high)
