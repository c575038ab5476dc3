"""A rank with a GPU that is killed, and what the others see of it; in a module that new processes import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from baracuda_py import distributed as D


def killed(comm: Any, directory: str, notes: str, layered: bool) -> None:
    """Rank 1 is killed while the others have work under way on the device; they note what they raise, and go on."""
    import cupy

    cupy.cuda.Device(comm.rank).use()
    link = D.communicator(directory, rank=comm.rank, size=comm.size, engine="nccl", peers=True, timeout=15.0)
    x = cupy.ones((2048, 512), cupy.float32)

    def together() -> None:
        if layered:
            D.row_parallel_linear(x, x[:512], None, link, overlap=4)
        else:
            D.all_reduce(x, link)

    together()
    cupy.cuda.Device().synchronize()
    D.barrier(link)
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error: Exception | None = None
    started = time.monotonic()
    try:
        for _ in range(50):
            together()
            cupy.cuda.Device().synchronize()
            D.barrier(link)
    except D.DistributedError as found:
        error = found
    works = float(cupy.arange(1000, dtype=cupy.float64).sum()) == 499500.0
    again = ""
    try:
        D.all_reduce(x, link)
    except D.DistributedError as found:
        again = type(found).__name__
    took = time.monotonic() - started
    said = f"{type(error).__name__}|{again}|{works}|{took:.1f}|{error}"
    Path(notes, str(comm.rank)).write_text(said)
    os._exit(0)
