"""The model of `gpt_model` trained by DistributedDataParallel, which `train_parallel --peer torch` compares with."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import torch
from gpt_data import Corpus
from gpt_model import Decoder, Preset
from gpt_torch import TorchDecoder
from torch import distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Trained(nn.Module):
    """The decoder with float32 weights that are trained; products in the preset's compute element. Gives the loss."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.decoder = TorchDecoder(model)
        weights = model.matrices | model.norms
        self.held = nn.ParameterDict({n: nn.Parameter(torch.from_dlpack(w).clone()) for n, w in weights.items()})

    def forward(self, tokens: Any, targets: Any) -> Any:
        self.decoder.weights = {name: weight.to(self.decoder.dtype) for name, weight in self.held.items()}
        logits = self.decoder.forward(tokens)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def tokens_a_second(comm: Any, meeting: str, device: str, preset: Preset, seed: int, corpus: Corpus) -> float:
    """A rank: every step takes its share of the batch, gradients are averaged as DDP does. Tokens of all ranks."""
    place = torch.device("cuda", comm.rank) if device == "cuda" else torch.device("cpu")
    if device == "cuda":
        import cupy

        torch.cuda.set_device(place)
        cupy.cuda.Device(comm.rank).use()
    distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo", init_method=f"file://{meeting}/torch", rank=comm.rank,
        world_size=comm.size,
    )  # fmt: skip
    model = Trained(Decoder(preset, cupy if device == "cuda" else np, seed)).to(place)
    spread = DistributedDataParallel(model, device_ids=[comm.rank] if device == "cuda" else None)
    rule = torch.optim.AdamW(
        spread.parameters(), lr=preset.learning_rate, betas=(0.9, 0.95), fused=device == "cuda"
    )  # fmt: skip
    rng, times = np.random.default_rng(seed), []
    for _ in range(preset.steps):
        drawn = corpus.batch(rng, preset.batch, preset.context)
        tokens, targets = (torch.from_numpy(np.array_split(x, comm.size)[comm.rank]).long().to(place) for x in drawn)
        began = time.perf_counter()
        rule.zero_grad(set_to_none=True)
        loss = spread(tokens, targets)
        loss.backward()
        rule.step()
        float(loss)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    distributed.destroy_process_group()
    return preset.batch * preset.context / statistics.median(times[len(times) // 2 :])
