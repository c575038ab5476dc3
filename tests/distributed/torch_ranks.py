"""What ranks of torch.distributed do in the tests; in a module, since a new process imports it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import baracuda_py as bc
import baracuda_py.torch as bct
from baracuda_py.torch import nn


def batch() -> tuple[Any, Any]:
    """Tokens and targets of two ranks."""
    gen = torch.Generator().manual_seed(3)
    return torch.randint(0, 20, (4, 6), generator=gen), torch.randint(0, 20, (4, 6), generator=gen)


class Model(torch.nn.Module):
    """Layers of this package around a residual branch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.norm = nn.Embedding(20, 16), nn.RMSNorm(16)
        self.mlp, self.head = nn.SwiGLU(16, 24), nn.Linear(16, 20)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, tokens: Any, targets: Any) -> Any:
        """The mean loss."""
        x = self.embedding(tokens)
        return self.loss(self.head(x + self.mlp(self.norm(x))), targets)


def work(rank: int, folder: str) -> None:
    """Gradients by DDP and FSDP2, and what an op says of a DTensor, in a file a rank."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    found: dict[str, Any] = {}
    for name, wrap in (("ddp", DistributedDataParallel), ("fsdp", lambda model: fully_shard(model) or model)):
        model = wrap(Model())
        model(*(x[2 * rank : 2 * rank + 2] for x in batch())).backward()
        grads = {n.removeprefix("module."): p.grad for n, p in model.named_parameters()}
        found[name] = {n: g.full_tensor() if isinstance(g, DTensor) else g for n, g in grads.items()}
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    spread = distribute_tensor(torch.randn(4, 16), mesh, [Shard(0)])
    for name, call in (("refused", lambda: bct.silu(spread)), ("refused too", lambda: bc.silu(spread))):
        try:
            found[name] = f"no error: {call()}"
        except bc.BaracudaError as error:
            found[name] = str(error)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
