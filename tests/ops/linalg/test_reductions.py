"""tridiagonal, qdwh, funm, roots, polyfit and apply_along_axis against LAPACK, SciPy and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

linalg = pytest.importorskip("scipy.linalg")
ELEMENTS = ["float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("element", ELEMENTS)
def test_tridiagonal_is_lapacks(element: str) -> None:
    kind = "hetrd" if element.startswith("complex") else "sytrd"
    letter = dict(zip(ELEMENTS, "sdcz", strict=True))[element]
    for n in (1, 2, 5):
        a = drawn(np.random.default_rng(n), (2, n, n), element)
        whole = np.tril(a, -1) + np.tril(a, -1).conj().swapaxes(1, 2) + np.eye(n) * a.real
        found = bc.tridiagonal(a)
        for i in (0, 1):
            packed, d, e, tau, _ = getattr(linalg.lapack, letter + kind)(whole[i].astype(element), lower=1)
            for got, wanted in zip(found, (np.tril(packed), d, e, tau[: n - 1]), strict=True):
                np.testing.assert_allclose(got[i], wanted, atol=60 * np.finfo(element).eps)
        assert found[1].dtype == found[2].dtype == np.finfo(element).dtype


@pytest.mark.parametrize("element", ELEMENTS)
def test_polar_factors(element: str) -> None:
    eps = np.finfo(element).eps
    for m, n in ((1, 1), (5, 3), (6, 6)):
        x = drawn(np.random.default_rng(m), (2, m, n), element)
        u, h, steps, converged = bc.qdwh(x)
        assert steps < 8 and converged.all()
        np.testing.assert_allclose(u @ h, x, atol=60 * eps)
        np.testing.assert_allclose(u.conj().swapaxes(1, 2) @ u, np.broadcast_to(np.eye(n), (2, n, n)), atol=60 * eps)
        assert (np.linalg.eigvalsh(h) > -60 * eps).all() and (h == h.conj().swapaxes(1, 2)).all()
    graded = np.diag([1.0, 1e-3, 30 * float(eps)]).astype(element) * 1e5
    assert np.abs(bc.qdwh(graded)[0] - np.eye(3)).max() < 60 * eps
    with pytest.raises(InvalidProblemError, match="adjoint"):
        bc.qdwh(np.ones((2, 3)))


def test_functions_of_matrices() -> None:
    a = drawn(np.random.default_rng(0), (3, 4, 4), "float64")
    np.testing.assert_allclose(bc.funm(a, bc.exp), linalg.expm(a), atol=1e-12)
    with pytest.raises(InvalidProblemError, match="func"):
        bc.funm(a, bc.sum)


def test_roots() -> None:
    for p in ([1.0, -6, 11, -6], [2.0, 4], [1.0, 0, 1], [3.0, -1, 0, 0], [1 + 2j, 3, -1j]):
        both = bc.roots(np.array(p)), np.roots(p)
        found, wanted = (sorted(x, key=lambda z: (round(z.real, 6), z.imag)) for x in both)
        np.testing.assert_allclose(found, wanted, atol=1e-12)
    with pytest.raises(InvalidProblemError, match="two coefficients"):
        bc.roots(np.ones(1))


@pytest.mark.parametrize(
    "facts", [{}, {"w": True}, {"full": True}, {"cov": True}, {"cov": "unscaled", "w": True}, {"rcond": 1e-3}], ids=str
)
def test_fits_are_numpys(facts: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    x, w = np.linspace(-2, 3, 20), rng.random(20) + 0.1
    given: dict[str, Any] = {**facts, "w": w} if "w" in facts else facts
    for y in (rng.standard_normal(20), rng.standard_normal((20, 2))):
        found, wanted = bc.polyfit(x, y, 3, **given), np.polyfit(x, y, 3, **given)
        pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
        for got, one in pairs:
            np.testing.assert_allclose(got, np.asarray(one).reshape(np.shape(got)), rtol=1e-9, atol=1e-12)
    out = np.empty(4)
    assert bc.polyfit(x, y[:, 0], 3, out=out) is out
    for bad in (lambda: bc.polyfit(x, y[:5], 1), lambda: bc.polyfit(x, y, 30, cov=True), lambda: bc.polyfit(x, y, -1)):
        with pytest.raises(InvalidProblemError):
            bad()


def test_lines_along_an_axis() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    for axis in (0, 1, -1):
        for ours, theirs in (
            (bc.flip, np.flip),
            (bc.sum, np.sum),
            (lambda v: bc.outer(v, v), lambda v: np.outer(v, v)),
        ):
            np.testing.assert_allclose(bc.apply_along_axis(ours, axis, x), np.apply_along_axis(theirs, axis, x))
    np.testing.assert_allclose(bc.apply_along_axis(bc.roll, 1, x, 2), np.apply_along_axis(np.roll, 1, x, 2))
    with pytest.raises(InvalidProblemError, match="line"):
        bc.apply_along_axis(bc.sum, 0, np.ones((2, 0)))
