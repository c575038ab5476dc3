"""svd and svdvals: known values, every shape and choice, layouts, hard matrices, what fails, gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from matrices import LAYOUTS, drawn, hard

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.linalg.draws import ELEMENTS
from baracuda_py.ops.linalg.svd import SvdPlan, residual
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.libraries import HostSolver
from baracuda_py.testing.layouts import lay_out
from baracuda_py.testing.operands import operands
from baracuda_py.testing.places import call

SHAPES = ((5, 3), (3, 5), (4, 4), (1, 1), (3, 0), (0, 3), (0, 0))


def test_known_values(place: str) -> None:
    a = np.array([[3.0, 0, 0], [0, -2, 0]])
    desc = SvdPlan.descriptor(m=2, n=3, full_matrices=True, element="float64")
    got = call(SvdPlan, desc, {"u", "s", "vh", "info"}, place, a=a)
    np.testing.assert_allclose(got["s"], [3, 2], rtol=1e-15)
    np.testing.assert_allclose(np.abs(got["u"]), np.eye(2), atol=1e-15)
    np.testing.assert_allclose(np.abs(got["vh"]), np.eye(3), atol=1e-15)
    assert got["info"] == 0
    np.testing.assert_allclose(call(SvdPlan, desc, {"s"}, place, a=a)["s"], [3, 2], rtol=1e-15)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_choice(element: ElementKind, shape: tuple[int, int]) -> None:
    for full, u, vh, info in itertools.product((False, True), repeat=4):
        desc = SvdPlan.descriptor(batch_shape=(2,), m=shape[0], n=shape[1], full_matrices=full, element=element)
        ready = operands(fill(SvdPlan, desc, np.random.default_rng(0), {"u": u, "vh": vh, "info": info}))
        emulate(SvdPlan(desc, PlanPreference(), emulated_device(9.0)), ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float64", "complex64"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5)], ids=str)
def test_layouts(element: str, shape: tuple[int, int]) -> None:
    desc = SvdPlan.descriptor(batch_shape=(3,), m=shape[0], n=shape[1], element=element)
    for number, layouts in enumerate(itertools.product(LAYOUTS, repeat=3)):
        ready = operands(fill(SvdPlan, desc, np.random.default_rng(number), {"u": True, "vh": True}))
        for name, placed in zip(("a", "u", "vh"), layouts, strict=True):
            held, source = ready.laid[name], ready.case.arrays.get(name)
            array = np.empty(held.view.shape, held.view.dtype) if source is None else source
            ready.laid[name] = lay_out(array, placed, None if name == "a" else 0xFF)
        emulate(SvdPlan(desc, PlanPreference(), emulated_device(9.0)), ready)


@pytest.mark.parametrize("element", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(6, 6), (9, 5), (5, 9)], ids=str)
def test_hard_matrices(element: str, shape: tuple[int, int], place: str) -> None:
    for name, a in hard(*shape, element):
        for full, wanted in itertools.product((False, True), ({"u", "s", "vh"}, {"s"})):
            desc = SvdPlan.descriptor(m=shape[0], n=shape[1], full_matrices=full, element=element)
            got = call(SvdPlan, desc, wanted, place, a=a)
            wide = {key: np.asarray(x, np.result_type(np.float64, x)) for key, x in {"a": a, **got}.items()}
            assert residual(desc, "s", **wide) <= 20 * ElementKind.of(element).limits.eps, name


def test_a_matrix_with_nan_spoils_no_other(place: str) -> None:
    a = np.stack([np.diag([3.0, 1, 2])] * 3)
    a[1, 1, 0] = np.inf
    desc = SvdPlan.descriptor(batch_shape=(3,), m=3, n=3, element="float64")
    got = call(SvdPlan, desc, {"u", "s", "vh", "info"}, place, a=a)
    assert all(np.isnan(got[name][1]).all() for name in ("u", "s", "vh")) and got["info"][1] > 0
    assert got["info"][[0, 2]].tolist() == [0, 0]
    np.testing.assert_allclose(got["s"][::2], [[3, 2, 1]] * 2)


def test_what_does_not_converge_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    found = HostSolver._gesvd

    def fails(self: Any, *given: Any) -> None:
        import ctypes

        found(self, *given)
        ctypes.c_int32.from_address(given[-1]).value = 1

    monkeypatch.setattr(HostSolver, "_gesvd", fails)
    desc = SvdPlan.descriptor(m=2, n=65, element="complex64")
    got = call(SvdPlan, desc, {"u", "s", "vh", "info"}, "emulator", PlanPreference(), a=np.ones((2, 65), np.complex64))
    assert all(np.isnan(got[name]).all() for name in ("u", "s", "vh")) and got["info"] == 1


def test_the_functions() -> None:
    a = drawn(np.random.default_rng(1), (2, 3, 5), "complex64")
    u, s, vh, info = bc.svd(a, return_info=True)
    assert u.shape == (2, 3, 3) and vh.shape == (2, 5, 5) and s.dtype == np.float32 and info.tolist() == [0, 0]
    u, s, vh = bc.svd(a, False)
    np.testing.assert_allclose(u * s[:, None] @ vh, a, atol=1e-5)
    np.testing.assert_allclose(bc.svdvals(a), np.linalg.svd(a, compute_uv=False), rtol=1e-5)
    with pytest.raises(UnsupportedError, match="float16"):
        bc.svdvals(np.eye(3, dtype=np.float16))
    with pytest.raises(InvalidProblemError):
        bc.svd(np.ones(3))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)], ids=str)
def test_gradients_are_torchs(dtype: str, shape: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    rng, (m, n), k = np.random.default_rng(2), shape, min(shape)
    x = drawn(rng, (2, m, n), dtype)
    c, d = torch.tensor(rng.standard_normal((m, k))), torch.tensor(rng.standard_normal((k, n)))

    def both(u: Any, s: Any, vh: Any) -> Any:
        return (
            (u.abs() ** 2 * c).sum() + (vh.abs() ** 2 * d).sum() + (s**3).sum() + ((u * c[0]) @ vh).abs().pow(3).sum()
        )

    for of in (lambda f, a: both(*f.svd(a, False)), lambda f, a: f.svd(a)[1].pow(3).sum(),
               lambda f, a: (f.svd(a, False)[0].abs() ** 2 * c).sum(), lambda f, a: f.svdvals(a).pow(3).sum(),
               lambda f, a: (f.svd(a, False)[2].abs() ** 2 * d).sum()):  # fmt: skip
        got, want = (torch.tensor(x, requires_grad=True) for _ in range(2))
        of(bc, got).backward()
        of(torch.linalg, want).backward()
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-8, atol=1e-8)


def test_gradients_of_vectors_that_are_any() -> None:
    """Beyond the first k they are refused, not cut; singular values have theirs all the same."""
    torch = pytest.importorskip("torch")
    a = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(UnsupportedError, match="full_matrices=False"):
        bc.svd(a)[0].sum().backward()
    bc.svd(a)[1][0].backward()
    torch.testing.assert_close(a.grad, torch.full((3, 2), 6**-0.5, dtype=torch.float64))


def test_gradients_through_jax() -> None:
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    a = jax.numpy.asarray(drawn(np.random.default_rng(3), (4, 3), "float32"))
    got = jax.grad(lambda a: (bj.svd(a, False)[1] ** 3).sum() + (bj.svd(a, False)[0] ** 4).sum())(a)
    want = jax.grad(
        lambda a: (jax.numpy.linalg.svd(a, False)[1] ** 3).sum() + (jax.numpy.linalg.svd(a, False)[0] ** 4).sum()
    )(a)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_drivers() -> None:
    a = drawn(np.random.default_rng(1), (2, 70, 5), "float64")
    for driver in (None, "gesvd"):
        np.testing.assert_allclose(bc.svdvals(a, driver=driver), np.linalg.svd(a, compute_uv=False), rtol=1e-12)
        u, s, vh = bc.svd(a, False, driver=driver)
        np.testing.assert_allclose(u * s[:, None] @ vh, a, atol=1e-12)
    for driver in ("gesvdj", "gesvda"):
        with pytest.raises(UnsupportedError, match=f"{driver} .*write driver='gesvd'"):
            bc.svd(a, driver=driver)
    with pytest.raises(InvalidProblemError, match="driver must be"):
        bc.svdvals(a, driver="jacobi")
