"""Ranks of a torch ProcessGroup (gloo, two processes) give what threads give, bit for bit."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import process_ranks as ranks
import pytest

import baracuda_py as bc

D = bc.distributed


def test_a_process_group_gives_what_threads_give(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    context = multiprocessing.get_context("spawn")
    given = (2, str(tmp_path / "meet"), str(tmp_path))
    processes = [context.Process(target=ranks.of_group, args=(rank, *given), daemon=True) for rank in range(2)]
    for one in processes:
        one.start()
    for one in processes:
        one.join(90)
    want = D.run_ranks(ranks.everything, 2, timeout=20)
    for rank in range(2):
        made, found = json.loads((tmp_path / str(rank)).read_text())
        assert made[: len(want[rank])] == [[list(shape), data.hex()] for shape, data in want[rank]]
        assert made[len(want[rank]) :] == [*([[0, 1, 2]] if rank else []), [3.0 * (rank + 1)] * 3]
        assert found[0] == "MismatchError" and found[1:] in (
            ["TimedOutError"],
            ["RankLostError"],
            ["DistributedError"],
        ), found
    with pytest.raises(bc.InvalidProblemError, match="must be a torch ProcessGroup, got Tensor"):
        D.communicator(torch.ones(1))
