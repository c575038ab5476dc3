"""The Fourier transforms of torch.fft and numpy.fft: over one axis, two, or any number of them."""

from __future__ import annotations

from typing import Any

from ...core import Array, registry
from ...calls.entries import entry
from .fft import FftPlan
from .irfft import IrfftPlan
from .passes import SWAPPED, norm_of, one, several, to_complex, to_half, to_real
from .rfft import RfftPlan


@entry(FftPlan, inverse=False)
def fft(
    x: Array, n: Any = None, axis: Any = -1, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The discrete Fourier transform along an axis, Σ x[j] exp(-2πi j k / n) (torch.fft.fft).

    x: any shape, complex64 or complex128; of float32 and float64 the imaginary parts are 0. n: the length, to which x
    is cut or filled with zeros. norm: None or "backward", not divided; "ortho", by √N, N the product of the lengths;
    "forward", by N.
    """
    return to_complex("fft", x, one(x, n, axis), norm, False, out, stream, preference)


@entry(FftPlan, inverse=True)
def ifft(
    x: Array, n: Any = None, axis: Any = -1, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The inverse Fourier transform along an axis, 1/N Σ x[k] exp(2πi j k / n) (torch.fft.ifft).

    x: any shape, complex64 or complex128; of float32 and float64 the imaginary parts are 0. n: the length, to which x
    is cut or filled with zeros. norm: None or "backward", divided by N, the product of the lengths; "ortho", by √N;
    "forward", not.
    """
    return to_complex("ifft", x, one(x, n, axis), norm, True, out, stream, preference)


@entry(RfftPlan)
def rfft(
    x: Array, n: Any = None, axis: Any = -1, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Half the Fourier transform of real numbers along an axis (torch.fft.rfft).

    x: any shape, a float. The result is complex, complex64 but of float64, with n // 2 + 1 elements along the axis.
    n: the length, to which x is cut or filled with zeros. norm: None or "backward", not divided; "ortho", by √N, N
    the product of the lengths; "forward", by N.
    """
    return to_half("rfft", x, one(x, n, axis), norm_of(norm), out, stream, preference)


@entry(IrfftPlan)
def irfft(
    x: Array, n: Any = None, axis: Any = -1, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The real inverse of half a Fourier transform along an axis (torch.fft.irfft).

    x: any shape, complex, n // 2 + 1 elements along the axis, as rfft gives them. The result is real; an out of
    float16 or bfloat16 gets it rounded from float32. n: the length of the result, by default 2 (m - 1) where x has m.
    norm: None or "backward", divided by N, the product of the lengths; "ortho", by √N; "forward", not.
    """
    return to_real("irfft", x, one(x, n, axis), norm_of(norm), False, out, stream, preference)


@entry(IrfftPlan)
def hfft(
    x: Array, n: Any = None, axis: Any = -1, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The real Fourier transform of half a Hermitian signal along an axis (torch.fft.hfft).

    x: any shape, complex, n // 2 + 1 elements along the axis, as ihfft gives them. The result is real; an out of
    float16 or bfloat16 gets it rounded from float32. n: the length of the result, by default 2 (m - 1) where x has m.
    norm: None or "backward", not divided; "ortho", by √N, N the product of the lengths; "forward", by N.
    """
    return to_real("hfft", x, one(x, n, axis), SWAPPED[norm_of(norm)], True, out, stream, preference)


@entry(RfftPlan)
def ihfft(
    x: Array, n: Any = None, axis: Any = -1, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The inverse of `hfft` along an axis: half a Hermitian signal (torch.fft.ihfft).

    x: any shape, a float. The result is complex, complex64 but of float64, with n // 2 + 1 elements along the axis.
    n: the length, to which x is cut or filled with zeros. norm: None or "backward", divided by N, the product of the
    lengths; "ortho", by √N; "forward", not.
    """
    made = to_half("ihfft", x, one(x, n, axis), SWAPPED[norm_of(norm)], None, stream, preference)
    return registry.public("conj")(made, out=out, stream=stream, preference=preference)


@entry(FftPlan, inverse=False)
def fft2(
    x: Array, s: Any = None, axis: Any = (-2, -1), norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The discrete Fourier transform over two axes, Σ x[j] exp(-2πi j k / n) (torch.fft.fft2).

    x: any shape, complex64 or complex128; of float32 and float64 the imaginary parts are 0. s: the lengths, to which
    x is cut or filled with zeros, -1 for its own. norm: None or "backward", not divided; "ortho", by √N, N the
    product of the lengths; "forward", by N.
    """
    return to_complex("fft2", x, several(x, s, axis), norm, False, out, stream, preference)


@entry(FftPlan, inverse=True)
def ifft2(
    x: Array, s: Any = None, axis: Any = (-2, -1), norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The inverse Fourier transform over two axes, 1/N Σ x[k] exp(2πi j k / n) (torch.fft.ifft2).

    x: any shape, complex64 or complex128; of float32 and float64 the imaginary parts are 0. s: the lengths, to which
    x is cut or filled with zeros, -1 for its own. norm: None or "backward", divided by N, the product of the lengths;
    "ortho", by √N; "forward", not.
    """
    return to_complex("ifft2", x, several(x, s, axis), norm, True, out, stream, preference)


@entry(RfftPlan)
def rfft2(
    x: Array, s: Any = None, axis: Any = (-2, -1), norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Half the Fourier transform of real numbers over two axes (torch.fft.rfft2).

    x: any shape, a float. The result is complex, complex64 but of float64, with n // 2 + 1 elements along the last
    axis named. s: the lengths, to which x is cut or filled with zeros, -1 for its own. norm: None or "backward", not
    divided; "ortho", by √N, N the product of the lengths; "forward", by N.
    """
    return to_half("rfft2", x, several(x, s, axis), norm_of(norm), out, stream, preference)


@entry(IrfftPlan)
def irfft2(
    x: Array, s: Any = None, axis: Any = (-2, -1), norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The real inverse of half a Fourier transform over two axes (torch.fft.irfft2).

    x: any shape, complex, n // 2 + 1 elements along the last axis named, as rfft2 gives them. The result is real; an
    out of float16 or bfloat16 gets it rounded from float32. s: the lengths of the result, -1 for x's own; the last is
    by default 2 (m - 1) where x has m. norm: None or "backward", divided by N, the product of the lengths; "ortho",
    by √N; "forward", not.
    """
    return to_real("irfft2", x, several(x, s, axis), norm_of(norm), False, out, stream, preference)


@entry(IrfftPlan)
def hfft2(
    x: Array, s: Any = None, axis: Any = (-2, -1), norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The real Fourier transform of half a Hermitian signal over two axes (torch.fft.hfft2).

    x: any shape, complex, n // 2 + 1 elements along the last axis named, as ihfft2 gives them. The result is real; an
    out of float16 or bfloat16 gets it rounded from float32. s: the lengths of the result, -1 for x's own; the last is
    by default 2 (m - 1) where x has m. norm: None or "backward", not divided; "ortho", by √N, N the product of the
    lengths; "forward", by N.
    """
    return to_real("hfft2", x, several(x, s, axis), SWAPPED[norm_of(norm)], True, out, stream, preference)


@entry(RfftPlan)
def ihfft2(
    x: Array, s: Any = None, axis: Any = (-2, -1), norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The inverse of `hfft2` over two axes: half a Hermitian signal (torch.fft.ihfft2).

    x: any shape, a float. The result is complex, complex64 but of float64, with n // 2 + 1 elements along the last
    axis named. s: the lengths, to which x is cut or filled with zeros, -1 for its own. norm: None or "backward",
    divided by N, the product of the lengths; "ortho", by √N; "forward", not.
    """
    made = to_half("ihfft2", x, several(x, s, axis), SWAPPED[norm_of(norm)], None, stream, preference)
    return registry.public("conj")(made, out=out, stream=stream, preference=preference)


@entry(FftPlan, inverse=False)
def fftn(
    x: Array, s: Any = None, axis: Any = None, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The discrete Fourier transform over axes, Σ x[j] exp(-2πi j k / n) (torch.fft.fftn).

    x: any shape, complex64 or complex128; of float32 and float64 the imaginary parts are 0. s: the lengths, to which
    x is cut or filled with zeros, -1 for its own. axis: by default all, or the last ones where s is given. norm: None
    or "backward", not divided; "ortho", by √N, N the product of the lengths; "forward", by N.
    """
    return to_complex("fftn", x, several(x, s, axis), norm, False, out, stream, preference)


@entry(FftPlan, inverse=True)
def ifftn(
    x: Array, s: Any = None, axis: Any = None, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The inverse Fourier transform over axes, 1/N Σ x[k] exp(2πi j k / n) (torch.fft.ifftn).

    x: any shape, complex64 or complex128; of float32 and float64 the imaginary parts are 0. s: the lengths, to which
    x is cut or filled with zeros, -1 for its own. axis: by default all, or the last ones where s is given. norm: None
    or "backward", divided by N, the product of the lengths; "ortho", by √N; "forward", not.
    """
    return to_complex("ifftn", x, several(x, s, axis), norm, True, out, stream, preference)


@entry(RfftPlan)
def rfftn(
    x: Array, s: Any = None, axis: Any = None, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Half the Fourier transform of real numbers over axes (torch.fft.rfftn).

    x: any shape, a float. The result is complex, complex64 but of float64, with n // 2 + 1 elements along the last
    axis named. s: the lengths, to which x is cut or filled with zeros, -1 for its own. axis: by default all, or the
    last ones where s is given. norm: None or "backward", not divided; "ortho", by √N, N the product of the lengths;
    "forward", by N.
    """
    return to_half("rfftn", x, several(x, s, axis), norm_of(norm), out, stream, preference)


@entry(IrfftPlan)
def irfftn(
    x: Array, s: Any = None, axis: Any = None, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The real inverse of half a Fourier transform over axes (torch.fft.irfftn).

    x: any shape, complex, n // 2 + 1 elements along the last axis named, as rfftn gives them. The result is real; an
    out of float16 or bfloat16 gets it rounded from float32. s: the lengths of the result, -1 for x's own; the last is
    by default 2 (m - 1) where x has m. axis: by default all, or the last ones where s is given. norm: None or
    "backward", divided by N, the product of the lengths; "ortho", by √N; "forward", not.
    """
    return to_real("irfftn", x, several(x, s, axis), norm_of(norm), False, out, stream, preference)


@entry(IrfftPlan)
def hfftn(
    x: Array, s: Any = None, axis: Any = None, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The real Fourier transform of half a Hermitian signal over axes (torch.fft.hfftn).

    x: any shape, complex, n // 2 + 1 elements along the last axis named, as ihfftn gives them. The result is real; an
    out of float16 or bfloat16 gets it rounded from float32. s: the lengths of the result, -1 for x's own; the last is
    by default 2 (m - 1) where x has m. axis: by default all, or the last ones where s is given. norm: None or
    "backward", not divided; "ortho", by √N, N the product of the lengths; "forward", by N.
    """
    return to_real("hfftn", x, several(x, s, axis), SWAPPED[norm_of(norm)], True, out, stream, preference)


@entry(RfftPlan)
def ihfftn(
    x: Array, s: Any = None, axis: Any = None, norm: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The inverse of `hfftn` over axes: half a Hermitian signal (torch.fft.ihfftn).

    x: any shape, a float. The result is complex, complex64 but of float64, with n // 2 + 1 elements along the last
    axis named. s: the lengths, to which x is cut or filled with zeros, -1 for its own. axis: by default all, or the
    last ones where s is given. norm: None or "backward", divided by N, the product of the lengths; "ortho", by √N;
    "forward", not.
    """
    made = to_half("ihfftn", x, several(x, s, axis), SWAPPED[norm_of(norm)], None, stream, preference)
    return registry.public("conj")(made, out=out, stream=stream, preference=preference)
