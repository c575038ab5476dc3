"""Attention over packed sequences of any lengths, against torch FLASH on the same bounds and a dense row of equal work.

    python benchmarks/attention_varlen.py [--dims 64,128] [--rounds 8] [--csv benchmarks/results/nvidia_h200_varlen.csv]

bf16, causal, 32768 tokens, a hidden size of 2048. "mixed" are 16 sequences of 64 to 8192 tokens, "equal" 16 of 2048,
"one long" one of 16384 with 64 of 256. The dense row has sequences of one length, as many pairs in as many tokens.
TFLOP/s count 4 d for each pair that is not masked, and 2.5 times that backward. Results are checked against torch's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import cupy as cp
import torch
from attention import Call, check
from record import write
from timing import interleaved

import baracuda_py as bc

TOKENS, HIDDEN = 32768, 2048
MIXES = {
    "mixed": (1024, 64, 4096, 384, 8192, 256, 2560, 640, 832, 6144, 128, 1536, 3072, 512, 2048, 1280),
    "equal": (2048,) * 16,
    "one long": (*(256,) * 40, 16384, *(256,) * 24),
}


def pairs(lengths: tuple[int, ...]) -> int:
    """(query, key) pairs that are not masked, of one head."""
    return sum(n * (n + 1) // 2 for n in lengths)


class Problem:
    """A mix at a head_dim, its operands, and the dense problem of about as many tokens and pairs."""

    def __init__(self, name: str, head_dim: int) -> None:
        self.name, self.head_dim, self.heads, self.lengths = name, head_dim, HIDDEN // head_dim, MIXES[name]
        ends = torch.tensor([0, *self.lengths]).cumsum(0)
        self.bounds = ends.to(device="cuda", dtype=torch.int32)
        even = sum(n * n for n in self.lengths) / TOKENS
        self.batch = max(1, round(TOKENS / even))
        self.length = round((sum(n * n for n in self.lengths) / self.batch) ** 0.5 / 64) * 64
        self.facts = {
            "num_heads": self.heads, "d_k": head_dim, "d_v": head_dim, "is_causal": True, "element": "bfloat16"
        }  # fmt: skip

    def operands(self, *shape: int) -> dict[str, torch.Tensor]:
        return {n: torch.randn(shape, device="cuda", dtype=torch.bfloat16) for n in ("q", "k", "v", "dy")}

    def rate(self, us: float, dense: bool, scale: float) -> float:
        count = self.batch * pairs((self.length,)) if dense else pairs(self.lengths)
        return scale * 4e-6 * count * HIDDEN / us

    def torch_forward(self, s: dict[str, Any]) -> Any:
        longest = max(self.lengths)
        return torch.ops.aten._flash_attention_forward(
            s["q"], s["k"], s["v"], self.bounds, self.bounds, longest, longest, 0.0, True, False
        )

    def forward(self) -> dict[str, list[Call]]:
        """Ours, torch's, and the dense row."""
        sets = [self.operands(TOKENS, self.heads, self.head_dim) for _ in range(2)]
        desc = bc.FlashSdpaVarlenDescriptor(batch_size=len(self.lengths), total_q=TOKENS, total_k=TOKENS, **self.facts)
        plan = bc.FlashSdpaVarlenPlan.select(desc)
        calls: dict[str, list[Call]] = {"ours": [], "torch": [], "dense": []}
        for s in sets:
            s["y"] = torch.empty_like(s["q"])
            s["lse"] = torch.empty((self.heads, TOKENS), device="cuda")
            args = bc.FlashSdpaVarlenArgs(
                **{n: s[n] for n in ("q", "k", "v", "y", "lse")}, cu_seqlens_q=self.bounds, cu_seqlens_k=self.bounds
            )
            workspace = torch.empty(plan.workspace_size(args), device="cuda", dtype=torch.uint8)
            plan.run(args, workspace)
            check("y", s["y"], self.torch_forward(s)[0])
            calls["ours"].append(plan.bind(args, workspace))
            calls["torch"].append(lambda s=s: self.torch_forward(s))
        desc = bc.FlashSdpaDescriptor(batch_size=self.batch, query_len=self.length, key_len=self.length, **self.facts)
        plan = bc.FlashSdpaPlan.select(desc)
        for _ in range(2):
            s = self.operands(self.batch, self.heads, self.length, self.head_dim)
            s["lse"] = torch.empty(s["q"].shape[:3], device="cuda")
            args = bc.FlashSdpaArgs(q=s["q"], k=s["k"], v=s["v"], y=s["dy"], lse=s["lse"])
            calls["dense"].append(plan.bind(args))
        return calls


def rows(problem: Problem, rounds: int) -> Iterator[dict[str, Any]]:
    """The CSV rows of a mix."""
    for direction, make, scale in (("forward", problem.forward, 1.0),):
        times = interleaved(make(), rounds)
        rate = {name: problem.rate(t.median, name.startswith("dense"), scale) for name, t in times.items()}
        yield {
            "direction": direction, "mix": problem.name, "head_dim": problem.head_dim,
            "us": f"{times['ours'].median:.1f}", "tflops": f"{rate['ours']:.0f}", "flash": f"{rate['torch']:.0f}",
            "dense": f"{rate['dense']:.0f}", "vs_flash": f"{rate['ours'] / rate['torch']:.3f}",
            "vs_dense": f"{rate['ours'] / rate['dense']:.3f}",
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", default="64,128", help="head_dims, with commas")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--csv", help="write the rows here")
    options = parser.parse_args()
    done: list[dict[str, Any]] = []
    for head_dim in map(int, options.dims.split(",")):
        for name in MIXES:
            for row in rows(Problem(name, head_dim), options.rounds):
                done.append(row)
                print("  ".join(f"{value:>8}" for value in row.values()), flush=True)
            cp.get_default_memory_pool().free_all_blocks()
            torch.cuda.empty_cache()
    write(options.csv, done)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
