"""embedding: rows of a table by index (torch.nn.functional.embedding)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    View, Vjp, element, extent, extents, flag, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import FP8, INDICES, REALS
from ...core.checked import real
from ...core.errors import InvalidProblemError
from ...calls.refusing import refuse_call
from ...calls.entries import entry
from ...core.registry import public
from ...core.tensor import merge_axes, pad
from ...core.views import constant
from ...schedules.map import divider
from ...core.benchmark import BYTES, Benchmark, EAGER

MOVED = (*REALS, ElementKind.BOOL, *FP8)  # complex ones would have a gradient: see take
THREADS = 256
ROWS = 4  # words a thread has in flight


def random_indices(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """In range; a table without rows has no such index, and yields zero rows."""
    return rng.integers(0, max(desc.num_embeddings, 1), shape)


def out_of_range(desc: Any, arrays: Mapping[str, Any]) -> str | None:
    """What is wrong with the indices, or None."""
    indices = np.asarray(arrays["indices"])
    if ((indices < 0) | (indices >= desc.num_embeddings)).any():
        return f"indices must lie in [0, {desc.num_embeddings})"
    return None


@dataclass(frozen=True, kw_only=True)
class EmbeddingDescriptor(Descriptor):
    """A table of num_embeddings rows of embedding_dim elements, looked up at an array of shape index_shape.

    padding_idx, negative counting from the end, and scale_grad_by_freq change the gradient only (as in PyTorch): that
    row gets none; a row's is divided by how often it is looked up.
    """

    index_shape: tuple[int, ...] = extents()
    num_embeddings: int = extent()
    embedding_dim: int = extent()
    padding_idx: int | None = integer(None)
    scale_grad_by_freq: bool = flag(False)
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        if self.padding_idx is not None and not -self.num_embeddings <= self.padding_idx < self.num_embeddings:
            raise InvalidProblemError(
                f"padding_idx must lie in [-{self.num_embeddings}, {self.num_embeddings}), got {self.padding_idx}"
            )

    @property
    def padding_row(self) -> int:
        """The row without a gradient; -1 for none."""
        if self.padding_idx is None:
            return -1
        return self.padding_idx + (self.num_embeddings if self.padding_idx < 0 else 0)

    @property
    def tokens(self) -> int:
        """How many rows are looked up."""
        count = 1
        for n in self.index_shape:
            count *= n
        return count


@dataclass(slots=True, kw_only=True)
class EmbeddingArgs(Args):
    """y[..., :] = weight[indices[...], :]."""

    indices: Array = operand("*index_shape", element=INDICES[::-1], values=random_indices)
    weight: Array = operand("num_embeddings embedding_dim")
    y: Array = output("*index_shape embedding_dim")


def reference(desc: EmbeddingDescriptor, *, indices: Any, weight: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    y = np.zeros((*desc.index_shape, desc.embedding_dim), weight.dtype)
    found = (indices >= 0) & (indices < desc.num_embeddings)
    if found.all():
        np.take(weight, indices, axis=0, out=y)
    else:
        y[found] = weight[indices[found]]
    return {"y": y}


PARAMS = Params(
    "EmbeddingParams", indices="ptr", weight="ptr", y="ptr", status="status", items="i64", row_words="i64",
    num_embeddings="i64", weight_row="i64", weight_column="i64", y_column="i64", token_shape="i64[8]",
    token_strides="i64[2][8]", by_row="u32[3]", token_rank="i32", indices_wide="i32",
    embedding_words=ROWS,
)  # fmt: skip


def token_axes(indices: View, rows: View) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] | str:
    """The index axes merged over the indices and the rows that go with them: shape and both strides."""
    shape, strides = merge_axes(indices.shape, (indices.strides, rows.strides[:-1]))
    return "more than 8 index axes remain after merging" if len(shape) > 8 else (shape, strides)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    size, columns = desc.element.itemsize, desc.embedding_dim
    axes = token_axes(p.indices, p.y)
    if isinstance(axes, str):
        return axes
    shape, (index_strides, y_strides) = axes
    width = 16 if p.weight.inner_dense and p.y.inner_dense else size
    while width > size and (columns * size % width or not (p.weight.aligned(width) and p.y.aligned(width))):
        width //= 2
    scale = width // size
    words = columns // scale
    items = desc.tokens * words
    narrow = items < 2**31 - 2 * THREADS * ROWS and len(shape) <= 1
    params = {
        "items": items, "row_words": max(words, 1), "num_embeddings": desc.num_embeddings,
        "weight_row": p.weight.strides[0] // scale if desc.num_embeddings > 1 else 0,
        "weight_column": p.weight.strides[1] if scale == 1 else 1, "y_column": p.y.strides[-1] if scale == 1 else 1,
        "token_shape": pad(shape),
        "token_strides": [pad(index_strides), pad(tuple(s // scale for s in y_strides))],
        "by_row": divider(max(words, 1)) if narrow else [1, 0, 0], "token_rank": len(shape),
        "indices_wide": p.indices.element is ElementKind.I64,
    }  # fmt: skip
    grid = max(1, -(-items // (THREADS * ROWS)))
    step = Step("embedding", (grid, 1, 1), params, {"BYTES": width, "I": "i32" if narrow else "i64"}, THREADS)
    dense = p.indices.dense and p.weight.dense and p.y.dense
    inner = p.weight.inner_dense and p.y.inner_dense
    return Geometry((step,), layout="contiguous" if dense else "inner_contiguous" if inner else "strided")


def _axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": tuple(b for b in (1, 2, 4, 8, 16) if b >= kind.itemsize), "I": ("i32", "i64")}


_KERNEL = Kernel("embedding", "embedding<{BYTES}, {I}>", PARAMS, _axes, threads=THREADS)


def in_torch(torch: Any, desc: EmbeddingDescriptor, *, indices: Any, weight: Any) -> Any:
    """torch's embedding."""
    return torch.nn.functional.embedding(indices.long(), weight)


class EmbeddingPlan(Plan):
    """y[..., :] = weight[indices[...], :] (torch.nn.functional.embedding); elements are moved as they are.

    Floats have a gradient.
    """

    op = "embedding.embedding"
    descriptor = EmbeddingDescriptor
    args = EmbeddingArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("EmbeddingBackwardPlan", grads={"weight": "dweight"})
    value_policy = "an index outside [0, num_embeddings) yields a row of zeros"
    variants = (
        Variant(
            "words", _geometry, source="embedding/embedding.cu",
            kernels=(_KERNEL,), elements=MOVED, guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "32768 of [128256, 4096] bf16", num_embeddings=128256, embedding_dim=4096, index_shape=32768,
            element="bfloat16", work=BYTES, peers=(EAGER,),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> EmbeddingDescriptor:
        rows = draw.sizes(1, 2, 17, 300)
        return EmbeddingDescriptor(
            index_shape=draw.shape(0, 3, 0, 7), num_embeddings=rows, embedding_dim=draw.sizes(1, 7, 20, 64, 200),
            element=draw.element,  # without padding_idx: the gradient it leaves out is no derivative
        )  # fmt: skip

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return out_of_range(desc, arrays)

    @classmethod
    def bytes(cls, desc: EmbeddingDescriptor) -> int:
        rows = desc.tokens + min(desc.tokens, desc.num_embeddings)
        return 8 * desc.tokens + rows * desc.embedding_dim * desc.element.itemsize


_embedding = functional(EmbeddingPlan, "embedding")


@entry(EmbeddingPlan)
def embedding(
    indices: Array, weight: Array, *, padding_idx: int | None = None, scale_grad_by_freq: bool = False,
    max_norm: float | None = None, norm_type: float = 2.0, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[..., :] = weight[indices[..., :], :] (torch.nn.functional.embedding); see `EmbeddingPlan`.

    padding_idx and scale_grad_by_freq change the gradient only: that row gets none; a row's is divided by how often it
    is looked up. max_norm: rows that are looked up are shortened to it first, in place (`embedding_renorm`).
    """
    if max_norm is not None:
        max_norm, norm_type = real("max_norm", max_norm), real("norm_type", norm_type)
        facts = {"padding_idx": padding_idx, "scale_grad_by_freq": scale_grad_by_freq}
        refuse_call(_embedding, {"indices": indices, "weight": weight}, facts, out, preference)
        renorm = public("embedding_renorm")
        renorm(constant(weight), indices, max_norm=max_norm, norm_type=norm_type, stream=stream, preference=preference)
    return _embedding(
        indices, weight, padding_idx=padding_idx, scale_grad_by_freq=scale_grad_by_freq, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
