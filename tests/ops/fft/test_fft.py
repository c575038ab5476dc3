"""Fourier transforms: known values, identities, NumPy's and torch's results, layouts, lengths, gradients, errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import BackendKind, ElementKind, PlanPreference
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.fft.fft import FftPlan
from baracuda_py.ops.fft.fft_backward import FftBackwardPlan
from baracuda_py.ops.fft.irfft import IrfftPlan
from baracuda_py.ops.fft.irfft_backward import IrfftBackwardPlan
from baracuda_py.ops.fft.rfft import RfftPlan
from baracuda_py.ops.fft.rfft_backward import RfftBackwardPlan
from baracuda_py.ops.fft.transforms import NORMS
from baracuda_py.schedules.stockham import reaches
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import operands
from baracuda_py.testing.places import call

PLANS = (FftPlan, RfftPlan, IrfftPlan, FftBackwardPlan, RfftBackwardPlan, IrfftBackwardPlan)
LENGTHS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 64, 97, 128, 210)
ROWS = (BackendKind.BESPOKE, BackendKind.CUFFT)
COMPLEX, REAL = ("fft", "ifft", "irfft", "hfft"), ("rfft", "ihfft")


def element_of(plan: Any, double: bool = False) -> str:
    whole = plan in (FftPlan, FftBackwardPlan)
    return ("complex128" if double else "complex64") if whole else ("float64" if double else "float32")


def some(*shape: int, real: bool = False, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return x if real else x + 1j * rng.standard_normal(shape)


def matrix(n: int, sign: int = -1) -> np.ndarray:
    """exp(sign 2πi j k / n), by the definition; j k is taken modulo n first, which keeps the angle exact."""
    return np.exp(sign * 2j * np.pi / n * (np.outer(np.arange(n), np.arange(n)) % n))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.value)
@pytest.mark.parametrize("n", LENGTHS)
def test_definition(n: int, row: BackendKind, place: str) -> None:
    """Sums written out, of complex and of real numbers and back, of each norm, by our rows and by cuFFT's."""
    if not reaches(n, ElementKind.C128, False) if row is ROWS[0] else place != "emulator":
        pytest.skip("the other row")
    chosen = PlanPreference(prefer_backend=row) if place == "emulator" else None
    z, x = some(3, n), some(3, n, real=True)
    for norm, forth, back in (("backward", 1, 1 / n), ("ortho", n**-0.5, n**-0.5), ("forward", 1 / n, 1)):
        more: dict[str, Any] = {"shape": (3, n), "axis": 1, "norm": norm}
        for inverse, sign, factor in ((False, -1, forth), (True, 1, back)):
            desc = FftPlan.descriptor(**more, inverse=inverse, element="complex128")
            got = call(FftPlan, desc, {"y"}, place, chosen, x=z)["y"]
            np.testing.assert_allclose(got, factor * z @ matrix(n, sign), rtol=1e-11, atol=1e-11 * n)
        desc = RfftPlan.descriptor(**more, element="float64")
        half = call(RfftPlan, desc, {"y"}, place, chosen, x=x)["y"]
        np.testing.assert_allclose(half, (forth * x @ matrix(n))[:, : n // 2 + 1], rtol=1e-11, atol=1e-11 * n)
        desc = IrfftPlan.descriptor(**more, element="float64")
        np.testing.assert_allclose(call(IrfftPlan, desc, {"y"}, place, chosen, x=half)["y"], x, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("n", [1, 2, 5, 6])
@pytest.mark.parametrize("axis", [(1,), (0, 1), (1, 0)])
def test_what_is_not_hermitian(n: int, axis: tuple[int, ...], place: str) -> None:
    """Of what must be its own mirror image that part counts, as in NumPy; x is as it was."""
    z = some(*((4, n // 2 + 1) if axis[-1] == 1 else (n // 2 + 1, 4)))
    shape = (4, n) if axis[-1] == 1 else (n, 4)
    kept = z.copy()
    got = call(IrfftPlan, IrfftPlan.descriptor(shape=shape, axis=axis, element="float64"), {"y"}, place, x=z)["y"]
    np.testing.assert_allclose(got, np.fft.irfftn(z, [shape[a] for a in axis], axis), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(z, kept)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.value)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.__name__)
@pytest.mark.parametrize("axis", [(0,), (2,), (0, 1), (2, 0), (1, 2), (2, 1), (0, 1, 2), (1, 2, 0)], ids=str)
def test_layouts(plan: Any, axis: tuple[int, ...], row: BackendKind) -> None:
    """Operands permuted, padded, backwards, spread: within the bound, nothing touched beyond, inputs as they were."""
    placed = [
        Placement(), Placement("permuted", order=(2, 0, 1)), Placement("permuted", order=(0, 1, 2), pads=(0, 1, 3)),
        Placement("permuted", order=(1, 2, 0), pads=(1, 0, 0)), Placement("reversed"),
    ]  # fmt: skip
    for number, (shape, pair) in enumerate(
        itertools.product(((3, 4, 5), (2, 1, 6)), itertools.product(placed, repeat=2))
    ):
        desc = plan.descriptor(
            shape=shape, axis=axis, norm=NORMS[number % 3], element=element_of(plan, number % 2 == 1)
        )
        ready = operands(fill(plan, desc, np.random.default_rng(number)))
        for name, layout in zip(list(ready.laid), pair, strict=True):
            held, source = ready.laid[name], ready.case.arrays.get(name)
            array = np.empty(held.view.shape, held.view.dtype) if source is None else source
            ready.laid[name] = lay_out(array, layout, 0xFF if source is None else None)
        emulate(plan(desc, PlanPreference(prefer_backend=row), emulated_device(9.0)), ready)


def test_nothing_to_transform(place: str) -> None:
    for plan in (FftPlan, RfftPlan, IrfftPlan):
        desc = plan.descriptor(shape=(0, 4), axis=1, element=element_of(plan))
        shape = desc.half_shape if plan is IrfftPlan else (0, 4)
        assert call(plan, desc, {"y"}, place, x=np.zeros(shape))["y"].size == 0


def test_one_bad_number_stays_in_its_transform(place: str) -> None:
    z = some(3, 8)
    z[1, 2] = np.nan
    for plan, x in ((FftPlan, z), (RfftPlan, z.real), (IrfftPlan, z[:, :5])):
        desc = plan.descriptor(shape=(3, 8), axis=1, element=element_of(plan, True))
        y = call(plan, desc, {"y"}, place, x=x)["y"]
        assert np.isfinite(y[::2]).all() and np.isnan(y[1]).any()


@pytest.mark.parametrize("way", ["", "2", "n"])
@pytest.mark.parametrize("name", COMPLEX + REAL)
def test_functions(name: str, way: str) -> None:
    """As torch.fft's, of every norm, axes in any order, lengths that cut or pad, out=."""
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(bc, name + way), getattr(torch.fft, name + way)
    x = some(2, 3, 4, 3, 5, real=name in REAL)
    sizes = {
        "": ((None, -1), (None, 2), (4, 0), (9, -1), (1, 1)),
        "2": ((None, (-2, -1)), (None, (3, 0)), ((2, 7), (1, 4)), ((-1, 4), (-2, -1))),
        "n": ((None, None), ((3, 2), None), (None, (1, 0, 3)), ((5, -1, 2, 8), (0, 1, 2, 3)), (None, (4, 2, 0, 1))),
    }[way]
    for (size, axis), norm in itertools.product(sizes, (None, *NORMS)):
        want = theirs(torch.from_numpy(x), size, axis, norm).resolve_conj().numpy()
        got = ours(x, size, axis, norm)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        out = np.empty_like(want)
        assert ours(x, size, axis, norm, out=out) is out
        np.testing.assert_array_equal(out, got)


def test_real_numbers_are_complex_ones() -> None:
    x = some(3, 5, real=True)
    for name in COMPLEX:
        np.testing.assert_allclose(getattr(bc, name)(x), getattr(bc, name)(x + 0j), rtol=1e-12, atol=1e-14)
    assert bc.fft(x.astype(np.float32)).dtype == np.complex64


@pytest.mark.parametrize("n", [1, 2, 7, 12, 31])
def test_identities(n: int) -> None:
    z, x = some(4, n), some(4, n, real=True)
    energy = np.square(np.abs(z)).sum()
    np.testing.assert_allclose(np.square(np.abs(bc.fft(z, norm="ortho"))).sum(), energy)  # Parseval
    np.testing.assert_allclose(np.square(np.abs(bc.fft(z))).sum() / n, energy)
    np.testing.assert_allclose(bc.ifft(bc.fft(z)), z, atol=1e-13)
    np.testing.assert_allclose(bc.irfft(bc.rfft(x), n), x, atol=1e-13)
    np.testing.assert_allclose(bc.hfft(bc.ihfft(x), n), x, atol=1e-13)
    shifted = bc.fft(np.roll(z, 3, -1))  # the shift theorem
    np.testing.assert_allclose(shifted, bc.fft(z) * np.exp(-2j * np.pi * 3 * np.arange(n) / n), atol=1e-12)
    product = bc.ifft(bc.fft(z[0]) * bc.fft(z[1]))  # convolution
    want = [sum(z[0, j] * z[1, (k - j) % n] for j in range(n)) for k in range(n)]
    np.testing.assert_allclose(product, want, atol=1e-12)


def test_gradients_as_torch_and_jax_pair_them() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    import baracuda_py.jax as bj
    import baracuda_py.torch as bct

    calls = {
        "": ((None, -1, None), (3, 0, "ortho"), (7, 1, "forward")),
        "2": ((None, (-2, -1), "ortho"), ((2, 5), (2, 0), None)),
        "n": ((None, None, None), ((4, 3), None, "forward")),
    }
    for name, (way, cases), real in itertools.product(COMPLEX + REAL, calls.items(), (False, True)):
        if real != (name in REAL) and name != "fft":
            continue
        for size, axis, norm in cases:
            x = some(3, 4, 6, real=real).astype(np.float32 if real else np.complex64)
            leaf, own = (torch.tensor(x, requires_grad=True) for _ in range(2))
            want = getattr(torch.fft, name + way)(leaf, size, axis, norm)
            dy = some(*want.shape, real=not want.is_complex(), seed=1).astype(str(want.dtype)[6:])
            want.backward(torch.from_numpy(dy))
            getattr(bct, name + way)(own, size, axis, norm).backward(torch.from_numpy(dy))
            np.testing.assert_allclose(own.grad.resolve_conj(), leaf.grad.resolve_conj(), rtol=1e-4, atol=1e-4)
            if name not in ("hfft", "ihfft"):
                places = {"axis" if not way else "axes": axis}
                told = [
                    jax.vjp(lambda x, f=f, more=more: f(x, size, norm=norm, **more), x)[1](dy)[0]  # noqa: B023
                    for f, more in (
                        (getattr(jax.numpy.fft, name + way), places),
                        (getattr(bj, name + way), {"axis": axis}),
                    )
                ]
                np.testing.assert_allclose(told[1], told[0], rtol=1e-4, atol=1e-4)


def test_what_is_refused() -> None:
    half = np.zeros((2, 4), np.float16)
    for name in COMPLEX:
        with pytest.raises(UnsupportedError, match=r'cast\(x, "float32"\)'):
            getattr(bc, name)(half)
    for name in REAL:
        with pytest.raises(UnsupportedError, match=r'cast\(x, "float32"\)'):
            getattr(bc, name)(half.astype(np.int32))
    for shape, axis in (((2, 4), (0, 1)), ((2, 22), (1,))):  # cuFFT's, which takes no 16-bit numbers
        with pytest.raises(UnsupportedError, match="over one axis"):
            RfftPlan.descriptor(shape=shape, axis=axis, element="float16")
    with pytest.raises(UnsupportedError, match="real"):
        bc.rfft(some(2, 4))
    with pytest.raises(InvalidProblemError, match="norm"):
        bc.fft(some(4), norm="both")
    with pytest.raises(InvalidProblemError, match="n must"):
        bc.fft(some(4), 0)
    with pytest.raises(InvalidProblemError, match="s must"):
        bc.fftn(some(4, 4), (0, 2))
    with pytest.raises(InvalidProblemError, match="a length for each"):
        bc.fftn(some(4, 4), (2,), (0, 1))
    with pytest.raises(InvalidProblemError, match="twice"):
        bc.fftn(some(4, 4), axis=(0, -2))
    with pytest.raises(InvalidProblemError, match="no elements"):
        bc.fft(some(3, 0))
    with pytest.raises(InvalidProblemError, match="give their number"):
        bc.irfft(some(3, 1))
    with pytest.raises(InvalidProblemError, match="axis"):
        bc.fft(some(3, 4), axis=2)
    np.testing.assert_array_equal(bc.fft(some(3, 0), 2), np.zeros((3, 2)))
    assert bc.irfft(some(3, 1), 1).shape == (3, 1)
