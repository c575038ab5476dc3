"""Ranks as threads whose emulated kernels read one another's memory on the host."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from baracuda_py.core.element import ElementKind
from baracuda_py.core.tensor import TensorRef
from baracuda_py.distributed import peer_kernels, peers
from baracuda_py.distributed.refs import made
from baracuda_py.testing import emulated_device
from baracuda_py.testing.libraries.peers import HostMemory

DEVICE = emulated_device(9.0)


def small(monkeypatch: pytest.MonkeyPatch, half: int = 1 << 14) -> None:
    """Regions of a size that a test can fill."""
    monkeypatch.setattr(peer_kernels, "HALF", half)


def reaching(size: int, kind: type = HostMemory, device: Any = DEVICE) -> Callable[[Any], Any]:
    """For `Communicator.reach`; one for all ranks."""
    meeting = threading.Barrier(size)

    def reach(comm: Any) -> Any:
        return peers.reached(comm, device, kind(meeting.wait, comm.rank))

    return reach


def ref(array: np.ndarray, kind: ElementKind) -> TensorRef:
    return made(array.ctypes.data, array.shape, kind, 0)


def drawn(kind: ElementKind, shape: Any, rank: int) -> np.ndarray:
    """Random numbers of an element, over its range where that is whole numbers."""
    rng = np.random.default_rng(rank)
    if kind.is_float:
        return (rng.standard_normal(shape) * 50).astype(kind.dtype)
    limits = np.iinfo(kind.dtype)
    return rng.integers(limits.min, limits.max, shape, kind.dtype, endpoint=True)
