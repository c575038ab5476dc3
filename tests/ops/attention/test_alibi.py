"""alibi and its backward: published slopes, known values, rounding, identities, layouts on the GPU."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.dense.alibi import AlibiArgs, AlibiDescriptor, AlibiPlan, alibi, alibi_slopes
from baracuda_py.ops.attention.dense.alibi_backward import (
    AlibiBackwardArgs,
    AlibiBackwardDescriptor,
    AlibiBackwardPlan,
    alibi_backward,
)

RNG = np.random.default_rng(9)


def published_slopes(n: int) -> list[float]:
    """The authors' recursion (their appendix A): a power of two is a geometric series, others borrow from the next."""
    if n & (n - 1) == 0:
        return [2.0 ** (-8.0 * (h + 1) / n) for h in range(n)]
    below = 2 ** (n.bit_length() - 1)
    return published_slopes(below) + published_slopes(2 * below)[0::2][: n - below]


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8, 12, 16, 40, 71, 112])
def test_slopes_are_the_published_ones(heads):
    slopes = alibi_slopes(heads)
    assert slopes.dtype == np.float32 and slopes.shape == (heads,)
    np.testing.assert_allclose(slopes, published_slopes(heads), rtol=1e-7)


def test_known_slopes():
    np.testing.assert_array_equal(alibi_slopes(8), [2.0**-k for k in range(1, 9)])
    np.testing.assert_allclose(alibi_slopes(12, np.float64)[8:], [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5], rtol=1e-15)
    assert alibi_slopes(0).shape == (0,)
    for bad in (-1, 2.0, True):
        with pytest.raises(InvalidProblemError, match="num_heads"):
            alibi_slopes(bad)


def test_known_values():
    y = alibi(np.zeros((1, 2, 3, 4)), np.array([1.0, 0.5]))
    distance = [[0, 1, 2, 3], [-1, 0, 1, 2], [-2, -1, 0, 1]]
    np.testing.assert_array_equal(y[0], [distance, np.multiply(distance, 0.5)])


def test_slopes_of_samples():
    scores, slopes = RNG.standard_normal((3, 2, 4, 5)), RNG.standard_normal((3, 2))
    y = alibi(scores, slopes)
    for b in range(3):
        np.testing.assert_array_equal(y[b], alibi(scores[b : b + 1], slopes[b])[0])
    np.testing.assert_array_equal(alibi(scores, slopes[:1]), alibi(scores, slopes[0]))
    with pytest.raises(InvalidProblemError, match="slope_batch"):
        alibi(scores, slopes[:2])


def test_softmax_forgets_a_constant_of_the_query():
    """Only distances matter: with key positions shifted, every row of scores moves by a constant."""
    scores, slopes = RNG.standard_normal((1, 2, 3, 9)), alibi_slopes(2, np.float64)
    rows = alibi(scores, slopes)
    later = scores + slopes[:, None, None] * (np.arange(9) + 100.0)
    np.testing.assert_allclose(np.diff(rows, axis=-1), np.diff(later, axis=-1), atol=1e-12)


def test_in_place():
    scores, slopes = RNG.standard_normal((2, 3, 4, 6)), alibi_slopes(3, np.float64)
    expected = alibi(scores, slopes)
    desc = AlibiDescriptor(batch_size=2, num_heads=3, query_len=4, key_len=6, element="float64")
    AlibiPlan.select(desc, device="cpu").run(AlibiArgs(scores=scores, slopes=slopes, y=scores))
    np.testing.assert_array_equal(scores, expected)


@pytest.mark.parametrize("slope_batch", [(), (1,), (2,)])
def test_backward_is_the_adjoint(slope_batch):
    scores, dy = RNG.standard_normal((2, 2, 3, 5, 7))
    slopes = RNG.standard_normal((*slope_batch, 3))
    dscores, dslopes = alibi_backward(dy, slope_batch=slope_batch)
    np.testing.assert_array_equal(dscores, dy)
    assert dslopes.shape == slopes.shape
    linear = np.vdot(dy, alibi(scores, slopes))
    np.testing.assert_allclose(linear, np.vdot(dscores, scores) + np.vdot(dslopes, slopes), rtol=1e-12)


def test_backward_wants_one_output_at_least():
    dy = RNG.standard_normal((1, 2, 3, 4))
    desc = AlibiBackwardDescriptor(batch_size=1, num_heads=2, query_len=3, key_len=4, element="float64")
    plan = AlibiBackwardPlan.select(desc, device="cpu")
    verdict = plan.can_implement(AlibiBackwardArgs(dy=dy))
    assert not verdict and "both None" in verdict.reason
    with pytest.raises(InvalidProblemError, match="both None"):
        plan.run(AlibiBackwardArgs(dy=dy))
    only = alibi_backward(dy, return_dscores=False)
    np.testing.assert_array_equal(only, alibi_backward(dy)[1])


def test_sums_over_nothing_are_zero():
    np.testing.assert_array_equal(alibi_backward(np.zeros((0, 3, 4, 5)), return_dscores=False), np.zeros(3))
    np.testing.assert_array_equal(alibi_backward(np.zeros((2, 3, 4, 0)), return_dscores=False), np.zeros(3))


def test_workspace_without_a_gpu():
    desc = AlibiBackwardDescriptor(batch_size=4, num_heads=16, query_len=2048, key_len=2048, element="bfloat16")
    plan = AlibiBackwardPlan.select(desc, device=fake_device(9.0))
    assert str(plan.sku) == "attention.alibi_backward/two_pass/bfloat16.float32/contiguous/sm80/bespoke"
    assert plan.workspace_size() == 4 * 16 * (2048 * 2048 // 8192) * 4


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize(("queries", "keys"), [(300, 1032), (304, 1031), (301, 1031), (1, 70001)])
def test_gpu_matrices_of_several_slabs(dtype, queries, keys):
    """Rows of whole chunks, rows that chunks cross, a matrix that ends within a chunk; views agree in bits."""
    import cupy as cp

    acc = np.float64 if dtype == np.float64 else np.float32
    scores = RNG.standard_normal((2, 3, queries, keys)).astype(dtype)
    slopes = alibi_slopes(3, acc)
    x, s = cp.asarray(scores), cp.asarray(slopes)
    distance = np.arange(keys)[None] - np.arange(queries)[:, None].astype(np.float64)
    y = alibi(x, s)
    truth = scores.astype(np.float64) + slopes[:, None, None].astype(np.float64) * distance
    tiny = {np.float16: 2e-3, np.float32: 2e-7, np.float64: 4e-16}.get(dtype, 8e-3)
    np.testing.assert_allclose(y.get().astype(np.float64), truth, rtol=tiny, atol=tiny)
    dscores, dslopes = alibi_backward(x)
    np.testing.assert_array_equal(dscores.get().view(np.uint8), scores.view(np.uint8))
    terms = scores.astype(np.float64) * distance
    size = np.abs(terms).sum((0, 2, 3))
    np.testing.assert_array_less(np.abs(dslopes.get() - terms.sum((0, 2, 3))) / size, 32 * np.finfo(acc).eps)
    per_sample = alibi_backward(x, return_dscores=False, slope_batch=(2,))
    np.testing.assert_allclose(per_sample.get().sum(0), dslopes.get(), rtol=1e-3, atol=float(size.max()) * 1e-6)
    wide = cp.zeros((2, 3, queries, keys + 3), x.dtype)
    view = wide[..., 3:]  # neither dense nor aligned
    view[...] = x
    np.testing.assert_array_equal(alibi(view, s).get().view(np.uint8), y.get().view(np.uint8))
    np.testing.assert_array_equal(alibi_backward(view)[1].get(), dslopes.get())


@pytest.mark.gpu
def test_gpu_sums_of_long_slabs():
    """Enough work that a thread sums 32 chunks; small integers, so that every sum is exact in any order."""
    import cupy as cp

    heads, queries, keys = 64, 1056, 1024
    dy = cp.asarray(RNG.integers(-2, 3, (heads, queries, keys)), cp.float16)[None]
    distance = np.arange(keys)[None] - np.arange(queries)[:, None]
    exact = np.einsum("hij,ij->h", dy[0].get().astype(np.int64), distance)
    padded = cp.zeros((1, heads, queries, keys + 8), dy.dtype)[..., 8:]
    padded[...] = dy
    odd = cp.zeros((1, heads, queries, keys + 1), dy.dtype)[..., 1:]
    odd[...] = dy
    for one in (dy, padded, odd):
        sums = alibi_backward(one, return_dscores=False).get()
        assert np.abs(exact).max() < 2**24
        np.testing.assert_array_equal(sums, exact)
        np.testing.assert_array_equal(alibi_backward(one)[1].get(), exact)


@pytest.mark.gpu
def test_gpu_infinities_keep_their_sign():
    """One infinity ahead of its query, behind it, and at it: its product with the distance, and nothing else's."""
    import cupy as cp

    for dtype in (np.float16, np.float32, np.float64):
        dy = np.zeros((1, 3, 20, 24), dtype)
        dy[0, 0, 5, 7], dy[0, 1, 5, 0], dy[0, 2, 5, 5] = np.inf, np.inf, np.inf
        for one in (cp.asarray(dy), cp.asarray(dy)[:, :, 1:, 1:]):
            np.testing.assert_array_equal(alibi_backward(one, return_dscores=False).get()[[0, 2]], [np.inf, np.nan])
        assert alibi_backward(cp.asarray(dy))[1].get()[1] == -np.inf


@pytest.mark.gpu
def test_gpu_far_keys():
    import cupy as cp

    keys = 2**25 + 8
    y = alibi(cp.zeros((1, 1, 1, keys), cp.float32), cp.asarray([0.1], cp.float32))[0, 0, 0]
    at = np.array([1, 2**23 - 1, 2**23, 2**24 - 1, 2**24, 2**24 + 1, keys - 1])
    exact = np.array([float(Fraction(float(np.float32(0.1))) * int(j)) for j in at])
    np.testing.assert_array_equal(y[cp.asarray(at)].get(), exact.astype(np.float32))
