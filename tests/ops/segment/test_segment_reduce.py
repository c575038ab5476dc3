"""Reductions of segments against loops: what tells the segments, empty ones, gradients with ties and zeros."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.segment.segment_reduce_backward import SegmentReduceBackwardPlan
from baracuda_py.testing.places import call
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.segment.segment_reduce import SegmentReduceDescriptor, SegmentReducePlan

RNG = np.random.default_rng(11)
NUMPY = {
    "sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min,
    "logsumexp": lambda x, axis: np.log(np.exp(x).sum(axis=axis)),
}  # fmt: skip
EMPTY = {"sum": 0, "mean": 0, "prod": 1, "max": -np.inf, "min": np.inf, "logsumexp": -np.inf}


def looped(kind, x, ids, segments, empty=None):
    y = np.full((segments, *x.shape[1:]), EMPTY[kind] if empty is None else empty, x.dtype)
    for segment in range(segments):
        if (ids == segment).any():
            y[segment] = NUMPY[kind](x[ids == segment], axis=0)
    return y


def function(kind):
    return getattr(bc, f"segment_{kind}")


@pytest.mark.parametrize("kind", NUMPY)
@pytest.mark.parametrize("row", [(), (3,), (2, 4)])
def test_ids_in_any_order(kind, row):
    x, ids = RNG.standard_normal((40, *row)), RNG.integers(-1, 8, 40)
    np.testing.assert_allclose(function(kind)(x, ids, num_segments=7), looped(kind, x, ids, 7), rtol=1e-12)


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_all_that_tells_segments_agrees(kind):
    x, ids = RNG.standard_normal((40, 3)), np.sort(RNG.integers(0, 6, 40))
    edges = np.searchsorted(ids, np.arange(7)).astype(np.int32)
    wanted = looped(kind, x, ids, 6)
    np.testing.assert_allclose(function(kind)(x, ids, num_segments=6, by="sorted"), wanted)
    np.testing.assert_allclose(function(kind)(x, edges, by="offsets"), wanted)
    np.testing.assert_allclose(function(kind)(x, edges[:-1], by="starts"), wanted)
    np.testing.assert_allclose(function(kind)(x, num_segments=5, by="evenly"), looped(kind, x, np.arange(40) // 8, 5))


@pytest.mark.parametrize("kind", NUMPY)
def test_initial_and_empty(kind):
    x, ids = np.abs(RNG.standard_normal((9, 2))), np.array([0, 0, 3, 3, 3, 1, 1, 0, 0])
    got = function(kind)(x, ids, num_segments=4, with_empty=True, empty=-7.5)
    np.testing.assert_allclose(got, looped(kind, x, ids, 4, -7.5))
    got = function(kind)(x, ids, num_segments=4, with_initial=True, initial=0.25)
    more, also = np.concatenate([x, np.full((4, 2), 0.25)]), np.concatenate([ids, np.arange(4)])
    wanted = looped(kind, more, also, 4)
    if kind == "mean":  # the initial one is summed, not counted
        n = np.maximum(np.bincount(ids, minlength=4), 1)[:, None]
        wanted = looped("sum", more, also, 4) / n
    np.testing.assert_allclose(got, wanted)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64])
def test_integers(dtype):
    x, ids = RNG.integers(0, 100, (30, 2)).astype(dtype), RNG.integers(0, 4, 30)
    np.testing.assert_array_equal(bc.segment_sum(x, ids, num_segments=5)[:4], looped("sum", x, ids, 4))
    limits = np.iinfo(dtype)
    assert (bc.segment_max(x, ids, num_segments=5)[4] == limits.min).all()
    assert (bc.segment_min(x, ids, num_segments=5)[4] == limits.max).all()
    with pytest.raises(InvalidProblemError, match="mean takes floats"):
        bc.segment_mean(x, ids, num_segments=5)


def test_nan_wins_and_ties_share():
    x = np.array([1.0, 3.0, 3.0, np.nan, 2.0, np.nan])
    ids = np.array([0, 0, 0, 1, 1, 1])
    y = bc.segment_max(x, ids, num_segments=2)
    np.testing.assert_array_equal(y, [3.0, np.nan])
    dx = bc.segment_reduce_backward(np.array([6.0, 8.0]), ids, x, y, kind="max", num_segments=2)
    np.testing.assert_array_equal(dx, [0, 3, 3, 4, 0, 4])


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradient_of_a_product_with_zeros(zeros):
    x, ids = RNG.standard_normal(12) + 2, np.repeat([0, 1], 6)
    x[:zeros] = 0
    dx = bc.segment_reduce_backward(np.array([2.0, -1.0]), ids, x, kind="prod", num_segments=2)
    wanted = [(2.0 if t < 6 else -1.0) * np.prod(np.delete(x[ids == ids[t]], t % 6)) for t in range(12)]
    np.testing.assert_allclose(dx, wanted, rtol=1e-12)


def test_softmax_sums_to_one():
    x, ids = RNG.standard_normal((50, 3)) * 100, RNG.integers(-1, 6, 50)
    y = bc.segment_softmax(x, ids, num_segments=5)
    known = (ids >= 0) & (ids < 5)
    np.testing.assert_allclose(bc.segment_sum(y, ids, num_segments=5), np.ones((5, 3)))
    assert (y[~known] == 0).all()
    np.testing.assert_allclose(np.exp(bc.segment_log_softmax(x, ids, num_segments=5))[known], y[known], rtol=1e-12)


def test_checked_run(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    x = np.ones((3, 2), np.float32)
    with pytest.raises(InvalidProblemError, match=r"ids must lie in \[0, 2\)"):
        bc.segment_sum(x, np.array([0, 1, 2]), num_segments=2)
    with pytest.raises(InvalidProblemError, match="offsets must ascend"):
        bc.segment_sum(x, np.array([0, 2, 1]), by="offsets")
    with pytest.raises(InvalidProblemError, match="must ascend"):
        bc.segment_sum(x, np.array([1, 0, 1]), num_segments=2, by="sorted")


def test_workspace_without_a_gpu():
    desc = SegmentReduceDescriptor(
        kind="sum", tokens=1 << 20, num_segments=1 << 16, row_shape=(128,), by="offsets", element="bfloat16"
    )
    size = SegmentReducePlan.select(desc, device=fake_device(9.0)).workspace_size()
    assert size % 256 == 0
    assert size < (1 << 20) // 32 * 2 * 128 * 4 + 2**21


def test_jax_agrees():
    jax = pytest.importorskip("jax")
    x, ids = RNG.standard_normal((40, 3)).astype(np.float32), RNG.integers(-1, 8, 40)
    ids = np.where(ids < 0, 9, ids)  # JAX counts negative ids from the end
    for kind in ("sum", "prod", "max", "min"):
        wanted = getattr(jax.ops, f"segment_{kind}")(x, ids, num_segments=7)
        np.testing.assert_allclose(function(kind)(x, ids, num_segments=7), wanted, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("segments", [1, 3, 5000, 100_000])
@pytest.mark.parametrize("tokens", [1, 33, 1025, 40_000])
@pytest.mark.parametrize("dim", [1, 24, 300])
def test_gpu_whole_numbers(segments, tokens, dim):
    """Sums of whole numbers are exact in every order, so that the result is known to the bit."""
    import cupy as cp

    spread = RNG.integers(-1, segments + 1, tokens)
    skewed = np.where(RNG.random(tokens) < 0.7, segments // 2, spread)
    for ids in (spread, skewed.astype(np.int32)):
        x = RNG.integers(-4, 5, (tokens, dim)).astype(np.float32)
        wanted = np.zeros((segments, dim))
        known = (ids >= 0) & (ids < segments)
        np.add.at(wanted, ids[known], x[known])
        got = bc.segment_sum(cp.asarray(x), cp.asarray(ids), num_segments=segments)
        np.testing.assert_array_equal(got.get(), wanted)
        order = np.argsort(ids, kind="stable")
        got = bc.segment_sum(cp.asarray(x[order]), cp.asarray(ids[order]), num_segments=segments, by="sorted")
        np.testing.assert_array_equal(got.get(), wanted)


@pytest.mark.gpu
def test_gpu_decreasing_offsets_touch_nothing_else():
    import cupy as cp

    x = cp.ones((5000, 8), cp.float32)
    for _ in range(20):
        offsets = cp.asarray(RNG.integers(-10, 6000, 400))
        whole = cp.full((401, 8), 7, cp.float32)
        bc.segment_sum(x, offsets, by="offsets", out=whole[:399])
        assert (whole[399:] == 7).all()


@pytest.mark.parametrize(("kind", "combine"), [("sum", any), ("max", any), ("prod", all), ("min", all)])
def test_truths(kind, combine):
    x, ids = RNG.random((30, 3)) < 0.6, RNG.integers(-1, 12, 30)
    wanted = [[combine(column) for column in x[ids == segment].T] for segment in range(12)]
    got = function(kind)(x, ids, num_segments=12)
    assert got.dtype == bool
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("initial", [None, 999.0])
def test_shares_of_exponentials_far_from_zero(place, element, initial):
    """The result is rounded by more than tokens are apart: the gradient sums to dy where nothing else was added."""
    x = (1000 + np.arange(10.0).reshape(5, 2) % 3).astype(element).astype(np.float64)
    ids, dy = np.array([0, 2, 0, 2, 0]), np.array([[1.0, 2], [3, 4], [-1, 0.5]])
    desc = SegmentReduceBackwardPlan.descriptor(
        kind="logsumexp", tokens=5, num_segments=3, row_shape=(2,), with_initial=initial is not None, element=element
    )
    dx = call(SegmentReduceBackwardPlan, desc, ("dx",), place, dy=dy, index=ids, x=x, initial=initial or 0.0)["dx"]
    wanted = np.zeros((5, 2))
    for segment in (0, 2):
        e = np.exp(x[ids == segment] - 1000)
        wanted[ids == segment] = dy[segment] * e / (e.sum(0) + (np.exp(-1) if initial else 0))
    rtol = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-14}[element]
    np.testing.assert_allclose(dx.astype(np.float64), wanted, rtol=rtol)


def test_softmax_of_an_infinity(place: str) -> None:
    """A segment with +inf is NaN throughout, as torch.softmax has it; its neighbours are what they were."""
    x, ids = np.array([[np.inf], [0.0], [1.0], [2.0]]), np.array([0, 0, 1, 1])
    for kind, wanted in (("softmax", [0.2689414213699951, 0.7310585786300049]),
                         ("log_softmax", [-1.3132616875182228, -0.3132616875182228])):  # fmt: skip
        desc = bc.SegmentSoftmaxPlan.descriptor(num_segments=2, kind=kind, tokens=4, row_shape=(1,), element="float64")
        y = call(bc.SegmentSoftmaxPlan, desc, ("y",), place, x=x, index=ids)["y"][:, 0]
        assert np.isnan(y[:2]).all()
        np.testing.assert_allclose(y[2:], wanted, rtol=1e-14)
