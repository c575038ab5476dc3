"""erf, erfc, erfcx and exp(-k x²) of NumPy arrays, to the precision of the dtype they come in (NumPy has none)."""

from __future__ import annotations

from typing import Any

import numpy as np

# (1 + 2a) exp(a²) erfc(a) as a Chebyshev series in t = (a - 3.5) / (a + 3.5), a >= 0; 31 terms reach 1e-20.
_CENTRE = 3.5
_SERIES = (
    "1.177632731636123922472", "-0.001630177283414629055523", "-0.08733682573463145983262",
    "0.05800974837029326500739", "-0.02434011539618222533176", "0.007529483715635748738978",
    "-0.001743881757711252192951", "0.0002826982981655558551239", "-0.00002318491161126349965819",
    "-0.000002111766698133040920135", "0.0000008765760156892821584370", "-6.105702635086118018042878e-8",
    "-1.711666471634191699753572e-8", "3.391360268611258782762607e-9", "2.546616193660459838411815e-10",
    "-1.248278407951629412846471e-10", "-2.212275775343379391002987e-12", "4.427260363823029778553798e-12",
    "-3.367266128031012515643117e-14", "-1.651925600092357639624507e-13", "1.902410304453883484585101e-15",
    "6.601187937172832347622031e-15", "2.880282449409003739291309e-17", "-2.779170963574329627059672e-16",
    "-1.076446574033264211326497e-17", "1.188514420399881322911848e-17", "1.093366052282185473330285e-18",
    "-4.888175126555364172126004e-19", "-8.428516542585567072256654e-20", "1.753796070408544112160898e-20",
    "5.580667535568077216914178e-21",
)  # fmt: skip
_TERMS = {2: 8, 4: 14, 8: 26}  # by itemsize: those above the dtype's own precision
_FAR = 240  # exp(-x² / 4) is 0 beyond it in every dtype
_LARGE = 1e15  # exp(a²) erfc(a) is 1 / (√π a) long before


def erfc(x: Any) -> Any:
    """1 - erf(x) with relative accuracy far into the tail."""
    x = np.asarray(x)
    tail = _upper(np.minimum(np.abs(x), _FAR))
    return np.where(x < 0, 2 - tail, tail)


def erf(x: Any) -> Any:
    """2/√π ∫₀ˣ exp(-s²) ds."""
    x = np.asarray(x)
    a = np.minimum(np.abs(x), _FAR)
    return np.where(a < 1, _near(np.clip(x, -1, 1)), np.copysign(1 - _upper(a), x))


def _near(x: Any) -> Any:
    """Σ 2/√π (-1)ⁿ x²ⁿ⁺¹ / (n! (2n + 1)), for |x| <= 1."""
    square = x * x
    total = np.zeros_like(x)
    for n in range(22, 0, -1):  # Σ aₙ (-x²)ⁿ / n! from the last term inwards
        total = (total + 1 / x.dtype.type(2 * n + 1)) * -square / n
    return x * (total + 1) * 2 / np.sqrt(4 * np.arctan(x.dtype.type(1)))


def erfcx(a: Any) -> Any:
    """exp(a²) erfc(a) for a >= 0."""
    far, near = np.maximum(a, _LARGE), np.minimum(a, _LARGE)
    t = (near - _CENTRE) / (near + _CENTRE)
    next_, after = np.zeros_like(near), np.zeros_like(near)
    for term in reversed(_SERIES[1 : _TERMS.get(near.dtype.itemsize)]):  # Clenshaw's recurrence
        next_, after = near.dtype.type(term) + 2 * t * next_ - after, next_
    series = (near.dtype.type(_SERIES[0]) + t * next_ - after) / (1 + 2 * near)
    return np.where(a > _LARGE, 1 / np.sqrt(4 * np.arctan(near.dtype.type(1))) / far, series)


def bell(x: Any, k: Any) -> Any:
    """exp(-k x²), k a power of two: from a number whose square is exact, and the rest; else x² would round."""
    x = np.clip(x, -_FAR, _FAR)
    head = np.rint(x * 32) / 32
    return np.exp(-k * head * head) * np.exp(-k * (x - head) * (x + head))


def _upper(a: Any) -> Any:
    """erfc(a) for 0 <= a <= 240."""
    return erfcx(a) * bell(a, 1)
