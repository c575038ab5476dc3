"""syrk against SciPy's, symmetric to the bit; the bits of GemmPlan's rows; c in place; gradients; tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.gemm.syrk_rows import lower_tiles
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

RNG = np.random.default_rng(3)
A, C = RNG.standard_normal((6, 9)), RNG.standard_normal((6, 6))


@pytest.mark.parametrize("trans", [False, True])
def test_is_the_blas_function_with_both_triangles(trans: bool) -> None:
    blas = pytest.importorskip("scipy.linalg.blas")
    c = C if not trans else RNG.standard_normal((9, 9))
    y = bc.syrk(A, c, alpha=0.7, beta=-1.5, trans=trans)
    want = blas.dsyrk(0.7, A, beta=-1.5, c=c, trans=int(trans), lower=1)
    np.testing.assert_allclose(np.tril(y), np.tril(want), rtol=1e-12)
    np.testing.assert_array_equal(y, y.T)
    np.testing.assert_allclose(bc.syrk(np.stack([A, -2 * A]))[1], 4 * A @ A.T, rtol=1e-12)


def test_above_the_diagonal_c_is_not_read() -> None:
    c = np.tril(C) + np.triu(np.full((6, 6), np.nan), 1)
    want = bc.syrk(A, C, beta=2.0)
    np.testing.assert_array_equal(bc.syrk(A, c, beta=2.0), want)
    bc.syrk(A, c, beta=2.0, out=c)
    np.testing.assert_array_equal(c, want)
    np.testing.assert_array_equal(bc.syrk(A * np.inf, C, alpha=0.0, beta=0.0), 0)


@pytest.mark.parametrize("trans", [False, True])
def test_gradients(trans: bool) -> None:
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    n = 9 if trans else 6
    held, whole = ([torch.tensor(x, requires_grad=True) for x in (A, RNG.standard_normal((n, n)))] for _ in range(2))
    whole[1] = held[1].detach().clone().requires_grad_()
    dy = torch.tensor(RNG.standard_normal((n, n)))
    x = whole[0].mT if trans else whole[0]
    x = 0.7 * x @ x.mT - 1.5 * whole[1]
    want = torch.tril(x) + torch.tril(x, -1).mT
    y = bct.syrk(*held, alpha=0.7, beta=-1.5, trans=trans)
    torch.testing.assert_close(y, want)
    torch.testing.assert_close(torch.autograd.grad(y, held, dy), torch.autograd.grad(want, whole, dy))


def test_a_newton_schulz_step_of_muon() -> None:
    """X ← a X + (b S + c S S) X with S = X Xᵀ, whose products are symmetric."""
    x = A / np.linalg.norm(A)
    for _ in range(5):
        s = bc.syrk(x)
        x = bc.gemm(bc.syrk(s, s, alpha=2.0315, beta=-4.7750), x, c=x, beta=3.4445)
    np.testing.assert_allclose(np.linalg.svd(x)[1], 1, atol=0.35)


def emulated(plan: Any, desc: Any, sms: int, cc: float = 8.0, **arrays: np.ndarray) -> tuple[np.ndarray, str, int]:
    """y, the row that made it, and how many blocks, on an emulated device of so many multiprocessors."""
    n = arrays["a"].shape[0]
    y = np.full((n, n), np.nan, np.float32)
    with emulating():
        chosen = plan.select(desc, bc.PlanPreference(batch_invariant=True), device=emulated_device(cc, sms))
        args = plan.args(**{name: pointer_view(x) for name, x in (arrays | {"y": y}).items()})
        chosen.run(args)
        row, geometry, _ = chosen.plan_layout(args)
    return y, row.name, geometry.steps[0].grid[0]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("cc", "sms", "row", "blocks"), [(8.0, 1, "mma", 3), (8.0, 6, "mma", 6)])
def test_bits_are_those_of_the_product(cc: float, sms: int, row: str, blocks: int) -> None:
    """In tiles of 128 and of 64, with two pieces of k, whole and partial tiles."""
    same_bits(RNG.standard_normal((190, 1100)).astype(np.float16), cc, sms, row, blocks)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("sms", "across"), [(1, False), (2, True)])
def test_bits_are_those_of_the_product_on_sm_90a(sms: int, across: bool) -> None:
    """Three tiles of 128 columns in turn, or two of 256 at once; a by rows and by columns."""
    a = RNG.standard_normal((192, 72)).astype(np.float16)
    same_bits((np.asfortranarray(a) if across else a)[:190], 9.0, sms, "wgmma", sms)


def same_bits(a: np.ndarray, cc: float, sms: int, row: str, blocks: int) -> None:
    n, k = a.shape
    facts = {"k": k, "element": ElementKind.F16, "out_element": ElementKind.F32}
    y, name, launched = emulated(bc.SyrkPlan, bc.SyrkDescriptor(n=n, **facts), sms, cc, a=a)
    assert (name, launched) == (row, blocks)
    assert y.tobytes() == np.ascontiguousarray(y.T).tobytes()
    want, name, _ = emulated(bc.GemmPlan, bc.GemmDescriptor(m=n, n=n, **facts), 1, cc, a=a, b=a.T)
    assert name == row and np.tril(y).tobytes() == np.tril(want).tobytes()


@pytest.mark.usefixtures("emulation")
def test_every_band_of_tiles_is_computed() -> None:
    """21 rows of tiles are two bands of eight, and one of five."""
    a = RNG.integers(-3, 4, (1290, 2)).astype(np.float32)
    y, row, _ = emulated(bc.SyrkPlan, bc.SyrkDescriptor(n=1290, k=2, element="float32"), 2, a=a)
    assert row == "simt" and np.array_equal(y, a @ a.T)


def test_tiles_cover_the_lower_triangle() -> None:
    for n, rows, cols in ((1, 64, 64), (130, 64, 64), (257, 128, 256), (1000, 128, 256), (640, 128, 128)):
        below = {(i // rows, j // cols) for i in range(n) for j in range(i + 1)}
        assert lower_tiles(n, rows, cols) == len(below)


def test_symmetric_product_is_that_of_jax() -> None:
    jax = pytest.importorskip("jax")
    a, c = RNG.standard_normal((2, 4, 6)), RNG.standard_normal((2, 4, 4))
    c += c.swapaxes(1, 2)
    for facts in ({}, {"alpha": 0.5}, {"alpha": -1.0, "beta": 2.0}, {"beta": 0.5, "symmetrize_output": True}):
        wanted = jax.lax.linalg.symmetric_product(
            a.astype(np.float32), c.astype(np.float32), **{**facts, "symmetrize_output": True}
        )
        out = np.empty((2, 4, 4))
        assert bc.symmetric_product(a, c, **facts, out=out) is out
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidProblemError, match="symmetrize_output"):
        bc.symmetric_product(a, c, symmetrize_output=2)


def test_refusals() -> None:
    with pytest.raises(InvalidProblemError, match="a must have shape"):
        bc.syrk(A[0])
    with pytest.raises(InvalidProblemError, match="c must have shape"):
        bc.syrk(A, C[:3])
