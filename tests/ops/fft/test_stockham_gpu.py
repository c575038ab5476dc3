"""Transforms in shared memory on a device: every length's kernel, strides, 16-bit numbers, bits, beside float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import BackendKind, ElementKind, PlanPreference
from baracuda_py.schedules.stockham import reaches

pytestmark = pytest.mark.gpu
OWN = PlanPreference(prefer_backend=BackendKind.BESPOKE)
POWERS = tuple(1 << bits for bits in range(15))
OTHERS = (3, 5, 6, 7, 12, 15, 21, 60, 96, 100, 105, 210, 243, 343, 500, 625, 729, 1000, 1536, 2000, 2401)
DOUBLE = (1, 3, 8, 16, 60, 128, 1000, 1024, 2048, 4096, 8192)


def numbers(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def close(got: Any, want: Any, axis: int, n: int, double: bool) -> None:
    """Half of what is promised, of each transform."""
    eps = float(np.finfo(np.float64 if double else np.float32).eps)
    off, size = (np.sqrt(np.square(np.abs(z)).sum(axis)) for z in (got - want, want))
    assert (off <= eps * math.log2(2 * n) * size + (1e-300 if double else 1e-30)).all(), (off / size).max() / eps


@pytest.mark.parametrize(("n", "double"), [(n, False) for n in POWERS + OTHERS] + [(n, True) for n in DOUBLE])
def test_lengths(n: int, double: bool) -> None:
    """Rows and columns, both ways, of complex and of real numbers, to and fro."""
    import cupy

    many = max(3, min(1000, (1 << 18) // n)) | 1
    for axis in (1, 0):
        z = numbers(*((many, n) if axis else (n, many))).astype(np.complex128 if double else np.complex64)
        x, wide = cupy.asarray(z), z.astype(complex)
        preference = OWN if reaches(n, ElementKind.C128 if double else ElementKind.C64, False) else None
        close(bc.fft(x, axis=axis, preference=preference).get(), np.fft.fft(wide, axis=axis), axis, n, double)
        close(bc.ifft(x, axis=axis, preference=preference).get(), np.fft.ifft(wide, axis=axis), axis, n, double)
        real, wide = cupy.asarray(z.real.copy()), z.real.astype(float)
        half = bc.rfft(real, axis=axis, preference=preference)
        close(half.get(), np.fft.rfft(wide, axis=axis), axis, n, double)
        back = bc.irfft(half, n, axis, preference=preference)
        close(back.get(), wide, axis, 2 * n, double)


@pytest.mark.parametrize("n", [256, 1000, 4096])
def test_layouts_and_bits(n: int) -> None:
    """Views of any strides, in place, and one transform alone: the same bits."""
    import cupy

    z = cupy.asarray(numbers(6, 4, n).astype(np.complex64))
    want = bc.fft(z, preference=OWN)
    spread = cupy.zeros((4, 6, 2 * n), np.complex64)
    view = spread[:, ::-1, ::2].transpose(1, 0, 2)
    view[...] = z
    assert (bc.fft(view, preference=OWN) == want).all()
    assert (bc.fft(z.transpose(2, 0, 1), axis=0, preference=OWN) == want.transpose(2, 0, 1)).all()
    assert (bc.fft(z[5, 3], preference=OWN) == want[5, 3]).all()
    bc.fft(z, out=z, preference=OWN)
    assert (z == want).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("n", [64, 1000, 2048, 15])
def test_16_bits(name: str, n: int) -> None:
    import cupy

    x = bc.cast(cupy.asarray(numbers(65, n).real), name)
    wide = bc.cast(x, "float32")
    got = bc.rfft(x)
    assert (got == bc.rfft(wide)).all()
    out = bc.empty((65, n), name, like=x)
    bc.irfft(got, n, out=out)
    assert (bc.cast(out, "float32") == bc.cast(bc.cast(bc.irfft(got, n), name), "float32")).all()


def test_two_axes() -> None:
    import cupy

    z = numbers(3, 128, 96).astype(np.complex64)
    close(bc.fft2(cupy.asarray(z)).get(), np.fft.fft2(z.astype(complex)), -1, 128 * 96, False)
    x = z.real.astype(np.float32)
    half = bc.rfft2(cupy.asarray(x))
    close(half.get(), np.fft.rfft2(x.astype(float)), -1, 128 * 96, False)
    close(bc.irfft2(half, (128, 96)).get(), x, -1, 128 * 96, False)
