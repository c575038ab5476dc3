"""Rotations of grids against rotations of each axis' own columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc


@pytest.mark.parametrize(
    ("grid", "axes", "starts"),
    (((3, 5), (8, 12), None), ((2, 3, 4), (4, 6, 8), (7, 0, 2)), ((6,), (10,), None), ((2, 0), (4, 4), None)),
)
@pytest.mark.parametrize("pairing", ("half", "interleaved"))
def test_each_axis_turns_its_own_columns(grid: Any, axes: Any, starts: Any, pairing: str) -> None:
    axial = bc.rope_axial_frequencies(grid, axes, starts=starts)
    tokens, width = int(np.prod(grid)), sum(axes)
    x = np.random.default_rng(0).standard_normal((2, 3, tokens, width))
    y = bc.rope(x, **axial._asdict(), pairing=pairing)
    # The pairs of all axes stand one after the other: of "half" first all first columns, then all second ones.
    halves = (x[..., ::2], x[..., 1::2]) if pairing == "interleaved" else (x[..., : width // 2], x[..., width // 2 :])
    z, begin = (halves[0] + 1j * halves[1]).reshape(2, 3, *grid, width // 2), 0
    for a, n in enumerate(axes):
        place = np.arange(grid[a]) + (starts[a] if starts else 0)
        angle = place[:, None] * 10000.0 ** (-2.0 * np.arange(n // 2) / n)
        shape = [1] * len(grid) + [n // 2]
        shape[a] = grid[a]
        z[..., begin : begin + n // 2] *= np.exp(1j * angle).reshape(shape)
        begin += n // 2
    z = z.reshape(2, 3, tokens, width // 2)
    want = (
        np.stack([z.real, z.imag], -1).reshape(x.shape)
        if pairing == "interleaved"
        else np.concatenate([z.real, z.imag], -1)
    )
    np.testing.assert_allclose(y, want, atol=1e-5)


def test_blocks_that_become_one_token_follow_each_other() -> None:
    _, positions, sections = bc.rope_axial_frequencies((2, 4, 6), (4, 8, 8), merge=2)
    want = [
        (t, 2 * i + p, 2 * j + q)
        for t in range(2)
        for i in range(2)
        for j in range(3)
        for p in range(2)
        for q in range(2)
    ]
    np.testing.assert_array_equal(positions[:, 0].T, want)
    assert sections == (2, 4, 4) and positions.dtype == np.int64


def test_frequencies_are_those_of_models_of_so_many_columns() -> None:
    inv_freq = bc.rope_axial_frequencies((3, 4), (8, 6), base=500.0, dtype=np.float64).inv_freq
    want = np.concatenate([500.0 ** (-np.arange(0, n, 2) / n) for n in (8, 6)])
    np.testing.assert_allclose(inv_freq, want, rtol=1e-15)


def test_what_is_refused() -> None:
    for given, words in (
        ({"grid": 4, "axes": (8,)}, "grid must be the numbers of tokens along each axis, got 4"),
        ({"grid": (4, 4), "axes": (8,)}, "axes must be 2 even numbers of columns"),
        ({"grid": (4, 4), "axes": (8, 7)}, "axes must be even numbers of columns"),
        ({"grid": (4, 4), "axes": (8, 8), "starts": (1,)}, "starts must be 2 positions"),
        ({"grid": (4, 3), "axes": (8, 8), "merge": 2}, "merge must divide the last two"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=words):
            bc.rope_axial_frequencies(**given)  # type: ignore[arg-type]
