"""Scatter: the geometry of writing along one axis at positions that an index array tells, without atomics.

Every element of y is made by one thread from the tokens (positions of the index along the scattered axis) that name it.
A line has its own indices: lines are told apart by the axes along which the index differs. Long lines are sorted by a
stable counting sort in the workspace (kernels/include/baracuda/segments.cuh); short ones are looked through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, dense_strides, merge_axes, pad
from ..core.variant import Geometry, Kernel, Step, aligned
from .gather import word
from .map import THREADS, chunked, lay_out, map_params

SORT_THREADS = 1024  # as in kernels/include/baracuda/segments.cuh
RANGE = 4096  # positions that a sorting block counts in shared memory
FEW = 64  # tokens of a line that every element looks through


def scatter_params(name: str) -> Params:
    """Params of an op that scatters."""
    return Params(
        name, y="ptr", x="ptr", src="ptr", index="ptr", status="status", counts="workspace", totals="workspace",
        starts="workspace", order="workspace", tokens="i64", extent="i64", starts_pitch="i64", line_shape="i64[8]",
        line_bound="i64[8]", line_strides="i64[8]", token_shape="i64[8]", token_strides="i64[2][8]", ranges="i32",
        parts="i32", range_pitch="i32", line_rank="i32", token_rank="i32", index_wide="i32", **map_params(5),
    )  # fmt: skip


def scatter_kernels(params: Params, functor: str) -> tuple[Kernel, ...]:
    """The kernels, for the C++ functor that says what a token does."""

    def axes(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": (16 // kind.itemsize, 1), "SORTED": (True, False)}

    elements = f"scatter_elements<{functor}, {{T}}, {{VEC}}, {{SORTED}}>"
    return (
        Kernel("count", "scatter_count", params, threads=SORT_THREADS),
        Kernel("place", "scatter_place", params, threads=SORT_THREADS),
        Kernel("elements", elements, params, axes, threads=THREADS, min_blocks=2),
    )


@dataclass(frozen=True)
class Tokens:
    """What is scattered: along the axes of y, the strides of src and of the index (0 where it is shared), and how far
    the index reaches; then the tokens' shape and their strides in the index and in src."""

    src: View
    index: View
    src_strides: Sequence[int]
    index_strides: Sequence[int]
    bounds: Sequence[int]
    shape: Sequence[int]
    strides: tuple[Sequence[int], Sequence[int]]


def scatter_geometry(y: View, x: View | None, axis: int, tokens: Tokens, names: Mapping[str, str]) -> Geometry | str:
    """The launches; `names` are the operands behind the parameters, where they are called otherwise."""
    shape, extent, count = y.shape, y.shape[axis], math.prod(tokens.shape)
    if count >= 2**31 - SORT_THREADS or extent >= 2**31 - RANGE:
        return "2^31 tokens or positions and more are not supported"
    own = [a for a, n in enumerate(shape) if a != axis and n > 1 and (tokens.index_strides[a] or tokens.bounds[a] != n)]
    line_shape, lines = [shape[a] for a in own], math.prod(shape[a] for a in own)
    steps = dict(zip(own, dense_strides(line_shape), strict=True))
    virtual = (
        View(tokens.src.ptr, shape, tuple(tokens.src_strides), tokens.src.element),
        View(0, shape, tuple(steps.get(a, 0) for a in range(len(shape))), ElementKind.I64),
        View(0, shape, tuple(int(a == axis) for a in range(len(shape))), ElementKind.I64),
    )
    found = lay_out((y, x, *virtual))
    token_shape, token_strides = merge_axes(tuple(tokens.shape), [tuple(s) for s in tokens.strides])
    if isinstance(found, str):
        return found
    if len(own) > AXES or len(token_shape) > AXES:
        return f"more than {AXES} axes remain after merging"
    size = y.element.itemsize
    moved = (0, 2) if x is None else (0, 1, 2)
    vec = 16 // size
    if word(found, math.gcd(*token_strides[1], vec), moved, (3, 4), size) != vec:
        vec = 1
    few = count <= FEW
    sort, workspace, grid = _sort(0, 0, 0) if few else _sort(lines, count, extent)
    if grid >= 2**31:
        return "more than 2^31 blocks"
    params = {
        **sort, **names, **chunked(found, vec), "tokens": count, "extent": extent, "line_shape": pad(line_shape),
        "line_bound": pad([tokens.bounds[a] for a in own]),
        "line_strides": pad([tokens.index_strides[a] for a in own]), "token_shape": pad(token_shape),
        "token_strides": [pad(s) for s in token_strides], "line_rank": len(own), "token_rank": len(token_shape),
        "index_wide": tokens.index.element is ElementKind.I64,
    }  # fmt: skip
    blocks = max(1, -(-(found.groups[0].count // vec) // THREADS))
    elements = Step("elements", (blocks, 1, 1), params, {"VEC": vec, "SORTED": not few}, THREADS)
    first = (Step(name, (grid, 1, 1), params, {}, SORT_THREADS) for name in ("count", "place"))
    present = [v for v in (y, x, tokens.src, tokens.index) if v is not None]
    layout = "contiguous" if all(v.dense for v in present) else "inner_contiguous" if vec > 1 else "strided"
    return Geometry((elements,) if few else (*first, elements), workspace, layout)


def _sort(lines: int, tokens: int, extent: int) -> tuple[dict[str, int], int, int]:
    """Parameters of the sort with their places in the workspace, its bytes, and blocks."""
    ranges = max(1, -(-extent // RANGE))
    pitch = RANGE if ranges > 1 else max(4, -(-extent // 4) * 4)
    # Each part has counts of its own, and its blocks read those of all parts before: few where there are many blocks.
    parts = max(1, min(-(-tokens // SORT_THREADS), 128 // (ranges * lines or 1), 64, 8 * RANGE // pitch))
    starts_pitch = -(-extent // 4) * 4 + 1
    sizes = {
        "counts": lines * parts * ranges * pitch * 4, "totals": lines * parts * ranges * 4,
        "starts": lines * starts_pitch * 4, "order": lines * tokens * 4,
    }  # fmt: skip
    fields, workspace = {}, 0
    for name, nbytes in sizes.items():
        fields[name] = workspace
        workspace += aligned(nbytes)
    fields |= {"starts_pitch": starts_pitch, "ranges": ranges, "parts": parts, "range_pitch": pitch}
    return fields, workspace, max(1, lines * ranges * parts)
