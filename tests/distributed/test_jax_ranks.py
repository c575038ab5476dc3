"""Processes of `jax.distributed` as ranks, and our ops inside shard_map over two devices of the host."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")
PROGRAM = Path(__file__).parent / "jax_ranks.py"


def started(*words: str, **flags: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **flags}
    return subprocess.Popen(
        [sys.executable, PROGRAM, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def right(*processes: subprocess.Popen[str]) -> None:
    for one in processes:
        said, _ = one.communicate(timeout=120)
        assert one.returncode == 0 and said.splitlines()[-1] == "right", said[-4000:]


@pytest.mark.skipif(not hasattr(jax.distributed, "is_initialized"), reason="this JAX does not tell")
def test_processes_of_jax_are_ranks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = str(found.getsockname()[1])
    right(*(started(port, str(rank)) for rank in (0, 1)))


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="this JAX has no jax.shard_map")
def test_ops_inside_shard_map_over_two_devices() -> None:
    right(started("shards", XLA_FLAGS="--xla_force_host_platform_device_count=2"))
