"""The gradient of ALiBi's slopes of packed sequences (kernels/attention/dense/flash_packed_slopes.cu)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core import ElementKind, Kernel, Params, Problem, Step, View
from ...core.params import Field
from ...core.variant import aligned
from .dense.backward_tile import BACKWARD_TILE
from .dense.bias_gradients import block
from .dense.forward import THREADS, split_scale, wide
from .packed import AS_THEY_STAND, QUERIES, TileList, list_tiles, packed_strides, term_values
from .score_terms import RESTS, TERMS, WINDOW, window

_SOURCE = "attention/dense/flash_packed_slopes.cu"
_FIELDS: dict[str, Field] = {
    **dict.fromkeys(("q", "k", "v", "dy", "lse"), "ptr"), **dict.fromkeys(("delta", "parts", "list"), "workspace"),
    **TERMS, **RESTS, "stride": "i64[4][3]",
    **dict.fromkeys(("query_len", "key_len", "shift", "left", "right", "tiles"), "i64"),
    "scale": "f64", "sign": "f64", "signed_scale": "f64", **WINDOW, **BACKWARD_TILE,
    **dict.fromkeys(("num_heads", "group", "d_k", "d_v", "wide", "chunk", "bottom_right"), "i32"),
}  # fmt: skip
_SUM = Params(
    "FlashPackedSlopeSumParams", out="ptr", parts="workspace", list="workspace", shape="i64[2]", out_stride="i64[2]",
    query_len="i64", tiles="i64", num_heads="i64", **WINDOW, **BACKWARD_TILE,
)  # fmt: skip
KERNELS = (
    Kernel(
        "packed_slopes", "flash_packed_slopes<{T}>", Params("FlashPackedSlopesParams", **_FIELDS), {}, threads=THREADS,
        min_blocks=2, source=_SOURCE,
    ),
    Kernel("packed_slope_sum", "flash_packed_slope_sum<{T}>", _SUM, {}, threads=THREADS, source=_SOURCE),
)  # fmt: skip


def packed_slopes(
    bounds: Sequence[str], p: Problem, view: View, delta: int, workspace: int, rests: Mapping[str, int]
) -> tuple[list[Step], int]:
    """The steps that write dslopes, `view`, after others that use `workspace` bytes; and the bytes in all.

    bounds: the operands that say where sequences begin. delta: the offset of rowsum(dy y) of all rows. rests: as in
    `bias_steps`.
    """
    desc, steps = p.desc, []
    tile = block(ElementKind.F64 if desc.element is ElementKind.F64 else ElementKind.F32)
    tiles, listed, parts = 0, workspace, workspace
    if desc.num_heads * desc.total_q:
        queries = TileList(QUERIES, tile.rows, AS_THEY_STAND)
        tiles = queries.capacity(desc)
        step, (listed,), parts = list_tiles(p, (queries,), bounds, 0, tile.rows, start=workspace)
        views = (p.q, p.k, p.v, p.dy)
        params = {
            "delta": delta, "parts": parts, "list": listed, "stride": packed_strides(*views), "query_len": desc.total_q,
            "key_len": desc.total_k, "shift": 0, "tiles": tiles, **split_scale(desc), "signed_scale": desc.scale,
            "num_heads": desc.num_heads, "group": desc.group, "d_k": desc.d_k, "d_v": desc.d_v, "wide": wide(*views),
            "chunk": desc.num_heads, "bottom_right": int(desc.causal_alignment == "bottom_right"), **window(desc),
            **term_values(p, split_scale(desc)["scale"]), **rests,
        }  # fmt: skip
        workspace = parts + aligned(desc.num_heads * desc.total_q * desc.element.acc.itemsize)
        steps = [step, Step("packed_slopes", (tiles * desc.num_heads, 1, 1), params, {}, THREADS, tile.smem)]
    shape, strides = (1,) * (2 - len(view.shape)) + view.shape, (0,) * (2 - len(view.shape)) + view.strides
    params = {
        "out": "dslopes", "parts": parts, "list": listed, "shape": shape, "out_stride": strides,
        "query_len": desc.total_q, "tiles": tiles, "num_heads": desc.num_heads,
    }  # fmt: skip
    steps.append(Step("packed_slope_sum", (-(-view.size // THREADS), 1, 1), params, {}, THREADS))
    return steps, workspace
