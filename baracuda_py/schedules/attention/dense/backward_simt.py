"""The backward of attention without tensor cores: rowsum(dy y), blocks of queries for dq, of keys for dk and dv."""

from __future__ import annotations

from typing import Any

from ....core import Geometry, Guarantee, Kernel, Problem, Relative, Step, Variant
from ....core.variant import aligned
from ..score_terms import LEVELS, RESTS, TERMS, WINDOW, level, refuse_terms, spares, window
from .backward import Arrangement
from .backward_tile import BACKWARD_TILE, block_rows, shared_bytes
from .bias_gradients import DELTA, DELTA_THREADS, Rows, bias_steps, delta_step
from .bias_gradients import SIMT_KERNELS as BIAS_KERNELS
from .forward import FORWARD_DIMS, SINGLES, THREADS, head_dim, layout, split_scale, wide

_SIZES = dict.fromkeys(("query_len", "key_len", "shift", "left", "right", "tiles", "key_tiles", "chunk"), "i64")
_SIZES |= dict.fromkeys(("scale", "sign", "signed_scale"), "f64")
_SIZES |= dict.fromkeys(("num_heads", "group", "d_k", "d_v", "causal", "wide", "spares"), "i32")
_INPUTS = WINDOW | BACKWARD_TILE | dict.fromkeys(("q", "k", "v", "dy", "lse"), "ptr") | {"delta": "workspace"}
_DQ = _INPUTS | {"dq": "ptr", "stride": "i64[5][3]"} | _SIZES
_DKV = _INPUTS | {"dk": "ptr", "dv": "ptr", "stride": "i64[6][3]"} | _SIZES


def _geometry(p: Problem, form: Arrangement) -> Geometry | str:
    desc, d = p.desc, head_dim(p.desc, FORWARD_DIMS)
    if isinstance(d, str):
        return d
    views = (p.q, p.k, p.v, p.dy, p.y, p.dq, p.dk, p.dv)
    size = desc.element.acc.itemsize
    rows, smem = block_rows(d, size), shared_bytes(d, size)
    cut = form.cut(p, rows, rows, True)
    if isinstance(cut, str):
        return cut
    heads, kv_heads, count = cut.batch * desc.num_heads, cut.batch * desc.num_kv_heads, cut.sizes["query_len"]
    sizes = {
        "delta": cut.start, **cut.sizes, **window(desc), "tiles": cut.tiles, "key_tiles": cut.key_tiles,
        **split_scale(desc), "signed_scale": desc.scale, "num_heads": desc.num_heads, "group": desc.group,
        "d_k": desc.d_k, "d_v": desc.d_v, "causal": int(desc.is_causal), "spares": spares(p),
    }  # fmt: skip
    suffix = LEVELS[level(p, sinks=False)] if form.terms else ""
    if suffix and form.terms:
        if why := refuse_terms(count, cut.sizes["key_len"]):
            return why
        sizes |= form.terms(p, split_scale(desc)["scale"])
    summed = bool((p.dq is not None or p.dk is not None) and heads * count)
    workspace = cut.start + (aligned(heads * count * size) if p.dq is not None or p.dk is not None else 0)
    found, rests, workspace = form.find_rests(p, workspace)
    sizes |= {} if suffix in ("", LEVELS[1]) and form.terms else rests
    steps = [*(cut.steps(0) if heads else ()), *found]
    if summed:
        steps.append(delta_step(p, "delta", cut.start, form.strides(p.y, p.dy), heads, count))
    # Causal: the longest tiles of all heads go first; else the tiles of a head together.
    if p.dq is not None and p.dq.size:
        params = {"stride": form.strides(p.q, p.k, p.v, p.dy, p.dq), "chunk": heads, **sizes, **cut.listed(keys=False)}
        params["wide"] = wide(p.q, p.k, p.v, p.dy, p.dq)
        steps.append(Step(f"dq{suffix}", (cut.tiles * heads, 1, 1), params, {"D": d}, THREADS, smem))
    if any(g is not None and g.size for g in (p.dk, p.dv)):
        views_ = (p.q, p.k, p.v, p.dy, p.dk, p.dv)
        params = {"stride": form.strides(*views_), "wide": wide(*views_), **sizes, **cut.listed(keys=True)}
        params["chunk"] = kv_heads if desc.is_causal else 1
        steps.append(Step(f"dkv{suffix}", (cut.key_tiles * kv_heads, 1, 1), params, {"D": d}, THREADS, smem))
    if form.terms:
        own = Rows(cut.batch, count, form.strides(p.y, p.dy), form.gradient)
        more, workspace = bias_steps(p, own, workspace, rests, cut.start if summed else None)
        steps += more
    if form.after is not None:
        last, workspace = form.after(p, workspace, rests)
        steps += last
    return Geometry(tuple(steps), workspace, layout(*views))


def simt_row(form: Arrangement) -> Variant:
    """The row without tensor cores."""
    facts: dict[str, Any] = {"axes": {"D": FORWARD_DIMS}, "threads": THREADS, "min_blocks": 2}
    kernels = [Kernel("delta", "flash_delta<{T}>", DELTA, {}, threads=DELTA_THREADS)]
    for n, suffix in LEVELS.items() if form.terms else ((form.level, ""),):
        more, of = (TERMS if n else {}) | (RESTS if n > 1 else {}), ("", "Terms", "Masks", "")[n]
        for name, fields in (("dq", _DQ), ("dkv", _DKV)):
            params = form.params(f"Flash{name.capitalize()}{of}", fields | more)
            template = f"flash_{name}<{{T}}, {{D}}, {form.work}, {n}>"
            kernel = name + suffix
            kernels.append(Kernel(kernel, template, params, **facts))
    return Variant(
        "simt",
        lambda p: _geometry(p, form),
        source="attention/dense/flash_sdpa_backward.cu",
        elements=SINGLES,
        kernels=(
            *kernels,
            *form.kernels_of_biases(BIAS_KERNELS),
            *(form.rests.kernels() if form.rests else ()),
            *form.before,
        ),
        # One chain of multiply-adds makes each sum; NumPy's products, the yardstick, add several chains in the end.
        guarantee=Guarantee(Relative(3), batch_invariant=True),
        may_spill=True,
    )
