"""Smooth activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import unary_gradients as slopes
from ..unary_formulas import gelu, gelu_tanh, mish, selu, sigmoid, silu
from ..unary_gradients import where_defined
from .row import Coefficient, Function, crosses_zero, ulps

_INVERSE_TEMPERATURE = Coefficient("beta", 1.0, zero=False, drawn=(0.25, 2))


def _logit(x: Any, eps: Any) -> Any:
    """log(z / (1 - z)) of x no nearer to 0 and 1 than eps >= 0; 1 - x is exact above 1/2."""
    if eps >= 0:
        end = _plain_logit(eps)
        return np.where(x < eps, end, np.where(1 - x < eps, -end, _plain_logit(x)))
    return _plain_logit(x)


def _plain_logit(x: Any) -> Any:
    """2 atanh(2x - 1) near 1/2: there the quotient is near 1, and its rounding all of the logarithm."""
    u = 2 * x - 1
    return np.where(np.abs(u) < 0.5, 2 * np.arctanh(u), np.log(x / (1 - x)))


def _logit_slope(dy: Any, x: Any, eps: Any) -> Any:
    if eps >= 0:
        return np.where((x < eps) | (1 - x < eps), 0, dy / (x * (1 - x)))
    return where_defined((x >= 0) & (x <= 1), dy / (x * (1 - x)), x)


def _softplus(x: Any, beta: Any, threshold: Any) -> Any:
    t = x * beta
    return np.where(t > threshold, x, (np.maximum(t, 0) + np.log1p(np.exp(-np.abs(t)))) / beta)


def _softplus_slope(dy: Any, x: Any, beta: Any, threshold: Any) -> Any:
    return np.where(x * beta > threshold, dy, slopes.softplus(dy, x * beta))


def _elu(x: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return np.where(x > 0, x * scale, alpha * scale * np.expm1(np.minimum(x, 0) * input_scale))


def _celu(x: Any, alpha: Any) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


# (x - tanh(x)) / x³ as a polynomial in x² for |x| <= 1.5, within 2e-22.
_TANHSHRINK = (
    "0.3333333333333333333331", "-0.1333333333333333331799", "0.05396825396825395165006",
    "-0.02186948853615448541169", "0.008863235529885661679329", "-0.003592128036336998095564",
    "0.00145583438478669229202", "-0.0005900274253440311683493", "0.0002391290339579560117696",
    "-0.00009691506127867622000169", "0.00003927732860496294041418", "-0.00001591640495886611989367",
    "0.000006446570266559495284837", "-0.000002606127411380162568986", "0.000001047572978993258846502",
    "-4.151435008448184292337e-7", "1.597412782294484718448e-7", "-5.836280265895075968104e-8",
    "1.969408136426787429478e-8", "-5.954100604831074212385e-9", "1.562780777794301103825e-9",
    "-3.44552480123021471234e-10", "6.148373103915469838718e-11", "-8.472906755822990013463e-12",
    "8.420546814488698216212e-13", "-5.351976811307907717555e-14", "1.629593644803128423062e-15",
)  # fmt: skip


def _tanhshrink(x: Any) -> Any:
    """x - tanh(x); near 0, where both are nearly equal, by a polynomial."""
    near = np.clip(x, -1.5, 1.5)
    square, total = near * near, np.zeros_like(x)
    for term in reversed(_TANHSHRINK):
        total = total * square + x.dtype.type(term)
    return np.where(np.abs(x) < 1.5, near * square * total, x - np.tanh(x))


def _logit_in_torch(torch: Any, x: Any, eps: Any) -> Any:
    return torch.logit(x, None if eps < 0 else eps)


SIGMOID = Function(
    "sigmoid/Sigmoid",
    sigmoid,
    slopes.sigmoid,
    bound=ulps(5, 5),
    torch="sigmoid",
    gate=sigmoid,
    aliases=("expit", "logistic"),
)
LOG_SIGMOID = Function(
    "softplus/LogSigmoid", lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    lambda dy, x: slopes.softplus(dy, -x),
    bound=ulps(4, 4), torch="nn.functional.logsigmoid", aliases=("logsigmoid",),
)  # fmt: skip
LOGIT = Function(
    "logit/Logit", _logit, _logit_slope, bound=ulps(4, 4), torch=_logit_in_torch,
    coefficients=(Coefficient("eps", None, low=0, high=0.5, absent=-1.0, drawn=(0.01, 0.4)),),
)  # fmt: skip
SOFTPLUS = Function(
    "softplus/Softplus", _softplus, _softplus_slope, bound=ulps(4, 4), torch="nn.functional.softplus",
    coefficients=(_INVERSE_TEMPERATURE, Coefficient.limit("threshold", 20.0, drawn=(1, 30))), points=(20.0,),
)  # fmt: skip
SOFTSIGN = Function(
    "softsign/Softsign", lambda x: x / (1 + np.abs(x)), lambda dy, x: dy / (1 + np.abs(x)) / (1 + np.abs(x)),
    bound=ulps(1.5, 1.5), torch="nn.functional.softsign", aliases=("soft_sign",),
)  # fmt: skip
ELU = Function(
    "elu/Elu", _elu, slopes.elu, bound=ulps(4, 4), torch="ops.aten.elu",
    coefficients=(Coefficient("alpha", 1.0), Coefficient("scale", 1.0), Coefficient("input_scale", 1.0)),
)  # fmt: skip
CELU = Function(
    "elu/Celu", _celu, slopes.celu, bound=ulps(4, 4), torch="nn.functional.celu",
    coefficients=(Coefficient("alpha", 1.0, zero=False, drawn=(0.25, 3)),),
)  # fmt: skip
SELU = Function("elu/Selu", selu, slopes.selu, bound=ulps(4, 4), torch="nn.functional.selu")
GELU = Function(
    "gelu/Gelu", gelu, slopes.gelu, bound=ulps(9, 12, bfloat16=0.52), slope=crosses_zero, torch="nn.functional.gelu",
    gate=gelu,
)  # fmt: skip
GELU_TANH = Function(
    "gelu_tanh/GeluTanh", gelu_tanh, slopes.gelu_tanh, bound=ulps(9, 5), slope=crosses_zero, gate=gelu_tanh,
    torch=lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
)  # fmt: skip
SILU = Function(
    "silu/Silu", silu, slopes.silu, bound=ulps(8, 5), slope=crosses_zero, torch="nn.functional.silu", gate=silu,
    aliases=("swish",),
)  # fmt: skip
MISH = Function("mish/Mish", mish, slopes.mish, bound=ulps(8, 8), slope=crosses_zero, torch="nn.functional.mish")
TANHSHRINK = Function(
    "tanhshrink/Tanhshrink", _tanhshrink, lambda dy, x: dy * np.tanh(x) * np.tanh(x), bound=ulps(5, 5),
    torch="nn.functional.tanhshrink",
)  # fmt: skip
