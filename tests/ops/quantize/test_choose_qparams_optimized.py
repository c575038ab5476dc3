"""The greedy search of a range: torch's own on the host, rows at once, and its definition in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError


def drawn(seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_t(4, count) * 10.0 ** (seed % 5 - 3)).astype(np.float32)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("n_bins", "ratio"), [(200, 0.16), (64, 0.5), (10, 0.0), (10, 1.0)])
def test_it_is_that_of_torch(bits: int, n_bins: int, ratio: float) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(6):
        x = drawn(seed, 7 + 30 * seed)
        want = torch.choose_qparams_optimized(torch.from_numpy(x), len(x), n_bins, ratio, bits)
        found = bc.choose_qparams_optimized(x, len(x), n_bins, ratio, bits)
        assert [one.shape for one in found] == [(1,), (1,)] and found[0].dtype == np.float32
        assert [one.item() for one in found] == [one.item() for one in want]
    given = bc.choose_qparams_optimized(torch.from_numpy(x).requires_grad_(), len(x), n_bins, ratio, bits)
    assert all(torch.equal(one, other) and not one.requires_grad for one, other in zip(given, want, strict=True))


def test_rows_at_once() -> None:
    x = np.stack([drawn(seed, 40) for seed in range(6)]).reshape(2, 3, 40)
    x[1, 1] = 2.5  # a range of 0
    high, low = bc.choose_qparams_optimized(x, axis=-1)
    assert high.shape == low.shape == (2, 3)
    for at in np.ndindex(2, 3):
        assert [high[at], low[at]] == [one.item() for one in bc.choose_qparams_optimized(x[at])]
    assert (high[1, 1], low[1, 1]) == (2.5, 2.5)
    first = bc.choose_qparams_optimized(x, 25, axis=-1)
    np.testing.assert_array_equal(first, bc.choose_qparams_optimized(x[..., :25], axis=-1))
    np.testing.assert_array_equal(bc.choose_qparams_optimized(x[::-1, :, ::-1], axis=-1)[0], high[::-1])
    assert bc.choose_qparams_optimized(x[:0], axis=-1)[0].shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_elements_count_as_float32(dtype: Any) -> None:
    x = drawn(3, 50).astype(dtype)
    np.testing.assert_array_equal(bc.choose_qparams_optimized(x), bc.choose_qparams_optimized(x.astype(np.float32)))


@pytest.mark.parametrize("bits", [2, 4])
def test_the_range_loses_less(bits: int) -> None:
    """Than the whole one, by the definition of the loss in float64."""

    def loss(x: np.ndarray, high: float, low: float) -> float:
        base, top = float(np.float16(low)), 2**bits - 1
        scale = float(np.float16((high - base) / top))
        return float(np.linalg.norm(x - (np.clip(np.rint((x - base) / scale), 0, top) * scale + base)))

    gains = 0
    for seed in range(5):
        x = drawn(seed, 200)
        high, low = (one.item() for one in bc.choose_qparams_optimized(x, ratio=0.7, bit_width=bits))
        x = x.astype(float)
        assert x.min() * (1 + 1e-6) <= low < high <= x.max() * (1 + 1e-6)
        made, whole = loss(x, high, low), loss(x, x.max(), x.min())
        assert made <= whole * (1 + 1e-6)
        gains += made < 0.97 * whole
    assert gains >= 4


def test_what_is_not_a_number_makes_its_row_so() -> None:
    x = np.ones((2, 8), np.float32) * np.arange(8, dtype=np.float32)
    x[0, 3] = np.nan
    high, low = bc.choose_qparams_optimized(x, axis=1)
    assert np.isnan(high[0]) and np.isnan(low[0]) and np.isfinite([high[1], low[1]]).all()


X = np.ones((2, 8), np.float32)
BAD = {
    "numel must be from 1 to the 16 elements of x, got 17": lambda: bc.choose_qparams_optimized(X, 17),
    "numel must be from 1 to the 8 elements of a row, got 9": lambda: bc.choose_qparams_optimized(X, 9, axis=-1),
    "elements of x, got 0": lambda: bc.choose_qparams_optimized(X[:0]),
    "numel must be": lambda: bc.choose_qparams_optimized(X, 0),
    "n_bins must be": lambda: bc.choose_qparams_optimized(X, 16, 0),
    "ratio must be from 0 to 1": lambda: bc.choose_qparams_optimized(X, 16, 200, 1.5),
    "bit_width must be": lambda: bc.choose_qparams_optimized(X, bit_width=17),
    "axis must be None or the last": lambda: bc.choose_qparams_optimized(X, axis=0),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_refused(said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        BAD[said]()
