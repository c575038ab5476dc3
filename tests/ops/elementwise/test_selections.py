"""Choices among many arrays against NumPy's functions, and the names that JAX has for them."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 7)).astype(np.float32)
CONDITIONS = [k < X for k in np.linspace(2, -2, 19)]
CHOICES = [np.float32(k) * X for k in range(19)]
INDEX = RNG.integers(-3, 30, (5, 7))


@pytest.mark.parametrize("count", [1, 2, 8, 9, 16, 17, 19])
def test_select(count):
    held, values = CONDITIONS[-count:], CHOICES[:count]
    np.testing.assert_array_equal(bc.select(held, values, -1.0), np.select(held, values, -1.0))
    out = np.empty_like(X)
    assert bc.select(held, values, out=out) is out
    np.testing.assert_array_equal(out, np.select(held, values))


@pytest.mark.parametrize("count", [1, 2, 8, 9, 10, 17, 19])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_choose(count, mode):
    values = CHOICES[:count]
    wanted = np.choose(INDEX, values, mode=mode)
    np.testing.assert_array_equal(bc.choose(INDEX, values, mode=mode), wanted)
    out = np.empty_like(X)
    assert bc.choose(INDEX, values, mode=mode, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(bc.choose(INDEX.astype(np.int8), values, mode=mode), wanted)


def test_numbers_and_shapes_broadcast():
    np.testing.assert_array_equal(
        bc.choose(INDEX, [1, 2.5, X[0]]), np.choose(INDEX, [1, 2.5, X[0]], mode="clip").astype(np.float32)
    )
    some = [X[:, :1] > 0, X[0] > 0]
    np.testing.assert_array_equal(bc.select(some, [X, 3.0], X[:, :1]), np.select(some, [X, np.float32(3)], X[:, :1]))


@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_complex_numbers(mode):
    values = [x + 1j for x in CHOICES[:4]]
    np.testing.assert_array_equal(bc.choose(INDEX, values, mode=mode), np.choose(INDEX, values, mode=mode))
    np.testing.assert_array_equal(bc.select(CONDITIONS[:3], values[:3], 0), np.select(CONDITIONS[:3], values[:3], 0))


def test_the_names_of_jax():
    jax = pytest.importorskip("jax")
    a, b, c = CHOICES[1:4]
    np.testing.assert_array_equal(bc.select(X > 0, a, b), jax.lax.select(X > 0, a, b))
    np.testing.assert_array_equal(bc.select_n(X > 0, a, b), jax.lax.select_n(X > 0, a, b))
    which = np.clip(INDEX, 0, 2).astype(np.int32)
    np.testing.assert_array_equal(bc.select_n(which, a, b, c), jax.lax.select_n(which, a, b, c))


def test_piecewise():
    """Of several conditions that hold the last one counts; functions see all of x."""
    held = [X < 0, X < 1]
    for functions in ([-1, 1], [np.negative, np.exp], [np.negative, 2, np.square], [lambda v: v * 2, np.exp, 7]):
        np.testing.assert_array_equal(bc.piecewise(X, held, functions), np.piecewise(X, held, functions))
    scaled = [lambda v, k: v * k, lambda v, k: v + k]
    np.testing.assert_array_equal(bc.piecewise(X, held, scaled, 3), np.piecewise(X, held, scaled, 3))
    got = bc.piecewise(INDEX, [INDEX < 0, INDEX > 9], [-1, lambda v: v * v])
    np.testing.assert_array_equal(got, np.piecewise(INDEX, [INDEX < 0, INDEX > 9], [-1, lambda v: v * v]))
    assert got.dtype == INDEX.dtype


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bc.choose(X, CHOICES), "index must be an array of integers, got float32"),
        (lambda: bc.choose(INDEX, CHOICES, mode="raise"), 'mode must be "clip" or "wrap"'),
        (lambda: bc.choose(INDEX.astype(np.int8), [0] * 200), "index is int8 and cannot tell 200 choices apart"),
        (lambda: bc.select([X], [X]), r"conditions\[0\] must be a bool array, got float32"),
        (lambda: bc.select(CONDITIONS, CHOICES[:3]), "conditions and choices must be as many, got 19 and 3"),
        (lambda: bc.select([], []), "conditions must be a list"),
        (lambda: bc.select_n(X > 0, X, X, X), "which is bool, so there are two cases at most, got 3"),
        (lambda: bc.piecewise(X, [X < 0], [1, 2, 3]), "1 conditions have 1 or 2 functions, got 3"),
    ],
)
def test_refusals(call, says):
    with pytest.raises(InvalidProblemError, match=says):
        call()
