"""Matrix products with an epilogue: what every design of `GemmPlan` reads of its operands (kernels/gemm/epilogue.cuh).

Operands are matrices [*batch_shape, rows, columns] in any strides, and vectors. Batch axes are merged where all
matrices step through them evenly; a block finds its item of the batch by dividing.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Problem

MATRICES = ("a", "b", "up", "c", "residual", "y", "pre", "up_pre")
VECTORS = ("bias", "up_bias", "row_bias", "scale_a", "scale_b")
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")  # in the order of kernels/gemm/epilogue.cuh


def gemm_params(name: str, **more: str) -> Params:
    """The struct that kernels with an epilogue read, and fields of a design's own."""
    fields = dict.fromkeys((*MATRICES, *VECTORS), "ptr")
    return Params(
        name, **fields, alpha="scalar", beta="scalar", m="i64", n="i64", k="i64", batch_shape=f"i64[{AXES}]",
        batch=f"i64[{len(MATRICES)}][{AXES}]", strides=f"i64[{len(MATRICES)}][2]", vectors=f"i64[{len(VECTORS)}]",
        batch_rank="i32", activation="i32", wide="i32", **more,
    )  # fmt: skip


def matrices(p: Problem) -> list[View | None]:
    """The views of `MATRICES`, None where an operand is absent."""
    return [p.views[name] for name in MATRICES]


def batch_count(p: Problem) -> int:
    """How many products the batch has."""
    return math.prod(p.desc.batch_shape)


def gemm_values(p: Problem) -> dict[str, Any] | str:
    """The values of `gemm_params`, or why the kernels do not take these strides."""
    desc, views = p.desc, matrices(p)
    rank = len(desc.batch_shape)
    shape, batch = merge_axes(desc.batch_shape, [v.strides[:rank] if v else (0,) * rank for v in views])
    if len(shape) > AXES:
        return f"more than {AXES} batch axes remain after merging"
    return {
        "m": desc.m, "n": desc.n, "k": desc.k, "batch_shape": pad(shape), "batch": [pad(s) for s in batch],
        "strides": [v.strides[rank:] if v else (0, 0) for v in views],
        "vectors": [v.strides[0] if v else 0 for v in (p.views[name] for name in VECTORS)], "batch_rank": len(shape),
        "activation": ACTIVATIONS.index(desc.activation),
        "wide": sum(1 << n for n, v in enumerate(views) if v is not None and v.strides[-1] == 1 and row_aligned(v)),
    }  # fmt: skip


def row_aligned(view: View) -> bool:
    """Whether every row of a matrix starts 16-byte aligned."""
    return view.aligned(16)


def transposed(view: View) -> View:
    """The matrices of a batch transposed."""
    swapped = [(*x[:-2], x[-1], x[-2]) for x in (view.shape, view.strides)]
    return View(view.ptr, swapped[0], swapped[1], view.element)


def dense(p: Problem) -> bool:
    """Whether every operand is contiguous."""
    return all(view.dense for view in p.flat())
