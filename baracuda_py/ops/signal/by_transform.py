"""fftconvolve and the analytic signal: what one Fourier transform, a product and its inverse do."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.arrays import read
from ...core.checked import whole
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.tensor import Shape, broadcast_shape
from ...core.views import shape_of
from ...calls.entries import entry
from ..elementwise.binary_functions import mul
from ..fft.fft import FftPlan
from ..fft.functions import fftn, ifft, ifftn, irfftn, rfft, rfftn
from ..fft.rfft import RfftPlan
from ..layout.axes import place, places
from ..layout.moves import copy
from ..layout.pad import pad
from ..layout.views import part
from .frames import last, one_of, real_kind, returned, scaled, sized, table, to_last


def fast_length(n: int) -> int:
    """The least length from n on whose prime factors are 2, 3, 5 and 7, for which transforms are fastest."""
    best = 1 << max(n - 1, 0).bit_length()
    for sevens in (1, 7, 49):
        for fives in (1, 5, 25, 125):
            for threes in (1, 3, 9, 27, 81):
                odd = sevens * fives * threes
                best = min(best, odd << max(-(-n // odd) - 1, 0).bit_length())
    return best


def _kept(n: Shape, m: Shape, mode: str) -> list[tuple[int, int]]:
    """Where what a mode keeps of the full convolution begins along each axis, and how much it is."""
    each = list(zip(n, m, strict=True))
    if mode == "full":
        return [(0, i + j - 1) for i, j in each]
    if mode == "same":
        return [((j - 1) // 2, i) for i, j in each]
    if any(i < j for i, j in each) and any(i > j for i, j in each):
        raise InvalidProblemError(f'mode "valid" needs one of a {n} and v {m} to contain the other')
    return [(min(i, j) - 1, abs(i - j) + 1) for i, j in each]


@entry(RfftPlan)
def fftconvolve(
    a: Array, v: Array, mode: str = "full", axis: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y[i] = Σ_j a[i - j] v[j] along axes, by Fourier transforms (scipy.signal.fftconvolve, oaconvolve).

    a, v: as many axes and one element, float32, float64 or complex; along `axis`, all by default, they are convolved,
    along the others broadcast. mode: "full", n + m - 1 outputs; "same", as many as a has, in the middle; "valid", those
    of whole overlap, for which one contains the other. n log n operations where `convolve` takes n m; errors are small
    beside the largest y, not beside each. Transforms of the next length of factors 2, 3, 5, 7. Gradients of a and v.
    """
    options = {"stream": stream, "preference": preference}
    real_kind(a, "fftconvolve", complex_too=True)
    kind, found = read(a, "a").element, read(v, "v").element
    if kind is not found:
        raise InvalidProblemError(f"v must hold {kind} as a does, got {found}; cast it first")
    shapes = shape_of(a, "a"), shape_of(v, "v")
    rank = len(shapes[0])
    if not rank or len(shapes[1]) != rank:
        raise InvalidProblemError(
            f"a and v must have as many axes, one at least, got shapes {shapes[0]} and {shapes[1]}"
        )
    axes = places(tuple(range(rank)) if axis is None else axis, rank)
    n, m = ([shape[i] for i in axes] for shape in shapes)
    if 0 in n or 0 in m or not axes:
        raise InvalidProblemError(f"a and v must have elements along the axes {axes}, got {shapes[0]} and {shapes[1]}")
    rest = {
        name: tuple(1 if i in axes else k for i, k in enumerate(one)) for name, one in zip("av", shapes, strict=True)
    }
    broadcast_shape(rest, ("a", "v"))
    kept = _kept(tuple(n), tuple(m), one_of("mode", mode, "full", "same", "valid"))
    (out,) = each_of(out, 1)
    sizes = [fast_length(i + j - 1) for i, j in zip(n, m, strict=True)]
    there, here = (fftn, ifftn) if kind.is_complex else (rfftn, irfftn)
    product = mul(there(a, sizes, axes, **options), there(v, sizes, axes, **options), **options)
    made = here(product, sizes, axes, **options)
    for i, (first, count) in zip(axes, kept, strict=True):
        made = part(made, i, first, first + count)
    return made if out is None else copy(made, out=out, **options)


oaconvolve = fftconvolve


@entry(FftPlan, inverse=True)
def analytic_signal(
    x: Array, n: int | None = None, axis: int = -1, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x + i H(x), H being the Hilbert transform: no frequencies below 0 (scipy.signal.hilbert).

    x: any shape, float32 or float64; the result is complex, its magnitude the envelope, its angle the phase. n: the
    length, to which x is cut or filled with zeros. `hilbert` is a matrix here. Gradient of x.
    """
    options = {"stream": stream, "preference": preference}
    real_kind(x, "analytic_signal")
    at = place(axis, len(shape_of(x, "x")))
    if n is not None:
        x = sized(x, at, whole("n", n, 1), options)
    count = shape_of(x, "x")[at]
    if not count:
        raise InvalidProblemError(f"x must have elements along axis {at}, got shape {shape_of(x, 'x')}")
    (out,) = each_of(out, 1)
    rows, _ = last(x, at)
    half = count // 2 + 1
    ends = "i == 0 or i == n" if count % 2 == 0 else "i == 0"
    weights = table(x, half, f"w = (1 + 0 * (i + n) if {ends} else 2)", options, n=float(half - 1))
    spectrum = scaled(rfft(rows, **options), weights, options)
    widths = [(0, 0)] * (len(shape_of(x, "x")) - 1)
    wide = pad(spectrum, [*widths, (0, count - half)], **options)
    return returned(ifft(wide, out=to_last(out, at, x), **options), at, out)
