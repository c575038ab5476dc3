"""What every rank of `distributed.py` runs: the problems of each part, ours and torch's, timed together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import checkout  # noqa: F401
import torch
from distributed_place import Place

import baracuda_py as bc
from baracuda_py import distributed as D

Calls = dict[str, Callable[[], Any]]
LLAMA = {
    "8B": {"d": 4096, "ffn": 14336, "qkv": 6144}, "70B": {"d": 8192, "ffn": 28672, "qkv": 10240},
    "tiny": {"d": 32, "ffn": 64, "qkv": 48},
}  # fmt: skip
ANY_ORDER = bc.PlanPreference(deterministic=False)


def collectives(at: Place) -> Iterator[tuple[str, Calls, float, str]]:
    """Every row of ours, NCCL through torch, and symmetric memory by one and two shots."""
    size, comm = at.size, at.comm
    kinds: dict[str, tuple[Any, Any]] = {
        "all_reduce": (D.AllReduceDescriptor, D.AllReducePlan),
        "reduce_scatter": (D.ReduceScatterDescriptor, D.ReduceScatterPlan),
        "all_gather": (D.AllGatherDescriptor, D.AllGatherPlan),
    }
    most = 30 if at.cuda else 12
    for power in [p for p in (10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) if p <= most]:
        for name, (descriptor, plan) in kinds.items():
            count = (1 << power) // 2  # of the array that every rank has in the end, or begins with
            given = (count // size if name == "all_gather" else count) // 8 * 8
            x = at.random(given)
            shape = descriptor(shape=(given,), element="bfloat16", ranks=size).output_shape(comm.rank)
            y = at.random(*shape)
            desc = descriptor(shape=(given,), element="bfloat16", ranks=size)
            calls: Calls = {}
            for row in plan.select(desc, comm, ANY_ORDER).rows:
                if (row.place == "cuda") == at.cuda:
                    calls[row.name] = _alone(plan, desc, comm, row, x, y)
            calls |= at.collectives_of_torch(name, x, y)
            yield f"{name} {_size(1 << power)}", calls, float(1 << power), "GB/s"


def _alone(plan: Any, desc: Any, comm: Any, row: Any, x: Any, y: Any) -> Callable[[], Any]:
    """A plan of one row, its workspace made before."""
    own = plan.select(desc, comm, ANY_ORDER)
    own.rows = (row,)
    needed = own.workspace_size(D.CollectiveArgs(x=x, y=y)) if row.place == "cuda" else 0
    workspace = torch.empty(needed, dtype=torch.uint8, device=x.device) if needed else None

    def call() -> Any:
        own(x=x, y=y, workspace=workspace)
        return y

    return call


def _size(nbytes: int) -> str:
    for unit in ("B", "KB", "MB"):
        if nbytes < 1024:
            return f"{nbytes} {unit}"
        nbytes //= 1024
    return f"{nbytes} GB"


def gemm(at: Place) -> Iterator[tuple[str, Calls, float, str]]:
    """Layers whose weights are spread, with and without overlap: as many slices as ranks, and eight for any number."""
    size = at.size
    for model in ("8B", "70B") if at.cuda else ("tiny",):
        p = LLAMA[model]
        for rows in (512, 2048, 4096, 8192, 16384) if at.cuda else (16,):
            for name, k, n in (("down", p["ffn"], p["d"]), ("o", p["d"], p["d"])):
                x, w = at.random(rows, k // size), at.random(n, k // size)
                for kind in ("all_reduce", "reduce_scatter"):
                    given: dict[str, Any] = {"sequence_parallel": kind == "reduce_scatter"}

                    def ours(slices: int, overlap: int | None, x: Any = x, w: Any = w, given: Any = given) -> Any:
                        return lambda: D.row_parallel_linear(
                            x, w, None, at.comm, slices=slices, overlap=overlap, **given
                        )

                    calls: Calls = {
                        "overlap chosen": ours(size, None), "overlap 1": ours(size, 1), "overlap 2": ours(size, 2),
                        "overlap 4": ours(size, 4), "slices 8 overlap chosen": ours(8, None),
                        "slices 8 overlap 1": ours(8, 1), "overlap 2 by NCCL": _by_nccl(ours(size, 2), at.comm),
                    }  # fmt: skip
                    calls |= at.products_of_torch(kind, x, w)
                    yield f"{kind} {model} {name} {rows}", calls, 2.0 * rows * k * n / size, "TFLOP/s"
            for name, n in (("gate_up", 2 * p["ffn"]), ("qkv", p["qkv"])):
                x, w = at.random(rows // size, p["d"]), at.random(n // size, p["d"])

                def gathered(overlap: int | None, x: Any = x, w: Any = w) -> Any:
                    return lambda: D.column_parallel_linear(
                        x, w, None, at.comm, sequence_parallel=True, overlap=overlap
                    )

                calls = {
                    "overlap chosen": gathered(None), "overlap 1": gathered(1), "overlap 2": gathered(2),
                    "overlap 2 by NCCL": _by_nccl(gathered(2), at.comm),
                } | at.products_of_torch("all_gather", x, w)  # fmt: skip
                yield f"all_gather {model} {name} {rows}", calls, 2.0 * rows * p["d"] * n / size, "TFLOP/s"


def _by_nccl(call: Callable[[], Any], comm: Any) -> Callable[[], Any]:
    """A layer whose exchanges NCCL's kernels make, in place of the copy engines."""

    def run() -> Any:
        held = comm.lanes.get("copies")
        comm.lanes["copies"] = "left out"
        try:
            return call()
        finally:
            del comm.lanes["copies"]
            if held is not None:
                comm.lanes["copies"] = held

    return run


def ring(at: Place) -> Iterator[tuple[str, Calls, float, str]]:
    """Causal attention of 32 heads (8 of keys) of 128, its tokens over the ranks, beside one GPU with all of them."""
    heads, kv, d = (32, 8, 128) if at.cuda else (4, 2, 16)
    for tokens in (1 << 15, 1 << 16, 1 << 17, 1 << 18) if at.cuda else (64,):
        q, k, v = (at.random(1, h, tokens, d) for h in (heads, kv, kv))
        dy = at.random(1, heads, tokens, d)
        y, lse = bc.flash_sdpa(q, k, v, is_causal=True, return_lse=True)
        own = [D.shard_sequence(one, at.comm) for one in (q, k, v, dy)]
        made, sums = D.ring_attention(*own[:3], at.comm, is_causal=True, return_lse=True)
        forward: Calls = {
            "ring": lambda own=own: D.ring_attention(*own[:3], at.comm, is_causal=True),
            "one GPU": lambda q=q, k=k, v=v: bc.flash_sdpa(q, k, v, is_causal=True),
        }
        backward: Calls = {
            "ring": lambda own=own, made=made, sums=sums: D.ring_attention_backward(
                *own[:3], made, sums, own[3], at.comm, is_causal=True
            ),
            "one GPU": lambda q=q, k=k, v=v, y=y, lse=lse, dy=dy: bc.flash_sdpa_backward(
                q, k, v, y, lse, dy, is_causal=True
            ),
        }
        flops = 2.0 * tokens * tokens * d * heads
        yield f"attention forward {tokens}", forward, flops, "TFLOP/s"
        yield f"attention backward {tokens}", backward, 2.5 * flops, "TFLOP/s"


def experts(at: Place) -> Iterator[tuple[str, Calls, float, str]]:
    """A layer of 128 experts, 8 a token, d 2048, f 768, spread over the ranks, beside one GPU that has all experts."""
    d, f, count, k = (2048, 768, 128, 8) if at.cuda else (16, 8, 8, 2)
    gate_up, down = at.random(count, 2 * f, d), at.random(count, d, f)
    each = count // at.size
    own = slice(at.comm.rank * each, (at.comm.rank + 1) * each)
    for tokens in (128, 1024, 8192) if at.cuda else (16,):
        x = at.random(tokens, d)
        logits = at.random(tokens, count).float()
        weights, indices = bc.moe_router(logits, k=k, normalize=True)
        calls: Calls = {
            "expert parallel": lambda x=x, i=indices, w=weights: D.expert_parallel_moe(
                x, i, w, gate_up[own], down[own], at.comm
            ),
            "one GPU": lambda x=x, i=indices, w=weights: bc.moe(x, i, w, gate_up, down),
        }
        yield f"experts {tokens} tokens a rank", calls, 6.0 * tokens * k * d * f, "TFLOP/s"


PARTS = {"collectives": collectives, "gemm": gemm, "ring": ring, "experts": experts}
UNCAPTURED = ("ring", "experts")
"""Parts that wait for the host between their steps, or whose graphs would hold gigabytes."""


def work(comm: Any, meeting: str, device: str, parts: list[str], until: float, only: str) -> list[dict[str, Any]]:
    """This rank's part; rank 0 returns the rows."""
    rows: list[dict[str, Any]] = []
    with Place(comm, meeting, device) as at:
        for part in parts:
            for problem, calls, amount, unit in PARTS[part](at):
                if at.any(time.time() > until):
                    break
                if only not in problem:
                    continue
                for mode, held in at.modes(calls, part not in UNCAPTURED):
                    for variant, us in at.timed(held).items():
                        rate = amount / us * (1e-3 if unit == "GB/s" else 1e-6)
                        rows.append({
                            "part": part, "problem": problem, "ranks": at.size, "variant": variant, "mode": mode,
                            "us": f"{us:.1f}", "rate": f"{rate:.3g}", "unit": unit,
                        })  # fmt: skip
                        if comm.rank == 0:
                            print(f"{part:<12} {problem:<34} {mode:<6} {variant:<26} {us:10.1f} us {rate:9.3g} {unit}",
                                  flush=True)  # fmt: skip
    return rows if comm.rank == 0 else []
