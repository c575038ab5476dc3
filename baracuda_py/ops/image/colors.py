"""Colour spaces, channels first, and pixels as networks take them: formulas over the channel axis, one launch each."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.element import ElementKind
from ...core.errors import InvalidProblemError
from ...core.outputs import beside
from ...core.views import shape_of
from ..elementwise.unary import UnaryPlan
from ..layout.creation import arange
from ..layout.views import movedim, narrow, reshape
from .sampling import float_like, formula


def _converted(x: Any, texts: tuple[str, str, str], out: Any, options: dict[str, Any]) -> Any:
    shape = shape_of(x, "x")
    if len(shape) < 3 or shape[-3] != 3:
        raise InvalidProblemError(f"x must be [..., 3, H, W], got shape {shape}")
    float_like(x)
    a, b, c = (narrow(x, len(shape) - 3, i, 1) for i in range(3))
    with beside(x, options["stream"]):
        number = reshape(arange(3, like=x), (3, 1, 1))
    made = formula(f"where(k == 0, {texts[0]}, where(k == 1, {texts[1]}, {texts[2]}))")
    return made(a=a, b=b, c=c, k=number, out=out, **options)


@entry(UnaryPlan)
def rgb_to_gray(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """0.299 R + 0.587 G + 0.114 B of x [..., 3, H, W]: [..., 1, H, W] (ITU-R BT.601; kornia, torchvision)."""
    shape = shape_of(x, "x")
    if len(shape) < 3 or shape[-3] != 3:
        raise InvalidProblemError(f"x must be [..., 3, H, W], got shape {shape}")
    float_like(x)
    a, b, c = (narrow(x, len(shape) - 3, i, 1) for i in range(3))
    gray = formula("0.299 * a + 0.587 * b + 0.114 * c")
    return gray(a=a, b=b, c=c, out=out, stream=stream, preference=preference)


_TOP = "maximum(a, maximum(b, c))"
_LOW = "minimum(a, minimum(b, c))"
_SPAN = f"({_TOP} - {_LOW})"
_SAFE = f"where({_SPAN} == 0, 1, {_SPAN})"
_HUE = (
    f"where({_SPAN} == 0, 0, remainder(where({_TOP} == a, (b - c) / {_SAFE}, where({_TOP} == b, (c - a) / {_SAFE} + 2, "
    f"(a - b) / {_SAFE} + 4)) / 6, 1))"
)


@entry(UnaryPlan)
def rgb_to_hsv(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Hue (a part of the circle, [0, 1)), saturation and value of RGB [..., 3, H, W] in [0, 1] (colorsys, torchvision).

    Grey has hue and saturation 0.
    """
    share = f"where({_TOP} == 0, 0, {_SPAN} / where({_TOP} == 0, 1, {_TOP}))"
    return _converted(x, (_HUE, share, _TOP), out, {"stream": stream, "preference": preference})


def _hsv(n: int) -> str:
    """Of hue a, saturation b and value c: the channel whose sextant is n (5 red, 3 green, 1 blue)."""
    k = f"remainder({n} + 6 * a, 6)"
    return f"(c - c * b * clamp(minimum({k}, 4 - {k}), 0, 1))"


@entry(UnaryPlan)
def hsv_to_rgb(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """RGB of hue (a part of the circle), saturation and value [..., 3, H, W] (colorsys, kornia with hue over 2π)."""
    return _converted(x, (_hsv(5), _hsv(3), _hsv(1)), out, {"stream": stream, "preference": preference})


_Y = "(0.299 * a + 0.587 * b + 0.114 * c)"


@entry(UnaryPlan)
def rgb_to_ycbcr(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Luma and two differences of RGB [..., 3, H, W] in [0, 1], the differences about ½ (JPEG's; JFIF 1.02)."""
    texts = (_Y, f"((c - {_Y}) / 1.772 + 0.5)", f"((a - {_Y}) / 1.402 + 0.5)")
    return _converted(x, texts, out, {"stream": stream, "preference": preference})


@entry(UnaryPlan)
def ycbcr_to_rgb(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """RGB of luma and two differences about ½, [..., 3, H, W] (JPEG's; JFIF 1.02): the inverse of `rgb_to_ycbcr`."""
    red, blue = "(a + 1.402 * (c - 0.5))", "(a + 1.772 * (b - 0.5))"
    green = f"((a - 0.299 * {red} - 0.114 * {blue}) / 0.587)"
    return _converted(x, (red, green, blue), out, {"stream": stream, "preference": preference})


def _linear(v: str) -> str:
    return f"where({v} > 0.04045, pow((maximum({v}, 0.04045) + 0.055) / 1.055, 2.4), {v} / 12.92)"


def _coded(v: str) -> str:
    return f"where({v} > 0.0031308, 1.055 * pow(maximum({v}, 0.0031308), 0.4166666666666667) - 0.055, 12.92 * {v})"


_TO_XYZ = (
    (0.4124564 / 0.95047, 0.3575761 / 0.95047, 0.1804375 / 0.95047),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339 / 1.08883, 0.1191920 / 1.08883, 0.9503041 / 1.08883),
)
_FROM_XYZ = (
    (3.2404542 * 0.95047, -1.5371385, -0.4985314 * 1.08883),
    (-0.9692660 * 0.95047, 1.8760108, 0.0415560 * 1.08883),
    (0.0556434 * 0.95047, -0.2040259, 1.0572252 * 1.08883),
)


def _root(v: str) -> str:
    return f"where({v} > 0.008856, pow(maximum({v}, 0.008856), 0.3333333333333333), 7.787 * {v} + 0.13793103448275862)"


def _cube(v: str) -> str:
    return f"where({v} > 0.20689655172413793, {v} * {v} * {v}, ({v} - 0.13793103448275862) / 7.787)"


@entry(UnaryPlan)
def rgb_to_lab(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """CIE L*a*b* of sRGB [..., 3, H, W] in [0, 1], white D65 (kornia.color.rgb_to_lab): L* in [0, 100]."""
    linear = [_linear(v) for v in "abc"]
    fx, fy, fz = (
        _root("(" + " + ".join(f"{w} * {v}" for w, v in zip(row, linear, strict=True)) + ")") for row in _TO_XYZ
    )
    texts = (f"(116 * {fy} - 16)", f"(500 * ({fx} - {fy}))", f"(200 * ({fy} - {fz}))")
    return _converted(x, texts, out, {"stream": stream, "preference": preference})


@entry(UnaryPlan)
def lab_to_rgb(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """sRGB of CIE L*a*b* [..., 3, H, W], white D65 (kornia.color.lab_to_rgb, without its clipping to [0, 1])."""
    fy = "((a + 16) / 116)"
    parts = [_cube(f"({fy} + b / 500)"), _cube(fy), _cube(f"({fy} - c / 200)")]
    red, green, blue = (
        _coded("(" + " + ".join(f"{w} * {v}" for w, v in zip(row, parts, strict=True)) + ")") for row in _FROM_XYZ
    )
    return _converted(x, (red, green, blue), out, {"stream": stream, "preference": preference})


@entry(UnaryPlan)
def normalize_image(
    x: Array, mean: Array, std: Array, *, element: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Pixels [..., H, W, C] of uint8 as a network takes them, [..., C, H, W]: (x / 255 - mean) / std, in one launch.

    mean, std: [C] of one float; element: that of the result, by default theirs. torchvision's ToTensor and Normalize.
    """
    shape, own = shape_of(x, "x"), float_like(mean, "mean")
    kind = own if element is None else ElementKind.of(element)
    if len(shape) < 3 or read(x, "x").element is not ElementKind.U8:
        raise InvalidProblemError(f"x must be [..., H, W, C] of uint8, got shape {shape} of {read(x, 'x').element}")
    for one, name in ((mean, "mean"), (std, "std")):
        if shape_of(one, name) != shape[-1:] or read(one, name).element is not own:
            raise InvalidProblemError(
                f"{name} must be {shape[-1:]} of {own}, got shape {shape_of(one, name)} of {read(one, name).element}"
            )
    given = {"x": movedim(x, -1, -3), "m": reshape(mean, (-1, 1, 1)), "s": reshape(std, (-1, 1, 1))}
    return formula(f"{kind}(({own.acc}(x) / 255 - m) / s)")(**given, out=out, stream=stream, preference=preference)
