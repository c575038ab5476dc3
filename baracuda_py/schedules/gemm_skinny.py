"""Products of at most 64 rows on sm_90a: every multiprocessor streams a share of the weights (kernels/gemm/skinny.cuh).

The bits are those of kernels/gemm/wgmma.cuh, which takes more rows: which of the two serves a problem shows in its time
alone. From 17 rows on, blocks in clusters of two load half of a for one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..core.element import ElementKind
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Problem, Step
from .gemm import batch_count, dense, gemm_params, gemm_values, transposed

MOST = 64  # rows

THREADS, _WARPS = 160, 4  # a warpgroup that multiplies, and a warp that has TMA read
_LINE, _COLUMNS = 128, (32, 64)  # bytes of k in a stage; rows of a that a kernel has room for
_SHARES = (64, 56, 48, 40, 32, 24, 16, 8)  # columns of b for a block
_SHARED = 232_448  # bytes of a block
_PITCH = 16 + 4  # floats between the columns of a warp's 16 rows: no two in a bank
_ALONE = 16  # rows up to which each block loads all of a
_LEAST = 38  # lines of operands that a block reads in the time that the tensor cores take for one step, however few
_INT32 = 2**31


def _beside(columns: int, accumulators: int) -> int:
    """Bytes beside the ring: up to 1024 before it, the partials of four warps."""
    return 1024 + _WARPS * accumulators * columns * _PITCH * 4


def _stages(columns: int, accumulators: int) -> int:
    """As many as fit, each with its barriers."""
    return (_SHARED - _beside(columns, accumulators)) // _stage(columns, accumulators)


def _stage(columns: int, accumulators: int) -> int:
    return (accumulators * _SHARES[0] + columns) * _LINE + 16


SIZES: dict[str, str | int] = {
    "skinny_warps": _WARPS, "skinny_line": _LINE, "skinny_share": _SHARES[0], "skinny_pitch": _PITCH,
    **{f"skinny_stages_{c}{'_gated' * gated}": _stages(c, 1 + gated) for c in _COLUMNS for gated in (False, True)},
}  # fmt: skip
"""Params fields of kernels that include `kernels/gemm/skinny.cuh`."""
PARAMS = gemm_params(
    "GemmSkinnyParams", a_map="map", b_map="map", up_map="map", a_step="i32", b_step="i32", up_step="i32", share="i32",
    rows="i32", groups="i32", total="i32", cluster="i32", **SIZES,
)  # fmt: skip


def _instances(kind: ElementKind) -> Mapping[str, Any]:
    both = (False, True)
    return {"OUT": (kind, ElementKind.F32), "COLUMNS": _COLUMNS, "ACROSS": both, "GATED": both}


KERNEL = Kernel(
    "gemm_skinny", "gemm_skinny<{T}, {OUT}, {COLUMNS}, {ACROSS}, {GATED}>", PARAMS, _instances, threads=THREADS,
    min_blocks=1, source="gemm/gemm_skinny.cu",
)  # fmt: skip


Operand = Callable[[str, View, int], Any]


def geometry(p: Problem, operand: Operand) -> Geometry | str:
    """The launch, or why another kernel takes these operands; operand: makes the map of one."""
    desc, batch, accumulators = p.desc, batch_count(p), 1 + (p.up is not None)
    if not 0 < desc.m <= MOST or desc.k == 0 or max(desc.n, desc.k) >= _INT32 - 2 * MOST:
        return f"m = {desc.m}, k = {desc.k} are not those of few rows"
    values = gemm_values(p)
    if isinstance(values, str):
        return values
    cluster = 1 if desc.m <= _ALONE else 2
    rows = -(-desc.m // (8 * cluster)) * 8 * cluster
    share, maps, across = 0, {}, {}
    for share in dict.fromkeys((_share(p, batch, accumulators, rows, cluster), _SHARES[0])):
        sides = {"a": (p.a, rows // cluster), "b": (transposed(p.b), share)}
        sides |= {} if p.up is None else {"up": (transposed(p.up), share)}
        found = {name: operand(name, view, lines) for name, (view, lines) in sides.items()}
        for made in found.values():
            if isinstance(made, str):
                return made
        across = {name: made[1] for name, made in found.items()}
        maps = {f"{name}_map": made[0] for name, made in found.items()}
        maps |= {f"{name}_step": made[2] for name, made in found.items()}
        if not across["b"]:  # else a line is 64 columns of b
            break
    if across["a"]:
        return f"a with strides {p.a.strides} is dense along its columns"
    if across.get("up", across["b"]) != across["b"]:
        return "b and up are dense along different axes"
    groups = _groups(p, share, cluster)
    if groups * batch >= _INT32:
        return f"needs {groups * batch} tiles, which pass 32 bits"
    columns = next(c for c in _COLUMNS if desc.m <= c)
    values |= {"up_map": None, "up_step": 0} | maps | {
        "share": share, "rows": rows, "groups": groups, "total": groups * batch, "cluster": cluster,
    }  # fmt: skip
    axes = {"OUT": desc.out_element, "COLUMNS": columns, "ACROSS": across["b"], "GATED": p.up is not None}
    blocks = min(groups * batch, max(1, p.device.sms // cluster)) * cluster
    step = Step(KERNEL.name, (blocks, 1, 1), values, axes, THREADS, shared_memory(columns, accumulators), cluster)
    return Geometry((step,), layout="contiguous" if dense(p) else "strided")


def _groups(p: Problem, share: int, cluster: int) -> int:
    """Clusters for the columns of a batch index."""
    return int(-(-p.desc.n // (share * cluster)))


def _share(p: Problem, batch: int, accumulators: int, rows: int, cluster: int) -> int:
    """The columns of a block with which the last multiprocessor is done first."""
    clusters = max(1, p.device.sms // cluster)
    return best_share(lambda share: math.ceil(_groups(p, share, cluster) * batch / clusters), accumulators, rows)


def best_share(waves: Callable[[int], int], accumulators: int, rows: int) -> int:
    """The columns of a block that take the least time; waves(share): the work tiles of one that has most of them."""
    return min(_SHARES, key=lambda share: waves(share) * max(share * accumulators + rows, _LEAST))


def shared_memory(columns: int, accumulators: int) -> int:
    """Bytes of a block."""
    return _beside(columns, accumulators) + _stages(columns, accumulators) * _stage(columns, accumulators)
