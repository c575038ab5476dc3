"""The backward of attention on tensor cores: tiles of keys that own dk and dv and add to dq in turn.

SM90A is wgmma, SM80 mma.sync; one geometry, two kernels that differ in their tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ..core import ArchSku, Geometry, Kernel, Params, Problem, Step, Variant
from ..core.variant import aligned
from .attention import HALVES, TENSOR_CORES, head_dim, layout, strides, wide

_SIZES = {"query_len": "i64", "key_len": "i64", "shift": "i64", "padded": "i64"}
_NUMBERS = dict.fromkeys(("num_heads", "d_k", "d_v", "causal", "wide"), "i32")
PREPARE = Params(
    "FlashPrepareParams", y="ptr", dy="ptr", lse="ptr", dq="ptr", stats="workspace", turns="workspace",
    sums="workspace", stride="i64[3][3]", **_SIZES, chunks="i64", counters="i64", fill="i64", **_NUMBERS,
)  # fmt: skip
FIELDS = dict.fromkeys(("q", "k", "v", "dy", "dq", "dk", "dv"), "ptr") | {
    "stats": "workspace", "turns": "workspace", "sums": "workspace", "stride": "i64[7][3]", **_SIZES, "tiles": "i64",
    "key_tiles": "i64", "chunk": "i64", "heads": "i64", "scale": "f64", "group": "i32", "any_order": "i32", **_NUMBERS,
}  # fmt: skip
GRADIENTS = Params("FlashGradientsParams", **FIELDS)
NEIGHBOURS = 8  # key heads that blocks take in turn: more wait less for one another, fewer share what is in L2
TOGETHER = 48 << 20  # more heads than that while their q, dy and sums of dq are no more than this (bytes)


@dataclass(frozen=True)
class Blocks:
    """The tensor-core row's block for one head_dim, as `flash_gradients` takes it.

    `warps`, of which `split` share their keys; 16-row tiles of keys a warp; queries a tile, those a warp takes at a
    time, and buffers of them; warps along the queries of dq; blocks an SM.
    """

    warps: int
    tiles: int
    split: int
    queries: int
    slab: int
    stages: int
    across: int
    blocks: int
    spills: bool = False

    @property
    def keys(self) -> int:
        """Keys a block takes."""
        return 16 * self.warps // self.split * self.tiles

    def smem(self, d: int) -> int:
        """Bytes: keys and values, `stages` tiles of q and dy with two numbers a row, and `split` tiles of scores."""
        elements = 2 * (self.keys + self.stages * self.queries) * d + self.split * self.keys * self.queries
        return 2 * elements + 8 * self.stages * self.queries

    def call(self, d: int) -> str:
        """The kernel's template."""
        numbers = self.warps, self.tiles, self.split, self.queries, self.slab, self.stages, self.across
        return f"flash_gradients<{{T}}, {d}, {', '.join(map(str, numbers))}>"


# At head_dim 64, 64 queries spill 25 registers: 511 us for 32 x [8, 1024, 64] causal on an H200 against 552 with 32.
# The other spills are 1 to 7 registers of loop bounds and strides, on one target or the other.
WIDE = {
    32: Blocks(4, 2, 1, 64, 32, 2, 2, 2, spills=True), 64: Blocks(4, 2, 1, 64, 16, 2, 2, 2, spills=True),
    96: Blocks(8, 1, 1, 64, 32, 2, 4, 1), 128: Blocks(8, 2, 2, 64, 16, 2, 2, 1),
    192: Blocks(8, 1, 2, 64, 32, 2, 2, 1, spills=True), 256: Blocks(8, 1, 2, 32, 16, 2, 2, 1, spills=True),
}  # fmt: skip
NARROW = {  # for 99 KB of shared memory
    96: Blocks(4, 1, 1, 64, 32, 2, 2, 1, spills=True), 128: Blocks(4, 1, 1, 32, 16, 2, 2, 1, spills=True),
    192: Blocks(4, 1, 2, 32, 16, 2, 2, 1), 256: Blocks(4, 1, 2, 32, 16, 1, 2, 1, spills=True),
}  # fmt: skip


@dataclass(frozen=True)
class Groups:
    """The wgmma row's block for one head_dim, as `flash_gradients_wgmma` takes it: two warpgroups, 64 queries a tile.

    `split` 1: a group has 64 keys of its own; 2: they share 64 keys. `stages`: buffers of queries.
    """

    split: int
    stages: int
    warps: int = 8
    queries: int = 64
    blocks: int = 1
    spills: bool = False

    @property
    def keys(self) -> int:
        """Keys a block takes."""
        return 128 // self.split

    def smem(self, d: int) -> int:
        """As `Blocks.smem`, the ticket, and up to 1 KB that aligns the swizzle."""
        sets = self.split * (2 if self.stages == 3 else 1)
        elements = 2 * (self.keys + self.stages * self.queries) * d + sets * self.keys * self.queries
        return 2 * elements + 8 * self.stages * self.queries + 16 + 1024

    def call(self, d: int) -> str:
        """The kernel's template."""
        return f"flash_gradients_wgmma<{{T}}, {d}, {self.split}, {self.stages}>"


SM90A = {64: Groups(1, 3), 128: Groups(1, 3), 256: Groups(2, 2)}


def _kernels(name: str, tilings: Mapping[int, Blocks | Groups]) -> tuple[Kernel, ...]:
    """For each head_dim a unit of three."""
    return tuple(
        kernel
        for d, t in tilings.items()
        for kernel in (
            Kernel(
                f"prepare_{name}_{d}", f"flash_prepare<{{T}}, {d}, {t.queries}, {t.keys}>", PREPARE, unit=f"{name}_{d}"
            ),
            Kernel(
                f"gradients_{name}_{d}", t.call(d), GRADIENTS, threads=32 * t.warps, min_blocks=t.blocks,
                unit=f"{name}_{d}", spills=t.spills,
            ),
            Kernel(f"finish_{name}_{d}", f"flash_finish<{{T}}, {d}, {t.queries}>", GRADIENTS, unit=f"{name}_{d}"),
        )
    )  # fmt: skip


def _wgmma(p: Problem, any_order: bool = False) -> Geometry | str:
    if max(p.desc.d_k, p.desc.d_v) <= 32:
        return "head_dim up to 32 is faster without: 7.1 ms against 8.5 for [4, 64, 4096, 32] on an H200"
    d = head_dim(p.desc, SM90A)
    return d if isinstance(d, str) else _geometry(p, d, "wgmma", SM90A[d], any_order)


def _mma(p: Problem, any_order: bool = False) -> Geometry | str:
    d = head_dim(p.desc, WIDE)
    if isinstance(d, str):
        return d
    if d in NARROW and WIDE[d].smem(d) > p.device.smem:
        return _geometry(p, d, "narrow", NARROW[d], any_order)
    return _geometry(p, d, "wide", WIDE[d], any_order)


class Frame:
    """What the kernels for one head_dim share, with the step that prepares: constants, and places in the workspace.

    `elements` of the sums of dq stand in it, and `fill` of them begin as zeros.
    """

    def __init__(self, p: Problem, d: int, t: Blocks | Groups, name: str, elements: int = 0, fill: int = 0) -> None:
        desc = p.desc
        self.heads, self.kv_heads = desc.batch_size * desc.num_heads, desc.batch_size * desc.num_kv_heads
        self.tiles, self.key_tiles = -(-desc.query_len // t.queries), -(-desc.key_len // t.keys)
        self.views = (p.q, p.k, p.v, p.dy, p.dq, p.dk, p.dv)
        self.layout = layout(*self.views, p.y)
        padded, counters = self.tiles * t.queries, self.heads * self.tiles + 1
        turns = aligned(8 * self.heads * padded)
        sums = turns + aligned(4 * counters)
        self.workspace = sums + aligned(4 * elements)
        common = {
            "stats": 0, "turns": turns, "sums": sums, "query_len": desc.query_len, "key_len": desc.key_len,
            "shift": desc.shift, "padded": padded, "num_heads": desc.num_heads, "d_k": desc.d_k, "d_v": desc.d_v,
            "causal": int(desc.is_causal),
        }  # fmt: skip
        rows = 1024 // (4 if d <= 32 else 8 if d <= 64 else 16 if d <= 128 else 32)  # a block of flash_prepare takes
        chunks = max(1, -(-padded // rows))
        prepare = {
            "stride": strides(p.y, p.dy, p.dq), "chunks": chunks, "counters": counters, "wide": wide(p.y, p.dy),
            "fill": fill,
        }  # fmt: skip
        step = Step(f"prepare_{name}", (chunks * self.heads, 1, 1), common | prepare)
        self.steps = [step] if self.heads else []
        self.gradients = common | {
            "stride": strides(*self.views), "tiles": self.tiles, "key_tiles": self.key_tiles, "scale": desc.scale,
            "chunk": min(self.kv_heads, max(NEIGHBOURS, TOGETHER // max(1, 8 * desc.group * padded * d))),
            "heads": self.heads, "group": desc.group, "any_order": 0, "wide": wide(*self.views),
        }  # fmt: skip


def _geometry(p: Problem, d: int, name: str, t: Blocks | Groups, any_order: bool) -> Geometry:
    """Two steps, in any order three; workspace: two numbers a row, turns, the sums of dq where several blocks add."""
    desc, name = p.desc, f"{name}_{d}"
    heads, tiles = desc.batch_size * desc.num_heads, -(-desc.query_len // t.queries)
    summed = p.dq is not None and desc.key_len > t.keys
    any_order = any_order and summed
    elements = heads * tiles * t.queries * d if summed else 0
    frame = Frame(p, d, t, name, elements, elements // 4 if any_order else 0)
    steps = frame.steps
    if frame.kv_heads * frame.key_tiles and any(g is not None and g.size for g in frame.views[4:]):
        gradients = frame.gradients | {"any_order": int(any_order)}
        grid = (frame.kv_heads * frame.key_tiles, 1, 1)
        steps.append(Step(f"gradients_{name}", grid, gradients, {}, 32 * t.warps, t.smem(d)))
        if any_order:
            warps = heads * tiles * (t.queries // 16) * (d // 32)
            steps.append(Step(f"finish_{name}", (-(-warps // 8), 1, 1), gradients))
    return Geometry(tuple(steps), frame.workspace, frame.layout)


def _row(name: str, geometry: Callable[..., Geometry | str], design: ArchSku, kernels: tuple[Kernel, ...]) -> Variant:
    return Variant(
        name, geometry, source=f"attention/flash_sdpa_backward_{name}.cu", kernels=kernels, elements=HALVES,
        design=design, guarantee=TENSOR_CORES,
    )  # fmt: skip


def _free(row: Variant) -> Variant:
    """The same kernels, their blocks adding to dq with atomics when they get there, waiting for no other."""
    guarantee = replace(row.guarantee, deterministic=False, bit_stable=False, batch_invariant=False)
    geometry = partial(row.geometry, any_order=True)
    return replace(row, name=f"{row.name}_any_order", geometry=geometry, guarantee=guarantee)


SM90A_ROW = _row("wgmma", _wgmma, ArchSku.SM90A, _kernels("wgmma", SM90A))
SM80_ROW = _row("mma", _mma, ArchSku.SM80, (*_kernels("wide", WIDE), *_kernels("narrow", NARROW)))
ROWS = (_free(SM90A_ROW), SM90A_ROW, _free(SM80_ROW), SM80_ROW)
