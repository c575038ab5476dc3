"""Products of integers of 8 bits whose operands lie otherwise than along k, in rows of whole 16 bytes: copied so first.

A copy reads and writes an operand once; tensor cores would read its bytes one by one for every tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Problem, Step, Variant, aligned
from .gemm import moved_step, steps_of, transposed, wide_view
from .gemm_copied import batch_steps
from .gemm_wgmma import one_batch
from .products import Place

TRANSPOSE = Params(
    "TurnBytesParams", x="ptr", y="ptr", item_step="i64", line_step="i64", k_step="i64", lines="i64", k="i64",
    pitch="i64", wide="i32", along="i32",
)  # fmt: skip
KERNEL = Kernel("turn_bytes", "turn_bytes", TRANSPOSE, source="quant_gemm/turn_bytes.cu")
_SIDE, _PIECE, _FEW = 64, 16, 64  # of a block's tile; bytes of an access; rows up to which copies do not pay
_INT32 = 2**31


def geometry(row: Variant) -> Callable[[Problem], Geometry | str]:
    """The copies, and the product by a row that reads what they make."""

    def launches(p: Problem) -> Geometry | str:
        if p.desc.m <= _FEW or p.desc.k == 0:
            return f"m = {p.desc.m}, k = {p.desc.k}: copies would cost more than they save"
        views, steps, used = dict(p.views), [], 0
        places = {name: Place(name) for name, view in p.views.items() if view is not None}
        for name in ("a", "b"):
            lines = p.a if name == "a" else transposed(p.b)
            if wide_view(lines):
                continue
            made = _copy(name, lines, used)
            if isinstance(made, str):
                return made
            step, view, nbytes = made
            steps.append(step)
            views[name] = view if name == "a" else transposed(view)
            places[name] = Place("@workspace", used)
            used += nbytes
        if not steps:
            return "every operand can be read where it is"
        found = row.geometry(Problem(p.desc, p.device, views))
        if isinstance(found, str):
            return found
        moved = [
            moved_step(one, row.kernel(one.kernel), places, used, None) for one in found.steps if isinstance(one, Step)
        ]
        return Geometry((*steps, *moved), used + found.workspace, "strided")

    return launches


def _copy(name: str, view: View, at: int) -> tuple[Step, View, int] | str:
    """The launch that copies lines [*batch, lines, k] to byte `at` of the workspace, their view there, its bytes."""
    found = one_batch(view)
    if isinstance(found, str):
        return f"{name} {found}"
    matrix, count, apart = found
    lines, k = matrix.shape
    pitch = -(-k // _PIECE) * _PIECE
    blocks = count * -(-lines // _SIDE) * -(-pitch // _SIDE)
    if blocks >= _INT32:
        return f"copies of {name} need {blocks} blocks, a grid has 2**31 - 1"
    line, along = steps_of(matrix)
    params: dict[str, Any] = {
        "x": name, "y": ("@workspace", at), "item_step": apart, "line_step": line, "k_step": along, "lines": lines,
        "k": k, "pitch": pitch, "wide": wide_view(transposed(view)), "along": abs(along) <= abs(line),
    }  # fmt: skip
    steps = batch_steps(view.shape[:-2], view.strides[:-2], lines * pitch if count > 1 else 0)
    copied = View(0, view.shape, (*steps, pitch, 1), view.element)
    return Step(KERNEL.name, (blocks, 1, 1), params), copied, aligned(count * lines * pitch)
