"""batch_indices_positions: the sequence, and the position in it, of every token of a packed batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant, element,
    extent, operand, output,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import BYTES, Benchmark
from ....schedules.geometry import grid
from ..paged.page_tables import INDEX, random_ints, sequence_of

THREADS = 256


@dataclass(frozen=True, kw_only=True)
class BatchIndicesPositionsDescriptor(Descriptor):
    """num_tokens tokens, of which those in the bounds belong to batch_size sequences; integers of `element`."""

    batch_size: int = extent()
    num_tokens: int = extent()
    element: ElementKind = element(INDEX)

    @property
    def num_bounds(self) -> int:
        """Length of the array of bounds."""
        return self.batch_size + 1


@dataclass(slots=True, kw_only=True)
class BatchIndicesPositionsArgs(Args):
    """Any strides. Sequence b has the tokens token_indptr[b] : token_indptr[b + 1], the last of its lengths[b]."""

    token_indptr: Array = operand("num_bounds", values=random_ints)
    lengths: Array = operand("batch_size", values=random_ints)
    batch_indices: Array = output("num_tokens")
    positions: Array = output("num_tokens")


def reference(desc: BatchIndicesPositionsDescriptor, *, token_indptr: Any, lengths: Any) -> Mapping[str, Any]:
    """NumPy; numbers wrap around."""
    dtype = desc.element.dtype
    indptr, held = (np.asarray(a).astype(np.int64) for a in (token_indptr, lengths))
    made = {name: np.full(desc.num_tokens, -1, dtype) for name in ("batch_indices", "positions")}
    if desc.batch_size:
        token = np.arange(desc.num_tokens)
        sequence = sequence_of(token, indptr)
        first, end = indptr[sequence], indptr[sequence + 1]
        real = (first <= token) & (token < end)
        with np.errstate(over="ignore"):
            made["positions"][real] = (held[sequence] - (end - token))[real].astype(dtype)
        made["batch_indices"][real] = sequence[real]
    return made


PARAMS = Params(
    "BatchIndicesPositionsParams", token_indptr="ptr", lengths="ptr", batch_indices="ptr", positions="ptr",
    batch="i64", num_tokens="i64", strides="i64[4]",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    views = (p.token_indptr, p.lengths, p.batch_indices, p.positions)
    params = {
        "batch": desc.batch_size, "num_tokens": desc.num_tokens, "strides": [view.strides[0] for view in views],
    }  # fmt: skip
    step = Step("batch_indices_positions", grid(-(-desc.num_tokens // THREADS)), params, {}, THREADS)
    return Geometry((step,), layout="contiguous" if all(v.dense for v in views) else "strided")


def in_torch(torch: Any, desc: BatchIndicesPositionsDescriptor, *, token_indptr: Any, lengths: Any) -> Any:
    """A bisection."""
    token = torch.arange(desc.num_tokens, device=lengths.device)
    made = {name: torch.full_like(token, -1, dtype=lengths.dtype) for name in ("batch_indices", "positions")}
    if desc.batch_size:
        sequence = (torch.searchsorted(token_indptr.contiguous(), token, right=True) - 1).clamp(0, desc.batch_size - 1)
        first, end = token_indptr[sequence], token_indptr[sequence + 1]
        real = (first <= token) & (token < end)
        made["batch_indices"][real] = sequence[real].to(lengths.dtype)
        made["positions"][real] = (lengths[sequence] - (end - token))[real].to(lengths.dtype)
    return made


class BatchIndicesPositionsPlan(Plan):
    """batch_indices[t] = b and positions[t] = lengths[b] - (token_indptr[b + 1] - t) for each token t of sequence b.

    lengths count the tokens of the batch (flashinfer.get_batch_indices_positions): positions are what rotates the
    tokens, and says where they go in a cache. A token outside all bounds has -1 for both. The bounds are read on the
    device and do not decrease: of others a token belongs to the sequence that bisection finds, if its bounds hold it.
    """

    op = "attention.batch_indices_positions"
    descriptor = BatchIndicesPositionsDescriptor
    args = BatchIndicesPositionsArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "a token that the bounds of no sequence hold has -1 for both"
    variants = (
        Variant(
            "bisect", _geometry, source="attention/cache/batch_indices_positions.cu", elements=INDEX,
            kernels=(Kernel("batch_indices_positions", "batch_indices_positions<{T}>", PARAMS, threads=THREADS),),
            guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "256 sequences, 64 k tokens", batch_size=256, num_tokens=1 << 16, element="int32", work=BYTES,
            make=lambda torch, desc: {
                "token_indptr": torch.arange(desc.num_bounds, dtype=torch.int32) * (desc.num_tokens // desc.batch_size)
            },
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BatchIndicesPositionsDescriptor:
        return BatchIndicesPositionsDescriptor(
            batch_size=draw.integer(0, 9), num_tokens=draw.sizes(0, 1, 7, 64, 300), element=draw.element
        )

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Bounds that increase; some tokens before and behind them."""
        bounds = np.sort(np.asarray(arrays["token_indptr"]) % (desc.num_tokens + 2))
        arrays["token_indptr"] = bounds.astype(arrays["token_indptr"].dtype)

    @classmethod
    def bytes(cls, desc: BatchIndicesPositionsDescriptor) -> int:
        return (2 * desc.num_tokens + 2 * desc.batch_size + 1) * desc.element.itemsize


batch_indices_positions = functional(BatchIndicesPositionsPlan)
