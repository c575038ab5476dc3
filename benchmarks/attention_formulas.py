"""Masks as formulas under block masks beside torch.compile(flex_attention) under the same masks, in the same run.

    python benchmarks/attention_formulas.py [--rounds 8] [--points 64,128] [--lengths 4096,16384] [--csv [FILE]]

bf16, 16384 tokens, a hidden size of 2048. TFLOP/s count the pairs of blocks that are not empty: `of_dense` is the rate
over that of a mask that hides nothing, at equal work. `flex` is torch's time over ours. Block masks are made before, as
are torch's; `blocks_us` is what making ours takes, `mma_us` the gradient by the row of mma.sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import checkout  # noqa: F401
import torch
import torch._dynamo.config
import torch._functorch.config
from attention import HIDDEN, TOKENS, check
from attention_terms import Row, sweep
from timing import interleaved
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import baracuda_py as bc

BLOCK = 128  # torch's
Mask = tuple[str, Callable[[dict[str, Any]], Callable[..., Any]]]
MASKS: dict[str, Mask] = {
    "dense": ("k >= 0", lambda given: lambda b, h, q, k: k >= 0),
    "causal": ("q >= k", lambda given: lambda b, h, q, k: q >= k),
    "documents": (
        "q >= k and doc[b, q] == doc[b, k]",
        lambda given: lambda b, h, q, k: (q >= k) & (given["doc"][b, q] == given["doc"][b, k]),
    ),
    "window 1024": ("q >= k and q - k < 1024", lambda given: lambda b, h, q, k: (q >= k) & (q - k < 1024)),
    "prefix": ("k <= q or k < 512", lambda given: lambda b, h, q, k: (k <= q) | (k < 512)),
    "neighbourhood 13 x 13": (
        "abs(q // 64 - k // 64) <= 6 and abs(q % 64 - k % 64) <= 6",
        lambda given: lambda b, h, q, k: ((q // 64 - k // 64).abs() <= 6) & ((q % 64 - k % 64).abs() <= 6),
    ),
}  # fmt: skip
torch._dynamo.config.recompile_limit = 256  # a mask and a size each compile anew
torch._functorch.config.donated_buffer = False  # its gradient runs many times over one forward
flex = torch.compile(flex_attention)
OLDER = bc.PlanPreference(max_arch="sm80")


def calls(dim: int, length: int) -> tuple[dict[str, list[Callable[[], Any]]], dict[str, float]]:
    """The calls to time, and the work in FLOP of each mask's forward."""
    made: dict[str, list[Callable[[], Any]]] = {}
    work: dict[str, float] = {}
    batch, heads = TOKENS // length, HIDDEN // dim
    shape = (batch, heads, length, dim)
    q, k, v, dy = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    ends = torch.randint(0, length, (batch, 15), device="cuda").sort(-1).values
    doc = torch.searchsorted(ends, torch.arange(length, device="cuda").expand(batch, -1).contiguous()).to(torch.int32)
    for name, (mask, in_torch) in MASKS.items():
        f = bc.attention(mask=mask)
        given = {"doc": doc} if "doc" in f.inputs else {}
        blocks = f.block_mask(q, k, query_block=BLOCK, key_block=BLOCK, **given)
        kept = (blocks.kinds != 0).float().mean().item()
        work[name] = 4.0 * batch * heads * length * length * dim * kept
        y, lse = f(q, k, v, block_mask=blocks, return_lse=True, **given)
        theirs = create_block_mask(in_torch({"doc": doc}), batch if given else None, None, length, length, "cuda")
        leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
        wanted = flex(*leaves, block_mask=theirs)
        check(name, y, wanted)
        made[f"blocks {name}"] = [lambda f=f, given=given: f.block_mask(q, k, **given)]
        made[f"forward {name}"] = [lambda f=f, m=blocks, given=given: f(q, k, v, block_mask=m, **given)]
        made[f"flex forward {name}"] = [lambda m=theirs: flex(q, k, v, block_mask=m)]
        made[f"backward {name}"] = [
            lambda f=f, m=blocks, y=y, lse=lse, given=given: f.backward(
                q, k, v, y, lse, dy, block_mask=m, **given
            )
        ]  # fmt: skip
        made[f"mma backward {name}"] = [
            lambda f=f, m=blocks, y=y, lse=lse, given=given: f.backward(
                q, k, v, y, lse, dy, block_mask=m, **given, preference=OLDER
            )
        ]  # fmt: skip
        made[f"flex backward {name}"] = [
            lambda y=wanted, leaves=leaves: torch.autograd.grad(y, leaves, dy, retain_graph=True)
        ]
    return made, work


def rows(dim: int, length: int, rounds: int) -> Iterator[Row]:
    """The CSV rows of a size."""
    made, work = calls(dim, length)
    times = {name: timing.median for name, timing in interleaved(made, rounds).items()}
    for direction, factor in (("forward", 1.0), ("backward", 2.5)):
        for name in MASKS:
            time, theirs = times[f"{direction} {name}"], times[f"flex {direction} {name}"]
            rate, dense = (factor * work[n] / times[f"{direction} {n}"] for n in (name, "dense"))
            yield {
                "direction": direction, "head_dim": dim, "length": length, "mask": name, "us": f"{time:.1f}",
                "tflops": f"{rate * 1e-6:.0f}", "of_dense": f"{rate / dense:.3f}", "flex_us": f"{theirs:.1f}",
                "flex": f"{theirs / time:.2f}", "blocks_us": f"{times[f'blocks {name}']:.1f}",
                "mma_us": f"{times.get(f'mma {direction} {name}', 0.0):.1f}",
            }  # fmt: skip


if __name__ == "__main__":
    sweep(__doc__, rows, "64,128", "4096,16384", "attention_formulas", ("direction", "head_dim", "length", "mask"))
