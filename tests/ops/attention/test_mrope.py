"""Sections of rope and qk_norm_rope: positions along several axes, as Qwen2-VL and Qwen3-VL turn by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

BATCH, TOKENS, D = 2, 7, 128
QWEN2, QWEN3 = (16, 24, 24), (24, 20, 20)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def places() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 900, (3, BATCH, TOKENS))


def tables(positions: np.ndarray, pairs_of: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [batch, tokens, pairs] where pair j turns by positions[pairs_of[j]]."""
    inv_freq = 10000.0 ** (-np.arange(D // 2) / (D // 2))
    angle = np.stack([positions[axis] * inv_freq[j] for j, axis in enumerate(pairs_of)], -1)
    return np.cos(angle), np.sin(angle)


def qwen2() -> list[int]:
    """Hugging Face splits the cosines in sections and takes one of each axis."""
    return [axis for axis, count in enumerate(QWEN2) for _ in range(count)]


def qwen3() -> list[int]:
    """Hugging Face: freqs[0][offset : 3 · section : 3] = freqs[axis][…] for the axes 1 and 2."""
    found = np.zeros(D // 2, int)
    for axis in (1, 2):
        found[axis : 3 * QWEN3[axis] : 3] = axis
    assert (np.bincount(found) == QWEN3).all()
    return found.tolist()


CASES = [
    (qwen2(), {"mrope_section": QWEN2}),
    (qwen3(), {"mrope_section": QWEN3, "mrope_interleaved": True}),
    ([1] * 64, {"mrope_section": (0, 64, 0)}),
]


@pytest.mark.parametrize(("pairs_of", "sections"), CASES)
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope_is_the_models(pairs_of: list[int], sections: dict[str, Any], pairing: str) -> None:
    x, positions = draw(BATCH, 3, TOKENS, D), places()
    cos, sin = tables(positions, pairs_of)
    got = bc.rope(x, positions, pairing=pairing, **sections)
    want = bc.rope(x, cos=cos, sin=sin, pairing=pairing)
    np.testing.assert_allclose(got, want, atol=1e-12)
    back = bc.rope_backward(got, positions, pairing=pairing, **sections)
    np.testing.assert_allclose(back, x, atol=1e-12)


@pytest.mark.parametrize(("pairs_of", "sections"), CASES)
def test_qk_norm_rope_is_the_models(pairs_of: list[int], sections: dict[str, Any]) -> None:
    q, k, weight, positions = draw(BATCH, 4, TOKENS, D), draw(BATCH, 2, TOKENS, D, seed=1), draw(D, seed=2), places()
    cos, sin = tables(positions, pairs_of)
    got = bc.qk_norm_rope(q, k, weight, None, positions, **sections)
    want = bc.qk_norm_rope(q, k, weight, None, cos=cos, sin=sin)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_equal_positions_are_plain_rope() -> None:
    x, positions = draw(BATCH, 3, TOKENS, D), places()[0]
    same = np.stack([positions] * 3)
    np.testing.assert_array_equal(bc.rope(x, same, mrope_section=QWEN2), bc.rope(x, positions))
    packed = same[:, :1]  # of one sample, for all
    np.testing.assert_array_equal(bc.rope(x, packed, mrope_section=QWEN2), bc.rope(x, positions[:1]))


def test_gradients_in_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(draw(1, 2, 5, D)).requires_grad_()
    positions = torch.from_numpy(places()[:, :1, :5].copy())
    bc.rope(x, positions, mrope_section=QWEN3, mrope_interleaved=True).square().sum().backward()
    np.testing.assert_allclose(x.grad, 2 * x.detach(), atol=1e-12)  # a rotation keeps lengths


def test_what_does_not_go_together_is_refused() -> None:
    x, positions = draw(BATCH, 3, TOKENS, D), places()
    for facts in ({"mrope_section": (16, 24)}, {"mrope_interleaved": True}, {"mrope_section": (16, 16, 16, 8, 8)}):
        with pytest.raises(bc.InvalidProblemError, match="mrope_section"):
            bc.rope(x, positions, **facts)
    for given in (None, positions[0], positions[:, 0]):  # [3, tokens] could be [batch, tokens]
        with pytest.raises(bc.InvalidProblemError, match="positions"):
            bc.rope(x, given, mrope_section=QWEN2)
    with pytest.raises(bc.InvalidProblemError, match="positions"):
        bc.rope(x, positions)
