"""Train a small transformer with experts on bytes, and see that a token's bits are free of the tokens beside it.

    python examples/train_moe.py                 # preset cpu on the NumPy backend: half a minute
    python examples/train_moe.py --preset gpu    # on a CUDA device, bfloat16

Every block is causal attention with rotary positions and a layer of experts: a router takes the k best experts of each
token by sigmoid scores plus a bias, a shared expert takes every token. No loss balances the experts: after a step the
bias of those that had more tokens than the mean goes down and that of the others up (DeepSeek-V3, arXiv:2412.19437).
`bc` computes on torch's tensors, and torch's autograd goes back through it. The text is that of train_gpt.py.

At the end held-out texts are computed all at once, three at a time and one at a time. Which tokens stand beside one
decides where its row lies among those of an expert, and how many there are; its log-probability has the same bits in
each, where products and attention are asked for with `PlanPreference(same_bits=True)`, and the run fails where one has
not. The NumPy backend sums in float64 and rounds where a call ends, so its preset is float64: nothing is rounded there.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import gpt_host  # noqa: F401  (before NumPy)
import numpy as np
import torch
from gpt_data import Corpus, load
from train_gpt import Parser, choose_device, describe, main, require
from train_ssm import SAME, plot, wide

import baracuda_py as bc


@dataclasses.dataclass(frozen=True)
class Preset:
    """Sizes of a run; k of `experts` experts of `ffn` units for a token, and a shared one as large."""

    blocks: int
    d: int
    heads: int
    experts: int
    k: int
    ffn: int
    context: int
    batch: int
    steps: int
    dtype: Any
    lr: float
    balance: float = 1e-3  # what the router's bias moves in a step


PRESETS = {
    "cpu": Preset(
        2, d=48, heads=2, experts=8, k=2, ffn=48, context=48, batch=8, steps=60, dtype=torch.float64, lr=5e-3,
        balance=1e-2,
    ),
    "gpu": Preset(
        8, d=768, heads=12, experts=64, k=6, ffn=512, context=1024, batch=32, steps=400, dtype=torch.bfloat16, lr=6e-4
    ),
}  # fmt: skip


class Experts:
    """Weights, the routers' biases, and the pass."""

    def __init__(self, preset: Preset, device: str, seed: int) -> None:
        self.preset, self.device = preset, device
        rng = np.random.default_rng(seed)

        def drawn(*shape: int, scale: float = 1.0) -> Any:
            values = rng.standard_normal(shape) * scale / math.sqrt(shape[-1])
            return torch.tensor(values, dtype=torch.float32, device=device).requires_grad_()

        def ones(count: int) -> Any:
            return torch.ones(count, device=device).requires_grad_()

        d, ffn, experts, depth = preset.d, preset.ffn, preset.experts, (2 * preset.blocks) ** -0.5
        self.weights = {"embedding": drawn(256, d, scale=math.sqrt(d)), "norm": ones(d), "head": drawn(256, d)}
        for n in range(preset.blocks):
            made = {
                "norm": ones(d), "qkv": drawn(3 * d, d), "out": drawn(d, d, scale=depth), "moe_norm": ones(d),
                "router": drawn(experts, d), "gate_up": drawn(experts, 2 * ffn, d),
                "down": drawn(experts, d, ffn, scale=depth), "shared": drawn(2 * ffn, d),
                "shared_down": drawn(d, ffn, scale=depth),
            }  # fmt: skip
            self.weights |= {f"{n}.{name}": one for name, one in made.items()}
        element = wide(torch.zeros((), dtype=preset.dtype)).dtype
        self.biases = [torch.zeros(experts, dtype=element, device=device) for _ in range(preset.blocks)]

    def forward(self, tokens: Any, same: bool = False) -> tuple[Any, list[Any]]:
        """(logits [batch, steps, 256] of tokens [batch, steps], each block's experts [batch * steps, k])."""
        preset, options = self.preset, {"preference": SAME} if same else {}
        w = {name: one.to(preset.dtype) for name, one in self.weights.items()}
        at = torch.arange(tokens.shape[1], dtype=torch.int32, device=tokens.device).expand(len(tokens), -1).contiguous()
        x, chosen = bc.embedding(tokens, w["embedding"]), []
        for n in range(preset.blocks):
            own = {name.removeprefix(f"{n}."): one for name, one in w.items() if name.startswith(f"{n}.")}
            qkv = bc.linear(bc.rms_norm(x, own["norm"]), own["qkv"], **options)
            q, k, v = qkv.unflatten(-1, (3, preset.heads, -1)).unbind(2)
            q, k = bc.rope(q.contiguous(), at, x2=k.contiguous(), layout="bshd")
            y = bc.flash_sdpa(q, k, v.contiguous(), is_causal=True, layout="bshd", **options)
            x = bc.add(x, bc.linear(y.flatten(-2), own["out"], **options))
            rows = bc.rms_norm(x, own["moe_norm"]).flatten(0, 1)
            logits = wide(bc.linear(rows, own["router"], **options))
            weights, indices = bc.moe_router(
                logits, self.biases[n], k=preset.k, scoring="sigmoid", normalize=True, index_element="int32"
            )
            y = bc.moe(rows, indices, weights, own["gate_up"], own["down"], **options)
            gate, up = bc.linear(rows, own["shared"], **options).chunk(2, -1)
            every = bc.linear(bc.swiglu(gate.contiguous(), up.contiguous()), own["shared_down"], **options)
            x, chosen = bc.add(x, bc.add(y, every).unflatten(0, tokens.shape)), [*chosen, indices]
        return bc.linear(bc.rms_norm(x, w["norm"]), w["head"], **options), chosen

    def balanced(self, chosen: list[Any]) -> list[Any]:
        """Moves the biases toward experts with few tokens; how many tokens each expert of each block had."""
        counts = [bc.bincount(one.flatten(), length=self.preset.experts) for one in chosen]
        for bias, count in zip(self.biases, counts, strict=True):
            bias -= self.preset.balance * torch.sign(count - count.double().mean()).to(bias.dtype)
        return counts


def train(model: Experts, corpus: Corpus, seed: int) -> tuple[list[float], float, float]:
    """Losses, tokens a second, and the most tokens of an expert over the mean, in the last quarter of the steps."""
    from tqdm import tqdm

    preset, rng = model.preset, np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.weights.values(), lr=preset.lr, betas=(0.9, 0.95))
    losses, totals, start = [], [torch.zeros(()) for _ in model.biases], time.perf_counter()
    for step in tqdm(range(preset.steps), desc="training", mininterval=1.0):
        for group in optimizer.param_groups:
            group["lr"] = preset.lr * min(1.0, (step + 1) / 20) * (1 - 0.9 * step / preset.steps)
        x, y = (torch.tensor(one, device=model.device) for one in corpus.batch(rng, preset.batch, preset.context))
        optimizer.zero_grad()
        logits, chosen = model.forward(x)
        loss = bc.cross_entropy(wide(logits.flatten(0, 1)), y.flatten().long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.weights.values(), 1.0)
        optimizer.step()
        counts = model.balanced(chosen)
        if step >= preset.steps * 3 // 4:
            totals = [total.to(count.device) + count for total, count in zip(totals, counts, strict=True)]
        losses.append(loss.detach())
    found = [float(one) for one in losses]
    rate = preset.steps * preset.batch * preset.context / (time.perf_counter() - start)
    return found, rate, max(float(total.max() / total.double().mean()) for total in totals)


def log_probabilities(model: Experts, texts: Any, at_once: int, same: bool) -> Any:
    """Of each byte of texts [count, steps + 1] but the first; so many texts at once."""
    found = []
    for part in texts.split(at_once):
        with torch.no_grad():
            logits, _ = model.forward(part[:, :-1], same)
        found.append(bc.log_softmax(wide(logits), axis=-1).gather(2, part[:, 1:, None].long())[..., 0])
    return torch.cat(found)


def held_out(model: Experts, corpus: Corpus) -> Any:
    """Held-out texts [count, context + 1]."""
    preset = model.preset
    ((x, y),) = corpus.evaluation(preset.batch, preset.context, 1)
    return torch.tensor(np.concatenate([x, y[:, -1:]], axis=1), device=model.device)


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = Parser(__doc__, steps="the preset's")
    parser.add_argument("--out", metavar="FOLDER", default="out", help="where the loss curve goes (default: out)")
    return parser.checked(argv, steps=1, seed=0)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, compare, report; returns the figures."""
    asked = options(argv)
    require("tqdm", "matplotlib")
    device, _ = choose_device(asked.device)
    preset = PRESETS[asked.preset or ("cpu" if device.kind == "cpu" else "gpu")]
    preset = dataclasses.replace(preset, steps=asked.steps or preset.steps)
    corpus = load(asked.text, preset.context)
    Path(asked.out).mkdir(parents=True, exist_ok=True)
    model = Experts(preset, "cpu" if device.kind == "cpu" else f"cuda:{device.ordinal}", asked.seed)
    count = sum(one.numel() for one in model.weights.values())
    print(
        f"{count:,} parameters, {preset.k} of {preset.experts} experts a token, {preset.dtype}, on {describe(device)}"
    )
    losses, rate, uneven = train(model, corpus, asked.seed)
    texts, curve = held_out(model, corpus), Path(asked.out) / "train_moe.png"
    whole = log_probabilities(model, texts, len(texts), True)
    loss = -float(whole.mean())
    plot(losses, loss, curve)
    print(f"held-out loss {loss:.4f} nats/byte, {rate:,.0f} tokens/s, loss curve in {curve}")
    print(f"the expert with the most tokens had {uneven:.2f} times the mean")
    differ = {}
    for name, same in (("the fastest ops", False), ("the same bits", True)):
        first = log_probabilities(model, texts, len(texts), same)
        for at_once in (3, 1):
            differ[name, at_once] = int((log_probabilities(model, texts, at_once, same) != first).sum())
            print(f"{name:16} {at_once} at once: {differ[name, at_once]:>6,} of {first.numel():,} numbers differ")
    if any(count for (name, _), count in differ.items() if name == "the same bits"):
        raise SystemExit("a token's bits depend on the tokens beside it where the same bits were asked for")
    return {"losses": losses, "held_out": loss, "tokens_per_second": rate, "uneven": uneven, "differ": differ}


if __name__ == "__main__":
    raise SystemExit(main(run=run))
