"""qr, geqrf, householder_product: known factors, layouts, hard matrices, shapes without rows or columns, refusals."""

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
from baracuda_py.ops.linalg.geqrf import GeqrfPlan
from baracuda_py.ops.linalg.householder_product import HouseholderProductPlan
from baracuda_py.ops.linalg.qr import QrPlan, residual
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import lay_out
from baracuda_py.testing.operands import operands
from baracuda_py.testing.places import call

SHAPES = ((5, 3), (3, 5), (4, 4), (1, 1), (3, 0), (0, 3), (0, 0))


def test_known_factors(place: str) -> None:
    a = np.array([[3.0, 1], [4, 2]])
    desc = QrPlan.descriptor(m=2, n=2, element="float64")
    got = call(QrPlan, desc, {"q", "r"}, place, a=a)
    np.testing.assert_allclose(got["q"], [[-0.6, -0.8], [-0.8, 0.6]], rtol=1e-14)
    np.testing.assert_allclose(got["r"], [[-5, -2.2], [0, 0.4]], rtol=1e-13, atol=1e-15)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape(element: ElementKind, shape: tuple[int, int]) -> None:
    m, n = shape
    device, plain = emulated_device(9.0), PlanPreference()
    for complete, q in itertools.product((False, True), repeat=2):
        desc = QrPlan.descriptor(batch_shape=(2,), m=m, n=n, complete=complete, element=element)
        emulate(QrPlan(desc, plain, device), operands(fill(QrPlan, desc, np.random.default_rng(0), {"q": q})))
    facts = GeqrfPlan.descriptor(batch_shape=(2,), m=m, n=n, element=element)
    emulate(GeqrfPlan(facts, plain, device), operands(fill(GeqrfPlan, facts, np.random.default_rng(0))))
    for k in range(n + 1) if m >= n else ():
        made = HouseholderProductPlan.descriptor(batch_shape=(2,), m=m, n=n, k=k, element=element)
        ready = operands(fill(HouseholderProductPlan, made, np.random.default_rng(k)))
        emulate(HouseholderProductPlan(made, plain, device), ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float32", "complex128"])
@pytest.mark.parametrize("complete", [False, True])
def test_layouts(element: str, complete: bool) -> None:
    """Every layout of every operand, touching no more."""
    desc = QrPlan.descriptor(batch_shape=(3,), m=7, n=4, complete=complete, element=element)
    for number, layouts in enumerate(itertools.product(LAYOUTS, repeat=3)):
        ready = operands(fill(QrPlan, desc, np.random.default_rng(number), {"q": True}))
        for name, placed in zip(("a", "q", "r"), layouts, strict=True):
            held, source = ready.laid[name], ready.case.arrays.get(name)
            array = np.empty(held.view.shape, held.view.dtype) if source is None else source
            ready.laid[name] = lay_out(array, placed, None if name == "a" else 0xFF)
        emulate(QrPlan(desc, PlanPreference(), emulated_device(9.0)), ready)


@pytest.mark.parametrize("element", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(6, 6), (9, 5), (5, 9)])
def test_hard_matrices(element: str, shape: tuple[int, int], place: str) -> None:
    for name, a in hard(*shape, element):
        for complete in (False, True):
            desc = QrPlan.descriptor(m=shape[0], n=shape[1], complete=complete, element=element)
            got = call(QrPlan, desc, {"q", "r"}, place, a=a)
            wide = {key: np.asarray(x, np.result_type(np.float64, x)) for key, x in {"a": a, **got}.items()}
            assert residual(desc, "q", **wide) <= 10 * ElementKind.of(element).limits.eps, name


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_the_functions(dtype: str) -> None:
    a = drawn(np.random.default_rng(1), (2, 5, 3), dtype)
    for mode in ("reduced", "complete"):
        q, r = bc.qr(a, mode)
        want = np.linalg.qr(a, mode)
        np.testing.assert_allclose(q, want.Q, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(r, want.R, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(bc.qr(a, "r"), np.linalg.qr(a, "r"), rtol=1e-5, atol=1e-5)
    y, tau = bc.geqrf(a)
    np.testing.assert_allclose(np.triu(y)[:, :3], np.linalg.qr(a, "r"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(bc.householder_product(y, tau), np.linalg.qr(a).Q, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(bc.orgqr(y, tau), bc.householder_product(y, tau))
    out = np.empty_like(np.linalg.qr(a, "r"))
    assert bc.qr(a, "r", out=out) is out


def test_a_matrix_alone_spoils_no_other(place: str) -> None:
    a = drawn(np.random.default_rng(2), (3, 4, 3), "float64")
    a[1, 2, 1] = np.nan
    desc = QrPlan.descriptor(batch_shape=(3,), m=4, n=3, element="float64")
    got = call(QrPlan, desc, {"q", "r"}, place, a=a)
    assert np.isnan(got["r"][1]).any()
    np.testing.assert_allclose((got["q"] @ got["r"])[::2], a[::2], atol=1e-14)


def test_refusals() -> None:
    a = np.ones((3, 3), np.float32)
    with pytest.raises(InvalidProblemError, match="mode must be 'reduced', 'complete' or 'r', got 'economic'"):
        bc.qr(a, "economic")
    with pytest.raises(UnsupportedError, match="float16"):
        bc.qr(a.astype(np.float16))
    with pytest.raises(InvalidProblemError, match="no more columns than rows"):
        bc.householder_product(np.ones((2, 3)), np.ones(2))


def test_no_gradient_is_cut() -> None:
    torch = pytest.importorskip("torch")
    a: Any = torch.ones(3, 2, requires_grad=True)
    with pytest.raises(UnsupportedError, match="requires grad"):
        bc.geqrf(a)
    with pytest.raises(UnsupportedError, match="complete"):  # a reduced one has its gradient
        q, r = bc.qr(a, "complete")
        (q.sum() + r.sum()).backward()
    q, r = bc.qr(a + torch.eye(3, 2))
    (q.sum() + r.sum()).backward()
    assert a.grad is not None and a.grad.abs().max() > 0
