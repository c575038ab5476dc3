"""rope_frequencies(axes=…): rotary embedding over grids, as image and video models turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


def turned(x: np.ndarray, angle: np.ndarray, pairing: str) -> np.ndarray:
    """Pairs as complex numbers, times e^(i angle)."""
    half = x.shape[-1] // 2
    a, b = (x[..., :half], x[..., half:]) if pairing == "half" else (x[..., ::2], x[..., 1::2])
    z = (a + 1j * b) * np.exp(1j * angle)
    return (
        np.concatenate([z.real, z.imag], -1) if pairing == "half" else np.stack([z.real, z.imag], -1).reshape(x.shape)
    )


@pytest.mark.parametrize(
    ("axes", "grid", "pairing"),
    [
        ((16, 56, 56), (1, 3, 4), "interleaved"),  # Flux: a text's or image's number, row and column
        ((44, 42, 42), (2, 3, 2), "interleaved"),  # Wan: frame, row and column
        ((40, 40), (3, 5), "half"),  # vision towers of Qwen2-VL
    ],
)
def test_pairs_turn_by_their_axes_place(axes: tuple[int, ...], grid: tuple[int, ...], pairing: str) -> None:
    inv_freq, scale = bc.rope_frequencies(axes=axes, dtype="float64")
    assert scale == 1 and inv_freq.shape == (sum(axes) // 2,)
    places = np.indices(grid).reshape(len(grid), 1, -1)
    angle = np.concatenate(
        [place.reshape(-1, 1) * 10000.0 ** (-np.arange(0, n, 2) / n) for place, n in zip(places, axes, strict=True)], -1
    )
    x = draw(2, 3, angle.shape[0], sum(axes))
    sections = tuple(n // 2 for n in axes)
    y = bc.rope(x, places, inv_freq=inv_freq, pairing=pairing, mrope_section=sections)
    np.testing.assert_allclose(y, turned(x, angle, pairing), atol=1e-12)


def test_axes_are_scaled_apart() -> None:
    scaling = {"rope_type": "ntk", "factor": 4.0}
    found = bc.rope_frequencies(axes=(44, 84), base=500.0, scaling=scaling, dtype="float64").inv_freq
    apart = [bc.rope_frequencies(n, base=500.0, scaling=scaling, dtype="float64").inv_freq for n in (44, 84)]
    np.testing.assert_array_equal(found, np.concatenate(apart))


@pytest.mark.parametrize(
    "facts", [{"axes": (15, 17)}, {"axes": ()}, {"axes": 64}, {"axes": (16, 16), "rotary_dim": 64}]
)
def test_what_does_not_go_together_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(bc.InvalidProblemError, match="axes"):
        bc.rope_frequencies(**facts)
