"""A few queries a sequence over pages of keys: units of blocks of keys, and the launch that adds their sums.

The blocks follow from positions alone (`kernels/attention/paged/extend.cuh`), so a row's bits do not depend on the
other rows, on the pages, or on what is launched. Measurements: docs/design/extend.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...core import ArchSku, Geometry, Guarantee, Kernel, Params, Problem, Step, Variant, View
from ...core.error_bound import Chained
from ...core.variant import aligned
from .dense.forward import FORWARD_DIMS, HALVES, SINGLES, TENSOR_CORES, head_dim, layout, split_scale, wide  # fmt: skip
from .score_terms import WINDOW

NEAR, FAR, FAR_BEGIN, FOLD = 256, 1024, 32768, 8  # keys of a block, and from which position on; blocks of a group
FIND_THREADS, MERGE_THREADS = 256, 128
MERGE_BYTES = 24 << 10  # of a row
SIMT_ROWS = 4
DIMS = (64, 128, 192, 256)
FAMILY = "attention"  # of ops that share bits
PARTS_BYTES = 1 << 29  # of the sums of units that are in the workspace at once, if more than a row of q has them

_SHARED: dict[str, Any] = WINDOW | {
    **dict.fromkeys(("sequences", "parts", "stats"), "workspace"), "qo_indptr": "ptr",
    **dict.fromkeys(("bound_stride", "batch", "total_q", "left", "right", "units", "first_row", "last_row"), "i64"),
    **dict.fromkeys(("bottom_right", "wide_bounds", "num_heads", "run", "d_v"), "i32"), "unit_log2": "f64",
    "near_keys": NEAR, "far_keys": FAR, "far_begin": FAR_BEGIN, "fold_blocks": FOLD,
}  # fmt: skip
_MERGE = _SHARED | dict.fromkeys(("y", "lse", "sinks"), "ptr")
_MERGE |= {"y_stride": "i64[3]", "lse_stride": "i64[3]", "sink_stride": "i64", "groups": "i64", "natural": "f64"}
SPLIT_FIELDS = _SHARED | dict.fromkeys(("q", "k", "v", "slopes", "tree_mask"), "ptr")
SPLIT_FIELDS |= {"stride": "i64[4][3]", "tree_stride": "i64[2]", "slope_stride": "i64[2]"}
SPLIT_FIELDS |= dict.fromkeys(("tree_columns", "row_tiles", "kv_heads"), "i64")
SPLIT_FIELDS |= {"scale": "f64", "sign": "f64", "softcap": "f64"} | dict.fromkeys(("group", "d_k", "has_terms"), "i32")

_FIND = _SHARED | {"status": "status", "max_keys": "i64", "max_queries": "i64", "refuses": "i32"}


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
class Seen:
    """An op's operands as the kernels see them: packed queries, and keys in pages.

    q, y, lse: strides of a sequence, a head and a row. The row of a query counts from the first of all sequences on, so
    a sequence's stride is less what its rows make of that. k, v: of a page, a head and a cell. pointers: where those
    are that no operand of the kernels' names is. tables: what `table_params` says of the page table. before: steps that
    write the first `workspace` bytes. most_queries, most_keys: of a sequence. refuses: whether one of length -1 is one
    of too many keys, whose results are NaN.
    """

    views: tuple[View, View, View, View]
    q: Sequence[int]
    k: Sequence[int]
    v: Sequence[int]
    y: Sequence[int]
    lse: Sequence[int]
    tables: Mapping[str, Any]
    batch: int
    rows: int
    most_queries: int
    most_keys: int
    reach: Mapping[str, int]  # left, right, and bottom_right
    bounds: tuple[int, bool]  # stride of those of the queries, and whether they are of 64 bits
    pages: tuple[int, int]  # how many, and cells of one
    pointers: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[Step, ...] = ()
    workspace: int = 0
    refuses: bool = False


@dataclass(frozen=True)
class Extend:
    """The rows of an op: `fields` are those of its page tables (`page_tables.table_fields`)."""

    fields: Mapping[str, str]
    see: Callable[[Problem], Seen | str]
    tables: Kernel | None = None  # that writes the page tables of operands that have none
    one_query: bool = False  # whether a sequence has no more, so that 64 rows of a block are enough

    @property
    def split(self) -> Params:
        """Parameters of the kernels that walk the keys."""
        return Params("PagedExtendParams", **SPLIT_FIELDS, **self.fields)

    def more(self, p: Problem) -> Mapping[str, Any]:
        """Values of those that only a subclass has."""
        return {}

    def geometry(
        self, p: Problem, seen: Seen, kernel: str, axes: Mapping[str, Any], rows: int, run: int, facts: Any
    ) -> Geometry:
        """`facts`: threads of a block and bytes of its shared memory; it takes `rows` rows and `run` blocks of keys."""
        desc, size = p.desc, p.desc.element.acc.itemsize
        terms = has_terms(p)
        split = split_scale(desc)
        units = max(1, -(-blocks_of(seen.most_keys) // run))
        pitch = -(-desc.d_v // 4) * 4
        of_row = desc.num_heads * units * (pitch + 2) * size
        together = max(1, min(seen.rows, PARTS_BYTES // max(1, of_row)))
        parts = seen.workspace + aligned(16 * seen.batch)
        stats = parts + aligned(together * desc.num_heads * units * pitch * size)
        workspace = stats + aligned(together * desc.num_heads * units * 2 * size)
        shared = {
            "sequences": seen.workspace, "parts": parts, "stats": stats, "bound_stride": seen.bounds[0],
            "batch": seen.batch, "total_q": seen.rows, **seen.reach, "units": units, "num_heads": desc.num_heads,
            "run": run, "d_v": desc.d_v, "wide_bounds": int(seen.bounds[1]), "first_row": 0, "last_row": seen.rows,
            "unit_log2": math.log2(math.e) * (1 if terms else split["scale"]),
            **{name: place for name, place in seen.pointers.items() if name == "qo_indptr"},
        }  # fmt: skip
        of_tables = {name: place for name, place in seen.pointers.items() if name in self.fields}
        tree, slopes = p.views.get("tree_mask"), (0, 0)
        if p.slopes is not None:
            slopes = p.slopes.broadcast_to((seen.batch, desc.num_heads)).strides
        tiles = row_tiles(seen, desc.group, rows, together)
        first = {
            **shared, **seen.tables, **split, **seen.pointers, "stride": [seen.q, seen.k, seen.v, seen.y],
            "tree_stride": (0, 0) if tree is None else tree.strides,
            "tree_columns": 0 if tree is None else tree.shape[1],
            "slope_stride": slopes, "row_tiles": tiles, "kv_heads": desc.num_kv_heads, "softcap": desc.softcap,
            "group": desc.group, "d_k": desc.d_k, "has_terms": int(terms), **self.more(p),
        }  # fmt: skip
        before = {
            **shared, **seen.tables, **of_tables, "max_keys": seen.most_keys, "max_queries": seen.most_queries,
            "refuses": int(seen.refuses),
        }  # fmt: skip
        groups = max(1, -(-blocks_of(seen.most_keys) // FOLD))
        last = {
            **shared, "y_stride": seen.y, "lse_stride": seen.lse, "groups": groups,
            "natural": 1.0 if terms else split["scale"], "sink_stride": 0 if p.sinks is None else p.sinks.strides[0],
        }  # fmt: skip
        # rows that a block merges
        merge, each = ("merge", MERGE_THREADS // 32) if run > 1 else ("merge_single", 1)
        steps = [*seen.before, Step("sequences", (seen.batch, 1, 1), before, {}, FIND_THREADS)]
        for row in range(0, seen.rows, together):
            part = {"first_row": row, "last_row": min(row + together, seen.rows)}
            lines = (part["last_row"] - row) * desc.num_heads
            grid = (units * tiles * desc.num_kv_heads * seen.batch, 1, 1)
            steps.append(Step(kernel, grid, first | part, axes, *facts))
            smem = each * groups * 2 * size
            steps.append(Step(merge, (-(-lines // each), 1, 1), last | part, {}, MERGE_THREADS, smem))
        return Geometry(tuple(s for s in steps if s.grid[0]), workspace, layout(*seen.views))

    def run(self, p: Problem, seen: Seen, rows: int, t: Tiling) -> int:
        """Blocks of keys that a thread block with `rows` rows takes."""
        if one_block(seen.most_keys):
            return FOLD
        work = -(-blocks_of(seen.most_keys) // FOLD) * row_tiles(seen, p.desc.group, rows, seen.rows)
        return run_of(work * p.desc.num_kv_heads * seen.batch, t.blocks * p.device.sms) if t.adds else 1

    def beside(self) -> tuple[Kernel, ...]:
        """The kernels before and after."""
        find = Params("PagedExtendSequencesParams", **_FIND, **self.fields)
        merge = Params("PagedExtendMergeParams", **_MERGE)
        return (
            Kernel("sequences", f"extend_sequences<{FIND_THREADS}>", find, threads=FIND_THREADS),
            Kernel("merge", "extend_merge<{T}, false>", merge, threads=MERGE_THREADS, min_blocks=8),
            Kernel("merge_single", "extend_merge<{T}, true>", merge, threads=MERGE_THREADS, min_blocks=4),
            *(() if self.tables is None else (self.tables,)),
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
            seen, desc, d = self.see(p), p.desc, head_dim(p.desc, DIMS)
            if isinstance(seen, str) or isinstance(d, str):
                return seen if isinstance(seen, str) else str(d)
            if why := refuse(seen, desc):
                return why
            aligned_rows = wide(*seen.views) & 0b0111 == 0b0111
            groups = max(tilings) if aligned_rows and seen.most_queries * desc.group > 64 else 1
            t, rows = tilings[groups][d], 64 * groups
            axes = {"WIDE": aligned_rows} if groups == 1 else {}
            run = self.run(p, seen, rows, t)
            kernel = f"{name}_{d}{'_two' if groups == 2 else ''}{'_terms' if has_terms(p) else ''}"
            return self.geometry(p, seen, kernel, axes, rows, run, (128 * (groups + producers), t.smem(d, rows)))

        return Variant(
            name,
            geometry,
            source="attention/paged/batch_paged_extend.cu",
            elements=HALVES,
            design=design,
            kernels=(*kernels, *self.beside()),
            may_spill=not producers,
            guarantee=replace(TENSOR_CORES, order=name, same_bits=FAMILY),
        )

    def simt_row(self) -> Variant:
        """The row of float32 and float64."""

        def geometry(p: Problem) -> Geometry | str:
            seen, d = self.see(p), head_dim(p.desc, FORWARD_DIMS)
            if isinstance(seen, str) or isinstance(d, str):
                return seen if isinstance(seen, str) else str(d)
            if why := refuse(seen, p.desc):
                return why
            run = FOLD if one_block(seen.most_keys) else 1
            return self.geometry(p, seen, "simt", {"D": d}, SIMT_ROWS, run, (32 * SIMT_ROWS, 0))

        call = "batch_paged_extend_simt<{T}, {D}>"
        kernel = Kernel("simt", call, self.split, {"D": FORWARD_DIMS}, threads=32 * SIMT_ROWS)
        return Variant(
            "simt",
            geometry,
            source="attention/paged/batch_paged_extend_simt.cu",
            elements=SINGLES,
            kernels=(kernel, *self.beside()),
            may_spill=True,
            guarantee=Guarantee(Chained(2, piece=FORWARD_DIMS[-1]), batch_invariant=True, same_bits=FAMILY),
        )


def run_of(groups: int, at_once: int) -> int:
    """Blocks of keys that a thread block takes, of so many groups in all, where so many thread blocks run at once."""
    return FOLD if groups >= 2 * at_once else 1


def one_block(most_keys: int) -> bool:
    """Whether caches are so short that a group is no more than a block; then the cheaper merge serves."""
    return blocks_of(most_keys) <= 1


def has_terms(p: Problem) -> bool:
    """Whether scores are more than scale · q k."""
    return p.slopes is not None or p.sinks is not None or p.desc.softcap > 0


def row_tiles(seen: Seen, group: int, rows: int, together: int) -> int:
    """Blocks that share a sequence's rows: as many as the longest has tiles, but not much more than sequences have.

    `together`: rows of q that a launch takes.
    """
    most = -(-min(seen.most_queries, together) * group // rows)
    mean = -(-together * group // (rows * max(seen.batch, 1)))
    return int(max(1, min(most, 2 * mean)))


def refuse(seen: Seen, desc: Any) -> str | None:
    """Why the kernels cannot number a problem's rows, positions or pages."""
    if max(seen.most_keys, seen.pages[1]) >= 2**30 or seen.pages[0] >= 2**31 or seen.rows >= 2**30:
        return "2^30 queries or positions or 2^31 pages or more"
    lines = seen.rows * desc.num_heads
    units = max(1, blocks_of(seen.most_keys)) * row_tiles(seen, desc.group, SIMT_ROWS, seen.rows)
    units *= desc.num_kv_heads * seen.batch
    if max(lines, units) >= 2**31:
        return "2^31 rows or units or more"
    if -(-blocks_of(seen.most_keys) // FOLD) * 2 * desc.element.acc.itemsize > MERGE_BYTES:
        return "more blocks of keys than a row's sums have room for"
    return None


def extend_rows(made: Extend) -> tuple[Variant, ...]:
    """All rows."""
    tilings = {1: WGMMA[1]} if made.one_query else WGMMA
    rows = made.tensor_core_row("wgmma", ArchSku.SM90A, tilings), made.tensor_core_row("mma", ArchSku.SM80, MMA)
    return (*rows, made.simt_row())


def renamed(row: Variant, prefix: str) -> Variant:
    """The row with other names of its kernels, where an op's rows have kernels of one name that differ."""

    def geometry(p: Problem) -> Geometry | str:
        made = row.geometry(p)
        if isinstance(made, str):
            return made
        steps = [replace(step, kernel=prefix + step.kernel) for step in made.steps if isinstance(step, Step)]
        return replace(made, steps=tuple(steps))

    kernels = tuple(replace(kernel, name=prefix + kernel.name) for kernel in row.kernels)
    return replace(row, geometry=geometry, kernels=kernels)
