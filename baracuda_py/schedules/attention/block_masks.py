"""What kernels of attention read of a formula's block mask (`kernels/attention/block_mask.cuh`)."""

from __future__ import annotations

from typing import Any

from ...core import Kernel, Params, Problem, Step
from ...core.params import Field
from ...core.variant import aligned
from .score_terms import WINDOW, window

WORK = "attention::BlockMasked"
FIELDS: dict[str, str] = {"pattern": "ptr", "pattern_stride": "i64[4]"}
FIELDS |= dict.fromkeys(("query_block", "key_block", "query_shift", "key_shift"), "i32")
TURNS: dict[str, str] = {"block_turns": "workspace", "turns_stride": "i64[2]", "key_tiles": "i64"}
"""Further ones of the backward's kernels on tensor cores, whose tiles of keys add to dq in turn."""
_ROWS: dict[str, Field] = WINDOW | dict.fromkeys(("query_len", "key_len", "shift", "left", "right", "tiles"), "i64")
_ROWS |= {"rows": "i64", "own_heads": "i64"}


def values(p: Problem) -> dict[str, Any]:
    """The values of FIELDS; the mask may be one for the batch, or for all heads."""
    desc = p.desc
    return {
        "pattern": "block_mask", "pattern_stride": p.views["block_mask"].broadcast_to(desc.block_mask_shape).strides,
        "query_block": desc.query_block, "key_block": desc.key_block,
        "query_shift": desc.query_block.bit_length() - 1, "key_shift": desc.key_block.bit_length() - 1,
    }  # fmt: skip


def turns_kernel(queries: int, keys: int) -> Kernel:
    """The kernel that counts, for tiles of so many queries and keys."""
    return Kernel(
        f"block_turns_{queries}_{keys}", f"flash_block_turns<{queries}, {keys}>",
        Params("FlashBlockTurnsParams", **_ROWS, **FIELDS, **TURNS), {}, threads=256,
    )  # fmt: skip


def turns(p: Problem, queries: int, keys: int) -> tuple[dict[str, Any], tuple[Step, ...], int]:
    """The values of TURNS with a workspace from 0 on, the step that fills it, and its bytes."""
    desc, given = p.desc, values(p)
    tiles, key_tiles = -(-desc.query_len // queries), -(-desc.key_len // keys)
    batch, heads = (n if s else 1 for n, s in zip(desc.block_mask_shape, given["pattern_stride"][:2], strict=False))
    each, rows = tiles * (key_tiles + 1), batch * heads * tiles
    found = {
        "block_turns": 0, "turns_stride": (each * heads if batch > 1 else 0, each if heads > 1 else 0),
        "key_tiles": key_tiles,
    }  # fmt: skip
    sizes = {"query_len": desc.query_len, "key_len": desc.key_len, "shift": desc.shift, "tiles": tiles}
    params = {**sizes, **window(desc), "rows": rows, "own_heads": heads, **given, **found}
    steps = (Step(f"block_turns_{queries}_{keys}", (-(-rows // 8), 1, 1), params, {}, 256),) if rows else ()
    return found, steps, aligned(4 * each * batch * heads)
