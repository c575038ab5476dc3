"""Attention over packed sequences of any lengths, against torch FLASH on the same bounds and a dense row of equal work.

    python benchmarks/attention_varlen.py [--dims 64,128] [--csv [FILE]]

bf16, causal, 32768 tokens, a hidden size of 2048. "mixed" are 16 sequences of 64 to 8192 tokens, "equal" 16 of 2048,
"one long" one of 16384 with 64 of 256. The dense row has sequences of one length, as many pairs in as many tokens.
"pages" is batch_paged_prefill with the same keys in pages of 16, [pages, 16, heads, d], dealt out at random. TFLOP/s
count 4 d for each pair that is not masked, and 2.5 times that backward. Results are checked against torch's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import checkout  # noqa: F401
import cupy as cp
import torch
from attention import ANY_ORDER, Call, check
from record import Results, add_options
from timing import interleaved

import baracuda_py as bc

TOKENS, HIDDEN, PAGE = 32768, 2048, 16
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

    def torch_backward(self, s: dict[str, Any], made: Any) -> Any:
        longest = max(self.lengths)
        return torch.ops.aten._flash_attention_backward(
            s["dy"], s["q"], s["k"], s["v"], made[0], made[1], self.bounds, self.bounds, longest, longest, 0.0, True,
            made[2], made[3],
        )  # fmt: skip

    def packed(self) -> tuple[dict[str, list[Call]], dict[str, list[Call]]]:
        """Forward and backward: ours, in any order of sums, and torch's."""
        forward: dict[str, list[Call]] = {"ours": [], "pages": [], "torch": []}
        backward: dict[str, list[Call]] = {"ours": [], "any order": [], "torch": []}
        sizes = {"batch_size": len(self.lengths), "total_q": TOKENS, "total_k": TOKENS, **self.facts}
        bounds = {"cu_seqlens_q": self.bounds, "cu_seqlens_k": self.bounds}
        for _ in range(2):
            s = self.operands(TOKENS, self.heads, self.head_dim)
            s["y"] = torch.empty_like(s["q"])
            s["lse"] = torch.empty((self.heads, TOKENS), device="cuda")
            inputs = {n: s[n] for n in ("q", "k", "v", "y", "lse")} | bounds
            plan: Any = bc.FlashSdpaVarlenPlan.select(bc.FlashSdpaVarlenDescriptor(**sizes))
            forward["ours"].append(bound(plan, bc.FlashSdpaVarlenArgs(**inputs)))
            made = self.torch_forward(s)
            check("y", s["y"], made[0])
            forward["pages"].append(self.paged(s))
            forward["torch"].append(lambda s=s: self.torch_forward(s))
            want = self.torch_backward(s, made)
            backward["torch"].append(lambda s=s, made=made: self.torch_backward(s, made))
            for name, preference in (("ours", None), ("any order", ANY_ORDER)):
                grads = {f"d{n}": torch.empty_like(s[n]) for n in "qkv"}
                desc = bc.FlashSdpaVarlenBackwardDescriptor(**sizes)
                plan = bc.FlashSdpaVarlenBackwardPlan.select(desc, preference)
                backward[name].append(bound(plan, bc.FlashSdpaVarlenBackwardArgs(**inputs, dy=s["dy"], **grads)))
                for (grad, got), other in zip(grads.items(), want, strict=False):
                    check(f"{grad} {name}", got, other)
        return forward, backward

    def paged(self, s: dict[str, Any]) -> Call:
        """The same keys and values in pages."""
        count = TOKENS // PAGE
        order = torch.randperm(count, device="cuda")
        caches = {}
        for name in "kv":
            cache = torch.empty_like(s[name]).view(count, PAGE, self.heads, self.head_dim)
            cache[order] = s[name].view(cache.shape)
            caches[f"{name}_cache"] = cache.transpose(1, 2)
        desc = bc.BatchPagedPrefillDescriptor(
            batch_size=len(self.lengths), total_q=TOKENS, num_pages=count, page_size=PAGE, num_indices=count,
            max_cache_len=max(self.lengths), **self.facts,
        )  # fmt: skip
        y = torch.empty_like(s["q"])
        args = bc.BatchPagedPrefillArgs(
            q=s["q"], **caches, y=y, lse=torch.empty_like(s["lse"]), qo_indptr=self.bounds, kv_indices=order,
            kv_indptr=self.bounds // PAGE, lengths=self.bounds.diff(),
        )  # fmt: skip
        launch = bound(bc.BatchPagedPrefillPlan.select(desc), args)
        check("y of pages", y, s["y"])
        s["paged"] = args  # a bound launch holds no operand
        return launch

    def dense(self) -> tuple[dict[str, list[Call]], dict[str, list[Call]]]:
        """The dense rows, forward and backward."""
        calls: dict[str, list[Call]] = {"forward": [], "backward": [], "any order": []}
        sizes = {"batch_size": self.batch, "query_len": self.length, "key_len": self.length, **self.facts}
        for _ in range(2):
            s = self.operands(self.batch, self.heads, self.length, self.head_dim)
            s["y"], s["lse"] = torch.empty_like(s["q"]), torch.empty(s["q"].shape[:3], device="cuda")
            inputs = {n: s[n] for n in ("q", "k", "v", "y", "lse")}
            plan: Any = bc.FlashSdpaPlan.select(bc.FlashSdpaDescriptor(**sizes))
            calls["forward"].append(bound(plan, bc.FlashSdpaArgs(**inputs)))
            grads = {f"d{n}": torch.empty_like(s[n]) for n in "qkv"}
            args = bc.FlashSdpaBackwardArgs(**inputs, dy=s["dy"], **grads)
            for name, preference in (("backward", None), ("any order", ANY_ORDER)):
                plan = bc.FlashSdpaBackwardPlan.select(bc.FlashSdpaBackwardDescriptor(**sizes), preference)
                calls[name].append(bound(plan, args))
        return {"dense": calls["forward"]}, {"dense": calls["backward"], "dense any order": calls["any order"]}


def bound(plan: Any, args: Any) -> Call:
    """A launch that has run once."""
    workspace = torch.empty(plan.workspace_size(args), device="cuda", dtype=torch.uint8)
    launch: Call = plan.bind(args, workspace)
    launch()
    return launch


def rows(problem: Problem, rounds: int) -> Iterator[dict[str, Any]]:
    """The CSV rows of a mix."""
    packed, dense = problem.packed(), problem.dense()
    for direction, scale, mine, theirs in zip(("forward", "backward"), (1.0, 2.5), packed, dense, strict=True):
        times = interleaved(mine | theirs, rounds)
        rate = {name: problem.rate(t.median, name.startswith("dense"), scale) for name, t in times.items()}
        for name, like in (("ours", "dense"), ("pages", "dense"), ("any order", "dense any order")):
            if name in times:
                yield {
                    "direction": direction, "variant": "" if name == "ours" else name, "mix": problem.name,
                    "head_dim": problem.head_dim, "us": f"{times[name].median:.1f}", "tflops": f"{rate[name]:.0f}",
                    "flash": f"{rate['torch']:.0f}", "dense": f"{rate[like]:.0f}",
                    "vs_flash": f"{rate[name] / rate['torch']:.3f}", "vs_dense": f"{rate[name] / rate[like]:.3f}",
                }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", default="64,128,256", help="head_dims, with commas")
    parser.add_argument("--rounds", type=int, default=8)
    add_options(parser)
    options = parser.parse_args()
    results = Results(options, "attention_varlen", ("direction", "variant", "mix", "head_dim"))
    done: list[dict[str, Any]] = []
    for head_dim in map(int, options.dims.split(",")):
        for name in MIXES:
            for row in rows(Problem(name, head_dim), options.rounds):
                done.append(row)
                print("  ".join(f"{value:>8}" for value in row.values()), flush=True)
            results.write(done)
            cp.get_default_memory_pool().free_all_blocks()
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
