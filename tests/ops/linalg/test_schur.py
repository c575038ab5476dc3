"""schur and rsf2csf: forms of every size, hard matrices, what does not converge, SciPy's real forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.linalg.schur import SchurPlan, residual
from baracuda_py.testing.places import call


FAR = {"complex64": 1e25, "complex128": 1e100}


def forms(n: int, dtype: str) -> Any:
    """Random, defective, cyclic, of zeros, of ones, triangular, far from 1, and of equal rows, so of rank 1."""
    made = drawn(np.random.default_rng(n), (8, n, n), dtype)
    made[1] = np.diag(np.full(n, 2.0)) + np.diag(np.ones(n - 1), 1)
    made[2] = np.roll(np.eye(n), 1, 0)
    made[3], made[4] = 0, 1
    made[5] = np.triu(made[5])
    made[6] *= FAR[dtype]
    made[7] = made[7, 0]
    return made


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 9, 17])
def test_forms(n: int, dtype: str, place: str) -> None:
    a = forms(n, dtype)
    desc = SchurPlan.descriptor(batch_shape=(len(a),), n=n, element=dtype)
    got = call(SchurPlan, desc, {"t", "z", "info"}, place, a=a)
    assert not got["info"].any()
    wide = {name: np.asarray(x, np.complex128) for name, x in {"a": a, "t": got["t"], "z": got["z"]}.items()}
    scaled = wide | {
        name: wide[name] / np.where(np.arange(8) == 6, FAR[dtype], 1)[:, None, None] for name in ("a", "t")
    }
    assert (residual(desc, "t", **scaled) <= 20 * np.finfo(dtype).eps).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_equal_rows(dtype: str) -> None:
    """Of rank 1: what is left of the others are roundings of roundings, whose products have no digits."""
    a = drawn(np.random.default_rng(64), (1, 64, 64), dtype)
    a[0] = a[0, 0]
    t, _, info = bc.schur(a, return_info=True)
    assert not info.any()
    np.testing.assert_allclose(np.trace(t[0]), np.trace(a[0]), rtol=1e-5)


def test_nan_is_told_of_its_matrix_alone(place: str) -> None:
    a = drawn(np.random.default_rng(0), (3, 5, 5), "complex64")
    a[1, 2, 3] = np.nan
    desc = SchurPlan.descriptor(batch_shape=(3,), n=5, element="complex64")
    got = call(SchurPlan, desc, {"t", "z", "info"}, place, a=a)
    assert got["info"].tolist() == [0, 5, 0]
    assert np.isnan(got["t"][1]).all() and np.isfinite(got["t"][::2]).all()


def test_functions() -> None:
    linalg = pytest.importorskip("scipy.linalg")
    a = np.random.default_rng(0).standard_normal((6, 6))
    t, z = bc.schur(a)
    np.testing.assert_allclose(z @ t @ z.conj().T, a, atol=1e-13)
    t, z = bc.rsf2csf(*linalg.schur(a))
    np.testing.assert_allclose(z @ t @ z.conj().T, a, atol=1e-13)
    assert not np.tril(t, -1).any() and t.dtype == np.complex128
    out = np.empty_like(t), np.empty_like(z)
    assert bc.rsf2csf(*linalg.schur(a), out=out)[0] is out[0]
    with pytest.raises(UnsupportedError, match="complex"):
        bc.schur(a, "real")
    with pytest.raises(InvalidProblemError, match="output"):
        bc.schur(a, "both")
