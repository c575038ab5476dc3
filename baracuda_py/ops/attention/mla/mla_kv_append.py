"""mla_kv_append: write new tokens' latents, normalised, and rotated keys into a paged cache of latents: one launch.

What `rms_norm`, `rope` and a scatter do one after the other, for the cache that `mla_decode` reads (DeepSeek-V2).
Tables and places are those of `paged_kv_append`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Scalar, Step, Variant, choice, element, extent, inout, number, operand, scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import BYTES, Benchmark
from ....core.element import INDICES
from ....schedules.norms import affine_element, affine_elements
from ..cache.paged_kv_append import BEFORE, PagedKvAppendPlan, paged_tables
from ..paged.page_tables import (
    INDEX, TABLES, check_new_tokens, placed, random_ints, settle, table_fields, table_params,
)  # fmt: skip
from ..rope.rope import TABLE, turns
from ..rope.rotary import Rotary, angles, angles_in_torch, frequencies_operand, rotate, rotate_in_torch

THREADS = 128


@dataclass(frozen=True, kw_only=True)
class MlaKvAppendDescriptor(Rotary, Descriptor):
    """num_tokens new tokens of batch_size sequences, into num_pages pages of page_size cells of d_latent + d_rope.

    All d_rope columns are rotated; pairing and base are those of `RopeDescriptor`, max_pages and num_indices those of
    `PagedKvAppendDescriptor`, eps and weight_element those of `RMSNormDescriptor`.
    """

    batch_size: int = extent()
    num_tokens: int = extent()
    num_pages: int = extent()
    page_size: int = extent(minimum=1)
    d_latent: int = extent()
    d_rope: int = extent()
    pairing: str = choice(("half", "interleaved"), "half")
    base: float = number(10000.0, above=0.0)
    eps: float = number(1e-6, minimum=0.0)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element()
    max_pages: int = extent(0)
    num_indices: int = extent(0)

    rotary_dim = None

    def validate(self) -> None:
        if self.d_rope % 2:
            raise InvalidProblemError(f"d_rope must be even, got {self.d_rope}")

    @property
    def width(self) -> int:
        """Columns of a cell."""
        return self.d_latent + self.d_rope

    @property
    def head_dim(self) -> int:  # type: ignore[override]
        """Columns that are rotated."""
        return self.d_rope

    @property
    def seq_len(self) -> int:  # type: ignore[override]
        """Rows that are rotated."""
        return self.num_tokens

    @property
    def num_bounds(self) -> int:
        """Length of an array of bounds."""
        return self.batch_size + 1

    @property
    def aux_element(self) -> ElementKind | None:
        """The weight's element where it is another one."""
        return None if self.weight_element is self.element else self.weight_element


@dataclass(slots=True, kw_only=True)
class NewLatents(Args):
    """Tables are those of `PagedKvAppendArgs`; see `MlaKvAppendArgs`."""

    latent: Array = operand("num_tokens d_latent", layout="inner")
    k_rope: Array = operand("num_tokens d_rope", layout="inner")
    weight: Array | None = operand("d_latent", element="weight_element", optional=True)
    positions: Array | None = operand("num_tokens", element=INDICES, optional=True, values=(-64, 1_000_000))
    inv_freq: Array | None = frequencies_operand()
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_ints)
    cache_offsets: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    token_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_indices: Array | None = operand("num_indices", element=INDEX, optional=True, values=random_ints)
    kv_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_last_page_len: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    scale: Scalar = scalar(1.0)


@dataclass(slots=True, kw_only=True)
class MlaKvAppendArgs(NewLatents):
    """Tables are those of `PagedKvAppendArgs`. With `weight` latents are normalised: x / sqrt(mean(x²) + eps) · weight.

    A token is rotated by its position in its sequence unless `positions` says otherwise. `inv_freq` replaces the
    frequencies that `base` gives; what is rotated is multiplied by `scale`.
    """

    cache: Array = inout("num_pages page_size width", layout="inner")


def reference(
    desc: MlaKvAppendDescriptor, *, latent: Any, k_rope: Any, weight: Any, positions: Any, inv_freq: Any, cache: Any,
    scale: Any, **tables: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype latent comes in; the cache is updated in place."""
    token, page, cell, place, _ = placed(desc, **tables)
    where = place if positions is None else np.asarray(positions)[token]
    cos, sin = angles(desc, latent.dtype, positions=where, inv_freq=inv_freq, cos=None, sin=None, scale=scale)
    x = latent[token]
    if weight is not None and x.size:
        with np.errstate(all="ignore"):
            x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(desc.eps)) * weight
    cache[page, cell, : desc.d_latent] = x
    cache[page, cell, desc.d_latent :] = rotate(desc, k_rope[token], cos[0, 0], sin[0, 0])
    return {"cache": cache}


def append_fields() -> dict[str, Any]:
    """Fields of the Params of kernels that append latents, but for the cache's."""
    return {
        **dict.fromkeys(("latent", "k_rope", "weight", "positions", "inv_freq"), "ptr"), "status": "status",
        "scale": "scalar", "num_tokens": "i64", "batch": "i64", "new_len": "i64", "reach": "i64",
        "latent_stride": "i64", "rope_stride": "i64", "position_stride": "i64", "weight_stride": "i64",
        "inv_freq_stride": "i64", "table_pairs": "i64", "base": "f64", "eps": "f64", "table": f"f64[{TABLE}][2]",
        "turns": f"u64[{TABLE}]", "by_new": "u32[3]", "d_latent": "i32", "rotary_dim": "i32", "interleaved": "i32",
        "wide_weight": "i32", "positions_wide": "i32", "inv_freq_wide": "i32", **table_fields(TABLES),
    }  # fmt: skip


PARAMS = Params("MlaKvAppendParams", cache="ptr", cache_stride="i64[2]", **append_fields())


def append_params(p: Problem) -> dict[str, Any]:
    """Their values."""
    desc, tables = p.desc, table_params(p, TABLES)
    table, fractions = turns(desc.base, desc.d_rope) if p.inv_freq is None else ((), ())
    doubles = desc.acc is ElementKind.F64
    return {
        **tables, "num_tokens": desc.num_tokens, "batch": desc.batch_size,
        "new_len": max(desc.num_tokens // max(desc.batch_size, 1), 1), "by_new": [1, 0, 0],
        "reach": min(desc.page_size * tables["table_len"], 2**63 - 1), "latent_stride": p.latent.strides[0],
        "rope_stride": p.k_rope.strides[0], "position_stride": 0 if p.positions is None else p.positions.strides[0],
        "weight_stride": 0 if p.weight is None else p.weight.strides[0],
        "inv_freq_stride": 0 if p.inv_freq is None else p.inv_freq.strides[0],
        "table_pairs": min(desc.d_rope // 2, TABLE), "base": desc.base, "eps": desc.eps,
        "table": table if doubles else (), "turns": () if doubles else fractions, "d_latent": desc.d_latent,
        "rotary_dim": desc.d_rope, "interleaved": desc.pairing == "interleaved",
        "wide_weight": desc.weight_element is not desc.element,
        "positions_wide": p.positions is not None and p.positions.element is ElementKind.I64,
        "inv_freq_wide": p.inv_freq is not None and p.inv_freq.element is ElementKind.F64,
    }  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    if max(desc.d_latent, desc.d_rope) >= 2**20:
        return "rows of 2^20 columns or more"
    params = {**append_params(p), "cache_stride": p.cache.strides[:-1]}
    views = (p.latent, p.k_rope, p.cache)
    wide = all(v.inner_dense and v.aligned(16) for v in (p.latent, p.cache))
    grid = max(1, -(-desc.num_tokens // (THREADS // 32)))
    step = Step("mla_kv_append", (grid, 1, 1), params, {"WIDE": wide}, THREADS)
    return Geometry((step,), layout="contiguous" if all(v.dense for v in views) else "inner_contiguous")


_KERNEL = Kernel("mla_kv_append", "mla_kv_append<{T}, {WIDE}>", PARAMS, {"WIDE": (True, False)}, threads=THREADS)


def in_torch(
    torch: Any, desc: MlaKvAppendDescriptor, *, latent: Any, k_rope: Any, weight: Any, positions: Any, inv_freq: Any,
    cache: Any, scale: Any, page_table: Any, cache_offsets: Any, token_indptr: Any, kv_indices: Any, kv_indptr: Any,
    kv_last_page_len: Any,
) -> Any:  # fmt: skip
    """torch's rms_norm, the rotation, and a scatter a sequence."""
    if not desc.d_latent:
        return NotImplemented
    each = desc.num_tokens // max(desc.batch_size, 1)
    ends = [b * each for b in range(desc.num_bounds)] if token_indptr is None else token_indptr.tolist()
    x = latent if weight is None else torch.nn.functional.rms_norm(latent, (desc.d_latent,), weight, desc.eps)
    for b, (first, last) in enumerate(itertools.pairwise(ends)):
        pages = page_table[b] if kv_indptr is None else kv_indices[int(kv_indptr[b]) : int(kv_indptr[b + 1])]
        if kv_last_page_len is None:
            start = int(cache_offsets[b])
        else:
            start = (len(pages) - 1) * desc.page_size + int(kv_last_page_len[b]) - (last - first)
        place = torch.arange(start, start + last - first, device=latent.device)
        where = place if positions is None else positions[first:last]
        turn = {"positions": where, "inv_freq": inv_freq, "cos": None, "sin": None, "scale": scale}
        cos, sin = angles_in_torch(torch, desc, k_rope, **turn)
        turned = rotate_in_torch(torch, desc, k_rope[first:last], cos[0, 0], sin[0, 0])
        cache[pages[place // desc.page_size].long(), place % desc.page_size] = torch.cat([x[first:last], turned], -1)
    return {"cache": cache}


def _benchmark(batch: int, new: int, page: int) -> Benchmark:
    each = -(-(BEFORE + new) // page)
    return Benchmark(
        f"{batch} x {new} tokens, pages of {page}, bf16", batch_size=batch, num_tokens=batch * new,
        num_pages=batch * each, page_size=page, d_latent=512, d_rope=64, element="bfloat16", max_pages=each,
        make=paged_tables, work=BYTES, target=0.9, peers=(),
    )  # fmt: skip


class MlaKvAppendPlan(Plan):
    """cache[page, cell] = [rms_norm(latent[t]) · weight, rope(k_rope[t])] where page and cell are the place of token t.

    page is the page that the table names for the token's position in its sequence. Columns of k_rope are rotated with
    the bits of `rope`; without `weight` latents are copied.
    """

    op = "attention.mla_kv_append"
    descriptor = MlaKvAppendDescriptor
    args = MlaKvAppendArgs
    reference = staticmethod(reference)
    value_policy = f"{PagedKvAppendPlan.value_policy}; any position is legal"
    variants = (
        Variant(
            "tokens", _geometry, source="attention/mla/mla_kv_append.cu", kernels=(_KERNEL,),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (_benchmark(64, 512, 64), _benchmark(128, 1, 64))

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_new_tokens(desc, views, "latent")

    @staticmethod
    def case(draw: Any) -> MlaKvAppendDescriptor:
        batch, new, page = draw.integer(0, 3), draw.integer(0, 4), draw.sizes(4, 1, 3, 16, 64)
        each = -(-(batch * new + draw.integer(1, 9)) // page)
        padded = draw.flag()
        return MlaKvAppendDescriptor(
            batch_size=batch, num_tokens=batch * new, num_pages=batch * each + draw.integer(0, 2), page_size=page,
            d_latent=draw.sizes(64, 0, 1, 7, 512), d_rope=draw.sizes(8, 0, 2, 64, 80),
            pairing=draw.choice(("half", "interleaved")), base=draw.sizes(10000, 500),
            weight_element=draw.choice(affine_elements(draw.element)), max_pages=each if padded else 0,
            num_indices=0 if padded else batch * each + draw.integer(0, 2), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle(desc, arrays)

    check_values = PagedKvAppendPlan.check_values

    @classmethod
    def bytes(cls, desc: MlaKvAppendDescriptor) -> int:
        return 2 * desc.num_tokens * desc.width * desc.element.itemsize


mla_kv_append = functional(MlaKvAppendPlan)
