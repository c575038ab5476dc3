"""flash_sdpa_fp8: attention of float8_e4m3fn operands with a scale of each head (FlashAttention-3's fp8)."""

from __future__ import annotations

from typing import Any

from ....calls.entries import entry
from ....core import Array, ElementKind as E, InvalidProblemError, Scalar
from ....core.arrays import read
from ....core.outputs import beside
from ....core.views import cut, with_axis
from ...layout.creation import ones
from ..layouts import is_swapped, shape_of
from .quantized_sdpa import QuantizedSdpaPlan, quantized_sdpa


@entry(QuantizedSdpaPlan, element=E.FP8E4M3)
def flash_sdpa_fp8(
    q: Array, k: Array, v: Array, descale_q: Array | None = None, descale_k: Array | None = None,
    descale_v: Array | None = None, *, out_element: Any = "bfloat16", out_scale: Scalar = 1.0,
    scale: float | None = None, is_causal: bool = False, causal_alignment: str = "top_left", layout: str = "bhsd",
    return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """out_scale · softmax(scale · (descale_q q) (descale_k k)ᵀ) (descale_v v) of e4m3; causal from the top left.

    q [batch, heads, queries, d_k], k and v [batch, kv_heads, keys, d_k and d_v], fp8 arrays or their bytes as uint8;
    layout "bshd": [batch, rows, heads, d]. descale_q, descale_k and descale_v [batch, kv_heads], float32 (those of
    FlashAttention-3's flash_attn_func); None is 1. y is out_element: bfloat16, float16, or float8_e4m3fn, where
    out_scale, a number or a 0-d device array, is what a next layer's descale is the reciprocal of, and too large a
    number becomes ±448. With return_lse also log Σ exp(s), float32 [batch, heads, queries].

    Products q k are the tensor cores' of fp8; weights are float16 and multiply v exactly, where FlashAttention-3 rounds
    them to fp8. There is no gradient. See `QuantizedSdpaPlan`.
    """
    axis = 2 if is_swapped(layout) else 1
    batch, kv_heads = shape_of(k, "k")[0], shape_of(k, "k")[axis]
    for name, x in (("descale_q", descale_q), ("descale_k", descale_k), ("descale_v", descale_v)):
        if x is not None and tuple(read(x, name).shape) != (batch, kv_heads):
            raise InvalidProblemError(
                f"{name} must have shape {(batch, kv_heads)}, [batch, kv_heads], got {read(x, name).shape}"
            )
    if descale_q is None or descale_k is None:
        with beside(q, stream):
            one = ones((batch, kv_heads), E.F32, like=q)
        descale_q, descale_k = (one if x is None else x for x in (descale_q, descale_k))
    rows = (shape_of(q, "q")[3 - axis], shape_of(k, "k")[3 - axis])
    every = slice(0, None, 1)
    q_scale, k_scale = (  # of no rows where there are none
        cut(with_axis(x, 2, "descale"), (every, every, slice(0, min(n, 1), 1)), "descale")
        for x, n in zip((descale_q, descale_k), rows, strict=True)
    )
    return quantized_sdpa(
        q, k, v, q_scale, k_scale, descale_v, element=E.FP8E4M3, code_element=E.FP8E4M3, out_element=out_element,
        out_scale=out_scale, q_scale_heads=kv_heads, scale=scale, is_causal=is_causal,
        causal_alignment=causal_alignment, layout=layout, return_lse=return_lse, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
