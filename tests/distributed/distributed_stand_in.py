"""NCCL's stand-in in NCCL's place, for tests: ranks are threads."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import baracuda_py as bc
from baracuda_py.backends import nccl
from baracuda_py.testing.libraries.nccl import HostNccl, HostNcclError


def stood_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("bindings", HostNccl()), ("error", HostNcclError), ("unavailable", lambda: "")):
        monkeypatch.setitem(vars(nccl.NCCL), name, value)
    monkeypatch.setattr(nccl, "current", lambda device: contextlib.nullcontext())


def linking(comm: Any, device: Any = None) -> nccl.NcclRanks:
    said = comm.gathered({"collective": "nccl"}, nccl.unique_id().hex() if comm.rank == 0 else None)
    return nccl.NcclRanks(comm.rank, comm.size, bytes.fromhex(said[0]), device or bc.fake_device(9.0))
