"""Ranks that are processes: results of threads, bit for bit, and failures that are typed on every rank."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import process_ranks as ranks
import pytest

import baracuda_py as bc
from baracuda_py.distributed.rendezvous import Listener

D = bc.distributed


def test_processes_give_what_threads_give() -> None:
    made = D.run_ranks(ranks.everything, 3, engine="processes", timeout=30)
    assert made == D.run_ranks(ranks.everything, 3, timeout=30)


@pytest.mark.parametrize("how", ranks.KILLED)
def test_a_killed_rank_is_lost_on_every_other(how: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(D.RankLostError, match="rank 1 ended"):
        D.run_ranks(ranks.killed, 4, how, str(tmp_path), engine="processes", timeout=30)
    notes = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(notes) == {"0", "2", "3"} and time.monotonic() - began < 20
    assert all(note.startswith("RankLostError: all_reduce: rank 1 ended") for note in notes.values()), notes


def test_faults_are_typed_on_every_rank(tmp_path: Path) -> None:
    found = D.run_ranks(ranks.faulty, 3, str(tmp_path), engine="processes", timeout=30)
    for place, (how, kind) in enumerate(ranks.FAULTS.items()):
        each = [one[place] for one in found]
        assert [name for name, _ in each] == [
            kind if how != "closed" or r != 1 else "DistributedError" for r in range(3)
        ]
    assert "rank 1 calls all_reduce with shape (4,), rank 0 with (3,)" in found[2][3]
    assert not list(tmp_path.glob("*/rank0.json"))


def test_an_error_of_a_process_is_raised_here() -> None:
    with pytest.raises(KeyError, match="mine"):
        D.run_ranks(ranks.raising, 2, engine="processes", timeout=30)


def together(size: int, make: Any) -> list[Any]:
    """What `make(rank)` gives or raises on each rank, of threads that each are a rank of sockets."""
    found: list[Any] = [None] * size

    def work(rank: int) -> None:
        try:
            found[rank] = make(rank)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    return found


def port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return str(found.getsockname()[1])


def test_the_environment_is_the_rendezvous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", port())
    monkeypatch.setenv("WORLD_SIZE", "4")

    def work(rank: int) -> Any:
        with D.communicator(rank=rank, timeout=10) as comm:
            assert (comm.rank, comm.size, comm.engine, comm.timeout) == (rank, 4, "processes", 10.0)
            return D.all_gather(np.full(1, rank), comm).tolist()

    assert together(4, work) == [[0, 1, 2, 3]] * 4
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(bc.InvalidProblemError, match="RANK must be an integer, got 'one'"):
        D.communicator()
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(bc.InvalidProblemError, match="rank must be from 0 to 3, got 4"):
        D.communicator()
    monkeypatch.delenv("MASTER_ADDR")
    with pytest.raises(bc.InvalidProblemError, match="MASTER_ADDR and MASTER_PORT must say"):
        D.communicator(rank=0)


def test_who_does_not_come_is_named(tmp_path: Path) -> None:
    found = together(4, lambda rank: None if rank == 2 else D.communicator(tmp_path, rank=rank, size=4, timeout=0.5))
    for rank in (0, 1, 3):
        assert type(found[rank]) is D.TimedOutError and "rank 0 waited 0.5 s for rank 2" in str(found[rank])
    found = together(3, lambda rank: rank and D.communicator(tmp_path, rank=rank, size=3, timeout=0.3))
    assert all(type(one) is D.TimedOutError and "for rank 0" in str(one) for one in found[1:])


def test_sizes_and_ranks_that_differ(tmp_path: Path) -> None:
    found = together(3, lambda rank: D.communicator(tmp_path, rank=rank, size=3 + (rank == 2), timeout=1))
    assert all(
        type(one) is D.MismatchError and "rank 2 says that there are 4 ranks" in str(one)
        for one in (found[0], found[2])
    )
    assert isinstance(found[1], D.DistributedError)
    found = together(3, lambda rank: D.communicator(tmp_path / "2", rank=min(rank, 1), size=3, timeout=1))
    assert type(found[0]) is D.MismatchError and "two processes say that they are rank 1" in str(found[0])
    assert all(isinstance(one, D.DistributedError) for one in found)


def test_strangers_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ones that say nothing or what is no message: ranks find each other all the same."""
    at = ("127.0.0.1", int(port()))
    monkeypatch.setenv("MASTER_ADDR", at[0])
    monkeypatch.setenv("MASTER_PORT", str(at[1]))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("BARACUDA_DISTRIBUTED_KEY", "told to both")
    strangers = []

    def work(rank: int) -> Any:
        if rank:
            time.sleep(0.2)
            for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64):
                strangers.append(socket.create_connection(at))
                strangers[-1].sendall(said)
        with D.communicator(rank=rank, timeout=10) as comm:
            return D.all_gather(np.full(1, rank), comm).tolist()

    assert together(2, work) == [[0, 1]] * 2
    for one in strangers:
        one.close()


def test_a_file_of_an_earlier_job_is_waited_out(tmp_path: Path) -> None:
    """Its port is taken by another now, who knows another key."""
    stranger = Listener(("127.0.0.1", 0), b"another")
    (tmp_path / "rank0.json").write_text(json.dumps({"port": stranger.port, "key": "00"}))

    def work(rank: int) -> Any:
        if rank == 0:
            time.sleep(0.3)
        with D.communicator(tmp_path, rank=rank, size=2, timeout=10) as comm:
            return D.all_gather(np.full(1, rank), comm).tolist()

    assert together(2, work) == [[0, 1]] * 2
    stranger.close()


def test_a_forked_child_has_no_communicator() -> None:
    comm = D.communicator(rank=0, size=1)
    assert D.all_reduce(np.ones(2), comm).tolist() == [1, 1]
    comm._pid = os.getpid() + 1
    with pytest.raises(D.DistributedError, match="another process"):
        D.barrier(comm)


BAD: dict[str, Any] = {
    "engine must be one of": lambda: D.communicator(engine="mpi"),
    "engine must be 'threads' or 'processes'": lambda: D.run_ranks(D.barrier, 2, engine="mpi"),
    "function must be one that a new process can import": lambda: D.run_ranks(lambda comm: 0, 2, engine="processes"),
    "source must be None, a path, a torch ProcessGroup or": lambda: D.communicator(3),
    "rank is None": lambda: D.communicator("/nowhere", size=2),
    "size must be": lambda: D.communicator(rank=0, size=0),
}


@pytest.mark.parametrize("said", BAD)
def test_a_communicator_of_bad_input(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(bc.InvalidProblemError, match=said):
        BAD[said]()
