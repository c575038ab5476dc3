"""unwrap against numpy.unwrap."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError


def test_unwrap():
    rng = np.random.default_rng(0)
    phase = np.cumsum(rng.uniform(-3, 3, (3, 400)), 1)
    wrapped = np.angle(np.exp(1j * phase))
    np.testing.assert_allclose(bc.unwrap(wrapped), np.unwrap(wrapped), rtol=1e-12)
    np.testing.assert_allclose(bc.unwrap(wrapped) - bc.unwrap(wrapped)[:, :1], phase - phase[:, :1], atol=1e-9)
    for more in ({"axis": 0}, {"discont": 5.0}, {"period": 1.5}, {"discont": 0.1, "period": 3.0}):
        np.testing.assert_allclose(
            bc.unwrap(wrapped, **more), np.unwrap(wrapped, **more), rtol=1e-11, err_msg=str(more)
        )
    ties = np.array([0, np.pi, 0, -np.pi, 4 * np.pi, 0])
    np.testing.assert_allclose(bc.unwrap(ties), np.unwrap(ties))
    assert bc.unwrap(np.zeros((3, 0))).shape == (3, 0)
    with pytest.raises(UnsupportedError, match="unwrap of int64 is not defined"):
        bc.unwrap(np.arange(3))
    with pytest.raises(InvalidProblemError, match="period must be a number above 0, got -1"):
        bc.unwrap(wrapped, period=-1)
