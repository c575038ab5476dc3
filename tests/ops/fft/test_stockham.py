"""Transforms in shared memory: errors of lengths, bits beside the batch, layouts, 16-bit numbers, what is taken."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import BackendKind, ElementKind, PlanPreference
from baracuda_py.ops.fft.fft import FftPlan
from baracuda_py.ops.fft.irfft import IrfftPlan
from baracuda_py.ops.fft.rfft import RfftPlan
from baracuda_py.schedules.stockham import passes_of, reaches
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.operands import operands
from baracuda_py.testing.places import call
from baracuda_py.testing.recording import pointer_view

OWN = PlanPreference(prefer_backend=BackendKind.BESPOKE)
LENGTHS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    14,
    16,
    21,
    25,
    27,
    32,
    35,
    49,
    60,
    64,
    105,
    128,
    256,
    500,
    512,
    686,
    1024,
    2048,
)


def numbers(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def error(got: Any, want: Any) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@pytest.mark.parametrize("n", LENGTHS)
def test_errors(n: int) -> None:
    """Half of what is promised, against NumPy in float64: eps log2(2 n) of the norm."""
    z = numbers(3, n).astype(np.complex64)
    bound = float(np.finfo(np.float32).eps) * math.log2(2 * n)
    more: dict[str, Any] = {"shape": (3, n), "axis": 1}
    for inverse, theirs in ((False, np.fft.fft), (True, np.fft.ifft)):
        got = call(
            FftPlan, FftPlan.descriptor(**more, inverse=inverse, element="complex64"), {"y"}, "emulator", OWN, x=z
        )
        assert error(got["y"], theirs(z.astype(complex))) <= bound
    x = z.real.astype(float)
    half = call(RfftPlan, RfftPlan.descriptor(**more, element="float32"), {"y"}, "emulator", OWN, x=x)["y"]
    assert error(half, np.fft.rfft(x)) <= bound
    back = call(IrfftPlan, IrfftPlan.descriptor(**more, element="float32"), {"y"}, "emulator", OWN, x=half)["y"]
    assert error(back, np.fft.irfft(half.astype(complex), n)) <= bound
    assert error(back, x) <= 2 * bound


@pytest.mark.parametrize("n", [4096, 8192, 16384])
def test_long(n: int) -> None:
    z = numbers(1, n).astype(np.complex64)
    desc = FftPlan.descriptor(shape=(1, n), axis=1, norm="ortho", element="complex64")
    got = call(FftPlan, desc, {"y"}, "emulator", OWN, x=z)["y"]
    assert error(got, np.fft.fft(z.astype(complex), norm="ortho")) <= float(np.finfo(np.float32).eps) * math.log2(n)
    np.testing.assert_allclose(np.linalg.norm(got), np.linalg.norm(z), rtol=1e-6)  # Parseval


@pytest.mark.parametrize("n", [3, 16, 60, 256])
def test_a_transform_alone_has_the_same_bits(n: int) -> None:
    """Beside others, first or last of a block, along either axis, in place."""
    z = numbers(9, n).astype(np.complex64)
    many = FftPlan.descriptor(shape=(9, n), axis=1, element="complex64")
    want = call(FftPlan, many, {"y"}, "emulator", OWN, x=z)["y"]
    alone = FftPlan.descriptor(shape=(1, n), axis=1, element="complex64")
    for row in (0, 4, 8):
        got = call(FftPlan, alone, {"y"}, "emulator", OWN, x=z[row : row + 1])["y"]
        np.testing.assert_array_equal(got[0], want[row])
    down = FftPlan.descriptor(shape=(n, 9), axis=0, element="complex64")
    got = call(FftPlan, down, {"y"}, "emulator", OWN, x=np.ascontiguousarray(z.T))["y"]
    np.testing.assert_array_equal(got.T, want)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 15, 64, 250])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bits(n: int, dtype: Any) -> None:
    """Read and written as they are, computed in float32: the bits of float32's where that is given the same numbers."""
    x = numbers(5, n).real.astype(dtype)
    name = str(np.dtype(dtype))
    more: dict[str, Any] = {"shape": (5, n), "axis": 1}
    wide = call(
        RfftPlan, RfftPlan.descriptor(**more, element="float32"), {"y"}, "emulator", OWN, x=x.astype(np.float32)
    )
    got = call(RfftPlan, RfftPlan.descriptor(**more, element=name), {"y"}, "emulator", OWN, x=x)
    assert got["y"].dtype == np.complex64
    np.testing.assert_array_equal(got["y"], wide["y"])
    wide = call(IrfftPlan, IrfftPlan.descriptor(**more, element="float32"), {"y"}, "emulator", OWN, x=wide["y"])
    back = call(IrfftPlan, IrfftPlan.descriptor(**more, element=name), {"y"}, "emulator", OWN, x=got["y"])
    assert back["y"].dtype == dtype
    np.testing.assert_array_equal(back["y"], wide["y"].astype(dtype))


def test_functions_of_16_bits() -> None:
    """rfft and ihfft of any length and any number of axes give complex64; irfft and hfft write to a 16-bit out."""
    x = numbers(4, 6, 22).real.astype(np.float16)
    for axis in ((2,), (1,), (0, 1), (1, 2), (0, 1, 2)):
        got = bc.rfftn(x, axis=axis)
        assert got.dtype == np.complex64
        np.testing.assert_allclose(got, np.fft.rfftn(x.astype(float), axes=axis), rtol=1e-5, atol=1e-4)
        if axis[-1] == 2:
            continue
        out = np.empty_like(x)
        assert bc.irfftn(got, [x.shape[a] for a in axis], axis, out=out) is out
        np.testing.assert_array_equal(out, x)
    assert bc.ihfft(x).dtype == np.complex64


@pytest.mark.parametrize("exponent", [-100, -60, 0, 60, 100])
def test_exponents(exponent: int) -> None:
    """A power of two that all numbers have in common changes no bit."""
    z = numbers(2, 120).astype(np.complex64)
    scale = np.float32(2.0**exponent)
    desc = FftPlan.descriptor(shape=(2, 120), axis=1, element="complex64")
    want = call(FftPlan, desc, {"y"}, "emulator", OWN, x=z)["y"]
    got = call(FftPlan, desc, {"y"}, "emulator", OWN, x=z * scale)["y"]
    np.testing.assert_array_equal(got, want * scale)


def test_the_largest_number_alone() -> None:
    """One number has its own size everywhere: nothing overflows by the way, of real numbers neither."""
    x = np.zeros((1, 48))
    x[0, 5] = 3e38
    desc = RfftPlan.descriptor(shape=(1, 48), axis=1, element="float32")
    y = call(RfftPlan, desc, {"y"}, "emulator", OWN, x=x)["y"]
    np.testing.assert_allclose(np.abs(y / np.float32(3e38)), 1, rtol=1e-6)


def test_lengths() -> None:
    """Which lengths have a row of ours: powers of two to 16384, or 8192 of float64, and twice as many real numbers."""
    c64, c128, f32 = ElementKind.C64, ElementKind.C128, ElementKind.F32
    assert reaches(1 << 14, c64, False) and not reaches(1 << 15, c64, False)
    assert reaches(1 << 13, c128, False) and not reaches(1 << 14, c128, False)
    assert reaches(1 << 15, f32, True) and not reaches(1 << 16, f32, True)
    for n in (729, 1000, 1536, 1920, 2000, 2401, 2500):
        assert reaches(n, c64, False) == (n not in (1920, 2500)), n
    assert not any(reaches(n, c64, False) for n in (11, 13, 17, 22))
    for n in range(1, 5000):
        for double in (False, True):
            made = passes_of(n, double)
            assert made is None or math.prod(made.radices) == n


@pytest.mark.parametrize("device", [8.0, 8.6, 9.0, 12.0])
def test_rows(device: float) -> None:
    """Ours where a block holds the length, cuFFT's elsewhere; nothing in the workspace but the other axes of irfft."""
    for plan, shape, axis, ours in (
        (FftPlan, (5, 4096), (1,), True), (FftPlan, (5, 16384), (1,), device in (8.0, 9.0)),
        (FftPlan, (5, 11), (1,), False),
        (FftPlan, (7, 8, 9), (0, 1, 2), True), (RfftPlan, (4, 8), (0, 1), True), (IrfftPlan, (4, 8), (0, 1), True),
    ):  # fmt: skip
        desc = plan.descriptor(shape=shape, axis=axis, element="complex64" if plan is FftPlan else "float32")
        chosen = plan(desc, PlanPreference(), emulated_device(device))
        ready = operands(fill(plan, desc, np.random.default_rng(0)))
        args = ready.args(pointer_view)
        sku = str(chosen.sku_for(args)) if hasattr(chosen, "sku_for") else str(chosen.can_implement(args).sku)
        assert ("stockham" in sku) == ours, (shape, sku)
        if ours:
            assert chosen.workspace_size(args) == (256 if plan is IrfftPlan else 0)
