"""What the bits that all attention shares cost: PlanPreference(same_bits=True) against the fastest rows.

    python benchmarks/attention_same_bits.py [--csv [FILE]] [--rounds 6] [--only "dense 4x4096"]

bf16, causal. "dense" and "packed": training's forward, 32/8 heads of 128, flash_sdpa and flash_sdpa_varlen. "decode":
one query a sequence from a dense cache, 64/8 heads, flash_decoding. "bits" says whether the last token's output has the
bits of batch_paged_extend on it alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import checkout  # noqa: F401
import torch
from attention import check
from attention_varlen import bound
from record import Results, add_options
from timing import interleaved

import baracuda_py as bc

D = 128
SHAPES = (
    ("dense", 4, 4096), ("dense", 1, 16384), ("dense", 1, 65536), ("dense", 16, 1024), ("packed", 4, 4096),
    ("packed", 64, 1024), ("decode", 32, 8192), ("decode", 1, 8192), ("decode", 1, 131072), ("decode", 128, 2048),
)  # fmt: skip
ASKED = {"fastest": None, "same_bits": bc.PlanPreference(same_bits=True)}


def problem(kind: str, batch: int, length: int) -> tuple[Any, dict[str, Any], tuple[int, ...]]:
    """The plan and what its descriptor and arguments hold, without y; the shape of y."""
    heads = 64 if kind == "decode" else 32

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    if kind == "decode":
        arrays = {"q": made(batch, heads, D), "k": made(batch, 8, length, D), "v": made(batch, 8, length, D)}
        facts: dict[str, Any] = {"batch_size": batch, "max_cache_len": length}
        plan, shape = bc.FlashDecodingPlan, (batch, heads, D)
    elif kind == "packed":
        total = batch * length
        arrays = {"q": made(total, heads, D), "k": made(total, 8, D), "v": made(total, 8, D)}
        bounds = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * length
        arrays |= {"cu_seqlens_q": bounds, "cu_seqlens_k": bounds}
        facts = {"batch_size": batch, "total_q": total, "total_k": total, "is_causal": True}
        facts |= {"max_seqlen_q": length, "max_seqlen_k": length}
        plan, shape = bc.FlashSdpaVarlenPlan, (total, heads, D)
    else:  # [batch, length, heads, d] in memory, as models have it
        arrays = {
            n: made(batch, length, of, D).transpose(1, 2) for n, of in (("q", heads), ("k", 8), ("v", 8))
        }  # fmt: skip
        facts = {"batch_size": batch, "query_len": length, "key_len": length, "is_causal": True}
        plan, shape = bc.FlashSdpaPlan, (batch, heads, length, D)
    facts |= {"num_heads": heads, "num_kv_heads": 8, "d_k": D, "d_v": D, "element": "bfloat16"}
    return plan, {"facts": facts, "arrays": arrays}, shape


def alone(kind: str, arrays: dict[str, Any], batch: int, length: int) -> torch.Tensor:
    """The last token of the last sequence by batch_paged_extend, [heads, d]: its keys are one page."""
    if kind == "decode":
        q, k, v = (arrays[n][-1:] for n in ("q", "k", "v"))
    elif kind == "packed":
        q = arrays["q"][-1:]
        k, v = (arrays[n][-length:].transpose(0, 1)[None] for n in ("k", "v"))
    else:
        q = arrays["q"][-1:, :, -1].contiguous()
        k, v = (arrays[n][-1:] for n in ("k", "v"))
    tables = {
        "page_table": torch.zeros(1, 1, device="cuda", dtype=torch.int32),
        "lengths": torch.tensor([length], device="cuda", dtype=torch.int32),
    }
    bounds = torch.tensor([0, 1], device="cuda", dtype=torch.int32)
    return bc.batch_paged_extend(q, k, v, bounds, **tables)[0]


def row(kind: str, batch: int, length: int, rounds: int) -> dict[str, Any]:
    """A CSV row."""
    plan, given, shape = problem(kind, batch, length)
    calls: dict[str, list[Callable[[], Any]]] = {}
    kept, made, workspace = [], {}, 0
    for name, preference in ASKED.items():
        y = torch.empty(shape, device="cuda", dtype=torch.bfloat16)
        args = plan.args(**given["arrays"], y=y)
        chosen = plan.select(plan.descriptor(**given["facts"]), preference)
        workspace = chosen.workspace_size(args)
        calls[name] = [bound(chosen, args)]
        calls[name][0]()
        kept.append(args)
        made[name] = y
    check("y", *made.values())
    last = made["same_bits"][-1] if kind != "dense" else made["same_bits"][-1, :, -1]
    same = torch.equal(last, alone(kind, given["arrays"], batch, length))
    us = {name: t.median for name, t in interleaved(calls, rounds).items()}
    heads = given["facts"]["num_heads"]
    flops = 4 * D * heads * batch * (length if kind == "decode" else length * (length + 1) // 2)
    return {
        "kind": kind, "batch": batch, "length": length, "fastest_us": f"{us['fastest']:.1f}",
        "same_bits_us": f"{us['same_bits']:.1f}", "times": f"{us['same_bits'] / us['fastest']:.3f}",
        "tflops": f"{flops * 1e-6 / us['same_bits']:.0f}", "workspace_mib": f"{workspace / 2**20:.0f}",
        "bits": "same" if same else "differ",
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default=None, help="problems as 'dense 4x4096', with commas")
    add_options(parser)
    options = parser.parse_args()
    results = Results(options, "attention_same_bits", ("kind", "batch", "length"))
    wanted = options.only and [one.strip() for one in options.only.split(",")]
    done: list[dict[str, Any]] = []
    for kind, batch, length in SHAPES:
        if wanted and f"{kind} {batch}x{length}" not in wanted:
            continue
        done.append(row(kind, batch, length, options.rounds))
        print("  ".join(f"{value:>9}" for value in done[-1].values()), flush=True)
        results.write(done)
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
