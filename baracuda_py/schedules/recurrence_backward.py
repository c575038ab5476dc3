"""The backward of linear attention: states saved every 64 steps, steps backwards, sums of tiles and heads."""

from __future__ import annotations

from ..core import FLOATS, Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from ..core.variant import aligned
from .recurrence import (
    COLUMNS,
    FIELDS,
    NORM_EPS,
    PARAMS,
    THREADS,
    common,
    dim_of,
    grid_of,
    kernels,
    layout_of,
    shared_bytes,
    three,
    tiles_of,
)  # fmt: skip

PIECE, TILE, WARPS, SLOTS = 64, 1024, 4, 5
BLOCKS = 1024  # each has states of a piece in the workspace
_SOURCE = "recurrence/linear_attention_backward.cu"
_PARTS = ("part_q", "part_k", "part_v", "part_g", "part_channel", "part_beta", "part_a", "part_b", "part_bonus")
BACKWARD = Params(
    "LinearAttentionBackwardParams", **FIELDS,
    **dict.fromkeys(("dy", "dfinal_state", "dinitial_state", "scratch", *_PARTS), "ptr"),
    dfinal_stride="i64[3]", dinitial_stride="i64[3]",
)  # fmt: skip
SUM = Params(
    "RecurrenceSumParams", **dict.fromkeys(("part", "out", "x"), "ptr"), out_stride="i64[3]", x_stride="i64[3]",
    **dict.fromkeys(("batch", "rows", "heads", "state_heads", "width", "tiles", "element_stride"), "i64"), eps="f64",
)  # fmt: skip
SUMS = tuple(
    Kernel(
        name, f"recurrence_sum<{{T}}, {{{kind}}}>", SUM, threads=THREADS, source="recurrence/recurrence_sum.cu",
        kindless=True,
    )
    for name, kind in (("sum", "T"), ("sum_acc", "A"))
)  # fmt: skip
# output: its part, heads of the descriptor, width, operand that was normalised
_SUMS = {
    "dq": ("part_q", "q_heads", "d_k", "q"), "dk": ("part_k", "k_heads", "d_k", "k"),
    "dv": ("part_v", "v_heads", "d_v", ""), "dg": ("part_g", "num_heads", "", ""),
    "dg_channel": ("part_channel", "num_heads", "d_k", ""), "dbeta": ("part_beta", "num_heads", "", ""),
    "da": ("part_a", "num_heads", "d_k", ""), "db": ("part_b", "num_heads", "d_k", ""),
    "dbonus": ("part_bonus", "num_heads", "d_k", ""),
}  # fmt: skip
_IN_ACC = ("dg", "dg_channel", "dbeta", "dbonus")


def sum_of(p: Problem, name: str, place: int, tiles: int) -> Step:
    """The sum of a part over tiles and the state heads of a group."""
    desc, out = p.desc, p.views[name]
    _, heads, width, source = _SUMS[name]
    x = p.views[source] if source and desc.use_qk_l2norm else None
    wide = getattr(desc, width) if width else 1
    batch, rows = desc.batch_size, desc.seq_len
    if name == "dbonus":
        batch, rows = 1, 1
        strides: tuple[int, ...] = (0, 0, out.strides[0])
    else:
        strides = three(out)
    params = {
        "part": ("@workspace", place), "out": name, "x": source if x is not None else "@null", "out_stride": strides,
        "x_stride": three(x), "batch": batch, "rows": rows, "heads": getattr(desc, heads),
        "state_heads": desc.num_heads, "width": wide, "tiles": tiles,
        "element_stride": out.strides[-1] if width else 0, "eps": NORM_EPS,
    }  # fmt: skip
    warps = batch * rows * getattr(desc, heads)
    return Step("sum_acc" if name in _IN_ACC else "sum", (max(1, -(-warps // WARPS)), 1, 1), params, {}, THREADS)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    d, grid = dim_of(desc), grid_of(desc)
    if isinstance(d, str) or isinstance(grid, str):
        return d if isinstance(d, str) else str(grid)
    if desc.batch_size * desc.seq_len * desc.num_heads >= 2**31:
        return "2^31 rows or more"
    acc, tiles = desc.element.acc.itemsize, tiles_of(desc)
    rows = desc.batch_size * desc.seq_len * desc.num_heads
    blocks = min(grid[0], BLOCKS)
    saved = desc.seq_len // PIECE * desc.batch_size * desc.num_heads * desc.d_k * desc.d_v * acc
    used = aligned(saved)
    scratch, used = used, used + aligned(blocks * PIECE * d * COLUMNS * acc)
    params = common(p, y=p.dy) | {
        "y": "@null", "states": ("@workspace", 0), "every": PIECE, "dy": "dy", "scratch": ("@workspace", scratch),
        "dfinal_state": "@null" if p.dfinal_state is None else "dfinal_state",
        "dfinal_stride": three(p.dfinal_state), "dinitial_stride": three(p.dinitial_state),
        "dinitial_state": "@null" if p.dinitial_state is None else "dinitial_state",
    }  # fmt: skip
    sums = []
    for name, (part, _, width, _) in _SUMS.items():
        params[part] = "@null"
        if p.views.get(name) is None:
            continue
        params[part] = ("@workspace", used)
        wide = getattr(desc, width) if width else 1
        count = desc.num_states * desc.num_heads * tiles if name == "dbonus" else rows * (1 if name == "dv" else tiles)
        sums.append((name, used))
        used += aligned(count * wide * acc)
    steps = []
    if grid[0] and desc.num_states:
        if desc.seq_len >= PIECE:
            forward = {name: params[name] for name in FIELDS if name in params}
            steps.append(Step(f"steps_{d}", grid, forward, {}, THREADS, shared_bytes(p, d, 2)))
        smem = _shared(p, d)
        steps.append(Step(f"backward_{d}", (blocks, 1, 1), params, {}, THREADS, smem))
    else:  # no sequence: every gradient is 0
        return nothing(p)
    for name, place in sums:
        if 0 not in p.views[name].shape:
            count = {"dbonus": tiles * desc.num_states, "dv": min(1, tiles)}.get(name, tiles)
            steps.append(sum_of(p, name, place, count))
    return Geometry(tuple(steps), used, layout_of(p))


def nothing(p: Problem) -> Geometry:
    """Sums of no tile."""
    steps = []
    for name in _SUMS:
        if p.views.get(name) is not None and 0 not in p.views[name].shape:
            steps.append(sum_of(p, name, 0, 0))
    return Geometry(tuple(steps), 256, layout_of(p))


def _shared(p: Problem, d: int) -> int:
    rows = 2 + sum(p.views.get(name) is not None for name in ("g_channel", "a", "b"))
    columns = 2 * (TILE // d) * COLUMNS  # v and dy
    return int(p.desc.element.acc.itemsize) * (rows * TILE + columns + SLOTS * WARPS * d + d)


BACKWARD_ROW = Variant(
    "steps", _geometry, source=_SOURCE, elements=FLOATS,
    kernels=(
        *kernels(PARAMS, source="recurrence/linear_attention.cu"),
        *kernels(BACKWARD, "backward", "linear_attention_backward"),
        *SUMS,
    ),
    guarantee=Guarantee(Relative(4, mean=3), batch_invariant=True), may_spill=True,
)  # fmt: skip
