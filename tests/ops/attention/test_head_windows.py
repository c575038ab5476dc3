"""Windows that differ by head in flash_sdpa: dense masks of theirs, gradients, block masks, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(0)
FLASH: Any = bc.flash_sdpa
BACK: Any = bc.flash_sdpa_backward


def seen(n: int, m: int, left: Any, right: Any, shift: int = 0) -> np.ndarray:
    """[heads, n, m], pair by pair."""
    made = np.ones((len(left), n, m), bool)
    for h, i, j in np.ndindex(*made.shape):
        back, ahead = i + shift - j, j - i - shift
        made[h, i, j] = (left[h] is None or back <= left[h]) and (right[h] is None or ahead <= right[h])
    return made


@pytest.mark.parametrize(("n", "m"), [(9, 9), (5, 12), (140, 200), (1, 1), (0, 3)])
@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
def test_it_is_attention_under_the_masks_of_the_heads(n: int, m: int, alignment: str) -> None:
    q, k, v = RNG.standard_normal((2, 4, n, 8)), RNG.standard_normal((2, 2, m, 8)), RNG.standard_normal((2, 2, m, 6))
    left, right = (3, None, 0, 60), (2, 0, None, None)
    mask = seen(n, m, left, right, m - n if alignment == "bottom_right" else 0)[None]
    facts = {"causal_alignment": alignment}
    wanted, wanted_lse = FLASH(q, k, v, mask=mask, return_lse=True, **facts)
    arrays = [
        np.array([-1 if x is None else x for x in one], kind) for one, kind in ((left, np.int32), (right, np.int64))
    ]
    dy = RNG.standard_normal(wanted.shape)
    for window in ((left, right), (list(left), arrays[1]), arrays):
        given = {"window_left": window[0], "window_right": window[1], **facts}
        y, lse = FLASH(q, k, v, return_lse=True, **given)
        np.testing.assert_allclose(y, wanted, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(lse, wanted_lse, rtol=1e-12)
        for one, other in zip(BACK(q, k, v, y, lse, dy, **given), BACK(q, k, v, y, lse, dy, mask=mask), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


def test_one_number_beside_numbers_by_head_causality_and_layouts() -> None:
    q, k, v = RNG.standard_normal((3, 2, 2, 12, 8))
    mask = seen(12, 12, (1, 5), (0, 0))[None]
    wanted = FLASH(q, k, v, mask=mask)
    turned, out = [x.swapaxes(1, 2) for x in (q, k, v)], np.empty((2, 12, 2, 8))
    for given in ({"window_left": (1, 5), "window_right": 0}, {"window_left": np.array([1, 5]), "is_causal": True}):
        np.testing.assert_allclose(FLASH(q, k, v, **given), wanted, rtol=1e-12, atol=1e-14)
        assert FLASH(*turned, **given, layout="bshd", out=out) is out
        np.testing.assert_allclose(out.swapaxes(1, 2), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("tuples", [True, False])
def test_torch_differentiates_it(tuples: bool) -> None:
    torch = pytest.importorskip("torch")
    leaves = [torch.from_numpy(RNG.standard_normal((1, 2, 150, 8))).requires_grad_() for _ in range(3)]
    left: Any = (40, 3) if tuples else torch.tensor([40, 3])
    y = FLASH(*leaves, window_left=left, is_causal=True)
    mask = torch.from_numpy(seen(150, 150, (40, 3), (0, 0)))
    wanted = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=mask)
    way = torch.from_numpy(RNG.standard_normal((1, 2, 150, 8)))
    for one, other in zip(*(torch.autograd.grad((x * way).sum(), leaves) for x in (y, wanted)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_jax_differentiates_it() -> None:
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    flash: Any = bj.flash_sdpa
    q, k, v = RNG.standard_normal((3, 1, 2, 6, 8)).astype(np.float32)
    mask = seen(6, 6, (1, 3), (0, 1))[None]
    for given in (
        {"window_left": (1, 3), "window_right": (0, 1)},
        {"window_left": np.array([1, 3]), "window_right": (0, 1)},
    ):
        slopes = [
            jax.jit(jax.grad(lambda q, f=f: flash(q, k, v, **f).sum()))(q)
            for f in (given, {"mask": mask})  # type: ignore[misc]
        ]
        np.testing.assert_allclose(*slopes, rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_refused() -> None:
    q, k, v = RNG.standard_normal((3, 1, 2, 6, 8))
    for given, said in (
        ({"window_left": (1,)}, "window_left must be a number or one for each of the 2 heads"),
        ({"window_right": np.zeros((2, 2), np.int32)}, "window_right must be a number or one"),
        ({"window_left": np.zeros(2)}, "int32 or int64"), ({"window_left": (1, -2)}, "window_left must be an integer"),
        ({"window_left": (1, 1.5)}, "window_left must be"), ({"window_left": "ab"}, "window_left"),
        ({"window_left": (1, 2), "mask": "k < 3"}, "do not go with a formula"),
        ({"window_left": (1, 2), "score": "s * 2"}, "do not go with a formula"),
        ({"window_left": (1, 2), "left": 3}, "left"),
    ):  # fmt: skip
        with pytest.raises((bc.InvalidProblemError, TypeError), match=said):
            FLASH(q, k, v, **given)
        if "left" not in given:
            with pytest.raises((bc.InvalidProblemError, TypeError), match=said):
                BACK(q, k, v, q, q[..., 0], q, **given)
    with pytest.raises(bc.InvalidProblemError, match="four axes"):
        FLASH(q[0], k[0], v[0], window_left=(1, 2))
