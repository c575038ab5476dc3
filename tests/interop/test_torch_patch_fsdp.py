"""FSDP2 around a patched model, on the CPU: one process, and two that each see a batch of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch without gloo", allow_module_level=True)
from torch_patch_sharded import steps  # noqa: E402


@pytest.mark.parametrize("world", [1, 2])
def test_a_step_is_that_of_the_original(world: int, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(steps, (world, str(tmp_path / "store")), world)
