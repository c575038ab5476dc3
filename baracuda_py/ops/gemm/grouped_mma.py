"""The tensor-core rows of products of groups of rows (kernels/gemm/grouped_mma.cu)."""

from __future__ import annotations

from collections.abc import Mapping

from ...core import Kernel, Problem, Step, View
from ...schedules.gemm import MATRICES, MMA_THREADS, transposed
from ...schedules.grouped import ROWS, SUMMED, most_tiles, product_values, rows_values
from .mma import HALVES, k_first, pieces_of, ring_bytes

_SOURCE = "gemm/grouped_mma.cu"
_BOTH = (True, False)


def _rows_kernel(gated: str, **axes: tuple[bool, ...]) -> Kernel:
    return Kernel(
        "grouped_gemm_mma", f"grouped_gemm_mma<{{T}}, {{T}}, {{A_K}}, {{B_K}}, {gated}, {{SIZE}}>", ROWS,
        {**axes, "B_K": _BOTH, "SIZE": (128, 64)}, MMA_THREADS, 2, source=_SOURCE,
    )  # fmt: skip


ROWS_MMA = _rows_kernel("false", A_K=(True,))
TURNED_MMA = _rows_kernel("false", A_K=_BOTH)
EPILOGUE_MMA = _rows_kernel("{GATED}", GATED=(False, True), A_K=(True,))
PRODUCT_MMA = Kernel(
    "grouped_product_mma", "grouped_product_mma<{T}, {T}, {A_K}, {B_K}>", SUMMED, {"A_K": _BOTH, "B_K": _BOTH},
    MMA_THREADS, 2, source=_SOURCE,
)  # fmt: skip
ELEMENTS = HALVES


def _majors(a: View, b: View) -> tuple[bool, bool] | str:
    """Whether k has stride 1 in a and in b, or why neither axis has."""
    found = {"a": k_first(a, -1), "b": k_first(b, -2)}
    for (name, major), view in zip(found.items(), (a, b), strict=True):
        if major is None:
            return f"needs a stride of 1 in {name}, got strides {view.strides}"
    return bool(found["a"]), bool(found["b"])


def _aligned(a: View, b: View, a_k: bool, b_k: bool) -> tuple[bool, bool]:
    """Whether what runs along memory in a and b starts 16-byte aligned."""
    return (a if a_k else transposed(a)).aligned(16), (transposed(b) if b_k else b).aligned(16)


def rows_mma_step(
    p: Problem, operands: Mapping[str, str], turn: tuple[str, ...] = (), turned: bool = False,
    axes: Mapping[str, bool] | None = None,
) -> Step | str:  # fmt: skip
    """`rows_step` on tensor cores; turned: whether there are kernels for a whose rows are not along memory."""
    values, views = rows_values(p, operands, turn)
    a, b, up = views["a"], views["b"], views.get("up")
    majors = _majors(a, b)
    if isinstance(majors, str):
        return majors
    if not majors[0] and not turned:
        return f"needs rows of a along memory, got strides {a.strides}"
    if up is not None and _majors(a, up) != majors:
        return "needs b and up to have the same axis of stride 1"
    wide = {"a": _aligned(a, b, *majors)[0], "b": _aligned(a, b, *majors)[1]}
    if up is not None:
        wide["b"] = wide["up"] = wide["b"] and _aligned(a, up, *majors)[1]
    for name, yes in wide.items():
        bit = 1 << MATRICES.index(name)
        values["wide"] = values["wide"] | bit if yes else values["wide"] & ~bit
    (rows, _), n, groups = a.shape, b.shape[-1], p.desc.groups
    values["piece"] = pieces_of(n, b.shape[-2], b.element)[1]  # as in `gemm`, which so gives the same bits
    # Groups of some 100 rows at least fill tiles of 128; smaller ones, and few tiles, take those of 64.
    size = 128 if rows >= 96 * groups and rows * n >= 128 * 128 * p.device.sms else 64
    tiles = most_tiles(rows, groups, size) * -(-n // (64 if up is not None else size))
    grid = (min(tiles, max(1, p.device.sms) * (2 if size == 128 else 4)), 1, 1)
    chosen = {**(axes or {}), "A_K": majors[0], "B_K": majors[1], "SIZE": size}
    return Step("grouped_gemm_mma", grid, values, chosen, MMA_THREADS, ring_bytes(size, up is not None))


def product_mma_step(p: Problem, operands: Mapping[str, str], turn: tuple[str, ...] = ()) -> Step | str:
    """`product_step` on tensor cores."""
    values, (a, b, y) = product_values(p, operands, turn)
    majors = _majors(a, b)
    if isinstance(majors, str):
        return majors
    blocks = p.desc.groups * -(-y.shape[-2] // 128) * -(-y.shape[-1] // 128)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    wide = (*_aligned(a, b, *majors), y.strides[-1] == 1 and y.aligned(16))
    values |= {"wide": sum(1 << n for n, yes in enumerate(wide) if yes)}
    axes = {"A_K": majors[0], "B_K": majors[1]}
    return Step("grouped_product_mma", (blocks, 1, 1), values, axes, MMA_THREADS, ring_bytes(128, False))
