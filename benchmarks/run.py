"""Benchmarks of every op on this GPU, peers interleaved in the same run.

    python benchmarks/run.py [OP …] [--list] [--rounds 30] [--csv [FILE]] [--no-compile]

The problems are those that the ops' pages declare (`--list` prints them, without a GPU). Prints a row per problem:
time, TB/s or TFLOP/s, the fraction of the ceiling measured in this run (a large copy; a bf16 matrix product), and the
peers. Every result is checked against the op in torch, where its page has one, before it is timed.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import checkout  # noqa: F401
from record import Results, add_options

from baracuda_py.core import registry

KEY = ("op", "shape")


def declared(names: list[str]) -> list[tuple[Any, Any]]:
    """(plan, benchmark) of the pages whose op or problem has one of `names`; a plan that inherits is its base."""
    return [
        (plan, benchmark)
        for plan in registry.plans().values()
        for benchmark in vars(plan).get("benchmarks", ())
        if not names or any(name in f"{plan.op} {benchmark.label}" for name in names)
    ]


def row(case: Any, times: dict[str, Any], ceilings: dict[str, float]) -> dict[str, Any]:
    """The CSV row of a case."""
    own = times.pop("baracuda")
    rate = case.work / (own.median * 1e-6)
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
        "unit": case.unit,
        "fraction": f"{rate / ceilings[case.unit]:.3f}",
        "target": case.target,
        "peer": peer,
        "peer_us": f"{times[peer].median:.2f}" if peer else "",
        "peers": "; ".join(f"{name} {t.median:.1f}" for name, t in times.items()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="substrings of ops and problems (default: all)")
    parser.add_argument("--list", action="store_true", help="print the problems instead of measuring")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    add_options(parser)
    options = parser.parse_args()
    problems = declared(options.ops)
    if not problems:
        parser.error(f"no problem of {', '.join(options.ops)}; `--list` prints all")
    if options.list:
        print("\n".join(f"{plan.op:<40} {benchmark.label}" for plan, benchmark in problems))
        return 0
    import cupy as cp
    import torch
    from cases import WrongResult, make
    from timing import copy_bandwidth, interleaved, matmul_rate

    torch.set_default_device("cuda")  # of what the ops in torch make on their way
    results, start = Results(options, key=KEY), time.perf_counter()
    wrong: list[str] = []
    ceilings = {"TB/s": copy_bandwidth(), "TFLOP/s": matmul_rate()}
    print(f"ceilings: copy {ceilings['TB/s'] / 1e12:.2f} TB/s, bf16 matmul {ceilings['TFLOP/s'] / 1e12:.0f} TFLOP/s")
    for plan, benchmark in problems:
        try:
            case = make(plan, benchmark, compiled=not options.no_compile)
        except WrongResult as error:
            wrong.append(str(error))
            continue
        except Exception as error:  # of a peer, mostly: the others are measured all the same
            wrong.append(f"{plan.op} {benchmark.label}: {type(error).__name__}: {error}")
            continue
        done = row(case, interleaved(case.candidates, options.rounds), ceilings)
        print(
            f"{done['op']:<24} {done['shape']:<28} {done['us']:>10} µs {done['rate']:>8} {done['unit']:<7} "
            f"{100 * float(done['fraction']):5.1f} %  {done['peers']}",
            flush=True,
        )
        del case
        results.write([done])
        cp.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
    print(f"{len(problems)} problems in {time.perf_counter() - start:.0f} s")
    print("\n".join(f"wrong: {line}" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
