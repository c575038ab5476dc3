"""Gradients of linear systems, factors and determinants: those of torch's autograd, of complex numbers, too."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import baracuda_py as bc  # noqa: E402
import baracuda_py.torch as bt  # noqa: E402

COMPLEX = (False, True)


class Draw:
    """Tensors that require a gradient."""

    def __init__(self, complex_numbers: bool) -> None:
        self._rng, self._complex = np.random.default_rng(0), complex_numbers

    def __call__(self, *shape: int, like: Callable[[Any], Any] = lambda x: x) -> Any:
        x = self._rng.standard_normal(shape)
        x = x + 1j * self._rng.standard_normal(shape) if self._complex else x
        return like(torch.tensor(x)).detach().resolve_conj().clone().requires_grad_()


def compare(ours: Callable[..., Any], theirs: Callable[..., Any], *operands: Any) -> None:
    """Results and the gradients of a random function of them."""
    found, wanted = (one if isinstance(one, tuple) else (one,) for one in (ours(*operands), theirs(*operands)))
    rng = np.random.default_rng(7)
    sums = [0, 0]
    for got, want in zip(found, wanted, strict=False):
        torch.testing.assert_close(got.resolve_conj(), want.resolve_conj(), rtol=1e-8, atol=1e-8)
        if want.requires_grad:
            weight = torch.tensor(rng.standard_normal(want.shape)).to(want.dtype) * (
                1 + 0.5j if want.is_complex() else 1
            )
            sums = [s + (x * weight).sum().real for s, x in zip(sums, (got, want), strict=True)]
    for got, want in zip(*(torch.autograd.grad(s, operands) for s in sums), strict=True):
        torch.testing.assert_close(got.resolve_conj(), want.resolve_conj(), rtol=1e-7, atol=1e-7)


def _turned(trans: str) -> Callable[[Any], Any]:
    return {"n": lambda a: a, "t": lambda a: a.mT, "c": lambda a: a.mH}[trans]


@pytest.mark.parametrize("complex_numbers", COMPLEX)
@pytest.mark.parametrize("trans", ["n", "t", "c"])
@pytest.mark.parametrize(("upper", "left", "unit"), itertools.product((False, True), repeat=3))
def test_triangular_systems(complex_numbers: bool, trans: str, upper: bool, left: bool, unit: bool) -> None:
    draw, given = Draw(complex_numbers), {"left": left, "unitriangular": unit}
    compare(
        lambda a, b: bt.solve_triangular(a, b, upper=upper, trans=trans, **given),
        lambda a, b: torch.linalg.solve_triangular(_turned(trans)(a), b, upper=upper != (trans != "n"), **given),
        draw(4, 4), draw(2, 4, 3) if left else draw(2, 3, 4),
    )  # fmt: skip


@pytest.mark.parametrize("complex_numbers", COMPLEX)
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_factors(complex_numbers: bool, shape: tuple[int, int]) -> None:
    draw = Draw(complex_numbers)
    compare(bt.lu, torch.linalg.lu, draw(2, *shape))
    compare(lambda a: bt.lu_factor(a)[0], lambda a: torch.linalg.lu_factor(a)[0], draw(2, *shape))


@pytest.mark.parametrize("complex_numbers", COMPLEX)
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_systems_by_factors(complex_numbers: bool, adjoint: bool, left: bool) -> None:
    draw = Draw(complex_numbers)

    def by(space: Any) -> Callable[[Any, Any], Any]:
        return lambda a, b: space.lu_solve(*space.lu_factor(a)[:2], b, left=left, adjoint=adjoint)

    compare(by(bt), by(torch.linalg), draw(4, 4), draw(2, 4, 3) if left else draw(2, 3, 4))


@pytest.mark.parametrize("complex_numbers", COMPLEX)
def test_systems_and_inverses(complex_numbers: bool) -> None:
    draw = Draw(complex_numbers)
    for shapes in (((2, 4, 4), (2, 4, 3)), ((4, 4), (4,)), ((2, 4, 4), (2, 4)), ((2, 4, 4), (4, 3))):
        compare(bt.solve, torch.linalg.solve, *(draw(*shape) for shape in shapes))
        compare(lambda a, b: bt.solve_ex(a, b)[0], torch.linalg.solve, *(draw(*shape) for shape in shapes))
    right = {"left": False}
    compare(
        lambda a, b: bt.solve(a, b, **right), lambda a, b: torch.linalg.solve(a, b, **right), draw(2, 4, 4), draw(3, 4)
    )
    for ours in (bt.inv, bt.inverse, lambda a: bt.inv_ex(a)[0]):
        compare(ours, torch.linalg.inv, draw(2, 4, 4))
    compare(bt.tensorinv, torch.linalg.tensorinv, draw(2, 3, 6))
    compare(bt.tensorsolve, torch.linalg.tensorsolve, draw(2, 3, 6), draw(2, 3))


def _definite(x: Any) -> Any:
    return x @ x.mH + torch.eye(x.shape[-1])


def _factor(x: Any) -> Any:
    return torch.linalg.cholesky(_definite(x))


@pytest.mark.parametrize("complex_numbers", COMPLEX)
def test_determinants(complex_numbers: bool) -> None:
    draw = Draw(complex_numbers)
    compare(bt.det, torch.linalg.det, draw(3, 4, 4))
    compare(bt.slogdet, torch.linalg.slogdet, draw(3, 4, 4))
    compare(bt.logdet, torch.logdet, draw(3, 4, 4, like=_definite))


@pytest.mark.parametrize("complex_numbers", COMPLEX)
def test_of_cholesky_factors(complex_numbers: bool) -> None:
    """torch's gradients are of both triangles of a factor, of which it reads one: they are compared through `tril`."""
    draw = Draw(complex_numbers)

    def hermitian(function: Any) -> Callable[[Any], Any]:
        return lambda a: function(((a + a.mH) / 2).resolve_conj())

    compare(hermitian(bt.cholesky), hermitian(torch.linalg.cholesky), draw(2, 4, 4, like=_definite))
    compare(bt.cholesky_solve, lambda b, x: torch.cholesky_solve(b, x.tril()), draw(4, 3), draw(4, 4, like=_factor))
    upper = draw(4, 4, like=lambda x: _factor(x).mH)
    compare(
        lambda b, u: bt.cholesky_solve(b, u, True),
        lambda b, u: torch.cholesky_solve(b, u.triu(), True),
        draw(4, 3),
        upper,
    )
    compare(bt.cholesky_inverse, lambda x: torch.cholesky_inverse(x.tril()), draw(2, 4, 4, like=_factor))


def test_the_determinant_of_singular_matrices() -> None:
    """Its gradient is the adjugate's transpose: of rank n - 1 a product of vectors, of lower ranks 0."""
    rank_two = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    cases = {
        "two": rank_two,
        "diagonal": np.diag([1.0, 2, 0]),
        "one": np.outer([1.0, 2, 3], [1.0, 1, 2]),
        "none": rank_two * 0,
    }
    for name, a in cases.items():
        adjugate = np.array([[
            (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(3)] for i in range(3)
        ])  # fmt: skip
        leaf = torch.tensor(a, requires_grad=True)
        bt.det(leaf).backward()
        np.testing.assert_allclose(leaf.grad, adjugate, atol=1e-12, err_msg=name)


def test_gradients_of_gradients() -> None:
    draw = Draw(False)
    a, b = draw(3, 3), draw(3, 2)
    for function, operands in (
        (bt.solve, (a, b)), (bt.inv, (a,)),
        (lambda a, b: bt.solve_ex(a, b)[0], (a, b)), (bt.det, (a,)), (lambda a: bt.slogdet(a)[1], (a,)),
        (lambda a, b: bt.solve_triangular(a, b, upper=True), (a, b)), (lambda a: bt.lu_factor(a)[0], (a,)),
    ):  # fmt: skip
        assert torch.autograd.gradgradcheck(function, operands)


def test_in_jax() -> None:
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    a = np.random.default_rng(5).standard_normal((3, 3)).astype(np.float32)
    b = np.ones(3, np.float32)
    for ours, theirs in (
        (lambda a: bj.solve(a, b).sum(), lambda a: jax.numpy.linalg.solve(a, b).sum()),
        (bj.det, jax.numpy.linalg.det), (lambda a: bj.slogdet(a)[1], lambda a: jax.numpy.linalg.slogdet(a)[1]),
        (lambda a: bj.inv(a)[0, 1], lambda a: jax.numpy.linalg.inv(a)[0, 1]),
        (lambda a: bj.lu(a)[2].sum(), lambda a: jax.scipy.linalg.lu(a)[2].sum()),
    ):  # fmt: skip
        np.testing.assert_allclose(jax.jit(ours)(a), theirs(a), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(jax.grad(ours)(a), jax.grad(theirs)(a), rtol=1e-3, atol=1e-4)
    singular = jax.numpy.ones((2, 2))
    assert not np.isfinite(bj.inv(singular)).all() and not np.isfinite(jax.jit(bj.inv)(singular)).all()
    assert bc.det(np.ones((2, 2))) == 0
