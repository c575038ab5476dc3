"""Attention in torch: torch's own where it has every term, else composed; and the keys that a page table names."""

from __future__ import annotations

import itertools
import math
from typing import Any


def attention(
    torch: Any, q: Any, k: Any, v: Any, *, scale: float, causal: bool = False, shift: int = 0, left: int | None = None,
    right: int | None = None, softcap: float = 0.0, mask: Any = None, slopes: Any = None, sinks: Any = None,
    only_y: bool = False, lse: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """y, and unless `only_y`, the weights `attn`, `lse` if asked for, and the scores as they are, capped, and masked.

    q [batch, heads, queries, d], k and v [batch, kv_heads, keys, d]; query i stands at key i + shift.
    """
    batch, heads, queries, _ = q.shape
    keys, group = k.shape[2], heads // max(k.shape[1], 1)
    bounded = left is not None or right is not None
    plain = mask is None and not bounded and not (causal and shift)
    if only_y and keys and not softcap and slopes is None and sinks is None and (plain or group == 1):
        if plain:
            return {"y": _own(torch, q, k, v, scale=scale, is_causal=causal, enable_gqa=group > 1)}
        limits = _limits(torch, q, keys, shift, causal, left, right) if causal or bounded else None
        return {"y": _own(torch, q, k, v, scale=scale, attn_mask=_both(torch, mask, limits))}
    raw = ((q * scale).reshape(batch, k.shape[1], group * queries, q.shape[3]) @ k.transpose(-1, -2)).reshape(
        batch, heads, queries, keys
    )
    capped = softcap * torch.tanh(raw / softcap) if softcap else raw
    s = capped if slopes is None else capped - slopes[..., None, None] * _ahead(torch, q, keys, shift).abs()
    limits = _limits(torch, q, keys, shift, causal, left, right) if causal or bounded else None
    for hides in (mask, limits):
        if hides is not None:
            s = s.masked_fill(~hides, -torch.inf) if hides.dtype is torch.bool else s + hides
    masked = s
    if sinks is not None:
        s = torch.cat([s, sinks[:, None, None].expand(batch, heads, queries, 1).to(s.dtype)], -1)
    if mask is None and limits is None:
        p = torch.softmax(s, -1)[..., :keys]
    else:  # a row that sees no key has no weights
        none = (s == -torch.inf).all(-1, keepdim=True)
        p = torch.softmax(s.masked_fill(none, 0.0), -1).masked_fill(none, 0.0)[..., :keys]
    y = (p.reshape(batch, k.shape[1], group * queries, keys) @ v).reshape(batch, heads, queries, v.shape[3])
    made = {"y": y, "attn": p, "raw": raw, "softcap": capped, "mask": masked}
    return made | {"lse": torch.logsumexp(s, -1)} if lse and not only_y else made


def _ahead(torch: Any, q: Any, keys: int, shift: int) -> Any:
    """How far key j stands after query i, [queries, keys]."""
    return torch.arange(keys, device=q.device) - torch.arange(q.shape[2], device=q.device)[:, None] - shift


def _limits(torch: Any, q: Any, keys: int, shift: int, causal: bool, left: int | None, right: int | None) -> Any:
    """True where causality and window let a key be seen."""
    ahead = _ahead(torch, q, keys, shift)
    seen = ahead <= (0 if causal else keys + q.shape[2] + abs(shift))
    seen = seen if left is None else seen & (ahead >= -left)
    return seen if right is None else seen & (ahead <= right)


def _both(torch: Any, mask: Any, limits: Any) -> Any:
    """A mask, of bool or numbers, and limits as one mask; None where there is neither."""
    if mask is None or limits is None:
        return limits if mask is None else mask
    return mask & limits if mask.dtype is torch.bool else mask.masked_fill(~limits, -torch.inf)


def _own(torch: Any, *operands: Any, **facts: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*operands, **facts)


def terms(desc: Any) -> dict[str, Any]:
    """The keywords of `attention` that a descriptor decides."""
    return {
        "scale": desc.scale, "causal": desc.is_causal, "shift": desc.shift,
        "left": getattr(desc, "window_left", None), "right": getattr(desc, "window_right", None),
        "softcap": desc.softcap,
    }  # fmt: skip


def packed(
    torch: Any, desc: Any, q: Any, keys: Any, bounds: Any, wanted: set[str], slopes: Any, sinks: Any,
    mask: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Attention of each sequence's rows bounds[b] : bounds[b + 1] of q over `keys(b)`: k and v, [rows, heads, d].

    mask: None, or a function of a sequence and its numbers of queries and keys, as `bits` makes one.
    """
    tilts = None if slopes is None else slopes.expand(desc.batch_size, desc.num_heads)
    y, lse = [], []
    ends = torch.cummax(bounds.long().clamp(0, q.shape[0]), 0)[0].tolist()
    for b, (first, last) in enumerate(itertools.pairwise(ends)):
        k, v = keys(b)
        shift = len(k) - (last - first) if desc.causal_alignment == "bottom_right" else 0
        facts = {"scale": desc.scale, "causal": desc.is_causal, "left": desc.window_left, "right": desc.window_right}
        operands = (x.transpose(0, 1)[None] for x in (q[first:last], k, v))
        facts["mask"] = None if mask is None else mask(b, last - first, len(k))
        facts |= {"softcap": desc.softcap, "slopes": None if tilts is None else tilts[b], "sinks": sinks}
        made = attention(torch, *operands, shift=shift, **facts, only_y="lse" not in wanted)
        y.append(made["y"][0].transpose(0, 1))
        lse += [made["lse"][0]] if "lse" in made else []
    before, after = ends[0], q.shape[0] - ends[-1]
    zeros = [q.new_zeros(n, desc.num_heads, desc.d_v) for n in (before, after)]
    results = {"y": torch.cat([zeros[0], *y, zeros[1]])}
    if "lse" in wanted:
        own = q.new_full((desc.num_heads,), -torch.inf) if sinks is None else sinks
        nothing = [own[:, None].expand(desc.num_heads, n) for n in (before, after)]
        results["lse"] = torch.cat([nothing[0], *lse, nothing[1]], 1)
    return results


def bits(torch: Any, mask_bits: Any, mask_indptr: Any) -> Any:
    """The masks of sequences, bool [queries, keys], as a function; None without one."""
    if mask_bits is None:
        return None

    def mask(b: int, queries: int, keys: int) -> Any:
        bit = torch.arange(queries * keys, device=mask_bits.device)
        byte = mask_indptr[b].long() + bit // 8
        there = (byte >= 0) & (byte < len(mask_bits))
        some = torch.cat([mask_bits, mask_bits.new_zeros(1)])[byte.clamp(0, len(mask_bits))].long()
        return (there & (some >> bit % 8 & 1 == 1)).reshape(queries, keys)

    return mask


def cached(torch: Any, desc: Any, b: int, cache: Any, tables: Any) -> Any:
    """The tokens of sequence b in a paged cache, [tokens, heads, d]."""
    if tables["page_table"] is not None:
        pages = tables["page_table"][b]
    else:
        first, last = tables["kv_indptr"][b : b + 2].tolist()
        pages = tables["kv_indices"][first:last]
    if tables["lengths"] is not None:
        length = int(tables["lengths"][b])
    else:
        length = max(0, (len(pages) - 1) * desc.page_size + int(tables["kv_last_page_len"][b]))
    used = pages[: -(-length // desc.page_size)].long()
    return cache[used].transpose(1, 2).flatten(0, 1)[:length]


def merge_in_torch(torch: Any, v: Any, lse: Any, base: str) -> tuple[Any, Any]:
    """States v [seq, sets, heads, d] and lse [seq, sets, heads] merged over the sets."""
    natural = lse * math.log(2) if base == "2" else lse
    merged = torch.logsumexp(natural, 1)
    none = merged == -torch.inf
    weights = torch.exp(natural - merged.masked_fill(none, 0.0)[:, None])
    values = (weights[..., None] * v).sum(1).to(v.dtype)
    return values, merged / math.log(2) if base == "2" else merged
