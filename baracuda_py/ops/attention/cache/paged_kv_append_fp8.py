"""paged_kv_append_fp8: paged_kv_append into caches in float8_e4m3fn or float8_e5m2, which batch_paged_decode_fp8 reads.

A stored element is the new one divided by k_scale · k_head_scale, of values by v_scale · v_head_scale (FlashInfer's and
vLLM's k_scale and v_scale), rounded to nearest and saturating: what decoding multiplies by the same scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    FLOATS, Array, ElementKind, Geometry, Guarantee, Kernel, Plan, Problem, Scalar, Step, Variant, element,
    inout, operand, scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import BYTES, Benchmark
from ....core.element import FP8, cast, encode
from ....calls.entries import entry
from ...elementwise.cast import CODES
from ..layouts import PAGE_LAYOUTS, Layouts
from ..paged.page_tables import locate
from .paged_kv_append import (
    THREADS, PagedKvAppendArgs, PagedKvAppendDescriptor, PagedKvAppendPlan, append_params, append_values, paged_case,
    paged_tables,
)  # fmt: skip

E = ElementKind
SOURCES = tuple(kind for kind in FLOATS if kind is not E.F64)


@dataclass(frozen=True, kw_only=True)
class PagedKvAppendFp8Descriptor(PagedKvAppendDescriptor):
    """As paged_kv_append's; `aux_element` is that of the caches."""

    aux_element: ElementKind = element(FP8)
    element: ElementKind = element(SOURCES)


def random_head_scales(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: positive ones, of which some make numbers saturate."""
    return np.exp2(rng.uniform(-9, 3, shape))


@dataclass(slots=True, kw_only=True)
class PagedKvAppendFp8Args(PagedKvAppendArgs):
    """As paged_kv_append's; a scale for each head besides k_scale and v_scale is optional. Caches travel as uint8."""

    k_cache: Array = inout("num_pages num_heads page_size d_k", element="aux_element", layout="inner")
    v_cache: Array = inout("num_pages num_heads page_size d_v", element="aux_element", layout="inner")
    k_head_scale: Array | None = operand(
        "num_heads", element=E.F32, optional=True, layout="dense", values=random_head_scales
    )  # fmt: skip
    v_head_scale: Array | None = operand(
        "num_heads", element=E.F32, optional=True, layout="dense", values=random_head_scales
    )  # fmt: skip
    k_scale: Scalar = scalar(1.0)
    v_scale: Scalar = scalar(1.0)


def stored(desc: Any, new: Any, scale: Any, heads: Any) -> Any:
    """The bytes of new rows [tokens, heads, d]: quotients in float32, then in the element of the caches."""
    with np.errstate(all="ignore"):
        by = np.float32(scale) if heads is None else (np.float32(scale) * heads.astype(np.float32))[:, None]
        return encode(cast(new.astype(np.float32) / by, desc.aux_element, saturate=True), desc.aux_element)


def reference(
    desc: PagedKvAppendFp8Descriptor, *, k_new: Any, v_new: Any, k_cache: Any, v_cache: Any, k_scale: Any, v_scale: Any,
    k_head_scale: Any = None, v_head_scale: Any = None, **tables: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy on the stored bytes; the caches are updated in place."""
    token, page, cell, _ = locate(desc, **tables)
    for cache, new, scale, heads in (
        (k_cache, k_new, k_scale, k_head_scale), (v_cache, v_new, v_scale, v_head_scale),
    ):  # fmt: skip
        cache[page, :, cell] = stored(desc, new, scale, heads)[token].view(cache.dtype)
    return {"k_cache": k_cache, "v_cache": v_cache}


PARAMS = append_params(
    "PagedKvAppendFp8Params", k_head_scale="ptr", v_head_scale="ptr", k_scale="scalar", v_scale="scalar"
)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    views = (p.k_new, p.v_new, p.k_cache, p.v_cache)
    width = 16 // desc.element.itemsize
    whole = desc.d_k % width == 0 == desc.d_v % width
    each = width if whole and all(v.aligned(width * v.element.itemsize) for v in views) else 1
    params, narrow = append_values(p, each)
    grid = max(1, -(-params["items"] // THREADS))
    axes = {"N": each, "CODE": CODES.index(desc.aux_element), "I": "i32" if narrow else "i64"}
    step = Step("paged_kv_append_fp8", (grid, 1, 1), params, axes, THREADS)
    return Geometry((step,), layout="contiguous" if all(v.dense for v in views) else "inner_contiguous")


def _axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"N": (16 // kind.itemsize, 1), "CODE": tuple(map(CODES.index, FP8)), "I": ("i32", "i64")}


class PagedKvAppendFp8Plan(Plan):
    """k_cache[page, h, cell] = k_new[t, h] / (k_scale · k_head_scale[h]) as fp8; values likewise with v_scale.

    The quotient is rounded to float32, then to the caches' element, to nearest even; what is too large becomes the
    largest finite number, NaN stays. Places are those of `PagedKvAppendPlan`; `BatchPagedDecodeFp8Plan` reads what is
    stored with the same scales.
    """

    op = "attention.paged_kv_append_fp8"
    descriptor = PagedKvAppendFp8Descriptor
    args = PagedKvAppendFp8Args
    raw = True
    reference = staticmethod(reference)
    value_policy = PagedKvAppendPlan.value_policy + "; a scale of any value is divided by as it is"
    variants = (
        Variant(
            "words", _geometry, source="attention/cache/paged_kv_append_fp8.cu", elements=SOURCES,
            kernels=(
                Kernel("paged_kv_append_fp8", "paged_kv_append_fp8<{T}, {N}, {CODE}, {I}>", PARAMS, _axes,
                       threads=THREADS),
            ),
            guarantee=Guarantee(batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "64 x 2048 tokens, pages of 16, bf16 to e4m3", batch_size=64, num_tokens=64 * 2048, num_heads=8,
            num_pages=64 * 135, page_size=16, d_k=128, d_v=128, element="bfloat16", aux_element="float8_e4m3fn",
            max_pages=135, make=paged_tables, work=BYTES, peers=(),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> PagedKvAppendFp8Descriptor:
        return PagedKvAppendFp8Descriptor(**paged_case(draw), element=draw.element, aux_element=draw.choice(FP8))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        PagedKvAppendPlan.complete(desc, arrays)
        arrays["k_scale"], arrays["v_scale"] = (0.25, 0.03) if desc.num_heads % 2 else (1.0, 0.7)

    check = PagedKvAppendPlan.check
    check_values = PagedKvAppendPlan.check_values
    infer = PagedKvAppendPlan.infer

    @classmethod
    def bytes(cls, desc: Any) -> int:
        rows = desc.num_tokens * desc.num_heads
        return int(rows * (desc.d_k + desc.d_v) * (desc.element.itemsize + 1))


_call = functional(PagedKvAppendFp8Plan, layouts=Layouts(("k_cache", "v_cache"), PAGE_LAYOUTS))


@entry(PagedKvAppendFp8Plan)
def paged_kv_append_fp8(
    k_new: Any, v_new: Any, k_cache: Any, v_cache: Any, *, page_table: Any = None, cache_offsets: Any = None,
    token_indptr: Any = None, kv_indices: Any = None, kv_indptr: Any = None, kv_last_page_len: Any = None,
    slot_mapping: Any = None, k_scale: Any = 1.0, v_scale: Any = 1.0, k_head_scale: Any = None,
    v_head_scale: Any = None, cache_element: Any = "float8_e4m3fn", layout: str = "hnd", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`paged_kv_append` of float16, bfloat16 or float32 into caches of fp8 bytes (uint8, or an fp8 dtype).

    What is stored is k_new / k_scale and v_new / v_scale, numbers or 0-d arrays on the device; k_head_scale and
    v_head_scale [heads], float32, are further divisors. `batch_paged_decode_fp8` takes the same scales.
    """
    return _call(
        k_new, v_new, k_cache, v_cache, page_table, cache_offsets, token_indptr, kv_indices, kv_indptr,
        kv_last_page_len, slot_mapping, k_head_scale, v_head_scale, aux_element=cache_element, k_scale=k_scale,
        v_scale=v_scale, layout=layout, out=out, stream=stream, preference=preference,
    )  # fmt: skip
