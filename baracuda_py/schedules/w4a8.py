"""Products of int8 by weights of 4 bits in groups: what all designs read (kernels/quant_gemm/w4a8.cuh), and launches.

Few rows of x meet weights that are read once, many meet them in tiles on tensor cores; both add in the same order.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Problem, Step
from .gemm import BYTE_TILE, wide_view

FEW = 16  # rows
_THREADS, _CHUNK = 256, 128
_SIZES, _STAGES = (128, 64), 4  # of tiles
_INT32 = 2**31


WEIGHTS = {
    "codes": "ptr", "scales": "ptr", "zeros": "ptr", "code_steps": "i64[2]", "scale_steps": "i64[3]",
    "zero_steps": "i64[3]", "scale_code": "i32", "is_signed": "i32", "whole": "i32",
}  # fmt: skip
OUTPUT = {
    "scale_x": "ptr", "bias": "ptr", "y": "ptr", "scale_x_steps": "i64[2]", "bias_step": "i64", "y_steps": "i64[3]",
    "wide_y": "i32",
}  # fmt: skip


def params(name: str, **more: str | int) -> Params:
    """What every design that decodes weights as it multiplies reads, and more."""
    return Params(
        name, **more, **WEIGHTS, **OUTPUT, x="ptr", m="i64", n="i64", k="i64", group="i64", groups="i64",
        x_steps="i64[3]", wide="i32",
    )  # fmt: skip


PARAMS = params("W4A8Params", w4a8_tile_depth=_CHUNK, w4a8_tile_stages=_STAGES, **BYTE_TILE)
FEW_KERNEL = Kernel("w4a8_few", "w4a8_few<{T}, {NT}, {FINE}>", PARAMS, {"NT": (1, 2), "FINE": ("false", "true")},
                    min_blocks=2, kindless=True)  # fmt: skip
TILES = tuple(
    Kernel(f"w4a8_tile_{size}", f"w4a8_tile<{{T}}, {size}>", PARAMS, min_blocks=128 // size, kindless=True)
    for size in _SIZES
)


def _merged(view: View, axes: int) -> View | None:
    """[*batch, …] with one axis for the batch and `axes` more, where that needs no copy."""
    batch_rank = len(view.shape) - axes
    return view.reshaped((math.prod(view.shape[:batch_rank]), *view.shape[batch_rank:]))


def values_of(p: Problem, stored: dict[str, Any], is_signed: bool) -> dict[str, Any] | str:
    """The values of `params`; stored: those of the parts of the weights."""
    desc = p.desc
    values = {name: stored[name] for name in ("code_steps", "scale_steps", "zero_steps", "scale_code", "whole")}
    for name, view, axes in (("x", p.x, 2), ("y", p.y, 2), ("scale_x", p.scale_x, 1)):
        found = None if view is None else _merged(view, axes)
        if view is not None and found is None:
            return f"{name} must have a batch of one stride, got strides {view.strides} of shape {view.shape}"
        values[f"{name}_steps"] = (0,) * (axes + 1) if found is None else found.strides
    return values | {
        "m": desc.m, "n": desc.n, "k": desc.k, "group": desc.group, "groups": stored["groups"],
        "bias_step": 0 if p.bias is None else p.bias.strides[0], "is_signed": is_signed, "wide": wide_view(p.x),
        "wide_y": wide_view(p.y),
    }  # fmt: skip


def _launched(p: Problem, kernel: str, blocks: int, values: Any, axes: dict[str, Any], smem: int) -> Geometry | str:
    if isinstance(values, str):
        return values
    if blocks >= _INT32:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    step = Step(kernel, (blocks, 1, 1), values, axes, _THREADS, smem)
    return Geometry((step,), layout="contiguous" if all(view.dense for view in p.flat()) else "strided")


def fine_groups(desc: Any) -> bool:
    """Whether chunks of k have several groups, whose sums lanes of `few` tell apart."""
    return bool(desc.group < desc.k and desc.group % _CHUNK != 0)


def few_in_fine_groups(p: Problem) -> bool:
    """Whether `few` takes longer than the tiles of wgmma."""
    return bool(p.desc.m <= FEW) and fine_groups(p.desc)


def few(p: Problem, stored: dict[str, Any], is_signed: bool) -> Geometry | str:
    """A block for every few rows of weights, which are read once for all rows of x."""
    desc = p.desc
    if desc.m > FEW:
        return f"m = {desc.m} rows are not few, at most {FEW}"
    fine = fine_groups(desc)
    blocks = math.prod(desc.batch_shape) * -(-desc.n // (16 if fine else 32))
    axes = {"NT": 1 if desc.m <= FEW // 2 else 2, "FINE": str(fine).lower()}
    return _launched(p, FEW_KERNEL.name, blocks, values_of(p, stored, is_signed), axes, 0)


def tiles(p: Problem, stored: dict[str, Any], is_signed: bool) -> Geometry | str:
    """A block for every tile."""

    def count(size: int) -> int:
        return int(math.prod(p.desc.batch_shape) * -(-p.desc.m // size) * -(-p.desc.n // size))

    size = next((s for s in _SIZES if count(s) >= p.device.sms), _SIZES[-1])
    smem = _STAGES * size * (_CHUNK + _CHUNK // 2)
    return _launched(p, f"w4a8_tile_{size}", count(size), values_of(p, stored, is_signed), {}, smem)
