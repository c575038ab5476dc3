"""Multi-head latent attention from a paged cache of latents: geometry and rows (docs/design/mla.md).

The keys of an entry, a sequence or a query with a list of its own, are cut into splits that begin at multiples of a
constant, so that what a row adds, and in which order, follows from the positions that it sees alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...core import ArchSku, ElementKind, Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from ...core.variant import aligned
from .dense.forward import HALVES, SINGLES, TENSOR_CORES, layout, split_scale, wide

SPLIT = 960  # keys of a sequence's split: whole tiles of every row
LIST_SPLIT = 1056  # of a list's, the same: 2048 are two of about the same length
PARTS = 2**28  # bytes of the partials of a launch over lists, at most, where an entry has no more
LATENTS = (128, 512)  # widths of the latent that tensor-core kernels are made for
ROPE = 64  # columns with positions, at most
SIMT_ROWS = 8
THREADS = 256
MMA_ROWS = MMA_KEYS = 32
WGMMA_ROWS, WGMMA_KEYS, WGMMA_STAGES = 64, 48, 3
WGMMA_THREADS = 384


def _simt_blocks(element: ElementKind, kind: Any) -> int:
    """As many as have room in Hopper's shared memory for the widest cells."""
    return 3 if element is ElementKind.F64 else 4


@dataclass(frozen=True)
class Sizes:
    """A problem as the kernels see it: entries of `queries` queries, and of at most `keys` keys."""

    entries: int
    queries: int
    keys: int
    each: int  # entries of a launch


def params(name: str, fields: Mapping[str, Any], split_keys: int) -> tuple[Params, Params]:
    """The parameters of the kernels that take splits, and of the one that merges them."""
    shared: dict[str, Any] = {
        **fields, "parts": "workspace", "stats": "workspace", "scale": "f64", "max_len": "i64", "splits": "i64",
        "queries": "i32", "heads": "i32", "d_latent": "i32", "split_keys": split_keys,
    }  # fmt: skip
    split = Params(
        f"{name}Params", q="ptr", cache="ptr", status="status", q_stride="i64[3]", cache_stride="i64[2]", sign="f64",
        tiles="i32", d_rope="i32", wide="i32", rope_columns=ROPE, mma_rows=MMA_ROWS, mma_keys=MMA_KEYS,
        wgmma_rows=WGMMA_ROWS, wgmma_keys=WGMMA_KEYS, wgmma_stages=WGMMA_STAGES, **shared,
    )  # fmt: skip
    return split, Params(f"{name}MergeParams", y="ptr", lse="ptr", y_stride="i64[3]", **shared)


def _strides(view: Any) -> tuple[int, ...]:
    """Of entries, queries and heads; an entry of one query has no axis of queries."""
    entry, *queries, head, _ = view.strides
    return (entry, *(queries or [0]), head)


def _latent(p: Problem) -> int:
    """The width that a kernel takes the latent for; what is too wide is refused by `Rows`."""
    return next((d for d in LATENTS if p.desc.d_latent <= d), LATENTS[-1])


class Rows:
    """The rows of a page, whose kernels find keys by `source`.

    fields, values: what the source reads of the Params, and its values for a problem and a launch's first entry.
    """

    def __init__(
        self, name: str, source: str, fields: Mapping[str, Any], values: Callable[[Problem, int], Mapping[str, Any]],
        sizes: Callable[[Problem], Sizes], split_keys: int = SPLIT, records: bool = False,
    ) -> None:  # fmt: skip
        self.split, self.merge = params(name, fields, split_keys)
        self.source = f"mla::{source}<mla::{'Fp8Record' if records else 'Plain'}>"
        self.values, self.sizes, self.split_keys, self.records = values, sizes, split_keys, records

    def _geometry(
        self, p: Problem, kernel: str, rows: int, axes: Mapping[str, Any], smem: int, threads: int = THREADS
    ) -> Geometry | str:
        desc, sizes = p.desc, self.sizes(p)
        if max(sizes.keys, desc.page_size, desc.num_pages) >= 2**31 - 2**20:
            return "2^31 - 2^20 positions or pages or more"
        if desc.d_latent > LATENTS[-1] or desc.d_rope > ROPE:
            return f"d_latent {desc.d_latent} and d_rope {desc.d_rope} are beyond {LATENTS[-1]} and {ROPE}"
        count = sizes.queries * desc.num_heads
        splits, tiles = -(-sizes.keys // self.split_keys), -(-count // rows)
        size, pitch = desc.element.acc.itemsize, -(-desc.d_latent // 8) * 8
        stats = aligned(sizes.each * count * splits * pitch * size)
        scale = split_scale(desc)
        shared: dict[str, Any] = {
            "parts": 0, "stats": stats, "scale": scale["scale"], "max_len": sizes.keys, "splits": splits,
            "queries": sizes.queries, "heads": desc.num_heads, "d_latent": desc.d_latent,
        }  # fmt: skip
        whole = 512 if self.records else 8  # columns of which all parts of a cell are whole pieces of 16 bytes
        pieces = desc.d_latent % whole == 0 and desc.d_rope % 8 == 0 and wide(p.q, p.cache) == 0b11
        split = {
            "q_stride": _strides(p.q), "cache_stride": p.cache.strides[:-1], "sign": scale["sign"], "tiles": tiles,
            "d_rope": desc.d_rope, "wide": int(pieces), **shared,
        }  # fmt: skip
        merge = {"y_stride": _strides(p.y), **shared}
        steps: list[Step] = []
        for first in range(0, sizes.entries, max(sizes.each, 1)):
            entries, own = min(sizes.each, sizes.entries - first), self.values(p, first)
            steps += (
                Step(kernel, (tiles * splits * entries, 1, 1), {**own, **split}, axes, threads, smem),
                Step("merge", (count * entries, 1, 1), {**own, **merge}, {}, THREADS),
            )
        workspace = stats + aligned(sizes.each * count * splits * 2 * size)
        return Geometry(tuple(s for s in steps if s.grid[0]), workspace, layout(p.q, p.cache, p.y))

    @property
    def elements(self) -> tuple[ElementKind, ...]:
        """What the rows of tensor cores take; records have their rope in bfloat16."""
        return (ElementKind.BF16,) if self.records else HALVES

    def _merge(self) -> Kernel:
        return Kernel("merge", f"mla_decode_merge<{{T}}, {self.source}>", self.merge, threads=THREADS)

    def simt(self) -> Variant:
        """The row of float32 and float64."""

        def geometry(p: Problem) -> Geometry | str:
            keys = 64 // p.desc.element.itemsize
            smem = (SIMT_ROWS + keys) * p.desc.width * p.desc.element.acc.itemsize
            return self._geometry(p, "simt", SIMT_ROWS, {}, smem)

        call = f"mla_decode_simt<{{T}}, {SIMT_ROWS}, {LATENTS[-1]}, {self.source}>"
        return Variant(
            "split_k", geometry, source="attention/mla/mla_decode.cu", elements=SINGLES,
            kernels=(Kernel("simt", call, self.split, threads=THREADS, min_blocks=_simt_blocks), self._merge()),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        )  # fmt: skip

    def wgmma(self) -> Variant:
        """The row of Hopper's tensor cores."""

        def geometry(p: Problem) -> Geometry | str:
            d = _latent(p)
            panel = 128 * WGMMA_ROWS  # of the weights in a stage, of the queries' rope
            tiles = WGMMA_STAGES * (2 * WGMMA_KEYS * d + panel) + panel
            each = 4 * WGMMA_ROWS + WGMMA_KEYS  # of a stage: factors, which keys there are
            smem = 896 + tiles + 16 * WGMMA_KEYS + WGMMA_STAGES * each + 32
            smem += WGMMA_KEYS * d // 16 * 20 if self.records else 0  # codes of a tile, and the scale of each 16
            return self._geometry(p, "wgmma", WGMMA_ROWS, {"D": d}, smem, WGMMA_THREADS)

        call = f"mla_decode_wgmma<{{T}}, {{D}}, {self.source}>"
        return Variant(
            "split_k_wgmma", geometry, source="attention/mla/mla_decode_wgmma.cu", elements=self.elements,
            design=ArchSku.SM90A,
            kernels=(Kernel("wgmma", call, self.split, {"D": LATENTS}, WGMMA_THREADS, min_blocks=1), self._merge()),
            guarantee=replace(TENSOR_CORES, order="wgmma"),
        )  # fmt: skip

    def mma(self) -> Variant:
        """The row of mma.sync."""

        def geometry(p: Problem) -> Geometry | str:
            d = _latent(p)
            smem = 2 * (MMA_ROWS + MMA_KEYS) * (d + ROPE) + 2 * MMA_ROWS * MMA_KEYS + 4 * MMA_ROWS * (MMA_KEYS + 5)
            return self._geometry(p, "mma", MMA_ROWS, {"D": d}, smem)

        call = f"mla_decode_mma<{{T}}, {{D}}, {self.source}>"
        return Variant(
            "split_k_mma", geometry, source="attention/mla/mla_decode_mma.cu", elements=self.elements,
            design=ArchSku.SM80,
            kernels=(Kernel("mma", call, self.split, {"D": LATENTS}, threads=THREADS, min_blocks=1), self._merge()),
            guarantee=replace(TENSOR_CORES, order="mma"),
        )  # fmt: skip
