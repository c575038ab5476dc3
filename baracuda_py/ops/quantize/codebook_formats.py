"""Formats whose 4-bit codes name numbers of a table; of two in a byte the first is in the upper half (bitsandbytes).

NF4: QLoRA (arXiv:2305.14314), appendix E. FP4: bitsandbytes' table of that name, whose largest number is 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .format import SCALES, Format, halves

NF4_VALUES = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32,
)  # fmt: skip
_FP4_SIZES = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
FP4_VALUES = np.array([*_FP4_SIZES, *(-size for size in _FP4_SIZES)], np.float32)


def _format(cpp: str, table: Any) -> Format:
    def values(codes: Any, k: int) -> Any:
        return table[halves(codes)]

    return Format(cpp, "codebooks", values, lambda k: k // 2, 4, scales=SCALES[:3])


NF4 = _format("Nf4", NF4_VALUES)
FP4 = _format("Fp4", FP4_VALUES)
