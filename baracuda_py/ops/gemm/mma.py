"""The tensor-core row of `GemmPlan` for every target from sm_80 on: mma.sync, a ring of cp.async, any epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import ElementKind, Geometry, Kernel, Problem, Step, View
from ...schedules.gemm import MATRICES, batch_count, dense, gemm_params, gemm_values, transposed

HALVES = (ElementKind.F16, ElementKind.BF16)
SIZES = (128, 64)  # of tiles; kernels/gemm/mma.cuh has these numbers too
_THREADS, _DEPTH, _WARPS, _SLAB = 128, 32, 4, 32

PARAMS = gemm_params("GemmMmaParams")


def _instances(kind: ElementKind) -> Mapping[str, Any]:
    both = (True, False)
    return {"OUT": (kind, kind.acc), "A_K": both, "B_K": both, "GATED": (False, True), "SIZE": SIZES}


KERNEL = Kernel(
    "mma", "gemm_mma<{T}, {OUT}, {A_K}, {B_K}, {GATED}, {SIZE}>", PARAMS, _instances, threads=_THREADS, min_blocks=2
)


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


def _smem(size: int, gated: bool) -> int:
    """Bytes of the ring, or of what warps put the sums in at the end, where that is more."""
    cols, rights = _cols(size, gated), 1 + gated
    stages = 3 if size == 128 else 4
    ring = stages * (size + rights * cols) * _DEPTH * 2
    return max(ring, _WARPS * rights * _SLAB * (cols // 2 + 8) * 4)


def tensor_cores(p: Problem) -> Geometry | str:
    """The kernel for these strides, or why there is none."""
    desc, gated = p.desc, p.up is not None
    majors = {"a": k_first(p.a, -1), "b": k_first(p.b, -2)} | ({"up": k_first(p.up, -2)} if gated else {})
    for name, major in majors.items():
        if major is None:
            return f"needs a stride of 1 in {name}, got strides {p.views[name].strides}"
    if gated and majors["up"] != majors["b"]:
        return "needs b and up to have the same axis of stride 1"
    values = gemm_values(p)
    if isinstance(values, str):
        return values

    def blocks(size: int) -> int:
        return batch_count(p) * int(-(-desc.m // size) * -(-desc.n // _cols(size, gated)))

    size = next((s for s in SIZES if blocks(s) >= p.device.sms), SIZES[-1])  # one wave at least
    if blocks(size) >= 2**31:
        return f"needs {blocks(size)} blocks, a grid has 2**31 - 1"
    # Rows of an operand in memory run along its axis of stride 1.
    wide = {name: (p.views[name] if first == (name == "a") else transposed(p.views[name])).aligned(16)
            for name, first in majors.items()}  # fmt: skip
    for name, yes in wide.items():
        bit = 1 << MATRICES.index(name)
        values["wide"] = values["wide"] | bit if yes else values["wide"] & ~bit
    axes = {"OUT": desc.out_element, "A_K": majors["a"], "B_K": majors["b"], "GATED": gated, "SIZE": size}
    step = Step("mma", (blocks(size), 1, 1), values, axes, _THREADS, _smem(size, gated))
    return Geometry((step,), layout="contiguous" if dense(p) else "strided")
