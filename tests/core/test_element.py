"""ElementKind and cast: every name, every value, every midpoint."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baracuda_py.core.element import ALL, ElementKind, cast, decode, encode
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

K = ElementKind
NARROW = (K.F16, K.BF16, K.FP8E4M3, K.FP8E5M2)
SMALL_FLOATS = (*NARROW, K.FP4E2M1, K.E8M0)
LONGDOUBLE_IS_WIDER = np.finfo(np.longdouble).nmant > 52
Array = Any


@pytest.fixture(autouse=True)
def _signaling_nans() -> Iterator[None]:
    with np.errstate(invalid="ignore"):  # among all codes are signaling NaNs, which NumPy warns of
        yield


def every_value(kind: K) -> Array:
    """All codes of a small float kind, in the order of the codes."""
    codes = np.arange(1 << kind.bits, dtype=np.uint16 if kind.bits == 16 else np.uint8)
    return codes.view(kind.dtype)


def finite(kind: K) -> Array:
    """The non-negative finite values in rising order; the index is the code."""
    values = every_value(kind)[: 1 << (kind.bits - 1)].astype(np.float64)
    return values[np.isfinite(values)]


def same(a: Array, b: Array) -> bool:
    """Equal in dtype and value, sign of zero included; NaNs are equal."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    x, y = a.astype(np.longdouble), b.astype(np.longdouble)
    return bool(np.all(((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))))


# --- the kinds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", K)
def test_names_and_lookup(kind: K) -> None:
    assert K(str(kind)) is kind and K.of(kind) is kind and K.of(str(kind)) is kind and K.of(f"torch.{kind}") is kind
    assert hash(kind) == object.__hash__(kind) and pickle.loads(pickle.dumps(kind)) is kind
    assert copy.deepcopy(kind) is kind and f"{kind}" == str(kind) and eval(repr(kind)) is kind
    if kind is not K.BIN:
        for form in (kind.dtype, kind.dtype.type, kind.dtype.name, np.zeros(2, kind.dtype), np.zeros((), kind.dtype)):
            assert K.of(form) is kind
    assert kind.itemsize == kind.carrier.itemsize and kind.itemsize * 8 >= kind.bits
    assert sum((kind.is_float, kind.is_integer, kind.is_complex, kind in (K.BOOL, K.BIN))) == 1


def test_names_are_numpys() -> None:
    assert [str(k) for k in (K.BF16, K.FP8E4M3, K.FP8E5M2, K.BOOL, K.S4, K.U4, K.C64, K.E8M0, K.FP4E2M1)] == [
        *("bfloat16", "float8_e4m3fn", "float8_e5m2", "bool", "int4", "uint4", "complex64"),
        *("float8_e8m0fnu", "float4_e2m1fn"),
    ]


def test_carriers_and_accumulators() -> None:
    packed = (K.FP8E4M3, K.FP8E5M2, K.FP4E2M1, K.E8M0, K.S4, K.U4, K.BIN)
    assert all(k.carrier == (np.uint8 if k in packed else k.dtype) for k in K)
    assert {k.acc for k in SMALL_FLOATS} == {K.F32} and K.F32.acc is K.F32 and K.F64.acc is K.F64
    assert {k.acc for k in (K.I8, K.I16, K.I32, K.I64, K.BOOL, K.S4)} == {K.I64}
    assert {k.acc for k in (K.U8, K.U16, K.U32, K.U64, K.U4)} == {K.U64}
    assert (K.C64.acc, K.C128.acc) == (K.C64, K.C128)


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        *(("bf16", K.BF16), ("fp16", K.F16), ("half", K.F16), ("<f4", K.F32), ("f8", K.F64), ("i8", K.I64)),
        *((float, K.F64), (bool, K.BOOL), (complex, K.C128), (np.longlong, K.I64), ("?", K.BOOL)),
    ],
)
def test_aliases(form: Any, kind: K) -> None:
    assert K.of(form) is kind
    assert K.of(form) is kind  # now from the memo


@pytest.mark.parametrize("form", ["float31", "torch.float", "S4", ">f4", None, 1.0, object, np.longdouble, [1], "O"])
def test_unknown_elements_are_refused(form: Any) -> None:
    with pytest.raises(UnsupportedError, match="bfloat16"):
        K.of(form)


def test_other_packages() -> None:
    class Dtype:
        def __str__(self) -> str:
            return "torch.bfloat16"

    Dtype.__module__, Dtype.__name__ = "torch", "dtype"

    class Tensor:
        dtype = Dtype()

    tensor = Tensor()
    assert K.of(Tensor.dtype) is K.BF16 and K.of(tensor) is K.BF16
    jnp = pytest.importorskip("jax.numpy")
    assert K.of(jnp.bfloat16) is K.BF16 and K.of(jnp.float32) is K.F32


# --- rounding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SMALL_FLOATS)
@pytest.mark.parametrize("source", [np.float32, np.float64, np.longdouble])
def test_every_value_round_trips(kind: K, source: Any) -> None:
    values = every_value(kind)
    assert same(cast(values.astype(source), kind), values)
    assert cast(values, kind) is values


@pytest.mark.parametrize("kind", (*NARROW, K.FP4E2M1))
@pytest.mark.parametrize("source", [np.float32, np.float64, np.longdouble])
def test_midpoints_go_to_even_and_their_neighbours_do_not(kind: K, source: Any) -> None:
    values = finite(kind).astype(source)
    low, high = values[:-1], values[1:]
    middle = low + (high - low) / 2
    even = np.where(np.arange(len(low)) % 2 == 0, low, high)
    for sign in (1, -1):
        for x, expected in (
            (middle, even),
            (np.nextafter(middle, source(np.inf)), high),
            (np.nextafter(middle, source(-np.inf)), low),
            (np.nextafter(high, source(0)), high),
            (np.nextafter(low, source(np.inf)), low),
        ):
            assert same(cast(sign * x, kind), (sign * expected).astype(kind.dtype))


def test_the_midpoint_traps_are_traps() -> None:
    trap = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-4 + 2.0**-40])
    assert trap.astype(ml_dtypes.bfloat16)[0] == 1.0  # rounding twice; if this fails ml_dtypes got it right
    assert cast(trap, K.BF16)[0] == 1 + 2.0**-7 and cast(trap, K.FP8E4M3)[1] == 1.125


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("kind", [K.BF16, K.F16, K.F32, K.F64, K.FP8E5M2])
def test_wide_integers_round_once(dtype: Any, kind: K) -> None:
    fraction = 1 << kind.limits.digits
    top = np.iinfo(dtype).max.bit_length()
    numbers = [
        sign * (((fraction + lead) << shift) + (1 << shift >> 1) + nudge)
        for lead in (0, 1, 2, 3, fraction - 1)
        for shift in range(top - kind.limits.digits - 1)
        for nudge in (-1, 0, 1)
        for sign in ((1, -1) if dtype is np.int64 else (1,))
    ]
    numbers += [int(np.iinfo(dtype).max), int(np.iinfo(dtype).min), 0, 65519, 65520]
    for n, y in zip(numbers, cast(np.array(numbers, dtype), kind).astype(np.float64), strict=True):
        assert_nearest(Fraction(n), float(y), kind)


def assert_nearest(x: Fraction, y: float, kind: K) -> None:
    """`y` is `x` rounded half to even, by rational arithmetic."""
    digits, lowest = kind.limits.digits, kind.limits.min_exponent
    size, exponent = abs(x), lowest
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - digits)
    rounded = round(size / step) * step  # Python's round is half to even
    if rounded > Fraction(kind.limits.max):
        assert y == (np.inf if x > 0 else -np.inf)
    else:
        assert Fraction(abs(y)) == rounded and (x == 0 or np.signbit(y) == (x < 0))


@pytest.mark.parametrize("kind", [K.F16, K.BF16, K.F32, K.F64, K.FP8E5M2])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_casts_are_the_rational_rounding(kind: K, data: Any) -> None:
    small = kind.limits.min_exponent - kind.limits.digits - 3
    exponent = data.draw(st.integers(max(small, -1070), min(kind.limits.min_exponent + 40, 900)))
    mantissa = data.draw(st.integers(-(2**53), 2**53)) if kind is not K.F64 else data.draw(st.integers(-99, 99))
    tail = data.draw(st.integers(-(2**10), 2**10)) if LONGDOUBLE_IS_WIDER else 0
    long = np.ldexp(np.longdouble(mantissa) * 1024 + tail, exponent - 64)
    assert_nearest(Fraction(mantissa * 1024 + tail) * Fraction(2) ** (exponent - 64), float(cast(long, kind)), kind)
    double = np.ldexp(float(mantissa), exponent - 30)
    assert_nearest(Fraction(double), float(cast(double, kind)), kind)


def test_overflow_and_saturation() -> None:
    big = np.array([464, 464.0001, 500, -500, 1e300, np.inf, -np.inf, np.nan])
    nan = np.nan
    assert same(cast(big, K.FP8E4M3).astype("f8"), np.array([448, *[nan] * 7]))
    assert same(cast(big, K.FP8E4M3, saturate=True).astype("f8"), np.array([448, 448, 448, -448, 448, 448, -448, nan]))
    for kind, edge in ((K.F16, 65520.0), (K.FP8E5M2, 61440.0), (K.BF16, 2.0**128 - 2.0**119)):
        x = np.array([np.nextafter(edge, 0), edge, -edge, 1e300, -np.inf, nan])
        top = kind.limits.max
        for source in (x, x.astype(np.longdouble)):
            assert same(cast(source, kind).astype("f8"), np.array([top, np.inf, -np.inf, np.inf, -np.inf, nan]))
            assert same(cast(source, kind, True).astype("f8"), np.array([top, top, -top, top, -top, nan]))
    top = np.finfo(np.float32).max
    assert same(cast([1e39, -np.inf, nan], K.F32, True), np.array([top, -top, nan], np.float32))
    assert same(cast(np.array([np.inf], np.float32), K.F32, True), np.array([top]))
    assert same(cast([np.inf, -1.0], K.F64, True), np.array([np.finfo(np.float64).max, -1]))
    assert same(cast(np.float16([np.inf, 1]), K.BF16, True).astype("f8"), np.array([K.BF16.limits.max, 1]))


def test_fp4_always_saturates() -> None:
    x = [7, -1e300, np.inf, -np.inf, np.nan, -0.0, 5, 0.25]
    assert same(cast(x, K.FP4E2M1).astype("f8"), np.array([6, -6, 6, -6, 6, -0.0, 4, 0]))


@pytest.mark.parametrize("source", [np.float32, np.float64, np.longdouble])
def test_e8m0_is_a_power_of_two(source: Any) -> None:
    tiny = 2.0**-127
    x = np.array(
        [1, 1.5, 1.499, 3, 2.0**127 * 1.49, 2.0**127 * 1.5, 1.25 * tiny, tiny / 8, 0, -1, np.inf, np.nan], source
    )
    y = [1, 2, 1, 4, 2.0**127, np.nan, tiny, tiny, np.nan, np.nan, np.nan, np.nan]
    assert same(cast(x, K.E8M0).astype("f8"), np.array(y))
    y = [1, 2, 1, 4, 2.0**127, 2.0**127, tiny, tiny, tiny, np.nan, 2.0**127, np.nan]
    assert same(cast(x, K.E8M0, saturate=True).astype("f8"), np.array(y))


# --- integers, bools, complex ----------------------------------------------------------------------------------------

INTEGERS = tuple(k for k in K if k.is_integer)


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64, np.longdouble, ml_dtypes.bfloat16])
def test_float_to_integer_truncates_and_clamps(kind: K, source: Any) -> None:
    x = np.array([0, -0.9, 1.9, 2.5, 6, np.inf, -np.inf, np.nan, -2], source)
    low, high = int(kind.limits.min), int(kind.limits.max)
    expected = [0, 0, 1, 2, 6, high, low, 0, max(-2, low)]
    for saturate in (False, True):
        y = cast(x, kind, saturate)
        assert y.dtype == kind.dtype and [int(v) for v in y] == expected


@pytest.mark.parametrize("kind", INTEGERS)
def test_float_to_integer_at_the_edges(kind: K) -> None:
    low, high = int(kind.limits.min), int(kind.limits.max)
    edges = [float(high), np.nextafter(float(high + 1), 0), float(high + 1), float(low), float(low - 1), 1e300]
    expected = [min(max(int(e), low), high) for e in edges]
    assert [int(v) for v in cast(np.array(edges), kind)] == expected


@pytest.mark.parametrize("kind", INTEGERS)
def test_integer_to_integer_wraps_or_clamps(kind: K) -> None:
    low, high = int(kind.limits.min), int(kind.limits.max)
    for source in (np.int64, np.uint64, np.int8):
        info = np.iinfo(source)
        numbers = [n for n in (0, 5, 130, -3, high, low, high + 1, low - 1, info.max) if info.min <= n <= info.max]
        x = np.array(numbers, source)
        assert [int(v) for v in cast(x, kind, True)] == [min(max(n, low), high) for n in numbers]
        assert [int(v) for v in cast(x, kind)] == [(n - low) % (high - low + 1) + low for n in numbers]


def test_bool_and_complex() -> None:
    assert cast([0.0, -0.0, 1e-300, np.nan], K.BOOL).tolist() == [False, False, True, True]
    assert cast(np.array([2 + 0j, 1j, 0]), K.BOOL).tolist() == [True, True, False]
    assert cast([0, 2], K.BIN).dtype == np.bool_
    for kind in (*ALL, *SMALL_FLOATS[:5], K.S4):
        assert cast(np.array([True, False]), kind).astype(np.complex128).tolist() == [1, 0]
    trap = np.longdouble(1) + np.longdouble(2) ** -24
    assert cast(np.array([trap + 1j]), K.C64).dtype == np.complex64
    assert cast(np.float64(1e300), K.C64) == complex(np.inf, 0) and cast(np.float64(0.1), K.C64) == np.float32(0.1)
    with pytest.raises(UnsupportedError, match="real part"):
        cast(np.array([1j]), K.F32)
    with pytest.raises(InvalidProblemError, match="object"):
        cast(np.array([None]), K.F32)


@pytest.mark.parametrize("source", [*ALL, *SMALL_FLOATS, K.S4, K.U4])
@pytest.mark.parametrize("target", K)
def test_every_pair_keeps_shape_and_gives_the_value_dtype(source: K, target: K) -> None:
    if source.is_complex and not (target.is_complex or target.dtype == np.bool_):
        return
    for shape in ((), (0, 3), (2, 1)):
        x = np.ones(shape, source.dtype)
        for saturate in (False, True):
            y = cast(x, target, saturate)
            assert isinstance(y, np.ndarray) and y.dtype == target.dtype and y.shape == shape
            assert (y.astype(np.complex128) == 1).all()


def test_views_are_untouched() -> None:
    x = np.arange(12.0).reshape(3, 4)[::-1, ::2]
    before = x.copy()
    assert same(cast(x, K.BF16).astype("f8"), x) and same(cast(x, K.I8).astype("f8"), x) and same(x, before)
    assert cast(x, K.F64) is x


# --- carriers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [K.FP8E4M3, K.FP8E5M2, K.E8M0])
def test_fp8_decodes_by_view(kind: K) -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)[:, ::2]
    values = decode(codes, kind)
    assert values.dtype == kind.dtype and np.shares_memory(values, codes)
    assert np.array_equal(cast(values.astype("f8"), kind).view(np.uint8)[~np.isnan(values)], codes[~np.isnan(values)])
    assert decode(values, kind) is values


def test_packed_kinds_unpack_low_first() -> None:
    packed = np.array([[0x81, 0x7F]], np.uint8)
    assert decode(packed, K.S4).astype(int).tolist() == [[1, -8, -1, 7]]
    assert decode(packed, K.U4).astype(int).tolist() == [[1, 8, 15, 7]]
    assert decode(packed, K.FP4E2M1).astype(float).tolist() == [[0.5, -0.0, -6, 6]]
    assert decode(packed[:, :1], K.BIN).astype(int).tolist() == [[1, 0, 0, 0, 0, 0, 0, 1]]
    assert decode(np.zeros((2, 0), np.uint8), K.S4).shape == (2, 0)
    with pytest.raises(InvalidProblemError, match="axis"):
        decode(np.zeros((), np.uint8), K.S4)
    with pytest.raises(InvalidProblemError, match="uint8"):
        decode(np.zeros(2, np.int32), K.FP8E4M3)


@pytest.mark.parametrize("kind", [K.S4, K.U4, K.FP4E2M1, K.BIN, K.FP8E4M3, K.E8M0, K.F32])
def test_encode_is_the_inverse_of_decode(kind: K) -> None:
    for last in (0, 1, 5, 8, 16):
        values = cast(np.arange(3 * last).reshape(3, last) % 7, kind, saturate=True)
        carrier = encode(values, kind)
        assert carrier.dtype == kind.carrier and carrier.shape == (3, -(-last * kind.bits // (8 * kind.itemsize)))
        assert np.array_equal(decode(carrier, kind)[:, :last], values)
        assert not decode(carrier, kind)[:, last:].astype("f8").any()  # the filling
