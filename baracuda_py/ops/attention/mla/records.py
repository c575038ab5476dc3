"""Cells of fp8 (FlashMLA): codes of e4m3, a float32 scale for each 128 of them, and rotated columns in bfloat16.

A cell of d_latent + d_rope columns is d_latent + d_latent / 32 + 2 d_rope bytes, 656 for 512 + 64.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ....core import InvalidProblemError

GROUP = 128  # columns that share a scale
LARGEST = 448.0  # of e4m3
LEAST = 2.0**-126  # that a scale is


def record(d_latent: int, d_rope: int) -> int:
    """Bytes of a cell."""
    return d_latent + d_latent // 32 + 2 * d_rope


def check_groups(d_latent: int) -> None:
    """Refuse latents that are not whole groups."""
    if d_latent % GROUP:
        raise InvalidProblemError(f"d_latent must be a multiple of {GROUP} in records of fp8, got {d_latent}")


def decoded(cache: Any, d_latent: int, dtype: Any) -> Any:
    """The columns of cells [..., bytes]: codes times scales, rounded to bfloat16, and the rope."""
    cache = np.ascontiguousarray(cache).astype(np.uint8)
    codes = cache[..., :d_latent].view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    ends = d_latent, d_latent + d_latent // 32
    scales = np.ascontiguousarray(cache[..., ends[0] : ends[1]]).view(np.float32)
    rope = np.ascontiguousarray(cache[..., ends[1] :]).view(ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        latent = (codes * np.repeat(scales, GROUP, -1)).astype(ml_dtypes.bfloat16)
        return np.concatenate([latent, rope], -1).astype(dtype)


def encoded(latent: Any, rope: Any) -> Any:
    """Cells of latents and rotated columns, both as they would be stored in bfloat16.

    A group's scale is its largest magnitude / 448, at least 2⁻¹²⁶; a code is the quotient, rounded to nearest.
    """
    groups = latent.astype(np.float32).reshape(*latent.shape[:-1], latent.shape[-1] // GROUP, GROUP)
    with np.errstate(all="ignore"):
        scales = np.abs(groups).max(-1, initial=0) / np.float32(LARGEST)
        scales = np.maximum(scales, np.float32(LEAST))
        codes = (groups / scales[..., None]).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    parts = (
        codes.reshape(latent.shape),
        scales.astype(np.float32).view(np.uint8),
        rope.astype(ml_dtypes.bfloat16).view(np.uint8),
    )
    return np.concatenate(parts, -1)


def random_records(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: cells of random columns."""
    latent = rng.standard_normal((*shape[:-1], desc.d_latent)) * np.exp2(rng.integers(-4, 3, (*shape[:-1], 1)))
    return encoded(latent.astype(ml_dtypes.bfloat16), rng.standard_normal((*shape[:-1], desc.d_rope)))


def decoded_in_torch(torch: Any, cache: Any, d_latent: int) -> Any:
    """`decoded` of a tensor of bytes, in bfloat16."""

    def part(first: int, end: int | None, kind: Any) -> Any:
        taken = cache[..., first:end]
        return taken.reshape(-1).clone().view(kind).reshape(*taken.shape[:-1], taken.shape[-1] // kind.itemsize)

    end = d_latent + d_latent // 32
    scales = part(d_latent, end, torch.float32).repeat_interleave(GROUP, -1)
    latent = part(0, d_latent, torch.float8_e4m3fn).float() * scales
    return torch.cat([latent.bfloat16(), part(end, None, torch.bfloat16)], -1)
