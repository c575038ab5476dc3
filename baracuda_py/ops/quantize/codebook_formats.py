"""Formats whose codes name numbers of a table: NF4 (QLoRA, arXiv:2305.14314, appendix E; bitsandbytes' `nf4`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .format import SCALES, Format, halves

NF4_VALUES = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32,
)  # fmt: skip


def _nf4(codes: Any, k: int) -> Any:
    return NF4_VALUES[halves(codes, upper_first=True)]


NF4_FORMAT = Format("Nf4", "codebooks", _nf4, lambda k: k // 2, 4, scales=SCALES[:3])
