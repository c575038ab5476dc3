"""Attention with silu in place of softmax over packed sequences: rows of the forward and backward."""

from __future__ import annotations

from typing import Any

from ...core import Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from ...core.error_bound import Chained
from ...core.variant import aligned
from .dense.forward import HALVES, HEAD_DIMS, SINGLES, TENSOR_CORES, layout, wide
from .score_terms import UNBOUNDED, WINDOW

DIMS = (64, 128)
TILE, STEP, THREADS, WARPS, FIND_THREADS = 64, 32, 128, 4, 256
_SIMT_SOURCE, _MMA_SOURCE = "attention/hstu/hstu_simt.cu", "attention/hstu/hstu_mma.cu"
_FIELDS: dict[str, Any] = WINDOW | {
    **dict.fromkeys(("q", "k", "v", "bounds"), "ptr"), **dict.fromkeys(("settled", "row_keys"), "workspace"),
    **dict.fromkeys(("total", "batch", "bound_stride", "left"), "i64"), **dict.fromkeys(("scale", "share"), "f64"),
    **dict.fromkeys(("num_heads", "d_k", "d_v", "causal", "wide", "wide_bounds"), "i32"),
}  # fmt: skip
FORWARD = Params("HstuParams", **_FIELDS, y="ptr", stride="i64[4][2]")
BACKWARD = Params("HstuBackwardParams", **_FIELDS, **dict.fromkeys(("dy", "dq", "dk", "dv"), "ptr"), stride="i64[7][2]")


def _start(p: Problem, views: tuple[Any, ...]) -> tuple[dict[str, Any], list[Step], int]:
    """What all launches are told, those that find what rows see, and the workspace."""
    desc, keys = p.desc, aligned(4 * (p.desc.batch_size + 1))
    params = {
        "bounds": "seq_offsets", "settled": 0, "row_keys": keys, "total": desc.total, "batch": desc.batch_size,
        "bound_stride": p.seq_offsets.strides[0], "left": UNBOUNDED if desc.window_left is None else desc.window_left,
        "scale": desc.scale, "share": 1.0 / desc.max_seqlen, "num_heads": desc.num_heads, "d_k": desc.d_k,
        "d_v": desc.d_v, "causal": int(desc.is_causal), "wide": wide(*views),
        "wide_bounds": int(p.seq_offsets.element.itemsize == 8),
        "stride": [(0, 0) if v is None else v.strides[:2] for v in views],
    }  # fmt: skip
    steps = [
        Step("bounds", (1, 1, 1), params, {}, FIND_THREADS),
        Step("rows", (-(-desc.total // FIND_THREADS), 1, 1), params, {}, FIND_THREADS),
    ]
    return params, steps, keys + aligned(8 * desc.total)


def _dim(desc: Any, dims: tuple[int, ...]) -> int | str:
    widest = max(desc.d_k, desc.d_v)
    if desc.total >= 2**30 or desc.total * desc.num_heads >= 2**31:
        return "2^30 tokens or 2^31 rows or more"
    return next((d for d in dims if widest <= d), f"head_dim {widest} is beyond {max(dims)}")


def _grid(desc: Any, tensor_cores: bool) -> tuple[int, int, int]:
    if tensor_cores:
        return -(-desc.total // TILE) * desc.num_heads, 1, 1
    return -(-desc.total * desc.num_heads // WARPS), 1, 1


def _forward(p: Problem, tensor_cores: bool) -> Geometry | str:
    d, views = _dim(p.desc, DIMS if tensor_cores else HEAD_DIMS), (p.q, p.k, p.v, p.y)
    if isinstance(d, str):
        return d
    if not p.desc.total * p.desc.num_heads:
        return Geometry((), layout=layout(*views))
    params, steps, workspace = _start(p, views)
    smem = 2 * d * 3 * TILE if tensor_cores else 0
    steps.append(Step(f"y_{d}", _grid(p.desc, tensor_cores), params, {}, THREADS, smem))
    return Geometry(tuple(steps), workspace, layout(*views))


def _backward(p: Problem, tensor_cores: bool) -> Geometry | str:
    d, views = _dim(p.desc, DIMS if tensor_cores else HEAD_DIMS), (p.q, p.k, p.v, p.dy, p.dq, p.dk, p.dv)
    if isinstance(d, str):
        return d
    if not p.desc.total * p.desc.num_heads:
        return Geometry((), layout=layout(*views))
    params, steps, workspace = _start(p, views)
    grid, smem = _grid(p.desc, tensor_cores), (2 * d * 4 * TILE, 4 * d * (TILE + STEP)) if tensor_cores else (0, 0)
    if p.dq is not None:
        steps.append(Step(f"dq_{d}", grid, params, {}, THREADS, smem[0]))
    if p.dk is not None or p.dv is not None:
        steps.append(Step(f"dkv_{d}", grid, params, {}, THREADS, smem[1]))
    return Geometry(tuple(steps), workspace, layout(*views))


def _finds(params: Params) -> tuple[Kernel, ...]:
    return tuple(
        Kernel(name, f"hstu_{name}<{FIND_THREADS}>", params, threads=FIND_THREADS, source=_SIMT_SOURCE)
        for name in ("bounds", "rows")
    )


def _kernel(name: str, call: str, params: Params) -> Kernel:
    return Kernel(name, call, params, threads=THREADS, min_blocks=2)


MMA_ROW = Variant(
    "mma",
    lambda p: _forward(p, True),
    source=_MMA_SOURCE,
    elements=HALVES,
    guarantee=TENSOR_CORES,
    kernels=(*_finds(FORWARD), *(_kernel(f"y_{d}", f"hstu_mma<{{T}}, {d}, false>", FORWARD) for d in DIMS)),
)
SIMT_ROW = Variant(
    "simt",
    lambda p: _forward(p, False),
    source=_SIMT_SOURCE,
    elements=SINGLES,
    guarantee=Guarantee(Chained(2), batch_invariant=True),
    kernels=(*_finds(FORWARD), *(_kernel(f"y_{d}", f"hstu_simt<{{T}}, {d}>", FORWARD) for d in HEAD_DIMS)),
)
BACKWARD_MMA_ROW = Variant(
    "mma",
    lambda p: _backward(p, True),
    source=_MMA_SOURCE,
    elements=HALVES,
    guarantee=TENSOR_CORES,
    kernels=(
        *_finds(BACKWARD),
        *(_kernel(f"dq_{d}", f"hstu_mma<{{T}}, {d}, true>", BACKWARD) for d in DIMS),
        *(_kernel(f"dkv_{d}", f"hstu_dkv<{{T}}, {d}>", BACKWARD) for d in DIMS),
    ),
)
BACKWARD_SIMT_ROW = Variant(
    "simt",
    lambda p: _backward(p, False),
    source=_SIMT_SOURCE,
    elements=SINGLES,
    guarantee=Guarantee(Relative(3), batch_invariant=True),
    kernels=(
        *_finds(BACKWARD),
        *(_kernel(f"{n}_{d}", f"hstu_{n}_simt<{{T}}, {d}>", BACKWARD) for n in ("dq", "dkv") for d in HEAD_DIMS),
    ),
)
