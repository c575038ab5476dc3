"""`ElementKind`, the tag that says what an array holds, and `cast`, the one rounding rule of the package.

An element has a *value* dtype (what NumPy computes with: `bfloat16`, `float8_e4m3fn`, `int4`) and a *carrier* dtype
(what travels in memory: fp8, e8m0, packed sub-byte kinds and bits are uint8 with the tag beside them).
"""

from __future__ import annotations

import enum
import math
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from .checked import shown
from .errors import InvalidProblemError, UnsupportedError

Array: TypeAlias = "np.ndarray[Any, Any]"
DType: TypeAlias = "np.dtype[Any]"


class Limits(NamedTuple):
    """The range and spacing of the finite values (of the parts, if complex); integers have eps 0 and spacing 1."""

    min: float
    max: float
    eps: float = 0.0
    digits: int = 0
    """Stored bits of the fraction."""
    min_exponent: int = 0
    """Exponent of the smallest normal number."""

    @property
    def tiny(self) -> float:
        """The smallest positive value."""
        return math.ldexp(1.0, self.min_exponent - self.digits)


def _limits(dtype: DType, integer: bool) -> Limits:
    if dtype == np.bool_:
        return Limits(0, 1)
    info: Any = (ml_dtypes.iinfo if integer else ml_dtypes.finfo)(dtype)
    if integer:
        return Limits(int(info.min), int(info.max))
    return Limits(float(info.min), float(info.max), float(info.eps), int(info.nmant), int(info.minexp))


class ElementKind(enum.Enum):
    """What one element is; `str()` is its NumPy or ml_dtypes name."""

    #        name, value dtype, bits, C++ type
    F16 = ("float16", np.float16, 16, "__half")
    BF16 = ("bfloat16", ml_dtypes.bfloat16, 16, "__nv_bfloat16")
    F32 = ("float32", np.float32, 32, "float")
    F64 = ("float64", np.float64, 64, "double")
    I8 = ("int8", np.int8, 8, "signed char")
    I16 = ("int16", np.int16, 16, "short")
    I32 = ("int32", np.int32, 32, "int")
    I64 = ("int64", np.int64, 64, "long long")
    U8 = ("uint8", np.uint8, 8, "unsigned char")
    U16 = ("uint16", np.uint16, 16, "unsigned short")
    U32 = ("uint32", np.uint32, 32, "unsigned int")
    U64 = ("uint64", np.uint64, 64, "unsigned long long")
    BOOL = ("bool", np.bool_, 8, "bool")
    C64 = ("complex64", np.complex64, 64, "complex<float>")
    C128 = ("complex128", np.complex128, 128, "complex<double>")
    FP8E4M3 = ("float8_e4m3fn", ml_dtypes.float8_e4m3fn, 8, "__nv_fp8_e4m3")
    FP8E5M2 = ("float8_e5m2", ml_dtypes.float8_e5m2, 8, "__nv_fp8_e5m2")
    FP4E2M1 = ("float4_e2m1fn", ml_dtypes.float4_e2m1fn, 4, "unsigned char")  # packed: C++ sees the bytes
    E8M0 = ("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, 8, "__nv_fp8_e8m0")
    S4 = ("int4", ml_dtypes.int4, 4, "unsigned char")
    U4 = ("uint4", ml_dtypes.uint4, 4, "unsigned char")
    BIN = ("bin", np.bool_, 1, "unsigned char")

    dtype: DType  # of the values
    carrier: DType  # of the stored array
    itemsize: int  # bytes of one carrier item
    bits: int
    is_float: bool
    is_integer: bool
    is_complex: bool
    is_inexact: bool  # a float or complex, as NumPy's word has it
    ctype: str  # in kernels
    acc: ElementKind  # what sums are kept in
    part: ElementKind  # the real and imaginary part of a complex kind; any other is its own
    paired: ElementKind | None  # the complex kind whose parts are of this kind
    limits: Limits

    def __new__(cls, name: str, dtype: Any, bits: int, ctype: str) -> ElementKind:
        kind = object.__new__(cls)
        kind._value_ = name
        kind.dtype = np.dtype(dtype)
        kind.carrier = np.dtype(np.uint8) if bits < 8 or name.startswith("float8") else kind.dtype
        kind.itemsize = kind.carrier.itemsize
        kind.bits = bits
        kind.is_float = name.startswith(("float", "bfloat"))
        kind.is_integer = name.startswith(("int", "uint"))
        kind.is_complex = name.startswith("complex")
        kind.is_inexact = kind.is_float or kind.is_complex
        kind.ctype = ctype
        kind.limits = _limits(kind.dtype, kind.is_integer)
        return kind

    __hash__ = object.__hash__  # members are singletons, and Enum's own hash is a Python call

    def __str__(self) -> str:
        return str(self._value_)

    def __repr__(self) -> str:
        return f"ElementKind.{self._name_}"

    @staticmethod
    def of(x: Any) -> ElementKind:
        """The kind meant by a kind, a dtype name, a dtype (NumPy, ml_dtypes, torch, JAX) or what has a `.dtype`."""
        try:
            return _KNOWN[x]
        except Exception:  # not seen yet, or without a hash, as arrays are
            return _resolve(x)


def _accumulator(kind: ElementKind) -> ElementKind:
    if kind.is_complex or kind is ElementKind.F64:
        return kind
    if kind.is_float:
        return ElementKind.F32
    return ElementKind.U64 if str(kind).startswith("uint") else ElementKind.I64


_PARTS = {ElementKind.C64: ElementKind.F32, ElementKind.C128: ElementKind.F64}
for _kind in ElementKind:
    _kind.acc = _accumulator(_kind)
    _kind.part = _PARTS.get(_kind, _kind)
    _kind.paired = next((pair for pair, part in _PARTS.items() if part is _kind), None)

FLOATS = (ElementKind.F32, ElementKind.F64, ElementKind.F16, ElementKind.BF16)
HALVES = (ElementKind.F16, ElementKind.BF16)
FP8 = (ElementKind.FP8E4M3, ElementKind.FP8E5M2)
SIGNED = (ElementKind.I8, ElementKind.I16, ElementKind.I32, ElementKind.I64)
UNSIGNED = (ElementKind.U8, ElementKind.U16, ElementKind.U32, ElementKind.U64)
INTS = SIGNED + UNSIGNED
INDICES = (ElementKind.I32, ElementKind.I64)
COMPLEX = (ElementKind.C64, ElementKind.C128)
REALS = FLOATS + INTS  # what ordering and arithmetic kernels take
ALL = (*REALS, ElementKind.BOOL, *COMPLEX)  # every kind of one whole, plainly stored value

_ALIASES = {
    "bf16": ElementKind.BF16,
    "fp16": ElementKind.F16,
    "fp32": ElementKind.F32,
    "fp64": ElementKind.F64,
    "float4_e2m1fn_x2": ElementKind.FP4E2M1,
}
_NAMES = {str(kind): kind for kind in ElementKind} | _ALIASES
_BY_DTYPE: dict[DType, ElementKind] = {kind.dtype: kind for kind in ElementKind if kind is not ElementKind.BIN}
_KNOWN: dict[Any, ElementKind] = {
    **{kind: kind for kind in ElementKind},
    **_NAMES,
    **_BY_DTYPE,
    **{dtype.type: kind for dtype, kind in _BY_DTYPE.items()},
}


def _resolve(x: Any) -> ElementKind:
    """The slow path of `ElementKind.of`; remembers dtypes and names, never arrays."""
    kind: ElementKind | None = None
    if type(x).__module__ == "torch" and type(x).__name__ == "dtype":
        kind = _NAMES.get(str(x).removeprefix("torch."))
    elif isinstance(x, str) and x.startswith("torch."):
        kind = _NAMES.get(x.removeprefix("torch."))
    elif isinstance(x, (str, type, np.dtype)):
        try:
            kind = _BY_DTYPE.get(np.dtype(x))
        except MemoryError:
            raise
        except Exception:  # names of every alphabet, classes whose own `dtype` raises
            kind = None
    else:
        try:
            dtype = getattr(x, "dtype", None)
        except MemoryError:
            raise
        except Exception:
            dtype = None
        if dtype is not None and dtype is not x:
            return ElementKind.of(dtype)
    if kind is None:
        raise UnsupportedError(f"no element kind for {shown(x)}; use one of {', '.join(map(str, ElementKind))}")
    _KNOWN[x] = kind
    return kind


# --- rounding --------------------------------------------------------------------------------------------------------

_TO_HALF = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))  # NumPy rounds these once
_WIDER: dict[DType, Any] = {  # ml_dtypes values widen exactly before anything else is done with them
    kind.dtype: np.float32 if kind.is_float else np.int8
    for kind in ElementKind
    if kind.bits == 4 or (kind.is_float and kind.dtype not in _TO_HALF)
}


def cast(values: Any, element: Any, saturate: bool = False) -> Array:
    """`values` as `element`, rounded once, half to even; returned as it is when it holds them already.

    - to floats: any real source, longdouble included. Overflow gives inf (NaN where the kind has no inf); with
      `saturate` the largest finite value, from inf too. NaN stays NaN. float4_e2m1fn has neither: it always
      saturates, and NaN becomes its maximum, as the hardware does. float8_e8m0fnu (a power of two) rounds ties up, its
      NaN stands for negatives and zero; with `saturate` zero becomes its minimum.
    - float to integer: toward zero, clamped to the range, NaN to 0, with and without `saturate` (a GPU does the same).
    - integer to integer: wraps; with `saturate` clamps.
    - to bool or bin: x != 0, so NaN is True.
    - to complex: part by part, a real source in the real part (`saturate` acts on it). Complex to real is refused.
    """
    kind = ElementKind.of(element)
    x: Array = np.asarray(values)
    if x.dtype == kind.dtype and not (saturate and kind.is_float):
        return x
    if x.dtype in _WIDER:
        x = x.astype(_WIDER[x.dtype])
    if x.dtype.kind not in "biufc":
        raise InvalidProblemError(f"cannot cast dtype {x.dtype} to {kind}; give numbers")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.asarray(_cast(x, kind, saturate))


def _cast(x: Array, kind: ElementKind, saturate: bool) -> Array:
    if kind.dtype == np.bool_:
        return np.not_equal(x, 0)
    if x.dtype.kind == "c" and not kind.is_complex:
        raise UnsupportedError(f"cannot cast {x.dtype} to {kind}; take the real part or the magnitude first")
    if kind.is_complex:
        return (x if x.dtype.kind == "c" else cast(x, kind.part, saturate)).astype(kind.dtype)
    if kind.is_integer:
        return _to_integer(x, kind, saturate)
    return _to_float(x, kind, saturate)


def joined(real: Any, imag: Any) -> Array:
    """real + i imag, where infinities, NaN and the signs of zeros stay in their part."""
    real, imag = np.broadcast_arrays(real, imag)
    made: Array = np.empty(real.shape, np.result_type(real, imag, np.complex64))
    made.real, made.imag = real, imag
    return made


def _to_integer(x: Array, kind: ElementKind, saturate: bool) -> Array:
    low, high = int(kind.limits.min), int(kind.limits.max)
    if x.dtype.kind in "iu":
        if saturate:
            source = np.iinfo(x.dtype)
            x = np.clip(x, max(low, source.min), min(high, source.max))
        return x.astype(kind.dtype)
    if x.dtype.kind == "b":
        return x.astype(np.int8).astype(kind.dtype)
    x = np.trunc(x.astype(np.float32) if x.dtype == np.float16 else x)
    below, above = x < float(low), x >= float(high + 1)  # both bounds are exact in every float dtype
    whole = np.where(below | above | np.isnan(x), 0, x).astype(np.int64 if low < 0 else np.uint64)
    whole[below], whole[above] = low, high
    return whole.astype(kind.dtype)


def _to_float(x: Array, kind: ElementKind, saturate: bool) -> Array:
    if kind is ElementKind.E8M0:
        return _to_e8m0(_sticky_float(x), saturate)
    narrow = kind.dtype.itemsize < 4
    if narrow and not (kind is ElementKind.F16 and x.dtype in _TO_HALF):
        x = _odd_float32(_sticky_float(x))
    if kind is ElementKind.FP4E2M1:
        x, saturate = np.where(np.isnan(x), np.float32(np.inf), x), True
    if not saturate:
        return x.astype(kind.dtype)
    largest = kind.limits.max
    # Rounding is monotonic, so clamping before it is the same, and needs a source that holds the maximum.
    if narrow:
        return np.asarray(np.clip(x, -largest, largest)).astype(kind.dtype)
    return np.asarray(np.clip(x.astype(kind.dtype), -largest, largest))


def _to_e8m0(x: Array, saturate: bool) -> Array:
    mantissa, exponent = np.frexp(x)
    code = np.maximum(exponent + 126 + (mantissa >= 0.75), 0)
    code = np.where(np.isinf(x) | (code > 254), 254 if saturate else 255, code)
    code = np.where((x > 0) | (saturate & (x == 0)), code, 255)
    return np.asarray(np.where(x == 0, 0, code) if saturate else code).astype(np.uint8).view(ElementKind.E8M0.dtype)


def _sticky_float(x: Array) -> Array:
    """`x` as a float of at least 32 bits that rounds to 24 bits or fewer as `x` does (wide integers rounded to odd)."""
    if x.dtype.kind == "f":
        return x.astype(np.float32) if x.dtype == np.float16 else x
    if x.dtype.itemsize == 8:
        rest = x & 0x7FF
        x = np.where((x > 2**53) | (x < -(2**53)), (x - rest) | (rest != 0).astype(x.dtype) << 11, x)
    return x.astype(np.float64)


def _odd_float32(x: Array) -> Array:
    """`x` rounded to odd in float32: cut off, with the last bit set when anything was lost.

    Rounding that again to at most 22 bits gives what rounding `x` once would; NumPy's own way from float64 to
    bfloat16 or fp8 rounds to nearest twice and is wrong just beside the midpoints.
    """
    if x.dtype == np.float32:
        return x
    y = x.astype(np.float32)
    bits = (y.view(np.uint32) - (np.abs(y) > np.abs(x))) | (y != x)
    return np.asarray(bits, np.uint32).view(np.float32)


# --- carriers --------------------------------------------------------------------------------------------------------


def decode(array: Array, element: Any) -> Array:
    """The values in a carrier array: fp8 and e8m0 are a view, packed kinds are unpacked along the last axis.

    Two 4-bit values a byte, the low nibble first; eight bits a byte, the lowest first. Values pass through.
    """
    kind = ElementKind.of(element)
    if array.dtype == kind.dtype:
        return array
    if array.dtype != kind.carrier:
        raise InvalidProblemError(f"{kind} travels as {kind.carrier}, got {array.dtype}")
    if kind.bits == 8:
        return array.view(kind.dtype)
    if array.ndim == 0:
        raise InvalidProblemError(f"packed {kind} needs at least one axis, got a 0-d array")
    if kind is ElementKind.BIN:
        return np.unpackbits(array, axis=-1, bitorder="little").view(np.bool_)
    nibbles = np.stack([array & 15, array >> 4], axis=-1).reshape(*array.shape[:-1], 2 * array.shape[-1])
    if kind is ElementKind.S4:
        return ((nibbles ^ 8).astype(np.int8) - 8).astype(kind.dtype)
    return nibbles.astype(kind.dtype) if kind is ElementKind.U4 else nibbles.view(kind.dtype)


def encode(values: Array, element: Any) -> Array:
    """The carrier array of an element's values, as `decode` reads it; what is left of a last byte is 0."""
    kind = ElementKind.of(element)
    if kind.bits >= 8:
        return values.view(kind.carrier)
    if kind is ElementKind.BIN:
        return np.packbits(values, axis=-1, bitorder="little")
    nibbles = values.view(np.uint8) & 15
    if nibbles.shape[-1] % 2:
        nibbles = np.concatenate([nibbles, np.zeros_like(nibbles[..., :1])], axis=-1)
    return np.asarray(nibbles[..., ::2] | nibbles[..., 1::2] << 4)


def unrounded(x: Array) -> Array:
    """The default of a reference's `store`: intermediates stay as they are."""
    return x
