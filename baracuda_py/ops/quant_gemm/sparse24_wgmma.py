"""Products by a compressed 2:4 sparse matrix on sm_90a: TMA and the sparse tensor cores of warpgroups.

The kernel is kernels/quant_gemm/sparse24_wgmma.cu. A tile is 256 rows of W by 128 of x, two of them in a cluster, or
128 by 64, whichever needs less time for the problem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...core import ArchSku, ElementKind, Geometry, Guarantee, Kernel, Params, Problem, Step, Variant, View
from ...core.checked import INT32
from ...core.tensor_map import TensorMap
from ...schedules.gemm import steps_of, wide_view
from ...schedules.gemm_wgmma import operand_map

_PARAMS = Params(
    "Sparse24WgmmaParams", values_map="map", metadata_map="map", x_map="map", y="ptr", bias="ptr", m="i64", n="i64",
    k="i64", y_strides="i64[2]", bias_step="i64", rows="i32", cols="i32", band="i32", total="i32", lead="i32",
    wide="i32",
)  # fmt: skip
_THREADS, _BAND, _PLANE, _LINE = 384, 8, 16, 256  # bytes: of metadata in a plane, of a row of x in a stage


@dataclass(frozen=True)
class _Tile:
    """Rows of W and of x; blocks of a cluster, stages of the ring, and by how many one warpgroup is ahead of the other.

    clocks: that a stage takes, about.
    """

    rows: int
    columns: int
    cluster: int
    stages: int
    lead: int
    clocks: int

    def shared_memory(self, element: ElementKind) -> int:
        """Bytes: up to 1024 before the ring, what eight warps write by, barriers."""
        planes = _LINE // element.itemsize // 128
        stage = self.rows * 128 + self.columns * _LINE + planes * self.rows * _PLANE
        return 1024 + self.stages * (stage + 16) + 8 * 1024 + 8

    def count(self, desc: Any) -> tuple[int, int]:
        """Tiles of a cluster along W and along x."""
        return -(-desc.n // (self.cluster * self.rows)), -(-desc.m // self.columns)

    def cost(self, p: Problem) -> float:
        """Clocks a stage until the last multiprocessor is done."""
        return math.ceil(math.prod(self.count(p.desc)) / max(1, p.device.sms // self.cluster)) * self.clocks


# Shared memory moves 128 bytes a clock: what TMA writes, and a step's operands for each 64 rows of W.
_TILES = (_Tile(256, 128, 2, 3, 1, 1950), _Tile(128, 64, 1, 6, 2, 720))
KERNELS = tuple(
    Kernel(f"wgmma_{tile.rows}", f"sparse24_wgmma<{{T}}, {tile.rows}, {tile.columns}>", _PARAMS, threads=_THREADS,
           min_blocks=1)
    for tile in _TILES
)  # fmt: skip


def _metadata_map(view: View, rows: int) -> TensorMap | str:
    """The map of the metadata, in boxes of a plane of some rows."""
    (lines, nbytes), (pitch, step) = view.shape, view.strides
    if lines == 1 and pitch < nbytes:
        pitch = -(-nbytes // 16) * 16
    if (nbytes > 1 and step != 1) or pitch < nbytes:
        return f"metadata must have dense rows, got strides {view.strides}"
    made = TensorMap("metadata", view.element, (nbytes, lines), (pitch,), (_PLANE, rows), swizzle=0)
    return made.refusal(view.ptr) or made


def _maps(p: Problem, tile: _Tile) -> dict[str, Any] | str:
    if not p.desc.k or not p.desc.n:
        return dict.fromkeys(("values_map", "metadata_map", "x_map"))
    found: dict[str, Any] = {"metadata_map": _metadata_map(p.metadata, tile.rows)}
    for name, view, rows in (("values", p.values, tile.rows), ("x", p.x, tile.columns // tile.cluster)):
        made = operand_map(name, view, rows, (False,))
        found[f"{name}_map"] = made if isinstance(made, str) else made[0]
    reason = next((one for one in found.values() if isinstance(one, str)), None)
    return found if reason is None else f"{reason}; operands must have k along memory, in rows of whole 16 bytes"


def geometry(p: Problem) -> Geometry | str:
    """Resident blocks that take tiles in turn."""
    desc = p.desc
    if max(desc.m, desc.n, desc.k) > INT32 - 2 * _LINE:
        return "an extent passes 32 bits"
    tile = min(_TILES, key=lambda one: one.cost(p))
    maps = _maps(p, tile)
    if isinstance(maps, str):
        return maps
    rows, cols = tile.count(desc)
    if rows * cols >= INT32:
        return f"needs {rows * cols} tiles, which pass 32 bits"
    values = maps | {
        "m": desc.m, "n": desc.n, "k": desc.k, "y_strides": steps_of(p.y), "wide": wide_view(p.y), "lead": tile.lead,
        "bias_step": 0 if p.bias is None or desc.n == 1 else p.bias.strides[0], "rows": rows, "cols": cols,
        "band": _BAND, "total": rows * cols,
    }  # fmt: skip
    blocks = min(rows * cols, max(1, p.device.sms // tile.cluster)) * tile.cluster
    shared = tile.shared_memory(desc.element)
    step = Step(f"wgmma_{tile.rows}", (blocks, 1, 1), values, {}, _THREADS, shared, tile.cluster)
    return Geometry((step,), layout="contiguous" if all(view.dense for view in p.flat()) else "strided")


def wgmma_row(elements: tuple[ElementKind, ...], guarantee: Guarantee) -> Variant:
    """The row of a plan: it goes before all others."""
    return Variant(
        "wgmma_sparse", geometry, source="quant_gemm/sparse24_wgmma.cu", kernels=KERNELS, elements=elements,
        design=ArchSku.SM90A, guarantee=guarantee, first=lambda p: True,
    )  # fmt: skip
