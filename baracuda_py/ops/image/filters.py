"""Filters of images: separable and general ones, blurs, edges, medians, morphology, and how alike two images are."""

from __future__ import annotations

import math
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import real, whole, wholes
from ...core.errors import InvalidProblemError
from ...core.outputs import beside
from ...core.views import shape_of
from ..elementwise.unary import UnaryPlan
from ..gemm.gemm import GemmPlan
from ..gemm.matmul import matmul
from ..layout.creation import arange
from ..layout.im2col import im2col
from ..layout.moves import copy
from ..layout.pad import pad
from ..layout.views import movedim, narrow, reshape, unfold
from ..pooling.pool import PoolPlan, max_pool2d
from ..reduce.vecdot import VecdotPlan, vecdot
from ..sort.median import median
from ..sort.sort import SortPlan
from .integers import in_floats, of_integers
from .resizing import numbers_of
from .sampling import float_like, formula, one_of, reduced, shaped

BORDERS = ("constant", "reflect", "replicate", "circular")


def _image(x: Any, name: str = "x") -> tuple[int, ...]:
    shape = shape_of(x, name)
    if len(shape) != 4:
        raise InvalidProblemError(f"{name} must be [N, C, H, W], got shape {shape}")
    float_like(x, name)
    return shape


def _odd(name: str, value: Any) -> tuple[int, int]:
    found = wholes(name, numbers_of(name, value, 2), 1)
    if any(n % 2 == 0 for n in found):
        raise InvalidProblemError(f"{name} must be odd, so that a place has a middle, got {value}")
    return found[0], found[1]


def _bordered(x: Any, before: tuple[int, int], after: tuple[int, int], border: str, value: float, options: Any) -> Any:
    sides = [before[1], after[1], before[0], after[0]]
    return pad(x, sides, border, value, **options) if any(sides) else x


def _along(x: Any, taps: Any, axis: int, border: str, options: dict[str, Any]) -> Any:
    """Correlation with a vector along axis 2 or 3: views of the windows, of which none is written."""
    (k,) = shape_of(taps, "kernel")
    sides = ((k - 1) // 2, k // 2)
    before, after = ((s, 0) if axis == 2 else (0, s) for s in sides)
    wide = _bordered(x, before, after, border, 0.0, options)
    return vecdot(unfold(wide, axis, k, 1), taps, axis=-1, **options)


@entry(VecdotPlan)
def separable_filter2d(
    x: Array, kernel_y: Array, kernel_x: Array, border: str = "reflect", *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Every plane of x [N, C, H, W] correlated with the columns' kernel, then the rows' (cv2.sepFilter2D).

    kernel_y, kernel_x: vectors in x's element; border: "constant" (zeros), "reflect", "replicate" or "circular". y has
    x's shape; a kernel's middle is at (k - 1) // 2. Windows are views, so that x is read and never spread out.
    Integers of 8 and 16 bits (kernels of float32) and int32 (float64) are rounded once, halves to even, within the
    element.
    """
    options = {"stream": stream, "preference": preference}
    if of_integers(x):
        return in_floats(lambda wide: separable_filter2d(wide, kernel_y, kernel_x, border, **options), x, out, options)
    _image(x)
    border = one_of("border", border, BORDERS)
    for one, name in ((kernel_y, "kernel_y"), (kernel_x, "kernel_x")):
        if len(shape_of(one, name)) != 1 or not shape_of(one, name)[0]:
            raise InvalidProblemError(f"{name} must be a vector, got shape {shape_of(one, name)}")
        if read(one, name).element is not float_like(x):
            raise InvalidProblemError(f"{name} must have x's element, {float_like(x)}, got {read(one, name).element}")
    y = _along(_along(x, kernel_y, 2, border, options), kernel_x, 3, border, options)
    return y if out is None else copy(y, out=out, **options)


@entry(GemmPlan)
def filter2d(
    x: Array, kernel: Array, border: str = "reflect", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Every plane of x [N, C, H, W] correlated with a kernel [kh, kw] of x's element (kornia.filters.filter2d).

    border: "constant" (zeros), "reflect", "replicate" or "circular"; y has x's shape. Windows as columns, and a
    product; a kernel that is a column times a row is cheaper as `separable_filter2d`, which also says what integers do.
    """
    options = {"stream": stream, "preference": preference}
    if of_integers(x):
        return in_floats(lambda wide: filter2d(wide, kernel, border, **options), x, out, options)
    n, c, h, w = _image(x)
    size = shape_of(kernel, "kernel")
    if len(size) != 2 or min(size) < 1 or read(kernel, "kernel").element is not float_like(x):
        raise InvalidProblemError(
            f"kernel must be [kh, kw] of x's element, {float_like(x)}, got shape {size} of "
            f"{read(kernel, 'kernel').element}"
        )
    before, after = (tuple((k - 1) // 2 for k in size), tuple(k // 2 for k in size))
    wide = _bordered(x, before, after, one_of("border", border, BORDERS), 0.0, options)  # type: ignore[arg-type]
    columns = im2col(shaped(wide, (n * c, 1, *shape_of(wide, "x")[2:]), options), size, **options)
    y = reshape(matmul(shaped(kernel, (1, math.prod(size)), options), columns, **options), (n, c, h, w))
    return y if out is None else copy(y, out=out, **options)


def gaussian(x: Any, size: int, sigma: float, options: dict[str, Any]) -> Any:
    """Weights exp(-(i - middle)² / 2σ²) that sum to 1, in x's element."""
    kind = float_like(x)
    with beside(x, options["stream"]):
        at = arange(size, element=kind.acc, like=x)
    curve = formula("exp(-0.5 * square((i - m) / s))")(i=at, m=(size - 1) / 2, s=sigma, **options)
    return formula(f"{kind}(g / t)")(g=curve, t=reduced("sum", curve, 0, options), **options)


@entry(VecdotPlan)
def gaussian_blur(
    x: Array, kernel_size: Any, sigma: Any = None, border: str = "reflect", *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Every plane of x [N, C, H, W] blurred by a Gaussian (torchvision.transforms.functional.gaussian_blur).

    kernel_size: odd, a number or (height, width); sigma likewise, by default 0.15 · kernel_size + 0.35. Correlation
    with `border` as of `separable_filter2d`. Integers are blurred in floats and rounded once, halves to even, as
    torchvision's are.
    """
    options = {"stream": stream, "preference": preference}
    if of_integers(x):
        return in_floats(lambda wide: gaussian_blur(wide, kernel_size, sigma, border, **options), x, out, options)
    _image(x)
    size = _odd("kernel_size", kernel_size)
    given = [0.15 * k + 0.35 for k in size] if sigma is None else numbers_of("sigma", sigma, 2)
    widths = [real("sigma", s) for s in given]
    if not all(0 < s < math.inf for s in widths):
        raise InvalidProblemError(f"sigma must be above 0 and finite, got {sigma}")
    rows, columns = (gaussian(x, k, s, options) for k, s in zip(size, widths, strict=True))
    return separable_filter2d(x, rows, columns, border, out=out, **options)


@entry(UnaryPlan)
def sobel(
    x: Array, normalized: bool = True, eps: float = 1e-6, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """√(gx² + gy² + eps) of Sobel's gradients of every plane of x [N, C, H, W] (kornia.filters.sobel).

    normalized: gradients are divided by 8, the sum of their weights' sizes. The border is replicated. A launch that
    puts it about x, and one that reads nine views.
    """
    options = {"stream": stream, "preference": preference}
    _, _, h, w = _image(x)
    wide = pad(x, [1, 1, 1, 1], "replicate", **options)
    views = {f"v{i}{j}": narrow(narrow(wide, 2, i, h), 3, j, w) for i in range(3) for j in range(3) if (i, j) != (1, 1)}
    gx = "(v02 - v00 + 2 * (v12 - v10) + v22 - v20)"
    gy = "(v20 - v00 + 2 * (v21 - v01) + v22 - v02)"
    edges = formula(f"sqrt(square({gx} * s) + square({gy} * s) + e)")
    return edges(**views, s=0.125 if normalized else 1.0, e=real("eps", eps), out=out, **options)


@entry(SortPlan)
def median_blur(
    x: Array, kernel_size: Any, border: str = "constant", *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The median about every place of x [N, C, H, W] (kornia.filters.median_blur; cv2's has border="replicate").

    kernel_size: odd, a number or (height, width). NaN propagates. Windows as columns, and their median. Integers go
    through floats that hold them, exactly.
    """
    options = {"stream": stream, "preference": preference}
    if of_integers(x):
        return in_floats(lambda wide: median_blur(wide, kernel_size, border, **options), x, out, options)
    n, c, h, w = _image(x)
    size = _odd("kernel_size", kernel_size)
    half = (size[0] // 2, size[1] // 2)
    wide = _bordered(x, half, half, one_of("border", border, BORDERS), 0.0, options)
    columns = im2col(shaped(wide, (n * c, 1, *shape_of(wide, "x")[2:]), options), size, **options)
    y = reshape(median(columns, axis=1, **options)[0], (n, c, h, w))
    return y if out is None else copy(y, out=out, **options)


@entry(PoolPlan)
def dilation(x: Array, kernel_size: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The maximum about every place of x [N, C, H, W] (kornia.morphology.dilation, cv2.dilate of a flat rectangle).

    kernel_size: odd, a number or (height, width). Places outside count for nothing. Integers are compared as they are.
    """
    size = _odd("kernel_size", kernel_size)
    if len(shape_of(x, "x")) != 4 or not of_integers(x):
        _image(x)
    half = tuple(k // 2 for k in size)
    return max_pool2d(x, kernel_size=size, stride=1, padding=half, out=out, stream=stream, preference=preference)


@entry(PoolPlan)
def erosion(x: Array, kernel_size: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The minimum about every place of x [N, C, H, W] (kornia.morphology.erosion, cv2.erode); see `dilation`.

    Integers go through floats that hold them, exactly.
    """
    options = {"stream": stream, "preference": preference}
    if of_integers(x):
        return in_floats(lambda wide: erosion(wide, kernel_size, **options), x, out, options)
    found = dilation(formula("-x")(x=x, **options), kernel_size, **options)
    return formula("-x")(x=found, out=out, **options)


@entry(PoolPlan)
def opening(x: Array, kernel_size: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """`erosion`, then `dilation`: what is smaller than the kernel vanishes (kornia.morphology.opening)."""
    options = {"stream": stream, "preference": preference}
    return dilation(erosion(x, kernel_size, **options), kernel_size, out=out, **options)


@entry(PoolPlan)
def closing(x: Array, kernel_size: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """`dilation`, then `erosion`: gaps smaller than the kernel are filled (kornia.morphology.closing)."""
    options = {"stream": stream, "preference": preference}
    return erosion(dilation(x, kernel_size, **options), kernel_size, out=out, **options)


@entry(VecdotPlan)
def ssim(
    a: Array, b: Array, window_size: int = 11, sigma: float = 1.5, data_range: float = 1.0, k1: float = 0.01,
    k2: float = 0.03, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """How alike two images [N, C, H, W] are about every place, at most 1 (Wang et al. 2004; kornia.metrics.ssim).

    Means, variances and covariance are those of a Gaussian window, with the border reflected; the mean of the result is
    the index. (2 μa μb + c1) (2 σab + c2) / ((μa² + μb² + c1) (σa² + σb² + c2)) with c = (k · data_range)².
    """
    options = {"stream": stream, "preference": preference}
    if _image(a, "a") != _image(b, "b") or read(a, "a").element is not read(b, "b").element:
        raise InvalidProblemError(
            f"a and b must be alike, got {shape_of(a, 'a')} of {read(a, 'a').element} and {shape_of(b, 'b')} of "
            f"{read(b, 'b').element}"
        )
    size = whole("window_size", window_size, 1)
    given: dict[str, Any] = {"kernel_size": size, "sigma": sigma}
    ma, mb = gaussian_blur(a, **given, **options), gaussian_blur(b, **given, **options)
    product = formula("x * y")
    aa, bb, ab = (gaussian_blur(product(x=p, y=q, **options), **given, **options) for p, q in ((a, a), (b, b), (a, b)))
    text = "(2 * m * n + c) * (2 * (z - m * n) + d) / ((m * m + n * n + c) * (x - m * m + y - n * n + d))"
    c, d = ((real(name, k) * real("data_range", data_range)) ** 2 for name, k in (("k1", k1), ("k2", k2)))
    return formula(text)(m=ma, n=mb, z=ab, x=aa, y=bb, c=c, d=d, out=out, **options)


@entry(GemmPlan)
def correlation_volume(
    a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Products of every place of a with every place of b, over √C (Teed & Deng 2020, RAFT): one matrix product.

    a, b: [N, C, H, W] of one batch and C; returns [N, Ha, Wa, Hb, Wb].
    """
    options = {"stream": stream, "preference": preference}
    first, second = _image(a, "a"), _image(b, "b")
    if first[:2] != second[:2] or not first[1]:
        raise InvalidProblemError(f"a and b must have one batch and channels, got shapes {first} and {second}")
    rows = shaped(movedim(a, 1, -1), (first[0], first[2] * first[3], first[1]), options)
    columns = shaped(b, (first[0], first[1], second[2] * second[3]), options)
    y = reshape(matmul(rows, columns, alpha=first[1] ** -0.5, **options), (first[0], *first[2:], *second[2:]))
    return y if out is None else copy(y, out=out, **options)


@entry(VecdotPlan)
def correlation_cost_volume(
    a: Array, b: Array, max_displacement: int, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Products of every place of a with those of b about it, over C (Dosovitskiy et al. 2015, FlowNet's correlation).

    a, b: [N, C, H, W]; returns [N, (2d + 1)², H, W], displacements of d = max_displacement places at most in row-major
    order, 0 where b has no place. b's places are views of it with a border, a sum over C in a fixed order.
    """
    options = {"stream": stream, "preference": preference}
    shape, d = _image(a, "a"), whole("max_displacement", max_displacement, 0)
    if _image(b, "b") != shape or not shape[1]:
        raise InvalidProblemError(f"b must have a's shape, {shape}, with channels, got {shape_of(b, 'b')}")
    wide = _bordered(b, (d, d), (d, d), "constant", 0.0, options)
    about = unfold(unfold(wide, 2, 2 * d + 1, 1), 3, 2 * d + 1, 1)
    own = reshape(a, (*shape, 1, 1))
    sums = vecdot(own, about, axis=1, **options)  # [N, H, W, 2d + 1, 2d + 1]
    side = 2 * d + 1
    made = movedim(reshape(formula("s / c")(s=sums, c=shape[1], **options), (shape[0], *shape[2:], side * side)), -1, 1)
    return made if out is None else copy(made, out=out, **options)
