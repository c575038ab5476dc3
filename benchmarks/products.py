"""Products of experts, of 8 bits and of few rows against torch's calls for the same, interleaved in the same run.

    python benchmarks/products.py [--groups moe,fp8,int8,gemv] [--rounds 12] [--csv [FILE]]

moe    tokens sent to `top` of `experts` at random: forward, SwiGLU's two weights, the gradients of tokens and of
       weights; bf16, weights [experts, n, k]; against torch._grouped_mm
fp8    one scale a matrix, one a row and a column, one a block of 128; y in bf16; against torch._scaled_mm with fast
       accumulation, whose one scale a matrix stands for blocks, too
int8   sums in int32 against torch._int_mm, and scales of rows and columns with y in bf16 against that and torch's own
       scaling; up to 16 rows, which torch refuses, against torch.matmul in bf16
gemv   1 to 16 rows, bf16, weights [n, k]; against torch.matmul

A line for what the plan takes and one for every other row of its table. Results are checked before they are timed:
against torch's, those of fp8 against float64. What torch refuses is left out.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import checkout  # noqa: F401
import cupy as cp
import torch
import torch.nn.functional as F
from record import Results, add_options
from timing import interleaved

import baracuda_py as bc
from baracuda_py.measure.tuner import only

KEY = ("group", "problem", "variant")
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
L2 = 256 << 20  # bytes that the sets of operands cover together
EXPERTS = (  # experts, top, hidden, intermediate
    (64, 4, 2048, 1536), (64, 4, 4096, 1536), (128, 8, 4096, 1536), (128, 8, 2048, 768),
)  # fmt: skip
TOKENS = (64, 512, 4096)
FP8_SHAPES = (
    (16, 4096, 4096), (128, 7168, 2048), (4096, 2112, 7168), (4096, 7168, 2048), (4096, 4096, 4096), (8192, 8192, 8192),
)  # fmt: skip
INT8_SHAPES = ((8192, 8192, 8192), *((m, n, k) for m in (1, 16, 4096) for n, k in ((14336, 4096), (4096, 14336))))
GEMV_SHAPES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Point:
    """A problem: `torch(s)` and `ours`, a plan with the operands by name of one set, are timed beside each other."""

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


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=BF16)


def moe(tokens: int, experts: int, top: int, n: int, k: int) -> Iterator[Point]:
    """A layer of experts, [k, n] each."""
    total = tokens * top
    chosen = torch.rand(tokens, experts, device="cuda").topk(top).indices
    ends = torch.bincount(chosen.flatten(), minlength=experts).cumsum(0).to(torch.int32)
    facts = {"total": total, "groups": experts, "n": n, "k": k, "element": "bfloat16"}
    flops, weights = 2.0 * total * n * k, experts * n * k
    where = f"{tokens} tokens, {top} of {experts} experts [{k}, {n}]"

    def make(**shapes: tuple[int, ...]) -> Callable[[], dict[str, torch.Tensor]]:
        return lambda: {name: normal(*shape) for name, shape in shapes.items()} | {"ends": ends}

    x, y, w = (total, k), (total, n), (experts, n, k)
    nbytes = 2 * (total * (n + k) + weights)
    yield Point(
        "moe", f"{where} forward", flops, nbytes, make(x=x, y=y, w=w),
        bc.GroupedGemmPlan.select(bc.GroupedGemmDescriptor(**facts)),
        lambda s: bc.GroupedGemmArgs(a=s["x"], b=s["w"].mT, offsets=ends, y=s["y"]),
        lambda s: torch._grouped_mm(s["x"], s["w"].mT, offs=ends),
    )  # fmt: skip
    yield Point(
        "moe", f"{where} swiglu", 2 * flops, nbytes + 2 * weights, make(x=x, y=y, w=w, up=w),
        bc.GroupedGemmEpiloguePlan.select(bc.GroupedGemmEpilogueDescriptor(**facts, activation="silu")),
        lambda s: bc.GroupedGemmEpilogueArgs(a=s["x"], b=s["w"].mT, up=s["up"].mT, offsets=ends, y=s["y"]),
        lambda s: F.silu(torch._grouped_mm(s["x"], s["w"].mT, offs=ends))
        * torch._grouped_mm(s["x"], s["up"].mT, offs=ends),
    )  # fmt: skip
    yield Point(
        "moe", f"{where} dx", flops, nbytes, make(x=x, y=y, w=w),
        bc.GroupedGemmPlan.select(bc.GroupedGemmDescriptor(**facts | {"n": k, "k": n})),
        lambda s: bc.GroupedGemmArgs(a=s["y"], b=s["w"], offsets=ends, y=s["x"]),
        lambda s: torch._grouped_mm(s["y"], s["w"], offs=ends), out="x",
    )  # fmt: skip
    inner = {"total": total, "groups": experts, "m": n, "n": k, "element": "bfloat16"}
    yield Point(
        "moe", f"{where} dw", flops, nbytes, make(x=x, y=y, w=w),
        bc.GroupedInnerGemmPlan.select(bc.GroupedInnerGemmDescriptor(**inner)),
        lambda s: bc.GroupedInnerGemmArgs(a=s["y"].mT, b=s["x"], offsets=ends, y=s["w"]),
        lambda s: torch._grouped_mm(s["y"].mT, s["x"], offs=ends), out="w",
        want=lambda s: torch.stack([s["y"][i:j].mT @ s["x"][i:j] for i, j in itertools.pairwise([0, *ends.tolist()])]),
    )  # fmt: skip


def fp8(m: int, n: int, k: int) -> Iterator[Point]:
    """The three kinds of scales, each for both operands."""
    kb, nb = -(-k // 128), -(-n // 128)
    scales = {"tensor": ((1, 1), (1, 1)), "rows": ((m, 1), (1, n)), "blocks": ((m, kb), (kb, nb))}
    for name, (of_a, of_b) in scales.items():

        def make(of_a: tuple[int, int] = of_a, of_b: tuple[int, int] = of_b) -> dict[str, torch.Tensor]:
            made = {"a": normal(m, k).to(FP8), "w": normal(n, k).to(FP8), "y": normal(m, n)}
            return made | {f"s{x}": torch.rand(s, device="cuda") + 0.5 for x, s in (("a", of_a), ("b", of_b))}

        def theirs(s: Tensors, blocks: bool = name == "blocks") -> Any:  # of blocks, what takes one scale a matrix
            by = (s["sa"][:1, :1], s["sb"][:1, :1]) if blocks else (s["sa"], s["sb"])
            by = tuple(x.reshape(()) if x.numel() == 1 else x for x in by)
            return torch._scaled_mm(s["a"], s["w"].mT, *by, out_dtype=BF16, use_fast_accum=True)

        def exact(s: Tensors) -> Any:
            def spread(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
                for axis, extent in enumerate(shape):
                    if x.shape[axis] not in (1, extent):
                        x = x.repeat_interleave(128, axis).narrow(axis, 0, extent)
                return x

            a = s["a"].double() * spread(s["sa"], (m, k))
            return (a @ (s["w"].mT.double() * spread(s["sb"], (k, n)))).to(BF16)

        desc = bc.Fp8GemmDescriptor(m=m, n=n, k=k, element="float8_e4m3fn", a_scales=of_a, b_scales=of_b)
        yield Point(
            "fp8", f"{m} x {n} x {k} {name}", 2.0 * m * n * k, m * k + n * k + 2 * m * n, make,
            bc.Fp8GemmPlan.select(desc),
            lambda s: bc.Fp8GemmArgs(a=s["a"], b=s["w"].mT, scale_a=s["sa"], scale_b=s["sb"], y=s["y"]),
            theirs, want=exact,
        )  # fmt: skip


def int8(m: int, n: int, k: int) -> Iterator[Point]:
    """Sums as they are, and scaled."""
    few = m <= 16

    def make(kind: torch.dtype) -> dict[str, torch.Tensor]:
        sides = {x: torch.randint(-128, 128, (r, k), device="cuda", dtype=torch.int8) for x, r in (("a", m), ("w", n))}
        made = sides | {"y": torch.empty(m, n, device="cuda", dtype=kind)}
        made |= {"sa": torch.rand(m, 1, device="cuda") + 0.5, "sb": torch.rand(1, n, device="cuda") + 0.5}
        return made | ({f"{x}_half": side.to(BF16) for x, side in sides.items()} if few else {})

    def theirs(s: Tensors) -> Any:
        return torch.matmul(s["a_half"], s["w_half"].mT) if few else torch._int_mm(s["a"], s["w"].mT)

    def sums(s: Tensors) -> Any:
        return s["a"].double() @ s["w"].mT.double()

    size = m * k + n * k
    for kind, out in (("sums", torch.int32), ("scaled", BF16)):
        scaled = kind == "scaled"
        desc = bc.IntGemmDescriptor(
            kind=kind, m=m, n=n, k=k, element="int8", out_element="bfloat16" if scaled else "int32"
        )
        yield Point(
            "int8", f"{m} x {n} x {k} {kind}", 2.0 * m * n * k, size + m * n * out.itemsize, partial(make, out),
            bc.IntGemmPlan.select(desc),
            lambda s, names=("scale_a", "scale_b") if scaled else (): bc.IntGemmArgs(
                a=s["a"], b=s["w"].mT, y=s["y"], **dict(zip(names, (s["sa"], s["sb"]), strict=False))
            ),
            (lambda s: (theirs(s) * s["sa"] * s["sb"]).to(BF16)) if scaled and not few else theirs,
            want=(lambda s: sums(s) * s["sa"] * s["sb"]) if scaled else sums,
        )  # fmt: skip


def gemv(m: int, n: int, k: int) -> Point:
    return Point(
        "gemv", f"{m} x {n} x {k}", 2.0 * m * n * k, 2 * (m * k + n * k + m * n),
        lambda: {"a": normal(m, k), "w": normal(n, k), "y": normal(m, n)},
        bc.GemvPlan.select(bc.GemvDescriptor(m=m, n=n, k=k, element="bfloat16")),
        lambda s: bc.GemvArgs(a=s["a"], b=s["w"].mT, y=s["y"]),
        lambda s: torch.matmul(s["a"], s["w"].mT),
    )  # fmt: skip


def points(groups: list[str]) -> Iterator[Point]:
    """The problems of some groups, in order."""
    if "moe" in groups:
        for experts, top, hidden, inner in EXPERTS:
            for tokens in TOKENS:
                yield from moe(tokens, experts, top, inner, hidden)
    if "fp8" in groups:
        for shape in FP8_SHAPES:
            yield from fp8(*shape)
    if "int8" in groups:
        for shape in INT8_SHAPES:
            yield from int8(*shape)
    if "gemv" in groups:
        yield from (gemv(m, n, k) for m in (1, 4, 8, 16) for n, k in GEMV_SHAPES)


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
    times = interleaved(calls, rounds)
    peer = times.pop("torch")
    for name, time in times.items():
        yield {
            "group": point.group, "problem": point.problem, "variant": name, "us": f"{time.median:.1f}",
            "tflops": f"{point.flops / time.median * 1e-6:.0f}", "tb_s": f"{point.nbytes / time.median * 1e-6:.2f}",
            "torch_us": f"{peer.median:.1f}", "vs_torch": f"{peer.median / time.median:.3f}",
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default="moe,fp8,int8,gemv", help="with commas")
    parser.add_argument("--rounds", type=int, default=12)
    add_options(parser)
    options = parser.parse_args()
    results = Results(options, "products", KEY)
    done: list[dict[str, Any]] = []
    for point in points(options.groups.split(",")):
        for row in rows(point, options.rounds):
            done.append(row)
            print("  ".join(f"{value:>8}" for value in row.values()), flush=True)
        results.write(done)
        torch.cuda.empty_cache()
        cp.get_default_memory_pool().free_all_blocks()
    for key in dict.fromkeys((r["group"], r["variant"]) for r in done):
        ratios = [float(r["vs_torch"]) for r in done if (r["group"], r["variant"]) == key]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{' '.join(key)}: {mean:.3f} of torch (geometric mean), worst {min(ratios):.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
