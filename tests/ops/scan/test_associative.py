"""associative_scan by an operator's name, and trapz."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

X = np.random.default_rng(0).standard_normal((3, 40))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_operators(reverse, axis):
    turn = (lambda x: np.flip(x, axis)) if reverse else (lambda x: x)
    for name in ("add", "multiply", "maximum", "minimum", "logaddexp"):
        combine = getattr(np, name)
        wanted = turn(combine.accumulate(turn(X), axis))
        for fn in (name, combine):
            np.testing.assert_allclose(bc.associative_scan(fn, X, axis=axis, reverse=reverse), wanted, rtol=1e-12)
    np.testing.assert_array_equal(bc.associative_scan("max", X), np.maximum.accumulate(X))


def test_linear_maps_are_composed():
    jax = pytest.importorskip("jax")
    a, b = X / 3, X[::-1].copy()
    for reverse in (False, True):
        with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
            wanted = jax.lax.associative_scan(
                lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (a, b), axis=1, reverse=reverse
            )
        found = bc.associative_scan("linear", (a, b), axis=1, reverse=reverse)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)


def test_what_is_refused():
    with pytest.raises(InvalidProblemError, match=r"did you mean add"):
        bc.associative_scan("ad", X)
    with pytest.raises(InvalidProblemError, match="not compiled into a scan"):
        bc.associative_scan(lambda a, b: a + b, X)
    with pytest.raises(InvalidProblemError, match=r"must be \(a, b\)"):
        bc.associative_scan("linear", X)


def test_trapz_is_trapezoid():
    assert bc.trapz is bc.trapezoid
