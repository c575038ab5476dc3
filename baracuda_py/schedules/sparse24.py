"""2:4 sparsity (kernels/quant_gemm/sparse24.cu): rows of groups of four, a thread for each two groups, or four.

Operands are dense [*rows, k], values [*rows, k / 2] and metadata [*rows, k / 8 rounded up] in any strides; where a
pair of groups starts aligned to its size in memory, it is moved in one piece. Where all operands lie without gaps and
rows are whole pairs, a thread takes two neighbouring ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Problem, Step

THREADS = 256
_OPERANDS = 4
_WIDTHS = (8, 4, 1, 8)  # elements that a pair of groups has of each operand
PARAMS = Params(
    "Sparse24Params", source="ptr", dense="ptr", values="ptr", metadata="ptr", mask="ptr", rows="i64", groups="i64",
    pairs="i64", shape=f"i64[{AXES}]", strides=f"i64[{_OPERANDS}][{AXES}]", steps=f"i64[{_OPERANDS}]", rank="i32",
    wide="i32", flat="i32", each=f"i64[{_OPERANDS}]",
)  # fmt: skip


def kernel(name: str) -> Kernel:
    """One of the four kernels."""
    return Kernel(name, f"sparse24_{name}<{{T}}>", PARAMS, threads=THREADS)


def pairs_of(
    p: Problem, name: str, views: Sequence[View | None], slots: Mapping[str, Any], widths: Sequence[int] = _WIDTHS
) -> Geometry | str:
    """The launch; views: at the places that the kernel reads them from. slots: pointers by the kernel's names."""
    desc = p.desc
    outer = desc.shape[:-1]
    none = (0,) * len(outer)
    shape, strides = merge_axes(outer, [none if v is None else v.strides[:-1] for v in views])
    if len(shape) > AXES:
        return f"more than {AXES} axes of rows remain after merging"
    groups = desc.shape[-1] // 4
    pairs = -(-groups // 2)
    rows = 1
    for n in outer:
        rows *= n
    here = [(v, width) for v, width in zip(views, widths, strict=True) if v is not None]
    flat = groups % 2 == 0 and all(v.dense and v.aligned(min(2 * w * v.element.itemsize, 16)) for v, w in here)
    blocks = max(1, -(-rows * pairs // (THREADS * (2 if flat else 1))))
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    absent = dict.fromkeys(("source", "dense", "values", "metadata", "mask"), "@null")
    values = {
        **absent, **slots, "rows": rows, "groups": groups, "pairs": max(pairs, 1), "shape": pad(shape),
        "strides": [pad(s) for s in strides], "rank": len(shape), "flat": flat,
        "each": list(widths), "steps": [0 if v is None else v.strides[-1] for v in views],
        "wide": sum(1 << n for n, (v, width) in enumerate(zip(views, widths, strict=True)) if _wide(v, width)),
    }  # fmt: skip
    layout = "contiguous" if all(v is None or v.dense for v in views) else "strided"
    return Geometry((Step(name, (blocks, 1, 1), values, {}, THREADS),), layout=layout)


def _wide(view: View | None, width: int) -> bool:
    """Whether every pair of groups is one access, or whole accesses of 16 bytes."""
    if view is None or width == 1 or view.strides[-1] != 1:
        return False
    return view.aligned(min(width * view.element.itemsize, 16))
