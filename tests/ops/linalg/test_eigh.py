"""eigh and eigvalsh: known values, one triangle, layouts, hard matrices, what does not converge, gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from matrices import LAYOUTS, drawn, hermitian

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.linalg.draws import ELEMENTS
from baracuda_py.ops.linalg.eigh import EighPlan, residual
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.libraries import HostSolver
from baracuda_py.testing.layouts import lay_out
from baracuda_py.testing.operands import operands
from baracuda_py.testing.places import call


def test_known_values(place: str) -> None:
    a = np.array([[2.0, 1], [1, 2]])
    desc = EighPlan.descriptor(n=2, element="float64")
    got = call(EighPlan, desc, {"w", "v", "info"}, place, a=a)
    np.testing.assert_allclose(got["w"], [1, 3], rtol=1e-15)
    np.testing.assert_allclose(np.abs(got["v"]), np.full((2, 2), 0.5**0.5), rtol=1e-15)
    assert got["info"] == 0
    np.testing.assert_allclose(call(EighPlan, desc, {"w"}, place, a=a)["w"], [1, 3], rtol=1e-15)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_every_choice(element: ElementKind, n: int) -> None:
    for upper, v, info in itertools.product((False, True), repeat=3):
        desc = EighPlan.descriptor(batch_shape=(2,), n=n, upper=upper, element=element)
        ready = operands(fill(EighPlan, desc, np.random.default_rng(0), {"v": v, "info": info}))
        emulate(EighPlan(desc, PlanPreference(), emulated_device(9.0)), ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float64", "complex64"])
@pytest.mark.parametrize("upper", [False, True])
def test_layouts(element: str, upper: bool) -> None:
    desc = EighPlan.descriptor(batch_shape=(3,), n=5, upper=upper, element=element)
    for number, layouts in enumerate(itertools.product(LAYOUTS, repeat=2)):
        ready = operands(fill(EighPlan, desc, np.random.default_rng(number), {"v": True}))
        for name, placed in zip(("a", "v"), layouts, strict=True):
            held, source = ready.laid[name], ready.case.arrays.get(name)
            array = np.empty(held.view.shape, held.view.dtype) if source is None else source
            ready.laid[name] = lay_out(array, placed, None if name == "a" else 0xFF)
        emulate(EighPlan(desc, PlanPreference(), emulated_device(9.0)), ready)


@pytest.mark.parametrize("UPLO", ["L", "U"])
@pytest.mark.parametrize("element", ["float32", "complex128"])
def test_one_triangle_is_read(UPLO: str, element: str, place: str) -> None:
    """NaN beyond it, and imaginary parts on the diagonal, count for nothing."""
    a = drawn(np.random.default_rng(0), (2, 5, 5), element)
    a = a + a.conj().swapaxes(-1, -2)
    unread = np.tri(5, k=-1, dtype=bool) if UPLO == "U" else ~np.tri(5, dtype=bool)
    dirty = np.where(unread, np.nan, a) + (3j * np.eye(5) if a.dtype.kind == "c" else 0)
    desc = EighPlan.descriptor(batch_shape=(2,), n=5, upper=UPLO == "U", element=element)
    got = [call(EighPlan, desc, {"w", "v"}, place, a=x.astype(element)) for x in (a, dirty)]
    np.testing.assert_allclose(got[1]["w"], got[0]["w"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got[0]["w"], np.linalg.eigvalsh(a), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("element", ["float32", "float64", "complex64", "complex128"])
def test_hard_matrices(element: str, place: str) -> None:
    desc = EighPlan.descriptor(n=8, element=element)
    for name, a in hermitian(8, element):
        for wanted in ({"w", "v"}, {"w"}):
            got = call(EighPlan, desc, wanted, place, a=a)
            wide = {key: np.asarray(x, np.result_type(np.float64, x)) for key, x in {"a": a, **got}.items()}
            assert residual(desc, "w", **wide) <= 10 * ElementKind.of(element).limits.eps, name


def test_a_matrix_with_nan_spoils_no_other(place: str) -> None:
    a = np.stack([np.diag([3.0, 1, 2])] * 3)
    a[1, 1, 0] = np.nan
    desc = EighPlan.descriptor(batch_shape=(3,), n=3, element="float64")
    got = call(EighPlan, desc, {"w", "v", "info"}, place, a=a)
    assert np.isnan(got["w"][1]).all() and np.isnan(got["v"][1]).all() and got["info"][1] > 0
    assert got["info"][[0, 2]].tolist() == [0, 0]
    np.testing.assert_allclose(got["w"][::2], [[1, 2, 3]] * 2)


def test_what_does_not_converge_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    found = HostSolver._syevd

    def fails(self: Any, *given: Any) -> None:
        import ctypes

        found(self, *given)
        ctypes.c_int32.from_address(given[-1]).value = 2

    monkeypatch.setattr(HostSolver, "_syevd", fails)
    desc, a = EighPlan.descriptor(n=65, element="float32"), np.eye(65, dtype=np.float32)
    got = call(EighPlan, desc, {"w", "v", "info"}, "emulator", PlanPreference(), a=a)
    assert np.isnan(got["w"]).all() and np.isnan(got["v"]).all() and got["info"] == 2


def test_the_functions() -> None:
    a = drawn(np.random.default_rng(1), (2, 4, 4), "complex128")
    a = a + a.conj().swapaxes(-1, -2)
    w, v, info = bc.eigh(a, return_info=True)
    np.testing.assert_allclose(v * w[:, None] @ v.conj().swapaxes(-1, -2), a, atol=1e-13)
    assert info.tolist() == [0, 0] and w.dtype == np.float64
    np.testing.assert_allclose(bc.eigvalsh(a, "u"), w, atol=1e-13)
    with pytest.raises(InvalidProblemError, match="UPLO must be 'L' or 'U', got 'X'"):
        bc.eigh(a, "X")
    with pytest.raises(UnsupportedError, match="float16"):
        bc.eigvalsh(np.eye(3, dtype=np.float16))
    with pytest.raises(InvalidProblemError):
        bc.eigh(a[:, :2])


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients_are_torchs(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x, c = drawn(rng, (2, 4, 4), dtype), torch.tensor(rng.standard_normal((2, 4, 4)))
    x = x + x.conj().swapaxes(-1, -2)

    def both(w: Any, v: Any) -> Any:
        return (w**3).sum() + (v.abs() ** 2 * c).sum() + ((v * c[:, :1]) @ v.mH).abs().pow(2).sum()

    for of in (lambda f, a: both(*f.eigh(a)), lambda f, a: f.eigh(a)[0].pow(3).sum(),
               lambda f, a: f.eigvalsh(a).pow(3).sum(), lambda f, a: (f.eigh(a)[1].abs() ** 2 * c).sum()):  # fmt: skip
        got, want = (torch.tensor(x, requires_grad=True) for _ in range(2))
        of(bc, got).backward()
        of(torch.linalg, want).backward()
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-9, atol=1e-9)


def test_gradients_of_equal_eigenvalues() -> None:
    """Those of the eigenvalues alone are there; those of vectors are not finite, as torch's."""
    torch = pytest.importorskip("torch")
    a = torch.eye(3, dtype=torch.float64, requires_grad=True)
    bc.eigh(a)[0].sum().backward()
    torch.testing.assert_close(a.grad, torch.eye(3, dtype=torch.float64))
    b = torch.eye(3, dtype=torch.float64, requires_grad=True)
    (bc.eigh(b)[1] ** 3 * torch.arange(9.0).reshape(3, 3)).sum().backward()
    assert not torch.isfinite(b.grad).all()


def test_checked_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN is an error there where it is read."""
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    a = np.eye(3)
    a[0, 2] = np.nan
    np.testing.assert_array_equal(bc.eigvalsh(a), np.ones(3))
    for call_it in (lambda: bc.eigvalsh(a, "U"), lambda: bc.svdvals(a)):
        with pytest.raises(InvalidProblemError, match="a has NaN or infinities"):
            call_it()


def test_derivatives_of_higher_order() -> None:
    torch = pytest.importorskip("torch")
    x = drawn(np.random.default_rng(4), (3, 3), "float64")
    for of in (lambda a: bc.eigvalsh((a + a.mH) / 2), lambda a: bc.eigh((a + a.mH) / 2)[1], lambda a: bc.svdvals(a)):
        leaf = torch.tensor(x, requires_grad=True)
        assert torch.autograd.gradgradcheck(of, leaf)
        assert torch.autograd.gradcheck(of, leaf, check_forward_ad=True)


def test_gradients_through_jax() -> None:
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    x = drawn(np.random.default_rng(3), (3, 3), "float32")
    a = jax.numpy.asarray(x + x.T)
    for of in (lambda f, a: (f.eigh(a)[0] ** 3).sum(), lambda f, a: (f.eigh(a)[1] ** 4).sum()):
        got, want = (jax.grad(lambda a, f=f, of=of: of(f, a))(a) for f in (bj, jax.numpy.linalg))
        np.testing.assert_allclose((got + got.T) / 2, (want + want.T) / 2, rtol=1e-3, atol=1e-3)
    w, v, info = jax.jit(lambda a: bj.eigh(a, return_info=True))(a)
    np.testing.assert_allclose(v * w @ v.T, a, atol=1e-5)
    assert int(info) == 0
