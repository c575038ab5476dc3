"""The functions of `SpecialFunctionPlan` and their gradients, by the names of torch.special and jax.scipy.special."""

from __future__ import annotations

from typing import Any

from ...core import Array, functional
from ...core.checked import real, shown
from ...core.errors import InvalidProblemError
from ...core.keywords import entry, known_only, unexpected
from ...core.outputs import each_of
from ...interop.arrays import read
from ..reduce.norm import sum_to_size
from .binary_numbers import NUMBERS
from .special_function import SpecialFunctionPlan
from .special_function_backward import SpecialFunctionBackwardPlan
from .special_function_kinds import DIFFERENTIABLE, WITH_THREE, SpecialFunctionKind
from .ternary_functions import clamp
from .unary import UnaryPlan
from .unary_fields import fixed_for
from .unary_kinds import UnaryKind

K = SpecialFunctionKind
_PLANS = {False: SpecialFunctionPlan, True: SpecialFunctionBackwardPlan}
_made: dict[Any, Any] = {}
_ORDER_FIRST = (K.GAMMAINC, K.GAMMAINCC, K.ZETA, K.EXPN)
"""Kinds that are called with the parameter before the argument."""


def _make(kind: K, backward: bool) -> Any:
    """The generated function of a kind; made when first called."""
    if (kind, backward) not in _made:
        name = f"{kind.value}_backward" if backward else kind.value
        _made[kind, backward] = functional(_PLANS[backward], name, kind=kind)
    return _made[kind, backward]


def _call(kind: K, lead: tuple[Any, ...], a: Any, b: Any, more: dict[str, Any]) -> Any:
    """f(a, b), or its gradients where `lead` is dy. A number for a becomes an array like b, NaN where b is."""
    a, b = (real(name, value) if type(value) in NUMBERS else value for name, value in (("a", a), ("b", b)))
    if type(a) in NUMBERS:
        if type(b) in NUMBERS:
            raise InvalidProblemError(
                f"{kind.value}: one operand must be an array, got the numbers {shown(a)} and {shown(b)}"
            )
        a = clamp(b, a, a, stream=more.get("stream"))
    if type(b) in NUMBERS:
        return _make(kind, bool(lead))(*lead, a, b_number=b, **more)
    return _make(kind, bool(lead))(*lead, a, b, **more)


def _own(call: Any, dy: Any, operands: dict[str, Any], out: Any, options: Any) -> tuple[Any, ...]:
    """The gradients of `operands`, by name, that `call` makes in y's shape, in the operands' own: a launch more each.

    Those of y's shape are written where `out` says at once.
    """
    outs, whole = each_of(out, len(operands)), read(dy, "dy").shape
    shapes = [read(one, name[1:]).shape for name, one in operands.items()]
    direct = {n: o for n, o, s in zip(operands, outs, shapes, strict=True) if o is not None and s == whole}
    made = call(direct or None)
    made = made if isinstance(made, tuple) else (made,)
    return tuple(
        g if shape == whole else sum_to_size(g, shape, out=one, **options)
        for g, shape, one in zip(made, shapes, outs, strict=True)
    )


def _forward(kind: K) -> Any:
    swapped = kind in _ORDER_FIRST

    def call(a: Any, b: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any) -> Any:
        if unknown:
            raise unexpected(known_only(call), unknown)
        given = {"out": out, "stream": stream, "preference": preference}
        return _call(kind, (), b, a, given) if swapped else _call(kind, (), a, b, given)

    also = "".join(f", also called {name}" for name in kind.row.aliases)
    call.__name__ = call.__qualname__ = kind.value
    what = _WHAT.get(kind, "x and the degree n, an array or a number" if "polynomial" in kind.value else "")
    call.__doc__ = (
        f"y = {kind.value}(a, b) with broadcasting{also}{f': {what}' if what else ''}; one of them may be a number. "
        "See `SpecialFunctionPlan`."
    )
    return entry(SpecialFunctionPlan, kind=kind)(call)


_WHAT = {
    K.GAMMAINC: "P(a, x), the regularised lower incomplete gamma function of the parameter a and the argument x = b",
    K.GAMMAINCC: "Q(a, x) = 1 - P(a, x), the upper one, of the parameter a and the argument x = b",
    K.ZETA: "the sum of (q + k)^-s over k >= 0, s = a and q = b", K.EXPN: "E_n(x), n = a whole and x = b",
    K.POCH: "Γ(a + b) / Γ(a)", K.COMB: "a! / (b! (a - b)!)", K.REL_ENTR: "a log(a / b)",
    K.KL_DIV: "a log(a / b) - a + b", K.BOXCOX: "(a^b - 1) / b", K.BOXCOX1P: "((1 + a)^b - 1) / b",
}  # fmt: skip


def _backward(kind: K) -> Any:
    swapped, alone = kind in _ORDER_FIRST, kind.row.gradient[1] is None

    def call(
        dy: Any, a: Any, b: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **wanted: Any
    ) -> Any:
        flags = {} if alone else {f"return_{name}": wanted.pop(f"return_{name}", True) for name in ("da", "db")}
        if wanted:
            raise unexpected(known_only(call), wanted)
        options = {"stream": stream, "preference": preference}
        a, b = (b, a) if swapped else (a, b)
        held = {"da": a} if alone else {"da": a, "db": b}
        flags = {n: flag and type(held[n[7:]]) not in NUMBERS for n, flag in flags.items()}
        sought = {n: one for n, one in held.items() if flags.get(f"return_{n}", True)}
        made = _own(
            lambda direct: _call(kind, (dy,), a, b, {**options, **flags, "out": direct}), dy, sought, out, options
        )
        return made if len(made) > 1 else made[0]

    call.__name__ = call.__qualname__ = f"{kind.value}_backward"
    what = f"The gradient by {'b' if swapped else 'a'}" if alone else "(da, db), that of an array alone,"
    call.__doc__ = f"{what} of y = {kind.value}(a, b), in the operand's own shape. See `SpecialFunctionBackwardPlan`."
    return entry(SpecialFunctionBackwardPlan, kind=kind)(call)


@entry(SpecialFunctionPlan, kind=K.BETAINC)
def betainc(
    a: Array, b: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any
) -> Any:
    """I_x(a, b), the regularised incomplete beta function (jax.scipy.special.betainc); a may be a number."""
    if unknown:
        raise unexpected(betainc, unknown)
    given = {"out": out, "stream": stream, "preference": preference}
    if type(a) in NUMBERS:
        return _make(K.BETAINC, False)(x, c=b, b_number=float(a), **given)
    return _make(K.BETAINC, False)(x, b=a, c=b, **given)


@entry(SpecialFunctionBackwardPlan, kind=K.BETAINC)
def betainc_backward(
    dy: Array, a: Array, b: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """The gradient by x of y = betainc(a, b, x), in x's shape; a may be a number. See `SpecialFunctionBackwardPlan`."""
    if unknown:
        raise unexpected(betainc_backward, unknown)
    options = {"stream": stream, "preference": preference}
    first = {"b_number": float(a)} if type(a) in NUMBERS else {"b": a}
    function = _make(K.BETAINC, True)
    return _own(lambda direct: function(dy, x, c=b, **first, out=direct, **options), dy, {"da": x}, out, options)[0]


# A function for each row of two operands, under its name and its aliases, and for its gradient.
_TWO = [kind for kind in SpecialFunctionKind if kind not in WITH_THREE]
globals().update(
    {name: made for kind in _TWO for made in (_forward(kind),) for name in (kind.value, *kind.row.aliases)}
)
globals().update({f"{kind.value}_backward": _backward(kind) for kind in _TWO if kind in DIFFERENTIABLE})


def _both(name: str, first: UnaryKind, second: UnaryKind, doc: str) -> Any:
    made = tuple(functional(UnaryPlan, kind.value, **fixed_for(kind)) for kind in (first, second))

    def call(x: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any) -> Any:
        if unknown:
            raise unexpected(known_only(call), unknown)
        outs = each_of(out, 2)
        return tuple(f(x, out=one, stream=stream, preference=preference) for f, one in zip(made, outs, strict=True))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return entry(UnaryPlan, kind=first)(call)


fresnel = _both(
    "fresnel", UnaryKind.FRESNEL_S, UnaryKind.FRESNEL_C,
    "(fresnel_s(x), fresnel_c(x)), the integrals of sin and cos of πt²/2 from 0 on (scipy.special.fresnel).",
)  # fmt: skip
sici = _both(
    "sici", UnaryKind.SINE_INTEGRAL, UnaryKind.COSINE_INTEGRAL,
    "(sine_integral(x), cosine_integral(x)) (scipy.special.sici); two launches.",
)  # fmt: skip
