"""`bench`: time an op or a family here, beside other packages; or two files of results side by side."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from ..core.device import in_use, resolve_device
from ..core.errors import BaracudaError
from ..measure import problems, results
from ..measure.timing import copy_bandwidth, interleaved, on_host
from .explain import device_of, value_of
from .names import plan_of, plans_of
from .progress import Progress

SAYS = "time an op or a family, beside other packages; or compare two files of results"


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("ops", nargs="*", metavar="OP", help="families, ops, plans or kinds (default: all)")
    parser.add_argument("--shapes", type=Path, metavar="FILE", help="problems of one op, `field=value …` a line")
    parser.add_argument("--against", default="", metavar="PEERS", help="torch, torch.compile, cupy, numpy; by commas")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="keep the rows there, in place of the same problems'")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="a bar chart; needs matplotlib")
    parser.add_argument("--device", help="cpu or cuda:N (default: CUDA where there is one)")
    parser.add_argument("--list", action="store_true", help="print the problems instead of timing them")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="two files of --csv")
    parser.add_argument(
        "--tolerance", type=float, default=5.0, metavar="PERCENT",
        help="how much slower a problem of NEW may be; the exit status is 1 where one is slower (default: 5)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Print a row a problem."""
    if options.compare:
        return _compare(options.compare[0], options.compare[1], options.tolerance)
    if options.rounds < 1:
        raise BaracudaError(f"--rounds must be at least 1, got {options.rounds}")
    device = in_use(resolve_device(device_of(options.device)))
    chosen = chosen_problems(options, device.kind == "cpu")
    if options.list:
        print("\n".join(f"{p.plan.op:<40} {p.label}" for p in chosen))
        return 0
    if device.fake:
        raise BaracudaError(f"nothing runs on {device.name}; its dispatch is shown by explain")
    against = [name for name in options.against.split(",") if name]
    ceiling = copy_bandwidth(1 << 30) if device.kind == "cuda" else None
    print(f"on {device} ({device.name})" + (f", copy {ceiling / 1e12:.2f} TB/s" if ceiling else ""))
    rows = []
    with Progress(len(chosen), "bench") as step:
        for problem in chosen:
            row, notes = measured(problem, device, against, options.rounds, ceiling)
            rows.append(row)
            said = f"{row['op']:<28} {row['shape'][:44]:<44} {row['us']:>12} us {row['rate']:>8} {row['unit']:<7}"
            of = f" {100 * float(row['fraction']):5.1f} %" if row["fraction"] else ""
            print(f"{said}{of}  {row['peers']}", flush=True)
            for note in notes:
                print(f"    left out  {note}")
            if options.csv:
                results.write(options.csv, [row])
            step(problem.label)
    if options.plot:
        plot(options.plot, rows)
    return 0


def chosen_problems(options: argparse.Namespace, small: bool) -> list[problems.Problem]:
    """The problems that the command line names: those of ops, or of a file of shapes."""
    if options.shapes is None:
        return problems.declared(dict.fromkeys(p for n in options.ops for p in plans_of(n)), options.ops, small)
    if len(options.ops) != 1:
        raise BaracudaError("--shapes has problems of one op; name it")
    plan = plan_of(options.ops[0])
    found = problems.of_lines(plan, options.shapes.read_text().splitlines(), value_of)
    if not found:
        raise BaracudaError(f"{options.shapes} has no problem; write one a line, such as batch_shape=8,128 eps=1e-5")
    return found


def measured(
    problem: problems.Problem, device: Any, against: list[str], rounds: int, ceiling: float | None
) -> tuple[dict[str, str], list[str]]:
    """The row of one problem, and which peers were left out and why."""
    case = problems.ready(problem, device, against)
    times = (interleaved if device.kind == "cuda" else on_host)(case.candidates, rounds)
    own = times.pop("baracuda")
    work, unit = problem.work
    rate = work / (own.median * 1e-6)
    best = min(times, key=lambda name: times[name].median) if times else ""
    row = {
        "op": problem.plan.op, "shape": problem.label, "element": str(problem.desc.element), "sku": case.sku,
        "device": device.name, "us": f"{own.median:.2f}", "p20": f"{own.p20:.2f}", "p80": f"{own.p80:.2f}",
        "rate": f"{rate / 1e12:.4g}", "unit": unit,
        "fraction": f"{rate / ceiling:.3f}" if ceiling and unit == "TB/s" else "", "peer": best,
        "peer_us": f"{times[best].median:.2f}" if best else "",
        "peers": "; ".join(f"{name} {t.median:.1f}" for name, t in times.items()),
    }  # fmt: skip
    return row, case.left_out


def _compare(old: Path, new: Path, tolerance: float) -> int:
    """Print what changed, the slowest first; 1 where a problem is slower than allowed."""
    if not 0 <= tolerance < math.inf:
        raise BaracudaError(f"--tolerance takes a percentage of at least 0, got {tolerance}")
    both, gone, fresh = results.compare(old, new)
    if not both:
        raise BaracudaError(f"{old} and {new} have no problem in common")
    slower = [change for change in both if change.speedup < 1 / (1 + tolerance / 100)]
    for change in sorted(both, key=lambda one: one.speedup):
        mark = "SLOWER" if change in slower else ""
        print(f"{change.name:<72.72} {change.old:>10.2f} -> {change.new:>10.2f} us {change.speedup:6.2f}x {mark}")
    for word, names in (("only in OLD", gone), ("only in NEW", fresh)):
        print(*(f"{word}  {name}" for name in names), sep="\n", end="\n" if names else "")
    print(f"{len(both)} problems, {results.mean_speedup(both):.3f}x by geometric mean, {len(slower)} slower")
    return 1 if slower else 0


def plot(path: Path, rows: list[dict[str, str]]) -> None:
    """Bars of microseconds, ours and the peers', a group a problem."""
    try:
        import matplotlib
    except ImportError:
        raise BaracudaError("--plot needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    series = [{"baracuda_py": float(row["us"])} | _peers(row["peers"]) for row in rows]
    names = list(dict.fromkeys(name for one in series for name in one))
    figure, axis = pyplot.subplots(figsize=(9, 1 + 0.35 * len(rows) * len(names)), layout="constrained")
    high = 0.8 / len(names)
    for i, name in enumerate(names):
        places = [k + i * high for k, one in enumerate(series) if name in one]
        axis.barh(places, [one[name] for one in series if name in one], high, label=name)
    axis.set_yticks([k + high * (len(names) - 1) / 2 for k in range(len(rows))])
    axis.set_yticklabels([f"{row['op'].partition('.')[2]}  {row['shape'][:48]}" for row in rows])
    axis.invert_yaxis()
    axis.set(xlabel="microseconds", xscale="log")
    axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _peers(text: str) -> dict[str, float]:
    return {name: float(us) for name, _, us in (part.rpartition(" ") for part in text.split("; ") if part)}
