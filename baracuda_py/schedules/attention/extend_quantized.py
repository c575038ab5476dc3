"""The rows of `batch_paged_extend_quantized`: units of keys as in `extend`, whose tiles are decoded from codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...core import ArchSku, ElementKind, Geometry, Guarantee, Kernel, Params, Problem, Variant
from ...core.error_bound import Chained
from .dense.forward import FORWARD_DIMS, HALVES, TENSOR_CORES, head_dim, wide
from .extend import DIMS, FOLD, SIMT_ROWS, SPLIT_FIELDS, Extend, Seen, Tiling, one_block, refuse, renamed

ELEMENTS = (*HALVES, ElementKind.F32)
_FIELDS = dict.fromkeys(("k_scales", "v_scales", "k_head_scale", "v_head_scale"), "ptr")
_FIELDS |= {"k_scale": "scalar", "v_scale": "scalar", "scale_stride": "i64[2][4]", "group_shift": "i32"}


@dataclass(frozen=True)
class CodedTiling(Tiling):
    """As Tiling. coded: tiles of codes of 8 bits in flight, of keys and of values; of 4 bits twice as many."""

    coded: int = 4

    def coded_smem(self, d: int, rows: int, bits: int) -> int:
        """Bytes with those tiles, the scales of their 16-byte pieces, and a factor for each row of the ring."""
        tile = self.keys * d * bits // 8
        return self.smem(d, rows) + self.coded * 8 // bits * (tile + tile // 4) + 4 * self.slots * self.keys


WGMMA = {
    1: {
        64: CodedTiling(slots=4, blocks=2, adds=True, coded=6), 128: CodedTiling(slots=2, blocks=2, adds=True),
        192: CodedTiling(slots=4), 256: CodedTiling(slots=3),
    },
    2: {
        64: CodedTiling(slots=6, adds=True, coded=6), 128: CodedTiling(slots=4, adds=True, coded=6),
        192: CodedTiling(slots=3), 256: CodedTiling(slots=2),
    },
}  # fmt: skip
# 99 KB at most, which every device has.
MMA = {
    1: {
        64: CodedTiling(slots=2, blocks=2), 128: CodedTiling(slots=2, blocks=2, coded=2), 192: CodedTiling(32, 2),
        256: CodedTiling(32, 2, coded=2),
    },
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class QuantizedExtend(Extend):
    """codes: the elements of caches and their `ElementCode`. packed: the one of 4 bits, whose rows may have groups."""

    codes: Mapping[ElementKind, int]
    packed: ElementKind

    @property
    def split(self) -> Params:
        return Params("PagedExtendQuantizedParams", **SPLIT_FIELDS, **_FIELDS, **self.fields)

    def more(self, p: Problem) -> Mapping[str, Any]:
        by = [(0, 0, 0, 0) if v is None else v.strides for v in (p.k_scales, p.v_scales)]
        size = p.desc.group_size
        return {"scale_stride": by, "group_shift": size.bit_length() - 1 if size else 31}

    def tensor_core_row(self, name: str, design: ArchSku, tilings: Mapping[int, Mapping[int, Any]]) -> Variant:
        """A row with tensor cores, for up to max(tilings) · 64 rows a block; all rows are whole 16-byte pieces."""
        producers = int(design is ArchSku.SM90A)
        formats = tuple(self.codes.values())
        kernels = []
        for groups, by_dim in tilings.items():
            for d, t in by_dim.items():
                for grouped in (False, True):
                    code = str(self.codes[self.packed]) if grouped else "{FORMAT}"
                    call = f"batch_paged_extend_quantized<{{T}}, {d}, {groups}, {t.keys}, {t.slots}, {code}, "
                    call += f"{str(grouped).lower()}, {t.coded}, {str(bool(producers)).lower()}>"
                    facts: dict[str, Any] = {"threads": 128 * (groups + producers), "min_blocks": t.blocks}
                    axes = {} if grouped else {"FORMAT": formats}
                    kernels.append(Kernel(_kernel(name, d, groups, grouped), call, self.split, axes, **facts))

        def geometry(p: Problem) -> Geometry | str:
            seen, desc, d = self.see(p), p.desc, head_dim(p.desc, DIMS)
            if isinstance(seen, str) or isinstance(d, str):
                return seen if isinstance(seen, str) else str(d)
            if why := refuse(seen, desc):
                return why
            if wide(p.q, p.k_cache, p.v_cache) != 0b111:
                return "rows of q or the caches that are not whole aligned pieces of 16 bytes"
            groups = max(tilings) if seen.most_queries * desc.group > 64 else 1
            t, rows = tilings[groups][d], 64 * groups
            run = self.run(p, seen, rows, t)
            grouped = desc.group_size > 0
            axes = {} if grouped else {"FORMAT": self.codes[desc.aux_element]}
            bits = 4 if desc.aux_element is self.packed else 8
            facts = (128 * (groups + producers), t.coded_smem(d, rows, bits))
            return self.geometry(p, seen, _kernel(name, d, groups, grouped), axes, rows, run, facts)

        return Variant(
            name,
            geometry,
            source="attention/paged/batch_paged_extend_quantized.cu",
            elements=HALVES,
            design=design,
            kernels=(*kernels, *self.beside()),
            may_spill=True,
            guarantee=replace(TENSOR_CORES, order=name),
        )

    def simt_row(self) -> Variant:
        """The row of float32, and of rows that are not whole pieces."""

        def geometry(p: Problem) -> Geometry | str:
            seen, d = self.see(p), head_dim(p.desc, FORWARD_DIMS)
            if isinstance(seen, str) or isinstance(d, str):
                return seen if isinstance(seen, str) else str(d)
            if why := refuse(seen, p.desc):
                return why
            run = FOLD if one_block(seen.most_keys) else 1
            axes = {"D": d, "FORMAT": self.codes[p.desc.aux_element]}
            return self.geometry(p, seen, "walk", axes, SIMT_ROWS, run, (32 * SIMT_ROWS, 0))

        axes = {"D": FORWARD_DIMS, "FORMAT": tuple(self.codes.values())}
        call = "batch_paged_extend_quantized_simt<{T}, {D}, {FORMAT}>"
        return Variant(
            "simt",
            geometry,
            source="attention/paged/batch_paged_extend_quantized_simt.cu",
            elements=ELEMENTS,
            kernels=(Kernel("walk", call, self.split, axes, threads=32 * SIMT_ROWS), *self.beside()),
            may_spill=True,
            # a number is rounded after each of its scales, too
            guarantee=Guarantee(Chained(3, piece=FORWARD_DIMS[-1]), batch_invariant=True, order="simt"),
        )


def _kernel(name: str, d: int, groups: int, grouped: bool) -> str:
    return f"{name}_{d}{'_two' if groups == 2 else ''}{'_grouped' if grouped else ''}"


def extend_quantized_rows(
    fields: Mapping[str, str], see: Callable[[Problem], Seen | str], codes: Mapping[ElementKind, int],
    packed: ElementKind,
) -> tuple[Variant, ...]:  # fmt: skip
    """All rows."""
    made = QuantizedExtend(fields, see, codes=codes, packed=packed)
    rows = made.tensor_core_row("wgmma", ArchSku.SM90A, WGMMA), made.tensor_core_row("mma", ArchSku.SM80, MMA)
    return (*rows, renamed(made.simt_row(), "simt_"))
