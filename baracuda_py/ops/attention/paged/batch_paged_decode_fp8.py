"""batch_paged_decode_fp8: batch_paged_decode over caches in float8_e4m3fn or float8_e5m2, with scales.

The caches travel as uint8 with `aux_element` as the tag. A key is its stored element times k_scale · k_head_scale, a
value times v_scale · v_head_scale (FlashInfer's and vLLM's k_scale and v_scale). Stored elements and the softmax's
weights are multiplied as float16, which holds every fp8 value; sums are of float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import Array, ElementKind, Scalar, element, operand, scalar
from ....calls.functional import functional
from ....core.args import finite_only
from ....core.element import FP8, unrounded
from ....calls.entries import entry
from ....schedules.attention.dense.forward import HALVES
from ....schedules.attention.decoding import Walk, mma_row
from .batch_paged_decode import (
    FIELDS, BatchPagedDecodeArgs, BatchPagedDecodeDescriptor, BatchPagedDecodePlan, draw_case, in_torch,
    paged_benchmarks, reference, refuse, termed, values,
)  # fmt: skip
from ..layouts import PAGE_LAYOUTS, Layouts
from .page_tables import CACHE


@dataclass(frozen=True, kw_only=True)
class BatchPagedDecodeFp8Descriptor(BatchPagedDecodeDescriptor):
    """As batch_paged_decode's; `aux_element` is that of the caches."""

    aux_element: ElementKind = element(FP8)
    element: ElementKind = element(HALVES)


@finite_only
def _scales(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite ones, as the policy says, with zeros among them."""
    return np.where(rng.random(shape) < 0.1, 0.0, rng.standard_normal(shape))


@dataclass(slots=True, kw_only=True)
class BatchPagedDecodeFp8Args(BatchPagedDecodeArgs):
    """As batch_paged_decode's; a scale a key and value head besides k_scale and v_scale is optional."""

    k_cache: Array = operand(f"{CACHE} d_k", element="aux_element", layout="inner")
    v_cache: Array = operand(f"{CACHE} d_v", element="aux_element", layout="inner")
    k_head_scale: Array | None = operand(
        "num_kv_heads", element=ElementKind.F32, optional=True, layout="dense", values=_scales
    )
    v_head_scale: Array | None = operand(
        "num_kv_heads", element=ElementKind.F32, optional=True, layout="dense", values=_scales
    )
    k_scale: Scalar = scalar(1.0)
    v_scale: Scalar = scalar(1.0)


def scaled_reference(
    desc: Any, *, k_cache: Any, v_cache: Any, k_scale: Any, v_scale: Any, k_head_scale: Any = None,
    v_head_scale: Any = None, wanted: set[str], store: Any = unrounded, **rest: Any
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in. Weights are kept in float16, so that small ones are 0, whatever the element is."""

    def kept(weights: Any) -> Any:
        return weights if store is unrounded else store(weights.astype(np.float16).astype(weights.dtype))

    def scaled(cache: Any, by: Any, heads: Any) -> Any:
        by = cache.dtype.type(by)
        return cache * (by if heads is None else (by * heads.astype(cache.dtype))[:, None, None])

    caches = {"k_cache": scaled(k_cache, k_scale, k_head_scale), "v_cache": scaled(v_cache, v_scale, v_head_scale)}
    return reference(desc, **caches, **rest, wanted=wanted, store=kept)


_SOURCE = "attention/paged/batch_paged_decode_fp8.cu"
_SCALES = {"k_head_scale": "ptr", "v_head_scale": "ptr", "k_scale": "scalar", "v_scale": "scalar"}
_PLAIN = Walk(
    "BatchPagedDecodeFp8", "decoding::Fp8Cache<{C}>", (_SOURCE, _SOURCE),
    {**FIELDS, **_SCALES}, values, "k_cache", "v_cache", refuse,
    scales="decoding::ScaledCache", axes={"C": FP8}, axis_values=lambda p: {"C": p.desc.aux_element}, bytes=1,
    tiles=2, split=512, walks=True, heads=(8, 16),
)  # fmt: skip
_FP8 = termed(_PLAIN, "BatchPagedDecodeFp8Terms", _PLAIN.scales)


def scaled_in_torch(
    torch: Any, desc: Any, *, k_cache: Any, v_cache: Any, k_scale: Any, v_scale: Any, k_head_scale: Any,
    v_head_scale: Any, **rest: Any,
) -> Any:  # fmt: skip
    """That of batch_paged_decode, of caches multiplied by their scales."""

    def scaled(cache: Any, by: Any, heads: Any) -> Any:
        cache = cache.to(rest["q"].dtype) * by
        return cache if heads is None else cache * heads.to(cache.dtype)[:, None, None]

    caches = {"k_cache": scaled(k_cache, k_scale, k_head_scale), "v_cache": scaled(v_cache, v_scale, v_head_scale)}
    return in_torch(torch, desc, **caches, **rest)


class BatchPagedDecodeFp8Plan(BatchPagedDecodePlan):
    """y = softmax(scale · q (k_scale k)ᵀ) (v_scale v) for one query a sequence, over the fp8 tokens its pages hold.

    A sequence without tokens gives zeros and, without a sink, lse -inf. Scales are finite: they multiply sums of
    products, of which an infinite one may make NaN where it would not of each product.
    """

    op = "attention.batch_paged_decode_fp8"
    descriptor = BatchPagedDecodeFp8Descriptor
    args = BatchPagedDecodeFp8Args
    reference = staticmethod(scaled_reference)
    value_policy = (
        BatchPagedDecodePlan.value_policy + "; results of heads with a scale that is not finite are not specified"
    )
    variants = (mma_row(_FP8),)
    torch = staticmethod(scaled_in_torch)  # type: ignore[assignment]
    benchmarks = paged_benchmarks(
        (64, 8192, 16), (64, 8192, 1), (8, 32768, 64), label=" e4m3", aux_element="float8_e4m3fn"
    )

    @staticmethod
    def case(draw: Any) -> BatchPagedDecodeFp8Descriptor:
        return BatchPagedDecodeFp8Descriptor(**draw_case(draw), element=draw.element, aux_element=draw.choice(FP8))


_call = functional(BatchPagedDecodeFp8Plan, layouts=Layouts(("k_cache", "v_cache"), PAGE_LAYOUTS))


@entry(BatchPagedDecodeFp8Plan)
def batch_paged_decode_fp8(
    q: Any, k_cache: Any, v_cache: Any, *, page_table: Any = None, lengths: Any = None, kv_indices: Any = None,
    kv_indptr: Any = None, kv_last_page_len: Any = None, k_scale: Any = 1.0, v_scale: Any = 1.0,
    k_head_scale: Any = None, v_head_scale: Any = None, slopes: Any = None, sinks: Any = None,
    cache_element: Any = "float8_e4m3fn", scale: float | None = None, max_cache_len: int | None = None,
    window_left: int | None = None, softcap: float = 0.0, layout: str = "hnd", return_lse: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """batch_paged_decode with caches of fp8 bytes (uint8, or an fp8 dtype), float8_e4m3fn or float8_e5m2.

    A key is its element times k_scale, a value times v_scale: numbers, or 0-d arrays on the device; k_head_scale and
    v_head_scale [kv_heads], float32, are further factors.
    """
    return _call(
        q, k_cache, v_cache, page_table, lengths, kv_indices, kv_indptr, kv_last_page_len, slopes, sinks,
        k_head_scale, v_head_scale, aux_element=cache_element, k_scale=k_scale, v_scale=v_scale, scale=scale,
        max_cache_len=max_cache_len, window_left=window_left, softcap=softcap, return_lse=return_lse, layout=layout,
        out=out, stream=stream, preference=preference,
    )  # fmt: skip
