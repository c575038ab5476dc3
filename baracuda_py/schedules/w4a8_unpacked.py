"""Products of int8 by weights of 4 bits on sm_90a for many rows: weights become int8 in the workspace first.

The kernels are kernels/quant_gemm/w4a8_unpack.cu, which also lays out scales as tiles read them, and w4a8_unpacked.cu.
Sums and their order are those of the row that decodes weights beside the products (`w4a8_wgmma`).
"""

from __future__ import annotations

import math
from typing import Any

from ..core.checked import INT32
from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor_map import TensorMap
from ..core.variant import Geometry, Kernel, Problem, Step, aligned
from .gemm_wgmma import THREADS, operand_map
from .w4a8 import FEW, OUTPUT, WEIGHTS, values_of
from .w4a8_wgmma import AHEAD, BARRIERS, RASTER_ROWS, ROWS, RUN, SLICE, STAGING, SUMS, clocks, groups_of_slice

_COLUMNS, _CLUSTER, _STAGES = 128, 2, 5  # rows of x in a tile, blocks of a cluster, stages
_UNPACK_ROWS, _UNPACK_SLICES = 16, 8  # of a block that unpacks
_PARAMS = Params(
    "W4A8UnpackedParams", **OUTPUT, m="i64", n="i64", k="i64", group="i64", groups="i64", w_map="map", x_map="map",
    scales_map="map", x_step="i32", rows="i32", cols="i32", band="i32", total="i32", lead="i32", tiles="i32",
    each="i32", w4a8_unpacked_stages=_STAGES, **SUMS,
)  # fmt: skip
_UNPACK = Params(
    "W4A8UnpackParams", **WEIGHTS, held="ptr", by="ptr", n="i64", k="i64", group="i64", groups="i64", pitch="i64",
    tiles="i64", each="i32", w4a8_unpack_rows=_UNPACK_ROWS, w4a8_unpack_slices=_UNPACK_SLICES,
)  # fmt: skip
KERNELS = (
    Kernel("w4a8_unpack", "w4a8_unpack", _UNPACK, source="quant_gemm/w4a8_unpack.cu", kindless=True),
    Kernel("w4a8_unpacked", "w4a8_unpacked<{T}>", _PARAMS, threads=THREADS, min_blocks=1, kindless=True),
)
_SMEM = 1024 + _STAGES * ((ROWS + _COLUMNS) * SLICE + ROWS * 4 * (SLICE // RUN)) + STAGING + BARRIERS
# In clocks: a slice, in which what a tile reads of the L2 cache takes longer than its products; the scaled sums of a
# row of x and group, which come on top; the end of a tile. Of the first launch its start, and bytes in a clock.
_LOADS, _SCALED, _END, _START, _BYTES = 900, 3.5, 3000, 5000, 1650


def _cost(p: Problem) -> float:
    """Clocks of both launches, about."""
    desc, batch = p.desc, math.prod(p.desc.batch_shape)
    slice_ = _LOADS + _SCALED * groups_of_slice(desc) * _COLUMNS
    tiles = -(-desc.n // (_CLUSTER * ROWS)) * -(-desc.m // _COLUMNS) * batch
    waves = math.ceil(tiles / max(1, p.device.sms // _CLUSTER))
    first = _START + 1.5 * batch * desc.n * desc.k / _BYTES
    return float(first + waves * (-(-desc.k // SLICE) * slice_ + _END))


def many(p: Problem) -> bool:
    """Whether unpacking pays for so many rows of x."""
    return bool(p.desc.m > FEW and _cost(p) < clocks(p))


def _named(params: Params, values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in params.slots}


def geometry(p: Problem, stored: dict[str, Any], is_signed: bool) -> Geometry | str:
    """The launch that unpacks, and persistent blocks, which take work tiles."""
    desc, batch = p.desc, math.prod(p.desc.batch_shape)
    if max(desc.m, desc.n, desc.k) > INT32 - 2 * ROWS:
        return "an extent passes 32 bits"
    if 0 in (batch, desc.m, desc.n, desc.k):
        return "there is nothing to multiply"
    values = values_of(p, stored, is_signed)
    if isinstance(values, str):
        return values
    x_map = operand_map("x", p.x, _COLUMNS // _CLUSTER, (False,))
    if isinstance(x_map, str):
        return f"{x_map}; it must have k along memory, in rows of whole 16 bytes"
    slices, tiles = -(-desc.k // SLICE), -(-desc.n // ROWS)
    each = 1 if stored["groups"] == 1 or desc.group % SLICE == 0 else SLICE // RUN
    pitch = slices * SLICE
    held, lines = aligned(batch * desc.n * pitch), batch * slices * tiles * each
    rows, cols = -(-desc.n // (_CLUSTER * ROWS)), -(-desc.m // _COLUMNS)
    total = rows * cols * batch
    blocks = batch * tiles * (ROWS // _UNPACK_ROWS) * -(-slices // _UNPACK_SLICES)
    if max(total, blocks, lines + each * (tiles + 1)) >= INT32:
        return f"needs {max(total, blocks, lines)} tiles, which pass 32 bits"
    w_map = TensorMap(
        "@workspace", ElementKind.I8, (pitch, desc.n, batch), (pitch, pitch * desc.n), (SLICE, ROWS, 1)
    )  # fmt: skip
    scales_map = TensorMap(
        "@workspace", ElementKind.F32, (ROWS, lines), (4 * ROWS,), (ROWS, each), swizzle=0, offset=held
    )  # fmt: skip
    refused = w_map.refusal(0) or scales_map.refusal(0)
    if refused is not None:
        return refused
    values |= {"tiles": tiles, "each": each}
    places = {"held": ("@workspace", 0), "by": ("@workspace", held)}
    first = Step(KERNELS[0].name, (blocks, 1, 1), _named(_UNPACK, values | {"pitch": pitch}) | places)
    values |= {
        "w_map": w_map, "x_map": x_map[0], "scales_map": scales_map, "x_step": x_map[2], "rows": rows, "cols": cols,
        "band": RASTER_ROWS, "total": total, "lead": min(AHEAD, slices),
    }  # fmt: skip
    count = min(total, max(1, p.device.sms // _CLUSTER)) * _CLUSTER
    then = Step(KERNELS[1].name, (count, 1, 1), _named(_PARAMS, values), {}, THREADS, _SMEM, _CLUSTER)
    layout = "contiguous" if all(view.dense for view in p.flat()) else "strided"
    return Geometry((first, then), held + aligned(4 * ROWS * lines), layout)
