"""The gradients of the binary kinds: functions of dy, a and b that return (da, db), or one where b or a is a number."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...calls.functional import functional
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.arrays import read
from .binary_backward import BinaryBackwardPlan
from .binary_functions import complex_kind, factor_of, per_channel, power_of
from .binary_kinds import BinaryKind
from .binary_numbers import NUMBERS, element_of, is_complex, number_for
from .complex_binary_backward import call_backward_with_number, call_complex_backward

K = BinaryKind
_made: dict[Any, Any] = {}


def _make(kind: BinaryKind, with_number: bool) -> Any:
    """The generated function of a kind, of two arrays or of an array and a number; made when first called."""
    fixed: dict[str, Any] = {} if with_number else {"reverse": False}
    made = functional(BinaryBackwardPlan, f"{kind.value}_backward", kind=kind, with_number=with_number, **fixed)
    return _made.setdefault((kind, with_number), made)


def _call(kind: BinaryKind, dy: Any, a: Any, b: Any, **more: Any) -> Any:
    reverse = type(a) in NUMBERS
    if not reverse and type(b) not in NUMBERS:
        if is_complex(a):
            return call_complex_backward(complex_kind(kind, f"{kind.value}_backward"), dy, a, b, **more)
        made = _made.get((kind, False)) or _make(kind, False)
        return made(dy, a, b, **more)
    array, value = (b, a) if reverse else (a, b)
    if type(array) in NUMBERS:
        raise InvalidProblemError(f"a or b must be an array, got the numbers {shown(a)} and {shown(b)}")
    name = f"{kind.value}_backward"
    given = {} if is_complex(array) else number_for(name, "a" if reverse else "b", element_of(array), value)
    if given and "number" not in given:
        raise InvalidProblemError(f"{name}: integers have no gradient, got {element_of(array)}")
    da, db = more.pop("return_da", True), more.pop("return_db", True)
    if not (db if reverse else da):
        raise InvalidProblemError(f"{name}: a number has no gradient; ask for that of {'b' if reverse else 'a'}")
    if is_complex(array):
        return call_backward_with_number(complex_kind(kind, name), dy, array, value, reverse, **more)
    made = _made.get((kind, True)) or _make(kind, True)
    return made(dy, array, reverse=reverse, **given, **more)


def _function(kind: BinaryKind) -> Any:
    @entry(BinaryBackwardPlan, kind=kind)
    def call(
        dy: Any, a: Any, b: Any, *, return_da: Any = True, return_db: Any = True, out: Any = None, stream: Any = None,
        preference: Any = None,
    ) -> Any:  # fmt: skip
        return _call(
            kind, dy, a, b, return_da=return_da, return_db=return_db, out=out, stream=stream, preference=preference
        )

    call.__name__ = call.__qualname__ = f"{kind.value}_backward"
    call.__doc__ = (
        f"(da, db) of y = {kind.value}(a, b), each in its operand's own shape; where one is a number, the other's "
        "alone. See `BinaryBackwardPlan`."
    )
    return call


add_backward = _function(K.ADD)
sub_backward = _function(K.SUB)
mul_backward = _function(K.MUL)
div_backward = _function(K.DIV)
remainder_backward = _function(K.REMAINDER)
fmod_backward = _function(K.FMOD)
squared_difference_backward = _function(K.SQUARED_DIFFERENCE)
absolute_difference_backward = _function(K.ABSOLUTE_DIFFERENCE)
pow_backward = _function(K.POW)
ldexp_backward = _function(K.LDEXP)
logaddexp_backward = _function(K.LOGADDEXP)
logaddexp2_backward = _function(K.LOGADDEXP2)
xlogy_backward = _function(K.XLOGY)
xlog1py_backward = _function(K.XLOG1PY)
atan2_backward = _function(K.ATAN2)
hypot_backward = _function(K.HYPOT)
maximum_backward = _function(K.MAXIMUM)
minimum_backward = _function(K.MINIMUM)
fmax_backward = _function(K.FMAX)
fmin_backward = _function(K.FMIN)
copysign_backward = _function(K.COPYSIGN)
nextafter_backward = _function(K.NEXTAFTER)


@entry(BinaryBackwardPlan, kind=K.POW)
def integer_pow_backward(
    dy: Array, x: Array, y: int, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """dx = dy y x^(y - 1) of integer_pow(x, y), and 0 for y = 0. See `BinaryBackwardPlan`."""
    power = power_of("integer_pow_backward", x, y)
    return _call(K.POW, dy, x, power, out=out, stream=stream, preference=preference)


@entry(BinaryBackwardPlan, kind=K.ADD_SCALED)
def add_scaled_backward(
    dy: Array, a: Array, b: Array, alpha: Any, *, return_da: Any = True, return_db: Any = True, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(da, db) of y = add(a, b, alpha=alpha); of sub with its alpha turned. See `BinaryBackwardPlan`."""
    alpha = factor_of("add_scaled_backward", alpha, element_of(dy)) if type(alpha) in NUMBERS else alpha
    return _call(K.ADD_SCALED, dy, a, b, return_da=return_da, return_db=return_db, alpha=alpha, out=out,
                 stream=stream, preference=preference)  # fmt: skip


@entry(BinaryBackwardPlan, kind=K.PRELU)
def prelu_backward(
    dy: Array, x: Array, weight: Array, *, return_dx: Any = True, return_dweight: Any = True, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(dx, dweight) of y = prelu(x, weight), the latter summed over all but the channels. See `BinaryBackwardPlan`."""
    wide = per_channel(x, weight)
    options = {"return_da": return_dx, "return_db": return_dweight, "stream": stream, "preference": preference}
    if type(weight) in NUMBERS or return_dweight is False:
        return _call(K.PRELU, dy, x, wide, out=out, **options)
    if out is not None:
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        _call(K.PRELU, dy, x, wide, out=[*outs[:-1], per_channel(x, outs[-1])], **options)
        return outs[0] if len(outs) == 1 else tuple(outs)
    made = _call(K.PRELU, dy, x, wide, **options)
    shape = read(weight, "weight").shape
    return made.reshape(shape) if return_dx is False else (made[0], made[1].reshape(shape))
