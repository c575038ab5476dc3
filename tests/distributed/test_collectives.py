"""Collectives on threads against NumPy on the stacked parts of all ranks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

D = bc.distributed
SIZES = (1, 2, 3, 5, 8)
KINDS = [kind for kind in ElementKind if kind.bits >= 8]


def parts(size: int, shape: tuple[int, ...], kind: Any = "float64", seed: int = 0) -> list[np.ndarray]:
    """A part for each rank."""
    rng, kind = np.random.default_rng(seed), ElementKind.of(kind)
    if kind is ElementKind.BOOL or kind.is_integer:
        return [rng.integers(0, 2 if kind is ElementKind.BOOL else 100, shape).astype(kind.dtype) for _ in range(size)]
    made = [rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for _ in range(size)]
    return [
        (one if kind.is_complex else abs(one.real) if kind is ElementKind.E8M0 else one.real).astype(kind.dtype)
        for one in made
    ]


def on_ranks(xs: list[np.ndarray], call: Any, **options: Any) -> list[Any]:
    return D.run_ranks(lambda comm: call(xs[comm.rank], comm), len(xs), timeout=20, **options)


def test_sums_have_one_order() -> None:
    """Every size of message: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), in float32 where the element is narrower."""
    for kind in ("float32", "float16", "bfloat16"):
        for count in (1, 7, 50001):
            xs = parts(7, (count,), kind)
            a, b, c, d, e, f, g = (x.astype(np.float32) for x in xs)
            want = (((a + b) + (c + d)) + ((e + f) + g)).astype(xs[0].dtype)
            for y in on_ranks(xs, D.all_reduce):
                assert y.tobytes() == want.tobytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "mean"])
def test_reductions(size: int, op: str) -> None:
    for shape in ((size * 3, 2), (0, 4), (2 * size, 1, 3)):
        xs = parts(size, shape)
        want = getattr(np, op)(np.stack(xs), axis=0)
        for y in on_ranks(xs, lambda x, comm, op=op: D.all_reduce(x, comm, op)):
            np.testing.assert_allclose(y, want, rtol=1e-13, atol=1e-13)
        got = on_ranks(xs, lambda x, comm: D.reduce_scatter(x, comm, op))
        np.testing.assert_allclose(np.concatenate(got), want, rtol=1e-13, atol=1e-13)
        got = on_ranks(xs, lambda x, comm: D.reduce(x, comm, op, comm.size - 1))
        assert got[:-1] == [None] * (size - 1)
        np.testing.assert_allclose(got[-1], want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("size", SIZES)
def test_moves(size: int) -> None:
    xs = parts(size, (size, 2 * size, 3))
    for axis in (0, 1, -1):
        for y in on_ranks(xs, lambda x, comm, axis=axis: D.all_gather(x, comm, axis)):
            np.testing.assert_array_equal(y, np.concatenate(xs, axis))
    for y in on_ranks(xs, lambda x, comm: D.broadcast(x, comm, comm.size - 1)):
        np.testing.assert_array_equal(y, xs[-1])
    for split, concat in ((0, 0), (1, 2), (0, 1)):
        got = on_ranks(xs, lambda x, comm, at=(split, concat): D.all_to_all(x, comm, *at))
        pieces = [np.split(x, size, split) for x in xs]
        for rank, y in enumerate(got):
            np.testing.assert_array_equal(y, np.concatenate([piece[rank] for piece in pieces], concat))
    ring = [(rank, (rank + 1) % size) for rank in range(size)]
    for rank, y in enumerate(on_ranks(xs, lambda x, comm: D.permute(x, comm, ring))):
        np.testing.assert_array_equal(y, xs[rank - 1])
    got = on_ranks(xs, lambda x, comm: D.permute(x, comm, ring[:-1]))
    assert not got[0].any() and len(got) == size
    got = on_ranks(
        xs, lambda x, comm: D.send_receive(x, comm, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
    )
    for rank, y in enumerate(got):
        np.testing.assert_array_equal(y, xs[rank - 1])


def test_rows_of_counts() -> None:
    counts = np.array([[0, 2, 1], [3, 0, 0], [1, 1, 1]])
    xs = [np.arange(sum(row) * 2).reshape(-1, 2) + 100 * rank for rank, row in enumerate(counts)]
    got = on_ranks(xs, lambda x, comm: D.all_to_all_v(x, counts[comm.rank], counts[:, comm.rank], comm))
    starts = np.cumsum(counts, 1) - counts
    for rank, y in enumerate(got):
        want = [xs[s][starts[s, rank] : starts[s, rank] + counts[s, rank]] for s in range(3)]
        np.testing.assert_array_equal(y, np.concatenate(want))


def test_send_and_receive() -> None:
    def work(comm: Any) -> Any:
        if comm.rank == 0:
            for value in range(3):
                D.send(np.full(2, value), comm, 1)
            return None
        return [D.receive(np.empty(2, int), comm, 0).tolist() for _ in range(3)]

    assert D.run_ranks(work, 2)[1] == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_element(kind: ElementKind) -> None:
    xs = parts(3, (3, 5), kind)
    for y in on_ranks(xs, D.all_gather):
        assert y.dtype == kind.dtype and y.tobytes() == np.concatenate(xs).tobytes()
    for op in ("sum", "min"):
        try:
            got = on_ranks(xs, lambda x, comm, op=op: D.all_reduce(x, comm, op))
        except UnsupportedError as error:
            refused = {"bool", "float8_e8m0fnu"} if op == "sum" else {"complex64", "complex128", "float8_e8m0fnu"}
            assert str(kind) in refused and str(kind) in str(error)
            continue
        wide = [x.astype(kind.acc.dtype if kind.is_float else x.dtype) for x in xs]
        want = (wide[0] + wide[1]) + wide[2] if op == "sum" else np.minimum(np.minimum(wide[0], wide[1]), wide[2])
        assert got[0].tobytes() == want.astype(kind.dtype).tobytes()


def test_strided_and_in_place() -> None:
    base = [np.arange(48.0).reshape(6, 8) + rank for rank in range(2)]
    for view in (lambda a: a[::2, ::-1], lambda a: a.T, lambda a: a[:, 1:5]):
        want = sum(view(a) for a in base)
        for y in on_ranks(base, lambda x, comm, view=view: D.all_reduce(view(x), comm)):
            np.testing.assert_array_equal(y, want)
        out = [np.zeros_like(view(a)) for a in base]
        got = on_ranks(base, lambda x, comm, v=view, out=out: D.all_reduce(v(x), comm, out=out[comm.rank]))
        assert all(y is one for y, one in zip(got, out, strict=True))
        np.testing.assert_array_equal(out[1], want)
    xs = parts(4, (8, 9001))
    want = sum(xs)
    got = on_ranks([x.copy() for x in xs], lambda x, comm: D.all_reduce(x, comm, out=x))
    np.testing.assert_allclose(got[3], want)
    full = [np.zeros((4, 3)) for _ in range(4)]
    for rank, one in enumerate(full):
        one[rank] = rank + 1
    on_ranks(full, lambda x, comm: D.all_gather(x[comm.rank : comm.rank + 1], comm, out=x))
    np.testing.assert_array_equal(full[2], np.repeat([[1.0], [2], [3], [4]], 3, 1))


BAD: dict[str, Any] = {
    "axis 0 of shape .3,. must be a multiple of the 2 ranks": lambda c: D.reduce_scatter(np.ones(3), c),
    "axis must be in": lambda c: D.all_gather(np.ones(3), c, 1),
    "axis must name an axis": lambda c: D.all_gather(np.ones(()), c),
    "root must be a rank from 0 to 1, got 2": lambda c: D.broadcast(np.ones(3), c, 2),
    "op must be one of": lambda c: D.all_reduce(np.ones(3), c, "median"),
    "x must be an array": lambda c: D.all_reduce(3.0, c),
    "comm must be a Communicator": lambda c: D.all_reduce(np.ones(3), None),
    "out must be float64, got float32": lambda c: D.all_reduce(np.ones(3), c, out=np.ones(3, "f")),
    "preference must be a PlanPreference": lambda c: D.all_reduce(np.ones(3), c, preference={}),
    "out has places that share memory": lambda c: D.all_reduce(
        np.ones(3), c, out=np.lib.stride_tricks.as_strided(np.ones(1), (3,), (0,))
    ),
    "must add up to the rows": lambda c: D.all_to_all_v(np.ones(3), [1, 1], [1, 1], c),
    "a count for each of 2 ranks": lambda c: D.all_to_all_v(np.ones(3), [3], [1, 1], c),
    "receives twice": lambda c: D.permute(np.ones(3), c, [(0, 1), (1, 1)]),
    "pairs name rank 2": lambda c: D.permute(np.ones(3), c, [(0, 2)]),
    "to must be a rank": lambda c: D.send(np.ones(3), c, -1),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_refused_before_anything_is_sent(said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        D.run_ranks(BAD[said], 2, timeout=5)


def test_bfloat16_is_rounded_once() -> None:
    xs = [np.full(3, value, ml_dtypes.bfloat16) for value in (256, 1, 1)]
    assert on_ranks(xs, D.all_reduce)[0].astype(float).tolist() == [258.0] * 3
