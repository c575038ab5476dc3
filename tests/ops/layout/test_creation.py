"""Arrays of nothing but numbers: as torch, NumPy and JAX have them, in every package."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
ON = torch.zeros(1)  # results are torch's, on the host


def same(got: Any, want: Any, exact: bool = True) -> None:
    assert got.dtype is want.dtype and got.shape == want.shape, (got.dtype, want.dtype, got.shape, want.shape)
    assert torch.equal(got, want) if exact else torch.allclose(got, want, rtol=3e-7, atol=1e-30), (got, want)


def test_orders() -> None:
    for args in ((5,), (2, 9), (9, 2, -3), (0, 1, 0.25), (5, 5), (1.5, -1, -0.5), (0.0, 10.0, 3.0)):
        same(bc.arange(*args, like=ON), torch.arange(*args))
    assert bc.arange(2**62, 2**62 + 3, like=ON).tolist() == [2**62, 2**62 + 1, 2**62 + 2]
    same(bc.arange(3, element="float16", like=ON), torch.arange(3, dtype=torch.float16))
    same(bc.range(0, 2, 0.5, like=ON), torch.tensor([0, 0.5, 1, 1.5, 2]))
    for n in (0, 1, 2, 7, 100):
        same(bc.linspace(-3, 4, n, like=ON), torch.linspace(-3, 4, n, dtype=torch.float64).float())
        same(bc.logspace(-3, 4, n, 2.0, like=ON), torch.logspace(-3, 4, n, 2.0, dtype=torch.float64).float(), False)
        got = bc.linspace(-3, 4, n, "float64", endpoint=False, like=ON).numpy()
        np.testing.assert_allclose(got, np.linspace(-3, 4, n, endpoint=False), rtol=1e-14, atol=1e-15)
        got = bc.geomspace(-2, -512, n, "float64", like=ON).numpy()
        np.testing.assert_allclose(got, np.geomspace(-2, -512, n), rtol=1e-13)
    same(bc.linspace(0, 9, 4, "int32", like=ON), torch.linspace(0, 9, 4, dtype=torch.int32))
    assert np.array_equal(bc.broadcasted_iota("int32", (2, 3), 1, like=ON), [[0, 1, 2]] * 2)
    assert np.array_equal(bc.indices((2, 3), like=ON), np.indices((2, 3)))


def test_matrices() -> None:
    same(bc.eye(3, like=ON), torch.eye(3))
    assert np.array_equal(bc.eye(3, 5, -1, "int8", like=ON), np.eye(3, 5, -1))
    assert np.array_equal(bc.tri(4, 3, 1, like=ON), np.tri(4, 3, 1))
    x = torch.tensor([2.0, 3.0, 5.0])
    same(bc.vander(x), torch.vander(x))
    same(bc.vander(x, 4, True), torch.vander(x, 4, True))
    assert np.array_equal(bc.vander(np.array([2, 3])), np.vander(np.array([2, 3])))
    np.testing.assert_allclose(bc.hilbert(3, "float64", like=ON), 1 / (np.arange(3)[:, None] + np.arange(3) + 1.0))


@pytest.mark.parametrize("n", [0, 1, 4, 9])
@pytest.mark.parametrize("m", [0, 1, 5, 8])
def test_triangles(n: int, m: int) -> None:
    for k in (-12, -5, -1, 0, 1, 3, 7, 12):
        same(bc.tril_indices(n, m, k, like=ON), torch.tril_indices(n, m, k))
        same(bc.triu_indices(n, m, k, like=ON), torch.triu_indices(n, m, k))


def test_products() -> None:
    a, b, c = torch.arange(3), torch.arange(4) + 10, torch.arange(2) + 20
    for indexing in ("ij", "xy"):
        for got, want in zip(
            bc.meshgrid(a, b, c, indexing=indexing), torch.meshgrid(a, b, c, indexing=indexing), strict=True
        ):
            same(got, want)
    assert [x.shape for x in bc.ix_(a, b)] == [(3, 1), (1, 4)]
    same(bc.cartesian_prod(a, b, c), torch.cartesian_prod(a, b, c))
    for got, want in zip(bc.diag_indices_from(np.ones((3, 3))), np.diag_indices(3), strict=True):
        assert np.array_equal(got, want)
    for got, want in zip(
        bc.tril_indices_from(np.ones((3, 4)), 1), np.tril_indices_from(np.ones((3, 4)), 1), strict=True
    ):
        assert np.array_equal(got, want)


def test_one_value() -> None:
    same(bc.zeros((2, 3), like=ON), torch.zeros(2, 3))
    same(bc.ones(3, "int64", like=ON), torch.ones(3, dtype=torch.int64))
    same(bc.full((2,), 7, like=ON), torch.full((2,), 7))
    same(bc.full((2,), 1 - 2j, like=ON), torch.full((2,), 1 - 2j))
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    same(bc.full_like(x, 0.5), torch.full_like(x, 0.5))
    same(bc.zeros_like(x), torch.zeros_like(x))
    same(bc.ones_like(x, "int8"), torch.ones_like(x, dtype=torch.int8))
    assert bc.empty_like(x).shape == (2, 3)
    assert bc.empty_strided((2, 3), (1, 2), like=ON).stride() == (1, 2)
    assert (
        bc.empty_permuted((2, 3, 4), (0, 2, 1), like=ON).stride() == torch.empty_permuted((2, 3, 4), (0, 2, 1)).stride()
    )


def test_packages() -> None:
    jax = pytest.importorskip("jax")
    assert isinstance(bc.arange(3, like=np.ones(1)), np.ndarray)
    got = bc.eye(3, like=jax.numpy.ones(1))
    assert isinstance(got, jax.Array) and np.array_equal(got, np.eye(3))
    assert np.array_equal(jax.jit(lambda x: x + bc.arange(3, like=x))(jax.numpy.ones(3)), [1, 2, 3])
    out = np.zeros((2, 6))[:, ::2].T
    assert bc.eye(3, 2, element="float64", out=out) is out and np.array_equal(out, np.eye(3, 2))


def test_wrong_calls() -> None:
    for call, says in (
        (lambda: bc.arange(0, 5, 0, like=ON), "step must not be 0"),
        (lambda: bc.linspace(0, 1, -1, like=ON), "num must be an integer >= 0"),
        (lambda: bc.geomspace(-1, 1, 3, like=ON), "one sign"),
        (lambda: bc.empty_strided((2, 3), (6, 2), like=ON), "without gaps"),
        (lambda: bc.meshgrid(ON, indexing="ab"), "indexing must be"),
        (lambda: bc.eye(3, like="here"), "like"),
    ):
        with pytest.raises(bc.BaracudaError, match=says):
            call()
