"""Structured matrices as SciPy has them, gradients to their vectors, and packed bits as NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

linalg = pytest.importorskip("scipy.linalg")
X = np.zeros(1)
C, R = np.array([1.0, 2.0, 3.0]), np.array([1.0, 7.0, 8.0, 9.0])


def test_of_vectors() -> None:
    for name in ("toeplitz", "hankel"):
        for args in ((C,), (C, R), (R, C), (C[:1], R), (C, C[:1])):
            assert np.array_equal(getattr(bc, name)(*args), getattr(linalg, name)(*args)), (name, args)
    assert np.array_equal(bc.circulant(R), linalg.circulant(R))
    for mode in ("full", "same", "valid"):
        for n in (1, 2, 3, 6):
            for a in (C, R):
                assert np.array_equal(bc.convolution_matrix(a, n, mode), linalg.convolution_matrix(a, n, mode)), (
                    mode,
                    n,
                )
    assert np.array_equal(bc.leslie(C, C[:2]), linalg.leslie(C, C[:2]))
    for a in (R, R[:2]):
        np.testing.assert_allclose(bc.companion(a), linalg.companion(a))
    assert np.array_equal(bc.fiedler(R), linalg.fiedler(R))


def test_counted_out() -> None:
    kind: dict[str, Any] = {"element": "float64", "like": X}
    assert np.array_equal(bc.hadamard(8, **kind), linalg.hadamard(8))
    for scale in (None, "sqrtn", "n"):
        np.testing.assert_allclose(bc.dft(6, scale, "complex128", like=X), linalg.dft(6, scale), atol=1e-13)
    for one in ("symmetric", "lower", "upper"):
        assert np.array_equal(bc.pascal(6, one, **kind), linalg.pascal(6, one))
        assert np.array_equal(bc.invpascal(6, one, **kind), linalg.invpascal(6, one))
    assert np.array_equal(bc.invhilbert(7, **kind), linalg.invhilbert(7))
    for full in (False, True):
        np.testing.assert_allclose(bc.helmert(5, full, **kind), linalg.helmert(5, full), atol=1e-15)


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("baracuda_py.torch")
    c, r = (torch.from_numpy(one).requires_grad_() for one in (C, R))
    for function in (bc.toeplitz, bc.hankel):
        assert torch.autograd.gradcheck(function, (c, r))
    assert torch.autograd.gradcheck(bc.circulant, (r,))
    assert torch.autograd.gradcheck(lambda a: bc.convolution_matrix(a, 4, "same"), (c,))
    assert torch.autograd.gradcheck(lambda f, s: bc.leslie(f, s), (r, c))
    assert torch.autograd.gradcheck(bc.companion, (r,))


@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_bits(bitorder: Any, axis: int | None) -> None:
    x = np.random.default_rng(0).integers(0, 3, (11, 16)).astype(np.uint8)
    packed = np.packbits(x, axis, bitorder)
    for given in (x, x != 0, x.astype(np.int64) * -5):
        assert np.array_equal(bc.packbits(given, axis, bitorder), packed)
    for count in (None, 5, -3, 200):
        assert np.array_equal(
            bc.unpackbits(packed, axis, count, bitorder), np.unpackbits(packed, axis, count, bitorder)
        )


def test_wrong_calls() -> None:
    for call, says in (
        (lambda: bc.hadamard(6), "power of two"),
        (lambda: bc.leslie(C, C), "n - 1"),
        (lambda: bc.convolution_matrix(C, 3, "none"), "mode must be"),
        (lambda: bc.pascal(3, "diagonal"), "kind must be"),
        (lambda: bc.packbits(C), "compare it with 0"),
        (lambda: bc.unpackbits(C), "must be uint8"),
        (lambda: bc.packbits(C > 0, 0, "middle"), "bitorder"),
    ):
        with pytest.raises(bc.BaracudaError, match=says):
            call()


@pytest.mark.parametrize("n", range(2, 9))
def test_fiedler_companion(n: int) -> None:
    scipy = pytest.importorskip("scipy.linalg")
    a = np.random.default_rng(n).standard_normal(n)
    np.testing.assert_allclose(bc.fiedler_companion(a), scipy.fiedler_companion(a), rtol=1e-14)
    np.testing.assert_allclose(
        np.sort_complex(np.linalg.eigvals(bc.fiedler_companion(a))), np.sort_complex(np.roots(a)), rtol=1e-6
    )
