"""Operands for the functions of shape and layout that are written by hand: see `hand_written`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[list[Any], dict[str, Any]]


def _x(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _at(*index: int) -> np.ndarray:
    return np.array(index, np.int32)


def _images() -> np.ndarray:
    return _x(2, 4, 4, 6)


_LIST = ("column_stack", "dstack", "hstack", "row_stack", "stack", "vstack", "block", "cat", "concat", "concatenate")
LAYOUT: dict[str, Callable[[], Call]] = {
    **dict.fromkeys(_LIST, lambda: ([[_x(3, 4), _x(3, 4, seed=1)]], {})),
    "append": lambda: ([_x(3, 4), _x(2, 4, seed=1)], {"axis": 0}),
    **dict.fromkeys(("as_strided", "as_strided_copy"), lambda: ([_x(4, 6), (2, 3), (1, 2), 5], {})),
    "as_strided_scatter": lambda: ([_x(4, 6), _x(2, 3, seed=1), (2, 3), (12, 2), 5], {}),
    **dict.fromkeys(("channel_shuffle", "native_channel_shuffle"), lambda: ([_images(), 2], {})),
    "pixel_shuffle": lambda: ([_images(), 2], {}),
    "pixel_unshuffle": lambda: ([_images(), 2], {}),
    "depth_to_space": lambda: ([_images(), 2], {}),
    "space_to_depth": lambda: ([_images(), 2], {}),
    **dict.fromkeys(("pad", "constant_pad_nd"), lambda: ([_x(4, 6), (1, 2)], {"value": 2.0})),
    "pad_in_dim": lambda: ([_x(4, 6), 1.5, ((1, 0, 1), (0, -2, 0))], {}),
    "roll": lambda: ([_x(4, 6), 2], {"axis": 1}),
    "tile": lambda: ([_x(4, 6), (2, 1)], {}),
    "expand_copy": lambda: ([_x(4, 1), (2, 4, 3)], {}),
    "permute_copy": lambda: ([_x(2, 3, 4), 2, 0, 1], {}),
    "transpose_copy": lambda: ([_x(2, 3, 4), 2, 0], {}),
    "narrow_copy": lambda: ([_x(4, 6), 1, 2, 3], {}),
    "slice_copy": lambda: ([_x(4, 6), 1, 1, 6, 2], {}),
    **dict.fromkeys(("slice", "slice_static"), lambda: ([_x(4, 6), (1, 0), (4, 5), (1, 2)], {})),
    "unfold_copy": lambda: ([_x(4, 6), 1, 3, 2], {}),
    "diagonal_copy": lambda: ([_x(4, 6)], {}),
    "rot90": lambda: ([_x(4, 6)], {}),
    "diag": lambda: ([_x(6)], {}),
    "diag_embed": lambda: ([_x(4, 6)], {}),
    "diagflat": lambda: ([_x(2, 3)], {}),
    "diagonal_scatter": lambda: ([_x(4, 6), _x(4, seed=1)], {}),
    "select_scatter": lambda: ([_x(4, 6), _x(4, seed=1), 1, 2], {}),
    "slice_scatter": lambda: ([_x(4, 6), _x(4, 2, seed=1)], {"axis": 1, "start": 1, "stop": 3}),
    "fill_diagonal": lambda: ([_x(4, 6), 2.0], {}),
    "view_copy": lambda: (
        [_x(4, 6)],
        {"loops": (6, 4), "start": (0, 0), "steps": ((0, 1), (1, 0)), "out_shape": (6, 4)},
    ),
    "view_copy_backward": lambda: (
        [_x(6, 4)],
        {"shape": (4, 6), "loops": (6, 4), "start": (0, 0), "steps": ((0, 1), (1, 0))},
    ),
    "view_scatter": lambda: (
        [_x(2), _x(4, 6)],
        {"loops": (2,), "start": (0, 0), "steps": ((1, 1),), "out_shape": (2,)},
    ),
    "view_scatter_backward": lambda: (
        [_x(4, 6)],
        {"loops": (2,), "start": (0, 0), "steps": ((1, 1),), "out_shape": (2,)},
    ),
    "dynamic_slice": lambda: ([_x(4, 6), _at(1, 2), (2, 3)], {}),
    "slice_at": lambda: ([_x(4, 6), _at(1, 2)], {"sizes": (2, 3)}),
    "dynamic_slice_backward": lambda: ([_x(2, 3), _at(1, 2)], {"shape": (4, 6)}),
    "dynamic_slice_in_dim": lambda: ([_x(4, 6), np.array(1, np.int32), 2], {}),
    "dynamic_index_in_dim": lambda: ([_x(4, 6), np.array(1, np.int32)], {"keepdims": False}),
    **dict.fromkeys(("dynamic_update_slice",), lambda: ([_x(4, 6), _x(2, 3, seed=1), _at(1, 2)], {})),
    "update_slice_at": lambda: ([_x(4, 6), _x(2, 3, seed=1), _at(1, 2)], {}),
    **dict.fromkeys(("write_slice", "write_at"), lambda: ([_x(4, 6), _x(2, 3, seed=1), _at(1, 2)], {})),
    "dynamic_update_slice_backward": lambda: ([_x(4, 6), _at(1, 2)], {"sizes": (2, 3)}),
    "dynamic_update_slice_in_dim": lambda: ([_x(4, 6), _x(2, 6, seed=1), np.array(1, np.int32), 0], {}),
    "dynamic_update_index_in_dim": lambda: ([_x(4, 6), _x(6, seed=1), np.array(1, np.int32), 0], {}),
    "concat_backward": lambda: ([_x(5, 4)], {"shapes": ((2, 4), (3, 4))}),
    "pad_backward": lambda: ([_x(5, 4)], {"shape": (3, 4), "padding": ((1, 1), (0, 0))}),
    "triangle_backward": lambda: ([_x(5, 4)], {"upper": True}),
    "im2col": lambda: ([_x(1, 2, 4, 5), 2], {"padding": 1}),
    **dict.fromkeys(("col2im", "fold"), lambda: ([_x(1, 8, 12), (4, 5), 2], {})),
    **dict.fromkeys(("repeat_interleave", "repeat"), lambda: ([_x(4, 6), 3], {"axis": 1})),
    "run_index": lambda: ([np.array([1, 4, 4, 9], np.int64)], {"total": 9}),
    "one_hot": lambda: ([np.array([0, 2, 1]), 3], {}),
    "delete": lambda: ([_x(4, 6), (1, 3)], {"axis": 1}),
    "insert": lambda: ([_x(4, 6), 2, _x(1, 4, seed=1)], {"axis": 1}),
    "resize": lambda: ([_x(2, 3), (4, 4)], {}),
    "combinations": lambda: ([_x(4)], {}),
    "concat_mla_k": lambda: ([_x(3, 2, 4), _x(3, 1, 2, seed=1)], {}),
    "packbits": lambda: ([np.array([[1, 0, 2], [0, 1, 1]], np.uint8)], {"axis": 1}),
    "unpackbits": lambda: ([np.array([[1, 255]], np.uint8)], {"axis": 1}),
    "toeplitz": lambda: ([_x(4), _x(5, seed=1)], {}),
    "hankel": lambda: ([_x(4), _x(5, seed=1)], {}),
    "circulant": lambda: ([_x(4)], {}),
    "convolution_matrix": lambda: ([_x(3), 5], {}),
    "leslie": lambda: ([_x(4), _x(3, seed=1)], {}),
    "fiedler_companion": lambda: ([_x(4)], {}),
    **dict.fromkeys(("split_copy", "split_with_sizes_copy"), lambda: ([_x(4, 6), (2, 4)], {"axis": 1})),
    "unbind_copy": lambda: ([_x(3, 4)], {}),
    "companion": lambda: ([_x(4)], {}),
    "generate": lambda: ([_x(6)], {"steps": (1,), "form": "counted"}),
}
