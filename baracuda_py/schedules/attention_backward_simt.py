"""The backward of attention by plain multiply-adds: blocks of queries for dq, blocks of keys for dk and dv."""

from __future__ import annotations

from typing import Any

from ..core import Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from .attention import HEAD_DIMS, SINGLES, THREADS, chunk, head_dim, layout, split_scale, strides, wide
from .attention_bias import DELTA, DELTA_THREADS, bias_steps, delta_bytes, delta_step
from .attention_bias import SIMT_KERNELS as BIAS_KERNELS
from .score_terms import LEVELS, TERMS, level, terms, window

_SIZES = dict.fromkeys(("query_len", "key_len", "shift", "left", "right", "tiles"), "i64")
_SIZES |= dict.fromkeys(("scale", "sign", "signed_scale"), "f64")
_SIZES |= dict.fromkeys(("num_heads", "group", "d_k", "d_v", "causal", "wide", "chunk"), "i32")
_INPUTS = dict.fromkeys(("q", "k", "v", "dy", "lse"), "ptr") | {"delta": "workspace"}
_DQ: dict[str, str] = {**_INPUTS, "dq": "ptr", "stride": "i64[5][3]", **_SIZES}
_DKV: dict[str, str] = {**_INPUTS, "dk": "ptr", "dv": "ptr", "stride": "i64[6][3]", **_SIZES}


def _kernels(name: str, params: dict[str, str]) -> tuple[Kernel, ...]:
    """One for each level of score terms."""
    facts: dict[str, Any] = {"axes": {"D": HEAD_DIMS}, "threads": THREADS, "min_blocks": 2, "split": ("D",)}
    struct = f"Flash{name.capitalize()}"
    plain, more = Params(f"{struct}Params", **params), Params(f"{struct}TermsParams", **params, **TERMS)
    return tuple(
        Kernel(name + suffix, f"flash_{name}<{{T}}, {{D}}, {n}>", more if n else plain, **facts, spills=n > 0)
        for n, suffix in LEVELS.items()
    )


def _geometry(p: Problem) -> Geometry | str:
    desc, d = p.desc, head_dim(p.desc)
    if isinstance(d, str):
        return d
    if max(desc.query_len, desc.key_len) >= 2**30:
        return "2^30 queries or keys, or more"
    size = desc.element.acc.itemsize
    rows, smem = block_rows(d, size), shared_bytes(d, size)
    heads, kv_heads = desc.batch_size * desc.num_heads, desc.batch_size * desc.num_kv_heads
    common = {
        "delta": 0, "query_len": desc.query_len, "key_len": desc.key_len, "shift": desc.shift, **window(desc),
        **split_scale(desc), "signed_scale": desc.scale, "num_heads": desc.num_heads,
        "group": desc.group, "d_k": desc.d_k, "d_v": desc.d_v,
        "causal": int(desc.is_causal), "chunk": chunk(desc),
    }  # fmt: skip
    suffix = LEVELS[level(p, sinks=False)]
    if suffix:
        common |= terms(p)
    summed = (p.dq is not None or p.dk is not None) and heads * desc.query_len
    steps = [delta_step(p, "delta", 0)] if summed else []
    if p.dq is not None and p.dq.size:
        views = (p.q, p.k, p.v, p.dy, p.dq)
        tiles = -(-desc.query_len // rows)
        params = common | {"stride": strides(*views), "wide": wide(*views), "tiles": tiles}
        steps.append(Step(f"dq{suffix}", (tiles * heads, 1, 1), params, {"D": d}, THREADS, smem))
    if any(g is not None and g.size for g in (p.dk, p.dv)):
        views = (p.q, p.k, p.v, p.dy, p.dk, p.dv)
        tiles = -(-desc.key_len // rows)
        params = common | {"stride": strides(*views), "wide": wide(*views), "tiles": tiles}
        steps.append(Step(f"dkv{suffix}", (tiles * kv_heads, 1, 1), params, {"D": d}, THREADS, smem))
    more, workspace = bias_steps(p, delta_bytes(p) if summed else 0, 0 if summed else None)
    return Geometry((*steps, *more), workspace, layout(p.q, p.k, p.v, p.dy, p.y, p.dq, p.dk, p.dv))


def block_rows(d: int, size: int) -> int:
    """Rows a block owns (`BackwardTile` in flash_sdpa_backward_simt.cuh): what two sets of sums leave registers for."""
    return (64 if d <= 128 else 32) if size == 4 else (32 if d <= 64 else 16)


def shared_bytes(d: int, size: int) -> int:
    """The two chunks of a score product, or the rows of values, and two tiles of scores (`BackwardTile`)."""
    stage, pad = (64 if d % 64 == 0 else 32, 4) if size == 4 else (32, 2)
    rows = block_rows(d, size)
    chunks = max((rows + 64) * (stage + pad), min(64, 1 << ((32768 // (d * size)).bit_length() - 1)) * d)
    return size * (chunks + 2 * rows * (64 + pad))


SIMT_ROW = Variant(
    "simt", _geometry, source="attention/flash_sdpa_backward.cu", elements=SINGLES,
    kernels=(
        Kernel("delta", "flash_delta<{T}>", DELTA, {}, threads=DELTA_THREADS),
        *_kernels("dq", _DQ),
        *_kernels("dkv", _DKV),
        *BIAS_KERNELS,
    ),
    guarantee=Guarantee(Relative(2), batch_invariant=True),
)  # fmt: skip
