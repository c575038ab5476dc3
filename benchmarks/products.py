"""Products of experts, of floats of 8 bits and of few rows against torch's calls, interleaved in the same run.

    python benchmarks/products.py [--groups moe,fp8,gemv] [--rounds 12] [--csv [FILE]]

moe    tokens sent to `top` of `experts` at random: forward, SwiGLU's two weights, the gradients of tokens and of
       weights; bf16, weights [experts, n, k]; against torch._grouped_mm
fp8    one scale a matrix, one a row and a column, one a block of 128; y in bf16; against torch._scaled_mm with fast
       accumulation, whose one scale a matrix stands for blocks, too
gemv   1 to 16 rows, bf16, weights [n, k]; against torch.matmul

A line for what the plan takes and one for every other row of its table. Results are checked before they are timed:
against torch's, those of fp8 against float64. What torch refuses is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import checkout  # noqa: F401
import torch
import torch.nn.functional as F
from points import Point, Tensors, compare, normal

import baracuda_py as bc

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
EXPERTS = (  # experts, top, hidden, intermediate
    (64, 4, 2048, 1536), (64, 4, 4096, 1536), (128, 8, 4096, 1536), (128, 8, 2048, 768),
)  # fmt: skip
TOKENS = (64, 512, 4096)
FP8_SHAPES = (
    (16, 4096, 4096), (128, 7168, 2048), (4096, 2112, 7168), (4096, 7168, 2048), (4096, 4096, 4096), (8192, 8192, 8192),
)  # fmt: skip
GEMV_SHAPES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))


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
    if "gemv" in groups:
        yield from (gemv(m, n, k) for m in (1, 4, 8, 16) for n, k in GEMV_SHAPES)


def main() -> int:
    return compare(str(__doc__), "products", "moe,fp8,gemv", points)


if __name__ == "__main__":
    raise SystemExit(main())
