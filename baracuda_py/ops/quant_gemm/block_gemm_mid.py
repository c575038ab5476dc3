"""Products of a few dozen to some hundred rows by stored weights: `mma.sync`, W decoded in registers once for a tile.

The kernel is kernels/quant_gemm/block_gemm_mid.cu. A tile is 128 rows of W by 64 of x. Where there are fewer
tiles than multiprocessors k is summed in parts, which a second launch adds in order.
"""

from __future__ import annotations

import math
from typing import Any

from ...core import ElementKind, Geometry, Kernel, Params, Problem, Step, View
from ...core.checked import INT32
from ...core.element import HALVES
from ...schedules.gemm import wide_view
from ..quantize.format import RUN
from ..quantize.format_kinds import FormatKind
from ..quantize.stored import format_header, in_threes, stored_params, stored_values
from .block_gemm_wgmma import SUMS, Y_FIELDS, added, to_y
from .chunks import CHUNK, CHUNKS, chunk_bytes

LEAST, MOST = 17, 64  # rows of x for which this row comes first
_ROWS = 64  # of x in a block
_COLUMNS, _GROUPS = 128, 2  # of y in a block; groups of warps
_SHORT_STAGES, _STAGES = 3, 2  # of the ring: of codes of at most four bits, and of others
_PARAMS = Params(
    "BlockGemmMidParams", x="ptr", m="i64", n="i64", k="i64", x_steps="i64[3]", chunk_bytes="i64", parts="i32",
    each="i32", mid_rows=_ROWS, mid_columns=_COLUMNS, mid_groups=_GROUPS, mid_short_stages=_SHORT_STAGES,
    mid_stages=_STAGES, **Y_FIELDS, **CHUNKS, **stored_params(),
)  # fmt: skip

_NUMBERS = 8 * 4 * 36 * 8  # bytes of scales and zero points of a chunk of both groups
_LEAST = 4  # chunks in a part of k
_PARTS = (1, 2, 3, 4, 6, 8)
# What parts are chosen for: multiprocessors, and in clocks a chunk of eight rows of x, its decoding, the end of a tile,
# a second launch, and floats of it a clock.
_SMS, _EIGHT, _DECODE, _END, _LAUNCH, _FLOATS = 132, 100, 200, 3000, 4000, 250


def _smem(p: Problem) -> int:
    """Bytes of shared memory: chunks of x and codes under way, and scales."""
    row = p.desc.kind.row
    codes = int(row.bytes(RUN)) if row.scales else 0  # of a run
    stages = _SHORT_STAGES if codes <= RUN // 2 else _STAGES
    x, runs = _ROWS * CHUNK * p.desc.element.itemsize, _COLUMNS * CHUNK // RUN
    return int(stages * _GROUPS * (x + runs * codes) + (_NUMBERS if row.scales else 0))


def parts_of(desc: Any) -> tuple[int, int]:
    """Parts of k, and chunks of each but the last: by extents alone, as the order of sums is."""
    chunks = -(-desc.k // CHUNK)
    tiles = -(-desc.n // _COLUMNS) * -(-desc.m // _ROWS) * math.prod(desc.batch_shape)
    eights = min(_ROWS // 8, -(-desc.m // 32) * 4)

    def each(parts: int) -> int:
        return int(-(-chunks // parts))

    def some(parts: int) -> bool:  # whether all parts have enough, and none is empty
        return parts == 1 or (chunks >= parts * _LEAST and (parts - 1) * each(parts) < chunks)

    def cost(parts: int) -> float:  # clocks until the last multiprocessor is done, about
        own = each(parts) * (eights * _EIGHT + _DECODE) + _END
        sums = math.prod(desc.batch_shape) * desc.m * desc.n
        added = 0.0 if parts == 1 else _LAUNCH + parts * sums / _FLOATS
        return float(math.ceil(tiles * parts / _SMS) * own + added)

    parts = min(filter(some, _PARTS), key=cost)
    return parts, each(parts)


def _geometry(p: Problem) -> Geometry | str:
    """One launch over tiles and parts of k, and what adds the parts."""
    desc, values = p.desc, stored_values(p)
    if isinstance(values, str):
        return values
    if not values["whole"] or p.index is not None or (desc.kind.row.scales and desc.group % RUN):
        return f"needs codes that lie in whole units, without index, in groups of a multiple of {RUN}"
    if max(desc.m, desc.n, desc.k) > INT32 - MOST:
        return "an extent passes 32 bits"
    x, y, batch = in_threes(p.x), in_threes(p.y), math.prod(desc.batch_shape)
    if x is None or y is None:
        return f"x and y must have a batch of one stride, got strides {p.x.strides} and {p.y.strides}"
    if not wide_view(p.x):
        return f"needs x with k along memory in rows that start 16-byte aligned, got strides {p.x.strides}"
    smem = _smem(p)
    if smem > p.device.smem:
        return f"needs {smem} bytes of shared memory, a block may have {p.device.smem}"
    parts, each = parts_of(desc)
    pitch = -(-desc.n // 8) * 8
    blocks = -(-desc.m // _ROWS) * -(-desc.n // _COLUMNS) * batch * parts
    if max(blocks, batch * desc.m * pitch // 2048) >= INT32:
        return f"needs {blocks} blocks, which pass 32 bits"
    held = View(0, (batch * parts, desc.m, desc.n), (desc.m * pitch, pitch, 1), ElementKind.F32)
    written = to_y(p, y, "y", True) if parts == 1 else to_y(p, held, ("@workspace", 0), False)
    values |= written | {
        "m": desc.m, "n": desc.n, "k": desc.k, "x_steps": x.strides, "parts": parts, "each": each,
        "chunk_bytes": chunk_bytes(desc),
    }  # fmt: skip
    step = Step("mid", (blocks, 1, 1), values, smem=smem)
    steps = (step,) if parts == 1 else (step, added(p, y, batch, parts, pitch))
    nbytes = 4 * batch * parts * desc.m * pitch if parts > 1 else 0
    return Geometry(steps, nbytes, "contiguous" if all(view.dense for view in p.flat()) else "strided")


def _first(p: Problem) -> bool:
    return bool(LEAST <= p.desc.m <= MOST)


_KINDS = tuple(kind for kind in FormatKind if not kind.row.scales or (kind.row.group or RUN) % RUN == 0)

MID: dict[str, Any] = {
    "geometry": _geometry, "source": "quant_gemm/block_gemm_mid.cu", "elements": HALVES, "prelude": format_header,
    "kernels": (
        Kernel("mid", "block_gemm_mid<{KIND}, {T}>", _PARAMS, min_blocks=1),
        SUMS,
    ),
    "first": _first, "kinds": _KINDS,
}  # fmt: skip
