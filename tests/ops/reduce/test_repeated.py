"""Reductions of arrays that repeat themselves by strides of 0, however often: in NumPy as by arithmetic."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.reduce import reduce_formulas

HUGE = 2**50


def repeated(value, shape, strides):
    return np.lib.stride_tricks.as_strided(np.asarray(value), shape, strides)


def test_more_elements_than_any_time_would_do_for():
    one = repeated(np.array([5], np.int32), (HUGE,), (0,))
    assert bc.xor_sum(one) == 0 and bc.xor_sum(one[1:]) == 5
    assert bc.reduce_or(one) == 5 and bc.reduce_and(one) == 5
    assert bc.sum(one) == 5 * HUGE and bc.sum(one[:-3]) == 5 * (HUGE - 3)
    assert bc.prod(one[:-1]) == np.uint64(pow(5, HUGE - 1, 2**64)).view(np.int64)
    assert bc.amax(one) == 5 and bc.amin(one) == 5 and bc.ptp(one) == 0
    assert bc.count_nonzero(one) == HUGE and bc.any(one) and bc.all(one)
    assert [int(v) for v in bc.aminmax(one)] == [5, 5]


def test_rows_of_them():
    x = np.arange(6, dtype=np.uint8).reshape(2, 1, 3)
    wide = repeated(x, (2, HUGE + 1, 3), (3, 0, 1))
    np.testing.assert_array_equal(bc.xor_sum(wide, axis=1), x[:, 0])
    np.testing.assert_array_equal(bc.xor_sum(wide, axis=(1, 2)), np.bitwise_xor.reduce(x[:, 0], axis=1))
    np.testing.assert_array_equal(bc.sum(wide, axis=(1, 2)), x.sum((1, 2), dtype=np.int64) * (HUGE + 1))
    np.testing.assert_array_equal(bc.sum(wide, axis=(0, 1, 2)), 15 * (HUGE + 1))
    np.testing.assert_array_equal(bc.count_nonzero(wide, axis=1), (x[:, 0] != 0) * (HUGE + 1))


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), (1, 2)])
@pytest.mark.parametrize(
    "name", ["xor_sum", "sum", "prod", "amax", "amin", "any", "all", "count_nonzero", "reduce_and"]
)
def test_pieces_are_the_whole(monkeypatch, name, axis):
    """Of many elements some at a time, between which Ctrl-C is heard."""
    x = np.random.default_rng(4).integers(-9, 9, (5, 6, 7))
    wanted = getattr(bc, name)(x, axis=axis)
    counted, before = [], reduce_formulas.count
    monkeypatch.setattr(reduce_formulas, "PIECE", 16)
    monkeypatch.setattr(reduce_formulas, "count", lambda *given: counted.append(1) or before(*given))
    np.testing.assert_array_equal(getattr(bc, name)(x, axis=axis), wanted)
    assert len(counted) >= 10


def test_a_reduction_in_pieces_is_interrupted(monkeypatch):
    """Elements that overlap in memory, but do not repeat themselves."""
    x = np.lib.stride_tricks.as_strided(np.ones(4096, np.int8), (2048, 2048), (1, 1))
    monkeypatch.setattr(reduce_formulas, "PIECE", 2**12)
    calls = []

    def pressed(x, axes):
        calls.append(x.size)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return np.bitwise_xor.reduce(x, axis=axes)

    with pytest.raises(KeyboardInterrupt):
        reduce_formulas.merged(pressed, np.bitwise_xor, x, (0, 1))
    assert max(calls) <= 2**12
