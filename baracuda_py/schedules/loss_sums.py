"""Sums of losses and of weights over rows, in double and in a fixed order: pairs in the workspace, level by level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.device import Device
from ..core.tensor import View
from ..core.variant import Kernel, Step, aligned
from .reduce import NARROW, Launches, reduce_launches


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
