"""The tensor-core rows of `GemmPlan` for every target from sm_80 on: mma.sync, a ring of cp.async, any epilogue.

k is summed in pieces whose length depends on n and k alone. Where a product has too few tiles for the device
(`split_k`), blocks compute one piece each and a second kernel adds them, else one block has them all (`tensor_cores`);
both give the same bits, so that those of a row do not depend on how many rows there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import ElementKind, Geometry, Kernel, Problem, Step, View
from ...core.variant import aligned
from ...schedules.gemm import (
    MATRICES, MMA_SLAB, MMA_SLICE, MMA_STAGES, MMA_THREADS, MMA_TILE, batch_count, dense, gemm_params, gemm_values,
    transposed,
)  # fmt: skip

HALVES, TF32 = (ElementKind.F16, ElementKind.BF16), (ElementKind.F32,)
SIZES = (128, 64)  # of tiles
# Pieces of k: enough that tiles of 64 rows fill a device of some 130 multiprocessors twice, none shorter than 512.
_BLOCKS, _SHORTEST, _MOST = 256, 512, 8
_PARTS_THREADS = 256

PARAMS = gemm_params("GemmMmaParams", parts="ptr", items="i64", pieces="i64", piece="i32", **MMA_TILE)


def _instances(kind: ElementKind) -> Mapping[str, Any]:
    both = (True, False)
    return {**_sums(kind), "A_K": both, "B_K": both, "SIZE": SIZES}


def _sums(kind: ElementKind) -> Mapping[str, Any]:
    return {"OUT": tuple(dict.fromkeys((kind, kind.acc))), "GATED": (False, True)}


_TILES = Kernel(
    "mma", "gemm_mma<{T}, {OUT}, {A_K}, {B_K}, {GATED}, {SIZE}>", PARAMS, _instances, threads=MMA_THREADS, min_blocks=2,
)  # fmt: skip
_PARTS = Kernel("parts", "gemm_parts<{T}, {OUT}, {GATED}>", PARAMS, _sums, threads=_PARTS_THREADS, min_blocks=2)
KERNELS = (_TILES,)
SPLIT_KERNELS = (_TILES, _PARTS)


def k_first(view: View, k: int) -> bool | None:
    """Whether k, axis `k` of a matrix's last two, has stride 1; False where the other one has, None where neither.

    Extents of k and n may be 1, then strides do not matter; that of m may not: which row takes an operand, and so the
    bits, must not depend on how many rows there are.
    """
    other = -3 - k
    if view.strides[k] == 1 or view.shape[k] == 1:
        return True
    return False if view.strides[other] == 1 or (k == -2 and view.shape[other] == 1) else None


def _cols(size: int, gated: bool) -> int:
    """Columns of a tile."""
    return 64 if gated else size


def ring_bytes(size: int, gated: bool) -> int:
    """Bytes of the ring, or of what warps put the sums in at the end, where that is more."""
    cols, rights = _cols(size, gated), 1 + gated
    ring = MMA_STAGES[size] * (size + rights * cols) * MMA_SLICE
    return max(ring, MMA_THREADS // 32 * rights * MMA_SLAB * (cols // 2 + 8) * 4)


def pieces_of(n: int, k: int, element: ElementKind) -> tuple[int, int]:
    """How many pieces k has, and slices a piece."""
    slices = -(-k * element.itemsize // MMA_SLICE)
    count = max(1, min(-(-_BLOCKS // max(1, -(-n // 64))), k // _SHORTEST, _MOST))
    each = max(1, -(-slices // count))
    return max(1, -(-slices // each)), each


def _tiles(p: Problem, size: int) -> int:
    return batch_count(p) * int(-(-p.desc.m // size) * -(-p.desc.n // _cols(size, p.up is not None)))


def operands(p: Problem, blocks: int) -> tuple[dict[str, Any], dict[str, Any]] | str:
    """Axes and values that strides give a launch of `blocks`, or why there is none for them."""
    gated = p.up is not None
    majors = {"a": k_first(p.a, -1), "b": k_first(p.b, -2)} | ({"up": k_first(p.up, -2)} if gated else {})
    for name, major in majors.items():
        if major is None:
            return f"needs a stride of 1 in {name}, got strides {p.views[name].strides}"
    if gated and majors["up"] != majors["b"]:
        return "needs b and up to have the same axis of stride 1"
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values = gemm_values(p)
    if isinstance(values, str):
        return values
    # Rows of an operand in memory run along its axis of stride 1.
    wide = {name: (p.views[name] if first == (name == "a") else transposed(p.views[name])).aligned(16)
            for name, first in majors.items()}  # fmt: skip
    for name, yes in wide.items():
        bit = 1 << MATRICES.index(name)
        values["wide"] = values["wide"] | bit if yes else values["wide"] & ~bit
    return {"A_K": majors["a"], "B_K": majors["b"], "GATED": gated}, values


def _step(p: Problem, size: int, blocks: int, parts: Any = "@null") -> Step | str:
    """The launch of `blocks`, or why there is none for these strides."""
    desc, found = p.desc, operands(p, blocks)
    if isinstance(found, str):
        return found
    axes, values = found
    pieces, piece = pieces_of(desc.n, desc.k, desc.element)
    values |= {"parts": parts, "items": batch_count(p), "pieces": pieces, "piece": piece}
    axes |= {"OUT": desc.out_element, "SIZE": size}
    return Step("mma", (blocks, 1, 1), values, axes, MMA_THREADS, ring_bytes(size, axes["GATED"]))


def tensor_cores(p: Problem) -> Geometry | str:
    """A block for every tile, of a size of which there is one wave at least."""
    size = next((s for s in SIZES if _tiles(p, s) >= p.device.sms), SIZES[-1])
    step = _step(p, size, _tiles(p, size))
    return step if isinstance(step, str) else Geometry((step,), layout=_layout(p))


def split_k(p: Problem) -> Geometry | str:
    """A block for every piece of a tile, and a second kernel; for products with few tiles."""
    desc, size = p.desc, SIZES[-1]
    pieces, _ = pieces_of(desc.n, desc.k, desc.element)
    tiles = _tiles(p, size)
    if pieces == 1 or tiles >= p.device.sms:
        return f"{tiles} tiles in {pieces} pieces of k fill the device without a second kernel"
    step = _step(p, size, tiles * pieces, ("@workspace", 0))
    if isinstance(step, str):
        return step
    rows, chunks = batch_count(p) * desc.m, -(-desc.n // 8)
    axes = {name: step.axes[name] for name in ("OUT", "GATED")}
    sums = Step("parts", (-(-rows * chunks // _PARTS_THREADS), 1, 1), step.params, axes, _PARTS_THREADS)
    workspace = (1 + step.axes["GATED"]) * pieces * rows * chunks * 8 * 4
    return Geometry((step, sums), aligned(workspace), _layout(p))


def _layout(p: Problem) -> str:
    return "contiguous" if dense(p) else "strided"
