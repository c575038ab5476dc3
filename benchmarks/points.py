"""Problems that are timed against torch, a line for what the plan takes and one for every other row of its table.

Results are checked before they are timed. What torch refuses is left out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import checkout  # noqa: F401
import cupy as cp
import torch
from record import Results, add_options
from timing import interleaved

from baracuda_py.measure.tuner import only

KEY = ("group", "problem", "variant")
L2 = 256 << 20  # bytes that the sets of operands cover together
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Point:
    """A problem: `torch(s)`, the plan bound to `args(s)` and `others`, of operands by name, are timed together."""

    group: str
    problem: str
    flops: float
    nbytes: int
    make: Callable[[], dict[str, torch.Tensor]]
    plan: Any
    args: Callable[[Tensors], Any]
    torch: Callable[[Tensors], Any]
    out: str = "y"
    want: Callable[[Tensors], Any] | None = None  # the result, if it is not torch's
    others: Mapping[str, Callable[[Tensors], Any]] = field(default_factory=dict)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def bound(plan: Any, point: Point, sets: list[dict[str, torch.Tensor]], want: torch.Tensor, name: str) -> list[Any]:
    """The plan bound to every set, its first result checked."""
    calls = []
    for s in sets:
        args = point.args(s)
        size = plan.workspace_size(args)
        memory = torch.empty(size, device="cuda", dtype=torch.uint8) if size else None
        calls.append(plan.bind(args, memory))
    got = sets[0][point.out]
    got.fill_(float("nan") if got.is_floating_point() else -1)
    calls[0]()
    error = float((got.float() - want.float()).norm() / want.float().norm())
    if not error < 1e-2:
        raise SystemExit(f"{point.problem}: {name} differs by {error:.3g}")
    return calls


def rows(point: Point, rounds: int) -> Iterator[dict[str, Any]]:
    """The CSV rows of a point."""
    sets = [point.make() for _ in range(max(1, min(8, -(-L2 // point.nbytes))))]
    calls: dict[str, list[Any]] = {"torch": [lambda s=s: point.torch(s) for s in sets]}
    try:
        want = calls["torch"][0]()
    except RuntimeError as error:
        print(f"{point.problem}: torch says {str(error).splitlines()[0]}", flush=True)
        return
    want = want if point.want is None else point.want(sets[0])
    args = point.args(sets[0])
    calls["plan"] = bound(point.plan, point, sets, want, "plan")
    taken = point.plan.plan_layout(args)[0].name
    for row in point.plan.rows:
        alone = only(point.plan, row)
        if row.name not in ("simt", taken) and alone.can_implement(args):
            calls[row.name] = bound(alone, point, sets, want, row.name)
    calls |= {name: [partial(other, s) for s in sets] for name, other in point.others.items()}
    times = interleaved(calls, rounds)
    peer = times.pop("torch")
    for name, time in times.items():
        yield {
            "group": point.group, "problem": point.problem, "variant": name, "us": f"{time.median:.1f}",
            "tflops": f"{point.flops / time.median * 1e-6:.0f}", "tb_s": f"{point.nbytes / time.median * 1e-6:.2f}",
            "torch_us": f"{peer.median:.1f}", "vs_torch": f"{peer.median / time.median:.3f}",
        }  # fmt: skip


def compare(
    description: str, kind: str, groups: str, points: Callable[[list[str]], Iterator[Any]], key: Sequence[str] = KEY,
    rows: Callable[[Any, int], Iterator[dict[str, Any]]] = rows, by: Sequence[str] = ("group", "variant"),
) -> int:  # fmt: skip
    """The script: time the points of the groups that were asked for, print them, and keep them as results of a kind.

    rows: the CSV rows of a point by rounds; key: the fields that name one; by: those that name a line of the summary.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default=groups, help="with commas")
    parser.add_argument("--rounds", type=int, default=12)
    add_options(parser)
    options = parser.parse_args()
    results = Results(options, kind, key)
    done: list[dict[str, Any]] = []
    for point in points(options.groups.split(",")):
        for row in rows(point, options.rounds):
            done.append(row)
            print("  ".join(f"{value:>9}" for value in row.values()), flush=True)
        results.write(done)
        torch.cuda.empty_cache()
        cp.get_default_memory_pool().free_all_blocks()
    ratios: dict[str, list[float]] = {}
    for row in done:
        ratios.setdefault(" ".join(row[field] for field in by), []).append(float(row["vs_torch"]))
    for name, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"{name}: {mean:.3f} of torch (geometric mean), worst {min(found):.3f}")
    return 0
