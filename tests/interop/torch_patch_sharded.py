"""Steps of a patched model and of its original, both wrapped by FSDP2, in one of several processes."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch_patch_models import BY_NAME, Tiny, close

from baracuda_py.torch.patch import patch

NAMES = ("LlamaForCausalLM", "MixtralForCausalLM", "GPT2LMHeadModel")


def sharded(model: Any, *, alone: bool, **options: Any) -> Any:
    """Its blocks wrapped, then all the rest; alone: each layer that has parameters besides, but a tied one."""
    tied = model.get_output_embeddings(), model.get_input_embeddings()
    for module in model.modules():
        if alone and not list(module.children()) and list(module.parameters()) and module not in tied:
            fully_shard(module, **options)
    for block in model.base_model.h if hasattr(model.base_model, "h") else model.base_model.layers:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def step(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """One forward, backward and update: loss, gradients and parameters, whole."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model.train()(**batch).loss
    loss.backward()
    found = {f"gradient of {name}": p.grad.full_tensor() for name, p in model.named_parameters()}
    optimizer.step()
    return {"loss": loss, **found, **{name: p.full_tensor() for name, p in model.named_parameters()}}


def compared(tiny: Tiny, rank: int, order: str, **options: Any) -> None:
    """Each process has a batch of its own."""
    ours, model = tiny.make(), sharded(tiny.make(), **options)
    if order == "patch":
        assert not patch(ours).kept
    sharded(ours, **options)
    if order == "shard":
        report = patch(ours)
        assert report.replaced and all("patch before it" in str(entry.reason) for entry in report.kept)
    batch = tiny.batch(5 + rank, labels=True)
    found, wanted = step(ours, batch), step(model, batch)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        close(found[name], value, f"{tiny.architecture}: {name}")


def steps(rank: int, world: int, store: str) -> None:
    """What one process of `world` runs; they meet by the file `store`."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        mesh = init_device_mesh("cpu", (world,))
        for name in NAMES:
            for order, alone in (("patch", False), ("patch", True), ("shard", False)):
                compared(BY_NAME[name], rank, order, alone=alone, mesh=mesh)
    finally:
        dist.destroy_process_group()
