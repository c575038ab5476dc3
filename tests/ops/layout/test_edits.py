"""Parts put in and taken out, combinations, keys of latent attention, windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
X = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("index", [1, -1, (0, 2), (2, 2, -3), (), slice(None, None, 2)])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_delete(index: Any, axis: int | None) -> None:
    assert np.array_equal(bc.delete(X, index, axis), np.delete(X, index if index != () else [], axis))


@pytest.mark.parametrize(
    ("index", "values", "axis"),
    [
        (1, np.array([5.0]), None), (0, np.full((4,), 7.0), 0), (-1, np.full((2, 4), 7.0), 0),
        (2, np.array([[1.0], [2.0], [3.0]]), 1), ((1, 3), np.array([8.0, 9.0]), None), ((3, 0, 3), np.ones((3, 3)), 1),
        (4, np.ones((2, 3)), 1),
    ],
)  # fmt: skip
def test_insert(index: Any, values: Any, axis: int | None) -> None:
    assert np.array_equal(bc.insert(X, index, values, axis), np.insert(X, index, values, axis)), (index, axis)


def test_resize_and_combinations() -> None:
    for shape in ((2, 2), (5, 7), (0,), 3):
        assert np.array_equal(bc.resize(X, shape), np.resize(X, shape))
    x = torch.arange(5) * 3
    for r in (1, 2, 3, 6):
        for again in (False, True):
            if r:
                assert torch.equal(bc.combinations(x, r, again), torch.combinations(x, r, again))
    assert all(
        np.array_equal(a, b)
        for a, b in zip(bc.mask_indices(4, bc.triu, 1), np.mask_indices(4, np.triu, 1), strict=True)
    )


def test_keys_of_latent_attention() -> None:
    nope, rope = torch.randn(3, 4, 8), torch.randn(3, 1, 2)
    assert torch.equal(bc.concat_mla_k(nope, rope), torch.cat([nope, rope.expand(3, 4, 2)], -1))


def test_gradients() -> None:
    pytest.importorskip("baracuda_py.torch")
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    v = torch.randn(1, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: bc.delete(x, (1,), 1), (x,))
    assert torch.autograd.gradcheck(lambda x, v: bc.insert(x, 2, v, 1), (x, v))
    assert torch.autograd.gradcheck(lambda x: bc.resize(x, (5, 5)), (x,))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
def test_windows(n: int) -> None:
    like = torch.zeros(1)
    for name in ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"):
        for periodic in (False, True):
            want = getattr(torch, name)(n, periodic, dtype=torch.float64)
            got = getattr(bc, name)(n, periodic, element="float64", like=like)
            assert torch.allclose(got, want, rtol=1e-12, atol=1e-15), (name, periodic)
    for name, more in (("hanning", ()), ("hamming", ()), ("blackman", ()), ("bartlett", ()), ("kaiser", (5.0,))):
        got, want = getattr(bc, name)(n, *more, like=X), getattr(np, name)(n, *more)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)


def test_wrong_calls() -> None:
    for call, says in (
        (lambda: bc.delete(X, 9, 0), "index must be an integer in"),
        (lambda: bc.insert(X, 1, np.ones((3, 3)), 0), "do not broadcast"),
        (lambda: bc.resize(np.ones(0), 3), "no elements"),
        (lambda: bc.combinations(X), "vector"),
        (lambda: bc.mask_indices(3, np.rot90), "triu or tril"),
        (lambda: bc.concat_mla_k(X, X), "k_rope must have shape"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=says):
            call()
