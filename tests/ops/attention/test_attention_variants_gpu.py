"""Attention's variants and hyper-connections on a GPU: results and gradients against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu
FLASH: Any = bc.flash_sdpa
N = 300
Made = tuple[list[np.ndarray], dict[str, Any], int]


def _heads(rng: Any, n: int = N, heads: tuple[int, ...] = (8, 2, 2), d: int = 64) -> list[np.ndarray]:
    return [rng.standard_normal((2, h, n, d)) for h in heads]


def _forgetting(rng: Any) -> Made:
    return [*_heads(rng), np.log(rng.uniform(0.9, 1, (2, 8, N)))], {}, 4


def _path(rng: Any) -> Made:
    q, k, v, w = _heads(rng, heads=(8, 2, 2, 2))
    w /= np.linalg.norm(w, axis=-1, keepdims=True)
    return [q, k, v, w, rng.uniform(0, 1, (2, 2, N)), np.log(rng.uniform(0.9, 1, (2, 8, N)))], {}, 6


def _multi_token(rng: Any) -> Made:
    weights = rng.standard_normal((4, 1, 6, 11)) / 8, rng.standard_normal((4, 2, 1, 1))
    return [*_heads(rng, 90, (4, 2, 2)), *weights], {}, 5


def _windows(rng: Any) -> Made:
    left = np.array([3, 40, 128, -1, 0, 200, 17, 64], np.int32)
    return _heads(rng), {"window_left": left, "window_right": (0, None) * 4}, 3


def _tiles(rng: Any) -> Made:
    return _heads(rng, 12 * 32 + 9), {"tiles": (3, 2, 2), "tile_volume": 32, "window": (3, 1, 1), "text_length": 9}, 3


def _skip(rng: Any) -> Made:
    q, k, v = _heads(rng, 320)
    k = 2 * k[:, :, ::64].repeat(64, 2) + 0.05 * k
    return [q, k, v], {"threshold": 1e-7, "is_causal": True}, 3


def _select(rng: Any) -> Made:
    q, k, v = (rng.standard_normal((N, h, 64)) for h in (16, 1, 1))
    return [q, k, v, rng.integers(-1, 4, (N, 1, 3)), np.array([0, 170, 171, 290], np.int32)], {"block_size": 64}, 3


def _pre(rng: Any) -> Made:
    return [rng.standard_normal((500, 4, 256)), rng.standard_normal((500, 4))], {}, 2


def _post(rng: Any) -> Made:
    weights = rng.standard_normal((500, 4)), rng.standard_normal((500, 4, 4))
    return [rng.standard_normal((500, 256)), rng.standard_normal((500, 4, 256)), *weights], {}, 4


def _mhc(rng: Any) -> Made:
    weight = rng.standard_normal((24, 512)) / 20
    return [rng.standard_normal((500, 4, 128)), weight, np.array([0.5, 1, 2]), rng.standard_normal(24)], {}, 4


def _sinkhorn(rng: Any) -> Made:
    return [rng.standard_normal((3000, 4, 4))], {}, 1


CASES: dict[str, tuple[Callable[..., Any], Callable[[Any], Made]]] = {
    "forgetting": (bc.forgetting_attention, _forgetting), "path": (bc.path_attention, _path),
    "multi_token": (bc.multi_token_attention, _multi_token), "windows": (FLASH, _windows),
    "tiles": (bc.sliding_tile_attention, _tiles), "skip": (bc.skip_softmax_attention, _skip),
    "select": (bc.block_select_attention_varlen, _select), "pre": (bc.hyper_connection_pre, _pre),
    "post": (bc.hyper_connection_post, _post), "mhc": (bc.mhc_weights, _mhc), "sinkhorn": (bc.sinkhorn, _sinkhorn),
}  # fmt: skip
BOUND = {"float64": 1e-9, "float32": 2e-4, "bfloat16": 0.06}


def _results(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


def _near(got: np.ndarray, want: np.ndarray, element: str) -> None:
    """Within a bound of the largest number, every element."""
    assert got.shape == want.shape
    assert np.abs(got - want).max(initial=0) <= BOUND[element] * max(1.0, np.abs(want).max(initial=0))


@pytest.mark.parametrize("element", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_results(name: str, element: str) -> None:
    import cupy
    import ml_dtypes

    function, make = CASES[name]
    arrays, facts, floats = make(np.random.default_rng(3))
    dtype = ml_dtypes.bfloat16 if element == "bfloat16" else np.dtype(element)
    held = [x.astype(dtype) if i < floats else x for i, x in enumerate(arrays)]
    want = function(*(x.astype(np.float64) if i < floats else x for i, x in enumerate(held)), **facts)
    placed = {n: cupy.asarray(x) if isinstance(x, np.ndarray) else x for n, x in facts.items()}
    got = function(*(cupy.asarray(x) for x in held), **placed)
    for one, other in zip(_results(got), _results(want), strict=True):
        _near(one.get().astype(np.float64), other, element)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    torch = pytest.importorskip("torch")
    function, make = CASES[name]
    arrays, facts, floats = make(np.random.default_rng(4))
    way, slopes = np.random.default_rng(5), []
    ways: list[Any] = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        leaves = [torch.from_numpy(x).to(device) for x in arrays]
        leaves = [x.to(dtype).requires_grad_() if i < floats else x for i, x in enumerate(leaves)]
        placed = {n: torch.from_numpy(x).to(device) if isinstance(x, np.ndarray) else x for n, x in facts.items()}
        made = _results(function(*leaves, **placed))
        ways = ways or [torch.from_numpy(way.standard_normal(tuple(y.shape))) for y in made]
        loss = sum((y * w.to(y)).sum() for y, w in zip(made, ways, strict=True))
        slopes.append([x.double().cpu().numpy() for x in torch.autograd.grad(loss, leaves[:floats])])
    for want, got in zip(*slopes, strict=True):
        _near(got, want, "float32")


def test_gradients_of_chosen_blocks_by_hand() -> None:
    import cupy

    arrays, facts, _ = _select(np.random.default_rng(6))
    y, lse = bc.block_select_attention_varlen(*arrays, **facts, return_lse=True)
    want = bc.block_select_attention_varlen_backward(*arrays, y, lse, y, **facts)
    held = [cupy.asarray(x) for x in arrays]
    y, lse = bc.block_select_attention_varlen(*held, **facts, return_lse=True)
    for one, other in zip(bc.block_select_attention_varlen_backward(*held, y, lse, y, **facts), want, strict=True):
        _near(one.get(), other, "float64")
