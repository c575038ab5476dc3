"""The functions of the binary kinds, under PyTorch's names and NumPy's; either operand may be a Python number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import Array, ElementKind, Scalar
from ...calls.functional import functional
from ...core.checked import shown, whole
from ...core.errors import BaracudaError, InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.numbers import LEAST, met, plain
from ...core.tensor import TensorRef
from ...core.arrays import read
from ..reduce.reduce import all as all_of  # type: ignore[attr-defined]
from .binary import BinaryPlan
from .array_views import bitcast_convert_type
from .binary_kinds import BinaryKind
from .binary_numbers import NUMBERS, element_of, is_complex, mixed, number_for
from .cast import cast
from .complex_binary import ComplexBinaryPlan, call_with_number
from .complex_binary_kinds import ComplexBinaryKind

K = BinaryKind
_ISCLOSE = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}
_made: dict[Any, Any] = {}


def _make(kind: BinaryKind, with_number: bool) -> Any:
    """The generated function of a kind, of two arrays or of an array and a number; made when first called."""
    if (kind, with_number) not in _made:
        fixed: dict[str, Any] = {} if kind is K.ISCLOSE else dict(_ISCLOSE)
        if not with_number:
            fixed["reverse"] = False
        complex_ = COMPLEX.get(kind.value)
        of_complex = (ComplexBinaryPlan, {"kind": complex_, "with_number": False, "reverse": False})
        _made[kind, with_number] = functional(
            BinaryPlan, kind.value, kind=kind, with_number=with_number, **fixed,
            overloads=() if with_number or complex_ is None else (of_complex,),
        )  # fmt: skip
    return _made[kind, with_number]


COMPLEX = {kind.value: kind for kind in ComplexBinaryKind}
"""The kinds that complex numbers have, too, by name."""


def complex_kind(kind: BinaryKind, name: str) -> ComplexBinaryKind:
    """The kind of two complex numbers of that name."""
    if kind is K.ADD_SCALED:
        raise UnsupportedError(f"{name}: alpha is for real numbers; write add(a, mul(b, alpha))")
    if kind.value not in COMPLEX:
        raise UnsupportedError(f"{name} is not defined for complex numbers")
    return COMPLEX[kind.value]


def _call(kind: BinaryKind, name: str, a: Any, b: Any, **more: Any) -> Any:
    """f(a, b); what is wrong with two arrays of different elements is said once the call has failed."""
    if type(a) in NUMBERS or type(b) in NUMBERS:
        return _with_number(kind, name, a, b, more)
    try:
        return _make(kind, False)(a, b, **more)
    except BaracudaError as error:
        raise _explained(kind, name, a, b, error) from None


def _with_number(kind: BinaryKind, name: str, a: Any, b: Any, more: dict[str, Any]) -> Any:
    reverse = type(a) in NUMBERS
    array, value = (b, a) if reverse else (a, b)
    if type(array) in NUMBERS:
        raise InvalidProblemError(f"{name}: a or b must be an array, got the numbers {shown(a)} and {shown(b)}")
    if is_complex(array):
        return call_with_number(complex_kind(kind, name), array, value, reverse, **more)
    element = element_of(array)
    given = number_for(name, "a" if reverse else "b", element, value)
    if kind is K.POW and not (reverse or element.is_float) and value < 0:
        better = f"pow(cast(a, 'float32'), {shown(value)})"
        raise UnsupportedError(f"pow: a negative power of {element} is no integer, but of ±1; write {better}")
    return _make(kind, True)(array, reverse=reverse, **given, **more)


def _explained(kind: BinaryKind, name: str, a: Any, b: Any, error: BaracudaError) -> BaracudaError:
    """The error of a call, or the one that says which cast two arrays of different elements need."""
    apart = isinstance(error, InvalidProblemError) or is_complex(b) > is_complex(a)
    if apart and (why := mixed(name, a, b)) is not None:
        return InvalidProblemError(why)
    if isinstance(error, UnsupportedError) and is_complex(a):
        complex_kind(kind, name)  # says that there is none
    return error


def _caller(kind: BinaryKind) -> Any:
    """f(a, b) of two arrays with little before the generated function, which is made when first called."""
    name, arrays = kind.value, None

    def call(a: Any, b: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
        nonlocal arrays
        if type(a) in NUMBERS or type(b) in NUMBERS:
            return _with_number(kind, name, a, b, {"out": out, "stream": stream, "preference": preference})
        if arrays is None:
            arrays = _make(kind, False)
        try:
            return arrays(a, b, out=out, stream=stream, preference=preference)
        except BaracudaError as error:
            raise _explained(kind, name, a, b, error) from None

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"y = {name}(a, b) with broadcasting; a or b may be a number. See `BinaryPlan`."
    return call


def _function(kind: BinaryKind) -> Any:
    return entry(BinaryPlan, kind=kind)(_caller(kind))


# ---- arithmetic -----------------------------------------------------------------------------------------------------

_plain_add = _caller(K.ADD)


def _scaled(name: str, kind: BinaryKind, a: Any, b: Any, alpha: Any, sign: int, more: dict[str, Any]) -> Any:
    """a ± b, or a + (± alpha) b in one launch."""
    if (type(alpha) is int and alpha == 1) or (type(a) in NUMBERS and type(b) in NUMBERS):
        return _call(kind, name, a, b, **more)  # which refuses two numbers
    if type(alpha) not in NUMBERS:
        if sign < 0:
            raise UnsupportedError(f"{name}: alpha on the device is for add; give it the negative of alpha there")
        return _call(K.ADD_SCALED, name, a, b, alpha=alpha, **more)
    lead = element_of(b if type(a) in NUMBERS else a)
    factor = factor_of(name, alpha, lead)
    if factor == 1:
        return _call(kind, name, a, b, **more)
    if sign < 0 and factor == LEAST and not lead.is_inexact:
        sign = 1  # whose negative is the same modulo 2^64, and no int64
    return _call(K.ADD_SCALED, name, a, b, alpha=sign * factor, **more)


def factor_of(name: str, alpha: Any, element: ElementKind) -> int | float:
    """alpha as a Python number, an int of integers."""
    if isinstance(alpha, (complex, np.complexfloating)):
        raise InvalidProblemError(f"{name}: alpha must be a real number, got {shown(alpha)}")
    return met(f"{name}: alpha", plain(alpha), element, "coefficient")


@entry(BinaryPlan, kind=K.ADD)
def add(
    a: Array, b: Array, *, alpha: Scalar = 1, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """a + alpha b, rounded once; a or b may be a number, alpha a 0-d device array. See `BinaryPlan`."""
    if type(alpha) is int and alpha == 1:
        return _plain_add(a, b, out=out, stream=stream, preference=preference)
    return _scaled("add", K.ADD, a, b, alpha, 1, {"out": out, "stream": stream, "preference": preference})


@entry(BinaryPlan, kind=K.SUB)
def sub(
    a: Array, b: Array, *, alpha: Scalar = 1, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """a - alpha b, rounded once; a or b may be a number. See `BinaryPlan`."""
    return _scaled("sub", K.SUB, a, b, alpha, -1, {"out": out, "stream": stream, "preference": preference})


@entry(BinaryPlan, kind=K.SUB)
def rsub(
    a: Array, b: Array, *, alpha: Scalar = 1, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """b - alpha a, rounded once; a or b may be a number (torch.rsub). See `BinaryPlan`."""
    return _scaled("rsub", K.SUB, b, a, alpha, -1, {"out": out, "stream": stream, "preference": preference})


_ROUNDING = {None: K.DIV, "trunc": K.TRUNC_DIVIDE, "floor": K.FLOOR_DIVIDE}


@entry(BinaryPlan, kind=K.DIV)
def div(
    a: Array, b: Array, *, rounding_mode: str | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """a / b, with rounding_mode "trunc" or "floor" trunc_divide or floor_divide. See `BinaryPlan`."""
    kind = _ROUNDING.get(rounding_mode) if rounding_mode is None or isinstance(rounding_mode, str) else None
    if kind is None:
        raise InvalidProblemError(f'rounding_mode must be None, "trunc" or "floor", got {shown(rounding_mode)}')
    return _call(kind, kind.value, a, b, out=out, stream=stream, preference=preference)


mul = _function(K.MUL)
trunc_divide = _function(K.TRUNC_DIVIDE)
floor_divide = _function(K.FLOOR_DIVIDE)
remainder = _function(K.REMAINDER)
fmod = _function(K.FMOD)
squared_difference = _function(K.SQUARED_DIFFERENCE)
absolute_difference = _function(K.ABSOLUTE_DIFFERENCE)
subtract, multiply, divide, true_divide, mod, rem = sub, mul, div, div, remainder, fmod


@entry(BinaryPlan, kind=K.FLOOR_DIVIDE)
def divmod(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> tuple[Any, Any]:
    """(floor_divide(a, b), remainder(a, b)), two launches (numpy.divmod); out=: two arrays, neither of them a or b."""
    if out is not None and (not isinstance(out, (list, tuple)) or len(out) != 2):
        raise InvalidProblemError(f"out= must give 2 arrays, got {shown(out)}")
    first, second = (None, None) if out is None else out
    if first is not None and any(first is x for x in (a, b)):
        raise InvalidProblemError("out[0] is an operand, which the second launch reads; give it memory of its own")
    given = {"stream": stream, "preference": preference}
    return floor_divide(a, b, out=first, **given), remainder(a, b, out=second, **given)


# ---- powers, exponentials, angles -----------------------------------------------------------------------------------

pow = _function(K.POW)
ldexp = _function(K.LDEXP)
logaddexp = _function(K.LOGADDEXP)
logaddexp2 = _function(K.LOGADDEXP2)
xlogy = _function(K.XLOGY)
xlog1py = _function(K.XLOG1PY)
atan2 = _function(K.ATAN2)
hypot = _function(K.HYPOT)
power, arctan2 = pow, atan2


@entry(BinaryPlan, kind=K.POW)
def float_power(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """a to the b in float64 (torch.float_power): `pow` of casts of what is not float64 yet."""
    a, b = (
        x
        if type(x) in NUMBERS or str(element_of(x)) == "float64"
        else cast(x, "float64", stream=stream, preference=preference)
        for x in (a, b)
    )
    return pow(a, b, out=out, stream=stream, preference=preference)


@entry(BinaryPlan, kind=K.POW)
def integer_pow(x: Array, y: int, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x to the y, a Python integer (jax.lax.integer_pow): 1 for y = 0, also of NaN; integers wrap."""
    return pow(x, power_of("integer_pow", x, y), out=out, stream=stream, preference=preference)


def power_of(name: str, x: Any, y: Any) -> int:
    """A whole power that the type of x's arithmetic holds."""
    bits = 53 if element_of(x) in (ElementKind.F64, ElementKind.C128) else 24
    if not element_of(x).is_integer:
        return whole("y", y, -(2**bits), 2**bits)
    return whole(f"{name}: y", y, 0, int(element_of(x).limits.max))


# ---- choices and neighbours -----------------------------------------------------------------------------------------

maximum = _function(K.MAXIMUM)
minimum = _function(K.MINIMUM)
fmax = _function(K.FMAX)
fmin = _function(K.FMIN)
copysign = _function(K.COPYSIGN)
nextafter = _function(K.NEXTAFTER)
heaviside = _function(K.HEAVISIDE)


@entry(BinaryPlan, kind=K.PRELU)
def prelu(x: Array, weight: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x where x > 0, else weight x (torch.nn.functional.prelu); weight has one number, or one a channel (axis 1)."""
    given = {"out": out, "stream": stream, "preference": preference}
    return _call(K.PRELU, "prelu", x, per_channel(x, weight), **given)


def per_channel(x: Any, weight: Any) -> Any:
    """The weight of prelu as a view that broadcasts along the channels of x."""
    if type(weight) in NUMBERS:
        return weight
    shape, own = read(x, "x").shape, read(weight, "weight")
    if math.prod(own.shape) == 1 and len(own.shape) <= 1:
        return weight
    channels = shape[1] if len(shape) > 1 else 1
    if own.shape != (channels,):
        raise InvalidProblemError(f"weight must have shape (1,) or ({channels},), x's channels, got {own.shape}")
    rest = len(shape) - 2
    if isinstance(weight, TensorRef):
        return TensorRef(weight.ptr, (channels, *((1,) * rest)), (*own.strides, *((1,) * rest)), own.element,
                         device=weight.device)  # fmt: skip
    index = (slice(None), *((None,) * rest))
    return weight[index]


# ---- integers -------------------------------------------------------------------------------------------------------

gcd = _function(K.GCD)
lcm = _function(K.LCM)
mulhi = _function(K.MULHI)
bitwise_and = _function(K.BITWISE_AND)
bitwise_or = _function(K.BITWISE_OR)
bitwise_xor = _function(K.BITWISE_XOR)
bitwise_left_shift = _function(K.BITWISE_LEFT_SHIFT)
bitwise_right_shift = _function(K.BITWISE_RIGHT_SHIFT)
shift_right_logical = _function(K.SHIFT_RIGHT_LOGICAL)


@entry(BinaryPlan, kind=K.BITWISE_RIGHT_SHIFT)
def shift_right_arithmetic(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """a >> b with the upper bit of a shifted in, of unsigned integers too (jax.lax.shift_right_arithmetic)."""
    if type(a) in NUMBERS and type(b) in NUMBERS:
        return bitwise_right_shift(a, b)  # says what is wrong
    element = element_of(b if type(a) in NUMBERS else a)
    if not str(element).startswith("uint"):
        return bitwise_right_shift(a, b, out=out, stream=stream, preference=preference)
    signed = str(element)[1:]
    low, span = 2 ** (element.bits - 1), 2**element.bits

    def seen(x: Any) -> Any:  # the same bits with a sign; a shift that is negative then leaves none of them
        if x is None:
            return None
        return (int(x) + low) % span - low if type(x) in NUMBERS else bitcast_convert_type(x, signed)

    for place, value in (("a", a), ("b", b)):
        if type(value) in NUMBERS:
            number_for("shift_right_arithmetic", place, element, value)  # raises where it is none of the element's
    if type(b) in NUMBERS and b >= element.bits:
        b = element.bits - 1
    y = bitwise_right_shift(seen(a), seen(b), out=seen(out), stream=stream, preference=preference)
    return bitcast_convert_type(y, element) if out is None else out


left_shift, right_shift, shift_left = bitwise_left_shift, bitwise_right_shift, bitwise_left_shift

# ---- comparisons and logic ------------------------------------------------------------------------------------------

eq = _function(K.EQ)
ne = _function(K.NE)
lt = _function(K.LT)
le = _function(K.LE)
gt = _function(K.GT)
ge = _function(K.GE)
logical_and = _function(K.LOGICAL_AND)
logical_or = _function(K.LOGICAL_OR)
logical_xor = _function(K.LOGICAL_XOR)
equal, not_equal, less, less_equal, greater, greater_equal = eq, ne, lt, le, gt, ge


@entry(BinaryPlan, kind=K.ISCLOSE)
def isclose(
    a: Array, b: Array, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """|a - b| <= atol + rtol |b|, or a = b; a NaN is close to another if equal_nan. See `BinaryPlan`."""
    given = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    return _call(K.ISCLOSE, "isclose", a, b, **given, out=out, stream=stream, preference=preference)


@entry(BinaryPlan, kind=K.ISCLOSE)
def allclose(
    a: Array, b: Array, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Whether all of `isclose`, as a 0-d array where a and b are: nothing waits for it. Two launches."""
    given = {"stream": stream, "preference": preference}
    return all_of(isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, **given), out=out, **given)
