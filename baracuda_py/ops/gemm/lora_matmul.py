"""lora_matmul: y[t] = base[t] + scale[i] B[i] (A[i] x[t]) with an adapter i of low rank for each token or segment.

The products of serving many LoRA adapters at once (Hu et al. 2021): Punica's BGMV and SGMV (Chen et al. 2023), vLLM's
shrink and expand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Forward, Guarantee, InvalidProblemError, Plan,
    Variant, Vjp, element, extent, operand, output,
)  # fmt: skip
from ...core.benchmark import EAGER, Benchmark
from ...core.element import INDICES
from .gemm import rows_apart
from .groups import settled
from . import lora_rows as rows

_MOST_RANK = 512
POLICY = (
    "a token whose adapter is outside [0, adapters) has none, and its y is base; ranks are clamped to [0, max_rank], "
    "offsets to [0, tokens] and to the largest offset before them, and tokens of no segment have no adapter"
)


@dataclass(frozen=True, kw_only=True)
class LoraMatmulDescriptor(Descriptor):
    """x is [tokens, in_features], a [adapters, max_rank, in_features], b [adapters, out_features, max_rank].

    num_ids: how many adapters are named: one for each token, or with offsets for each segment of tokens.
    """

    tokens: int = extent()
    in_features: int = extent()
    out_features: int = extent()
    adapters: int = extent()
    max_rank: int = extent()
    num_ids: int = extent()
    element: ElementKind = element()

    def validate(self) -> None:
        if self.max_rank > _MOST_RANK:
            raise InvalidProblemError(f"max_rank must be at most {_MOST_RANK}, got {self.max_rank}")

    @property
    def num_offsets(self) -> int:
        """Bounds of segments."""
        return self.num_ids + 1


def random_ids(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: adapters, some of them repeated, and at times none."""
    return (
        np.sort(rng.integers(-1, desc.adapters + 1, shape))
        if rng.integers(2)
        else rng.integers(-1, max(desc.adapters, 1), shape)
    )


def random_bounds(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: bounds of segments, seldom out of order."""
    bounds = np.sort(rng.integers(0, desc.tokens + 1, shape))
    if rng.integers(4):
        bounds[0], bounds[-1] = 0, desc.tokens
    if not rng.integers(6):
        bounds[rng.integers(len(bounds))] += rng.choice((-3, 5, 1000))
    return bounds


def random_ranks(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: ranks, some beyond what there is."""
    return rng.integers(-1, desc.max_rank + 2, shape)


@dataclass(slots=True, kw_only=True)
class LoraMatmulArgs(Args):
    """Any strides. ids: the adapter of each token, or with offsets (num_ids + 1 bounds, on the device, cu_seqlens) of
    each segment; -1 is none. scale: a factor of each adapter, by default 1. ranks: how many rows of a and columns of b
    each adapter has; what is beyond them is not used, whatever it is. base: what is added to; y may be base itself.
    """

    x: Array = operand("tokens in_features")
    a: Array = operand("adapters max_rank in_features")
    b: Array = operand("adapters out_features max_rank")
    ids: Array = operand("num_ids", element=INDICES, values=random_ids)
    offsets: Array | None = operand("num_offsets", element=INDICES, optional=True, values=random_bounds)
    scale: Array | None = operand("adapters", element=ElementKind.F32, optional=True)
    ranks: Array | None = operand("adapters", element=INDICES, optional=True, values=random_ranks)
    base: Array | None = operand("tokens out_features", optional=True)
    y: Array = output("tokens out_features", inplace=("base",))


def adapters_of(desc: Any, ids: Any, offsets: Any) -> Any:
    """The adapter of each token, -1 for none."""
    ids = np.asarray(ids).astype(np.int64)
    ids = np.where((ids >= 0) & (ids < desc.adapters), ids, -1)
    if offsets is None:
        return ids
    made = np.full(desc.tokens, -1)
    bounds = settled(offsets, desc.tokens)
    for i, adapter in enumerate(ids):
        made[bounds[i] : bounds[i + 1]] = adapter
    return made


def product(desc: Any, x: Any, a: Any, b: Any, owners: Any, scale: Any, ranks: Any, apart: bool) -> Any:
    """scale[i] (x[t] a[i]ᵀ) b[i]ᵀ of every token t with an adapter i = owners[t]; 0 of the others."""
    y = np.zeros((desc.tokens, b.shape[1]), x.dtype)
    for i in np.unique(owners[owners >= 0]):
        rank = desc.max_rank if ranks is None else int(np.clip(ranks[i], 0, desc.max_rank))
        rows, down, up = owners == i, a[i, :rank].T, b[i, :, :rank].T
        made = rows_apart(rows_apart(x[rows], down), up) if apart else x[rows] @ down @ up
        y[rows] = made if scale is None else made * scale[i].astype(x.dtype)
    return y


def reference(
    desc: LoraMatmulDescriptor, *, x: Any, a: Any, b: Any, ids: Any, offsets: Any, scale: Any, ranks: Any, base: Any,
    apart: bool = False,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in, adapter by adapter."""
    owners = adapters_of(desc, ids, offsets)
    y = product(desc, x, a, b, owners, scale, ranks, apart)
    return {"y": y if base is None else np.where(owners[:, None] < 0, base, base + y)}


def _owners(torch: Any, desc: LoraMatmulDescriptor, ids: Any, offsets: Any) -> Any:
    """`adapters_of` of tensors."""
    ids = torch.where((ids >= 0) & (ids < desc.adapters), ids, -1)
    if offsets is None:
        return ids
    bounds = torch.cummax(offsets.long().clamp(0, desc.tokens), 0)[0]
    place = torch.searchsorted(bounds, torch.arange(desc.tokens, device=ids.device), right=True) - 1
    ids = torch.cat(
        [ids.new_full((1,), -1), ids, ids.new_full((1,), -1)]
    )  # before the first segment, and after the last
    return ids[place + 1]


def in_torch(
    torch: Any, desc: LoraMatmulDescriptor, *, x: Any, a: Any, b: Any, ids: Any, offsets: Any, scale: Any, ranks: Any,
    base: Any,
) -> Any:  # fmt: skip
    """Products of each token with its own matrices."""
    owners = _owners(torch, desc, ids.long(), offsets)
    if not desc.adapters:
        return (x @ a.new_zeros(desc.in_features, desc.out_features)) if base is None else base + 0
    own = owners.clamp(min=0)
    h = torch.einsum("tk,trk->tr", x, a[own])
    if ranks is not None:
        h = torch.where(torch.arange(desc.max_rank, device=x.device) < ranks[own][:, None], h, torch.zeros_like(h))
    made = torch.einsum("tr,tnr->tn", h, b[own])
    made = made if scale is None else made * scale[own][:, None].to(x.dtype)
    made = torch.where(owners[:, None] < 0, torch.zeros_like(made), made)
    return made if base is None else base + made


def ids_fit(desc: Any, offsets: Any) -> None:
    """Without offsets there is an adapter for each token."""
    if offsets is None and desc.num_ids != desc.tokens:
        raise InvalidProblemError(
            f"ids must have {desc.tokens} items, one for each token, got {desc.num_ids}; with offsets, "
            "one for each segment"
        )


def even_segments(torch: Any, desc: Any) -> dict[str, Any]:
    """Segments of as many tokens, one for each adapter, for benchmarks."""
    offsets = torch.arange(desc.num_ids + 1, dtype=torch.int32) * (desc.tokens // desc.num_ids)
    return {"offsets": offsets, "ids": torch.arange(desc.num_ids, dtype=torch.int32) % desc.adapters}


def variants_of(names: rows.Names) -> tuple[Variant, ...]:
    """The rows of the plan and of its gradient."""
    return (
        Variant(
            "mma", lambda p: rows.tensor_cores(p, names), source="gemm/lora_mma.cu", kernels=rows.MMA_KERNELS,
            elements=rows.HALVES,
            guarantee=Guarantee(Forward(256), roundings=lambda desc: max(desc.in_features, desc.out_features) // 8),
        ),
        Variant(
            "tokens", lambda p: rows.launches(p, names), source="gemm/lora_matmul.cu", kernels=rows.KERNELS,
            guarantee=Guarantee(Forward(128), batch_invariant=True),
        ),
    )  # fmt: skip


class LoraMatmulPlan(Plan):
    """y[t] = base[t] + scale[i] (x[t] @ a[i]ᵀ) @ b[i]ᵀ with the adapter i of token t (Punica's BGMV), or of the segment
    that the token is in (SGMV).

    Tokens may name adapters in any order. Sums and the row of x @ aᵀ are in float32 (float64 of float64). Of many
    tokens for each adapter tensor cores multiply 16-bit elements ("mma"), with x @ aᵀ as the sum of two of them; before
    that a launch puts tokens that name adapters one by one into their order. A token's bits do not depend on what the
    others are. Else ("tokens") the sums over in_features are of pieces of 512, added in their order, and those over the
    rank go by rank, so that they do not depend on how many there are either.
    """

    op = "gemm.lora_matmul"
    descriptor = LoraMatmulDescriptor
    args = LoraMatmulArgs
    reference = staticmethod(reference)
    apart = True
    value_policy = POLICY
    vjp = Vjp("LoraMatmulBackwardPlan", grads={"x": "dx", "base": "dbase"})
    variants = variants_of(rows.FORWARD)
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("64 tokens, 16 adapters of rank 16, [4096, 4096] bf16", tokens=64, in_features=4096,
                  out_features=4096, adapters=16, max_rank=16, num_ids=64, element="bfloat16", also=("base",),
                  target=None, peers=(EAGER,)),
        Benchmark("4096 tokens, 16 adapters of rank 32, [4096, 4096] bf16", tokens=4096, in_features=4096,
                  out_features=4096, adapters=16, max_rank=32, num_ids=16, element="bfloat16", also=("base",),
                  make=even_segments, target=None, peers=(EAGER,)),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> LoraMatmulDescriptor:
        return LoraMatmulDescriptor(**lora_case(draw), element=draw.element)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        ids_fit(desc, views["offsets"])

    @classmethod
    def check_values(cls, desc: LoraMatmulDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """Adapters are -1 or exist."""
        bad = np.count_nonzero((arrays["ids"] < -1) | (arrays["ids"] >= desc.adapters))
        return f"{bad} of ids outside [-1, {desc.adapters})" if bad else None


def lora_case(draw: Any) -> dict[str, Any]:
    """Few tokens, or enough of them for tiles; k of one piece or several."""
    tokens = draw.sizes(5, 0, 1, 12, rare=(70, 130))
    return {
        "tokens": tokens, "in_features": draw.sizes(24, 0, 1, 67, rare=(520, 1100)),
        "out_features": draw.sizes(40, 0, 1, 5, rare=(260,)), "adapters": draw.integer(0, 3),
        "max_rank": draw.sizes(8, 0, 1, 3, 16, rare=(40,)), "num_ids": tokens,
    }  # fmt: skip
