"""poly_norm: a sum of normalised powers, y = a n(x³) + b n(x²) + c n(x) + d with n(z) = z / √(mean(z²) + eps).

Compositions: the means are those of 6-, 4- and 2-norms, whose powers stay in the range, and what is raised to a power
is x by the root of its own mean.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array
from ...core.checked import real, shown
from ...core.element import HALVES
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from ..reduce.norm import vector_norm
from ..scan.scan import cumsum
from .rms_norm import RMSNormPlan
from .rms_norm_backward import RMSNormBackwardPlan

_POWERS = {"a": 6, "b": 4, "c": 2}


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@cache
def _reduced(text: str, axis: int | tuple[int, ...]) -> Any:
    return reduction(text, "sum", axis=axis)


def _checked(x: Any, weight: Any, eps: Any) -> Any:
    """x as a view."""
    view = read(x, "x")
    if not view.element.is_float:
        raise UnsupportedError(f"poly_norm is of floats, got {view.element}; cast to one first")
    if not view.shape:
        raise InvalidProblemError("x must have an axis to normalise over, got shape ()")
    if tuple(read(weight, "weight").shape) != (3,):
        raise InvalidProblemError(f"weight must have shape (3,), got {tuple(read(weight, 'weight').shape)}")
    if not real("eps", eps) >= 0:
        raise InvalidProblemError(f"eps must not be negative, got {shown(eps)}")
    return view


def _roots(x: Any, view: Any, eps: float, options: Any) -> dict[str, Any]:
    """By name the numbers (…, 1) by which x is the root of each normalised power, in the accumulator's element."""
    acc, count = view.element.acc, float(max(view.shape[-1], 1))
    wide = _formula(f"{acc}(x)")(x, **options) if view.element in HALVES else x
    return {
        name: _formula(f"{acc}((float64(s) ** {p} / n + eps) ** (-1 / {p}))")(
            s=vector_norm(wide, p, axis=-1, keepdims=True, **options), n=count, eps=float(eps), **options
        )
        for name, p in _POWERS.items()
    }


def _parts(weight: Any) -> dict[str, Any]:
    return {name: weight[k : k + 1] for k, name in enumerate("uvw")}


_VALUE = "u * cube(x * a) + v * square(x * b) + w * (x * c) + d"
_SLOPE = (
    "3 * u * a * square(x * a) * (g - cube(x * a) * r) + 2 * v * b * (x * b) * (g - square(x * b) * s)"
    " + w * c * (g - x * c * t)"
)


@entry(RMSNormPlan)
def poly_norm(
    x: Array, weight: Array, bias: Array | None = None, *, eps: float = 1e-6, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y = weight[0] n(x³) + weight[1] n(x²) + weight[2] n(x) + bias, n(z) = z / √(mean(z² along the last axis) + eps).

    PolyNorm (Zhuo et al. 2024, Polynomial Composition Activations). x has shape (…, n), weight (3,), bias (1,) or None.
    Seven launches, four of them over x; of 16-bit floats one more, and a float32 copy. Magnitudes of float64 must be
    below 1e51.
    """
    options = {"stream": stream, "preference": preference}
    view = _checked(x, weight, eps)
    given = {**_roots(x, view, eps, options), **_parts(weight), "d": 0.0 if bias is None else bias}
    return _formula(f"{view.element}({_VALUE})")(x=x, **given, out=out, **options)


@entry(RMSNormBackwardPlan)
def poly_norm_backward(
    dy: Array, x: Array, weight: Array, *, eps: float = 1e-6, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(dx, dweight, dbias) of y = poly_norm(x, weight, bias), for dy of y's shape; dbias has shape (1,)."""
    options = {"stream": stream, "preference": preference}
    view, outs = _checked(x, weight, eps), each_of(out, 3)
    roots, acc, element = _roots(x, view, eps, options), view.element.acc, read(weight, "weight").element
    index = cumsum(_formula("where(isnan(w), int32(1), int32(1))")(w=weight, **options), axis=0, **options)
    shares = _reduced(f"{acc}(g) * where(i < 2, cube(x * a), where(i < 3, square(x * b), x * c))", -1)(
        g=dy[..., None, :], x=x[..., None, :], i=index[:, None], **options,
        **{name: root[..., None] for name, root in roots.items()},
    )  # fmt: skip
    means = _formula("s / n")(s=shares, n=float(max(view.shape[-1], 1)), **options)
    dx = _formula(f"{view.element}({_SLOPE})")(
        g=dy, x=x, **roots, **_parts(weight), **{name: means[..., k : k + 1] for k, name in enumerate("rst")},
        out=outs[0], **options,
    )  # fmt: skip
    rows = tuple(range(len(view.shape) - 1))
    dweight = _reduced("x", rows)(x=shares, **options) if rows else shares
    dbias = _reduced(f"{acc}(x)", (*rows, len(rows)))(x=dy, **options)
    rounded = _formula(f"{element}(x)")
    return dx, rounded(dweight, out=outs[1], **options), rounded(dbias[None], out=outs[2], **options)
