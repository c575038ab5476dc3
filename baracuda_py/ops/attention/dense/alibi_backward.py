"""alibi_backward: the gradients of alibi in the scores, which is dy itself, and in the slopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Step,
    Variant, View, operand, output,
)  # fmt: skip
from ....calls.functional import functional
from ....core.variant import aligned
from .alibi import (
    FLAT, ROWS, SLOPES, STRIDED, THREADS, AlibiDescriptor, X, chunk_mode, chunk_params, chunk_values, distances,
    layout_name, random_case,
)  # fmt: skip
from ....core.benchmark import Benchmark
from ....core.checked import require_some

# Chunks a thread. Where dscores is written, few: with 4 it took 141 us on 268 MB, with 8 146. Where dy is only read,
# many: with 32 70 us, with 8 73 (H200); unless that leaves fewer than MANY blocks.
FEW, LOTS, MANY = 4, 32, 1024


@dataclass(frozen=True, kw_only=True)
class AlibiBackwardDescriptor(AlibiDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class AlibiBackwardArgs(Args):
    """Either output may be None, not both; dscores may be dy."""

    dy: Array = operand(X)
    dscores: Array | None = output(X, optional=True, inplace=("dy",))
    dslopes: Array | None = output(SLOPES, element="slope_elements", optional=True)


def reference(desc: AlibiBackwardDescriptor, *, dy: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    results = {}
    if "dscores" in wanted:
        results["dscores"] = dy
    if "dslopes" in wanted:
        with np.errstate(invalid="ignore", over="ignore"):
            each = np.sum(dy * distances(desc, dy.dtype), axis=(2, 3))
            shared = desc.slope_batch != (desc.batch_size,)
            results["dslopes"] = np.sum(each, axis=0).reshape(*desc.slope_batch, -1) if shared else each
    return results


PARAMS = Params(
    "AlibiBackwardParams", dy="ptr", dscores="ptr", partials="workspace", batch="i64", slabs="u32", summing="i32",
    **chunk_params(2),
)  # fmt: skip
FINISH = Params("AlibiFinishParams", dslopes="ptr", partials="workspace", count="i64", strides="i64[2]", samples="u32",
                wide_slopes="i32")  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    # What a plan says of itself, with no operands at hand, is said of both outputs.
    both = p.dscores is None and p.dslopes is None
    views: list[View] = [p.dy, p.dscores if p.dscores is not None else p.dy]
    mode = chunk_mode(desc, views)
    values = chunk_values(desc, views, 16 // desc.element.itemsize)
    matrices = desc.batch_size * desc.num_heads

    def count(each: int) -> int:
        return int(-(-values["matrix_chunks"] // (THREADS * each)))

    reads = p.dscores is None and not both
    each = LOTS if reads and count(LOTS) * matrices >= MANY else FEW
    slabs = count(each)
    if slabs * matrices >= 2**31:
        return f"{slabs * matrices} slabs; a launch holds 2^31 - 1"
    summing = both or p.dslopes is not None
    steps = []
    if slabs and matrices:
        params = {"batch": desc.batch_size, "slabs": slabs, "summing": summing, "partials": 0, **values}
        steps.append(Step("alibi_backward", (slabs * matrices, 1, 1), params, {"MODE": mode, "EACH": each}, THREADS))
    if summing and desc.num_heads:
        per_sample = desc.slope_batch == (desc.batch_size,)
        samples, parts = (desc.batch_size, slabs) if per_sample else (1, slabs * desc.batch_size)
        strides = [0, 1] if p.dslopes is None else [0, 0, *p.dslopes.strides][-2:]
        wide = int(p.dslopes is None or p.dslopes.element is desc.acc)
        params = {"partials": 0, "count": parts, "strides": strides, "samples": max(samples, 1), "wide_slopes": wide}
        if samples:
            steps.append(Step("alibi_backward_finish", (desc.num_heads * samples, 1, 1), params, {}, THREADS))
    workspace = aligned(slabs * matrices * desc.acc.itemsize) if summing else 0
    return Geometry(tuple(steps), workspace, layout_name(views, mode))


def in_torch(torch: Any, desc: AlibiBackwardDescriptor, *, dy: Any, wanted: set[str]) -> Mapping[str, Any]:
    """The formulas."""
    made = {"dscores": dy.clone()} if "dscores" in wanted else {}
    if "dslopes" in wanted:
        place = torch.arange(max(desc.query_len, desc.key_len), device=dy.device)
        distance = (place[None, : desc.key_len] - place[: desc.query_len, None]).to(getattr(torch, str(desc.acc)))
        shared = desc.slope_batch != (desc.batch_size,)
        each = (dy * distance).sum((0, 2, 3) if shared else (2, 3))
        made["dslopes"] = each.reshape(*desc.slope_batch, desc.num_heads)
    return made


class AlibiBackwardPlan(Plan):
    """dscores = dy; dslopes[h] = Σ over b, i, j of dy[b, h, i, j] · (j - i), for slopes [batch, heads] over i, j.

    dy, dscores [batch, heads, queries, keys], any strides; dslopes of the slopes' shape, float32 (float64 for float64)
    or of dy's element, summed in the former and rounded once.
    dy is read once for both. The sum's order is fixed by the shape: the chunks of a thread, its block, the blocks.
    """

    op = "attention.alibi_backward"
    direction = "backward"
    descriptor = AlibiBackwardDescriptor
    args = AlibiBackwardArgs
    autocast = "widest"
    reference = staticmethod(reference)
    variants = (
        Variant(
            "two_pass", _geometry, source="attention/dense/alibi_backward.cu",
            kernels=(
                Kernel(
                    "alibi_backward", "alibi_backward<{T}, {MODE}, {EACH}>", PARAMS,
                    {"MODE": (FLAT, ROWS, STRIDED), "EACH": (FEW, LOTS)}, THREADS, min_blocks=4,
                ),
                Kernel("alibi_backward_finish", "alibi_backward_finish<{T}>", FINISH, {}, THREADS),
            ),
            guarantee=Guarantee(Relative(2)),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{', '.join(also)} of [4, 16, 2048, 2048] bf16", batch_size=4, num_heads=16, query_len=2048, key_len=2048,
            element="bfloat16", also=also, target=0.9,
        )
        for also in (("dslopes",), ("dscores", "dslopes"))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> AlibiDescriptor:
        return random_case(draw, AlibiBackwardDescriptor)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, "dscores", "dslopes")


alibi_backward = functional(AlibiBackwardPlan)
