"""The tiles of the backward without tensor cores: `BackwardTile` of flash_sdpa_backward_simt.cuh."""

from __future__ import annotations

from ....core.params import Field
from ..score_terms import TILE_KEYS

_SINGLE, _DOUBLE = (64, 128), (32, 64)  # rows, and columns beyond which a block has half of them
_COLUMNS = 256  # beyond which it has a quarter
_STAGED = 32768  # bytes of rows of values

BACKWARD_TILE: dict[str, Field] = {
    "backward_single_rows": _SINGLE[0], "backward_single_columns": _SINGLE[1], "backward_double_rows": _DOUBLE[0],
    "backward_double_columns": _DOUBLE[1], "backward_staged": _STAGED, "backward_columns": _COLUMNS,
}  # fmt: skip


def block_rows(d: int, size: int) -> int:
    """Rows of a block: two sets of sums leave registers for them."""
    rows, columns = _SINGLE if size == 4 else _DOUBLE
    return rows if d <= columns else rows // 2 if d <= _COLUMNS else rows // 4


def shared_bytes(d: int, size: int) -> int:
    """Bytes: the two chunks of a score product, or the rows of values, and two tiles of scores."""
    stage, pad = (64 if d % 64 == 0 else 32, 4) if size == 4 else (32, 2)
    rows = block_rows(d, size)
    chunks = max((rows + TILE_KEYS) * (stage + pad), min(64, 1 << ((_STAGED // (d * size)).bit_length() - 1)) * d)
    return size * (chunks + 2 * rows * (TILE_KEYS + pad))
