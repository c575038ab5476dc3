"""Names of JAX, NumPy and torch for functions that have another one here, and views of the same memory."""

from __future__ import annotations

import numpy as np
import pytest
from call_placed import on

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.core.tensor import TensorRef
from baracuda_py.ops.elementwise.complex_unary import ComplexUnaryPlan

SAME = {
    "erf_inv": "erfinv", "loggamma": "lgamma", "is_finite": "isfinite", "bitwise_count": "popcount",
    "logistic": "sigmoid", "soft_sign": "softsign", "hard_tanh": "hardtanh", "hard_sigmoid": "hardsigmoid",
    "hard_swish": "hardswish", "hard_silu": "hardswish", "rem": "fmod", "shift_left": "bitwise_left_shift",
    "astype": "cast", "convert_element_type": "cast", "conj_physical": "conj",
}  # fmt: skip


def test_other_names():
    for name, ours in SAME.items():
        assert getattr(bc, name) is getattr(bc, ours), name


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_shifts_are_jaxs(dtype, place):
    rng, bits = np.random.default_rng(1), 8 * np.dtype(dtype).itemsize
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, 400, dtype, endpoint=True)
    b = rng.integers(0, bits, 400).astype(dtype)
    word = np.dtype(f"u{bits // 8}")
    got = on(place, bc.shift_right_logical, a, b)
    np.testing.assert_array_equal(got, (a.view(word) >> b.view(word)).view(dtype))
    assert not on(place, bc.shift_right_logical, a, np.full(400, bits, dtype)).any()
    signed = np.dtype(f"i{bits // 8}")
    np.testing.assert_array_equal(bc.shift_right_arithmetic(a, b), (a.view(signed) >> b.view(signed)).view(dtype))
    np.testing.assert_array_equal(
        bc.shift_right_arithmetic(a, bits + 1), np.where(a.view(signed) < 0, -1, 0).astype(dtype)
    )


def test_integer_pow():
    x = np.array([-2.0, 0.5, 3.0, -7.25])
    assert bc.integer_pow(np.array([np.nan]), 0) == 1
    for y in (0, 1, 2, 3, 7, -1, -2):
        np.testing.assert_allclose(bc.integer_pow(x, y), np.where(y == 0, 1, x**y), rtol=1e-15)
        wanted = np.where(y == 0, 0, y * x ** float(y - 1))
        np.testing.assert_allclose(bc.integer_pow_backward(np.ones(4), x, y), wanted, rtol=1e-14)
    np.testing.assert_array_equal(bc.integer_pow(np.arange(5), 3), np.arange(5) ** 3)
    with pytest.raises(InvalidProblemError, match=r"y must be an integer, got 2\.5"):
        bc.integer_pow(x, 2.5)
    with pytest.raises(InvalidProblemError, match=r"y must be an integer in \[-16777216, 16777216\]"):
        bc.integer_pow(x.astype(np.float32), 2**24 + 1)
    with pytest.raises(InvalidProblemError, match="integer_pow: y must be an integer >= 0, got -1"):
        bc.integer_pow(np.arange(5), -1)


def test_questions_about_complex_numbers(place):
    z = np.array([1 + 1j, 1, 1j, complex(1, np.nan), complex(0, -0.0)])
    got = on(place, bc.iscomplex, z, plan=ComplexUnaryPlan, kind="iscomplex")
    np.testing.assert_array_equal(got, [True, False, True, True, False])
    np.testing.assert_array_equal(bc.iscomplex(z), got)
    assert not on(place, bc.iscomplex, z.real.copy()).any()
    assert bc.iscomplexobj(z) and not bc.isrealobj(z) and bc.isrealobj(z.real)
    np.testing.assert_array_equal(bc.adjoint(z.reshape(1, 5)), z.conj().reshape(5, 1))
    real = np.arange(24.0).reshape(2, 3, 4)
    assert np.shares_memory(bc.adjoint(real), real) and bc.adjoint(real).shape == (2, 4, 3)
    with pytest.raises(InvalidProblemError, match="at least two axes"):
        bc.adjoint(z)


def test_resolved_views_of_torch():
    torch = pytest.importorskip("torch")
    z = torch.tensor([1 + 2j, 3j])
    assert bc.resolve_conj(z.conj()).is_conj() is False
    assert torch.equal(bc.resolve_conj(z.conj()), z.conj())
    assert torch.equal(bc.resolve_neg(z.conj().imag), z.conj().imag)
    x = np.ones(3)
    assert bc.resolve_conj(x) is x and bc.resolve_neg(x) is x


@pytest.mark.parametrize("package", ["numpy", "torch", "jax"])
def test_bits_as_another_element(package):
    make = {"numpy": lambda: np.asarray, "torch": lambda: pytest.importorskip("torch").from_numpy,
            "jax": lambda: pytest.importorskip("jax").numpy.asarray}[package]()  # fmt: skip
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    a = make(x)
    bytes_of = bc.bitcast_convert_type(a, "uint8")
    assert type(bytes_of) is type(a) and tuple(bytes_of.shape) == (2, 3, 4)
    np.testing.assert_array_equal(np.asarray(bytes_of), x[..., None].view(np.uint8))
    np.testing.assert_array_equal(np.asarray(bc.bitcast_convert_type(bytes_of, "float32")), x)
    np.testing.assert_array_equal(np.asarray(bc.bitcast_convert_type(a, "int32")), x.view(np.int32))


def test_bits_that_do_not_fit():
    with pytest.raises(InvalidProblemError, match="dense last axis of 4"):
        bc.bitcast_convert_type(np.zeros((2, 3), np.uint8), "float32")
    with pytest.raises(InvalidProblemError, match="strides that are multiples of 4"):
        bc.bitcast_convert_type(np.zeros((2, 5), np.uint8)[:, :4], "float32")
    with pytest.raises(UnsupportedError, match="bool has no bits"):
        bc.bitcast_convert_type(np.zeros(3, bool), "uint8")
    ref = TensorRef(1024, (4, 2), (8, 1), "int16", device=0)
    seen = bc.bitcast_convert_type(ref, "float32")
    assert (seen.shape, seen.strides, str(seen.element)) == ((4,), (4,), "float32")
