"""Neighbourhood attention against windows that are counted key by key, and its gradient."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(0)
CASES: tuple[tuple[tuple[int, ...], Any, Any, Any], ...] = (
    ((40,), 7, 1, False), ((40,), 6, 1, False), ((41,), 5, 3, False), ((40,), 5, 2, True), ((9, 11), 3, 1, False),
    ((9, 11), (5, 4), (1, 2), (False, True)), ((5, 6, 7), 3, 1, False), ((5, 6, 7), (2, 3, 5), 1, (True, False, False)),
)  # fmt: skip


def along(n: int, size: int, step: int, is_causal: bool) -> np.ndarray:
    """[n, n], True where a query of an axis sees a key."""
    seen = np.zeros((n, n), bool)
    for i in range(n):
        own = list(range(i % step, n, step))
        place = own.index(i)
        first = max(place - size + 1, 0) if is_causal else min(max(place - size // 2, 0), len(own) - size)
        seen[i, own[first : place + 1 if is_causal else first + size]] = True
    return seen


def every(value: Any, axes: int) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,) * axes


@pytest.mark.parametrize(("grid", "size", "step", "is_causal"), CASES)
def test_it_is_attention_under_the_windows_mask(grid: tuple[int, ...], size: Any, step: Any, is_causal: Any) -> None:
    axes, tokens = len(grid), int(np.prod(grid))
    seen = [along(*one) for one in zip(grid, *(every(x, axes) for x in (size, step, is_causal)), strict=True)]
    mask = np.zeros((tokens, tokens), bool)
    places = list(itertools.product(*(range(n) for n in grid)))
    for (i, query), (j, key) in itertools.product(enumerate(places), repeat=2):
        mask[i, j] = all(s[a, b] for s, a, b in zip(seen, query, key, strict=True))
    q, k, v = (RNG.standard_normal((2, *grid, heads, 8)) for heads in (4, 2, 2))
    got = bc.neighborhood_attention(q, k, v, size, dilation=step, is_causal=is_causal, scale=0.5)
    flat = [x.reshape(2, tokens, -1, 8) for x in (q, k, v)]
    flash: Any = bc.flash_sdpa
    wanted = flash(*flat, mask=mask[None, None], scale=0.5, layout="bshd")
    np.testing.assert_array_equal(got, wanted.reshape(got.shape))


def test_torch_differentiates_it() -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (torch.tensor(RNG.standard_normal((1, 4, 5, 2, 8)), requires_grad=True) for _ in range(3))
    bc.neighborhood_attention(q, k, v, 3).sum().backward()
    mask = torch.tensor(np.kron(along(4, 3, 1, False), along(5, 3, 1, False)))
    flat = [x.detach().reshape(1, 20, 2, 8).transpose(1, 2).requires_grad_() for x in (q, k, v)]
    torch.nn.functional.scaled_dot_product_attention(*flat, attn_mask=mask).sum().backward()
    for one, other in zip((q, k, v), flat, strict=True):
        torch.testing.assert_close(one.grad, other.grad.transpose(1, 2).reshape(one.shape))


def test_what_it_cannot_do_is_refused() -> None:
    q = RNG.standard_normal((1, 4, 5, 2, 8))
    for given, said in (
        ({"kernel_size": 5}, "kernel_size 5 with dilation 1 is beyond an axis of 4"),
        ({"kernel_size": (3, 3, 3)}, "one for each axis"), ({"kernel_size": 0}, "kernel_size"),
        ({"kernel_size": 3, "is_causal": (True,)}, "one for each axis"),
        ({"kernel_size": 3, "k": q[:, :3]}, "must have the grid"), ({"kernel_size": 3, "q": q[0, 0]}, "one to three"),
        ({"kernel_size": 2, **dict.fromkeys("qkv", q[:, :, ::2])}, "at one stride"),
    ):  # fmt: skip
        with pytest.raises(bc.InvalidProblemError, match=said):
            bc.neighborhood_attention(**{"q": q, "k": q, "v": q, **given})
