"""dct, dst and their inverses, types 1 to 4, over one axis or several, by Fourier transforms of what they extend."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array
from ...core.checked import truth, whole
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import shape_of
from ...calls.entries import entry
from ..elementwise.complex_pair import complex as joined
from ..fft.fft import FftPlan
from ..fft.functions import fft, irfft, rfft
from ..fft.passes import SWAPPED, norm_of, several
from ..layout.axes import place
from ..layout.pad import pad
from ..layout.views import part
from .frames import formula, last, parts, places, real_kind, returned, sized, table, to_last

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
_ROOT = repr(math.sqrt(2))


def _behind(x: Any, count: int, mode: str, options: Any, before: int = 0) -> Any:
    widths = [(0, 0)] * (len(shape_of(x, "x")) - 1)
    return pad(x, [*widths, (before, count)], mode, **options)


def _odd(x: Any, half: int, options: Any) -> Any:
    """x with its second half, from `half` on, negated."""
    count = shape_of(x, "x")[-1]
    return formula("x if i < n else -x")(x=x, i=places(x, count, options["stream"], _kind(x)), n=float(half), **options)


def _kind(x: Any) -> Any:
    return real_kind(x, "dct")


def _first(x: Any, n: int, sine: bool, factor: float, orthogonal: bool, to: Any, options: Any) -> Any:
    if sine:
        wide = _behind(_behind(x, 1, "constant", options, before=1), n, "reflect", options)
        _, b = parts(rfft(_odd(wide, n + 1, options), **options), options)
        return formula("-k * b")(b=part(b, len(shape_of(x, "x")) - 1, 1, n + 1), k=factor, out=to, **options)
    if n < 2:
        raise InvalidProblemError(f"type 1 of the cosine transform takes two elements at least, got {n}")
    if orthogonal:
        ends = table(x, n, f"w = ({_ROOT} + 0 * i if i == 0 or i == n - 1 else 1)", options, n=float(n))
        x = formula("x * w")(x=x, w=ends, **options)
    a, _ = parts(rfft(_behind(x, n - 2, "reflect", options), **options), options)
    if not orthogonal:
        return formula("k * a")(a=a, k=factor, out=to, **options)
    return formula("k * a / w")(a=a, k=factor, w=ends, out=to, **options)


def _second(x: Any, n: int, sine: bool, factor: float, orthogonal: bool, to: Any, options: Any) -> Any:
    wide = _behind(x, n, "symmetric", options)
    made = rfft(_odd(wide, n, options) if sine else wide, **options)
    axis = len(shape_of(x, "x")) - 1
    least = f" * ({1 / math.sqrt(2)!r} if i == {'n - 1' if sine else '0'} else 1)" if orthogonal else ""
    angle = f"pi * (i + {int(sine)}) / (2 * n)"
    c, s = table(x, n, f"c = k * cos({angle}){least}; s = k * sin({angle}){least}", options, k=factor, n=float(n))
    a, b = (part(one, axis, int(sine), n + int(sine)) for one in parts(made, options))
    text = "s * a - c * b" if sine else "c * a + s * b"
    return formula(text)(s=s, a=a, c=c, b=b, out=to, **options)


def _third(x: Any, n: int, sine: bool, factor: float, orthogonal: bool, to: Any, options: Any) -> Any:
    if sine:
        x = _behind(x, 0, "constant", options, before=1)
    most = f" * ({_ROOT} if i == {'n' if sine else '0'} else 1)" if orthogonal else ""
    first, second = ("sin", "-cos") if sine else ("cos", "sin")
    angle = "(pi * i / (2 * n))"
    text = f"c = k * {first}{angle}{most}; s = k * {second}{angle}{most}"
    c, s = table(x, shape_of(x, "x")[-1], text, options, k=factor, n=float(n))
    u, v = formula("u = c * x; v = s * x")(c=c, x=x, s=s, **options)
    made = irfft(joined(u, v, **options), 2 * n, norm="forward", **options)
    kept = part(made, len(shape_of(x, "x")) - 1, 0, n)
    return kept if to is None else formula("+x")(x=kept, out=to, **options)


def _fourth(x: Any, n: int, sine: bool, factor: float, orthogonal: bool, to: Any, options: Any) -> Any:
    del orthogonal
    c, s = table(x, n, "c = cos(pi * i / (2 * n)); s = -sin(pi * i / (2 * n))", options, n=float(n))
    u, v = formula("u = c * x; v = s * x")(c=c, x=x, s=s, **options)
    made = fft(joined(u, v, **options), 2 * n, **options)
    axis = len(shape_of(x, "x")) - 1
    a, b = (part(one, axis, 0, n) for one in parts(made, options))
    angle = "pi * (2 * i + 1) / (4 * n)"
    c, s = table(x, n, f"c = 2 * k * cos({angle}); s = 2 * k * sin({angle})", options, k=factor, n=float(n))
    text = "s * a - c * b" if sine else "c * a + s * b"
    return formula(text)(s=s, a=a, c=c, b=b, out=to, **options)


_TYPES = {1: _first, 2: _second, 3: _third, 4: _fourth}


def _transformed(
    name: str, x: Any, type: Any, n: Any, axis: Any, norm: Any, orthogonalize: Any, sine: bool, inverse: bool, out: Any,
    options: Any,
) -> Any:  # fmt: skip
    real_kind(x, name)
    kind = whole("type", type, 1, 4)
    scale = SWAPPED[norm_of(norm)] if inverse else norm_of(norm)
    orthogonal = scale == "ortho" if orthogonalize is None else truth("orthogonalize", orthogonalize)
    at = place(axis, len(shape_of(x, "x")))
    if n is not None:
        x = sized(x, at, whole("n", n, 1), options)
    count = shape_of(x, "x")[at]
    if not count:
        raise InvalidProblemError(f"{name}: x must have elements along axis {at}, got shape {shape_of(x, 'x')}")
    rows, _ = last(x, at)
    whole_length = 2 * (count + (0 if kind > 1 else 1 if sine else -1))
    factor = {"backward": 1.0, "ortho": max(whole_length, 1) ** -0.5, "forward": 1 / max(whole_length, 1)}[scale]
    kind = _INVERSE[kind] if inverse else kind
    made = _TYPES[kind](rows, count, sine, factor, orthogonal, to_last(out, at, x), options)
    return returned(made, at, out)


def _over(name: str, x: Any, type: Any, s: Any, axis: Any, facts: tuple[Any, ...], out: Any, options: Any) -> Any:
    norm, orthogonalize, sine, inverse = facts
    axes, lengths = several(x, s, axis)
    held = [shape_of(x, "x")[a] if n is None else n for a, n in zip(axes, lengths, strict=True)]
    for place_of, count in zip(axes[:-1], held[:-1], strict=True):
        x = _transformed(name, x, type, count, place_of, norm, orthogonalize, sine, inverse, None, options)
    return _transformed(name, x, type, held[-1], axes[-1], norm, orthogonalize, sine, inverse, out, options)


@entry(FftPlan, inverse=False)
def dct(
    x: Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    orthogonalize: bool | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The discrete cosine transform along an axis (scipy.fft.dct, jax.scipy.fft.dct).

    x: any shape, float32 or float64. type: 1, x[0] + (-1)^k x[n - 1] + 2 Σ x[j] cos(π j k / (n - 1)) of two elements at
    least; 2, 2 Σ x[j] cos(π k (2j + 1) / 2n); 3, x[0] + 2 Σ x[j] cos(π (2k + 1) j / 2n); 4, 2 Σ x[j] cos(π (2k + 1)
    (2j + 1) / 4n). n: the length, to which x is cut or filled with zeros. norm: None or "backward", not divided;
    "ortho", by √N; "forward", by N, which is 2n, of type 1 2 (n - 1). orthogonalize: terms weighted with √2 so that
    the matrix is orthogonal, by default with "ortho". By a Fourier transform of 2n. Gradient of x.
    """
    (out,) = each_of(out, 1)
    options = {"stream": stream, "preference": preference}
    return _transformed("dct", x, type, n, axis, norm, orthogonalize, False, False, out, options)


@entry(FftPlan, inverse=True)
def idct(
    x: Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    orthogonalize: bool | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The inverse of `dct` of the same type and norm along an axis (scipy.fft.idct, jax.scipy.fft.idct).

    x: any shape, float32 or float64. n: the length, to which x is cut or filled with zeros. norm: None or "backward",
    divided by N, that of `dct`; "ortho", by √N; "forward", not. Gradient of x.
    """
    (out,) = each_of(out, 1)
    options = {"stream": stream, "preference": preference}
    return _transformed("idct", x, type, n, axis, norm, orthogonalize, False, True, out, options)


@entry(FftPlan, inverse=False)
def dst(
    x: Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    orthogonalize: bool | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The discrete sine transform along an axis (scipy.fft.dst).

    x: any shape, float32 or float64. type: 1, 2 Σ x[j] sin(π (k + 1) (j + 1) / (n + 1)); 2, 2 Σ x[j] sin(π (k + 1)
    (2j + 1) / 2n); 3, (-1)^k x[n - 1] + 2 Σ x[j] sin(π (2k + 1) (j + 1) / 2n); 4, 2 Σ x[j] sin(π (2k + 1) (2j + 1) /
    4n). n: the length, to which x is cut or filled with zeros. norm and orthogonalize are those of `dct`, with N = 2n,
    of type 1 2 (n + 1). Gradient of x.
    """
    (out,) = each_of(out, 1)
    options = {"stream": stream, "preference": preference}
    return _transformed("dst", x, type, n, axis, norm, orthogonalize, True, False, out, options)


@entry(FftPlan, inverse=True)
def idst(
    x: Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    orthogonalize: bool | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The inverse of `dst` of the same type and norm along an axis (scipy.fft.idst).

    x: any shape, float32 or float64. n: the length, to which x is cut or filled with zeros. norm: None or "backward",
    divided by N, that of `dst`; "ortho", by √N; "forward", not. Gradient of x.
    """
    (out,) = each_of(out, 1)
    options = {"stream": stream, "preference": preference}
    return _transformed("idst", x, type, n, axis, norm, orthogonalize, True, True, out, options)


def _several(name: str, sine: bool, inverse: bool, text: str) -> Any:
    def function(
        x: Array, type: int = 2, s: Any = None, axis: Any = None, norm: str | None = None,
        orthogonalize: bool | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
    ) -> Any:  # fmt: skip
        (one,) = each_of(out, 1)
        options = {"stream": stream, "preference": preference}
        return _over(name, x, type, s, axis, (norm, orthogonalize, sine, inverse), one, options)

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = f"""{text}

    x: any shape, float32 or float64. s: the lengths, to which x is cut or filled with zeros, -1 for its own. axis: by
    default all, or the last ones where s is given. type, norm and orthogonalize are those of `{name[:-1]}`. Gradient of
    x.
    """
    return entry(FftPlan, inverse=inverse)(function)


dctn = _several("dctn", False, False, "`dct` along several axes, one after the other (scipy.fft.dctn).")
idctn = _several("idctn", False, True, "The inverse of `dctn` of the same type and norm (scipy.fft.idctn).")
dstn = _several("dstn", True, False, "`dst` along several axes, one after the other (scipy.fft.dstn).")
idstn = _several("idstn", True, True, "The inverse of `dstn` of the same type and norm (scipy.fft.idstn).")
