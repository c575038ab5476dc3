"""Sums of losses and of weights over rows, in double and in a fixed order: pairs in the workspace, level by level."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.device import Device
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Problem, Step, aligned
from .reduce import NARROW, Launches, reduce_launches
from .row_groups import GroupRows


def finish_steps(start: int, rows: int, tile: int, constants: Mapping[str, Any]) -> tuple[list[Step], int]:
    """Adds `rows` pairs of doubles at byte `start` of the workspace, level by level; the first byte that is free."""
    used, count, steps = start + aligned(16 * rows), rows, []
    while True:
        tiles = max(1, -(-count // tile))
        params = {**constants, "sums": start, "out": used, "count": count, "tile": tile, "last": int(tiles == 1)}
        steps.append(Step("finish", (tiles, 1, 1), params, {}, 1024))
        if tiles == 1:
            return steps, used
        start, used, count = used, used + aligned(16 * tiles), tiles


def to_one(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Those that a reduction of all axes launches: it keeps no axis, and so reads no columns."""
    return tuple(kernel for kernel in kernels if not kernel.name.endswith("columns"))


def of_dense(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Those that `dense_launches` launches."""
    return tuple(kernel for kernel in to_one(kernels) if not kernel.name.endswith("rows_any"))


def dense_launches(device: Device, operands: Sequence[View], *given: Any, **more: Any) -> Launches | str:
    """`reduce_launches` of all of dense arrays, whose chunks are whole, of as many elements as 32 bits number."""
    count = math.prod(operands[0].shape)
    if count >= NARROW:
        return f"adds up {count} losses, more than {NARROW - 1}"
    return reduce_launches(device, operands, *given, **more)


LossesStep = Callable[[Problem, GroupRows, Mapping[str, Any]], Step]
"""Makes the launch that writes the losses of rows, or their weights, of constants that say where."""


def rows_and_sum(p: Problem, rows: GroupRows, by_weight: bool, losses_step: LossesStep) -> Geometry | str:
    """The losses of rows, or by the descriptor's `reduction` their sum or mean: by their weights where `by_weight`."""
    desc = p.desc
    per_row = desc.reduction == "none"
    held = aligned(desc.rows * desc.acc.itemsize)
    place = held if by_weight else 0
    at = {
        "loss": "loss" if per_row else "@null", "losses": 0, "weights": place, "keep": int(not per_row),
        "keep_weights": int(by_weight),
    }  # fmt: skip
    first = [losses_step(p, rows, at)] if rows.rows else []
    if per_row:
        return Geometry(tuple(first), layout=rows.layout_class)
    view = View(0, (desc.rows,), (1,), desc.acc)
    values = {
        "losses": ("@workspace", 0), "weights": ("@workspace", place), "y": "loss", "divisor": desc.rows,
        "divided": 2 if by_weight else int(desc.reduction == "mean"), "present": 2 * int(by_weight),
    }  # fmt: skip
    found = dense_launches(
        p.device, (view, view), (p.loss,), (0,), mapped=True, values=values, prefix="sum_", base=held + place
    )
    return found if isinstance(found, str) else Geometry((*first, *found.steps), found.used, rows.layout_class)


def total_weight(
    p: Problem, rows: GroupRows | str, losses_step: LossesStep, absent: Sequence[str] = ("loss",)
) -> tuple[tuple[Step, ...], int] | str:
    """The launches that leave the sum of the rows' weights at byte 0 of the workspace; absent: outputs not written."""
    if isinstance(rows, str):
        return rows
    base = aligned(8)
    at = {**dict.fromkeys(absent, "@null"), "losses": base, "weights": base, "keep": 0, "keep_weights": 1}
    y, view = View(0, (), (), p.desc.acc), View(0, (p.desc.rows,), (1,), p.desc.acc)
    found = dense_launches(
        p.device, (view,), (y,), (0,), mapped=True, prefix="total_", base=base + aligned(view.nbytes),
        values={"weight": ("@workspace", base), "y": ("@workspace", 0), "divisor": 0.0, "divided": 0},
    )  # fmt: skip
    return found if isinstance(found, str) else ((losses_step(p, rows, at), *found.steps), found.used)
