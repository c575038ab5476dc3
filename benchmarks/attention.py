"""Attention forward and backward against torch's FLASH and cuDNN backends, interleaved in the same run.

    python benchmarks/attention.py [--points 64,128] [--rounds 8] [--csv [FILE]]

bf16, 16384 tokens and a hidden size of 2048 in every point (2048 / head_dim heads; "GQA 8:1" has an eighth as many key
heads). TFLOP/s count 4 · b · h · s² · d forward and 2.5 times that backward, half of it when causal. Every result is
checked against torch's before it is timed. `--plot` draws what `--csv` holds.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import cupy as cp
import torch
import torch.nn.functional as F
from record import Results, add_options
from timing import interleaved
from torch.nn.attention import SDPBackend, sdpa_kernel

import baracuda_py as bc

TOKENS, HIDDEN = 16384, 2048
ANY_ORDER = bc.PlanPreference(deterministic=False)
KEY = ("direction", "head_dim", "length", "mask", "heads", "variant")
Call = Callable[[], Any]


@dataclass(frozen=True)
class Point:
    """One problem: TOKENS / length sequences of HIDDEN / head_dim heads."""

    head_dim: int
    length: int
    causal: bool
    group: int = 1

    @property
    def batch(self) -> int:
        return TOKENS // self.length

    @property
    def heads(self) -> int:
        return HIDDEN // self.head_dim

    @property
    def flops(self) -> float:
        """Of a forward pass."""
        return 4 * TOKENS * self.length * HIDDEN / (2 if self.causal else 1)

    def shape(self, heads: int) -> tuple[int, int, int, int]:
        return self.batch, heads, self.length, self.head_dim

    def descriptor(self, kind: Any) -> Any:
        return kind(
            batch_size=self.batch, num_heads=self.heads, num_kv_heads=self.heads // self.group, query_len=self.length,
            key_len=self.length, d_k=self.head_dim, d_v=self.head_dim, is_causal=self.causal, element="bfloat16",
        )  # fmt: skip

    def operands(self) -> dict[str, torch.Tensor]:
        """Random q, k, v, dy."""
        kv = self.shape(self.heads // self.group)
        shapes = {"q": self.shape(self.heads), "k": kv, "v": kv, "dy": self.shape(self.heads)}
        return {n: torch.randn(s, device="cuda", dtype=torch.bfloat16) for n, s in shapes.items()}


def points(dims: list[int]) -> Iterator[Point]:
    """Every head_dim, length and mask, and grouped heads at head_dim 128."""
    for dim in dims:
        for length in (1024, 2048, 4096, 8192, 16384):
            for causal in (True, False):
                yield Point(dim, length, causal)
        for length in (1024, 4096, 16384) if dim == 128 else ():
            yield Point(dim, length, True, group=8)


def check(name: str, got: torch.Tensor, want: torch.Tensor) -> None:
    """Both are bf16 roundings of nearly the same numbers."""
    error = float((got.float() - want.float()).norm() / want.float().norm())
    if not error < 2e-2:
        raise SystemExit(f"{name} differs from torch's by {error:.3g}")


def peers(point: Point) -> dict[str, SDPBackend]:
    """torch's rows; FLASH ends at a head_dim of 256, beyond it its column is torch's memory-efficient row."""
    flash = SDPBackend.FLASH_ATTENTION if point.head_dim <= 256 else SDPBackend.EFFICIENT_ATTENTION
    return {"torch FLASH": flash, "torch cuDNN": SDPBackend.CUDNN_ATTENTION}


def attend(point: Point, backend: SDPBackend, q: Any, k: Any, v: Any) -> torch.Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, is_causal=point.causal, enable_gqa=point.group > 1)


def supported(point: Point, backend: SDPBackend, s: dict[str, torch.Tensor]) -> bool:
    try:
        attend(point, backend, s["q"], s["k"], s["v"])
    except RuntimeError:
        return False
    return True


def forward(point: Point, sets: list[dict[str, torch.Tensor]]) -> dict[str, list[Call]]:
    """Ours and the peers, each over all sets."""
    plan = bc.FlashSdpaPlan.select(point.descriptor(bc.FlashSdpaDescriptor))
    calls: dict[str, list[Call]] = {"": []}
    for s in sets:
        s["y"] = torch.empty_like(s["q"])
        s["lse"] = torch.empty(s["q"].shape[:3], device="cuda")
        args = bc.FlashSdpaArgs(q=s["q"], k=s["k"], v=s["v"], y=s["y"], lse=s["lse"])
        plan.run(args)
        check("y", s["y"], attend(point, peers(point)["torch FLASH"], s["q"], s["k"], s["v"]))
        calls[""].append(plan.bind(args))
    for name, backend in peers(point).items():
        if supported(point, backend, sets[0]):
            calls[name] = [lambda s=s, backend=backend: attend(point, backend, s["q"], s["k"], s["v"]) for s in sets]
    return calls


def backward(point: Point, sets: list[dict[str, torch.Tensor]]) -> dict[str, list[Call]]:
    """Ours in both orders of sums, and the peers; `sets` hold the forward's y and lse."""
    calls: dict[str, list[Call]] = {"": [], "any order": []}
    for name, backend in peers(point).items():
        if not supported(point, backend, sets[0]):
            continue
        calls[name] = []
        for s in sets:
            leaves = [s[n].detach().clone().requires_grad_() for n in "qkv"]
            y = attend(point, backend, *leaves)
            s[name] = torch.autograd.grad(y, leaves, s["dy"], retain_graph=True)
            calls[name].append(
                lambda y=y, leaves=leaves, s=s: torch.autograd.grad(y, leaves, s["dy"], retain_graph=True)
            )
    for label, preference in (("", None), ("any order", ANY_ORDER)):
        plan = bc.FlashSdpaBackwardPlan.select(point.descriptor(bc.FlashSdpaBackwardDescriptor), preference)
        for s in sets:
            grads = {f"d{n}": torch.empty_like(s[n]) for n in "qkv"}
            inputs = {n: s[n] for n in ("q", "k", "v", "y", "lse", "dy")}
            args = bc.FlashSdpaBackwardArgs(**inputs, **grads)
            workspace = torch.empty(plan.workspace_size(args), device="cuda", dtype=torch.uint8)
            plan.run(args, workspace)
            for (name, got), want in zip(grads.items(), s["torch FLASH"], strict=True):
                check(f"{name} {label}", got, want)
            calls[label].append(plan.bind(args, workspace))
    return calls


def rows(point: Point, rounds: int) -> Iterator[dict[str, Any]]:
    """The CSV rows of a point."""
    sets = [point.operands() for _ in range(2)]
    for direction, make, scale in (("forward", forward, 1.0), ("backward", backward, 2.5)):
        times = interleaved(make(point, sets), rounds)
        rate = {name: scale * point.flops / t.median * 1e-6 for name, t in times.items()}
        for variant in ("", "any order"):
            if variant in times:
                yield {
                    "direction": direction, "head_dim": point.head_dim, "length": point.length,
                    "mask": "causal" if point.causal else "full",
                    "heads": f"{point.heads}/{point.heads // point.group}",
                    "variant": variant, "us": f"{times[variant].median:.1f}", "tflops": f"{rate[variant]:.0f}",
                    "flash": f"{rate['torch FLASH']:.0f}",
                    "cudnn": f"{rate['torch cuDNN']:.0f}" if "torch cuDNN" in rate else "",
                    "vs_flash": f"{rate[variant] / rate['torch FLASH']:.3f}",
                }  # fmt: skip


def plot(path: Path) -> None:
    """TFLOP/s over length, a panel for each direction and head_dim, causal."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with path.open() as file:
        found = [r for r in csv.DictReader(file) if r["mask"] == "causal" and len(set(r["heads"].split("/"))) == 1]
    dims = sorted({int(r["head_dim"]) for r in found})
    figure, grid = pyplot.subplots(2, len(dims), figsize=(4 * len(dims), 6), layout="constrained", squeeze=False)
    for line, direction in zip(grid, ("forward", "backward"), strict=True):
        for axes, dim in zip(line, dims, strict=True):
            here = [r for r in found if r["direction"] == direction and int(r["head_dim"]) == dim]
            if not here:
                axes.set_axis_off()
                continue
            series = {"deterministic" if direction == "backward" else "baracuda_py": ("", "tflops")}
            series |= {"any order": ("any order", "tflops")} if direction == "backward" else {}
            series |= {"torch FLASH": ("", "flash"), "torch cuDNN": ("", "cudnn")}
            for n, (label, (variant, field)) in enumerate(series.items()):
                at = [(int(r["length"]), float(r[field])) for r in here if r["variant"] == variant and r[field]]
                if at:
                    axes.plot(*zip(*at, strict=True), marker="o", markersize=3, label=label, color=f"C{n}")
            axes.set(
                xscale="log", title=f"{direction}, head_dim {dim}, causal", xlabel="length", ylabel="TFLOP/s", ylim=0
            )
            axes.set_xticks([1024, 4096, 16384], ["1k", "4k", "16k"])
        line[0].legend(fontsize=8)
    figure.savefig(path.with_suffix(".png"), dpi=110)
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", default="64,128,256", help="head_dims, with commas")
    parser.add_argument("--rounds", type=int, default=8)
    add_options(parser)
    parser.add_argument("--plot", action="store_true", help="draw the CSV beside it instead of measuring")
    options = parser.parse_args()
    results = Results(options, "attention", KEY)
    if options.plot:
        if results.path is None:
            parser.error("--plot draws what --csv names")
        plot(results.path)
        return 0
    done: list[dict[str, Any]] = []
    for point in points([int(d) for d in options.points.split(",")]):
        for row in rows(point, options.rounds):
            done.append(row)
            print("  ".join(f"{value:>8}" for value in row.values()), flush=True)
        results.write(done)
        cp.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
    for key in dict.fromkeys((r["direction"], r["variant"]) for r in done):
        ratios = [float(r["vs_flash"]) for r in done if (r["direction"], r["variant"]) == key]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{' '.join(key)}: {mean:.3f} of FLASH (geometric mean), worst {min(ratios):.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
