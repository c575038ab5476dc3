"""2:4 sparsity: known values, ties, the format, products against NumPy, gradients, errors."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError

DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int8)


def brute(x: np.ndarray) -> np.ndarray:
    """Which two of four are kept, by trying: of all pairs the first whose sizes no other pair beats."""
    sizes = [np.inf if np.isnan(v) else abs(float(v)) for v in x]
    order = sorted(range(4), key=lambda j: (not np.isnan(x[j]), -sizes[j], j))
    return np.isin(np.arange(4), order[:2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_of_sizes_with_ties(dtype: Any) -> None:
    rows = np.array(list(itertools.product((0, 1, -1, 2, -128 if dtype is np.int8 else -3), repeat=4))).astype(dtype)
    want = np.array([brute(row.astype(np.float64)) for row in rows])
    assert (bc.sparse24_mask(rows) == want).all()
    y = bc.sparse24_prune(rows)
    assert (y == np.where(want, rows, np.zeros((), dtype))).all()
    values, metadata = bc.sparse24_compress(rows)
    assert (bc.sparse24_decompress(values, metadata) == y).all()
    places = np.stack([metadata[:, 0] & 3, metadata[:, 0] >> 2 & 3], -1)
    assert (places[:, 0] < places[:, 1]).all() and (metadata >> 4 == 4).all()
    assert (np.take_along_axis(want, places.astype(int), 1)).all()


def test_nan_is_the_largest_and_infinity_beats_the_largest_number() -> None:
    nan, inf, most = np.nan, np.inf, np.finfo(np.float32).max
    x = np.float32([[inf, 1, nan, 2], [nan, nan, inf, nan], [most, -inf, most, 1], [-0.0, 0, 0, -0.0]])
    want = [[1, 0, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]
    assert (bc.sparse24_mask(x) == np.array(want, bool)).all()


def test_the_format_of_a_row() -> None:
    x = np.float32([[0, 5, 0, -6, 7, 0, 0, 8, 9, 1, 0, 0]])
    values, metadata = bc.sparse24_compress(x)
    assert values.tolist() == [[5, -6, 7, 8, 9, 1]]
    assert metadata.tolist() == [[(1 | 3 << 2) | (0 | 3 << 2) << 4, (0 | 1 << 2) | 4 << 4]]


def sparse(n: int, k: int, dtype: Any, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    w = rng.integers(-4, 5, (n, k)).astype(dtype)
    values, metadata = bc.sparse24_compress(w)
    return bc.sparse24_prune(w).astype(np.float64), values, metadata


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_small_integers_are_exact(dtype: Any) -> None:
    dense, values, metadata = sparse(7, 36, dtype)
    x = np.random.default_rng(0).integers(-4, 5, (2, 3, 36)).astype(dtype)
    y = bc.sparse24_matmul(x, values, metadata)
    assert y.shape == (2, 3, 7) and y.dtype == (np.int32 if dtype is np.int8 else dtype)
    assert (y.astype(np.float64) == x.astype(np.float64) @ dense.T).all()


def test_int8_over_its_whole_range() -> None:
    rng = np.random.default_rng(3)
    w, x = (rng.choice(np.array([-128, 127, -1, 0], np.int8), (n, 1024)) for n in (5, 3))
    values, metadata = bc.sparse24_compress(w)
    want = x.astype(np.int64) @ bc.sparse24_prune(w).astype(np.int64).T
    assert (bc.sparse24_gemm(x, values, metadata) == want).all()


def test_elements_of_x_without_a_value_count_for_nothing() -> None:
    values, metadata = bc.sparse24_compress(np.float16([[1, 2, 0, 0, 0, 0, 3, 4]]))
    x = np.float16([[1, 1, np.nan, np.inf, np.nan, np.inf, 1, 1]])
    assert bc.sparse24_gemm(x, values, metadata).tolist() == [[10]]


@pytest.mark.parametrize(("element", "m", "row"), [
    ("float16", 176, "mma_sparse"), ("bfloat16", 177, "unpacked_cublas"), ("int8", 224, "mma_sparse"),
    ("int8", 225, "unpacked_cublas_int8"),
])  # fmt: skip
def test_many_rows_go_through_the_dense_matrix(element: str, m: int, row: str) -> None:
    desc = bc.Sparse24GemmDescriptor(m=m, n=64, k=128, element=element)
    out = "int32" if element == "int8" else element
    shapes = {"x": (m, 128), "values": (64, 64), "metadata": (64, 16), "y": (m, 64)}
    kinds = {"metadata": "uint8", "y": out}
    refs = {
        name: bc.TensorRef(n << 30, shape, (shape[1], 1), kinds.get(name, element), 1 << 20)
        for n, (name, shape) in enumerate(shapes.items(), 1)
    }
    for invariant in (False, True):
        preference = bc.PlanPreference(batch_invariant=invariant)
        plan = bc.Sparse24GemmPlan.select(desc, preference, device=fake_device(8.0))
        want = "mma_sparse" if invariant else row
        assert plan.can_implement(bc.Sparse24GemmArgs(**refs)).sku.variant == want


def test_gradients_against_the_dense_product() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values, metadata = bc.sparse24_compress(rng.standard_normal((5, 16)))
    held = [torch.tensor(a).requires_grad_() for a in (rng.standard_normal((2, 3, 16)), values, rng.standard_normal(5))]
    x, v, b = held
    meta = torch.tensor(metadata)
    assert torch.autograd.gradcheck(lambda x, v, b: bc.sparse24_matmul(x, v, meta, b), (x, v, b))
    assert torch.autograd.gradcheck(lambda v: bc.sparse24_decompress(v, meta), (v,))


@pytest.mark.parametrize("straight", [True, False])
def test_gradients_of_pruning(straight: bool) -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(3, 8, dtype=torch.float64)
    bc.sparse24_prune(x, straight_through=straight).backward(dy)
    mask = bc.sparse24_mask(x.detach())
    assert torch.equal(x.grad, dy if straight else torch.where(mask, dy, 0))


def test_errors() -> None:
    x = np.zeros((3, 8), np.float16)
    values, metadata = bc.sparse24_compress(x)
    cases = [
        (lambda: bc.sparse24_prune(np.zeros((3, 6), np.float32)), "multiple of 4"),
        (lambda: bc.sparse24_prune(np.zeros((), np.float32)), "multiple of 4"),
        (lambda: bc.sparse24_matmul(x[:, :4], values, metadata), "values"),
        (lambda: bc.sparse24_matmul(x, values, metadata[:, :0]), "metadata"),
        (lambda: bc.sparse24_matmul(x, values[0], metadata), "two axes"),
        (lambda: bc.sparse24_decompress(values, metadata[:2]), "metadata"),
        (lambda: bc.sparse24_gemm(*(a.astype(np.int8) for a in (x, values)), metadata, np.zeros(3, np.int8)), "bias"),
        (lambda: bc.sparse24_matmul(np.zeros((4, 3, 8), np.float16)[:, ::2], values, metadata), "contiguous"),
    ]
    for call, text in cases:
        with pytest.raises(InvalidProblemError, match=text):
            call()
