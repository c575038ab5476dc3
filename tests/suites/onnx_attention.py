"""ONNX's Attention node through `sdpa`: heads folded into the last axis, past keys, windows, padded caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

import baracuda_py as bc

STAGES = {0: "raw", 1: "softcap", 2: "mask", 3: "mask"}  # of qk_matmul_output; mode 3 are the weights


def attention(n: Any) -> list[Any]:
    """Y, present_key, present_value and qk_matmul_output of a node (see `onnx_backend.Node`)."""
    xp, (q, k, v) = n.xp, n.inputs[:3]
    folded = q.ndim == 3
    if folded:
        q = _heads(q, n.get("q_num_heads"))
        k, v = (_heads(x, n.get("kv_num_heads")) for x in (k, v))
    if n[4] is not None:
        k, v = (xp.concatenate(pair, axis=2) for pair in ((n[4], k), (n[5], v)))
    aligned, seen = _seen(n, q.shape[2], k.shape[2])
    mask = _masked(n, n[3], seen, k.shape[2])
    mode = n.get("qk_matmul_output_mode", 0)
    # 16-bit cases in float32: ONNX compares them within 1e-3, which scores rounded to 16 bits can pass.
    wide = np.float32 if q.dtype.itemsize == 2 else None
    if n.get("softmax_precision") == onnx.TensorProto.DOUBLE:
        wide = np.float64
    operands = [q, k, v, mask]
    if wide is not None:
        operands = [x if x is None or x.dtype == np.bool_ else bc.cast(x, wide) for x in operands]
    y, attn, scores = bc.sdpa(
        *operands, scale=n.get("scale"), softcap=n.get("softcap", 0.0), scores_stage=STAGES[mode], return_attn=True,
        is_causal=aligned is not None, causal_alignment=aligned or "top_left", return_scores=True,
    )  # fmt: skip
    y, scores = (bc.cast(x, n[0].dtype) if wide is not None else x for x in (y, attn if mode == 3 else scores))
    return [y.swapaxes(1, 2).reshape(*n[0].shape[:2], -1) if folded else y, k, v, scores][: n.outputs]


def _heads(x: Any, count: int) -> Any:
    """[batch, sequence, heads · d] as [batch, heads, sequence, d]."""
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def _seen(n: Any, queries: int, keys: int) -> tuple[str | None, Any]:
    """The causal alignment, where there is one that says it, and a mask of whatever else hides keys, True where seen.

    Query i stands at position offset + i: after the past keys, or at the end of a sample's own keys in a padded cache.
    """
    xp, nonpad = n.xp, n[6]
    offset = 0 if n[4] is None else n[4].shape[2]
    if nonpad is not None:
        nonpad = nonpad.reshape(-1, 1, 1, 1)
        offset = nonpad - queries
    conditions, key = [], xp.arange(keys)
    position = offset + xp.arange(queries)[:, None]
    aligned = None
    if n.get("is_causal", 0):
        known = {keys - queries: "bottom_right", 0: "top_left"}
        aligned = known.get(offset) if nonpad is None else None
        if aligned is None:
            conditions.append(key <= position)
    left, right = n.get("left_window_size", -1), n.get("right_window_size", -1)
    conditions += [key >= position - left] if left >= 0 else []
    conditions += [key <= position + right] if right >= 0 else []
    conditions += [key < nonpad] if nonpad is not None else []
    seen = None
    for condition in conditions:
        seen = condition if seen is None else seen & condition
    return aligned, seen


def _masked(n: Any, mask: Any, seen: Any, keys: int) -> Any:
    """One mask of both; a given one that ends early hides the keys beyond."""
    if mask is None:
        return seen
    boolean = mask.dtype == np.bool_
    if mask.shape[-1] < keys:
        widths = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
        mask = n.xp.pad(mask, widths, constant_values=False if boolean else -np.inf)
    if seen is None:
        return mask
    return mask & seen if boolean else n.xp.where(seen, mask, mask.dtype.type(-np.inf))
