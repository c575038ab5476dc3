"""The functions of the binary kinds, under PyTorch's names and NumPy's; either operand may be a Python number."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array, Scalar, functional
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.keywords import entry, unexpected
from ...core.tensor import TensorRef
from ...interop.arrays import read
from .binary import BinaryPlan
from .binary_kinds import BinaryKind
from .binary_numbers import NUMBERS, element_of, mixed, number_for
from .cast import cast

K = BinaryKind
_ISCLOSE = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}
_made: dict[Any, Any] = {}


def _make(kind: BinaryKind, with_number: bool) -> Any:
    """The generated function of a kind, of two arrays or of an array and a number; made when first called."""
    fixed: dict[str, Any] = {} if kind is K.ISCLOSE else dict(_ISCLOSE)
    if not with_number:
        fixed["reverse"] = False
    made = functional(BinaryPlan, kind.value, kind=kind, with_number=with_number, **fixed)
    return _made.setdefault((kind, with_number), made)


def _call(kind: BinaryKind, name: str, a: Any, b: Any, **more: Any) -> Any:
    """f(a, b); what is wrong with two arrays of different elements is said once the call has failed."""
    if type(a) in NUMBERS or type(b) in NUMBERS:
        reverse = type(a) in NUMBERS
        array, value = (b, a) if reverse else (a, b)
        if type(array) in NUMBERS:
            raise InvalidProblemError(f"{name}: a or b must be an array, got the numbers {a!r} and {b!r}")
        given = number_for(name, "a" if reverse else "b", element_of(array), value)
        made = _made.get((kind, True)) or _make(kind, True)
        return made(array, reverse=reverse, **given, **more)
    made = _made.get((kind, False)) or _make(kind, False)
    try:
        return made(a, b, **more)
    except InvalidProblemError:
        if (why := mixed(name, a, b)) is not None:
            raise InvalidProblemError(why) from None
        raise


def _function(kind: BinaryKind) -> Any:
    name = kind.value

    @entry(BinaryPlan, kind=kind)
    def call(a: Any, b: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any) -> Any:
        if unknown:
            raise unexpected(call, unknown)
        return _call(kind, name, a, b, out=out, stream=stream, preference=preference)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"y = {name}(a, b) with broadcasting; a or b may be a number. See `BinaryPlan`."
    return call


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def _scaled(name: str, kind: BinaryKind, a: Any, b: Any, alpha: Any, sign: int, more: dict[str, Any]) -> Any:
    """a ± b, or a + (± alpha) b in one launch."""
    if type(alpha) in NUMBERS:
        if alpha == 1:
            return _call(kind, name, a, b, **more)
        lead = element_of(b if type(a) in NUMBERS else a)
        if lead.is_integer and (alpha != int(alpha) or not -(2**53) <= alpha <= 2**53):
            raise InvalidProblemError(f"{name}: alpha must be an integer of at most 53 bits for {lead}, got {alpha!r}")
        return _call(K.ADD_SCALED, name, a, b, alpha=sign * float(alpha), **more)
    if sign < 0:
        raise UnsupportedError(f"{name}: alpha on the device is for add; give it the negative of alpha there")
    return _call(K.ADD_SCALED, name, a, b, alpha=alpha, **more)


@entry(BinaryPlan, kind=K.ADD)
def add(
    a: Array, b: Array, *, alpha: Scalar = 1, out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """a + alpha b, rounded once; a or b may be a number, alpha a 0-d device array. See `BinaryPlan`."""
    if unknown:
        raise unexpected(add, unknown)
    if type(alpha) is int and alpha == 1:
        return _call(K.ADD, "add", a, b, out=out, stream=stream, preference=preference)
    return _scaled("add", K.ADD, a, b, alpha, 1, {"out": out, "stream": stream, "preference": preference})


@entry(BinaryPlan, kind=K.SUB)
def sub(
    a: Array, b: Array, *, alpha: Scalar = 1, out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """a - alpha b, rounded once; a or b may be a number. See `BinaryPlan`."""
    if unknown:
        raise unexpected(sub, unknown)
    return _scaled("sub", K.SUB, a, b, alpha, -1, {"out": out, "stream": stream, "preference": preference})


@entry(BinaryPlan, kind=K.SUB)
def rsub(
    a: Array, b: Array, *, alpha: Scalar = 1, out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """b - alpha a, rounded once; a or b may be a number (torch.rsub). See `BinaryPlan`."""
    if unknown:
        raise unexpected(rsub, unknown)
    return _scaled("rsub", K.SUB, b, a, alpha, -1, {"out": out, "stream": stream, "preference": preference})


_ROUNDING = {None: K.DIV, "trunc": K.TRUNC_DIVIDE, "floor": K.FLOOR_DIVIDE}


@entry(BinaryPlan, kind=K.DIV)
def div(
    a: Array, b: Array, *, rounding_mode: str | None = None, out: Any = None, stream: Any = None,
    preference: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """a / b, with rounding_mode "trunc" or "floor" trunc_divide or floor_divide. See `BinaryPlan`."""
    if unknown:
        raise unexpected(div, unknown)
    kind = _ROUNDING.get(rounding_mode) if rounding_mode is None or isinstance(rounding_mode, str) else None
    if kind is None:
        raise InvalidProblemError(f'rounding_mode must be None, "trunc" or "floor", got {rounding_mode!r}')
    return _call(kind, kind.value, a, b, out=out, stream=stream, preference=preference)


mul = _function(K.MUL)
trunc_divide = _function(K.TRUNC_DIVIDE)
floor_divide = _function(K.FLOOR_DIVIDE)
remainder = _function(K.REMAINDER)
fmod = _function(K.FMOD)
squared_difference = _function(K.SQUARED_DIFFERENCE)
absolute_difference = _function(K.ABSOLUTE_DIFFERENCE)
subtract, multiply, divide, true_divide, mod = sub, mul, div, div, remainder

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
def float_power(
    a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any
) -> Any:
    """a to the b in float64 (torch.float_power): `pow` of casts of what is not float64 yet."""
    if unknown:
        raise unexpected(float_power, unknown)
    a, b = (
        x if type(x) in NUMBERS or str(element_of(x)) == "float64" else cast(x, "float64", stream=stream)
        for x in (a, b)
    )
    return pow(a, b, out=out, stream=stream, preference=preference)


# ---- choices and neighbours -----------------------------------------------------------------------------------------

maximum = _function(K.MAXIMUM)
minimum = _function(K.MINIMUM)
fmax = _function(K.FMAX)
fmin = _function(K.FMIN)
copysign = _function(K.COPYSIGN)
nextafter = _function(K.NEXTAFTER)
heaviside = _function(K.HEAVISIDE)


@entry(BinaryPlan, kind=K.PRELU)
def prelu(
    x: Array, weight: Array, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any
) -> Any:
    """x where x > 0, else weight x (torch.nn.functional.prelu); weight has one number, or one a channel (axis 1)."""
    if unknown:
        raise unexpected(prelu, unknown)
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
bitwise_and = _function(K.BITWISE_AND)
bitwise_or = _function(K.BITWISE_OR)
bitwise_xor = _function(K.BITWISE_XOR)
bitwise_left_shift = _function(K.BITWISE_LEFT_SHIFT)
bitwise_right_shift = _function(K.BITWISE_RIGHT_SHIFT)
left_shift, right_shift = bitwise_left_shift, bitwise_right_shift

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
    stream: Any = None, preference: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """|a - b| <= atol + rtol |b|, or a = b; a NaN is close to another if equal_nan. See `BinaryPlan`."""
    if unknown:
        raise unexpected(isclose, unknown)
    given = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    return _call(K.ISCLOSE, "isclose", a, b, **given, out=out, stream=stream, preference=preference)
