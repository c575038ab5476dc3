"""The block formats of GGUF files, by GGML's definitions: everything of a block stands in its bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .format import Format


def blocks(codes: Any, nbytes: int) -> Any:
    """Rows of bytes as [*, blocks, nbytes]."""
    return codes.reshape(*codes.shape[:-1], codes.shape[-1] // nbytes, nbytes)


def half_at(block: Any, at: int) -> Any:
    """The float16 at a byte of every block, as float32 [*, blocks, 1]."""
    return np.ascontiguousarray(block[..., at : at + 2]).view(np.float16).astype(np.float32)


def _q4_0(codes: Any, k: int) -> Any:
    block = blocks(codes, 18)
    whole = np.concatenate((block[..., 2:] & 15, block[..., 2:] >> 4), axis=-1).astype(np.float32) - np.float32(8)
    return (half_at(block, 0) * whole).reshape(*codes.shape[:-1], k)


Q4_0_FORMAT = Format("Q4_0", "gguf_simple", _q4_0, lambda k: k // 32 * 18, 4.5, multiple=32, unit=2)
