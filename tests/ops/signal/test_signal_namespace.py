"""`baracuda_py.signal`: the functions by SciPy's names."""

import pytest

import baracuda_py as bc


def test_names_are_the_packages() -> None:
    other = {"hilbert": "analytic_signal", "taylor": "taylor_window"}
    assert {"stft", "welch", "lfilter", "dct", "hann", "convolve", "hilbert"} <= set(dir(bc.signal))
    assert all(getattr(bc.signal, name) is getattr(bc, other.get(name, name)) for name in bc.signal.__all__)
    with pytest.raises(AttributeError, match="welsh"):
        bc.signal.welsh  # noqa: B018
