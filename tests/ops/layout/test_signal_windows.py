"""The windows of torch.signal.windows, against torch's own in float64."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

CASES = {
    "cosine": {}, "gaussian": {"std": 2.5}, "general_hamming": {"alpha": 0.6}, "hann": {}, "nuttall": {},
    "general_cosine": {"a": [0.46, 0.23, 0.31]}, "exponential": {"tau": 3.0},
}  # fmt: skip
LENGTHS = (0, 1, 2, 3, 7, 8, 33, 100)


def ours(name):
    return bc.exponential_window if name == "exponential" else getattr(bc, name)


@pytest.mark.parametrize("name", CASES)
def test_windows_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.signal.windows, name)
    for n in LENGTHS:
        for sym in (True, False):
            wanted = theirs(n, sym=sym, dtype=torch.float64, **CASES[name]).numpy()
            found = ours(name)(n, sym=sym, element="float64", **CASES[name])
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_they_are_rounded_once_and_written_to_out(name):
    exact = ours(name)(33, element="float64", **CASES[name])
    for element in ("float16", "bfloat16", "float32"):
        found = ours(name)(33, element=element, **CASES[name])
        np.testing.assert_array_equal(found, bc.cast(exact, element))
        out = np.empty(66, found.dtype)[::2]
        assert ours(name)(33, out=out, **CASES[name]) is out
        np.testing.assert_array_equal(out, found)
    assert ours(name)(5, **CASES[name]).dtype == np.float32


def test_sums_of_any_number_of_cosines():
    scipy = pytest.importorskip("scipy.signal.windows")
    for a in ([0.7], [0.5, 0.5], [0.2, -0.4, 0.1, 0.7, 1.5, -2.0]):
        for n in (2, 9):
            np.testing.assert_allclose(
                bc.general_cosine(n, a=a, element="float64"), scipy.general_cosine(n, a), atol=1e-14
            )


def test_a_center_is_for_windows_that_are_not_symmetric():
    found = bc.exponential_window(5, center=1.5, tau=2.0, sym=False, element="float64")
    np.testing.assert_allclose(found, np.exp(-np.abs(np.arange(5) - 1.5) / 2))


def test_they_are_made_where_like_is():
    torch = pytest.importorskip("torch")
    assert isinstance(bc.hann(5, like=torch.zeros(2)), torch.Tensor)
    jax = pytest.importorskip("jax")
    exact = bc.general_hamming(9)
    for like in (jax.numpy.zeros(9), jax.numpy.zeros(9, "bfloat16")):  # in float64 there, too, and in a trace
        np.testing.assert_array_equal(bc.general_hamming(9, like=like), exact)
        np.testing.assert_array_equal(jax.jit(lambda x: bc.general_hamming(9, like=x))(like), exact)
    out = torch.empty(5, dtype=torch.bfloat16)
    assert bc.nuttall(5, out=out) is out


def test_what_is_refused():
    for name, facts in CASES.items():
        with pytest.raises(InvalidProblemError, match="n must"):
            ours(name)(-1, **facts)
        with pytest.raises(InvalidProblemError, match="element must be a float"):
            ours(name)(4, element="int32", **facts)
        with pytest.raises(InvalidProblemError, match="out must have shape"):
            ours(name)(4, out=np.empty(5), **facts)
        with pytest.raises(InvalidProblemError, match="sym"):
            ours(name)(4, sym=2, **facts)
    for std in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InvalidProblemError, match="std must be finite and above 0"):
            bc.gaussian(4, std=std)
    with pytest.raises(InvalidProblemError, match="tau must be finite and above 0"):
        bc.exponential_window(4, tau=0)
    with pytest.raises(InvalidProblemError, match="center must be None"):
        bc.exponential_window(4, center=2.0)
    with pytest.raises(InvalidProblemError, match="a must have a number"):
        bc.general_cosine(4, a=[])
    with pytest.raises(InvalidProblemError, match=r"a\[1\]"):
        bc.general_cosine(4, a=[1.0, "x"])
