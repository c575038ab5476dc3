"""The recipes of docs/cookbook/masks.md beside attention under dense masks and biases."""

from __future__ import annotations

from typing import Any

import numpy as np

import baracuda_py as bc

RNG = np.random.default_rng(0)
B, H, N, D = 2, 2, 96, 8
QUERY, KEY, VALUE = RNG.standard_normal((3, B, H, N, D))
QUERIES, KEYS = np.arange(N)[:, None], np.arange(N)


def check(f: Any, dense: np.ndarray, blocks: bool = True, is_causal: bool = False, **given: Any) -> None:
    """That f is attention under a dense mask or bias, under its own block mask, too."""
    mask = np.broadcast_to(dense, (B, H, N, N))
    more: dict[str, Any] = {"is_causal": is_causal}
    wanted = bc.flash_sdpa(QUERY, KEY, VALUE, mask=mask, **more)
    np.testing.assert_allclose(f(QUERY, KEY, VALUE, **given, **more), wanted, rtol=1e-12, atol=1e-14)
    if blocks:
        made = f.block_mask(QUERY, KEY, query_block=16, key_block=32, **given)
        assert (made.kinds == 0).any()
        np.testing.assert_array_equal(
            f(QUERY, KEY, VALUE, block_mask=made, **given, **more), f(QUERY, KEY, VALUE, **given, **more)
        )


def test_documents() -> None:
    doc = np.sort(RNG.integers(0, 3, (B, N)))
    check(bc.attention(mask="doc[b, q] == doc[b, k]"), (doc[:, :, None] == doc[:, None])[:, None], doc=doc)


def test_a_prefix() -> None:
    prefix = np.array([40, 7])
    seen = (QUERIES >= KEYS) | (prefix[:, None, None] > KEYS)
    check(bc.attention(mask="k <= q or k < prefix[b]"), seen[:, None], prefix=prefix)


def test_a_window_and_the_first_tokens() -> None:
    f = bc.attention(mask="q - k < window or k < first", window=20, first=4)
    check(f, (QUERIES - KEYS < 20) | (KEYS < 4), blocks=False, is_causal=True)
    f = bc.attention(mask="0 <= q - k < window or k < first", window=20, first=4)
    check(f, ((QUERIES - KEYS < 20) & (QUERIES >= KEYS)) | (KEYS < 4))


def test_alibi_under_a_soft_cap() -> None:
    slope = np.array([0.5, 0.25])
    s = QUERY @ KEY.swapaxes(-1, -2) * D**-0.5
    capped = 30 * np.tanh((s - slope[:, None, None] * (QUERIES - KEYS)) / 30)
    check(bc.attention("softcap(s - slope[h] * (q - k), 30.0)"), capped - s, False, True, slope=slope)


def test_forgetting() -> None:
    gate = np.cumsum(np.log(RNG.uniform(0.9, 1, (B, H, N))), -1)
    f = bc.attention("s + log_forget[b, h, q] - log_forget[b, h, k]")
    check(f, gate[..., None] - gate[..., None, :], False, True, log_forget=gate)
    assert f.vjp(QUERY, QUERY, KEY, VALUE, wrt="log_forget", log_forget=gate).shape == gate.shape


def test_sliding_tiles() -> None:
    def axis(a: str) -> str:
        at, to = f"q // volume // t{a} % n{a}", f"k // volume // t{a} % n{a}"
        return f"abs(minimum(maximum({at}, w{a} // 2), n{a} - 1 - w{a} // 2) - ({to})) <= w{a} // 2"

    grid, window = (4, 3, 2), (1, 3, 1)
    places = np.stack(np.unravel_index(np.arange(N) // 4, grid))
    half = np.array(window)[:, None, None] // 2
    centre = np.clip(places[:, :, None], half, np.array(grid)[:, None, None] - 1 - half)
    seen = (np.abs(centre - places[:, None]) <= half).all(0)
    numbers: dict[str, Any] = {
        f"{name}{a}": x[a] for name, x in (("n", grid), ("w", window), ("t", (6, 2, 1))) for a in range(3)
    }
    check(bc.attention(mask=" and ".join(map(axis, "012"))), seen, volume=4, **numbers)
