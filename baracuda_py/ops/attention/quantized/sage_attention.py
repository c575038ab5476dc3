"""sage_attention: attention of 16-bit operands with queries and keys quantised on the way (SageAttention 1 and 2)."""

from __future__ import annotations

from typing import Any

from ....calls.composed import composed
from ....calls.entries import entry
from ....calls.interpreters import recorder
from ....core import Array, ElementKind as E, InvalidProblemError, UnsupportedError
from ....core.arrays import read
from ....core.checked import shown, truth
from ....core.outputs import each_of
from ....core.views import cut, permuted, reshaped, without_axes
from ....schedules.attention.dense.forward import HALVES
from ...elementwise.binary_functions import add, sub
from ...gemm.matmul import matmul
from ...layout.creation import zeros_like
from ...layout.views import contiguous
from ...quantize.dynamic import dynamic_quantize
from ...reduce.reduce import mean  # type: ignore[attr-defined]  # made from a table
from ..dense.flash_sdpa_backward import flash_sdpa_backward
from ..layouts import is_swapped, shape_of
from .quantized_sdpa import QuantizedSdpaDescriptor, QuantizedSdpaPlan, quantized_sdpa

CODES = {"int8": E.I8, "fp8": E.FP8E4M3}
QUERIES, KEYS = 16, 128  # that share a scale: rows of an instruction, and keys of the largest tile that has one factor


def _described(q: Any, k: Any, v: Any, code: E, swapped: bool, facts: dict[str, Any]) -> QuantizedSdpaDescriptor:
    """The problem, or a typed error before anything is launched."""
    elements = {name: read(x, name).element for name, x in (("q", q), ("k", k), ("v", v))}
    if len(set(elements.values())) > 1 or elements["q"] not in HALVES:
        found = ", ".join(f"{name} {one}" for name, one in elements.items())
        raise UnsupportedError(f"q, k and v must be all float16 or all bfloat16, got {found}")
    order = (0, 2, 1, 3) if swapped else (0, 1, 2, 3)
    shapes = tuple(tuple(shape_of(x, n)[a] for a in order) for x, n in ((q, "q"), (k, "k"), (v, "v")))
    (batch, heads, queries, d_k), (_, kv_heads, keys, _), (*_, d_v) = shapes
    if shapes[1] != (batch, kv_heads, keys, d_k) or shapes[2][:3] != shapes[1][:3]:
        raise InvalidProblemError(
            "q [batch, heads, queries, d_k], k [batch, kv_heads, keys, d_k] and v [batch, kv_heads, keys, d_v] do not "
            f"fit: {', '.join(map(str, shapes))}"
        )
    return QuantizedSdpaDescriptor(
        batch_size=batch, num_heads=heads, num_kv_heads=kv_heads, query_len=queries, key_len=keys, d_k=d_k, d_v=d_v,
        element=elements["q"], code_element=code, q_block=QUERIES, k_block=KEYS, **facts,
    )  # fmt: skip


def _codes(
    x: Any, shape: tuple[int, ...], block: int, code: E, swapped: bool, options: dict[str, Any]
) -> tuple[Any, Any]:
    """Codes in x's layout, and scales of `block` rows, whose shape is `shape`, [batch, heads, blocks]."""
    blocks = (1, block, 1, 0) if swapped else (1, 1, block, 0)
    codes, scales = dynamic_quantize(x, block_shape=blocks, to_element=code, **options)
    scales = without_axes(scales, (3,), "scales")
    scales = permuted(scales, (0, 2, 1), "scales") if swapped else scales
    if not all(shape):  # a block of no numbers has a scale there
        scales = cut(scales, [slice(0, n, 1) for n in shape], "scales")
    return codes, scales


def _forward(
    q: Any, k: Any, v: Any, qk: str, smooth_k: bool, facts: dict[str, Any], layout: str, return_lse: bool, out: Any,
    options: dict[str, Any],
) -> Any:  # fmt: skip
    """y, or (y, lse)."""
    if qk not in CODES:
        raise InvalidProblemError(f'qk must be "int8" or "fp8", got {shown(qk)}')
    swapped, code = is_swapped(layout), CODES[qk]
    desc = _described(q, k, v, code, swapped, facts)
    sizes, center = (desc.batch_size, desc.num_kv_heads), None
    if truth("smooth_k", smooth_k) and sizes[0] * sizes[1] * desc.key_len * desc.d_k:
        center = mean(k, axis=1 if swapped else 2, keepdims=True, **options)
        k = sub(k, center, **options)
    q_codes, q_scale = _codes(q, (sizes[0], desc.num_heads, desc.q_blocks), QUERIES, code, swapped, options)
    k_codes, k_scale = _codes(k, (*sizes, desc.k_blocks), KEYS, code, swapped, options)
    made = quantized_sdpa(
        q_codes, k_codes, v, q_scale, k_scale, code_element=code, q_block=QUERIES, k_block=KEYS, **facts, layout=layout,
        return_lse=return_lse, out=out, **options,
    )  # fmt: skip
    if not return_lse or center is None:
        return made
    # What was taken off the keys is the same of all scores of a row: scale q · mean.
    y, lse = each_of(made, 2)
    by_heads, center = (permuted(x, (0, 2, 1, 3), "x") if swapped else x for x in (q, center))
    rows = reshaped(by_heads, (*sizes, desc.group, desc.query_len, desc.d_k), "q")
    off = matmul(
        rows, reshaped(center, (*sizes, 1, desc.d_k, 1), "the mean"), alpha=desc.scale, out_element=E.F32, **options
    )
    off = reshaped(off, (sizes[0], desc.num_heads, desc.query_len), "the products")
    return y, add(lse, off, out=each_of(out, 2)[1], **options)


def _vjp(
    dy: Any, q: Any, k: Any, v: Any, y: Any, qk: Any, smooth_k: Any, scale: Any, is_causal: bool,
    causal_alignment: str, layout: str, preference: Any,
) -> Any:  # fmt: skip
    """Those of exact attention at q, k and v, with the y and lse of the forward: straight through qk and smooth_k."""
    del qk, smooth_k
    (made, lse), (upstream, dlse) = y, dy
    upstream = zeros_like(made) if upstream is None else upstream
    dlse = dlse if dlse is None else contiguous(dlse)
    return flash_sdpa_backward(
        q, k, v, made, lse, upstream, dlse=dlse, scale=scale, is_causal=is_causal, causal_alignment=causal_alignment,
        layout=layout, preference=preference,
    )  # fmt: skip


@composed(_vjp, "q", "k", "v", result=True)
def _with_lse(
    q: Any, k: Any, v: Any, qk: str, smooth_k: bool, scale: Any, is_causal: bool, causal_alignment: str, layout: str,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    facts = {"scale": scale, "is_causal": is_causal, "causal_alignment": causal_alignment}
    options = {"stream": stream, "preference": preference}
    return _forward(q, k, v, qk, smooth_k, facts, layout, True, out, options)


@entry(QuantizedSdpaPlan)
def sage_attention(
    q: Array, k: Array, v: Array, *, qk: str = "int8", smooth_k: bool = True, scale: float | None = None,
    is_causal: bool = False, causal_alignment: str = "top_left", layout: str = "bhsd", return_lse: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v with q and k as codes of 8 bits; causal from the top left.

    q [batch, heads, queries, d_k], k and v [batch, kv_heads, keys, d_k and d_v], float16 or bfloat16; layout "bshd":
    [batch, rows, heads, d]. qk: "int8", or "fp8" (e4m3), codes of the operands over the scale of each 16 queries and
    128 keys, max |x| / 127 or / 448. Weights and v are multiplied as 16 bits. smooth_k: the mean of a head's keys is
    taken off them first, which changes no weight, as it moves all scores of a row alike, and makes outliers of channels
    small; lse has it back. On normal data of head_dim 64 and 128 y has a cosine of at least 0.999 to exact attention.
    With return_lse also log Σ exp(s), float32 [batch, heads, queries].

    SageAttention (arXiv:2410.02367) and, on Hopper, SageAttention 2's form without fp8 values (arXiv:2411.10958).
    Two launches for codes, up to three for the mean, and `QuantizedSdpaPlan`. Gradients go straight through the
    quantisation: those of exact attention at q, k and v, from this y and lse, by `flash_sdpa_backward`.
    """
    return_lse = truth("return_lse", return_lse)
    facts: dict[str, Any] = {"scale": scale, "is_causal": is_causal, "causal_alignment": causal_alignment}
    options = {"stream": stream, "preference": preference}
    if recorder((q, k, v)) is None:
        return _forward(q, k, v, qk, smooth_k, facts, layout, return_lse, out, options)
    made = _with_lse(q, k, v, qk, smooth_k, **facts, layout=layout, out=out, **options)
    return made if return_lse else made[0]
