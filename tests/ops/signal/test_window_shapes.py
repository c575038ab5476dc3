"""Windows against scipy.signal.windows, of every length, symmetric and periodic."""

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

windows = pytest.importorskip("scipy.signal.windows")
scipy = pytest.importorskip("scipy.signal")
PLAIN = ("boxcar", "triang", "parzen", "bohman", "blackmanharris", "flattop", "barthann", "lanczos")
FACTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in PLAIN),
    *(("tukey", {"alpha": alpha}) for alpha in (-1.0, 0.1, 0.5, 0.9, 1.0, 2.0)),
    ("general_gaussian", {"p": 1.5, "sig": 3.0}),
    ("general_gaussian", {"p": 0.5, "sig": 7.0}),
    *(("chebwin", {"at": at}) for at in (50.0, 100.0)),
]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 8, 31, 64])
def test_windows_are_scipys(n: int) -> None:
    for name, facts in FACTS:
        for sym in (True, False):
            y = getattr(bc, name)(n, sym=sym, element="float64", **facts)
            truth = getattr(windows, name)(n, *facts.values(), sym=sym)
            np.testing.assert_allclose(y, truth, atol=1e-12, err_msg=f"{name} {facts} {sym}")
            out = np.empty(n, np.float32)
            assert getattr(bc, name)(n, sym=sym, out=out, **facts) is out
            np.testing.assert_array_equal(out, y.astype(np.float32))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 31, 64])
def test_windows_of_the_host_are_scipys(n: int) -> None:
    for sym in (True, False):
        for nbar, sll, norm in ((4, 30, True), (6, 40, False), (1, 30, True)):
            y = bc.taylor_window(n, nbar=nbar, sll=sll, norm=norm, sym=sym, element="float64")
            np.testing.assert_allclose(y, windows.taylor(n, nbar, sll, norm, sym), atol=1e-12)
        if n > 6:
            for nw in (1.5, 3):
                y = bc.dpss(n, nw, sym=sym, element="float64")
                np.testing.assert_allclose(y, windows.dpss(n, nw, sym=sym), atol=1e-9)
    if n % 2 == 0:
        y = bc.kaiser_bessel_derived(n, 4.0, element="float64")
        np.testing.assert_allclose(y, windows.kaiser_bessel_derived(n, 4.0), atol=1e-12)


NAMES = [
    "hann", "hamming", "blackman", "bartlett", "boxcar", "parzen", "flattop", "cosine", ("tukey", 0.3), ("kaiser", 5.0),
    7.0, ("gaussian", 3.0), ("general_gaussian", 1.5, 2.0), ("exponential", None, 4.0), ("chebwin", 60), ("dpss", 2.5),
    ("general_cosine", [0.5, 0.3, 0.2]), ("general_hamming", 0.6), "taylor", "nuttall", "triang", "bohman", "barthann",
    "blackmanharris", "lanczos", "tukey",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_names_are_scipys(name: Any) -> None:
    for n in (9, 16):
        for fftbins in (True, False):
            y = bc.get_window(name, n, fftbins, element="float64")
            np.testing.assert_allclose(y, scipy.get_window(name, n, fftbins), atol=1e-9)


def test_what_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="window must be one of"):
        bc.get_window("hat", 8)
    with pytest.raises(InvalidProblemError, match="takes the parameters"):
        bc.get_window("gaussian", 8)
    with pytest.raises(InvalidProblemError, match="takes the parameters"):
        bc.get_window(("hann", 3), 8)
    with pytest.raises(InvalidProblemError, match="nw must be below half of 8"):
        bc.dpss(8, 4)
    with pytest.raises(InvalidProblemError, match="n must be even"):
        bc.kaiser_bessel_derived(7, 4.0)
    with pytest.raises(InvalidProblemError, match="out must have shape"):
        bc.chebwin(7, out=np.empty(3))
    with pytest.raises(InvalidProblemError, match="element must be a float"):
        bc.chebwin(7, element="int32")
    with pytest.raises(InvalidProblemError, match="sig must be finite"):
        bc.general_gaussian(7, p=1, sig=0)
