"""Calls of clouds, graphs, spellings and decoding, for what hands arrays of other packages to every function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _x(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape).astype(np.float32)


_INDPTR, _INDICES = np.array([0, 2, 3, 5]), np.array([1, 2, 0, 0, 1])
_SITES = np.array([[0, 1, 2], [0, 3, 3], [1, 0, 2]])
_WINDOW: dict[str, Any] = {"spatial_shape": (4, 5), "padding": 1}
_TEXT = np.array([[1, 2, 1, 2], [3, 0, 3, 1]])

CLOUDS: dict[str, Callable[[], tuple[list[Any], dict[str, Any]]]] = {
    "ball_query": lambda: ([_x(2, 9, 3), _x(2, 4, 3, seed=1), 0.5, 3], {}),
    "chamfer_distance": lambda: ([_x(2, 9, 3), _x(2, 4, 3, seed=1)], {}),
    "ctc_align": lambda: ([np.log(_x(6, 2, 4)), np.array([[1, 2], [3, 0]]), np.array([6, 5]), np.array([2, 1])], {}),
    "ctc_beam_decode": lambda: ([np.log(_x(6, 2, 4)), np.array([6, 3])], {"beam_width": 5, "nbest": 2}),
    "ctc_collapse": lambda: ([np.array([[1, 0], [1, 2], [0, 2], [1, 1]])], {}),
    "ctc_greedy_decode": lambda: ([_x(6, 2, 4), np.array([6, 3])], {}),
    "draft_tree": lambda: (
        [np.array([7]), np.array([[1, 2, 3, 4]]), np.array([[-1, -1, 0, 1]]), -_x(1, 4)],
        {"nodes": 3},
    ),
    "edit_distance": lambda: ([_TEXT, np.array([[1, 2, 2], [0, 3, 1]])], {}),
    "farthest_point_sample": lambda: ([_x(2, 9, 3), 4], {}),
    "grid_cells": lambda: ([_x(2, 9, 3), 0.25, 0.0, 0.99], {}),
    "mirostat_mask": lambda: ([_x(2, 6), 2.5], {}),
    "mirostat_sample": lambda: ([_x(2, 6), np.float32([4, 5])], {"seed": 3}),
    "nearest_points": lambda: ([_x(2, 9, 3), _x(2, 4, 3, seed=1), 3], {}),
    "neighbor_sample": lambda: ([_INDPTR, _INDICES, np.array([2, 0])], {"k": 2, "seed": 3}),
    "random_walk": lambda: ([_INDPTR, _INDICES, np.array([2, 0])], {"length": 3, "seed": 3}),
    "repeat_penalties": lambda: ([_x(2, 6), _TEXT], {"ngram": 2, "multiplier": 0.5}),
    "sparse_conv": lambda: ([_x(3, 4), np.array([[0, -(2**63)], [2, 1]]), _x(2, 4, 5, seed=1), _x(5)], {}),
    "sparse_conv_sites": lambda: ([_SITES, 3], {"max_sites": 8, **_WINDOW}),
    "sparse_conv_table": lambda: ([_SITES, _SITES, 3], dict(_WINDOW)),
    "submanifold_conv": lambda: ([_x(3, 4), _SITES, _x(3, 3, 4, 5, seed=1)], {"spatial_shape": (4, 5)}),
    "stochastic_depth": lambda: ([_x(4, 6), 0.5], {"seed": 3}),
    "xtc_mask": lambda: ([_x(2, 6), 0.1, 1.0], {"seed": 3}),
}
