"""What each of attention's score terms costs beside plain causal attention, forward and backward, in the same run.

    python benchmarks/attention_terms.py [--rounds 8] [--csv [FILE]]

bf16, 16384 tokens, a hidden size of 2048, causal. TFLOP/s count the visible pairs only: `of_plain` is the rate over the
plain row's at equal work, so 1 is no cost: on the same sequences, and for a window of 1024 keys on sequences of 2048,
whose queries see as many. torch's FLASH is the forward's peer where it has the term; its dropout draws 8 bits a weight.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any

import checkout  # noqa: F401
import cupy as cp
import torch
from attention import HIDDEN, TOKENS, check
from record import Results, add_options
from timing import interleaved

import baracuda_py as bc

Row = dict[str, Any]
SHORT = "plain, length 2048"
PEERS = ("plain", "window 1024", "dropout")
TERMS: dict[str, dict[str, Any]] = {
    "plain": {}, SHORT: {}, "window 1024": {"window_left": 1023}, "softcap 50": {"softcap": 50.0},
    "alibi": {"slopes": True}, "sinks": {"sinks": True}, "mask": {"mask": True}, "bias": {"bias": True},
    "dropout": {"dropout_p": 0.1},
}  # fmt: skip


def problem(dim: int, length: int, facts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Descriptor fields, and the operands besides q, k, v."""
    heads, batch = HIDDEN // dim, TOKENS // length
    fields = {
        "batch_size": batch, "num_heads": heads, "query_len": length, "key_len": length, "d_k": dim, "d_v": dim,
        "is_causal": True, "element": "bfloat16", **{n: v for n, v in facts.items() if v is not True},
    }  # fmt: skip
    given: dict[str, Any] = {}
    if "slopes" in facts:
        given["slopes"] = torch.tensor([2 ** (-8 * (h + 1) / heads) for h in range(heads)], device="cuda")
    if "sinks" in facts:
        given["sinks"] = torch.randn(heads, device="cuda")
    if "mask" in facts:
        given["mask"] = torch.rand(batch, 1, 1, length, device="cuda") < 0.9
    if "bias" in facts:
        given["mask"] = torch.randn(1, heads, length, length, device="cuda", dtype=torch.bfloat16)
    if "dropout_p" in facts:
        given["seed"] = 1
    return fields, given


def flash(q: Any, k: Any, v: Any, facts: dict[str, Any]) -> Any:
    """torch's kernel on [batch, sequence, heads, d], with the terms it knows: (y, lse, …)."""
    return torch.ops.aten._flash_attention_forward(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None, None, q.shape[2], k.shape[2],
        facts.get("dropout_p", 0.0), True, False,
        window_size_left=facts.get("window_left"), window_size_right=0 if "window_left" in facts else None,
    )  # fmt: skip


def calls(dim: int, length: int) -> tuple[dict[str, list[Callable[[], Any]]], dict[str, float]]:
    """A call for each direction and term, on two sets of operands, and the work in FLOP."""
    made: dict[str, list[Callable[[], Any]]] = {}
    work: dict[str, float] = {}
    shape = (TOKENS // length, HIDDEN // dim, length, dim)
    sets = [
        {n: torch.randn(shape, device="cuda", dtype=torch.bfloat16) for n in ("q", "k", "v", "dy")} for _ in range(2)
    ]
    for name, facts in TERMS.items():
        fields, given = problem(dim, 2048 if name == SHORT else length, facts)
        here = tuple(fields[n] for n in ("batch_size", "num_heads", "query_len", "d_k"))
        forward = bc.FlashSdpaPlan.select(bc.FlashSdpaDescriptor(**fields))
        backward = bc.FlashSdpaBackwardPlan.select(bc.FlashSdpaBackwardDescriptor(**fields))
        work[f"forward {name}"] = 4.0 * here[0] * here[1] * dim * forward.desc.pairs
        work[f"backward {name}"] = 2.5 * work[f"forward {name}"]
        for s in sets:
            q, k, v, dy = (a.view(here) for a in s.values())
            qkv = {"q": q, "k": k, "v": v}
            y, lse = torch.empty_like(q), torch.empty(here[:3], device="cuda")
            args = bc.FlashSdpaArgs(**qkv, **given, y=y, lse=lse)
            forward.run(args)
            made.setdefault(f"forward {name}", []).append(forward.bind(args))
            if name in PEERS:
                if "dropout_p" not in facts:
                    check(name, y, flash(q, k, v, facts)[0].transpose(1, 2))
                made.setdefault(f"flash {name}", []).append(lambda q=q, k=k, v=v, facts=facts: flash(q, k, v, facts))
            grads = {f"d{n}": torch.empty_like(a) for n, a in qkv.items()}
            args = bc.FlashSdpaBackwardArgs(**qkv, **given, y=y, lse=lse, dy=dy, **grads)
            workspace = torch.empty(backward.workspace_size(args), device="cuda", dtype=torch.uint8)
            backward.run(args, workspace)
            made.setdefault(f"backward {name}", []).append(backward.bind(args, workspace))
    return made, work


def rows(dim: int, length: int, rounds: int) -> Iterator[Row]:
    """The CSV rows of a size."""
    made, work = calls(dim, length)
    times = interleaved(made, rounds)
    for direction in ("forward", "backward"):
        rates = {name: work[f"{direction} {name}"] / times[f"{direction} {name}"].median for name in TERMS}
        for name, rate in rates.items():
            time = times[f"{direction} {name}"].median
            plain = rates[SHORT if name == "window 1024" else "plain"]
            peer = times.get(f"flash {name}") if direction == "forward" else None
            yield {
                "direction": direction, "head_dim": dim, "length": length, "term": name, "us": f"{time:.1f}",
                "tflops": f"{rate * 1e-6:.0f}", "of_plain": f"{rate / plain:.3f}",
                "flash_us": "" if peer is None else f"{peer.median:.1f}",
            }  # fmt: skip


def sweep(
    doc: str | None, rows: Callable[[int, int, int], Iterator[Row]], points: str, lengths: str, kind: str,
    key: tuple[str, ...],
) -> list[Row]:  # fmt: skip
    """A program: the rows of every head_dim and length that its command line asks for, printed, and as CSV."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", default=points, help="head_dims, with commas")
    parser.add_argument("--lengths", default=lengths, help="lengths of the sequences, with commas")
    parser.add_argument("--rounds", type=int, default=8)
    add_options(parser)
    options = parser.parse_args()
    results = Results(options, kind, key)
    done: list[Row] = []
    for dim in map(int, options.points.split(",")):
        for length in map(int, options.lengths.split(",")):
            for row in rows(dim, length, options.rounds):
                done.append(row)
                print("  ".join(f"{value:>14}" for value in row.values()), flush=True)
            cp.get_default_memory_pool().free_all_blocks()
            torch.cuda.empty_cache()
            results.write(done)
    return done


def main() -> int:
    done = sweep(
        __doc__, rows, "64,128,256", "2048,4096,16384", "attention_terms", ("direction", "head_dim", "length", "term")
    )
    for name in TERMS:
        found = [float(r["of_plain"]) for r in done if r["term"] == name]
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"{name}: {mean:.3f} of plain (geometric mean), worst {min(found):.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
