"""matrix_norm, cond, matrix_rank, pinv, lstsq: as torch.linalg's, with gradients, tolerances and empty matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

torch: Any = pytest.importorskip("torch")
linalg, norm = torch.linalg, torch.linalg.matrix_norm
ORDERS = ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
SHAPES = ((4, 4), (5, 3), (3, 5), (1, 1))


def near(got: Any, want: Any, within: float = 1e-9) -> None:
    torch.testing.assert_close(torch.as_tensor(got), want, rtol=within, atol=within, equal_nan=True)


def given(shape: tuple[int, ...], dtype: str) -> Any:
    return torch.tensor(drawn(np.random.default_rng(sum(shape)), (2, *shape), dtype))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norms_and_conditions(shape: tuple[int, int], dtype: str) -> None:
    a = given(shape, dtype)
    for order in ORDERS:
        for keepdims in (False, True):
            for axis in ((-2, -1), (0, 1), (2, 0)):
                near(
                    bc.matrix_norm(a, order, axis=axis, keepdims=keepdims), linalg.matrix_norm(a, order, axis, keepdims)
                )
        if shape[0] == shape[1]:
            near(bc.cond(a, order), linalg.cond(a, order), 1e-7)
    for order in (None, 2, -2):
        near(bc.cond(a, order), linalg.cond(a, order), 1e-7)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ranks_and_inverses(shape: tuple[int, int], dtype: str) -> None:
    a = given(shape, dtype)
    each = torch.tensor([0.5, 2.0], dtype=torch.float64)
    for facts in ({}, {"atol": 1.5}, {"rtol": 0.3}, {"atol": 0.1, "rtol": 0.2}, {"atol": each}, {"rtol": each / 4}):
        near(bc.matrix_rank(a, **facts), linalg.matrix_rank(a, **facts))
        near(bc.pinv(a, **facts), linalg.pinv(a, **facts))
        if shape[0] == shape[1]:
            h = a + a.mH
            near(bc.matrix_rank(h, hermitian=True, **facts), linalg.matrix_rank(h, hermitian=True, **facts))
            near(bc.pinv(h, hermitian=True, **facts), linalg.pinv(h, hermitian=True, **facts))
    deficient = a[..., :1] @ a[..., :1, :]
    assert bc.matrix_rank(deficient).tolist() == [1, 1]
    p = bc.pinv(deficient)
    near(deficient @ p @ deficient, deficient)
    near((deficient @ p).mH, deficient @ p)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_least_squares(shape: tuple[int, int], dtype: str) -> None:
    a, b = given(shape, dtype), given((shape[0], 2), dtype)
    x, residuals, rank, s = bc.lstsq(a, b)
    want = linalg.lstsq(a, b, driver="gelsd")
    for got, one in ((x, want.solution), (rank, want.rank), (s, want.singular_values)):
        near(got, one)
    near(residuals, (b - a @ x).abs().pow(2).sum(-2))
    near(bc.lstsq(a[0], b[0, :, 1])[0], x[0, :, 1])
    with pytest.raises(InvalidProblemError, match="b must be"):
        bc.lstsq(a, b[:, :1] if shape[0] > 1 else b[0])
    out = [np.empty(tuple(one.shape), one.numpy().dtype) for one in (x, residuals, rank, s)]
    made = bc.lstsq(a.numpy(), b.numpy(), out=out)
    assert all(one is to for one, to in zip(made, out, strict=True))
    near(out[0], x)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_gradients(shape: tuple[int, int], dtype: str) -> None:
    a, b = given(shape, dtype), given((shape[0], 2), dtype)
    pairs: list[Any] = [
        (lambda a: bc.pinv(a).abs().pow(3), lambda a: linalg.pinv(a).abs().pow(3)),
        (lambda a: bc.lstsq(a, b)[0].abs().pow(3), lambda a: (linalg.pinv(a) @ b).abs().pow(3)),
        (lambda a: bc.cond(a), lambda a: linalg.cond(a)),
        *((lambda a, o=o: bc.matrix_norm(a, o), lambda a, o=o: linalg.matrix_norm(a, o)) for o in ORDERS),
    ]
    if shape[0] == shape[1]:
        pairs += [
            (lambda a, o=o: bc.cond(a, o), lambda a, o=o: norm(a, o) * norm(linalg.inv(a), o))
            for o in ("fro", "nuc", 1, np.inf)
        ]  # fmt: skip
        pairs.append((lambda a: bc.pinv(a + a.mH, hermitian=True).abs(), lambda a: linalg.pinv(a + a.mH).abs()))
    for ours, theirs in pairs:
        got, want = (a.clone().requires_grad_() for _ in range(2))
        ours(got).sum().backward()
        theirs(want).sum().backward()
        near(got.grad, want.grad, 1e-6)
    got, want = (b.clone().requires_grad_() for _ in range(2))
    bc.lstsq(a, got)[0].abs().pow(3).sum().backward()
    (linalg.pinv(a) @ want).abs().pow(3).sum().backward()
    near(got.grad, want.grad)
    leaves = [x.clone().requires_grad_() for x in (a[0], b[0, :, 0])]
    assert torch.autograd.gradcheck(lambda a, b: [one for one in bc.lstsq(a, b) if one.requires_grad], leaves)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (0, 3, 3), (0, 0)], ids=str)
def test_empty_matrices(shape: tuple[int, ...]) -> None:
    a = torch.zeros(shape)
    near(bc.matrix_rank(a), linalg.matrix_rank(a))
    near(bc.pinv(a), linalg.pinv(a))
    near(bc.cond(a), linalg.cond(a))
    near(bc.matrix_norm(a, "nuc"), linalg.matrix_norm(a, "nuc"))


def test_singular_matrices() -> None:
    zero = np.zeros((2, 2))
    assert np.isnan(bc.cond(zero))
    assert all(bc.cond(zero, order) == np.inf for order in (1, np.inf, "fro", "nuc"))
    assert np.isnan(bc.cond(zero + np.nan, 1))


def test_refusals() -> None:
    a = np.ones((3, 2))
    with pytest.raises(InvalidProblemError, match="ord must be 'fro', 'nuc'"):
        bc.matrix_norm(a, 3)
    with pytest.raises(InvalidProblemError, match="two different axes"):
        bc.matrix_norm(a, axis=(0, -2))
    with pytest.raises(InvalidProblemError, match="axis must be two axes"):
        bc.matrix_norm(a, axis=(0, 5))
    with pytest.raises(InvalidProblemError, match=r"a must be matrices \[..., n, n\]"):
        bc.cond(a, "fro")
    with pytest.raises(InvalidProblemError, match=r"a must be matrices \[..., n, n\]"):
        bc.pinv(a, hermitian=True)
    with pytest.raises(UnsupportedError, match="float16"):
        bc.pinv(a.astype(np.float16))
