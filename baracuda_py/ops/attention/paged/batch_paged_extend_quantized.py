"""batch_paged_extend_quantized: batch_paged_extend over paged caches of int8, int4 or fp8 codes with scales.

An element is a code times its scale: one for a token and head, `k_scales` and `v_scales`, of int4 one for each group of
columns; besides, k_scale and v_scale for all, and k_head_scale and v_head_scale for a head. `paged_kv_append_quantized`
writes such caches, `paged_kv_append_fp8` those without a scale a token. It serves decoding, drafts, chunks and prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....core import (
    Array,
    ElementKind,
    InvalidProblemError,
    Problem,
    Scalar,
    Variant,
    element,
    integer,
    operand,
    scalar,
)
from ....calls.functional import functional
from ....core.args import finite_only
from ....core.benchmark import Benchmark
from ....core.element import FP8, decode, unrounded
from ....calls.entries import entry
from ....schedules.attention.extend_quantized import ELEMENTS, extend_quantized_rows
from ....schedules.attention.same_bits import paged
from ...elementwise.cast import CODES, carrier_shape
from ..layouts import PAGE_LAYOUTS, Layouts
from .batch_paged_extend import (
    BatchPagedExtendArgs, BatchPagedExtendDescriptor, BatchPagedExtendPlan, draw_case, in_torch, reference,
    tables_in_torch,
)  # fmt: skip
from .page_tables import CACHE, READ_TABLES, table_fields, table_params

E = ElementKind
FORMATS = (E.I8, E.S4, *FP8)
GROUP_SIZES = (0, 32, 64, 128)  # columns that share a scale; 0: all of a row


@dataclass(frozen=True, kw_only=True)
class BatchPagedExtendQuantizedDescriptor(BatchPagedExtendDescriptor):
    """As batch_paged_extend's; `aux_element` is that of the caches.

    group_size: columns of int4 that have a scale of their own, 32, 64 or 128; 0: a token and head have one.
    """

    aux_element: ElementKind = element(FORMATS)
    group_size: int = integer(0, minimum=0)
    element: ElementKind = element(ELEMENTS)

    def validate(self) -> None:
        super().validate()
        if self.group_size not in GROUP_SIZES:
            raise InvalidProblemError(f"group_size must be one of {list(GROUP_SIZES)}, got {self.group_size}")
        if self.group_size and self.aux_element is not E.S4:
            raise InvalidProblemError(f"group_size is for int4 caches, these are of {self.aux_element}")
        for name, columns in (("d_k", self.d_k), ("d_v", self.d_v)):
            unit = self.group_size or (2 if self.aux_element is E.S4 else 1)
            if columns % unit:
                raise InvalidProblemError(f"{name} must be a multiple of {unit}, got {columns}")

    @property
    def k_columns(self) -> int:
        """Bytes of a key."""
        return int(carrier_shape((self.d_k,), self.aux_element)[0])

    @property
    def v_columns(self) -> int:
        """Bytes of a value."""
        return int(carrier_shape((self.d_v,), self.aux_element)[0])

    @property
    def k_groups(self) -> int:
        """Scales of a key."""
        return self.d_k // self.group_size if self.group_size else 1

    @property
    def v_groups(self) -> int:
        """Scales of a value."""
        return self.d_v // self.group_size if self.group_size else 1


_LARGEST = {E.I8: 127.0, E.S4: 7.0}


@finite_only
def _scales(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Of elements of about 1, or 0."""
    largest = _LARGEST.get(desc.aux_element, 1.0)
    return np.where(rng.random(shape) < 0.05, 0.0, np.exp2(rng.uniform(-1, 1, shape)) / largest)


@finite_only
def _head_scales(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    return rng.choice((-1.0, 0.5, 1.5), shape)


@dataclass(slots=True, kw_only=True)
class BatchPagedExtendQuantizedArgs(BatchPagedExtendArgs):
    """As batch_paged_extend's. fp8 and int4 travel as uint8, int4 with the even column in the lower half of a byte.

    An element of the cache is its code times k_scale · k_head_scale[head] · k_scales[page, head, cell, group], of
    values likewise; what is not given is 1.
    """

    k_cache: Array = operand(f"{CACHE} k_columns", element="aux_element", layout="inner")
    v_cache: Array = operand(f"{CACHE} v_columns", element="aux_element", layout="inner")
    k_scales: Array | None = operand(f"{CACHE} k_groups", element=E.F32, optional=True, values=_scales)
    v_scales: Array | None = operand(f"{CACHE} v_groups", element=E.F32, optional=True, values=_scales)
    k_head_scale: Array | None = operand(
        "num_kv_heads", element=E.F32, optional=True, layout="dense", values=_head_scales
    )
    v_head_scale: Array | None = operand(
        "num_kv_heads", element=E.F32, optional=True, layout="dense", values=_head_scales
    )
    k_scale: Scalar = scalar(1.0)
    v_scale: Scalar = scalar(1.0)


def decoded(desc: Any, codes: Any, columns: int, scales: Any, heads: Any, scale: Any, dtype: Any) -> Any:
    """A cache of `columns` columns in `dtype`: codes times scales."""
    numbers = decode(codes, desc.aux_element) if desc.aux_element is E.S4 else codes
    by = dtype.type(scale)
    if heads is not None:
        by = by * heads.astype(dtype)[:, None, None]
    if scales is not None:
        groups = max(scales.shape[-1], 1)
        by = by * np.repeat(scales.astype(dtype), columns // groups if columns else 0, axis=-1)
    with np.errstate(all="ignore"):
        return numbers.astype(dtype)[..., :columns] * by


def scaled_reference(
    desc: Any, *, q: Any, k_cache: Any, v_cache: Any, k_scale: Any, v_scale: Any, k_scales: Any = None,
    v_scales: Any = None, k_head_scale: Any = None, v_head_scale: Any = None, wanted: set[str],
    store: Any = unrounded, **rest: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in: `batch_paged_extend` of decoded caches, kept in q's element where kernels do."""
    caches = {
        "k_cache": decoded(desc, k_cache, desc.d_k, k_scales, k_head_scale, k_scale, q.dtype),
        "v_cache": decoded(desc, v_cache, desc.d_v, v_scales, v_head_scale, v_scale, q.dtype),
    }  # fmt: skip
    if desc.group_size:
        caches["k_cache"] = store(caches["k_cache"])
    if desc.group_size or desc.element is E.F16 or desc.aux_element is E.FP8E5M2:
        caches["v_cache"] = store(caches["v_cache"])
    return reference(desc, q=q, **caches, **rest, wanted=wanted, store=store)


def scaled_in_torch(
    torch: Any, desc: Any, *, q: Any, k_cache: Any, v_cache: Any, k_scales: Any, v_scales: Any, k_head_scale: Any,
    v_head_scale: Any, k_scale: Any, v_scale: Any, **rest: Any,
) -> Any:  # fmt: skip
    """That of batch_paged_extend, of decoded caches; numbers of 4 bits come as int8."""
    if k_cache.dtype == torch.uint8:
        return NotImplemented

    def scaled(cache: Any, scales: Any, heads: Any, by: Any) -> Any:
        cache = cache.to(q.dtype) * by
        cache = cache if heads is None else cache * heads.to(q.dtype)[:, None, None]
        if scales is None:
            return cache
        return cache * scales.to(q.dtype).repeat_interleave(cache.shape[-1] // scales.shape[-1], -1)

    caches = {
        "k_cache": scaled(k_cache, k_scales, k_head_scale, k_scale),
        "v_cache": scaled(v_cache, v_scales, v_head_scale, v_scale),
    }  # fmt: skip
    return in_torch(torch, desc, q=q, **caches, **rest)


def _values(p: Problem) -> Mapping[str, Any]:
    return table_params(p, READ_TABLES)


def _coded(torch: Any, desc: Any) -> dict[str, Any]:
    """Tables, random codes that are finite numbers, and a scale for each row or group."""
    made = tables_in_torch(torch, desc)
    for name, columns, groups in (("k", desc.k_columns, desc.k_groups), ("v", desc.v_columns, desc.v_groups)):
        cells = desc.num_pages, desc.num_kv_heads, desc.page_size
        whole = desc.aux_element is E.I8
        kind = torch.int8 if whole else torch.uint8
        made[f"{name}_cache"] = torch.randint(-127 if whole else 0, 120, (*cells, columns), dtype=kind)
        made[f"{name}_scales"] = torch.rand(*cells, groups, dtype=torch.float32) / 64
    return made


def _benchmarks(*sizes: tuple[int, int, int, str, int]) -> tuple[Benchmark, ...]:
    """64/8 heads; `sizes`: sequences, their tokens, their queries, element of the caches, group_size."""
    return tuple(
        Benchmark(
            f"{queries} queries, 64/8 heads, batch {batch}, context {length}, pages of 16 {kind}"
            + (f" in groups of {group}" if group else ""),
            batch_size=batch, total_q=batch * queries, max_seqlen_q=queries, num_heads=64, num_kv_heads=8,
            num_pages=batch * length // 16, page_size=16, d_k=128, d_v=128, is_causal=True, max_pages=length // 16,
            element="bfloat16", aux_element=kind, group_size=group, make=_coded, also=("k_scales", "v_scales"),
            target=0.75 if kind == "int4" else 0.9, peers=(),
        )
        for batch, length, queries, kind, group in sizes
    )  # fmt: skip


class BatchPagedExtendQuantizedPlan(BatchPagedExtendPlan):
    """As BatchPagedExtendPlan over the elements that the codes and scales of caches are.

    With tensor cores keys are exact where a token and head have one scale; so are values with a bfloat16 q, whose
    weights are multiplied by the scale and then rounded (not of float8_e5m2, which has infinities). Else an element is
    rounded to q's after its scale. A NaN in a scale makes NaN of what sees its token; an infinite one is not specified.
    """

    op = "attention.batch_paged_extend_quantized"
    descriptor = BatchPagedExtendQuantizedDescriptor
    args = BatchPagedExtendQuantizedArgs
    reference = staticmethod(scaled_reference)  # type: ignore[assignment]
    value_policy = (
        BatchPagedExtendPlan.value_policy + "; results of tokens with an infinite scale are not specified; an element "
        "beyond the range of q's may become infinite"
    )
    variants: ClassVar[tuple[Variant, ...]] = extend_quantized_rows(
        table_fields(READ_TABLES), paged(_values), {kind: CODES.index(kind) for kind in FORMATS}, E.S4
    )
    torch = staticmethod(scaled_in_torch)  # type: ignore[assignment]
    benchmarks = _benchmarks(
        (32, 8192, 1, "int8", 0), (32, 8192, 1, "float8_e4m3fn", 0), (32, 8192, 1, "int4", 0),
        (32, 8192, 1, "int4", 32), (32, 8192, 8, "int8", 0), (32, 8192, 8, "int4", 0), (1, 131072, 8, "int8", 0),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BatchPagedExtendQuantizedDescriptor:
        facts = draw_case(draw) | {"aux_element": draw.choice((*FORMATS, E.S4))}
        if facts["aux_element"] is E.S4:
            facts["group_size"] = draw.choice((0, 32, 64))
            unit = facts["group_size"] or 2
            for name in ("d_k", "d_v"):
                facts[name] = -(-facts[name] // unit) * unit
        return BatchPagedExtendQuantizedDescriptor(**facts)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        BatchPagedExtendPlan.complete(desc, arrays)
        arrays["k_scale"], arrays["v_scale"] = (0.25, -0.5) if desc.total_q % 2 else (1.0, 0.7)
        for name in ("k", "v"):  # integers of about 1 whether a scale is there or not
            if arrays.get(f"{name}_scales") is None:
                arrays[f"{name}_scale"] /= _LARGEST.get(desc.aux_element, 1.0)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        BatchPagedExtendPlan.infer(shapes, facts)
        packed = facts["aux_element"] is E.S4
        values, scales = shapes.get("v_cache"), shapes.get("k_scales")
        if values is not None and len(values) == 4:
            facts.setdefault("d_v", values[-1] * (2 if packed else 1))
        if packed and not facts["group_size"] and scales is not None and len(scales) == 4 and scales[-1] > 1:
            facts["group_size"] = shapes["q"][-1] // scales[-1]

    @classmethod
    def bytes(cls, desc: Any) -> int:
        tokens = desc.batch_size * desc.num_kv_heads * desc.max_cache_len
        rows = desc.total_q * desc.num_heads * (desc.d_k + desc.d_v) * desc.element.itemsize
        return int(rows + tokens * (desc.k_columns + desc.v_columns + 4 * (desc.k_groups + desc.v_groups)))


_call = functional(
    BatchPagedExtendQuantizedPlan, layouts=Layouts(("k_cache", "v_cache", "k_scales", "v_scales"), PAGE_LAYOUTS)
)


@entry(BatchPagedExtendQuantizedPlan)
def batch_paged_extend_quantized(
    q: Any, k_cache: Any, v_cache: Any, qo_indptr: Any, k_scales: Any = None, v_scales: Any = None,
    tree_mask: Any = None, *, format: str = "int8", page_table: Any = None, lengths: Any = None,
    kv_indices: Any = None, kv_indptr: Any = None, kv_last_page_len: Any = None, k_scale: Any = 1.0,
    v_scale: Any = 1.0, k_head_scale: Any = None, v_head_scale: Any = None, slopes: Any = None, sinks: Any = None,
    scale: float | None = None, is_causal: bool = True, causal_alignment: str = "bottom_right",
    window_left: int | None = None, window_right: int | None = None, softcap: float = 0.0,
    max_seqlen_q: int | None = None, max_cache_len: int | None = None, layout: str = "hnd", return_lse: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """batch_paged_extend (bottom right) over caches of codes: "int8", "int4", "float8_e4m3fn" or "float8_e5m2".

    The caches are [pages, kv_heads, page_size, d] (layout "nhd": heads behind page_size), int8, or uint8 or an fp8
    dtype for fp8; for int4 [..., d / 2] uint8, the even column in the lower half. k_scales and v_scales, float32 with
    the same axes, have one scale for a token and head in their last axis, for int4 also one for 32, 64 or 128. Further
    factors are k_scale and v_scale, numbers or 0-d arrays on the device, and k_head_scale and v_head_scale [kv_heads],
    float32; what is not given is 1. q is float16, bfloat16 or float32; all else is as in batch_paged_extend.
    """
    return _call(
        q, k_cache, v_cache, qo_indptr, tree_mask, slopes, sinks, page_table, lengths, kv_indices, kv_indptr,
        kv_last_page_len, k_scales, v_scales, k_head_scale, v_head_scale, aux_element=format, k_scale=k_scale,
        v_scale=v_scale, scale=scale, is_causal=is_causal, causal_alignment=causal_alignment, window_left=window_left,
        window_right=window_right, softcap=softcap, max_seqlen_q=max_seqlen_q, max_cache_len=max_cache_len,
        return_lse=return_lse, out=out, stream=stream, layout=layout, preference=preference,
    )  # fmt: skip
