"""flash_sdpa_sm89: `FlashSdpaPlan` on its SM89 design alone: blocks of 256 threads, keys and values double-buffered."""

from __future__ import annotations

from ....schedules.attention.dense.forward import SM89_ROW
from .flash_sdpa import FlashSdpaPlan


class FlashSdpaSm89Plan(FlashSdpaPlan):
    """As `FlashSdpaPlan`, with the same descriptor and args, pinned to the SM89 row: float16 and bfloat16."""

    op = "attention.flash_sdpa_sm89"
    variants = (SM89_ROW,)
