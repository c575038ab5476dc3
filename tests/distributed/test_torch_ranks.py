"""Modules of this package under torch's own DDP and FSDP2, two ranks over gloo: the gradients of one rank."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
ranks = pytest.importorskip("torch_ranks")


def test_ddp_and_fsdp_take_our_modules_as_they_are(tmp_path: Path) -> None:
    other = torch.multiprocessing.get_context("spawn").Process(target=ranks.work, args=(1, str(tmp_path)))
    other.start()  # this process is the other rank: to start one costs more than all the rest
    ranks.work(0, str(tmp_path))
    other.join()
    assert other.exitcode == 0
    model = ranks.Model()
    model(*ranks.batch()).backward()
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt")
        for name, parameter in model.named_parameters():
            for kind in ("ddp", "fsdp"):
                torch.testing.assert_close(found[kind][name], parameter.grad, rtol=1e-5, atol=1e-6)
        assert "DTensor" in found["refused"] and "DTensor" in found["refused too"]
