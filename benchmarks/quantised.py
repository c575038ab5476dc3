"""Products by quantised weights against torch's of bf16 and of int8, interleaved in the same run.

    python benchmarks/quantised.py [--groups weights,qkv,experts,int8,w4a8,sparse] [--rounds 12] [--csv [FILE]]

weights  x in bf16 by weights [n, k] in low-bit formats, Llama 8B and, of few rows, 70B; against torch.matmul by those
         weights unpacked to bf16. TB/s count the stored weights: at one row they tell how near the copy's speed it is
qkv      q, k and v of Llama 8B at once, against torch's three products in bf16; beside it three products of ours
experts  tokens sent to some experts at random, stored weights and int8; against torch._grouped_mm in bf16
int8     sums in int32 against torch._int_mm, and scales of rows and columns with y in bf16 against that and torch's own
         scaling; up to 16 rows, which torch refuses, against torch.matmul in bf16
w4a8     int8 x by weights of 4 bits, y in bf16, against torch.matmul in bf16
sparse   2:4 sparse weights against torch's dense products: bf16, and int8 by torch._int_mm; up to 16 rows all in bf16

A line for what the plan takes and one for every other row of its table. Results are checked before they are timed:
sums of int8 against float64, the others against torch's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import checkout  # noqa: F401
import torch
from points import Point, Tensors, compare, normal

import baracuda_py as bc

BF16 = torch.bfloat16
LLAMA8B = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
LLAMA70B = ((10240, 8192), (57344, 8192), (8192, 28672))
FORMATS = (  # and groups, where the format has none of its own
    ("uint4", 128), ("nf4", 64), ("mxfp4", None), ("int8", None), ("q4_0", None), ("q8_0", None), ("q4_k", None),
    ("q6_k", None),
)  # fmt: skip
# Bytes of a block of GGUF, and which of them, as halves of 16 bits, are scales.
SCALED = {"q4_0": (18, (0,)), "q8_0": (34, (0,)), "q4_k": (144, (0, 1)), "q6_k": (210, (104,))}
ROWS = (1, 4, 16, 64, 512, 4096)
INT8_SHAPES = ((8192, 8192, 8192), *((m, n, k) for m in (1, 16, 4096) for n, k in ((14336, 4096), (4096, 14336))))
W4A8_SHAPES = tuple((m, n, k) for m in (1, 16, 512, 4096) for n, k in ((14336, 4096), (4096, 14336)))
EXPERTS = ((8, 2, 14336, 4096), (128, 8, 1536, 2048))  # experts, top, n, k
SPARSE_SHAPES = ((4096, 8192, 8192), (512, 14336, 4096), (16, 14336, 4096))


def stored(kind: str, n: int, k: int, group: int | None) -> dict[str, torch.Tensor]:
    """Weights [n, k] of random codes; those of GGUF have the scales of their blocks among them."""
    if kind not in SCALED:
        parts = bc.block_quantize(normal(n, k), kind=kind, group=group)
        return dict(zip(("codes", "scales", "zeros"), parts, strict=False))
    size, places = SCALED[kind]
    values = {18: 32, 34: 32}.get(size, 256)
    codes = torch.randint(0, 256, (n, k // values, size), device="cuda", dtype=torch.uint8)
    codes.view(torch.float16)[..., list(places)] = 0.01
    return {"codes": codes.view(n, -1)}


def weights(kind: str, group: int | None, m: int, n: int, k: int) -> Point:
    """A layer of stored weights."""

    def make() -> dict[str, torch.Tensor]:
        w = stored(kind, n, k, group)
        dense = bc.block_dequantize(**w, kind=kind, group=group, element="bfloat16")
        return w | {"x": normal(m, k), "w": dense, "y": normal(m, n)}

    parts = ("codes", "scales", "zeros")
    one = stored(kind, 8, k, group)
    held = sum(x.nbytes for x in one.values()) * n // 8
    facts = {f"{name[:-1]}_element": one[name].dtype for name in parts[1:] if name in one}
    desc = bc.BlockGemmDescriptor(kind=kind, m=m, n=n, k=k, group=group, element="bfloat16", **facts)
    return Point(
        "weights", f"{m} x {n} x {k} {kind}", 2.0 * m * n * k, held + 2 * (m * k + m * n), make,
        bc.BlockGemmPlan.select(desc),
        lambda s: bc.BlockGemmArgs(x=s["x"], y=s["y"], **{name: s[name] for name in parts if name in s}),
        lambda s: torch.matmul(s["x"], s["w"].mT),
    )  # fmt: skip


def qkv(kind: str, group: int | None, m: int) -> Point:
    """Three layers of stored weights of one x."""
    k, widths = 4096, {"q": 4096, "k": 1024, "v": 1024}

    def make() -> dict[str, torch.Tensor]:
        made = {"x": normal(m, k)}
        for part, n in widths.items():
            w = stored(kind, n, k, group)
            made |= {f"{name}_{part}": array for name, array in w.items()}
            made[f"w_{part}"] = bc.block_dequantize(**w, kind=kind, group=group, element="bfloat16")
            made[f"y_{part}"] = normal(m, n)
        return made

    def named(s: Tensors) -> dict[str, torch.Tensor]:
        return {name: array for name, array in s.items() if not name.startswith("w_")}

    def theirs(s: Tensors) -> torch.Tensor:
        q, _, _ = (torch.matmul(s["x"], s[f"w_{part}"].mT) for part in widths)
        return q

    def apart(s: Tensors) -> None:
        for part in widths:
            parts = {name: s[f"{name}_{part}"] for name in ("codes", "scales", "zeros") if f"{name}_{part}" in s}
            bc.block_gemm(x=s["x"], **parts, kind=kind, group=group, out=s[f"y_{part}"])

    one, n = make(), sum(widths.values())
    scales = {f"{x}_element": one[f"{x}s_q"].dtype for x in ("scale", "zero") if f"{x}s_q" in one}
    desc = bc.QkvGemmDescriptor(
        kind=kind, m=m, **{f"n_{part}": size for part, size in widths.items()}, k=k, group=group, element="bfloat16",
        **scales,
    )  # fmt: skip
    held = sum(x.nbytes for name, x in one.items() if name[:2] in ("co", "sc", "ze"))
    return Point(
        "qkv", f"{m} x {n} x {k} {kind}", 2.0 * m * n * k, held + 2 * m * (k + n), make, bc.QkvGemmPlan.select(desc),
        lambda s: bc.QkvGemmArgs(**named(s)),
        theirs, out="y_q", others={"three": apart},
    )  # fmt: skip


def experts(tokens: int, count: int, top: int, n: int, k: int) -> Iterator[Point]:
    """A layer of experts."""
    total = tokens * top
    chosen = torch.rand(tokens, count, device="cuda").topk(top).indices
    ends = torch.bincount(chosen.flatten(), minlength=count).cumsum(0).to(torch.int32)
    used = int((ends.diff(prepend=ends.new_zeros(1)) > 0).sum())
    where = f"{tokens} tokens, {top} of {count} experts [{k}, {n}]"
    flops, moved = 2.0 * total * n * k, 2 * total * (n + k)

    def make(kind: str, group: int) -> dict[str, torch.Tensor]:
        codes, scales = (
            x.reshape(count, n, -1) for x in bc.block_quantize(normal(count * n, k), kind=kind, group=group)
        )
        dense = bc.block_dequantize(codes, scales, kind=kind, group=group, element="bfloat16")
        return {"codes": codes, "scales": scales, "x": normal(total, k), "w": dense, "y": normal(total, n)}

    def theirs(s: Tensors) -> torch.Tensor:
        return torch._grouped_mm(s["x"], s["w"].mT, offs=ends)

    for kind, group in (("nf4", 64), ("int8", k)):
        desc = bc.GroupedBlockGemmDescriptor(
            kind=kind, total=total, experts=count, n=n, k=k, group=group, element="bfloat16", scale_element="float32"
        )
        yield Point(
            "experts", f"{where} {kind}", flops,
            moved + used * n * (k // (1 if kind == "int8" else 2) + 4 * k // group),
            partial(make, kind, group), bc.GroupedBlockGemmPlan.select(desc),
            lambda s: bc.GroupedBlockGemmArgs(
                x=s["x"], codes=s["codes"], scales=s["scales"], offsets=ends, y=s["y"]
            ),
            theirs,
        )  # fmt: skip


def w4a8(m: int, n: int, k: int) -> Point:
    """Integers of both sides, groups of 128."""

    def make() -> dict[str, torch.Tensor]:
        w = stored("int4", n, k, 128)
        x = torch.randint(-128, 128, (m, k), device="cuda", dtype=torch.int8)
        dense = bc.block_dequantize(**w, kind="int4", group=128, element="bfloat16")
        return w | {"x": x, "half": x.to(BF16), "w": dense, "y": normal(m, n)}

    facts = {"scale_element": stored("int4", 8, k, 128)["scales"].dtype}
    desc = bc.W4A8GemmDescriptor(kind="int4", m=m, n=n, k=k, group=128, element="bfloat16", **facts)
    return Point(
        "w4a8", f"{m} x {n} x {k}", 2.0 * m * n * k, n * k // 2 + 4 * n * k // 128 + m * k + 2 * m * n, make,
        bc.W4A8GemmPlan.select(desc),
        lambda s: bc.W4A8GemmArgs(x=s["x"], codes=s["codes"], scales=s["scales"], y=s["y"]),
        lambda s: torch.matmul(s["half"], s["w"].mT),
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


def sparse(m: int, n: int, k: int) -> Iterator[Point]:
    """A layer of weights of which half are stored."""
    for element, kind in (("bfloat16", BF16), ("int8", torch.int8)):

        def make(kind: torch.dtype = kind) -> dict[str, torch.Tensor]:
            w = bc.sparse24_prune(torch.randint(-8, 9, (n, k), device="cuda").to(kind))
            values, metadata = bc.sparse24_compress(w)
            x = torch.randint(-8, 9, (m, k), device="cuda").to(kind)
            y = torch.empty(m, n, device="cuda", dtype=torch.int32 if kind == torch.int8 else kind)
            theirs = BF16 if m <= 16 else kind
            return {"x": x, "values": values, "metadata": metadata, "y": y, "tx": x.to(theirs), "w": w.to(theirs)}

        def theirs(s: Tensors) -> Any:
            mm = torch._int_mm if s["tx"].dtype == torch.int8 else torch.matmul
            return mm(s["tx"], s["w"].mT)

        size = kind.itemsize
        yield Point(
            "sparse", f"{m} x {n} x {k} {element}", 2.0 * m * n * k,
            size * (m * k + n * k // 2) + n * k // 8 + m * n * (4 if size == 1 else 2), make,
            bc.Sparse24GemmPlan.select(bc.Sparse24GemmDescriptor(m=m, n=n, k=k, element=element)),
            lambda s: bc.Sparse24GemmArgs(x=s["x"], values=s["values"], metadata=s["metadata"], y=s["y"]),
            theirs,
        )  # fmt: skip


def points(groups: list[str]) -> Iterator[Point]:
    """The problems of some groups, in order."""
    if "weights" in groups:
        for kind, group in FORMATS:
            yield from (weights(kind, group, m, n, k) for n, k in LLAMA8B for m in ROWS)
            yield from (weights(kind, group, m, n, k) for n, k in LLAMA70B for m in ROWS[:3])
    if "qkv" in groups:
        yield from (qkv(kind, group, m) for kind, group in FORMATS if kind in ("uint4", "int8", "q4_k") for m in ROWS)
    if "experts" in groups:
        yield from itertools.chain.from_iterable(experts(tokens, *e) for e in EXPERTS for tokens in (1, 16, 64, 4096))
    if "int8" in groups:
        for shape in INT8_SHAPES:
            yield from int8(*shape)
    if "w4a8" in groups:
        yield from (w4a8(*shape) for shape in W4A8_SHAPES)
    if "sparse" in groups:
        for shape in SPARSE_SHAPES:
            yield from sparse(*shape)


def main() -> int:
    return compare(str(__doc__), "quantised", "weights,qkv,experts,int8,w4a8,sparse", points)


if __name__ == "__main__":
    raise SystemExit(main())
