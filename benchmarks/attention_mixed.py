"""Decoding beside chunks of prompts: one launch of batch_paged_extend against two, of decoding and of the chunks.

    python benchmarks/attention_mixed.py [--csv [FILE]] [--rounds 6]

bf16, 64/8 heads of 128, pages of 16 dealt out at random: 128 sequences of 8192 tokens with a query each, and one or two
with 2048. "two" are two launches of batch_paged_extend, "fastest" one of batch_paged_decode and one of
batch_paged_prefill. Results are checked against each other.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import checkout  # noqa: F401
import torch
from attention import check
from attention_extend import HEADS, PAGE, D, Problem
from attention_varlen import bound
from record import Results, add_options
from timing import interleaved

import baracuda_py as bc

DECODES, LENGTH, CHUNK = 128, 8192, 2048


def part(problem: Problem, q: Any, first: int, count: int, queries: int, plan: str) -> tuple[Callable[[], Any], Any]:
    """A launch for `count` sequences from `first` on, of as many queries each, and what it writes."""
    counts = torch.full((count,), queries, device="cuda")
    return launch(problem, q, slice(first, first + count), counts, queries, plan)


def launch(
    problem: Problem, q: Any, some: slice, counts: Any, longest: int, plan: str
) -> tuple[Callable[[], Any], Any]:
    """A launch for some sequences with `counts` queries, and what it writes."""
    y = torch.empty_like(q)
    bounds = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
    operands = {"page_table": problem.table[some], "lengths": problem.lengths[some]}
    facts = {"total_q": len(q), "max_seqlen_q": longest, "is_causal": True} if plan != "BatchPagedDecode" else {}
    more = {"qo_indptr": bounds} if facts else {}
    desc = getattr(bc, f"{plan}Descriptor")(**problem.sizes | {"batch_size": len(counts)}, **facts)
    args = getattr(bc, f"{plan}Args")(q=q, y=y, **problem.tables | operands, **more)
    return problem.keep(bound(getattr(bc, f"{plan}Plan").select(desc), args), args), y


def row(chunks: int, rounds: int) -> dict[str, Any]:
    """A CSV row."""
    problem = Problem(DECODES + chunks, LENGTH)
    q = torch.randn(DECODES + chunks * CHUNK, HEADS, D, device="cuda", dtype=torch.bfloat16)
    counts = torch.tensor([1] * DECODES + [CHUNK] * chunks, device="cuda")
    one, y = launch(problem, q, slice(None), counts, CHUNK, "BatchPagedExtend")
    calls: dict[str, list[Callable[[], Any]]] = {"one": [one]}
    for name, plans in (("two", ("Extend", "Extend")), ("fastest", ("Decode", "Prefill"))):
        decoding, of_decoding = part(problem, q[:DECODES], 0, DECODES, 1, f"BatchPaged{plans[0]}")
        prompts, of_prompts = part(problem, q[DECODES:], DECODES, chunks, CHUNK, f"BatchPaged{plans[1]}")
        calls[name] = [lambda a=decoding, b=prompts: (a(), b())]
        one(), decoding(), prompts()
        check(f"y of {name}", y, torch.cat([of_decoding, of_prompts]))
    us = {name: f"{t.median:.1f}" for name, t in interleaved(calls, rounds).items()}
    return {"decodes": DECODES, "chunks": chunks, "context": LENGTH, "page": PAGE, **us}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    add_options(parser)
    options = parser.parse_args()
    results = Results(options, "attention_mixed", ("decodes", "chunks", "context"))
    done: list[dict[str, Any]] = []
    for chunks in (1, 2):
        done.append(row(chunks, options.rounds))
        print("  ".join(f"{name} {value}" for name, value in done[-1].items()), flush=True)
        results.write(done)
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
