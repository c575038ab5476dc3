"""Distances, similarity and normalisation against torch in float64, and their gradients against autograd."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch: Any = pytest.importorskip("torch")
F = torch.nn.functional
ORDERS = (1, 2, 3.5, 0.5, float("inf"))
rng = np.random.default_rng(3)


def _draw(*shape: int) -> Any:
    return rng.standard_normal(shape)


def _gradients(function: Any, *arrays: Any) -> tuple[Any, Any, list[Any]]:
    """torch's result for arrays, a cotangent of it, and the gradients."""
    leaves = [torch.tensor(x, requires_grad=True) for x in arrays]
    y = function(*leaves)
    dy = torch.tensor(_draw(*y.shape))
    return y.detach().numpy(), dy.numpy(), [g.numpy() for g in torch.autograd.grad(y, leaves, dy)]


def _same(ours: Any, torchs: Any) -> None:
    np.testing.assert_allclose(ours, torchs, rtol=1e-11, atol=1e-12)


PAIRS = (((5, 7), (5, 7)), ((2, 3, 7), (7,)), ((4, 1, 6), (3, 6)))


@pytest.mark.parametrize(("p", "shapes"), tuple(itertools.product(ORDERS, PAIRS)))
def test_pairwise_distance(p: float, shapes: Any) -> None:
    a, b = (_draw(*shape) for shape in shapes)
    y, dy, (da, db) = _gradients(lambda a, b: F.pairwise_distance(a, b, p=p, eps=1e-3, keepdim=True), a, b)
    ours = bc.pairwise_distance(a, b, p, 1e-3, keepdims=True)
    _same(ours, y)
    assert ours.shape == y.shape
    made = bc.pairwise_distance_backward(dy, a, b, ours, p, 1e-3, keepdims=True)
    _same(made[0], da)
    _same(made[1], db)


@pytest.mark.parametrize("p", ORDERS)
def test_dist_and_cdist(p: float) -> None:
    a, b = _draw(4, 6), _draw(6)
    y, dy, gradients = _gradients(lambda a, b: torch.linalg.vector_norm(a - b, p), a, b)
    _same(bc.dist(a, b, p), y)
    for ours, want in zip(bc.dist_backward(dy, a, b, y, p), gradients, strict=True):
        _same(ours, want)
    a, b = _draw(2, 5, 3), _draw(4, 3)
    y, dy, gradients = _gradients(lambda a, b: torch.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist"), a, b)
    _same(bc.cdist(a, b, p), y)
    for ours, want in zip(bc.cdist_backward(dy, a, b, y, p), gradients, strict=True):
        _same(ours, want)


def test_cdist_keeps_the_digits_of_near_rows() -> None:
    a = np.full((1, 8), 1e4, np.float32)
    b = np.nextafter(a, np.float32(np.inf))
    _same(bc.cdist(a, b), np.sqrt(np.square((b - a).astype(np.float64)).sum())[None, None].astype(np.float32))


@pytest.mark.parametrize("axis", (0, 1, -1))
@pytest.mark.parametrize("shapes", (((5, 7, 2), (5, 7, 2)), ((5, 7, 2), (5, 7, 1)), ((7, 2), (5, 7, 2))))
def test_cosine_similarity(axis: int, shapes: Any) -> None:
    a, b = (_draw(*shape) for shape in shapes)
    a[0, 0], b[:, 1] = 0, 1e-12
    y, dy, (da, db) = _gradients(lambda a, b: F.cosine_similarity(a, b, dim=axis), a, b)
    _same(bc.cosine_similarity(a, b, axis), y)
    made = bc.cosine_similarity_backward(dy, a, b, axis)
    np.testing.assert_allclose(made[0], da, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made[1], db, rtol=1e-9, atol=1e-9)


def test_similar_arrays_broadcast() -> None:
    with pytest.raises(bc.InvalidProblemError, match="do not broadcast"):
        bc.cosine_similarity(_draw(5, 7), _draw(5, 6), 1)


@pytest.mark.parametrize("value", (1e-30, 1e30))
def test_cosine_similarity_stays_in_range(value: float) -> None:
    x = np.full((1, 9), value, np.float32)
    np.testing.assert_allclose(bc.cosine_similarity(x, -x, eps=0.0), [-1], rtol=1e-6)


@pytest.mark.parametrize(("p", "axis"), tuple(itertools.product(ORDERS, (0, -1, (0, 2)))))
def test_normalize(p: float, axis: Any) -> None:
    x = _draw(4, 5, 3)
    x[:, 2] *= 1e-3  # norms below eps
    y, dy, (dx,) = _gradients(lambda x: F.normalize(x, p=p, dim=axis, eps=0.3), x)
    _same(bc.normalize(x, p, axis, 0.3), y)
    _same(bc.normalize_backward(dy, x, p, axis, 0.3), dx)


@pytest.mark.parametrize(("p", "axis"), tuple(itertools.product((1, 2, 3.5), (0, 1, -1))))
def test_renorm(p: float, axis: int) -> None:
    x = _draw(4, 5, 3)
    x[:, 2] *= 1e-2
    x[0] *= 1e-2
    x[..., 1] *= 1e-2
    y, dy, (dx,) = _gradients(lambda x: torch.renorm(x, p, axis, 1.5), x)
    _same(bc.renorm(x, p, axis, 1.5), y)
    _same(bc.renorm_backward(dy, x, p, axis, 1.5), dx)
    assert (y == x).any() and (y != x).any()


@pytest.mark.parametrize("element", ("float16", "bfloat16"))
def test_norms_of_halves_may_exceed_their_range(element: str) -> None:
    dtype = bc.ElementKind.of(element).dtype
    x = np.full((2, 64), 3e4, dtype)
    y = bc.normalize(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y.astype(np.float64), 0.125, rtol=1e-2)
    similar = bc.cosine_similarity(x, x)
    assert similar.dtype == dtype
    np.testing.assert_allclose(similar.astype(np.float64), 1, rtol=1e-2)
    made = bc.cosine_similarity_backward(np.ones(2, dtype), x, x)
    assert [g.dtype for g in made] == [dtype] * 2
    small = (x / dtype.type(3e4)).astype(dtype)
    assert bc.normalize_backward(small, small).dtype == dtype


def test_in_place_and_empty() -> None:
    x = _draw(3, 4)
    want = bc.normalize(x)
    assert bc.normalize(x, out=x) is x
    _same(x, want)
    assert bc.normalize(np.zeros((0, 4))).shape == (0, 4)
    np.testing.assert_array_equal(bc.pairwise_distance(np.zeros((2, 0)), np.zeros((2, 0))), [0, 0])


def test_bad_input() -> None:
    x = _draw(3, 4)
    with pytest.raises(bc.InvalidProblemError, match="axis must be"):
        bc.renorm(x, 2, 2, 1.0)
    with pytest.raises(bc.InvalidProblemError, match="two axes"):
        bc.renorm(x[0], 2, 0, 1.0)
    with pytest.raises(bc.InvalidProblemError, match="order 0"):
        bc.normalize_backward(x, x, 0)
    with pytest.raises(bc.InvalidProblemError, match=r"x2 must have shape \[..., rows, features\]"):
        bc.cdist(x, x[0])
    with pytest.raises(bc.InvalidProblemError, match="x1 and x2 must have one element, got float64 and float32"):
        bc.cosine_similarity(x, x.astype(np.float32))
    with pytest.raises(bc.InvalidProblemError, match="p must be a number"):
        bc.dist(x, x, True)
    with pytest.raises(bc.InvalidProblemError, match="broadcast"):
        bc.pairwise_distance(x, x[:2])
    with pytest.raises(bc.UnknownKeywordError, match="axis"):
        bc.normalize(x, dim=0)


@pytest.mark.parametrize("name", ["normalize", "renorm"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_16_bit_floats_in_torch(name: str, dtype: str) -> None:
    """Their norms are kept in float32."""
    torch = pytest.importorskip("torch")
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    ours, theirs = x.clone().requires_grad_(), x.double().requires_grad_()
    if name == "normalize":
        made, wanted = bc.normalize(ours, axis=-1), torch.nn.functional.normalize(theirs, dim=-1)
    else:
        made, wanted = bc.renorm(ours, 2, 0, 1.5), torch.renorm(theirs, 2, 0, 1.5)
    weight = torch.linspace(-1, 1, 5)
    (made * weight.to(x.dtype)).sum().backward()
    (wanted * weight.to(x.dtype).double()).sum().backward()
    assert ours.grad.dtype == x.dtype
    torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=3e-2, atol=2e-2)
