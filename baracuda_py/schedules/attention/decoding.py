"""One query token a sequence against its cached keys, split between blocks: geometry and rows of the decoding ops.

The size of a sequence's splits follows from its length alone. A `Walk` says where an op's cells are. Measurements:
docs/design/decoding.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...core import ElementKind, Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from ...core.variant import aligned
from .dense.forward import HALVES, HEAD_DIMS, SINGLES, head_dim, layout, split_scale, wide

SPLIT = 256  # keys of a split; more in the tensor-core row where there would be more than MOST splits
MOST = 32
# Splits that are folded first: by the block itself where at least WAVES waves of such blocks remain, or fewer of which
# the last is FULL, else by the merge.
FOLD = 4
WAVES = 3
FULL = 0.9
THREADS = 256
HEADS = (1, 4, 8)  # query heads of a block
MMA_THREADS = 128
MMA_HEADS = 16
MMA_KEYS = 16  # of a tile
WEIGHT_KEYS = 128  # keys of a block of flash_decoding_weights
_LIMIT = 99 << 10  # bytes of shared memory that every device gives a block


@dataclass(frozen=True)
class Walk:
    """How the kernels of an op find a sequence's cells.

    cache: the C++ class (`flash_decoding.cuh`). sources: the kernel files with tensor cores and without. fields,
    values: the parameters that the class reads, and their values for a problem. k, v: names of the caches' operands.
    refuse: why a problem cannot be walked. scales: the class of the kernel that merges, if not `cache`. axes,
    axis_values: template axes of `cache` for kernels that read keys, and their values for a problem. bytes: of a cached
    element. tiles: of keys, that a warp takes at once. split: keys of a split. heads: query heads of a block; it takes
    the fewest that hold a group. walks: kernels keep look-ups in shared memory.
    weights: whether the op has the outputs `weights` and `mean_weights`: kernels named "…_keep" keep what they need.
    termed: the walk of problems with terms that the plain kernels do not know, by kernels named "…_terms"; `has_terms`
    says which those are. masked: whether it may have a mask. suffix: of the names of kernels.
    """

    name: str
    cache: str
    sources: tuple[str, str]
    fields: Mapping[str, str]
    values: Callable[[Problem], Mapping[str, Any]]
    k: str = "k"
    v: str = "v"
    refuse: Callable[[Problem], str | None] = lambda p: None
    scales: str = ""
    axes: Mapping[str, Any] = field(default_factory=dict)
    axis_values: Callable[[Problem], Mapping[str, Any]] = lambda p: {}
    bytes: int = 2
    weights: bool = False
    tiles: int = 1
    split: int = SPLIT
    heads: tuple[int, ...] = (MMA_HEADS,)
    walks: bool = False
    termed: Walk | None = None
    has_terms: Callable[[Problem], bool] = lambda p: False
    masked: bool = False
    suffix: str = ""
    params: dict[tuple[str, bool], Params] = field(init=False, default_factory=dict)  # by (step, keep)

    def __post_init__(self) -> None:
        kept = {"weights": "ptr", "scores": "workspace", "finals": "workspace", "score_stride": "i64[2]"}
        for keep in (False, True) if self.weights else (False,):
            name = f"{self.name}{'Keep' if keep else ''}"
            shared: dict[str, str | int] = {
                **(kept if keep else {}),
                **({"block_heads": "i32"} if self.masked else {}),
                **self.fields, "parts": "workspace", "stats": "workspace", "scale": "f64", "splits": "i64",
                "run": "i64", "runs": "i64", "max_len": "i64", "num_heads": "i32", "d_v": "i32", "group": "i32",
                "decoding_keys": MMA_KEYS, "split_keys": SPLIT, "most_splits": MOST, "folded_splits": FOLD,
            }  # fmt: skip
            self.params["split", keep] = Params(
                f"{name}Params", q="ptr", k="ptr", v="ptr", status="status", q_stride="i64[2]", k_stride="i64[3]",
                v_stride="i64[3]", sign="f64", chunks="i32", d_k="i32", wide="i32", **shared,
            )  # fmt: skip
            self.params["combine", keep] = Params(
                f"{name}CombineParams", y="ptr", lse="ptr", y_stride="i64[2]", **shared
            )
            if keep:
                self.params["weights", keep] = Params(
                    f"{name}WeightsParams", mean_weights="ptr", mean_stride="i64", **shared
                )

    def with_terms(self, name: str, cache: str, fields: Mapping[str, str], scales: str = "", **more: Any) -> Walk:
        """The same walk by kernels for terms: with the class `cache` for them, and further parameters."""
        every = {**self.fields, **fields}
        return replace(self, name=name, cache=cache, fields=every, scales=scales, suffix="_terms", **more)

    def of(self, p: Problem) -> Walk:
        """The walk of a problem."""
        return self.termed if self.termed is not None and self.has_terms(p) else self

    def ring(self, d: int, heads: int) -> Ring:
        """The ring of a warp of a kernel for `heads` query heads."""
        return RINGS[d] if self.bytes == 2 else BYTE_RINGS[heads][d]

    def heads_of(self, group: int) -> int:
        """Query heads of a block."""
        return next((heads for heads in self.heads if group <= heads), self.heads[-1])

    def kernel(self, step: str, keep: bool, name: str, call: str, *axes: Any, **facts: Any) -> Kernel:
        """A kernel of a step, plain or keeping what the weights need; `call` has a placeholder for that."""
        call = call.replace("KEEP", "true" if keep else "false")
        return Kernel(name + self.suffix + ("_keep" if keep else ""), call, self.params[step, keep], *axes, **facts)


@dataclass(frozen=True)
class _Tiles:
    """How a row cuts the work: a sequence's splits at most, and the splits and query heads of a block."""

    splits: int
    run: int
    heads: int
    threads: int
    pitch: int  # numbers from one partial's outputs to the next's


def _steps(
    p: Problem, walk: Walk, tiles: _Tiles, kernels: tuple[str, str], axes: Mapping[str, Any], smem: int
) -> Geometry:
    """The kernel that computes the splits and the one that merges them; a partial is what a block writes."""
    desc, k, v = p.desc, p.views[walk.k], p.views[walk.v]
    size = desc.element.acc.itemsize
    rows = desc.batch_size * desc.num_heads
    chunks = -(-desc.group // tiles.heads)
    runs = -(-tiles.splits // tiles.run)
    stats = aligned(rows * runs * tiles.pitch * size)
    scale = split_scale(desc)
    shared: dict[str, Any] = {
        "scale": scale["scale"], "splits": tiles.splits, "run": tiles.run, "runs": runs, "max_len": desc.max_cache_len,
        "num_heads": desc.num_heads, "d_v": desc.d_v, "group": desc.group, "parts": 0, "stats": stats, **walk.values(p),
    }  # fmt: skip
    split = {
        "q_stride": p.q.strides[:-1], "k_stride": k.strides[:-1], "v_stride": v.strides[:-1], "k": walk.k, "v": walk.v,
        "sign": scale["sign"], "chunks": chunks, "d_k": desc.d_k, "wide": wide(p.q, k, v),
    }  # fmt: skip
    workspace = stats + aligned(rows * runs * 2 * size)
    keep = walk.weights and not (p.weights is None and p.mean_weights is None)
    if keep:
        shared |= {"scores": workspace, "score_stride": (desc.num_heads * desc.max_cache_len, desc.max_cache_len)}
        if p.weights is None:
            workspace += aligned(rows * desc.max_cache_len * size)
        else:
            shared["score_stride"] = p.weights.strides[:-1]
        shared["finals"] = workspace
        workspace += aligned(rows * 2 * size)
    if walk.masked:
        shared["block_heads"] = tiles.heads
    suffix = walk.suffix + ("_keep" if keep else "")
    steps = [
        Step(
            kernels[0] + suffix,
            (runs * chunks * desc.batch_size * desc.num_kv_heads, 1, 1),
            {**split, **shared},
            axes,
            tiles.threads,
            smem,
        ),
        Step(kernels[1] + suffix, (rows, 1, 1), {"y_stride": p.y.strides[:-1], **shared}, {}, tiles.threads),
    ]
    if keep:
        stride = 0 if p.mean_weights is None else p.mean_weights.strides[0]
        grid = (desc.batch_size * -(-desc.max_cache_len // WEIGHT_KEYS), 1, 1)
        steps.append(Step("weights" + suffix, grid, {"mean_stride": stride, **shared}))
    return Geometry(tuple(s for s in steps if s.grid[0]), workspace, layout(p.q, k, v, p.y))


# ---- tensor cores ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ring:
    """A warp's ring of cp.async: 128-byte pages of a unit, units, and blocks a multiprocessor has registers for."""

    pages: int
    units: int
    blocks: int


RINGS = {
    32: Ring(1, 5, 4), 64: Ring(1, 5, 4), 96: Ring(2, 4, 2), 128: Ring(2, 4, 2), 192: Ring(1, 8, 2), 256: Ring(1, 6, 2),
}  # fmt: skip
# For elements of a byte, by query heads.
BYTE_RINGS = {
    heads: {d: Ring(1, 6, 2) if d > 128 else Ring(1, 3, 4) if heads == 8 else Ring(1, 5, 3) for d in HEAD_DIMS}
    for heads in (8, MMA_HEADS)
}


def mma_shared_bytes(d: int, group: int, run: int, walk: Walk) -> int:
    """Bytes of `flash_decoding_mma`: rings, queries, maxima and sums, look-ups, outputs of warps and folded ones."""
    heads, columns = walk.heads_of(group), 128 // walk.bytes  # columns of a page
    ring = walk.ring(d, heads)
    width, warps = -(-d // columns) * columns, MMA_THREADS // 32
    kept = min(heads, group) * 4 * (width + 4) if run > 1 else 0
    outs = min(8, group) * 4 * (width + 4)
    queries = 2 * heads * (-(-d // 32) * 32)
    ahead = (ring.units - 1) // (2 * width // columns // ring.pages * walk.tiles) + 2
    way = MMA_KEYS * walk.tiles * (16 + 8 * ahead) if walk.walks else 0
    each = ring.units * ring.pages * 2048 + 16 * heads + outs + way
    return warps * each + 16 * heads + queries + kept


def _mma_name(d: int, heads: int) -> str:
    return f"mma_{d}" if heads == MMA_HEADS else f"mma_{d}_{heads}"


def _together(p: Problem, heads: int) -> int:
    """Query heads of a block that could take `heads`: they share a row of the mask."""
    mask = p.views.get("mask")
    if mask is None or p.desc.group == 1:
        return heads
    shape = (p.desc.batch_size, p.desc.num_heads, p.desc.max_cache_len)
    return heads if mask.broadcast_to(shape).strides[1] == 0 else 1


def mma_row(plain: Walk) -> Variant:
    """The row of 16-bit queries: a kernel for each head_dim, and the one that merges splits."""

    def geometry(p: Problem) -> Geometry | str:
        walk = plain.of(p)
        desc, d, why = p.desc, head_dim(p.desc), walk.refuse(p)
        if why or isinstance(d, str):
            return why or str(d)
        splits = min(-(-desc.most_keys // walk.split), MOST)
        heads = walk.heads_of(desc.group)
        together = _together(p, heads)
        blocks = splits * -(-desc.group // together) * desc.batch_size * desc.num_kv_heads
        waves = blocks / (FOLD * walk.ring(d, heads).blocks * p.device.sms)
        fills = waves >= WAVES or waves >= FULL * math.ceil(waves) > 0
        run = FOLD if fills and mma_shared_bytes(d, desc.group, FOLD, walk) <= _LIMIT else 1
        tiles = _Tiles(splits, run, together, MMA_THREADS, -(-desc.d_v // 4) * 4)
        smem = mma_shared_bytes(d, desc.group, run, walk)
        return _steps(p, walk, tiles, (_mma_name(d, heads), "merge"), walk.axis_values(p), smem)

    def kernels(walk: Walk, keep: bool) -> tuple[Kernel, ...]:
        splits = (
            walk.kernel(
                "split",
                keep,
                _mma_name(d, heads),
                f"flash_decoding_mma<{{T}}, {walk.cache}, {d}, {heads}, {ring.pages}, {ring.units}, KEEP>",
                walk.axes,
                threads=MMA_THREADS,
                min_blocks=min(ring.blocks, 3) if keep and walk.suffix else ring.blocks,  # four would spill
            )
            for heads in walk.heads
            for d in HEAD_DIMS
            for ring in (walk.ring(d, heads),)
        )
        call = f"flash_decoding_merge<{{T}}, {walk.scales or walk.cache}, KEEP>"
        return (*splits, walk.kernel("combine", keep, "merge", call, threads=MMA_THREADS, min_blocks=7))

    return Variant(
        "split_k_mma",
        geometry,
        source=plain.sources[0],
        elements=HALVES,
        kernels=_all(plain, kernels),
        guarantee=Guarantee(Relative(2), batch_invariant=True),
        may_spill=plain.bytes == 1,  # cells of bytes are widened in registers
    )


# ---- without tensor cores -------------------------------------------------------------------------------------------


def shared_bytes(d: int, heads: int, kind: ElementKind) -> int:
    """Bytes: queries, weights, and one round of the output's sum over the block (`flash_decoding.cu`)."""
    size = kind.acc.itemsize
    lanes = d * kind.itemsize // 16
    groups = THREADS // lanes
    at_once = max(1, min(heads, 16384 // (groups * d * size)))
    return size * (heads * d + heads * SPLIT + groups * at_once * d)


def row(plain: Walk) -> Variant:
    """The row of float32 and float64."""

    def geometry(p: Problem) -> Geometry | str:
        walk = plain.of(p)
        desc, d, why = p.desc, head_dim(p.desc), walk.refuse(p)
        if why or isinstance(d, str):
            return why or str(d)
        heads = next((h for h in HEADS if desc.group <= h), HEADS[-1])
        name = "split" if heads < HEADS[-1] else f"split_{heads}"
        if wide(p.views[walk.k], p.views[walk.v]) != 3:
            name, heads = "split_narrow", 4
        axes = {"D": d, "HEADS": heads} if name == "split" else {"D": d}
        tiles = _Tiles(-(-desc.most_keys // SPLIT), 1, _together(p, heads), THREADS, desc.d_v)
        return _steps(p, walk, tiles, (name, "combine"), axes, shared_bytes(d, heads, desc.element))

    def kernels(walk: Walk, keep: bool) -> tuple[Kernel, ...]:
        def split(name: str, heads: str, wide: str, blocks: int = 2, **more: Any) -> Kernel:
            call = f"flash_decoding_split<{{T}}, {walk.cache}, {{D}}, {heads}, {wide}, KEEP>"
            axes = {"D": HEAD_DIMS, **more}
            return walk.kernel("split", keep, name, call, axes, threads=THREADS, min_blocks=blocks)

        # With three blocks a multiprocessor plain kernels of 4 heads spill up to 16 bytes once, and are faster.
        few = split("split", "{HEADS}", "true", 2 if keep or walk.suffix else 3, HEADS=HEADS[:-1])
        call = f"flash_decoding_combine<{{T}}, {walk.cache}, KEEP>"
        combine = walk.kernel("combine", keep, "combine", call, threads=THREADS, min_blocks=2)
        many = split(f"split_{HEADS[-1]}", str(HEADS[-1]), "true")
        return few, many, split("split_narrow", "4", "false"), combine

    return Variant(
        "split_k",
        geometry,
        source=plain.sources[1],
        elements=SINGLES,
        kernels=_all(plain, kernels),
        guarantee=Guarantee(Relative(2), batch_invariant=True),
        may_spill=True,
    )


def _all(plain: Walk, kernels: Callable[[Walk, bool], tuple[Kernel, ...]]) -> tuple[Kernel, ...]:
    """A row's kernels without and with terms; for an op with weights also those that keep scores and make weights."""
    made: list[Kernel] = []
    for walk in (plain,) if plain.termed is None else (plain, plain.termed):
        made += kernels(walk, False)
        if walk.weights:
            call = f"flash_decoding_weights<{{A}}, {walk.cache}>"
            weights = walk.kernel("weights", True, "weights", call, threads=THREADS, min_blocks=4)
            made += *kernels(walk, True), weights
    return tuple(made)
