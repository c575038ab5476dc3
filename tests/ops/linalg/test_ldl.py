"""ldl_factor and ldl_solve: LAPACK's pivots and factors, solutions, broadcasting, gradients, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.linalg.draws import ELEMENTS
from baracuda_py.ops.linalg.ldl_factor import LdlFactorPlan, residual, unpacked, whole_of
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.operands import operands
from baracuda_py.testing.places import call

lapack = pytest.importorskip("scipy.linalg").lapack
LETTERS = dict(zip(("float32", "float64", "complex64", "complex128"), "sdcz", strict=True))


def indefinite(n: int, dtype: str, hermitian: bool, seed: int = 0) -> Any:
    return whole_of(drawn(np.random.default_rng(seed), (n, n), dtype), hermitian)


@pytest.mark.parametrize("element", LETTERS)
@pytest.mark.parametrize("hermitian", [False, True])
def test_factors_are_lapacks(element: str, hermitian: bool, place: str) -> None:
    routine = "hetrf" if hermitian and element.startswith("complex") else "sytrf"
    for n in (1, 2, 3, 6, 19):
        a = indefinite(n, element, hermitian, n)
        wanted, pivots, _ = getattr(lapack, f"{LETTERS[element]}{routine}")(a, lower=1)
        desc = LdlFactorPlan.descriptor(n=n, hermitian=hermitian, element=element)
        got = call(LdlFactorPlan, desc, {"ld", "pivots", "info"}, place, a=a)
        np.testing.assert_array_equal(got["pivots"], pivots)
        eps = 60 * float(np.finfo(element).eps)
        np.testing.assert_allclose(got["ld"], np.tril(wanted), rtol=eps, atol=eps)
        wide = {key: np.asarray(x, np.result_type(np.float64, x)) for key, x in {"a": a, **got}.items()}
        assert residual(desc, "ld", **(wide | {"pivots": got["pivots"]})) <= 4 * np.finfo(element).eps


def test_a_block_of_two_and_an_exchange() -> None:
    """Zeros on the diagonal need a block; a large number below it comes first."""
    ld, pivots = bc.ldl_factor(np.array([[0.0, 2], [2, 0]]))
    assert pivots.tolist() == [-2, -2] and ld.tolist() == [[0, 0], [2, 0]]
    a = np.array([[1.0, 8, 0], [8, 100, 0], [0, 0, 3]])
    ld, pivots = bc.ldl_factor(a)
    assert pivots.tolist() == [2, 2, 3]
    lower, middle = unpacked(ld, pivots, False)
    np.testing.assert_allclose(lower @ middle @ lower.T, a)


def test_singular_matrices_are_told() -> None:
    a = np.stack([np.zeros((3, 3)), np.eye(3), np.diag([1.0, 0, 2])])
    ld, pivots, info = bc.ldl_factor_ex(a)
    assert info.tolist() == [1, 0, 2] and pivots.tolist() == [[1, 2, 3]] * 3
    np.testing.assert_array_equal(ld, a)


@pytest.mark.parametrize("element", LETTERS)
@pytest.mark.parametrize("hermitian", [False, True])
def test_solutions(element: str, hermitian: bool) -> None:
    for n in (1, 2, 5, 40):
        a = np.stack([indefinite(n, element, hermitian, seed) + 0 for seed in (n, n + 1)])
        b = drawn(np.random.default_rng(3), (3, 1, n, 2), element)
        x = bc.ldl_solve(*bc.ldl_factor(a, hermitian=hermitian), b, hermitian=hermitian)
        assert x.shape == (3, 2, n, 2)
        scale = np.abs(a).sum(-1).max() * np.abs(x).max()
        assert np.abs(a @ x - b).max() <= 4 * n * np.finfo(element).eps * scale
    out = np.empty((n, 2), element)
    factors = bc.ldl_factor(a[0], hermitian=hermitian)
    assert bc.ldl_solve(*factors, b[0, 0], hermitian=hermitian, out=out) is out
    assert bc.ldl_solve(*bc.ldl_factor(np.zeros((0, 0), element)), np.zeros((0, 3), element)).shape == (0, 3)


@pytest.mark.parametrize("hermitian", [False, True])
def test_the_gradient_is_that_of_the_right_side(hermitian: bool) -> None:
    torch = pytest.importorskip("torch")
    a = indefinite(5, "complex128", hermitian)
    ld, pivots = (torch.tensor(x) for x in bc.ldl_factor(a, hermitian=hermitian))
    b = torch.tensor(drawn(np.random.default_rng(3), (5, 2), "complex128"), requires_grad=True)
    dy = torch.tensor(drawn(np.random.default_rng(4), (5, 2), "complex128"))
    bc.ldl_solve(ld, pivots, b, hermitian=hermitian).backward(dy)
    np.testing.assert_allclose(b.grad, np.linalg.solve(a.conj().T, dy), rtol=1e-10)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_the_library_row(element: ElementKind) -> None:
    """A larger matrix than ours takes, and layouts, by the stand-in."""
    for n, batch in ((65, ()), (66, (2,))):
        desc = LdlFactorPlan.descriptor(batch_shape=batch, n=n, element=element)
        ready = operands(fill(LdlFactorPlan, desc, np.random.default_rng(0), {"info": True}))
        emulate(LdlFactorPlan(desc, PlanPreference(), emulated_device(9.0)), ready)


def test_what_does_not_fit_is_refused() -> None:
    a = np.eye(3)
    ld, pivots = bc.ldl_factor(a)
    for bad in (
        lambda: bc.ldl_factor(np.ones((2, 3))),
        lambda: bc.ldl_factor(a, hermitian=2),
        lambda: bc.ldl_solve(ld, pivots[:2], a),
        lambda: bc.ldl_solve(ld, pivots, np.ones(3)),
    ):
        with pytest.raises(InvalidProblemError):
            bad()
    with pytest.raises(UnsupportedError, match="float16"):
        bc.ldl_factor(np.eye(2, dtype=np.float16))
    desc = LdlFactorPlan.descriptor(n=65, hermitian=True, element="complex64")
    with pytest.raises(UnsupportedError, match="hetrf"):
        call(LdlFactorPlan, desc, {"ld", "pivots"}, "emulator", PlanPreference(), a=np.eye(65, dtype=np.complex64))
