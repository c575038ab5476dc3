"""Chunks of a stream: what a row ends in is what the next chunk begins with."""

import itertools

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.testing.places import call


def chunks(n, reverse):
    bounds = [0, 1, 1, n // 3, n]
    pieces = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    return pieces[::-1] if reverse else pieces


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "nancumsum", "nancumprod"])
def test_chunks_of_a_stream_are_the_whole(name, exclusive, reverse):
    x = np.random.default_rng(0).standard_normal((3, 40, 2))
    if name.startswith("nan"):
        x[:, ::4] = np.nan
    scan = getattr(bc, name)
    whole, after = scan(x, axis=1, reverse=reverse, exclusive=exclusive, return_carry=True)
    carry, parts = None, {}
    for piece in chunks(40, reverse):
        y, carry = scan(x[:, piece], 1, carry, reverse=reverse, exclusive=exclusive, return_carry=True)
        assert carry.shape == (3, 2)
        parts[piece.start, piece.stop] = y
    np.testing.assert_allclose(np.concatenate([parts[k] for k in sorted(parts)], 1), whole, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(carry, after, rtol=1e-12, atol=1e-13)


def test_integers_go_on_exactly_and_wrap():
    x = np.full(5, 2**62, np.int64)
    y, carry = bc.cumsum(x, return_carry=True)
    assert carry.dtype == np.int64
    rest, _ = bc.cumsum(x, initial=carry, return_carry=True)
    np.testing.assert_array_equal(np.concatenate([y, rest]), bc.cumsum(np.concatenate([x, x])))
    small = np.array([100, 100], np.int8)
    assert bc.cumsum(small, initial=bc.cumsum(small, return_carry=True)[1]).tolist() == [300, 400]


def test_carries_of_short_floats_are_float32():
    x = np.full(3000, 1, np.float16)
    y, carry = bc.cumsum(x, return_carry=True)
    assert (y.dtype, carry.dtype, float(carry)) == (np.float16, np.float32, 3000)
    assert float(bc.cumsum(x[:1], initial=carry)[0]) == float(np.float16(3001))
    with pytest.raises((InvalidProblemError, UnsupportedError), match="initial"):
        bc.cumsum(x, initial=np.float16(1).reshape(()))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_extremes_go_on_with_their_places(name, reverse):
    x = np.random.default_rng(1).integers(-4, 5, (2, 30)).astype(np.float32)
    x[1, 20] = np.nan
    scan = getattr(bc, name)
    wanted = scan(x, axis=1, reverse=reverse, return_carry=True, return_carry_indices=True)
    state, parts = (None, None), {}
    for piece in chunks(30, reverse):
        y, indices, *state = scan(
            x[:, piece], 1, *state, offset=piece.start, reverse=reverse, return_carry=True,
            return_carry_indices=True,
        )  # fmt: skip
        parts[piece.start, piece.stop] = (y, indices)
    for i in range(2):
        np.testing.assert_array_equal(np.concatenate([parts[k][i] for k in sorted(parts)], 1), wanted[i])
        np.testing.assert_array_equal(state[i], wanted[2 + i])
    with pytest.raises(InvalidProblemError, match="initial goes with initial_indices"):
        scan(x, 1, x[:, 0])


@pytest.mark.parametrize("reverse", [False, True])
def test_recurrences_go_on(reverse):
    rng = np.random.default_rng(2)
    a, b = rng.uniform(-1, 1, (2, 4, 30))
    whole, after = bc.linear_scan(a, b, reverse=reverse, return_carry=True)
    carry, parts = None, {}
    for piece in chunks(30, reverse):
        h, carry = bc.linear_scan(a[:, piece], b[:, piece], carry, reverse=reverse, return_carry=True)
        parts[piece.start, piece.stop] = h
    np.testing.assert_allclose(np.concatenate([parts[k] for k in sorted(parts)], 1), whole, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(carry, after, rtol=1e-12)
    np.testing.assert_array_equal(carry, whole[:, 0 if reverse else -1])


def test_an_empty_row_ends_in_what_it_began_with():
    none, first = np.empty((2, 0), np.float32), np.array([3.0, -1.0], np.float32)
    for name, nothing in (("cumsum", 0), ("cumprod", 1), ("logcumsumexp", -np.inf)):
        assert getattr(bc, name)(none, return_carry=True)[1].tolist() == [nothing] * 2
        assert getattr(bc, name)(none, initial=first, return_carry=True)[1].tolist() == [3, -1]
    assert bc.linear_scan(none, none, first, return_carry=True)[1].tolist() == [3, -1]
    _, _, carry, place = bc.cummax(none, return_carry=True, return_carry_indices=True)
    assert carry.tolist() == [-np.inf] * 2
    assert place.tolist() == [-1, -1]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "uint64", "float16", "float64"])
def test_the_extreme_of_an_empty_row_is_what_every_element_beats(place, dtype):
    kind = np.dtype(dtype).kind
    most = np.inf if kind == "f" else True if kind == "b" else np.iinfo(dtype).max
    least = -np.inf if kind == "f" else False if kind == "b" else np.iinfo(dtype).min
    for name, nothing in (("cummax", least), ("cummin", most)):
        desc = bc.ScanExtremeDescriptor(shape=(2, 0), axis=1, kind=name, element=dtype)
        found = call(
            bc.ScanExtremePlan, desc, {"y", "indices", "carry", "carry_indices"}, place, x=np.zeros((2, 0), dtype)
        )
        assert found["carry"].tolist() == [np.dtype(dtype).type(nothing)] * 2
        assert found["carry_indices"].tolist() == [-1, -1]
