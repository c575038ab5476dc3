"""sliding_tile_attention: windows counted tile by tile, text, windows by head, gradients, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(0)
FLASH: Any = bc.flash_sdpa


def along(n: int, w: int) -> np.ndarray:
    """[n, n]: the w tiles that each tile sees, moved inwards at the edges."""
    made = np.zeros((n, n), bool)
    for i in range(n):
        first = min(max(i - w // 2, 0), max(n - w, 0))
        made[i, first : first + w] = True
    return made


def seen(tiles: Any, volume: int, window: Any, text: int) -> np.ndarray:
    places = list(itertools.product(*map(range, tiles)))
    axes = [along(n, w) for n, w in zip(tiles, window, strict=True)]
    by_tile = np.array([[all(s[a, b] for s, a, b in zip(axes, x, y, strict=True)) for y in places] for x in places])
    made = np.ones((len(places) * volume + text,) * 2, bool)
    made[: made.shape[0] - text, : made.shape[0] - text] = np.kron(by_tile, np.ones((volume, volume), bool))
    return made


@pytest.mark.parametrize(
    ("tiles", "volume", "window"),
    [((4, 3, 2), 16, (3, 1, 1)), ((3, 3, 3), 5, (1, 3, 3)), ((1, 2, 5), 32, (1, 5, 3)), ((2, 2, 2), 1, (1, 1, 1))],
)
@pytest.mark.parametrize("text", [0, 7])
def test_it_is_attention_under_the_windows_of_tiles(tiles: Any, volume: int, window: Any, text: int) -> None:
    n = int(np.prod(tiles)) * volume + text
    q, k, v = (RNG.standard_normal((2, heads, n, 8)) for heads in (4, 2, 2))
    wanted, lse = FLASH(q, k, v, mask=seen(tiles, volume, window, text), scale=0.4, return_lse=True)
    given = {"tiles": tiles, "tile_volume": volume, "window": window, "text_length": text, "scale": 0.4}
    got, other = bc.sliding_tile_attention(q, k, v, **given, return_lse=True)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(other, lse, rtol=1e-12)
    turned, out = [x.swapaxes(1, 2) for x in (q, k, v)], np.empty((2, n, 4, 8))
    assert bc.sliding_tile_attention(*turned, **given, layout="bshd", out=out) is out
    np.testing.assert_allclose(out.swapaxes(1, 2), wanted, rtol=1e-12, atol=1e-14)


def test_windows_by_head_and_gradients() -> None:
    torch = pytest.importorskip("torch")
    tiles, volume, windows = (3, 2, 4), 4, ((1, 1, 3), (3, 1, 1))
    mask = np.stack([seen(tiles, volume, window, 3) for window in windows])
    leaves = [torch.from_numpy(RNG.standard_normal((1, 2, 99, 8))).requires_grad_() for _ in range(3)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=torch.from_numpy(mask))
    way = torch.from_numpy(RNG.standard_normal((1, 2, 99, 8)))
    slopes = torch.autograd.grad((wanted * way).sum(), leaves)
    for given in (windows, torch.tensor(windows)):
        y = bc.sliding_tile_attention(*leaves, tiles, volume, given, text_length=3)
        torch.testing.assert_close(y, wanted, rtol=1e-11, atol=1e-12)
        for one, other in zip(torch.autograd.grad((y * way).sum(), leaves), slopes, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_what_does_not_fit_is_refused() -> None:
    q = RNG.standard_normal((1, 2, 16, 8))
    good: dict[str, Any] = {"q": q, "k": q, "v": q, "tiles": (2, 2, 1), "tile_volume": 4, "window": (1, 1, 1)}
    for given, said in (
        ({"tiles": (2, 2)}, "tiles must have three"), ({"tiles": (2, 2, 2)}, "q must have"),
        ({"window": (1, 2, 1)}, "odd"),
        ({"window": (1, 1)}, "window must have three"), ({"window": ((1, 1, 1),)}, "each of 2 heads"),
        ({"window": np.ones((2, 3))}, "window must be three numbers"), ({"k": q[:, :, 1:]}, "k must have"),
        ({"tile_volume": 0}, "tile_volume"), ({"text_length": -1}, "text_length"), ({"q": q[0]}, "four axes"),
        ({"window": 3}, "window"),
    ):  # fmt: skip
        with pytest.raises(bc.InvalidProblemError, match=said):
            bc.sliding_tile_attention(**{**good, **given})
