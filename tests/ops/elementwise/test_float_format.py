"""Functions of a float's format against others', bit by bit: spacing, reduce_precision, frexp."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

FORMATS = ((5, 10), (8, 7), (4, 3), (5, 2), (8, 23), (11, 52), (1, 0), (3, 5), (6, 30), (2, 1))
DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


def codes(dtype):
    """Every 16-bit float, random codes of the wider ones, and the ends."""
    word = np.dtype(f"u{np.dtype(dtype).itemsize}")
    if word.itemsize == 2:
        return np.arange(2**16).astype(word).view(dtype)
    bits = np.random.default_rng(0).integers(0, 2 ** (8 * word.itemsize) - 1, 20000, dtype=word, endpoint=True)
    info = np.finfo(dtype)
    ends = np.array([0, -0.0, info.max, info.tiny, info.smallest_subnormal, 1, np.inf, np.nan], dtype)
    return np.concatenate([bits.view(dtype), ends, -ends])


def same(got, wanted):
    """Equal bits, or NaN both."""
    word = np.dtype(f"u{wanted.dtype.itemsize}")
    with np.errstate(all="ignore"):
        nan = (got != got) & (wanted != wanted)
    differing = np.flatnonzero((got.view(word) != wanted.view(word)) & ~nan)
    assert not differing.size, f"{got[differing[:3]]}, not {wanted[differing[:3]]}"


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_reduce_precision_is_jaxs(dtype):
    jax = pytest.importorskip("jax")
    x = codes(dtype)
    with jax.enable_x64(True):
        for exponent_bits, mantissa_bits in FORMATS:
            got = bc.reduce_precision(x, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)
            same(got, np.asarray(jax.lax.reduce_precision(jax.numpy.asarray(x), exponent_bits, mantissa_bits)))


def test_reduce_precision_to_an_element_is_a_cast_with_zero_for_what_is_subnormal():
    x = codes(np.float32)
    x = x[np.isfinite(x)]
    for element, bits in (("float16", (5, 10)), ("bfloat16", (8, 7))):
        wanted = bc.cast(x, element)
        tiny = float(ml_dtypes.finfo(wanted.dtype).tiny)
        wide = wanted.astype(np.float32)
        if element == "float16":
            wide = np.where(np.abs(wide) < tiny, np.copysign(0, x), wide).astype(np.float32)
        same(bc.reduce_precision(x, exponent_bits=bits[0], mantissa_bits=bits[1]), wide)


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_spacing_is_numpys(dtype):
    x = codes(dtype)
    with np.errstate(all="ignore"):
        same(bc.spacing(x), np.spacing(x))


@pytest.mark.parametrize("dtype", (np.float16, ml_dtypes.bfloat16))
def test_spacing_is_the_way_to_the_next_number(dtype):
    """numpy.spacing of float16 has no sign, and no bfloat16."""
    x = codes(dtype)
    finite = x[np.isfinite(x.astype(np.float64))]
    following = bc.nextafter(finite, np.where(finite < 0, -np.inf, np.inf).astype(dtype)).astype(np.float64)
    np.testing.assert_array_equal(bc.spacing(finite).astype(np.float64), following - finite.astype(np.float64))
    assert np.isnan(bc.spacing(np.array([np.inf, -np.inf, np.nan]).astype(dtype)).astype(float)).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_frexp(dtype):
    x = codes(dtype)
    with np.errstate(all="ignore"):
        mantissa, exponent = bc.frexp(x)
        wanted = np.frexp(x.astype(np.float64))
    assert exponent.dtype == np.int32
    finite = np.isfinite(x.astype(np.float64))
    np.testing.assert_array_equal(mantissa.astype(np.float64), wanted[0])
    np.testing.assert_array_equal(exponent[finite], wanted[1][finite])
    assert not exponent[~finite].any()
    some = finite & (x != 0)
    np.testing.assert_array_equal(
        np.ldexp(mantissa.astype(np.longdouble), exponent)[some], x.astype(np.longdouble)[some]
    )
    np.testing.assert_array_equal(bc.frexp(x, return_mantissa=False), exponent)


def test_the_gradient_of_a_mantissa():
    torch = pytest.importorskip("torch")
    x = np.array([3.0, -0.1, 1e-310, 1e300, 5e-324])
    leaf = torch.tensor(x[:4], requires_grad=True)
    torch.frexp(leaf)[0].sum().backward()
    got = bc.frexp_backward(np.ones(5), bc.frexp(x)[1])
    np.testing.assert_array_equal(got[:2], leaf.grad.numpy()[:2])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, np.ldexp(1.0, -np.frexp(x)[1]))
    assert got[0] == 0.25 and got[1] == 8 and got[4] == np.inf
    np.testing.assert_array_equal(bc.frexp_backward(np.array([2.0**-1000]), np.array([-1073], np.int32)), [2.0**73])


def test_refusals():
    x = np.ones(3, np.float32)
    with pytest.raises(InvalidProblemError, match="exponent_bits of reduce_precision must be at least 1, got 0"):
        bc.reduce_precision(x, exponent_bits=0, mantissa_bits=3)
    with pytest.raises(InvalidProblemError, match="mantissa_bits must be"):
        bc.reduce_precision(x, exponent_bits=5, mantissa_bits=-1)
    with pytest.raises(bc.UnsupportedError, match="int32"):
        bc.frexp(np.ones(3, np.int32))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_the_spacing_of_what_is_not_finite_is_a_quiet_nan(dtype):
    """A signalling one raises the invalid flag where it is only compared."""
    word, element = np.dtype(f"u{np.dtype(dtype).itemsize}"), bc.ElementKind.of(dtype)
    x = np.array([np.inf, -np.inf, np.nan]).astype(dtype)
    y = call(
        bc.FloatFormatPlan, bc.FloatFormatDescriptor(kind="spacing", shape=(3,), element=element),
        {"y": np.zeros(3, dtype)}, x=x,
    )["y"]  # fmt: skip
    quiet = np.array(np.inf, dtype).view(word) | word.type(1 << element.limits.digits - 1)
    assert ((y.view(word) & quiet) == quiet).all()
