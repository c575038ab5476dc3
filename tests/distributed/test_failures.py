"""What fails between ranks is one typed error on every rank, and nothing hangs."""

from __future__ import annotations

import pickle
import re
import threading
import time
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

D = bc.distributed
ERRORS: dict[str, tuple[Any, Any, str]] = {
    "shape": (
        D.MismatchError, lambda c: D.all_reduce(np.ones(3 + (c.rank == 2)), c),
        r"rank 2 calls all_reduce with shape \(4,\), rank 0 with \(3,\)",
    ),
    "dtype": (
        D.MismatchError, lambda c: D.all_gather(np.ones(3, "d" if c.rank == 1 else "f"), c),
        "rank 1 calls all_gather with dtype float64, rank 0 with float32",
    ),
    "op": (
        D.MismatchError, lambda c: D.all_reduce(np.ones(3), c, "max" if c.rank else "sum"),
        "rank 1 calls all_reduce with op max, rank 0 with sum",
    ),
    "collective": (
        D.MismatchError, lambda c: D.barrier(c) if c.rank == 2 else D.broadcast(np.ones(3), c),
        "rank 2 calls barrier, rank 0 calls broadcast",
    ),
    "counts": (
        D.MismatchError, lambda c: D.all_to_all_v(np.ones((3, 2)), [1, 1, 1], [1, 1, 1 + (c.rank == 1)], c),
        "rank 2 calls all_to_all_v with 1 rows for rank 1, which takes 2",
    ),
    "missing": (
        D.TimedOutError, lambda c: (c.rank == 1 and time.sleep(1)) or D.barrier(c),
        r"barrier: rank \d waited 0.3 s for rank 1",
    ),
    "gone": (D.RankLostError, lambda c: c.close() if c.rank == 1 else D.barrier(c), "barrier: rank 1 has closed"),
    "abort": (D.AbortedError, lambda c: c.abort() if c.rank == 1 else D.barrier(c), "rank 1 called abort"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_a_failure_is_typed_on_every_rank(name: str) -> None:
    kind, call, said = ERRORS[name]
    found: dict[int, Any] = {}

    def work(comm: Any) -> None:
        try:
            call(comm)
            D.barrier(comm)
        except D.DistributedError as error:
            found[comm.rank] = error
            if name not in ("gone",):
                with pytest.raises(type(error)):  # and stays
                    D.all_gather(np.ones(1), comm)

    D.run_ranks(work, 3, timeout=0.3)
    own = {"gone": {0, 2}}.get(name, {0, 1, 2})
    assert own <= set(found)
    for rank in own:
        assert type(found[rank]) is kind, found
    assert any(re.search(said, str(found[rank])) for rank in own), found


def test_an_error_of_one_rank_aborts_the_others() -> None:
    others = []

    def work(comm: Any) -> None:
        if comm.rank == 1:
            raise KeyError("mine")
        try:
            D.barrier(comm)
        except D.AbortedError as error:
            others.append(str(error))
            raise

    with pytest.raises(KeyError, match="mine"):
        D.run_ranks(work, 4, timeout=10)
    assert len(others) == 3 and all("rank 1 raised KeyError" in one for one in others)


def test_results_that_came_before_a_loss_are_had() -> None:
    """A rank that leaves after its last call fails no one who makes the same call later."""
    late = threading.Event()

    def work(comm: Any) -> Any:
        if comm.rank == 1:
            late.wait(5)
        y = D.all_gather(np.full(1, comm.rank), comm) if comm.rank else None
        if comm.rank == 0:
            late.set()
            y = D.all_gather(np.full(1, comm.rank), comm)
        return y.tolist()

    assert D.run_ranks(work, 3, timeout=5) == [[0, 1, 2]] * 3


def test_splits() -> None:
    def work(comm: Any) -> Any:
        half = comm.split(comm.rank % 2, -comm.rank)
        none = comm.split(None if comm.rank else 0)
        got = D.all_gather(np.full(1, comm.rank), half).tolist(), half.rank, half.size
        assert (none is None) == (comm.rank > 0)
        D.barrier(comm)
        return got

    assert D.run_ranks(work, 5) == [
        ([4, 2, 0], 2, 3), ([3, 1], 1, 2), ([4, 2, 0], 1, 3), ([3, 1], 0, 2), ([4, 2, 0], 0, 3)
    ]  # fmt: skip


def test_a_failed_half_leaves_the_whole() -> None:
    def work(comm: Any) -> Any:
        half = comm.split(comm.rank % 2)
        if comm.rank % 2:
            with pytest.raises(D.MismatchError):
                D.all_reduce(np.ones(half.rank + 1), half)
        else:
            D.barrier(half)
        return int(D.all_reduce(np.ones(1), comm)[0])

    assert D.run_ranks(work, 4, timeout=5) == [4] * 4


@pytest.mark.parametrize("bad", [0, -1, float("nan"), "3", True])
def test_a_time_limit_is_seconds(bad: Any) -> None:
    with pytest.raises(bc.InvalidProblemError, match="timeout must be seconds above 0"):
        D.run_ranks(D.barrier, 2, timeout=bad)


def test_what_is_sent_and_what_is_received() -> None:
    """Another shape, or a collective in the place of a send, fails on both ends."""

    def work(comm: Any, how: str) -> Any:
        try:
            if comm.rank == 0:
                D.send(np.ones(3), comm, 1)
            elif how == "shape":
                D.receive(np.ones(4), comm, 0)
            D.barrier(comm)
            D.barrier(comm)
        except D.DistributedError as error:
            return type(error).__name__, str(error)

    for how, said in (
        ("shape", r"rank 0 calls send_receive with shape \(3,\), rank 1 with \(4,\)"),
        ("barrier", "calls"),
    ):
        found = D.run_ranks(work, 2, how, timeout=5)
        assert [name for name, _ in found] == ["MismatchError"] * 2 and re.search(said, found[1][1]), found


def test_what_is_split_off_ends_with_the_whole() -> None:
    def work(comm: Any, how: str) -> Any:
        half = comm.split(0)
        try:
            if comm.rank == 1:
                comm.abort() if how == "abort" else comm.close()
            D.barrier(half)
        except D.DistributedError as error:
            return type(error)

    assert D.run_ranks(work, 3, "abort", timeout=5) == [D.AbortedError] * 3
    assert D.run_ranks(work, 3, "close", timeout=5) == [D.RankLostError, D.DistributedError, D.RankLostError]


def test_errors_travel() -> None:
    for kind in (D.RankLostError, D.MismatchError, D.TimedOutError, D.AbortedError):
        error = pickle.loads(pickle.dumps(kind("said")))
        assert type(error) is kind and str(error) == "said" and isinstance(error, bc.BaracudaError)
