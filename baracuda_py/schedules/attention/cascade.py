"""Merging partial attention (v, log Σ exp): what `cascade_merge_states` and `cascade_attention` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...core import Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant, View

Views = tuple[View, View, View]
BASES = ("e", "2")
THREADS = 128
_FIELDS = dict.fromkeys(("v", "others", "y", "lse", "others_lse", "y_lse"), "ptr") | {
    "stride": "i64[3][3]", "lse_stride": "i64[3][2]", "state_stride": "i64", "state_lse_stride": "i64", "rows": "i64",
    "cols": "i64", "heads": "i64", "states": "i32", "lanes": "i32",
}  # fmt: skip
MANY = Params("CascadeMergeStatesParams", **_FIELDS)
TWO = Params("CascadeAttentionParams", **_FIELDS, mask="ptr", mask_stride="i64")


def merged(v: Any, lse: Any, base: str) -> tuple[Any, Any]:
    """Reference: merges states [seq, sets, heads, d] and [seq, sets, heads] over the sets, in their own dtype."""
    exp, log = (np.exp2, np.log2) if base == "2" else (np.exp, np.log)
    none = lse.dtype.type(-np.inf)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        top = lse.max(axis=1, initial=none)
        weight = np.where(lse == none, 0, exp(lse - top[:, None]))
        total = weight.sum(axis=1)
        terms = np.where(weight[..., None] == 0, 0, weight[..., None] * v)
        values = terms.sum(axis=1) / np.where(total == 0, 1, total)[..., None]
        return values, np.where(np.isinf(top), top, top + log(total))


def random_lse(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Random lse: far apart, some neutral, a few NaN or +inf; weights stay normal in float32."""
    lse = np.where(rng.random(shape) < 0.2, -np.inf, rng.uniform(-30, 30, shape))
    return np.where(rng.random(shape) < 0.02, rng.choice((np.nan, np.inf)), lse)


def cascade_row(
    states: int, batch: int, chunks: int, operands: Callable[[Problem], tuple[Views, Views, Mapping[str, Any]]]
) -> Variant:
    """The row of an op with `states` states (0: the descriptor's), `batch` loaded at a time, `chunks` of each a thread.

    operands: from a problem, the views (first state, the others, result) as [seq, heads, d], those of their lse as
    [seq, heads], and the parameters that only the op knows.
    """

    def geometry(p: Problem) -> Geometry | str:
        views, lse, params = operands(p)
        tokens, heads, cols = views[2].shape
        if tokens * heads >= 2**31:
            return "more than 2^31 rows"
        size = p.desc.element.itemsize
        wide = cols > 0 and cols * size % 16 == 0 and params["state_stride"] * size % 16 == 0
        wide = wide and all(v.aligned(16) and v.inner_dense for v in views)
        lanes = max(1, min(-(-cols * size // (16 * (chunks if wide else 1))), THREADS))
        constants = {
            "stride": [v.strides for v in views], "lse_stride": [v.strides for v in lse], "rows": tokens * heads,
            "cols": cols, "heads": max(heads, 1), "lanes": lanes, **params,
        }  # fmt: skip
        blocks, name = -(-tokens * heads // (THREADS // lanes)), "wide" if wide else "narrow"
        layout = "contiguous" if all(v.dense for v in p.flat()) else "inner_contiguous" if wide else "strided"
        axes = {"BASE2": p.desc.lse_base == "2"}
        return Geometry((Step(name, (blocks, 1, 1), constants, axes, THREADS),), layout=layout)

    def kernel(name: str, batch: int, chunks: int) -> Kernel:
        call = f"cascade<{{T}}, {THREADS}, {states}, {batch}, {chunks}, {{BASE2}}, {str(name == 'wide').lower()}>"
        params, axes = TWO if states else MANY, {"BASE2": (False, True)}
        return Kernel(name, call, params, axes, threads=THREADS)

    return Variant(
        "rows",
        geometry,
        source="attention/decoding/cascade.cu",
        kernels=(kernel("wide", batch, chunks), kernel("narrow", batch, 1)),
        guarantee=Guarantee(Relative(2), batch_invariant=True),
    )
