"""What the gradients of a mask, of slopes and of sinks cost, alone and beside the whole backward, in the same run.

    python benchmarks/attention_bias.py [--rounds 8] [--csv [FILE]]

bf16, 16384 tokens, a hidden size of 2048, causal. The first row is the backward with that operand and without its
gradient; TFLOP/s of a gradient count its two products over the visible pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import checkout  # noqa: F401
import torch
from attention import HIDDEN, TOKENS
from attention_terms import sweep
from timing import interleaved

import baracuda_py as bc

MASKS = {"[b, h, q, k]": "bhqk", "[1, h, q, k]": "hqk", "[1, 1, q, k]": "qk", "[b, 1, 1, k]": "bk", "[1, h, 1, 1]": "h"}


def mask(axes: str, sizes: dict[str, int]) -> Any:
    """bf16, 1 long along the axes not named."""
    return torch.randn([sizes[a] if a in axes else 1 for a in "bhqk"], device="cuda", dtype=torch.bfloat16)


def rows(dim: int, length: int, rounds: int) -> Iterator[dict[str, Any]]:
    """The CSV rows of a size."""
    sizes = {"b": TOKENS // length, "h": HIDDEN // dim, "q": length, "k": length}
    shape = (sizes["b"], sizes["h"], length, dim)
    desc = bc.FlashSdpaBackwardDescriptor(
        batch_size=sizes["b"], num_heads=sizes["h"], query_len=length, key_len=length, d_k=dim, d_v=dim,
        is_causal=True, element="bfloat16",
    )  # fmt: skip
    plan = bc.FlashSdpaBackwardPlan.select(desc)
    q, k, v, dy = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    operands: dict[str, dict[str, Any]] = {f"mask {name}": {"mask": mask(axes, sizes)} for name, axes in MASKS.items()}
    operands["slopes [h]"] = {"slopes": torch.rand(sizes["h"], device="cuda") * 0.1}
    operands["sinks [h]"] = {"sinks": torch.randn(sizes["h"], device="cuda")}
    made: dict[str, list[Any]] = {}
    for name, given in operands.items():
        field = next(iter(given))
        y, lse = bc.flash_sdpa(q, k, v, **given, is_causal=True, return_lse=True)
        fixed = dict(q=q, k=k, v=v, y=y, lse=lse, dy=dy, **given)
        wanted = {"backward": {f"d{n}": torch.empty_like(q) for n in "qkv"}}
        wanted[f"d{field}"] = {f"d{field}": torch.empty_like(given[field])}
        for what, outputs in wanted.items():
            args = bc.FlashSdpaBackwardArgs(**fixed, **outputs)
            workspace = torch.empty(plan.workspace_size(args), device="cuda", dtype=torch.uint8)
            plan.run(args, workspace)
            made[f"{name}|{what}"] = [plan.bind(args, workspace)]
    times = interleaved(made, rounds)
    work = 4.0 * shape[0] * shape[1] * dim * desc.pairs
    for key, time in times.items():
        name, what = key.split("|")
        flops = "" if what == "dsinks" else f"{work * (2.5 if what == 'backward' else 1) / time.median * 1e-6:.0f}"
        yield {
            "head_dim": dim, "length": length, "operand": name, "gradient": what, "us": f"{time.median:.1f}",
            "tflops": flops,
        }  # fmt: skip


def main() -> int:
    sweep(__doc__, rows, "64,128", "1024,4096", "attention_bias", ("head_dim", "length", "operand", "gradient"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
