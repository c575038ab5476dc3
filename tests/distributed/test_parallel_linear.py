"""Linear layers over ranks: the bits of one rank on 2, 4 and 8, gradients, layouts, errors."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import distributed as D
from baracuda_py.distributed.shares import slice_bounds

SIZES = (1, 2, 4, 8)
ELEMENTS = (np.float32, ml_dtypes.bfloat16, np.float16)  # float64 products on the host are BLAS's, of any order
LEAD, IN, OUT = (8, 3), 48, 72


def part(x: Any, comm: Any, axis: int) -> Any:
    return np.ascontiguousarray(np.split(x, comm.size, axis)[comm.rank])


@cache
def operands(element: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(7)
    shapes = ((*LEAD, IN), (OUT, IN), (OUT,), (*LEAD, OUT))
    return tuple(rng.standard_normal(shape).astype(element) for shape in shapes)


def column(comm: Any, element: Any, scattered: bool = False, slices: int = 8) -> tuple[Any, ...]:
    """y, dx, dweight, dbias of this rank, dx whole."""
    x, w, b, dy = operands(element)
    own = (part(x, comm, 0) if scattered else x, part(w, comm, 0), part(b, comm, 0), comm)
    given = {"sequence_parallel": scattered, "slices": slices}
    dx, *rest = D.column_parallel_linear_backward(part(dy, comm, 2), *own, **given)
    return D.column_parallel_linear(*own, **given), dx, *rest


def row(comm: Any, element: Any, scattered: bool = False, slices: int = 8) -> tuple[Any, ...]:
    x, w, b, dy = operands(element)
    own = (part(x, comm, 2), part(w, comm, 1), b, comm)
    given = {"sequence_parallel": scattered, "slices": slices}
    grads = D.row_parallel_linear_backward(part(dy, comm, 0) if scattered else dy, *own, **given)
    return D.row_parallel_linear(*own, **given), *grads


def joined(made: list[Any], axes: tuple[int | None, ...]) -> list[np.ndarray]:
    """The results of all ranks as those of one; along no axis every rank has the same."""
    whole = []
    for axis, *each in zip(axes, *made, strict=True):
        if axis is None:
            assert all(one.tobytes() == each[0].tobytes() for one in each)
        whole.append(each[0] if axis is None else np.concatenate(each, axis))
    return whole


AXES = {(column, False): (2, None, 0, 0), (column, True): (2, 0, 0, 0)}
AXES |= {(row, False): (None, 2, 1, None), (row, True): (0, 2, 1, None)}


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda one: np.dtype(one).name)
@pytest.mark.parametrize("layer", (column, row), ids=lambda one: one.__name__)
def test_bits_are_those_of_one_rank(layer: Any, element: Any) -> None:
    (alone,) = D.run_ranks(layer, 1, element)
    for scattered in (False, True):
        for size in SIZES:
            made = joined(D.run_ranks(layer, size, element, scattered), AXES[layer, scattered])
            for one, two in zip(alone, made, strict=True):
                assert one.dtype == two.dtype and one.tobytes() == two.tobytes()


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda one: np.dtype(one).name)
def test_results_are_near_and_every_other_order_of_sums_has_other_bits(element: Any) -> None:
    x, w, b, dy = (one.astype(np.float64) for one in operands(element))
    flat_x, flat_dy = x.reshape(-1, IN), dy.reshape(-1, OUT)
    want = (x @ w.T + b, dy @ w, flat_dy.T @ flat_x, flat_dy.sum(axis=0))
    eps = float(ml_dtypes.finfo(element).eps)
    for layer, summed in ((column, 1), (row, 0)):
        (made,) = D.run_ranks(layer, 1, element)
        for one, two in zip(made, want, strict=True):
            assert np.abs(one.astype(np.float64) - two).max() <= 2 * max(eps, 2.0**-22) * np.abs(two).max()
        if element is np.float32:  # 16 bits hide what the last bits of float32 tell
            for slices in (1, 2, 4, 16):
                (other,) = D.run_ranks(layer, 1, element, False, slices)
                assert other[summed].tobytes() != made[summed].tobytes()


def test_the_order_is_the_binary_tree_over_slices() -> None:
    x, w, b, _ = operands(np.float32)
    cuts = [slice(6 * i, 6 * i + 6) for i in range(8)]
    p = [(x[..., c].astype(np.float64) @ w[:, c].astype(np.float64).T).astype(np.float32) for c in cuts]
    tree = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7])) + b
    chain = p[0]
    for one in p[1:]:
        chain = chain + one
    for size in SIZES:
        y = D.run_ranks(row, size, np.float32)[0][0]
        assert y.tobytes() == tree.tobytes() and y.tobytes() != (chain + b).tobytes()


def test_gathered_columns_and_split_input() -> None:
    x, w, b, dy = operands(np.float32)

    def work(comm: Any) -> Any:
        own, options = (x, part(w, comm, 0), part(b, comm, 0), comm), {"gather_output": True}
        grads = D.column_parallel_linear_backward(dy, *own, **options)
        out = np.empty(dy.shape, np.float32)
        assert D.column_parallel_linear(*own, **options, out=out) is out
        second = (x, part(w, comm, 1), b, comm)
        y = D.row_parallel_linear(*second, split_input=True)
        return out, grads[0], y, D.row_parallel_linear_backward(dy, *second, split_input=True)[0]

    alone, made = D.run_ranks(work, 1)[0], D.run_ranks(work, 4)
    for rank in made:  # columns stand in the order of W's rows, not interleaved by rank
        assert all(one.tobytes() == two.tobytes() for one, two in zip(alone, rank, strict=True))
    assert np.allclose(alone[0], x @ w.T + b, atol=1e-4)


def test_options() -> None:
    x, w, b, dy = operands(ml_dtypes.bfloat16)
    for function, backward in (
        (D.column_parallel_linear, D.column_parallel_linear_backward),
        (D.row_parallel_linear, D.row_parallel_linear_backward),
    ):
        y = function(x, w)  # one rank alone, without a bias
        assert y.shape == dy.shape and np.array_equal(y, D.run_ranks(lambda c, f=function: f(x, w, None, c), 1)[0])
        dx, dweight, dbias = backward(dy, x, w, dweight_element="float32")
        assert dweight.dtype == np.float32 and dbias is None and dx.dtype == x.dtype
        assert np.array_equal(dweight.astype(w.dtype), backward(dy, x, w)[1])
        assert backward(dy, x, w, b, return_dx=False, return_dweight=False)[:2] == (None, None)
        assert function(x[:0], w, b).shape == (0, *LEAD[1:], OUT)
        views = function(x[..., ::2], np.asfortranarray(w)[:, ::2], b)
        assert np.array_equal(views, function(x[..., ::2].copy(), w[:, ::2].copy(), b))


def test_slices_where_nothing_divides() -> None:
    def bounds(extent: int, size: int, rank: int, slices: int) -> Any:
        return slice_bounds(extent, type("Comm", (), {"size": size, "rank": rank}), slices)

    for extent, slices in ((22, 8), (4, 8), (96, 16)):  # 4 columns make 8 slices, of which some have none
        whole = bounds(extent, 1, 0, slices)
        assert whole[0][0] == 0 and whole[-1][1] == extent and len(whole) == slices
        half = [bounds(extent // 2, 2, rank, slices) for rank in (0, 1)]
        assert half[0] + [(a + extent // 2, b + extent // 2) for a, b in half[1]] == whole
    assert bounds(5, 3, 1, 12) == [(0, 1), (1, 2), (2, 3), (3, 5)]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 4)).astype(np.float32), rng.standard_normal((3, 4)).astype(np.float32)
    made = [D.run_ranks(lambda c: D.row_parallel_linear(part(x, c, 1), part(w, c, 1), None, c), p)[0] for p in (1, 2)]
    assert made[0].tobytes() == made[1].tobytes() and np.allclose(made[0], x @ w.T, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x, w, b, c: D.row_parallel_linear(x, w, b, c, slices=7), "slices must be a power of two"),
        (lambda x, w, b, c: D.column_parallel_linear(x, w, b, c, slices=1), "slices must be a power of two"),
        (lambda x, w, b, c: D.row_parallel_linear(x[..., :3], w, b, c), "weight_shard must be"),
        (lambda x, w, b, c: D.column_parallel_linear(x, w, b[:2], c), "bias_shard must have shape"),
        (lambda x, w, b, c: D.column_parallel_linear(x, w, b, c, gather_output=1), "gather_output must be True"),
        (lambda x, w, b, c: D.row_parallel_linear(x[..., :5], w, b, c, split_input=True), "equal parts"),
        (lambda x, w, b, c: D.row_parallel_linear(x.swapaxes(0, 1), w, b, c), "give a contiguous copy"),
        (lambda x, w, b, c: D.row_parallel_linear(x.astype(int), w.astype(int), b, c), "x_shard must be float16"),
        (lambda x, w, b, c: D.row_parallel_linear(x[0, 0, 0, None][0:1].reshape(()), w, b, c), "weight_shard must be"),
        (lambda x, w, b, c: D.row_parallel_linear(x.astype(np.float16), w, b, c), "must be float16 as x_shard is"),
        (lambda x, w, b, c: D.row_parallel_linear(x, w, b, "ranks"), "comm must be a Communicator"),
    ],
)
def test_errors_come_before_anything_is_sent(call: Any, match: str) -> None:
    x, w, b, _ = operands(np.float32)
    with pytest.raises(bc.InvalidProblemError, match=match):
        D.run_ranks(lambda comm: call(x, w, b, comm), 2)


def test_tree_sum() -> None:
    rng = np.random.default_rng(1)
    xs = list(rng.standard_normal((8, 50)).astype(np.float32))
    before = [x.copy() for x in xs]
    total = D.TreeSum()
    for x in xs:
        total.add(x)
    made = total.result()
    assert made.tobytes() == (((xs[0] + xs[1]) + (xs[2] + xs[3])) + ((xs[4] + xs[5]) + (xs[6] + xs[7]))).tobytes()
    assert all(np.array_equal(x, y) for x, y in zip(xs, before, strict=True))
    for x in xs[:3]:  # used again, and of no power of two; of lists
        total.add([x, x[:4]])
    one, two = total.result()
    assert one.tobytes() == ((xs[0] + xs[1]) + xs[2]).tobytes() and two.tobytes() == one[:4].tobytes()
    with pytest.raises(bc.InvalidProblemError, match="nothing was added"):
        total.result()
    total.add([xs[0]])
    with pytest.raises(bc.InvalidProblemError, match="and not both"):
        total.add(xs[0])
    with pytest.raises(bc.InvalidProblemError, match="must have 1 arrays"):
        total.add(xs[:2])
    with pytest.raises(bc.InvalidProblemError, match=r"shape \(50,\), got \(3,\)"):
        total.add([xs[0][:3]])
