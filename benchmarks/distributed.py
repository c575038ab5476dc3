"""Collectives and layers over ranks, a process a GPU, beside NCCL and symmetric memory through torch in the same run.

    python benchmarks/distributed.py [--gpus 2] [--parts collectives,gemm,ring,experts] [--seconds 300] [--csv [FILE]]

collectives: all-reduce, reduce-scatter and all-gather of 1 KB to 1 GB of bf16, every row of ours, eager and in a CUDA
graph. gemm: products with all-reduce, reduce-scatter and all-gather at Llama's shapes, chunks of rows overlapped and
not. ring: attention over ranks, and experts: a mixture of experts, as fractions of one GPU's rate. Times are of the
slowest rank. Multicast over NVLink stays off in all of them. `--device cpu` runs tiny problems on the host, to test.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterable
from typing import Any

import checkout  # noqa: F401
import distributed_parts
import record

from baracuda_py import distributed

KEY = ("part", "problem", "ranks", "variant", "mode")
OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""NVLink multicast, which needs rights that ranks in containers may lack: off for all that is compared."""


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2, metavar="N", help="ranks (default: 2)")
    parser.add_argument("--parts", default=",".join(distributed_parts.PARTS), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=300.0, help="stop after these, the problem at hand finished")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default="", metavar="TEXT", help="problems whose names have this text")
    record.add_options(parser)
    asked = parser.parse_args(argv)
    asked.parts = [one for one in asked.parts.split(",") if one]
    if wrong := [one for one in asked.parts if one not in distributed_parts.PARTS]:
        parser.error(f"--parts are of {', '.join(distributed_parts.PARTS)}, got {wrong[0]}")
    if asked.gpus < 1:
        parser.error(f"--gpus must be 1 or more, got {asked.gpus}")
    return asked


def table(rows: Iterable[dict[str, Any]]) -> list[str]:
    """A line a problem and mode: the fastest of ours beside the fastest of torch's, or beside one GPU.

    share: of the peer's rate; of attention over ranks, the share that each rank has of one GPU's rate.
    """
    best: dict[tuple[str, ...], dict[str, tuple[float, str]]] = {}
    for row in rows:
        place = best.setdefault((row["part"], row["problem"], str(row["ranks"]), row["mode"]), {})
        kind = "peer" if row["variant"].startswith(("torch", "one GPU")) else "ours"
        now = float(row["us"]), row["variant"]
        place[kind] = min(place.get(kind, now), now)
    none = float("nan"), "-"
    lines = [f"{'problem':<46} {'mode':<6} {'us':>10}  {'ours':<24} {'peer us':>10}  {'peer':<15} share"]
    for (part, problem, ranks, mode), found in best.items():
        (us, name), (peer, other) = found.get("ours", none), found.get("peer", none)
        share = peer / us / (int(ranks) if part == "ring" else 1)
        lines.append(
            f"{f'{problem} × {ranks}':<46} {mode:<6} {us:10.1f}  {name:<24} {peer:10.1f}  {other:<15} {share:.2f}"
        )
    return lines


def main(argv: list[str] | None = None) -> int:
    asked = options(argv)
    os.environ.update(OFF)
    kept = record.Results(asked, "distributed", KEY)
    with tempfile.TemporaryDirectory() as meeting:
        until = time.time() + asked.seconds
        given = (meeting, asked.device, asked.parts, until, asked.only)
        ranks = distributed.run_ranks(
            distributed_parts.work, asked.gpus, *given, engine="processes", timeout=max(120.0, asked.seconds)
        )
    rows = ranks[0]
    kept.write(rows)
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
