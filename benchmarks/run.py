"""Benchmarks of every op on this GPU, peers interleaved in the same run.

    python benchmarks/run.py [OP …] [--rounds 30] [--csv benchmarks/results/nvidia_h200.csv] [--no-compile]

Prints a row per case: time, TB/s or TFLOP/s, the fraction of the ceiling measured in this run (a large copy; a bf16
matrix product), and the peers. Every result is checked against the first peer before it is timed.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import cascade_cases  # noqa: F401  (registers its cases, as the next)
import cupy as cp
import model_cases  # noqa: F401
import paged_cases  # noqa: F401
import position_cases  # noqa: F401
import reduce_cases  # noqa: F401
import sdpa_cases  # noqa: F401
import sparse_cases  # noqa: F401
from cases import Case, cases
from record import write
from timing import Timing, copy_bandwidth, interleaved


def versions() -> str:
    """Software of the run, for the record."""
    import baracuda_py

    found = [
        f"baracuda_py {baracuda_py.__version__}",
        f"cupy {cp.__version__}",
        f"driver CUDA {cp.cuda.runtime.driverGetVersion()}",
    ]
    if "torch" in sys.modules:
        found.append(f"torch {sys.modules['torch'].__version__}")
    return "; ".join(found)


def matmul_ceiling() -> float:
    """FLOP/s of a bf16 8192³ product through cuBLAS (torch), random data."""
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * 8192**3 / (interleaved({"mm": [lambda: torch.mm(a, b, out=out)]}, 10)["mm"].median * 1e-6)


def row(case: Case, times: dict[str, Timing], ceilings: dict[str, float]) -> dict[str, Any]:
    """The CSV row of a case."""
    own = times.pop("baracuda")
    work, unit = (case.flops, "TFLOP/s") if case.flops else (case.bytes, "TB/s")
    rate = work / (own.median * 1e-6)
    peer = min(times, key=lambda name: times[name].median) if times else ""
    return {
        "op": case.op,
        "shape": case.shape,
        "element": case.element,
        "sku": case.sku,
        "us": f"{own.median:.2f}",
        "p20": f"{own.p20:.2f}",
        "p80": f"{own.p80:.2f}",
        "rate": f"{rate / 1e12:.2f}",
        "unit": unit,
        "fraction": f"{rate / ceilings[unit]:.3f}",
        "target": case.target,
        "peer": peer,
        "peer_us": f"{times[peer].median:.2f}" if peer else "",
        "peers": "; ".join(f"{name} {t.median:.1f}" for name, t in times.items()),
        "versions": versions(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="substrings of op names (default: all)")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--csv", help="write the rows here")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    ceilings = {"TB/s": copy_bandwidth(), "TFLOP/s": matmul_ceiling()}
    print(f"ceilings: copy {ceilings['TB/s'] / 1e12:.2f} TB/s, bf16 matmul {ceilings['TFLOP/s'] / 1e12:.0f} TFLOP/s")
    rows, start = [], time.perf_counter()
    for make in cases(options.ops, compiled=not options.no_compile):
        case = make()
        case.verify()
        done = row(case, interleaved(case.candidates, options.rounds), ceilings)
        rows.append(done)
        print(
            f"{done['op']:<24} {done['shape']:<28} {done['us']:>10} µs {done['rate']:>8} {done['unit']:<7} "
            f"{100 * float(done['fraction']):5.1f} %  {done['peers']}",
            flush=True,
        )
        del case
        write(options.csv, rows)
        cp.get_default_memory_pool().free_all_blocks()
    print(f"{len(rows)} cases in {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
