"""Ranks with a GPU each, as processes and as threads, and threads that share one: sums by reads of peers' memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peer_ranks as ranks
import pytest

import baracuda_py as bc
from baracuda_py.core.device import driver_device_count, resolve_device
from baracuda_py.distributed import peers

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu
D = bc.distributed
TASKS = {
    "sizes": (ranks.sizes, ()), "elements": (ranks.elements, ()), "many": (ranks.many, (1000,)),
    "graphs": (ranks.graphs, (100,)), "moving": (ranks.moving, ()), "norms": (ranks.norms, ()),
}  # fmt: skip


def several(size: int) -> None:
    if driver_device_count() < size:
        pytest.skip(f"takes {size} GPUs")


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("task", TASKS)
def test_processes(task: str, size: int) -> None:
    several(size)
    function, given = TASKS[task]
    D.run_ranks(function, size, False, *given, engine="processes", timeout=60)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("task", TASKS)
def test_threads(task: str, size: int) -> None:
    several(size)
    function, given = TASKS[task]
    D.run_ranks(function, size, False, *given, timeout=60)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("task", ["sizes", "elements", "graphs"])
def test_threads_that_share_a_gpu(task: str, size: int) -> None:
    """Their kernels wait for one another, and so must run at once: what loads or allocates is warmed up before."""
    function, given = TASKS[task]
    D.run_ranks(function, size, True, *given, timeout=20)


@pytest.mark.parametrize("size", [2, 4])
def test_a_killed_rank_ends_the_others_kernels(size: int, tmp_path: Path) -> None:
    several(size)
    with pytest.raises(D.RankLostError):
        D.run_ranks(ranks.killed, size, str(tmp_path), engine="processes", timeout=30)
    assert {path.name for path in tmp_path.iterdir()} == {str(rank) for rank in range(size) if rank != 1}


@pytest.mark.parametrize("share", [True, False])
def test_a_rank_that_does_not_come(share: bool) -> None:
    if not share:
        several(2)
    D.run_ranks(ranks.late, 2, share, timeout=2)


def test_why_ranks_on_one_gpu_have_no_way() -> None:
    def work(comm: Any) -> None:
        assert "has the same GPU" in peers.reached(comm, resolve_device(0))

    D.run_ranks(work, 2, timeout=20)
