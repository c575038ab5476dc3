"""Operands for the functions of polynomials, signals and pairs that are written by hand: see `hand_written`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[list[Any], dict[str, Any]]


def _x(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _weights() -> list[Any]:
    return [_x(6, 5, seed=1), _x(6, 5, seed=2), _x(4, 3, seed=3), _x(4, 5, seed=4)]


SIGNALS: dict[str, Callable[[], Call]] = {
    **dict.fromkeys(("convolve", "correlate"), lambda: ([_x(9), _x(4, seed=1), "same"], {})),
    "convolve_backward": lambda: ([_x(12, seed=2), _x(9), _x(4, seed=1)], {}),
    "correlate_backward": lambda: ([_x(6, seed=2), _x(9), _x(4, seed=1)], {}),
    **dict.fromkeys(("convolve2d", "correlate2d"), lambda: ([_x(5, 6), _x(2, 3, seed=1)], {})),
    **dict.fromkeys(
        ("convolve2d_backward", "correlate2d_backward"), lambda: ([_x(6, 8, seed=2), _x(5, 6), _x(2, 3, seed=1)], {})
    ),
    "detrend": lambda: ([_x(4, 6)], {"axis": 1, "bp": 3}),
    "detrend_backward": lambda: ([_x(4, 6)], {"axis": 1}),
    **dict.fromkeys(("fftshift", "ifftshift"), lambda: ([_x(4, 5)], {"axis": 1})),
    "native_group_norm": lambda: ([_x(2, 4, 4, 4), 2], {}),
    "poly": lambda: ([_x(5)], {}),
    **dict.fromkeys(("polyadd", "polysub", "polymul"), lambda: ([_x(5), _x(3, seed=1)], {})),
    "polyder": lambda: ([_x(5), 2], {}),
    "polydiv": lambda: ([_x(5), _x(3, seed=1)], {}),
    "polyint": lambda: ([_x(5), 2, [1.0, 0.5]], {}),
    "polyval": lambda: ([_x(10), _x(4, 6, seed=1)], {}),
    "polyval_backward": lambda: ([_x(4, 6, seed=2), _x(3), _x(4, 6, seed=1)], {}),
    "symmetric_product": lambda: ([_x(4, 6), _x(4, 4)], {"alpha": 0.5, "beta": 2.0}),
    "triangle_attention": lambda: ([*(_x(1, 4, 2, 6, 16, seed=i) for i in range(3)), _x(1, 1, 2, 6, 6)], {}),
    "triangle_multiplication": lambda: ([_x(2, 4, 4, 3), _x(2, 4, 4, 3, seed=1)], {}),
    "triangle_multiplicative_update": lambda: ([_x(1, 4, 4, 5), *_weights(), "incoming"], {}),
}
