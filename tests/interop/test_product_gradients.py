"""Gradients of einsum and its relatives in torch and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
bt: Any = pytest.importorskip("baracuda_py.torch")

ROWS: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = [  # of sums, elementwise products and views
    (lambda a, b: bt.einsum("ij,ij->", a, b), ((2, 3), (2, 3))),
    (lambda a, b: bt.einsum("iij,k->jki", a, b), ((2, 2, 3), (3,))),
    (lambda a: bt.einsum("iij->j", a), ((2, 2, 3),)),
    (lambda a: bt.einsum("iij->ji", a), ((2, 2, 3),)),
    (lambda a, b: bt.tensordot(a, b, 0), ((2,), (3,))),
    (lambda *x: bt.kron(*x), ((2, 3), (2,))),
    (lambda *x: bt.outer(*x), ((2,), (3,))),
    (lambda *x: bt.addr(*x, beta=0.5, alpha=2.0), ((3,), (2,), (3,))),
    (lambda *x: bt.addr(*x, beta=0), ((3,), (2,), (3,))),
    (lambda a: bt.matrix_power(a, 1), ((2, 2),)),
]
PRODUCTS: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = [  # that have a matrix product among them
    (lambda a, b: bt.einsum("ij,jk->ki", a, b), ((2, 3), (3, 2))),
    (lambda a, b: bt.einsum("bijk,lkbj->lbi", a, b), ((2, 3, 2, 2), (2, 2, 2, 2))),
    (lambda a, b: bt.einsum("iij,jkk->ik", a, b), ((2, 2, 3), (3, 2, 2))),
    (lambda a, b, c: bt.einsum("ij,jk,kl->il", a, b, c), ((2, 3), (3, 2), (2, 3))),
    (lambda a, b, c: bt.einsum("i,i,ij->j", a, b, c), ((2,), (2,), (2, 3))),
    (lambda a, b: bt.einsum("...i,...i", a, b), ((2, 1, 3), (4, 3))),
    (lambda a, b: bt.tensordot(a, b, ((0, 2), (1, 0))), ((2, 3, 2), (2, 2, 3))),
    (lambda a, b: bt.dot_general(a, b, (((1,), (2,)), ((0,), (1,)))), ((2, 3, 2), (2, 2, 3))),
    (lambda *x: bt.addbmm(*x, beta=0.5, alpha=2.0), ((3,), (2, 2, 3), (2, 3, 3))),
    (lambda *x: bt.bilinear(*x), ((2, 3), (2, 2), (4, 3, 2), (4,))),
    (lambda *x: bt.bilinear(*x), ((2, 3), (2, 2), (2, 3, 2), (2,))),
    (lambda *x: bt.matvec(*x), ((2, 3, 2), (2,))),
    (lambda *x: bt.vecmat(*x), ((2, 3), (3, 2))),
    (lambda *x: bt.multi_dot(x), ((2,), (2, 3), (3, 2))),
    (lambda *x: bt.chain_matmul(*x), ((2, 2), (2, 3), (3, 2))),
    (lambda a: bt.matrix_power(a, 5), ((2, 2, 2),)),
]


def leaves(shapes: tuple[tuple[int, ...], ...], dtype: Any) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(s, dtype=dtype, generator=generator).requires_grad_() for s in shapes)


def padded(x: Any) -> Any:
    """x as a view whose axes no strides group."""
    wide = torch.zeros([n + 1 for n in x.shape], dtype=x.dtype)
    place = tuple(slice(0, n) for n in x.shape)
    return wide.index_put([i.reshape(s) for i, s in _grid(x)], x)[place]


def _grid(x: Any) -> Any:
    return [(torch.arange(n), [n if a == axis else 1 for a in range(x.dim())]) for axis, n in enumerate(x.shape)]


@pytest.mark.parametrize(("call", "shapes"), [*ROWS, *PRODUCTS])
def test_of_floats(call: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    """Of operands as they come, and of views that are copied where a matrix product needs even axes."""
    assert torch.autograd.gradcheck(call, leaves(shapes, torch.float64))
    assert torch.autograd.gradcheck(lambda *x: call(*map(padded, x)), leaves(shapes, torch.float64))


@pytest.mark.parametrize(("call", "shapes"), [*ROWS[:-1], *PRODUCTS[:-1]])
def test_of_complex_numbers(call: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    """They need no matrix product: every gradient is there, or its op says that it has none."""
    try:
        assert torch.autograd.gradcheck(call, leaves(shapes, torch.complex128))
    except (bc.UnsupportedError, bc.InvalidProblemError) as error:
        assert "complex" in str(error) or "has no gradient" in str(error)


def test_the_identity_depends_on_nothing() -> None:
    (a,) = leaves(((2, 3, 3),), torch.float64)
    y = bt.matrix_power(a, 0)
    assert not y.requires_grad and torch.equal(y, torch.eye(3, dtype=torch.float64).expand(2, 3, 3))


def test_an_output_takes_no_part() -> None:
    a, b = leaves(((2, 3), (2, 3)), torch.float64)
    with pytest.raises(bc.UnsupportedError, match="out= takes no part in autograd"):
        bt.einsum("ij,ij->i", a, b, out=torch.empty(2, dtype=torch.float64))


def test_in_a_compiled_graph() -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        return bt.einsum("bqhd,bkhd,k->bhq", a, b, c) + bt.outer(c, c).sum()

    def operands(q: int, k: int) -> list[Any]:
        return [torch.randn(s) for s in ((2, q, 4, 5), (2, k, 4, 5), (k,))]

    for dynamic in (False, True):
        compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=dynamic)
        for sizes in ((3, 6), (7, 9)):
            given = operands(*sizes)
            torch.testing.assert_close(compiled(*given), f(*given))


def test_under_autocast_every_operand_is_cast() -> None:
    a, b, c = (torch.randn(s) for s in ((2, 3), (3, 4), (4, 2)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert bt.einsum("ij,jk,kl,li,il->i", a, b, c, a.new_ones(2, 2), a.new_ones(2, 2)).dtype is torch.bfloat16
        assert bt.chain_matmul(a, b, c).dtype is bt.multi_dot([a, b, c]).dtype is torch.bfloat16


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    bj: Any = pytest.importorskip("baracuda_py.jax")
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        a, b, c = (jax.numpy.asarray(rng.standard_normal(s)) for s in ((2, 3), (2, 3), (3, 4)))

        def f(a: Any, b: Any) -> Any:
            return bj.einsum("ij,ij,kk->ik", a, b, bj.outer(a[:, 0], b[0, :2])).sum()

        def g(a: Any, b: Any) -> Any:
            inner = jax.numpy.outer(a[:, 0], b[0, :2])
            return jax.numpy.einsum("ij,ij,kk->ik", a, b, inner).sum()

        for ours, theirs in zip(jax.grad(f, (0, 1))(a, b), jax.grad(g, (0, 1))(a, b), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        found, want = (jax.jit(e, static_argnums=0)("ij,jk->ki", a, c) for e in (bj.einsum, jax.numpy.einsum))
        np.testing.assert_allclose(found, want, rtol=1e-12)
        stacked = jax.vmap(lambda x: bj.einsum("j,jk->k", x, c))(a)
        np.testing.assert_allclose(stacked, np.asarray(a) @ np.asarray(c), rtol=1e-12)
        ours = jax.grad(lambda a: bj.einsum("ij,jk->ik", a, c).sum())(a)
        np.testing.assert_allclose(ours, np.broadcast_to(np.asarray(c).sum(1), (2, 3)), rtol=1e-12)
