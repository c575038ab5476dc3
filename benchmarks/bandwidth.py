"""Bandwidth over size: elementwise ops, reductions and scans from 1 KiB to 4 GiB, in every layout, beside a plain copy.

    python benchmarks/bandwidth.py [elementwise reduction scan] [--sizes 1K,64M] [--only cumsum/columns,silu]
                                   [--compile] [--csv [FILE]]

A size is the bytes of x. `transposed` reads x along its columns, `sliced` x and y as parts of wider rows, `broadcast` a
second operand of one row; reductions and scans run along rows of 4096 elements, along columns, and over all of x.
Peers (torch, CuPy, torch.compile with `--compile`) and a copy of x's bytes are interleaved in the same run; every
result is compared with torch's first. `--plot` draws the CSV instead of measuring.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
from record import Results, add_options

COLUMNS = 4096
KEY = ("family", "op", "layout", "element", "bytes")
Calls = dict[str, Callable[[], Any]]
SIZES = "1K,16K,256K,4M,64M,512M,4G"
CHECKED = 64 << 20  # bytes up to which results are compared
PEERS = ("copy", "torch", "torch.compile", "cupy")


def nbytes(text: str) -> int:
    """A size such as 64M in bytes."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"a size is a number and K, M or G, got {text!r}")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def shape_of(count: int) -> tuple[int, int]:
    """Rows of COLUMNS elements, or of as many as there are."""
    columns = min(COLUMNS, count)
    return max(1, count // columns), columns


def elementwise(torch: Any, x: Any, compiled: bool) -> Iterator[tuple[str, str, int, Calls]]:
    """(op, layout, bytes moved, calls by name) for the elements of x."""
    import cupy as cp

    import baracuda_py as bc

    rows, columns = x.shape
    size = x.element_size()
    y = torch.empty_like(x)
    wide = (
        torch.randn(rows, columns + 8, device=x.device, dtype=torch.float32).to(x.dtype) if x.numel() < 2**30 else None
    )
    row = torch.randn(columns, device=x.device, dtype=x.dtype)
    silu = torch.nn.functional.silu
    fused = torch.compile(silu) if compiled else silu
    laid = {"contiguous": (x, x, y), "broadcast": (x, row, y)}
    if rows > 1:
        laid["transposed"] = (x.view(columns, rows).t(), x, y)
        if wide is not None:
            laid["sliced"] = (wide[:, :columns], x, y)
    for layout, (a, b, out) in laid.items():
        moved = (2 * x.numel() + b.numel()) * size
        calls: Calls = {
            "baracuda": lambda a=a, b=b, out=out: bc.add(a, b, out=out),
            "torch": lambda a=a, b=b, out=out: torch.add(a, b, out=out),
        }
        if x.dtype == torch.float32:
            p, q, r = (cp.from_dlpack(t) for t in (a, b, out))
            calls["cupy"] = lambda p=p, q=q, r=r: cp.add(p, q, out=r)
        yield "add", layout, moved, calls
        if layout == "broadcast":
            continue
        calls = {"baracuda": lambda a=a, out=out: bc.silu(a, out=out), "torch": lambda a=a: silu(a)}
        if compiled:
            calls["torch.compile"] = lambda a=a: fused(a)
        yield "silu", layout, 2 * x.numel() * size, calls


def reduction(torch: Any, x: Any, compiled: bool) -> Iterator[tuple[str, str, int, Calls]]:
    """As `elementwise`."""
    import cupy as cp

    import baracuda_py as bc

    for op, ours, theirs in (("sum", bc.sum, torch.sum), ("amax", bc.amax, torch.amax)):
        for layout, axis in (("rows", 1), ("columns", 0), ("all", (0, 1))):
            y = ours(x, axis=axis)
            calls: Calls = {
                "baracuda": lambda ours=ours, axis=axis, y=y: ours(x, axis=axis, out=y),
                "torch": lambda theirs=theirs, axis=axis: theirs(x, axis),
            }
            if x.dtype == torch.float32:
                p, name = cp.from_dlpack(x), op.removeprefix("a")
                calls["cupy"] = lambda p=p, name=name, axis=axis: getattr(cp, name)(p, axis=axis)
            yield op, layout, (x.numel() + y.numel()) * x.element_size(), calls


def scan(torch: Any, x: Any, compiled: bool) -> Iterator[tuple[str, str, int, Calls]]:
    """As `elementwise`."""
    import cupy as cp

    import baracuda_py as bc

    for layout, view, axis in (("rows", x, 1), ("columns", x, 0), ("all", x.view(-1), 0)):
        y = torch.empty_like(view)
        calls: Calls = {
            "baracuda": lambda view=view, axis=axis, y=y: bc.cumsum(view, axis=axis, out=y),
            "torch": lambda view=view, axis=axis, y=y: torch.cumsum(view, axis, out=y),
        }
        if x.dtype == torch.float32:
            p, q = cp.from_dlpack(view), cp.from_dlpack(y)
            calls["cupy"] = lambda p=p, q=q, axis=axis: cp.cumsum(p, axis=axis, out=q)
        yield "cumsum", layout, 2 * x.numel() * x.element_size(), calls


FAMILIES = {"elementwise": elementwise, "reduction": reduction, "scan": scan}


def check(name: str, calls: Calls) -> None:
    """Ours against torch's by relative norm; a sum of many 16-bit numbers differs by what torch rounds."""
    ours, theirs = calls["baracuda"](), calls["torch"]()
    error = float((ours.double() - theirs.double()).norm() / theirs.double().norm().clamp_min(1e-30))
    if not error < 5e-2:
        raise SystemExit(f"{name} is off torch's by {error:.3g} (relative norm)")


def points(family: str, x: Any, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The CSV rows of a family for the elements of x; each is printed."""
    import torch
    from timing import interleaved

    spare, element = torch.empty_like(x), str(x.dtype).removeprefix("torch.")
    for op, layout, moved, calls in FAMILIES[family](torch, x, options.compile):
        if options.only and not {op, layout, f"{op}/{layout}"} & set(options.only.split(",")):
            continue
        if x.nbytes <= CHECKED:
            check(f"{family} {op} {layout} {element} {x.nbytes}", calls)
        calls["copy"] = lambda: spare.copy_(x)
        times = interleaved({name: [call] for name, call in calls.items()}, options.rounds)
        rate = {name: (2 * x.nbytes if name == "copy" else moved) / t.median * 1e-6 for name, t in times.items()}
        row = {
            "family": family, "op": op, "layout": layout, "element": element, "bytes": x.nbytes,
            "us": f"{times['baracuda'].median:.2f}", "tbs": f"{rate['baracuda']:.3f}",
            "of_copy": f"{rate['baracuda'] / rate['copy']:.3f}",
            **{f"{peer}_tbs": f"{rate[peer]:.3f}" if peer in rate else "" for peer in PEERS},
        }  # fmt: skip
        print("  ".join(f"{value:>11}" for value in row.values()), flush=True)
        yield row


def measure(options: argparse.Namespace, results: Results) -> None:
    """Every family for every size and element."""
    import cupy as cp
    import torch

    for element in (torch.float32, torch.bfloat16):
        for size in options.sizes:
            x = torch.randn(shape_of(size // element.itemsize), device="cuda").to(element)
            for family in options.families:
                results.write(list(points(family, x, options)))
            del x
            torch.cuda.empty_cache()
            cp.get_default_memory_pool().free_all_blocks()


def plot(path: Path) -> None:
    """TB/s over bytes: a panel for each op and layout of a family; a figure a family."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with path.open() as file:
        found = list(csv.DictReader(file))
    for family in dict.fromkeys(row["family"] for row in found):
        own = [row for row in found if row["family"] == family]
        panels = list(dict.fromkeys((row["op"], row["layout"]) for row in own))
        across = min(4, len(panels))
        down = -(-len(panels) // across)
        figure, grid = pyplot.subplots(
            down, across, figsize=(4 * across, 3 * down), layout="constrained", squeeze=False
        )
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, (op, layout) in zip(grid.flat, panels, strict=False):
            here = [r for r in own if (r["op"], r["layout"], r["element"]) == (op, layout, "float32")]
            for label in ("tbs", "copy_tbs", "torch_tbs", "cupy_tbs"):
                at = [(int(r["bytes"]), float(r[label])) for r in here if r[label]]
                name = label.removesuffix("_tbs") if label != "tbs" else "baracuda_py"
                axes.plot(*zip(*at, strict=True), marker="o", markersize=3, label=name) if at else None
            axes.set(xscale="log", ylim=0, title=f"{op}, {layout}, float32", xlabel="bytes of x", ylabel="TB/s")
        grid[0][0].legend(fontsize=8)
        figure.savefig(path.with_name(f"{path.stem}_{family}.png"), dpi=100)
        pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(FAMILIES)}; default: all")
    parser.add_argument("--sizes", type=lambda text: [nbytes(s) for s in text.split(",")], default=SIZES)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="ops, layouts or op/layout, such as silu,columns,cumsum/all")
    parser.add_argument("--compile", action="store_true", help="torch.compile is a peer, too")
    parser.add_argument("--plot", action="store_true", help="draw what --csv names instead of measuring")
    add_options(parser)
    options = parser.parse_args()
    options.families = options.families or list(FAMILIES)
    if unknown := set(options.families) - set(FAMILIES):
        parser.error(f"no family of {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    results = Results(options, "bandwidth", KEY)
    if not options.plot:
        measure(options, results)
    elif results.path is None:
        parser.error("--plot draws what --csv names")
    else:
        plot(results.path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
