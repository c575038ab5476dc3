"""embedding_backward: gradient rows summed by index, each row in token order; no float atomics, no zeroed buffer.

A stable counting sort brings the tokens of a row together; fixed chunks of a row are summed, then the chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Step, Variant,
    element, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import INDICES
from ...core.tensor import pad
from ...core.variant import aligned
from ...schedules.counting_sort import COUNTING, RANGE, SORT_THREADS
from .embedding import EmbeddingDescriptor, out_of_range, random_indices, token_axes
from ...core.benchmark import Benchmark, EAGER

SUM_THREADS, LEAST_LANES = 128, 8  # of a block, and of a group of its lanes
CHUNK = 32  # tokens of one row that one chunk sums
MERGE_THREADS = 256
MERGE_SLOTS = 16
MERGE_COLUMNS = 128  # of a block
FILL_BYTES = 65536


@dataclass(frozen=True, kw_only=True)
class EmbeddingBackwardDescriptor(EmbeddingDescriptor):
    """The forward's fields."""

    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class EmbeddingBackwardArgs(Args):
    """dweight[v, :] = sum of dy[t, :] over the tokens t with indices[t] = v, written whole; with scale_grad_by_freq
    divided by how many they are."""

    dy: Array = operand("*index_shape embedding_dim")
    indices: Array = operand("*index_shape", element=INDICES[::-1], values=random_indices)
    dweight: Array = output("num_embeddings embedding_dim")


def reference(desc: EmbeddingBackwardDescriptor, *, dy: Any, indices: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: tokens sorted stably by index, then segments summed."""
    dweight = np.zeros((desc.num_embeddings, desc.embedding_dim), dy.dtype)
    flat = indices.reshape(-1)
    valid = (flat >= 0) & (flat < desc.num_embeddings) & (flat != desc.padding_row)
    tokens = np.flatnonzero(valid)
    if tokens.size and desc.embedding_dim:
        tokens = tokens[np.argsort(flat[tokens], kind="stable")]
        rows, starts = np.unique(flat[tokens], return_index=True)
        dweight[rows] = np.add.reduceat(dy.reshape(-1, desc.embedding_dim)[tokens], starts, axis=0)
        if desc.scale_grad_by_freq:
            dweight[rows] /= np.diff(np.append(starts, tokens.size))[:, None].astype(dy.dtype)
    return {"dweight": dweight}


PARAMS = Params(
    "EmbeddingBackwardParams", dy="ptr", indices="ptr", dweight="ptr", status="status", counts="workspace",
    totals="workspace", starts="workspace", rows="workspace", order="workspace", partial="workspace", split="workspace",
    tokens="i64", num_embeddings="i64", padding_row="i64", dim="i64", dy_column="i64", row_stride="i64",
    column_stride="i64", token_shape="i64[8]", token_strides="i64[2][8]", ranges="i32", parts="i32", slots="i32",
    lanes="i32", tiles="i32", sum_blocks="i32", fill_rows="i32", token_rank="i32", indices_wide="i32",
    by_frequency="i32", sum_threads=SUM_THREADS, sum_least_lanes=LEAST_LANES, chunk_tokens=CHUNK,
    merge_threads=MERGE_THREADS, merge_slots=MERGE_SLOTS, merge_block_columns=MERGE_COLUMNS, **COUNTING,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    tokens, rows, dim, size = desc.tokens, desc.num_embeddings, desc.embedding_dim, desc.element.itemsize
    if tokens >= 2**31 - SORT_THREADS or rows >= 2**31 - RANGE:
        return "2^31 tokens or rows and more are not supported"
    axes = token_axes(p.indices, p.dy)
    if isinstance(axes, str):
        return axes
    shape, strides = axes
    vec = 16 // size
    wide = dim % vec == 0 and all(v.inner_dense and v.aligned(16) for v in (p.dy, p.dweight))
    ranges = max(1, -(-rows // RANGE))
    # The counts of each part are read by every part of its range: few parts where a range has many rows.
    parts = max(1, min(-(-tokens // SORT_THREADS), 128 // ranges, 64, 8 * RANGE // min(max(rows, 1), RANGE)))
    slots = -(-tokens // CHUNK)
    chunks = max(1, -(-dim // vec))
    lanes = min(SUM_THREADS, max(LEAST_LANES, 1 << (chunks - 1).bit_length()))
    tiles = -(-chunks // lanes)
    groups = SUM_THREADS // lanes
    sum_blocks = -(-slots // groups) * tiles
    fill_rows = max(16, min(1024, FILL_BYTES // max(dim * size, 1)))
    fill_blocks = -(-rows // fill_rows)
    if sum_blocks + fill_blocks >= 2**31:
        return "more than 2^31 blocks"
    sizes = {
        "counts": parts * ranges * RANGE * 4, "totals": parts * ranges * 4, "starts": (ranges * RANGE + 1) * 4,
        "rows": tokens * 4, "order": tokens * 4, "partial": 2 * slots * dim * desc.acc.itemsize, "split": slots * 4,
    }  # fmt: skip
    offsets, workspace = {}, 0
    for name, nbytes in sizes.items():
        offsets[name] = workspace
        workspace += aligned(nbytes)
    params = {
        **offsets, "tokens": tokens, "num_embeddings": rows, "padding_row": desc.padding_row, "dim": dim,
        "dy_column": p.dy.strides[-1] if dim > 1 else 1, "row_stride": p.dweight.strides[0],
        "column_stride": p.dweight.strides[1] if dim > 1 else 1, "token_shape": pad(shape),
        "token_strides": [pad(s) for s in strides], "ranges": ranges, "parts": parts, "slots": slots, "lanes": lanes,
        "tiles": tiles, "sum_blocks": sum_blocks, "fill_rows": fill_rows, "token_rank": len(shape),
        "indices_wide": p.indices.element is ElementKind.I64, "by_frequency": desc.scale_grad_by_freq,
    }  # fmt: skip
    sort = (ranges * parts, 1, 1)
    merge = (-(-slots // MERGE_SLOTS) * -(-dim // MERGE_COLUMNS), 1, 1)
    steps = [
        Step("count", sort, params, {}, SORT_THREADS),
        Step("place", sort, params, {}, SORT_THREADS),
        Step("sum", (sum_blocks + fill_blocks, 1, 1), params, {"WIDE": wide}, SUM_THREADS),
    ]
    if slots > 1:  # otherwise no row has more tokens than a chunk
        steps.append(Step("merge", merge, params, {"WIDE": wide}, MERGE_THREADS))
    dense = p.indices.dense and p.dy.dense and p.dweight.dense
    layout = "contiguous" if dense else "inner_contiguous" if p.dy.inner_dense and p.dweight.inner_dense else "strided"
    return Geometry(tuple(steps), workspace, layout)


_WIDE = {"WIDE": (True, False)}
_SUM = "embedding_sum<{T}, {WIDE}>"
_KERNELS = (
    Kernel("count", "embedding_count", PARAMS, threads=SORT_THREADS),
    Kernel("place", "embedding_place", PARAMS, threads=SORT_THREADS),
    Kernel("sum", _SUM, PARAMS, _WIDE, threads=SUM_THREADS, min_blocks=5),
    Kernel("merge", "embedding_merge<{T}, {WIDE}>", PARAMS, _WIDE, threads=MERGE_THREADS),
)


def in_torch(torch: Any, desc: EmbeddingBackwardDescriptor, *, dy: Any, indices: Any) -> Any:
    """torch's gradient of embedding."""
    function = torch.ops.aten.embedding_dense_backward
    return function(dy, indices.long(), desc.num_embeddings, desc.padding_row, desc.scale_grad_by_freq)


class EmbeddingBackwardPlan(Plan):
    """dweight[v, :] = sum of dy[t, :] over the tokens t with indices[t] = v (the gradient of embedding)."""

    op = "embedding.embedding_backward"
    direction = "backward"
    descriptor = EmbeddingBackwardDescriptor
    args = EmbeddingBackwardArgs
    reference = staticmethod(reference)
    value_policy = "tokens whose index lies outside [0, num_embeddings) are skipped, as are those of padding_idx"
    variants = (
        Variant(
            "sorted", _geometry, source="embedding/embedding_backward.cu",
            kernels=_KERNELS, guarantee=Guarantee(Relative(2)),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{tokens} to [{rows}, {dim}] bf16", num_embeddings=rows, embedding_dim=dim, index_shape=tokens,
            element="bfloat16", peers=(EAGER,),
        )
        for rows, dim, tokens in ((128256, 2048, 65536), (256, 4096, 32768))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> EmbeddingBackwardDescriptor:
        rows = draw.sizes(1, 2, 17, 300, 5000)
        return EmbeddingBackwardDescriptor(
            index_shape=(draw.sizes(0, 1, 31, 200, 1100),) if draw.flag() else draw.shape(0, 3, 0, 7),
            num_embeddings=rows, embedding_dim=draw.sizes(1, 7, 20, 64) if rows < 5000 else 8,
            padding_idx=draw.integer(-rows, rows - 1) if draw.flag() else None, scale_grad_by_freq=draw.flag(),
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return out_of_range(desc, arrays)


embedding_backward = functional(EmbeddingBackwardPlan)
