"""Operands of the functions of a mixture's experts: rows of `hand_written`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import baracuda_py as bc

Call = tuple[list[Any], dict[str, Any]]


def _made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _whole(*shape: int) -> np.ndarray:
    return np.round(2 * _made(*shape))


def _stored() -> list[np.ndarray]:
    """Codes of both products, then their scales."""
    made = [bc.block_quantize(_made(3, n, k) / 8, kind="mxfp4") for n, k in ((64, 64), (64, 32))]
    return [parts[place] for place in range(2) for parts in made]


EXPERTS: dict[str, Callable[[], Call]] = {
    "moe": lambda: (  # of whole numbers: what a recorded call rounds besides is no matter
        [_whole(4, 3), np.array([[0, 1], [2, 0], [1, 2], [2, 1]]), _whole(4, 2), _whole(3, 4, 3), _whole(3, 3, 2)],
        {"activation": "reglu"},
    ),
    "moe_quantized": lambda: (  # of so many tokens that none is read as few
        [_made(20, 64), np.array([[0, 1], [2, 0], [1, 2], [2, 1]] * 5), np.abs(_made(20, 2)), *_stored()],
        {"kind": "mxfp4"},
    ),
    "moe_decode_quantized": lambda: (
        [_made(4, 64), np.array([[0, 1], [2, 0], [1, 2], [2, 1]]), np.abs(_made(4, 2)), *_stored()],
        {"kind": "mxfp4"},
    ),
    "fp8_linear": lambda: ([_made(4, 32).astype(np.float16), _made(3, 32, seed=1).astype(np.float16)], {}),
    "moe_align_block_size": lambda: ([np.array([[0, 1], [2, 0], [1, 2]]), 4, 3], {}),
    "moe_permute_pad_with_probs": lambda: (
        [_made(3, 4), np.array([[0, 1], [2, 0], [1, 2]]), np.abs(_made(3, 2))],
        {"num_experts": 3, "align_size": 4},
    ),
    "moe_sort_chunks_by_index": lambda: ([_made(6, 3), np.array([1, 3, 2]), np.array([2, 0, 1])], {}),
    "moe_sort_chunks_by_index_with_probs": lambda: (
        [_made(6, 3), _made(6, seed=1), np.array([1, 3, 2]), np.array([2, 0, 1])],
        {},
    ),
    "sequence_balancing_loss": lambda: ([_made(2, 4, 6), np.array([[[0, 1]] * 4] * 2)], {}),
    "expert_choice": lambda: ([_made(5, 3), 2], {}),
    "sinkhorn_normalize": lambda: ([_made(3, 3)], {"iterations": 3}),
}
