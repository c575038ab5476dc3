"""The functions of `SpecialFunctionPlan` and their gradients, by the names of torch.special and jax.scipy.special."""

from __future__ import annotations

import contextlib
from typing import Any

from ...core import Array, registry
from ...calls.functional import functional
from ...core.checked import real, shown, whole
from ...core.errors import BaracudaError, InvalidProblemError
from ...core.renamed import renamed
from ...calls.entries import entry
from ...core.keywords import known_only, unexpected
from ...core.outputs import beside, each_of
from ...core.views import constant, shape_of, with_axis
from ...core.arrays import read
from ..reduce.norm import sum_to_size
from .binary_functions import mul
from .binary_numbers import NUMBERS
from .cast import cast
from .complex_pair import polar
from .special_function import SpecialFunctionPlan
from .special_function_backward import SpecialFunctionBackwardPlan
from .special_function_kinds import DIFFERENTIABLE, WITH_THREE, SpecialFunctionKind
from .ternary_functions import clamp, where
from .unary import UnaryPlan, isnan  # type: ignore[attr-defined]
from .unary_fields import fixed_for
from .unary_kinds import UnaryKind

K = SpecialFunctionKind
_PLANS = {False: SpecialFunctionPlan, True: SpecialFunctionBackwardPlan}
_made: dict[Any, Any] = {}


def _make(kind: K, backward: bool) -> Any:
    """The generated function of a kind; made when first called."""
    if (kind, backward) not in _made:
        name = f"{kind.value}_backward" if backward else kind.value
        _made[kind, backward] = functional(_PLANS[backward], name, kind=kind)
    return _made[kind, backward]


def _spread_number(like: Any, x: float, more: dict[str, Any]) -> Any:
    """A number as an array like `like`, which has no gradient; `clamp` refuses what is no array."""
    with contextlib.suppress(Exception):  # of a subclass that hooks into every call
        like = constant(like)
    return clamp(like, x, x, stream=more.get("stream"), preference=more.get("preference"))


def _as_floats(given: dict[str, Any], more: dict[str, Any]) -> None:
    """Degrees, orders and counts that are integers in the element of the floats beside them, as torch promotes them."""
    arrays = {name: x for name, x in given.items() if type(x) not in NUMBERS}
    elements = {name: read(x, name).element for name, x in arrays.items()}
    goal = next((element for element in elements.values() if element.is_float), None)
    for name, element in elements.items() if goal is not None else ():
        if element.is_integer:
            given[name] = cast(arrays[name], goal, stream=more.get("stream"), preference=more.get("preference"))


def _call(kind: K, lead: tuple[Any, ...], operands: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """f, or its gradients where `lead` is dy, of the operands in the order of the public function.

    The second of the kernel's operands may stay a number; others become arrays like one that is, NaN where that is.
    """
    given = {name: real(name, x) if type(x) in NUMBERS else x for name, x in zip(kind.row.call, operands, strict=True)}
    like = next((x for x in operands if type(x) not in NUMBERS), None)
    if like is None:
        numbers = " and ".join(map(shown, operands))
        raise InvalidProblemError(f"{kind.value}: one operand must be an array, got the numbers {numbers}")
    for name, x in given.items():
        if type(x) in NUMBERS and name != "b":
            given[name] = _spread_number(like, x, more)
    _as_floats(given, more)
    if type(given["b"]) in NUMBERS:
        given["b_number"] = given.pop("b")
    try:
        return _make(kind, bool(lead))(*lead, **given, **more)
    except BaracudaError as error:
        exchanged = kind.row.call == "ba"
        if not exchanged or (told := renamed(error, {"a": "b", "b": "a"})) is error:
            raise
        raise told from None


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
    def call(a: Any, b: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
        return _call(kind, (), (a, b), {"out": out, "stream": stream, "preference": preference})

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
    K.IGAMMA_GRAD_A: "the derivative of P(a, x) by a, x = b",
    K.RANDOM_GAMMA_GRAD: "the derivative by the parameter a of a gamma variate, whose value is b",
    K.OWENS_T: "the integral of exp(-a² (1 + x²) / 2) / (2π (1 + x²)) from 0 to b",
    K.BESSEL_JN: "the Bessel function J of whole order n = a at x = b",
    K.KL_DIV: "a log(a / b) - a + b", K.BOXCOX: "(a^b - 1) / b", K.BOXCOX1P: "((1 + a)^b - 1) / b",
}  # fmt: skip


def _gradients(
    kind: K, dy: Any, operands: tuple[Any, ...], wanted: dict[str, bool], out: Any, options: dict[str, Any]
) -> Any:
    """The gradients by those of the public operands that have one and are arrays; of one alone, an array."""
    order, two = kind.row.call, kind.row.gradient[1] is not None
    places = [i for i, name in enumerate(order) if name == "a" or (name == "b" and two)]
    flags = {f"return_d{order[i]}": wanted.get("abcd"[i], True) and type(operands[i]) not in NUMBERS for i in places}
    asked = [i for i in places if flags[f"return_d{order[i]}"]]
    if not asked:
        raise InvalidProblemError(f"{kind.value}: no gradient is asked for of an operand that has one and is an array")
    outs = dict(zip(asked, each_of(out, len(asked)), strict=True))
    kernel = sorted(asked, key=lambda i: order[i])  # the order in which the plan gives them
    held = {f"d{order[i]}": operands[i] for i in kernel}
    more = {**options, **(flags if two else {})}
    made = _own(
        lambda direct: _call(kind, (dy,), operands, {**more, "out": direct}), dy, held, [outs[i] for i in kernel],
        options,
    )  # fmt: skip
    found = dict(zip(kernel, made, strict=True))
    return tuple(found[i] for i in asked) if len(asked) > 1 else found[asked[0]]


def _backward(kind: K) -> Any:
    alone = kind.row.gradient[1] is None

    def call(
        dy: Any, a: Any, b: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **wanted: Any
    ) -> Any:
        flags = {} if alone else {name: wanted.pop(f"return_d{name}", True) for name in "ab"}
        if wanted:
            raise unexpected(known_only(call), wanted)
        return _gradients(kind, dy, (a, b), flags, out, {"stream": stream, "preference": preference})

    call.__name__ = call.__qualname__ = f"{kind.value}_backward"
    what = f"The gradient by {'ab'[kind.row.call.index('a')]}" if alone else "(da, db), that of an array alone,"
    call.__doc__ = f"{what} of y = {kind.value}(a, b), in the operand's own shape. See `SpecialFunctionBackwardPlan`."
    return entry(SpecialFunctionBackwardPlan, kind=kind)(call)


@entry(SpecialFunctionPlan, kind=K.BETAINC)
def betainc(a: Array, b: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """I_x(a, b), the regularised incomplete beta function (jax.scipy.special.betainc); any may be a number, but all."""
    return _call(K.BETAINC, (), (a, b, x), {"out": out, "stream": stream, "preference": preference})


@entry(SpecialFunctionBackwardPlan, kind=K.BETAINC)
def betainc_backward(
    dy: Array, a: Array, b: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The gradient by x of y = betainc(a, b, x), in x's shape. See `SpecialFunctionBackwardPlan`."""
    return _gradients(K.BETAINC, dy, (a, b, x), {}, out, {"stream": stream, "preference": preference})


@entry(SpecialFunctionPlan, kind=K.HYP1F1)
def hyp1f1(a: Array, b: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """M(a, b, x) = Σ (a)_k / (b)_k x^k / k!, Kummer's function (jax.scipy.special.hyp1f1); one must be an array.

    For |x| <= 5000; NaN where terms of the series cancel by more than 2^40, as of M(60, 0.5, -100), and for b that is 0
    or a negative whole number. See `SpecialFunctionPlan`.
    """
    return _call(K.HYP1F1, (), (a, b, x), {"out": out, "stream": stream, "preference": preference})


@entry(SpecialFunctionBackwardPlan, kind=K.HYP1F1)
def hyp1f1_backward(
    dy: Array, a: Array, b: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The gradient by x of y = hyp1f1(a, b, x), in x's shape. See `SpecialFunctionBackwardPlan`."""
    return _gradients(K.HYP1F1, dy, (a, b, x), {}, out, {"stream": stream, "preference": preference})


@entry(SpecialFunctionPlan, kind=K.HYP2F1)
def hyp2f1(
    a: Array, b: Array, c: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Σ (a)_k (b)_k / (c)_k x^k / k!, Gauss's function (scipy.special.hyp2f1), for x <= 1; one must be an array.

    Any x where a or b is 0 or a negative whole number, as the sum then ends; at 1 its limit, which may be infinite. a,
    b and c are at most 1024. NaN where terms cancel by more than 2^40, as of F(-60.5, 70, 0.5, 0.4), and for c that is
    0 or a negative whole number, unless the sum ends before it. See `SpecialFunctionPlan`.
    """
    return _call(K.HYP2F1, (), (a, b, c, x), {"out": out, "stream": stream, "preference": preference})


@entry(SpecialFunctionBackwardPlan, kind=K.HYP2F1)
def hyp2f1_backward(
    dy: Array, a: Array, b: Array, c: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The gradient by x of y = hyp2f1(a, b, c, x), in x's shape. See `SpecialFunctionBackwardPlan`."""
    return _gradients(K.HYP2F1, dy, (a, b, c, x), {}, out, {"stream": stream, "preference": preference})


@entry(SpecialFunctionPlan, kind=K.SPH_LEGENDRE_P)
def sph_legendre_p(
    n: Array, m: Array, theta: Array, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """√((2n + 1) (n - m)! / (4π (n + m)!)) P_n^m(cos θ), with the sign (-1)^m (scipy.special.sph_legendre_p).

    n and m are whole numbers, arrays or numbers; see `SpecialFunctionPlan`.
    """
    return _call(K.SPH_LEGENDRE_P, (), (n, m, theta), {"out": out, "stream": stream, "preference": preference})


@entry(SpecialFunctionBackwardPlan, kind=K.SPH_LEGENDRE_P)
def sph_legendre_p_backward(
    dy: Array, n: Array, m: Array, theta: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The gradient by θ of y = sph_legendre_p(n, m, θ), in θ's shape. See `SpecialFunctionBackwardPlan`."""
    return _gradients(K.SPH_LEGENDRE_P, dy, (n, m, theta), {}, out, {"stream": stream, "preference": preference})


def _spread(x: Any, like: Any, options: dict[str, Any]) -> Any:
    """x in the shape that it has with `like`, which costs launches where that is another."""
    if read(x, "x").shape == read(like, "like").shape:
        return x
    return where(isnan(like, **options), x, x, **options)


@entry(SpecialFunctionPlan, kind=K.SPH_LEGENDRE_P)
def sph_harm_y(
    n: Array, m: Array, theta: Array, phi: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The spherical harmonic Y of degree n and order m at the angles θ from the pole and φ (scipy.special.sph_harm_y).

    sph_legendre_p(n, m, θ) exp(i m φ) of float32 or float64 arrays, in complex ones; m is an array or a number, n too,
    whole numbers of any element. Three launches, and more where m φ has not the shape of the whole, or n and m are
    integers.
    """
    options = {"stream": stream, "preference": preference}
    if type(m) not in NUMBERS and read(m, "m").element.is_integer:
        m = cast(m, read(phi, "phi").element, **options)
    size = sph_legendre_p(n, m, theta, **options)
    angle = mul(phi, m, **options)
    return polar(_spread(size, angle, options), _spread(angle, size, options), out=out, **options)


# A function for each row of two operands, under its name and its aliases, and for its gradient.
_TWO = [kind for kind in SpecialFunctionKind if kind not in WITH_THREE]
globals().update(
    {name: made for kind in _TWO for made in (_forward(kind),) for name in (kind.value, *kind.row.aliases)}
)
globals().update({f"{kind.value}_backward": _backward(kind) for kind in _TWO if kind in DIFFERENTIABLE})


def _both(name: str, first: UnaryKind, second: UnaryKind, doc: str) -> Any:
    made = tuple(functional(UnaryPlan, kind.value, **fixed_for(kind)) for kind in (first, second))

    def call(x: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
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


@entry(SpecialFunctionPlan, kind=K.BESSEL_JN)
def bessel_jn(x: Array, v: int, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """J of the orders 0 … v of x, along a new first axis (jax.scipy.special.bessel_jn), in one launch; see `jn`."""
    shape, element = shape_of(x, "x"), read(x, "x").element
    with beside(x, stream):
        orders = registry.public("arange")(whole("v", v, 0) + 1, element=element, like=constant(x))
    for _ in shape:
        orders = with_axis(orders, -1, "orders")
    options = {"out": out, "stream": stream, "preference": preference}
    return registry.public("jn")(orders, with_axis(x, 0, "x"), **options)
