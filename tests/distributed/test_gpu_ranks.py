"""The checks of test_real_gpus_gpu.py on threads and small arrays of the host: they are right, and find errors."""

from __future__ import annotations

from typing import Any

import gpu_ranks as checks
import numpy as np
import pytest

from baracuda_py import distributed as D

CALLS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "collectives": (checks.collectives, (5,)), "layers": (checks.layers, (16, 32, 24)),
    "losses": (checks.losses, (6, 16, 32)), "states": (checks.states, ()), "sequences": (checks.sequences, (32, 16)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_checks_pass_on_the_host(name: str) -> None:
    check, given = CALLS[name]
    near = [] if name != "collectives" else ["NCCL's own order"]
    for size in (2, 4) if name != "sequences" else (2,):
        for wrong in D.run_ranks(lambda comm: check(comm, comm, np, *given), size, timeout=120):
            assert [one for one in wrong if not any(part in one for part in near)] == []


def test_other_bits_are_found() -> None:
    found = checks.Checks()
    found.same("equal", np.ones(3), np.ones(3))
    found.same("a bit", np.ones(3), np.nextafter(np.ones(3), 2))
    found.same("a shape", np.ones(3), np.ones((3, 1)))
    found.near("near", np.ones(3), np.ones(3) + 1e-6, 1e-5)
    found.near("far", np.ones(3), np.ones(3) + 1e-4, 1e-5)
    found.near("nothing", np.full(3, np.nan), np.ones(3), 1e-5)
    assert [one.partition(":")[0] for one in found.wrong] == ["a bit", "a shape", "far", "nothing"]
