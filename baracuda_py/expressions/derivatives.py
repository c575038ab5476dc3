"""The derivative of each function, as a formula of functions.

A rule is the names of the arguments and, for each, what it gets of the cotangent d; an empty text is nothing. Kinks and
ties are PyTorch's: relu'(0) = 0, and two equal arguments of maximum get half each.
"""

from __future__ import annotations

from collections.abc import Mapping

Rule = tuple[str, ...]

STEPS = frozenset(
    {"sign", "floor", "ceil", "round", "trunc", "floor_divide", "trunc_divide", "heaviside",
     "gammasgn"}
)  # fmt: skip
"""Functions whose derivative is 0 wherever there is one."""

RULES: Mapping[str, Rule] = {
    # arithmetic
    "neg": ("x", "-d"),
    "abs": ("x", "where(x > 0, d, where(x < 0, -d, d * 0))"),
    "reciprocal": ("x", "-d * square(reciprocal(x))"),
    "square": ("x", "d * (2 * x)"),
    "cube": ("x", "d * (3 * square(x))"),
    "sqrt": ("x", "d / (2 * sqrt(x))"),
    "rsqrt": ("x", "d * (-0.5 * cube(rsqrt(x)))"),
    "cbrt": ("x", "d / (3 * square(cbrt(x)))"),
    "frac": ("x", "d"),
    "add": ("a b", "d", "d"),
    "add_scaled": ("a b alpha", "d", "d * alpha", "d * b"),
    "sub": ("a b", "d", "-d"),
    "mul": ("a b", "d * b", "d * a"),
    "div": ("a b", "d / b", "-d * (a / b) / b"),
    "fma": ("a b c", "d * b", "d * a", "d"),
    "lerp": ("a b c", "d * (1 - c)", "d * c", "d * (b - a)"),
    "addcmul": ("x a b value", "d", "d * value * b", "d * value * a", "d * (a * b)"),
    "addcdiv": ("x a b value", "d", "d * value / b", "-d * value * (a / b) / b", "d * (a / b)"),
    "positive": ("x", "d"),
    "deg2rad": ("x", "d * 0.017453292519943295"),
    "rad2deg": ("x", "d * 57.29577951308232"),
    "remainder": ("a b", "d", "-d * floor_divide(a, b)"),
    "fmod": ("a b", "d", "-d * trunc(a / b)"),
    "ldexp": ("a b", "ldexp(d, b)", "d * (ldexp(a, b) * 0.6931471805599453)"),
    "pow": ("a b", "where(b == 0, 0, d * (b * a ** (b - 1)))", "where((a == 0) & (b >= 0), 0, d * (a ** b * log(a)))"),
    "hypot": (
        "a b", "where(hypot(a, b) == 0, 0, d * (a / hypot(a, b)))", "where(hypot(a, b) == 0, 0, d * (b / hypot(a, b)))",
    ),
    "atan2": ("a b", "d * (b / hypot(a, b)) / hypot(a, b)", "-d * (a / hypot(a, b)) / hypot(a, b)"),
    "copysign": ("a b", "where(a == 0, 0, d * (copysign(a, b) / a))", ""),
    "squared_difference": ("a b", "d * (2 * (a - b))", "-d * (2 * (a - b))"),
    "absolute_difference": (
        "a b", "where(a > b, d, where(a < b, -d, d * 0))", "where(a > b, -d, where(a < b, d, d * 0))",
    ),
    # choices
    "where": ("c a b", "", "where(c, d, 0)", "where(c, 0, d)"),
    "maximum": ("a b", "where(a == b, d / 2, where(a < b, 0, d))", "where(a == b, d / 2, where(b < a, 0, d))"),
    "minimum": ("a b", "where(a == b, d / 2, where(a > b, 0, d))", "where(a == b, d / 2, where(b > a, 0, d))"),
    "clamp_min": ("x low", "where(x >= low, d, 0)", "where(x < low, d, 0)"),
    "clamp_max": ("x high", "where(x <= high, d, 0)", "where(x > high, d, 0)"),
    "clamp": (
        "x low high", "where((x >= low) & (x <= high), d, 0)", "where((x < low) & (low < high), d, 0)",
        "where((x > high) | (low > high), d, 0)",
    ),
    "fmax": ("a b", "where((a >= b) | isnan(b), d, 0)", "where((a >= b) | isnan(b), 0, d)"),
    "fmin": ("a b", "where((a <= b) | isnan(b), d, 0)", "where((a <= b) | isnan(b), 0, d)"),
    # exponentials and logarithms
    "exp": ("x", "d * exp(x)"),
    "exp2": ("x", "d * exp2(x) * 0.6931471805599453"),
    "exp10": ("x", "d * exp10(x) * 2.302585092994046"),
    "expm1": ("x", "d * exp(x)"),
    "log": ("x", "d / x"),
    "log2": ("x", "d / (x * 0.6931471805599453)"),
    "log10": ("x", "d / (x * 2.302585092994046)"),
    "log1p": ("x", "d / (1 + x)"),
    "logaddexp": ("a b", "d * sigmoid(a - b)", "d * sigmoid(b - a)"),
    "logaddexp2": (
        "a b", "d * sigmoid((a - b) * 0.6931471805599453)", "d * sigmoid((b - a) * 0.6931471805599453)",
    ),
    "xlogy": ("a b", "where((a == 0) & (b <= 0), 0, d * log(b))", "d * (a / b)"),
    "xlog1py": ("a b", "where((a == 0) & (b <= -1), 0, d * log1p(b))", "d * (a / (1 + b))"),
    # trigonometric and hyperbolic
    "sin": ("x", "d * cos(x)"),
    "cos": ("x", "-d * sin(x)"),
    "tan": ("x", "d * (1 + square(tan(x)))"),
    "asin": ("x", "d * rsqrt((1 - x) * (1 + x))"),
    "acos": ("x", "-d * rsqrt((1 - x) * (1 + x))"),
    "atan": ("x", "d / (1 + square(x))"),
    "sinh": ("x", "d * cosh(x)"),
    "cosh": ("x", "d * sinh(x)"),
    "tanh": ("x", "d * (1 - square(tanh(x)))"),
    "asinh": ("x", "d / hypot(x, 1)"),
    "acosh": ("x", "d * rsqrt(x - 1) * rsqrt(x + 1)"),
    "atanh": ("x", "d / ((1 - x) * (1 + x))"),
    # special functions
    "entr": ("x", "-d * (log(x) + 1)"),
    "digamma": ("x", "d * polygamma(x, 1)"),
    "polygamma": ("x n", "d * polygamma(x, n + 1)", ""),
    "sinc": ("x", "where(x == 0, d * 0, d * ((cos(x * pi) - sinc(x)) / x))"),
    "spherical_bessel_j0": ("x", "where(x == 0, d * 0, d * ((cos(x) - spherical_bessel_j0(x)) / x))"),
    "erf": ("x", "d * (1.1283791670955126 * exp(-square(x)))"),
    "erfc": ("x", "-d * (1.1283791670955126 * exp(-square(x)))"),
    "erfcx": ("x", "d * (2 * x * erfcx(x) - 1.1283791670955126)"),
    "erfinv": ("x", "d * (0.8862269254527580 * exp(square(erfinv(x))))"),
    "lgamma": ("x", "d * digamma(x)"),
    "ndtr": ("x", "d * (0.3989422804014327 * exp(-0.5 * square(x)))"),
    "ndtri": ("x", "d * (2.5066282746310002 * exp(0.5 * square(ndtri(x))))"),
    "log_ndtr": ("x", "d * (0.7978845608028654 / erfcx(x * -0.7071067811865476))"),
    "i0": ("x", "d * i1(x)"),
    "i1": ("x", "where(x == 0, d / 2, d * (i0(x) - i1(x) / x))"),
    "i0e": ("x", "d * (i1e(x) - sign(x) * i0e(x))"),
    "i1e": ("x", "where(x == 0, d / 2, d * (i0e(x) - i1e(x) * (sign(x) + 1 / x)))"),
    "bessel_j0": ("x", "-d * bessel_j1(x)"),
    "bessel_j1": ("x", "where(x == 0, d / 2, d * (bessel_j0(x) - bessel_j1(x) / x))"),
    "bessel_y0": ("x", "-d * bessel_y1(x)"),
    "bessel_y1": ("x", "d * (bessel_y0(x) - bessel_y1(x) / x)"),
    "modified_bessel_k0": ("x", "-d * modified_bessel_k1(x)"),
    "modified_bessel_k1": ("x", "-d * (modified_bessel_k0(x) + modified_bessel_k1(x) / x)"),
    "scaled_modified_bessel_k0": ("x", "d * (scaled_modified_bessel_k0(x) - scaled_modified_bessel_k1(x))"),
    "scaled_modified_bessel_k1": (
        "x", "d * (scaled_modified_bessel_k1(x) * (1 - 1 / x) - scaled_modified_bessel_k0(x))",
    ),
    "gamma": ("x", "d * (gamma(x) * digamma(x))"),
    "factorial": ("x", "d * (factorial(x) * digamma(x + 1))"),
    "exp1": ("x", "-d * (exp(-x) / x)"),
    "expi": ("x", "d * (exp(x) / x)"),
    "dawsn": ("x", "d * (1 - 2 * x * dawsn(x))"),
    "fresnel_s": ("x", "d * sin(1.5707963267948966 * square(x))"),
    "fresnel_c": ("x", "d * cos(1.5707963267948966 * square(x))"),
    "sine_integral": ("x", "d * spherical_bessel_j0(x)"),
    "cosine_integral": ("x", "d * (cos(x) / x)"),
    "spence": ("x", "where(x == 1, -d, d * (log(x) / (1 - x)))"),
    # activations
    "sigmoid": ("x", "d * sigmoid(x) * sigmoid(-x)"),
    "log_sigmoid": ("x", "d * sigmoid(-x)"),
    "logit": ("x eps", "where((x < eps) | (x > 1 - eps), 0, d / (x * (1 - x)))", ""),
    "relu": ("x", "where(x <= 0, 0, d)"),
    "relu6": ("x", "where((x <= 0) | (x >= 6), 0, d)"),
    "leaky_relu": ("x alpha", "where(x > 0, d, d * alpha)", "where(x > 0, 0, d * x)"),
    "prelu": ("a b", "where(a > 0, d, d * b)", "where(a > 0, 0, d * a)"),
    "elu": (
        "x alpha scale input_scale",
        "where(x > 0, d * scale, d * (alpha * scale * input_scale * exp(x * input_scale)))", "", "", "",
    ),
    "celu": ("x alpha", "where(x > 0, d, d * exp(x / alpha))", ""),
    "selu": ("x", "d * where(x > 0, 1.0507009873554805, 1.7580993408473766 * exp(x))"),
    "gelu": (
        "x", "d * (0.5 * erfc(x * -0.7071067811865476) + x * (0.3989422804014327 * exp(-0.5 * square(x))))",
    ),
    "gelu_tanh": (
        "x",
        "_t = x * (1.5957691216057308 + 0.07135481627260025 * square(x)); _s = sigmoid(_t);"
        "d * (_s + x * _s * sigmoid(-_t) * (1.5957691216057308 + 0.21406444881780074 * square(x)))",
    ),
    "silu": ("x", "d * sigmoid(x) * (1 + x * sigmoid(-x))"),
    "mish": ("x", "_t = tanh(softplus(x)); d * (_t + x * sigmoid(x) * (1 - square(_t)))"),
    "softplus": ("x beta threshold", "where(x * beta > threshold, d, d * sigmoid(x * beta))", "", ""),
    "softsign": ("x", "d / square(1 + abs(x))"),
    "tanhshrink": ("x", "d * square(tanh(x))"),
    "hardtanh": ("x low high", "where((x <= low) | (x >= high), 0, d)", "", ""),
    "hardsigmoid": ("x", "where((x > -3) & (x < 3), d / 6, 0)"),
    "hardswish": ("x", "where(x <= -3, 0, where(x < 3, d * ((2 * x + 3) / 6), d))"),
    "hardshrink": ("x alpha", "where((x >= -alpha) & (x <= alpha), 0, d)", ""),
    "softshrink": ("x alpha", "where((x >= -alpha) & (x <= alpha), 0, d)", ""),
    "threshold": ("x threshold value", "where(x <= threshold, 0, d)", "", ""),
}  # fmt: skip
