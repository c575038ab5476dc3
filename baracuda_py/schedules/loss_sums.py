"""Sums of losses and of weights over rows, in double and in a fixed order: pairs in the workspace, level by level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.variant import Step, aligned


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
