"""Gradients of the terms that attention adds to its scores: dmask, dslopes, dsinks (flash_bias_gradients.cu).

A row of the backward appends `bias_steps(p, …)` to its steps, and SIMT_KERNELS or MMA_KERNELS to its kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....core import ElementKind, Kernel, Params, Problem, Step, View
from ....core.variant import aligned
from ..score_terms import KINDS, RESTS, TERMS, TILE_KEYS, WINDOW, terms, window
from .backward_tile import BACKWARD_TILE, block_rows
from .forward import THREADS, split_scale, strides, wide

DELTA = Params(
    "FlashDeltaParams", y="ptr", dy="ptr", lse="ptr", dlse="ptr", delta="workspace", stride="i64[2][3]",
    query_len="i64", rows="i64", num_heads="i32", d_v="i32", wide="i32", each="i32",
)  # fmt: skip
_OWN = {"out": "ptr", "parts": "workspace", "own": "i64[4]", "out_stride": "i64[4]"}
_OWN |= dict.fromkeys(("query_len", "key_len", "splits"), "i64") | dict.fromkeys(
    ("each_row", "each_col", "out_kind"), "i32"
)
GRADIENT = Params(
    "FlashBiasParams", **dict.fromkeys(("q", "k", "v", "dy", "lse"), "ptr"), delta="workspace", **_OWN, **TERMS,
    **RESTS, stride="i64[4][3]", loops="i64[4]", steps="i64", each="i64", shift="i64", left="i64", right="i64",
    scale="f64", sign="f64", signed_scale="f64", **WINDOW, **BACKWARD_TILE,
    **dict.fromkeys(("num_heads", "group", "d_k", "d_v", "wide", "distance"), "i32"),
)  # fmt: skip
SUM = Params("FlashBiasSumParams", **_OWN, elements="i64")
SINKS = Params(
    "FlashSinkGradientsParams",
    sinks="ptr",
    lse="ptr",
    dsinks="ptr",
    delta="workspace",
    batch_size="i64",
    query_len="i64",
    **RESTS,
    **WINDOW,
    **BACKWARD_TILE,
)
DELTA_THREADS = 256
SINK_THREADS = 1024
_BLOCKS = 1024  # a gradient with fewer tiles has several blocks for each
_SPLITS = 64  # of them at most, as their partials are added one after another


@dataclass(frozen=True)
class _Block:
    """A block of `flash_bias_gradient`: queries (by 64 keys) of a tile of scores, threads, bytes of shared memory."""

    rows: int
    threads: int
    smem: int


def block(kind: ElementKind) -> _Block:
    """With tensor cores two chunks of both operands of a product, else one (`BackwardTile` of 32 columns)."""
    if kind.itemsize == 2:
        return _Block(128, 256, 2 * 2 * (128 + TILE_KEYS) * 64)
    rows, pitch = block_rows(32, kind.itemsize), 68 if kind.itemsize == 4 else 34
    return _Block(rows, THREADS, kind.itemsize * (rows + TILE_KEYS) * pitch)


def _kernels(name: str, call: str, threads: int) -> tuple[Kernel, ...]:
    source = f"attention/dense/{name}.cu"
    rows: Any = lambda kind: {"ROWS": (block(kind).rows,)}  # noqa: E731
    return (
        Kernel("bias_delta", "flash_delta<{T}>", DELTA, {}, threads=DELTA_THREADS, source=source),
        Kernel("bias_gradient", f"{call}<{{T}}>", GRADIENT, {}, threads=threads, min_blocks=2, source=source),
        Kernel("bias_sum", "flash_bias_sum<{T}, {ROWS}>", SUM, rows, source=source),
        Kernel("bias_sinks", "flash_sink_gradients<{T}>", SINKS, {}, threads=SINK_THREADS, source=source),
    )


# Two blocks a multiprocessor spill 500 bytes and are faster than one that does not (docs/design/attention-backward.md).
SIMT_KERNELS = _kernels("flash_bias_gradients", "flash_bias_gradient", THREADS)
MMA_KERNELS = _kernels("flash_bias_gradients_mma", "flash_bias_gradient_mma", 256)
BIASES = tuple(kernel.name for kernel in MMA_KERNELS)
SINKS_ALONE = ("bias_delta", "bias_sinks")  # of those, the ones for dsinks


@dataclass(frozen=True)
class Rows:
    """The rows of y and dy that a kernel sees: `batch` times heads times `query_len`; strides of both.

    gradient: makes the steps of dslopes where the rows are no dense batch's.
    """

    batch: int
    query_len: int
    strides: Any
    gradient: Callable[..., tuple[list[Step], int]] | None = None


def delta_step(p: Problem, kernel: str, at: int, stride: Any, heads: int, query_len: int) -> Step:
    """The step that writes rowsum(dy y), less dlse, of all rows of y and dy to the workspace from byte `at` on.

    `stride`: those of y and dy. `each`: terms that flash_dq and flash_dkv add in one chain.
    """
    rows, desc = heads * query_len, p.desc
    lanes = 1 if desc.element.acc is desc.element else 32  # lanes that share a row
    params = {
        "delta": at, "stride": stride, "query_len": query_len, "rows": rows, "num_heads": desc.num_heads,
        "d_v": desc.d_v, "wide": wide(p.y, p.dy), "each": 32 if desc.element is ElementKind.F64 else desc.d_v,
    }  # fmt: skip
    return Step(kernel, (-(-rows * lanes // DELTA_THREADS), 1, 1), params, {}, DELTA_THREADS)


def bias_steps(
    p: Problem, rows: Rows, workspace: int, rests: Mapping[str, int], delta: int | None = None
) -> tuple[tuple[Step, ...], int]:
    """The steps that write the wanted ones of dmask, dslopes and dsinks, and the workspace's size with theirs.

    rows: those of y, dy and lse. workspace: bytes that the row's other steps use. rests: what they know of them
    (lse_rests.py). delta: its offset of rowsum(dy y) of all rows, dense in the accumulator's element, if those steps
    leave it.
    """
    desc, steps = p.desc, []
    dmask, dslopes, dsinks = (p.views.get(name) for name in ("dmask", "dslopes", "dsinks"))
    if not any(g is not None and g.size for g in (dmask, dslopes, dsinks)):
        return (), workspace
    if delta is None:
        heads, delta = rows.batch * desc.num_heads, workspace
        workspace += aligned(heads * rows.query_len * desc.element.acc.itemsize)
        if heads * rows.query_len:
            steps.append(delta_step(p, "bias_delta", delta, rows.strides, heads, rows.query_len))
    parts = workspace
    for name, view in (("dmask", dmask), ("dslopes", dslopes)):
        if view is not None and view.size:
            if rows.gradient is not None:
                made, end = rows.gradient(p, view, delta, parts, rests)
            else:
                made, end = _gradient(p, name, view, delta, parts, rests)
            steps += made
            workspace = max(workspace, end)
    if dsinks is not None and dsinks.size:
        params = {"delta": delta, "batch_size": rows.batch, "query_len": rows.query_len, **rests}
        steps.append(Step("bias_sinks", (desc.num_heads, 1, 1), params, {}, SINK_THREADS))
    return tuple(steps), workspace


def _gradient(
    p: Problem, name: str, view: View, delta: int, parts: int, rests: Mapping[str, int]
) -> tuple[list[Step], int]:
    """The steps for dmask, or for dslopes, whose extents along queries and keys are 1; and the workspace's end."""
    desc = p.desc
    size, b = desc.element.acc.itemsize, block(desc.element)
    extents = (desc.batch_size, desc.num_heads, desc.query_len, desc.key_len)
    shape, pitches = (view.shape, view.strides) if name == "dmask" else ((*view.shape, 1, 1), (*view.strides, 0, 0))
    shape, pitches = (1,) * (4 - len(shape)) + shape, (0,) * (4 - len(shape)) + pitches
    full = [n == extent for n, extent in zip(shape, extents, strict=True)]
    tiles = (*extents[:2], -(-desc.query_len // b.rows), -(-desc.key_len // TILE_KEYS))
    own = [n if whole else 1 for n, whole in zip(tiles, full, strict=True)]
    loops = [1 if whole else n for n, whole in zip(tiles, full, strict=True)]
    count = math.prod(loops)
    each = max(1, -(-count // min(_SPLITS, -(-_BLOCKS // math.prod(own[full[0] :])))))  # independent of the batch
    splits = max(1, -(-count // each))
    common = {
        "parts": parts, "own": own, "out_stride": pitches, "query_len": desc.query_len, "key_len": desc.key_len,
        "splits": splits, "each_row": int(full[2]), "each_col": int(full[3]), "out_kind": KINDS[view.element],
        "out": name,
    }  # fmt: skip
    views = (p.q, p.k, p.v, p.dy)
    params = common | {
        "delta": delta, "stride": strides(*views), "loops": loops, "steps": count, "each": each, "shift": desc.shift,
        **split_scale(desc), "signed_scale": desc.scale, "num_heads": desc.num_heads,
        "group": desc.group, "d_k": desc.d_k, "d_v": desc.d_v,
        "wide": wide(*views), "distance": int(name == "dslopes"), **window(desc),
        **terms(p, split_scale(desc)["scale"]), **rests,
    }  # fmt: skip
    steps = [Step("bias_gradient", (math.prod(own) * splits, 1, 1), params, {}, b.threads, b.smem)]
    if splits == 1:
        return steps, parts
    steps.append(Step("bias_sum", (-(-view.size // 256), 1, 1), common | {"elements": view.size}, {"ROWS": b.rows}))
    return steps, parts + aligned(
        math.prod(own) * splits * (b.rows if full[2] else 1) * (TILE_KEYS if full[3] else 1) * size
    )
