"""Attention of quantised queries and keys: geometry and rows (docs/design/quantised-attention.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...core import ArchSku, ElementKind, Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from ...core.error_bound import Chained
from ...core.variant import aligned
from .dense.forward import HALVES, TENSOR_CORES, chunk, layout, wide
from .score_terms import UNBOUNDED, WINDOW, single

I8, E4M3 = ElementKind.I8, ElementKind.FP8E4M3
CODES, VALUES = (I8, E4M3), (*HALVES, E4M3)
DIMS, SIMT_DIM = (64, 128), 256
_WIDEN_THREADS, _SIMT_THREADS, _SIMT_WARPS = 256, 128, 4
_FOLDER = "attention/quantized/quantized_sdpa_"
PARAMS = Params("QuantizedSdpaParams", **WINDOW, **{
    **dict.fromkeys(("q", "k", "v", "y", "lse", "q_scale", "k_scale", "v_scale"), "ptr"), "wide_v": "workspace",
    "stride": "i64[4][3]", "q_scale_stride": "i64[3]", "k_scale_stride": "i64[3]", "v_scale_stride": "i64[2]",
    **dict.fromkeys(("query_len", "key_len", "shift", "left", "right", "tiles", "heads", "q_block", "k_block"), "i64"),
    **dict.fromkeys(("num_heads", "group", "q_scale_group", "d_k", "d_v", "causal", "wide", "chunk"), "i32"),
    "unit_log2": "f32", "out_scale": "scalar",
})  # fmt: skip
WIDEN = Params(
    "WidenValuesParams", v="ptr", wide_v="workspace", stride="i64[3]", d_v="i32", wide="i32",
    **dict.fromkeys(("rows", "key_len", "kv_heads", "pitch"), "i64"),
)  # fmt: skip


@dataclass(frozen=True)
class Tiling:
    """A block for one head_dim: warps, 16-row tiles a warp, keys of a tile, blocks a multiprocessor."""

    warps: int
    tiles: int
    keys: int
    blocks: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return 16 * self.warps * self.tiles

    def smem(self, d: int) -> int:
        """Bytes: codes of the queries, two stages of codes of keys and of values; the outputs stand over them."""
        return max(d * self.rows + 2 * self.keys * d + 4 * self.keys * d, 2 * d * self.rows)


@dataclass(frozen=True)
class GroupTiling(Tiling):
    """The same for warpgroups, whose rows of codes have 128 bytes, from a multiple of 1024 on."""

    def smem(self, d: int) -> int:
        return 1024 + max(128 * self.rows + 256 * self.keys + 4 * self.keys * d, 2 * d * self.rows)


MMA = {64: Tiling(4, 2, 64, 2), 128: Tiling(4, 2, 64, 2)}
# One block of 256 threads a multiprocessor, which has 100 KB on sm_89; 32 rows a warp spill at 128 columns.
MMA_FP8 = {64: Tiling(8, 2, 64, 1), 128: Tiling(8, 1, 64, 1)}
WGMMA = {64: GroupTiling(4, 1, 64, 4), 128: GroupTiling(8, 1, 128, 1)}


def _unit(desc: Any) -> float:
    """What makes a product of decoded codes an exponent of 2."""
    return single(desc.scale * 1.4426950408889634)


def _params(p: Problem, tiles: int) -> dict[str, Any]:
    desc, none = p.desc, (0, 0)
    return {
        "stride": [v.strides[:-1] for v in (p.q, p.k, p.v, p.y)], "q_scale_stride": p.q_scale.strides,
        "k_scale_stride": p.k_scale.strides, "v_scale_stride": none if p.v_scale is None else p.v_scale.strides,
        "query_len": desc.query_len, "key_len": desc.key_len, "shift": desc.shift, "left": UNBOUNDED,
        "right": 0 if desc.is_causal else UNBOUNDED, "tiles": tiles, "heads": desc.batch_size * desc.num_heads,
        "q_block": desc.q_block, "k_block": desc.k_block, "num_heads": desc.num_heads, "group": desc.group,
        "q_scale_group": desc.num_heads // max(desc.q_scale_heads, 1) or 1, "d_k": desc.d_k, "d_v": desc.d_v,
        "causal": int(desc.is_causal), "wide": wide(p.q, p.k, p.v, p.y), "chunk": chunk(desc),
        "unit_log2": _unit(desc), "wide_v": 0,
    }  # fmt: skip


def _axes(p: Problem) -> dict[str, Any]:
    return {"CODE": p.desc.code_element, "OUT": p.desc.out_element}


def _widened(p: Problem, params: dict[str, Any]) -> tuple[list[Step], int]:
    """The launch that makes 16-bit values of fp8 ones, and the workspace that they need; none for others."""
    desc = p.desc
    if desc.element is not E4M3:
        return [], 0
    pitch, rows = -(-desc.d_v // 8) * 8, desc.batch_size * desc.num_kv_heads * desc.key_len
    params["stride"][2] = (desc.num_kv_heads * desc.key_len * pitch, desc.key_len * pitch, pitch)
    params["wide"] |= 4
    given = {
        "wide_v": 0, "stride": p.v.strides[:-1], "d_v": desc.d_v, "rows": rows, "key_len": desc.key_len,
        "kv_heads": desc.num_kv_heads, "pitch": pitch,
        "wide": int(p.v.ptr % 4 == 0 and not any(s % 4 for s in p.v.strides[:-1])),
    }  # fmt: skip
    blocks = -(-rows * (pitch // 4) // _WIDEN_THREADS)
    step = Step("widen", (blocks, 1, 1), given, {"N": _WIDEN_THREADS}, _WIDEN_THREADS)
    return [step] if blocks else [], aligned(2 * rows * pitch)


def _tiled(name: str, tilings: dict[int, Any], codes: tuple[ElementKind, ...]) -> Any:
    """The geometry of a row of tensor cores."""

    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        if desc.code_element not in codes:
            return f"{desc.code_element} goes to another row"
        if desc.key_len >= 2**30:
            return "more than 2^30 keys"
        d = next((d for d in tilings if max(desc.d_k, desc.d_v) <= d), None)
        if d is None:
            return f"head_dim {max(desc.d_k, desc.d_v)} is beyond {max(tilings)}"
        t = tilings[d]
        if desc.k_block % t.keys and desc.k_block < desc.key_len:
            return f"blocks of {desc.k_block} keys are not whole tiles of {t.keys}"
        tiles = -(-desc.query_len // t.rows)
        params = _params(p, tiles)
        steps, used = _widened(p, params)
        blocks = tiles * params["heads"]
        if blocks:
            steps.append(Step(f"{name}_{d}", (blocks, 1, 1), params, _axes(p), t.threads, t.smem(d)))
        return Geometry(tuple(steps) if blocks else (), used, layout(p.q, p.k, p.v, p.y))

    return geometry


def _simt(p: Problem) -> Geometry | str:
    desc = p.desc
    if max(desc.d_k, desc.d_v) > SIMT_DIM:
        return f"head_dim {max(desc.d_k, desc.d_v)} is beyond {SIMT_DIM}"
    blocks = -(-desc.batch_size * desc.num_heads * desc.query_len // _SIMT_WARPS)
    step = Step("simt", (blocks, 1, 1), _params(p, 1), _axes(p), _SIMT_THREADS)
    return Geometry((step,) if blocks else (), layout=layout(p.q, p.k, p.v, p.y))


def _of_codes(codes: tuple[ElementKind, ...]) -> Any:
    """Axes by the element of the values: 16-bit ones give their own; fp8 ones, of fp8 codes, any."""
    return lambda kind: {
        "CODE": (E4M3,) if kind is E4M3 else codes,
        "OUT": (E4M3, *HALVES) if kind is E4M3 else (kind,),
    }


def _kernels(name: str, call: str, tilings: dict[int, Any], codes: tuple[ElementKind, ...]) -> tuple[Kernel, ...]:
    return tuple(
        Kernel(
            f"{name}_{d}", call.format(D=d, W=t.warps, MT=t.tiles, KEYS=t.keys), PARAMS, _of_codes(codes),
            threads=t.threads, min_blocks=t.blocks,
        )
        for d, t in tilings.items()
    )  # fmt: skip


_WIDEN_KERNEL = Kernel(  # of fp8 values alone
    "widen", "widen_values<{N}>", WIDEN, lambda kind: {"N": (_WIDEN_THREADS,) if kind is E4M3 else ()},
    threads=_WIDEN_THREADS, source="attention/quantized/widen_values.cu",
)  # fmt: skip
_MMA_CALL = "quantized_sdpa_mma<{{CODE}}, {{T}}, {{OUT}}, {D}, {W}, {MT}, {KEYS}>"
# Products of fp8 keep some 13 bits below the largest of 32 terms. What is below is cut off, not rounded, and so adds
# up (docs/design/quantised-attention.md).
FP8 = Guarantee(Relative(64, mean=64), math="fp8", batch_invariant=True)

_WGMMA_CALL = "quantized_sdpa_wgmma<{{CODE}}, {{T}}, {{OUT}}, {D}, {W}, {KEYS}>"
WGMMA_ROW = Variant(
    "wgmma",
    _tiled("wgmma", WGMMA, (I8,)),
    source=f"{_FOLDER}wgmma.cu",
    elements=HALVES,
    design=ArchSku.SM90A,
    kernels=_kernels("wgmma", _WGMMA_CALL, WGMMA, (I8,)),
    guarantee=replace(TENSOR_CORES, order="wgmma"),
)
WGMMA_FP8_ROW = Variant(
    "wgmma_fp8",
    _tiled("wgmma", WGMMA, (E4M3,)),
    source=f"{_FOLDER}wgmma.cu",
    elements=VALUES,
    design=ArchSku.SM90A,
    kernels=(*_kernels("wgmma", _WGMMA_CALL, WGMMA, (E4M3,)), _WIDEN_KERNEL),
    guarantee=replace(FP8, order="wgmma"),
)
MMA_ROW = Variant(
    "mma",
    _tiled("mma", MMA, (I8,)),
    source=f"{_FOLDER}mma.cu",
    elements=HALVES,
    design=ArchSku.SM80,
    kernels=_kernels("mma", _MMA_CALL, MMA, (I8,)),
    guarantee=replace(TENSOR_CORES, order="mma"),
)
MMA_FP8_ROW = Variant(
    "mma_fp8",
    _tiled("mma", MMA_FP8, (E4M3,)),
    source=f"{_FOLDER}mma.cu",
    elements=VALUES,
    design=ArchSku.SM89,
    kernels=(*_kernels("mma", _MMA_CALL, MMA_FP8, (E4M3,)), _WIDEN_KERNEL),
    guarantee=replace(FP8, order="mma"),
)
SIMT_ROW = Variant(
    "simt",
    _simt,
    source=f"{_FOLDER}simt.cu",
    elements=VALUES,
    kernels=(
        Kernel(
            "simt", f"quantized_sdpa_simt<{{CODE}}, {{T}}, {{OUT}}, {SIMT_DIM}>", PARAMS, _of_codes(CODES),
            threads=_SIMT_THREADS,
        ),
    ),
    guarantee=Guarantee(Chained(2), batch_invariant=True),
)  # fmt: skip
