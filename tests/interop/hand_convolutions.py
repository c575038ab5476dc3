"""Operands of convolutions that are written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[list[Any], dict[str, Any]]
_SPACE = (5, 4, 3)


def _drawn(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _layer(n: int) -> list[Any]:
    return _drawn((2, 4, *_SPACE[:n]), (6, 4, *(2,) * n), (6,))


def _turned(n: int) -> list[Any]:
    return _drawn((2, 4, *_SPACE[:n]), (4, 6, *(2,) * n), (6,))


def _codes() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.integers(-128, 128, (2, 4, 5, 4), dtype=np.int8), rng.integers(-128, 128, (6, 4, 2, 2), dtype=np.int8)


def _qlinear() -> list[Any]:
    (x, w), zero, scale = _codes(), np.array([3], np.int8), np.array([0.5], np.float32)
    return [x, scale, zero, w, scale, None, scale * 100, zero]


CONVOLUTIONS: dict[str, Callable[[], Call]] = {
    "conv1d": lambda: (_layer(1), {"padding": 1}),
    "conv2d": lambda: (_layer(2), {"padding": 1, "activation": "silu"}),
    "conv3d": lambda: (_layer(3), {"stride": 2}),
    "conv_transpose1d": lambda: (_turned(1), {"stride": 2}),
    "conv_transpose2d": lambda: (_turned(2), {"stride": 2, "output_padding": 1}),
    "conv_transpose3d": lambda: (_turned(3), {"padding": 1}),
    "conv_integer": lambda: ([*_codes()], {"padding": 1}),
    "qlinear_conv": lambda: (_qlinear(), {"stride": 2}),
    "convolution": lambda: ([*_layer(2), 1, 1, 1, False, 0, 1], {}),
    "conv_tbc": lambda: (_drawn((5, 2, 4), (3, 4, 6), (6,)), {}),
    "conv": lambda: ([*_layer(2)[:2], (1, 2), "SAME"], {}),
    "conv_with_general_padding": lambda: ([*_layer(2)[:2], (1, 2), [(1, 0), (2, 1)]], {}),
    "conv_general_dilated": lambda: ([*_layer(2)[:2], (1, 2), "SAME"], {"rhs_dilation": (1, 2)}),
    "conv_transpose": lambda: ([*_drawn((2, 5, 4, 4), (2, 2, 4, 6)), (2, 1), "SAME"], {}),
    "conv_general_dilated_patches": lambda: ([_layer(2)[0], (2, 2), (1, 2), "SAME"], {}),
    "conv_general_dilated_local": lambda: (
        [*_drawn((2, 4, 5, 4), (6, 16, 4, 3)), (1, 1), "VALID", (2, 2)], {}
    ),
    "fold_batch_norm": lambda: (
        [*_drawn((6, 4, 2, 2), (6,), (6,)), *np.abs(_drawn((6,))), *_drawn((6,), (6,))], {}
    ),
    "standardize_weight": lambda: (_drawn((6, 4, 2, 2)), {}),
}  # fmt: skip
