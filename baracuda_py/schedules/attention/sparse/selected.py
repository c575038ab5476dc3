"""Attention to blocks of keys that each query chose: rows of the forward and backward (docs/design/block-select.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core import Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from ....core.error_bound import Chained
from ....core.variant import aligned
from ..dense.forward import FORWARD_DIMS, HALVES, SINGLES, TENSOR_CORES, head_dim, layout, split_scale, strides, wide
from ..score_terms import WINDOW

DIMS = (64, 128, 192, 256)
ROWS = 16  # heads of a tile of mma.sync
WARPS = 4  # of a block without tensor cores, and of one that orders lists
DKV_ROWS = 32  # rows of a tile of the kernel of dk and dv
SCAN_THREADS, SUM_THREADS = 256, 128
TILE_QUERIES, MOST_TILES = 32, 512  # of the sort
_LIMIT = 2**31
_LISTS_SOURCE = "attention/sparse/block_select_lists.cu"
_SIMT_BACKWARD = "attention/sparse/block_select_backward_simt.cu"

_FIELDS: dict[str, Any] = WINDOW | {
    **dict.fromkeys(("blocks", "q", "k", "v", "y", "lse"), "ptr"), "lists": "workspace", "list_stride": "i64[4]",
    **dict.fromkeys(("query_len", "key_len", "shift", "key_blocks", "num_lists", "units"), "i64"),
    **dict.fromkeys(("num_heads", "kv_heads", "group", "d_k", "d_v", "causal", "wide", "selected"), "i32"),
    **dict.fromkeys(("block_size", "wide_blocks"), "i32"), "scale": "f64",
}  # fmt: skip
FORWARD = Params("BlockSelectParams", **_FIELDS, stride="i64[4][3]", sign="f64")
_WORKSPACES = ("states", "table", "begins", "slots", "order", "sums")
BACKWARD = Params(
    "BlockSelectBackwardParams", **_FIELDS, stride="i64[8][3]",
    **dict.fromkeys(("dy", "dlse", "dq", "dk", "dv"), "ptr"),
    **dict.fromkeys(_WORKSPACES, "workspace"),
    **dict.fromkeys(("num_rows", "tiles", "tile_queries", "part", "max_parts"), "i64"),
)  # fmt: skip


def tile_keys(block_size: int, d: int) -> int:
    """Keys of a tile: those that leave the fewest rows of tiles empty, then the most."""
    most = 64 if d <= 128 else 32
    return min((k for k in (64, 32, 16) if k <= most), key=lambda k: (-(-block_size // k) * k, -k))


def dkv_keys(block_size: int) -> int:
    """The same of the kernel of dk and dv."""
    return tile_keys(block_size, 64)


def part_of(queries: int, selected: int, key_blocks: int, group: int) -> int:
    """Queries of a part of a block that many more chose than others, so that none takes much longer than they do."""
    mean = -(-queries * selected // max(key_blocks, 1))
    return max(-(-DKV_ROWS // max(group, 1)), 4 * mean)


def _stages(d: int) -> int:
    return 2 if d <= 128 else 1


def _columns(d: int) -> int:
    return d if d <= 128 else d // 2


@dataclass(frozen=True)
class Sizes:
    """What a problem's launches and workspace follow from."""

    p: Problem

    @property
    def owners(self) -> int:
        """Key heads of all batches, each of which has lists."""
        return int(self.p.desc.batch_size * self.p.desc.num_kv_heads)

    @property
    def block_size(self) -> int:
        """Keys of a block, no more than there are."""
        return int(max(1, min(self.p.desc.block_size, self.p.desc.key_len)))

    @property
    def lists(self) -> int:
        """Bytes of the lists in order."""
        return aligned(4 * self.owners * self.p.desc.query_len * self.p.desc.selected)

    def refuse(self) -> str | None:
        """Why the kernels cannot number a problem's keys or choices."""
        desc = self.p.desc
        choices, heads = desc.query_len * max(desc.selected, 1), desc.batch_size * desc.num_heads
        if max(desc.key_len, desc.query_len) >= 2**30 or choices >= _LIMIT or heads * desc.query_len >= _LIMIT:
            return "2^30 queries or keys, or 2^31 rows or choices of a head or more"
        return None

    def common(self) -> dict[str, Any]:
        """The values of _FIELDS."""
        p, desc = self.p, self.p.desc
        return {
            "blocks": "block_indices", "lists": 0, "list_stride": p.block_indices.strides, "query_len": desc.query_len,
            "key_len": desc.key_len, "shift": desc.shift, "key_blocks": desc.key_blocks,
            "num_lists": self.owners * desc.query_len, "units": desc.batch_size * desc.num_heads * desc.query_len,
            "num_heads": desc.num_heads, "kv_heads": desc.num_kv_heads, "group": desc.group, "d_k": desc.d_k,
            "d_v": desc.d_v, "causal": int(desc.is_causal), "selected": desc.selected, "block_size": self.block_size,
            "wide_blocks": int(p.block_indices.element.itemsize == 8),
        }  # fmt: skip

    def order(self, common: dict[str, Any]) -> list[Step]:
        """The launch that puts the lists in order."""
        lists = self.owners * self.p.desc.query_len
        grid = (-(-lists // WARPS), 1, 1)
        return [Step("order", grid, common, {}, 32 * WARPS)] if lists and self.p.desc.selected else []

    def rows(self, kernel: str, common: dict[str, Any], tensor_cores: bool, smem: int, **axes: Any) -> list[Step]:
        """The launch of a kernel whose warps have rows of a query: up to ROWS on tensor cores, else one."""
        desc = self.p.desc
        if tensor_cores:
            blocks, threads = self.owners * desc.query_len * -(-desc.group // ROWS), 32
        else:
            blocks, threads = -(-desc.batch_size * desc.num_heads * desc.query_len // WARPS), 32 * WARPS
        return [Step(kernel, (blocks, 1, 1), common, axes, threads, smem)] if blocks else []


def _order_kernel(params: Params) -> Kernel:
    call = f"block_select_order<{32 * WARPS}>"
    return Kernel("order", call, params, threads=32 * WARPS, source=_LISTS_SOURCE)


def _forward(p: Problem, tensor_cores: bool) -> Geometry | str:
    sizes, d = Sizes(p), head_dim(p.desc, DIMS if tensor_cores else FORWARD_DIMS)
    if isinstance(d, str):
        return d
    if why := sizes.refuse():
        return why
    views = (p.q, p.k, p.v, p.y)
    common = sizes.common() | {"stride": strides(*views), "wide": wide(*views), **split_scale(p.desc)}
    keys = tile_keys(sizes.block_size, d)
    kernel, smem = (f"rows_{d}_{keys}", 2 * d * (ROWS + 2 * keys)) if tensor_cores else (f"rows_{d}", 0)
    steps = (*sizes.order(common), *sizes.rows(kernel, common, tensor_cores, smem))
    return Geometry(steps, sizes.lists, layout(*views))


def _tilings() -> list[tuple[int, int]]:
    """head_dim and keys of the kernels whose warps have the heads of a query."""
    return [(d, keys) for d in DIMS for keys in (64, 32, 16) if keys <= (64 if d <= 128 else 32)]


MMA_ROW = Variant(
    "mma",
    lambda p: _forward(p, True),
    source="attention/sparse/block_select_mma.cu",
    elements=HALVES,
    guarantee=TENSOR_CORES,
    kernels=(
        _order_kernel(FORWARD),
        *(
            Kernel(f"rows_{d}_{keys}", f"block_select_mma<{{T}}, {d}, {keys}>", FORWARD, threads=32)
            for d, keys in _tilings()
        ),
    ),
)
SIMT_ROW = Variant(
    "simt",
    lambda p: _forward(p, False),
    source="attention/sparse/block_select_simt.cu",
    elements=SINGLES,
    guarantee=Guarantee(Chained(2, piece=FORWARD_DIMS[-1]), batch_invariant=True),
    kernels=(
        _order_kernel(FORWARD),
        *(Kernel(f"rows_{d}", f"block_select_simt<{{T}}, {d}>", FORWARD, threads=32 * WARPS) for d in FORWARD_DIMS),
    ),
)


def _backward(p: Problem, tensor_cores: bool) -> Geometry | str:
    desc, sizes = p.desc, Sizes(p)
    d = head_dim(desc, DIMS if tensor_cores else FORWARD_DIMS)
    if isinstance(d, str):
        return d
    if why := sizes.refuse():
        return why
    views = (p.q, p.k, p.v, p.dy, p.dq, p.dk, p.dv)
    owners, rows, size = sizes.owners, desc.batch_size * desc.num_heads * desc.query_len, desc.element.acc.itemsize
    by_keys = bool(owners * desc.key_blocks) and any(g is not None and g.size for g in (p.dk, p.dv))
    choices, tile = desc.query_len * desc.selected, max(TILE_QUERIES, -(-desc.query_len // MOST_TILES))
    tiles = -(-desc.query_len // tile) if desc.selected else 0
    part = part_of(desc.query_len, desc.selected, desc.key_blocks, desc.group)
    parts = 2 * choices // part  # more than all blocks that are worked on in parts have
    places, workspace = {}, sizes.lists
    for name, nbytes in (
        ("states", rows * (2 * size + 8)), ("table", 4 * owners * tiles * desc.key_blocks),
        ("begins", 4 * owners * (desc.key_blocks + 1)), ("slots", 4 * owners * (desc.key_blocks + 1)),
        ("order", 4 * owners * choices), ("sums", owners * parts * sizes.block_size * (desc.d_k + desc.d_v) * size),
    ):  # fmt: skip
        places[name] = workspace
        workspace += aligned(nbytes) if by_keys or name == "states" else 0
    common = sizes.common() | places | {
        "stride": strides(*views, p.y), "wide": wide(*views), "scale": desc.scale, "num_rows": rows, "tiles": tiles,
        "tile_queries": tile, "part": part, "max_parts": parts,
    }  # fmt: skip
    steps = sizes.order(common)
    if rows:
        steps.append(Step("states", (-(-rows // WARPS), 1, 1), common, {}, 32 * WARPS))
    if p.dq is not None and p.dq.size:
        keys = tile_keys(sizes.block_size, d)
        kernel, smem = (f"dq_{d}_{keys}", 4 * d * (ROWS + keys)) if tensor_cores else (f"dq_{d}", 0)
        steps += sizes.rows(kernel, common, tensor_cores, smem)
    if by_keys:
        steps += _by_keys(sizes, common, d, owners, tiles, parts, tensor_cores)
    return Geometry(tuple(steps), workspace, layout(*views, p.y))


def _by_keys(
    sizes: Sizes, common: dict[str, Any], d: int, owners: int, tiles: int, parts: int, tensor_cores: bool
) -> list[Step]:
    """The sort, and dk and dv."""
    blocks, units = sizes.p.desc.key_blocks, owners * (parts + sizes.p.desc.key_blocks)
    begins = Step("begins", (owners, 1, 1), common, {}, SCAN_THREADS)
    count, sort = (Step(name, (owners * tiles, 1, 1), common, {}, 32) for name in ("count", "sort"))
    if tensor_cores:
        keys, stages = dkv_keys(sizes.block_size), _stages(d)
        smem = 4 * d * (keys + stages * DKV_ROWS) + 16 * stages * DKV_ROWS
        grid = (units * -(-sizes.block_size // keys), d // _columns(d), 1)
        made = Step(f"dkv_{d}_{keys}", grid, common, {}, 2 * keys, smem)
    else:
        made = Step(f"dkv_{d}", (units * -(-sizes.block_size // WARPS), 1, 1), common, {}, 32 * WARPS)
    total = [Step("sum", (owners * blocks, 1, 1), common, {}, SUM_THREADS)] if parts else []
    return [count, begins, sort, made, *total] if tiles else [begins, made]


def _backward_kernels() -> tuple[Kernel, ...]:
    """Those that both rows have."""
    return (
        _order_kernel(BACKWARD),
        Kernel("count", "block_select_count", BACKWARD, threads=32, source=_LISTS_SOURCE),
        Kernel("begins", f"block_select_begins<{SCAN_THREADS}>", BACKWARD, threads=SCAN_THREADS, source=_LISTS_SOURCE),
        Kernel("sort", "block_select_sort", BACKWARD, threads=32, source=_LISTS_SOURCE),
        Kernel("states", "block_select_states<{T}>", BACKWARD, threads=32 * WARPS, source=_SIMT_BACKWARD),
        Kernel("sum", f"block_select_sum<{{T}}, {SUM_THREADS}>", BACKWARD, threads=SUM_THREADS, source=_SIMT_BACKWARD),
    )


BACKWARD_MMA_ROW = Variant(
    "mma",
    lambda p: _backward(p, True),
    source="attention/sparse/block_select_backward_mma.cu",
    elements=HALVES,
    guarantee=TENSOR_CORES,
    kernels=(
        *_backward_kernels(),
        *(
            Kernel(f"dq_{d}_{keys}", f"block_select_dq<{{T}}, {d}, {keys}>", BACKWARD, threads=32)
            for d, keys in _tilings()
        ),
        *(
            Kernel(
                f"dkv_{d}_{keys}", f"block_select_dkv<{{T}}, {d}, {_columns(d)}, {keys}, {_stages(d)}>", BACKWARD,
                threads=2 * keys, min_blocks=2,
            )
            for d in DIMS for keys in (64, 32, 16)
        ),
    ),
)  # fmt: skip
BACKWARD_SIMT_ROW = Variant(
    "simt",
    lambda p: _backward(p, False),
    source=_SIMT_BACKWARD,
    elements=SINGLES,
    guarantee=Guarantee(Relative(4), batch_invariant=True),
    kernels=(
        *_backward_kernels(),
        *(
            Kernel(f"{name}_{d}", f"block_select_{name}_simt<{{T}}, {d}>", BACKWARD, threads=32 * WARPS)
            for name in ("dq", "dkv")
            for d in FORWARD_DIMS
        ),
    ),
)
