"""embedding_renorm: the rows of a table that are looked up, made no longer than a norm (torch.embedding_renorm_)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Scalar, Step,
    Variant, element, extent, extents, inout, operand, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, EAGER, Benchmark
from ...core.element import INDICES
from ...core.tensor import AXES, merge_axes, pad
from ...core.variant import aligned
from .embedding import out_of_range, random_indices

THREADS = 256
WARP = 32


@dataclass(frozen=True, kw_only=True)
class EmbeddingRenormDescriptor(Descriptor):
    """A table of num_embeddings rows of embedding_dim elements, and indices of shape index_shape."""

    num_embeddings: int = extent()
    embedding_dim: int = extent()
    index_shape: tuple[int, ...] = extents()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class EmbeddingRenormArgs(Args):
    """Any strides; weight is changed in place. norm_type: the order of the norm, inf too."""

    weight: Array = inout("num_embeddings embedding_dim")
    indices: Array = operand("*index_shape", element=INDICES[::-1], values=random_indices)
    max_norm: Scalar = scalar()
    norm_type: Scalar = scalar(2.0)


def reference(
    desc: EmbeddingRenormDescriptor, *, weight: Any, indices: Any, max_norm: Any, norm_type: Any
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype weight comes in."""
    flat, order, kind = indices.reshape(-1), float(norm_type), weight.dtype.type
    rows = np.unique(flat[(flat >= 0) & (flat < desc.num_embeddings)])
    weight = np.array(weight)
    with np.errstate(all="ignore"):
        size = np.abs(weight[rows])
        if np.isinf(order):
            norm = size.max(axis=1, initial=0)
        elif order == 0:
            norm = (size != 0).sum(axis=1).astype(weight.dtype)
        else:
            norm = (size ** kind(order)).sum(axis=1) ** kind(1 / order)
        factor = np.where(norm > kind(max_norm), kind(max_norm) / (norm + kind(1e-7)), kind(1))
        weight[rows] *= factor[:, None]
    return {"weight": weight}


PARAMS = Params(
    "EmbeddingRenormParams", weight="ptr", indices="ptr", status="status", marks="workspace", max_norm="scalar",
    norm_type="scalar", tokens="i64", rows="i64", dim="i64", weight_row="i64", weight_column="i64",
    token_shape="i64[8]", token_strides="i64[8]", token_rank="i32", indices_wide="i32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    tokens = int(np.prod(desc.index_shape, dtype=object))
    shape, (strides,) = merge_axes(p.indices.shape, (p.indices.strides,))
    if len(shape) > AXES:
        return f"more than {AXES} index axes remain after merging"
    params = {
        "marks": 0, "tokens": tokens, "rows": desc.num_embeddings, "dim": desc.embedding_dim,
        "weight_row": p.weight.strides[0], "weight_column": p.weight.strides[1], "token_shape": pad(shape),
        "token_strides": pad(strides), "token_rank": len(shape),
        "indices_wide": p.indices.element is ElementKind.I64,
    }  # fmt: skip
    layout = "contiguous" if p.weight.dense and p.indices.dense else "strided"
    blocks = {
        "clear": -(-desc.num_embeddings // THREADS), "mark": -(-tokens // THREADS),
        "scale": -(-desc.num_embeddings * WARP // THREADS),
    }  # fmt: skip
    if max(blocks.values()) >= 2**31:
        return "more than 2^31 blocks"
    steps = tuple(Step(name, (count, 1, 1), params, {}, THREADS) for name, count in blocks.items() if count)
    return Geometry(steps, aligned(desc.num_embeddings), layout)


def in_torch(
    torch: Any, desc: EmbeddingRenormDescriptor, *, weight: Any, indices: Any, max_norm: Any, norm_type: Any
) -> Any:  # fmt: skip
    """torch's own, which works in place."""
    flat = indices.long().reshape(-1)
    return torch.embedding_renorm_(weight.clone(), flat, float(max_norm), float(norm_type)) if flat.numel() else weight


class EmbeddingRenormPlan(Plan):
    """weight[v, :] *= max_norm / (norm + 1e-7) of the rows v among indices whose norm is above max_norm, in place.

    The norm is of order norm_type, inf too, summed in the accumulator. The same bits in every run, however often a row
    is named.
    """

    op = "embedding.embedding_renorm"
    descriptor = EmbeddingRenormDescriptor
    args = EmbeddingRenormArgs
    reference = staticmethod(reference)
    value_policy = "an index outside [0, num_embeddings) names no row"
    variants = (
        Variant(
            "marked", _geometry, source="embedding/embedding_renorm.cu", guarantee=Guarantee(Relative(2)),
            kernels=(
                Kernel("clear", "renorm_clear", PARAMS, threads=THREADS),
                Kernel("mark", "renorm_mark", PARAMS, threads=THREADS),
                Kernel("scale", "renorm_scale<{T}>", PARAMS, threads=THREADS),
            ),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "32768 of [128256, 1024] bf16", num_embeddings=128256, embedding_dim=1024, index_shape=32768,
            element="bfloat16", work=BYTES, peers=(EAGER,), target=None,
            make=lambda torch, desc: {"max_norm": 16.0, "indices": torch.randint(0, 128256, (32768,))},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> EmbeddingRenormDescriptor:
        return EmbeddingRenormDescriptor(
            num_embeddings=draw.sizes(1, 2, 17, 300), embedding_dim=draw.sizes(1, 7, 0, 64),
            index_shape=draw.shape(0, 3, 0, 5), element=draw.element,
        )  # fmt: skip

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return out_of_range(desc, arrays)

    @classmethod
    def bytes(cls, desc: EmbeddingRenormDescriptor) -> int:
        tokens = int(np.prod(desc.index_shape, dtype=object))
        rows = min(tokens, desc.num_embeddings)
        return 8 * tokens + desc.num_embeddings + 2 * rows * desc.embedding_dim * desc.element.itemsize


embedding_renorm = functional(EmbeddingRenormPlan)
