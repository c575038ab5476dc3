"""Experts of whole layers, `moe` of routed tokens, beside the same of torch._grouped_mm, interleaved in the same run.

    python benchmarks/moe_layers.py [--rounds 8] [--only few,forward,train] [--csv [FILE]]

few      1, 4 and 16 tokens: microseconds, and the part of 4.8 TB/s at which the chosen experts' weights are read
forward  64, 256 and 1024 rows an expert, without a gradient
train    the same forward and backward, of x, the weights of choices and both matrices

bf16, of the shapes of Qwen3-30B-A3B and, for few tokens, gpt-oss-20b. Choices are random and different for a token; the
torch form sorts them, gathers rows, multiplies, and adds what belongs to a token. Results are compared before.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import checkout  # noqa: F401
import torch
from record import Results, add_options
from timing import interleaved

import baracuda_py.torch as bct

MODELS = {"Qwen3-30B-A3B": (128, 8, 2048, 768), "gpt-oss-20b": (32, 4, 2880, 2880)}  # experts, top, d, f
TBS = 4.8


def operands(tokens: int, experts: int, top: int, d: int, f: int) -> list[Any]:
    """x, indices, weights, gate_up, down."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16) * shape[-1] ** -0.5

    chosen = torch.rand(tokens, experts, device="cuda").topk(top)
    weights = chosen.values / chosen.values.sum(1, keepdim=True)
    return [normal(tokens, d) * d**0.5, chosen.indices, weights, normal(experts, 2 * f, d), normal(experts, d, f)]


def by_torch(
    x: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """The layer of torch's calls."""
    tokens, top = indices.shape
    flat = indices.flatten()
    order = flat.argsort(stable=True)
    ends = torch.bincount(flat, minlength=len(gate_up)).cumsum(0).to(torch.int32)
    h = torch._grouped_mm(x[order // top], gate_up.mT, offs=ends)
    gate, up = h.chunk(2, -1)
    y = torch._grouped_mm(torch.nn.functional.silu(gate) * up, down.mT, offs=ends)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return (y[back].view(tokens, top, -1) * weights[..., None]).sum(1).to(x.dtype)


def trained(layer: Callable[..., torch.Tensor], given: list[Any], way: torch.Tensor) -> Callable[[], Any]:
    """Forward and backward, along `way`, of all that has a gradient."""
    leaves = [one.clone().requires_grad_() if one.is_floating_point() else one for one in given]
    wanted = [one for one in leaves if one.requires_grad]

    def call() -> Any:
        return torch.autograd.grad(layer(*leaves), wanted, way)

    return call


def rows(group: str, rounds: int) -> Iterator[dict[str, Any]]:
    """The lines of a group."""
    models = MODELS if group == "few" else {"Qwen3-30B-A3B": MODELS["Qwen3-30B-A3B"]}
    for model, (experts, top, d, f) in models.items():
        for size in (1, 4, 16) if group == "few" else (64, 256, 1024):
            tokens = size if group == "few" else size * experts // top
            given = operands(tokens, experts, top, d, f)
            if group == "train":
                way = torch.randn_like(given[0])
                calls = {"ours": trained(bct.moe, given, way), "torch": trained(by_torch, given, way)}
            else:
                calls = {"ours": lambda g=given: bct.moe(*g), "torch": lambda g=given: by_torch(*g)}
            with torch.set_grad_enabled(group == "train"):
                ours, other = (one if isinstance(one, tuple) else (one,) for one in (call() for call in calls.values()))
                for a, b in zip(ours, other, strict=True):
                    error = float((a.float() - b.float()).norm() / b.float().norm())
                    if not error < 2e-2:
                        raise SystemExit(f"{model}, {tokens} tokens: {group} differs by {error:.3g}")
                found = interleaved({name: [call] for name, call in calls.items()}, rounds)
            times = {name: timing.median for name, timing in found.items()}
            row = {"group": group, "model": model, "tokens": tokens, "us": f"{times['ours']:.1f}"}
            row |= {"torch_us": f"{times['torch']:.1f}", "vs_torch": f"{times['torch'] / times['ours']:.2f}"}
            read = given[1].unique().numel() * 3 * d * f * 2
            yield row | {"of_bytes": f"{read / times['ours'] / TBS / 1e6:.2f}" if group == "few" else ""}
            del given, calls
            torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="few,forward,train", help="groups, by commas")
    add_options(parser)
    options = parser.parse_args()
    done = []
    for group in options.only.split(","):
        for row in rows(group, options.rounds):
            done.append(row)
            print("  ".join(f"{word} {value}" for word, value in row.items()), flush=True)
    Results(options, "moe_layers", ("group", "model", "tokens")).write(done)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
