"""A few queries a sequence over pages of keys: units of blocks of keys, and the launch that adds their sums.

The blocks follow from positions alone (`kernels/attention/paged/extend.cuh`), so a row's bits do not depend on the
other rows, on the pages, or on what is launched. Measurements: docs/design/extend.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...core import ArchSku, Geometry, Guarantee, Kernel, Params, Problem, Step, Variant
from ...core.error_bound import Chained
from ...core.variant import aligned
from .dense.forward import (
    FORWARD_DIMS,
    HALVES,
    SINGLES,
    TENSOR_CORES,
    head_dim,
    layout,
    split_scale,
    strides,
    wide,
)  # fmt: skip
from .packed import packed_strides
from .score_terms import WINDOW, window

NEAR, FAR, FAR_BEGIN, FOLD = 256, 1024, 32768, 8  # keys of a block, and from which position on; blocks of a group
FIND_THREADS, MERGE_THREADS = 256, 128
MERGE_BYTES = 24 << 10  # of a row
SIMT_ROWS = 4
DIMS = (64, 128, 192, 256)
NAMES = ("q", "k_cache", "v_cache", "y")

_SHARED: dict[str, Any] = WINDOW | {
    **dict.fromkeys(("sequences", "parts", "stats"), "workspace"), "qo_indptr": "ptr",
    **dict.fromkeys(("bound_stride", "batch", "total_q", "left", "right", "units"), "i64"),
    **dict.fromkeys(("bottom_right", "wide_bounds", "num_heads", "run", "d_v"), "i32"), "unit_log2": "f64",
    "near_keys": NEAR, "far_keys": FAR, "far_begin": FAR_BEGIN, "fold_blocks": FOLD,
}  # fmt: skip
_MERGE = _SHARED | dict.fromkeys(("y", "lse", "sinks"), "ptr")
_MERGE |= {"y_stride": "i64[2]", "sink_stride": "i64", "groups": "i64", "natural": "f64"}
SPLIT_FIELDS = _SHARED | dict.fromkeys(("q", "k", "v", "slopes", "tree_mask"), "ptr")
SPLIT_FIELDS |= {"stride": "i64[4][3]", "tree_stride": "i64[2]", "slope_stride": "i64[2]"}
SPLIT_FIELDS |= dict.fromkeys(("tree_columns", "row_tiles", "kv_heads"), "i64")
SPLIT_FIELDS |= {"scale": "f64", "sign": "f64", "softcap": "f64"} | dict.fromkeys(("group", "d_k", "has_terms"), "i32")

_FIND = _SHARED | {"status": "status", "max_keys": "i64", "max_queries": "i64"}


def blocks_of(keys: int) -> int:
    """Blocks of so many keys."""
    near = min(keys, FAR_BEGIN)
    return -(-near // NEAR) + -(-(keys - near) // FAR)


@dataclass(frozen=True)
class Tiling:
    """A block of the tensor-core kernel for one head_dim: keys of a tile, slots of the ring, blocks a multiprocessor.

    adds: a unit may be several blocks of keys, whose sum is kept where the queries were, as floats.
    """

    keys: int = 64
    slots: int = 5
    blocks: int = 1
    adds: bool = False

    def smem(self, d: int, rows: int) -> int:
        """Bytes: queries or sum, and ring, from a multiple of 1024 on."""
        return 1024 + 2 * d * (rows * (2 if self.adds else 1) + self.slots * self.keys)


# By warpgroups that multiply. Up to head_dim 128 two blocks of one share a multiprocessor, as a warpgroup alone waits
# for each of its products.
WGMMA = {
    1: {
        64: Tiling(slots=8, blocks=2, adds=True), 128: Tiling(slots=4, blocks=2, adds=True), 192: Tiling(slots=6),
        256: Tiling(),
    },
    2: {
        64: Tiling(slots=10, adds=True), 128: Tiling(slots=8, adds=True), 192: Tiling(), 256: Tiling(slots=4),
    },
}  # fmt: skip
# 99 KB at most, which every device has.
MMA = {
    1: {
        64: Tiling(slots=4, blocks=2), 128: Tiling(slots=4, blocks=2), 192: Tiling(32, 4), 256: Tiling(32, 4),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Extend:
    """The rows of an op: `fields` and `values` are its page tables' (`page_tables.table_fields`)."""

    fields: Mapping[str, str]
    values: Callable[[Problem], Mapping[str, Any]]

    @property
    def split(self) -> Params:
        """Parameters of the kernels that walk the keys."""
        return Params("PagedExtendParams", **SPLIT_FIELDS, **self.fields)

    def more(self, p: Problem) -> Mapping[str, Any]:
        """Values of those that only a subclass has."""
        return {}

    def geometry(self, p: Problem, kernel: str, axes: Mapping[str, Any], rows: int, run: int, facts: Any) -> Geometry:
        """`facts`: threads of a block and bytes of its shared memory; it takes `rows` rows and `run` blocks of keys."""
        desc, size = p.desc, p.desc.element.acc.itemsize
        terms = has_terms(p)
        split = split_scale(desc)
        units = max(1, -(-blocks_of(desc.max_cache_len) // run))
        lines, pitch = desc.total_q * desc.num_heads, -(-desc.d_v // 4) * 4
        parts = aligned(16 * desc.batch_size)
        stats = parts + aligned(lines * units * pitch * size)
        workspace = stats + aligned(lines * units * 2 * size)
        tiles = row_tiles(desc, rows)
        shared = {
            "sequences": 0, "parts": parts, "stats": stats, "bound_stride": p.qo_indptr.strides[0],
            "batch": desc.batch_size, "total_q": desc.total_q, **window(desc), "units": units,
            "num_heads": desc.num_heads, "run": run, "d_v": desc.d_v,
            "bottom_right": int(desc.causal_alignment == "bottom_right"),
            "wide_bounds": int(p.qo_indptr.element.itemsize == 8),
            "unit_log2": math.log2(math.e) * (1 if terms else split["scale"]),
        }  # fmt: skip
        q, y = packed_strides(p.q, p.y)
        k, v = strides(p.k_cache, p.v_cache)
        tree, slopes = p.tree_mask, (0, 0)
        if p.slopes is not None:
            slopes = p.slopes.broadcast_to((desc.batch_size, desc.num_heads)).strides
        first = {
            **shared, **self.values(p), **split, "k": "k_cache", "v": "v_cache", "stride": [q, k, v, y],
            "tree_stride": (0, 0) if tree is None else tree.strides,
            "tree_columns": 0 if tree is None else tree.shape[1],
            "slope_stride": slopes, "row_tiles": tiles, "kv_heads": desc.num_kv_heads, "softcap": desc.softcap,
            "group": desc.group, "d_k": desc.d_k, "has_terms": int(terms), **self.more(p),
        }  # fmt: skip
        before = {
            **shared, **self.values(p), "max_keys": desc.max_cache_len, "max_queries": desc.max_seqlen_q,
        }  # fmt: skip
        groups = -(-blocks_of(desc.max_cache_len) // FOLD)
        last = {
            **shared, "y_stride": p.y.strides[:2], "groups": max(groups, 1),
            "natural": 1.0 if terms else split["scale"], "sink_stride": 0 if p.sinks is None else p.sinks.strides[0],
        }  # fmt: skip
        # rows that a block merges
        merge, together = ("merge", MERGE_THREADS // 32) if run > 1 else ("merge_single", 1)
        steps = (
            Step("sequences", (desc.batch_size, 1, 1), before, {}, FIND_THREADS),
            Step(kernel, (units * tiles * desc.num_kv_heads * desc.batch_size, 1, 1), first, axes, *facts),
            Step(merge, (-(-lines // together), 1, 1), last, {}, MERGE_THREADS, together * max(groups, 1) * 2 * size),
        )
        views = (p.q, p.k_cache, p.v_cache, p.y)
        return Geometry(tuple(s for s in steps if s.grid[0]), workspace, layout(*views))

    def beside(self) -> tuple[Kernel, ...]:
        """The kernels before and after."""
        find = Params("PagedExtendSequencesParams", **_FIND, **self.fields)
        merge = Params("PagedExtendMergeParams", **_MERGE)
        return (
            Kernel("sequences", f"extend_sequences<{FIND_THREADS}>", find, threads=FIND_THREADS),
            Kernel("merge", "extend_merge<{T}, false>", merge, threads=MERGE_THREADS, min_blocks=8),
            Kernel("merge_single", "extend_merge<{T}, true>", merge, threads=MERGE_THREADS, min_blocks=4),
        )

    def tensor_core_row(self, name: str, design: ArchSku, tilings: Mapping[int, Mapping[int, Tiling]]) -> Variant:
        """A row with tensor cores, for up to max(tilings) · 64 rows a block."""
        warpgroups = "true" if design is ArchSku.SM90A else "false"
        producers = int(design is ArchSku.SM90A)
        kernels = []
        for groups, by_dim in tilings.items():
            for d, t in by_dim.items():
                for terms in (False, True):
                    axes = {"WIDE": (True, False)} if groups == 1 else {}
                    call = f"batch_paged_extend<{{T}}, {d}, {groups}, {t.keys}, {t.slots}, "
                    call += f"{'{WIDE}' if axes else 'true'}, {str(terms).lower()}, {warpgroups}>"
                    kernel = f"{name}_{d}{'_two' if groups == 2 else ''}{'_terms' if terms else ''}"
                    facts: dict[str, Any] = {"threads": 128 * (groups + producers), "min_blocks": t.blocks}
                    kernels.append(Kernel(kernel, call, self.split, axes, **facts))

        def geometry(p: Problem) -> Geometry | str:
            desc, d = p.desc, head_dim(p.desc, DIMS)
            why = d if isinstance(d, str) else refuse(p)
            if why is not None or isinstance(d, str):
                return why or str(d)
            aligned_rows = wide(*(p.views[n] for n in NAMES)) & 0b0111 == 0b0111
            groups = max(tilings) if aligned_rows and desc.max_seqlen_q * desc.group > 64 else 1
            t, rows = tilings[groups][d], 64 * groups
            axes = {"WIDE": aligned_rows} if groups == 1 else {}
            work = -(-blocks_of(desc.max_cache_len) // FOLD) * row_tiles(desc, rows)
            work *= desc.num_kv_heads * desc.batch_size
            run = run_of(work, t.blocks * p.device.sms) if t.adds else 1
            run = FOLD if one_block(desc) else run
            kernel = f"{name}_{d}{'_two' if groups == 2 else ''}{'_terms' if has_terms(p) else ''}"
            return self.geometry(p, kernel, axes, rows, run, (128 * (groups + producers), t.smem(d, rows)))

        return Variant(
            name,
            geometry,
            source="attention/paged/batch_paged_extend.cu",
            elements=HALVES,
            design=design,
            kernels=(*kernels, *self.beside()),
            may_spill=not producers,
            guarantee=replace(TENSOR_CORES, order=name),
        )

    def simt_row(self) -> Variant:
        """The row of float32 and float64."""

        def geometry(p: Problem) -> Geometry | str:
            d = head_dim(p.desc, FORWARD_DIMS)
            why = d if isinstance(d, str) else refuse(p)
            if why is not None or isinstance(d, str):
                return why or str(d)
            run = FOLD if one_block(p.desc) else 1
            return self.geometry(p, "simt", {"D": d}, SIMT_ROWS, run, (32 * SIMT_ROWS, 0))

        call = "batch_paged_extend_simt<{T}, {D}>"
        kernel = Kernel("simt", call, self.split, {"D": FORWARD_DIMS}, threads=32 * SIMT_ROWS)
        return Variant(
            "simt",
            geometry,
            source="attention/paged/batch_paged_extend_simt.cu",
            elements=SINGLES,
            kernels=(kernel, *self.beside()),
            may_spill=True,
            guarantee=Guarantee(Chained(2, piece=FORWARD_DIMS[-1]), batch_invariant=True),
        )


def run_of(groups: int, at_once: int) -> int:
    """Blocks of keys that a thread block takes, of so many groups in all, where so many thread blocks run at once."""
    return FOLD if groups >= 2 * at_once else 1


def one_block(desc: Any) -> bool:
    """Whether caches are so short that a group is no more than a block; then the cheaper merge serves."""
    return blocks_of(desc.max_cache_len) <= 1


def has_terms(p: Problem) -> bool:
    """Whether scores are more than scale · q k."""
    return p.slopes is not None or p.sinks is not None or p.desc.softcap > 0


def row_tiles(desc: Any, rows: int) -> int:
    """Blocks that share a sequence's rows: as many as the longest has tiles, but not much more than sequences have."""
    most = -(-desc.max_seqlen_q * desc.group // rows)
    mean = -(-desc.total_q * desc.group // (rows * max(desc.batch_size, 1)))
    return int(max(1, min(most, 2 * mean)))


def refuse(p: Problem) -> str | None:
    """Why the kernels cannot number a problem's rows, positions or pages."""
    desc = p.desc
    if max(desc.max_cache_len, desc.page_size) >= 2**30 or desc.num_pages >= 2**31 or desc.total_q >= 2**30:
        return "2^30 queries or positions or 2^31 pages or more"
    lines = desc.total_q * desc.num_heads
    units = max(1, blocks_of(desc.max_cache_len)) * row_tiles(desc, SIMT_ROWS) * desc.num_kv_heads * desc.batch_size
    if max(lines, units) >= 2**31:
        return "2^31 rows or units or more"
    if -(-blocks_of(desc.max_cache_len) // FOLD) * 2 * desc.element.acc.itemsize > MERGE_BYTES:
        return "more blocks of keys than a row's sums have room for"
    return None


def extend_rows(fields: Mapping[str, str], values: Callable[[Problem], Mapping[str, Any]]) -> tuple[Variant, ...]:
    """All rows."""
    made = Extend(fields, values)
    rows = made.tensor_core_row("wgmma", ArchSku.SM90A, WGMMA), made.tensor_core_row("mma", ArchSku.SM80, MMA)
    return (*rows, made.simt_row())
