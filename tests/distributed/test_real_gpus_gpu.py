"""Processes with a GPU each and NCCL between them, at 2, 4 and 8 ranks: the bits of one GPU and of the host's rows.

A process takes seconds to start, so that each does several checks (gpu_ranks.py).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gpu_ranks as checks
import pytest
from gpu_killed import killed

from baracuda_py import distributed as D
from baracuda_py.backends.nccl import NCCL
from baracuda_py.core.device import driver_device_count

pytest.importorskip("cupy")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver_device_count() < 2, reason="takes two GPUs"),
    pytest.mark.skipif(driver_device_count() >= 2 and bool(NCCL.unavailable()), reason="takes NCCL"),
]
SIZES = [size for size in (2, 4, 8) if size <= max(2, driver_device_count())]


def found(size: int, tmp_path: Path, which: list[Any], *given: int) -> list[str]:
    """What was wrong on any rank."""
    made = D.run_ranks(checks.on_gpu, size, str(tmp_path), which, *given, engine="processes", timeout=120.0)
    return sorted({one for rank in made for one in rank})


@pytest.mark.parametrize("size", SIZES)
def test_collectives_have_the_bits_of_the_host(size: int, tmp_path: Path) -> None:
    assert found(size, tmp_path, [checks.collectives], 40_000) == []


@pytest.mark.parametrize("size", SIZES)
def test_layers_have_the_bits_of_one_gpu_with_and_without_overlap(size: int, tmp_path: Path) -> None:
    assert found(size, tmp_path, [checks.layers], 2304, 1024, 1536) == []


@pytest.mark.parametrize("size", SIZES)
def test_losses_have_the_bits_of_one_gpu(size: int, tmp_path: Path) -> None:
    assert found(size, tmp_path, [checks.losses], 256, 256, 4096) == []


@pytest.mark.parametrize("size", SIZES)
def test_states_graphs_and_autograd(size: int, tmp_path: Path) -> None:
    assert found(size, tmp_path, [checks.states, checks.autograd, checks.copied, checks.graphs]) == []


@pytest.mark.parametrize("size", SIZES)
def test_sequences_and_experts(size: int, tmp_path: Path) -> None:
    assert found(size, tmp_path, [checks.sequences], 2048, 128) == []


@pytest.mark.parametrize("layered", [False, True], ids=("collective", "layer"))
@pytest.mark.parametrize("size", SIZES)
def test_a_killed_rank_fails_all_others_and_hangs_nobody(size: int, layered: bool, tmp_path: Path) -> None:
    notes, meeting = tmp_path / "notes", tmp_path / "meeting"
    notes.mkdir()
    meeting.mkdir()
    started = time.monotonic()
    with pytest.raises(D.DistributedError):
        D.run_ranks(killed, size, str(meeting), str(notes), layered, engine="processes", timeout=15.0)
    assert time.monotonic() - started < 60
    for rank in (rank for rank in range(size) if rank != 1):
        first, again, works, took, text = (notes / str(rank)).read_text().split("|", 4)
        assert first in ("RankLostError", "AbortedError", "TimedOutError"), text
        assert again in ("RankLostError", "AbortedError", "TimedOutError")
        assert works == "True" and float(took) < 30
