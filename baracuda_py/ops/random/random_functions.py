"""The functions of `RandomPlan`, by the names of torch.distributions, NumPy and JAX: parameters first."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core import Array, ElementKind, Scalar
from ...calls.functional import functional
from ...core.checked import INT64, check_field, real, shown
from ...core.errors import BaracudaError, InvalidProblemError
from ...calls.entries import entry
from ...core.renamed import renamed
from ...core.tensor import broadcast_shape
from ...core.views import constant, cut, without_axes
from ...core.arrays import read
from ...interop.jax_arrays import staged
from ...calls.streams import stream_of
from ...interop.torch_rules import followed
from ..elementwise.ternary_functions import fma
from .distributions import RandomKind
from .draws import is_array
from .random_fill import RandomDescriptor, RandomPlan

K, E = RandomKind, ElementKind
_made: dict[RandomKind, Any] = {}


def _make(kind: RandomKind) -> Any:
    """The generated function of a kind; made when first called."""
    if kind not in _made:
        _made[kind] = functional(RandomPlan, kind.value, kind=kind)
    return _made[kind]


def seeded(name: str, seed: Any, stream: Any, *arrays: Any) -> Any:
    """seed, or where it is None what `stream_of` says of a call with these operands on a stream."""
    return stream_of(name, True, arrays, stream) if seed is None else seed


def in_package(like: Any, shape: Sequence[int]) -> Any:
    """A view of `like` that broadcasts to a shape: an element of it where its own shape does not."""
    own = read(like, "like").shape
    like = constant(like)
    if own == tuple(shape) or not own:
        return like
    if 0 in own:
        raise InvalidProblemError(f"like must have an element where its shape is not that of the result, got {own}")
    one = cut(like, [slice(0, 1)] * len(own), "like")
    return without_axes(one, range(len(own) - 1 if shape else len(own)), "like")


def _checked(kind: RandomKind, name: str, value: Any) -> float:
    """A parameter that is a number, in its range."""
    try:
        found = real(name, complex(value) if isinstance(value, np.complexfloating) else value)  # NumPy drops a part
    except InvalidProblemError:
        raise InvalidProblemError(
            f"{kind.value}: {name} must be a number or an array (numbers are float64), got {shown(value)}"
        ) from None
    row = kind.row
    if name in row.chance and not 0 <= found <= 1:
        raise InvalidProblemError(f"{kind.value}: {name} must be from 0 to 1, got {shown(value)}")
    if name in row.positive and not found > 0 and (kind, name, found) not in _ZERO:
        raise InvalidProblemError(f"{kind.value}: {name} must be above 0, got {shown(value)}")
    if math.isnan(found):
        raise InvalidProblemError(f"{kind.value}: {name} must be a number, got {shown(value)}")
    if row.exact and math.isinf(found):
        raise InvalidProblemError(f"{kind.value}: {name} must be finite, got {shown(value)}")
    return found


_ZERO = {(K.NORMAL, "scale", 0.0), (K.LOG_NORMAL, "scale", 0.0)}
"""Scales that may be 0."""


def shape_given(shape: Any) -> tuple[int, ...]:
    """A shape, of which an integer is the extent of the one axis; raises where it is none."""
    found: tuple[int, ...] = check_field(RandomDescriptor, "shape", shape)
    return found


def _shape(shape: Any, arrays: Mapping[str, Any]) -> tuple[int, ...]:
    if shape is not None:
        return shape_given(shape)
    shapes = {name: read(a, name).shape for name, a in arrays.items()}
    return broadcast_shape(shapes, tuple(shapes)) if shapes else ()


def fill(kind: RandomKind, values: dict[str, Any], shape: Any, given: dict[str, Any]) -> Any:
    """One launch of parameters by name, numbers or arrays; `given` are the options of every function."""
    arrays = {name: v for name, v in values.items() if is_array(v)}
    shape = _shape(shape, arrays)
    held: dict[str, Any] = {}
    for letter, (name, value) in zip("abc", values.items(), strict=False):
        if name in arrays:
            held[letter] = value
        elif kind is not K.RANDINT:
            held[f"{letter}_number"] = _checked(kind, name, value)
    element, like = given.pop("element"), given.pop("like")
    if element is None:
        floats = [read(a, name).element for name, a in arrays.items()]
        element = next((e for e in floats if e in kind.row.elements), _DEFAULT.get(kind, E.F32))
    given["seed"] = seeded(kind.value, given["seed"], given["stream"], *arrays.values(), like, given["out"])
    _ordered(kind, values, arrays)
    if kind is K.UNIFORM and not arrays and (known := ElementKind.of(element)).is_float:
        _finite_span(known, values)
    if kind is K.RANDINT:
        held.update(_bounds(ElementKind.of(element), values, arrays))
    if like is not None:
        held["like"] = in_package(like, shape)
    try:
        return _make(kind)(**held, shape=shape, element=element, **given)
    except BaracudaError as error:
        if (told := renamed(error, dict(zip("abc", values, strict=False)))) is error:
            raise
        raise told from None


_DEFAULT = {K.RANDINT: E.I64}
_ORDERED = {K.UNIFORM: ("low", "high"), K.TRUNCATED_NORMAL: ("low", "high"), K.TRIANGULAR: ("left", "mode", "right")}


def _ordered(kind: RandomKind, values: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Raises where bounds that are numbers do not ascend."""
    names = [n for n in _ORDERED.get(kind, ()) if n not in arrays]
    found = [float(values[n]) for n in names]
    if found != sorted(found):
        given = " and ".join(shown(values[n]) for n in names)
        raise InvalidProblemError(f"{kind.value} needs {' <= '.join(names)}, got {given}")


def _finite_span(element: ElementKind, values: dict[str, Any]) -> None:
    """Raises where an element does not hold the bounds of uniform, or its accumulator what is between them."""
    low, high = float(values["low"]), float(values["high"])
    most, widest = float(element.limits.max), float(element.acc.limits.max)
    if not (-most <= low and high <= most and high - low <= widest):
        raise InvalidProblemError(
            f"uniform: low, high and high - low must be finite in {element}, got {shown(values['low'])} and "
            f"{shown(values['high'])}"
        )


def _bounds(element: ElementKind, values: dict[str, Any], arrays: dict[str, Any]) -> dict[str, int]:
    """low and span of randint as 64-bit words, where bounds are numbers."""
    low, high = values["low"], values["high"]
    whole = {n: v for n, v in (("low", low), ("high", high)) if n not in arrays}
    for name, value in whole.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise InvalidProblemError(f"randint: {name} must be an integer or an array of them, got {shown(value)}")
    if len(whole) == 2 and not low < high:
        raise InvalidProblemError(f"randint needs low < high, got {shown(low)} and {shown(high)}")
    if element in K.RANDINT.row.elements:  # the descriptor refuses others
        _within(element, whole)
    start = int(whole.get("low", 0))
    return {"low": _word(start), "span": _word(int(whole.get("high", start + 1)) - start)}


def _within(element: ElementKind, whole: dict[str, Any]) -> None:
    """Raises where an element does not hold the numbers of [low, high), of which those that are arrays are not seen."""
    digits = int(element.limits.digits) + 1 if element.is_float else 0
    least, most = (-(2**digits), 2**digits) if digits else (int(element.limits.min), int(element.limits.max))
    ends = [int(value) - (name == "high") for name, value in whole.items()]
    if not all(least <= end <= most for end in ends):
        given = ", ".join(shown(value) for value in whole.values())
        raise InvalidProblemError(
            f"randint: {' and '.join(whole)} must fit {element}, and {element} holds {least} to {most}; got {given}"
        )


def _word(value: int) -> int:
    """An integer modulo 2⁶⁴, as a signed word."""
    return (value + INT64 + 1) % 2**64 - INT64 - 1


_OPTIONS: dict[str, Any] = {
    "shape": (None, "int | Sequence[int] | None"), "seed": (None, "Scalar"), "offset": (0, "Scalar"),
    "element": (None, "DType"), "like": (None, "Array | None"), "out": (None, "Out"), "stream": (None, "Stream"),
    "preference": (None, "PlanPreference | None"),
}  # fmt: skip


def _signature(parameters: Sequence[tuple[str, Any]]) -> inspect.Signature:
    P = inspect.Parameter
    lead = [
        P(n, P.POSITIONAL_OR_KEYWORD, default=P.empty if d is None else d, annotation="Array | float")
        for n, d in parameters
    ]
    options = [P(n, P.KEYWORD_ONLY, default=d, annotation=said) for n, (d, said) in _OPTIONS.items()]
    return inspect.Signature([*lead, *options], return_annotation="Any")


_KEYWORDS = """
    shape: by default that of the arrays, broadcast. seed, offset: integers or 0-d device arrays, of which equal ones
    give equal numbers; where like or a parameter is a torch tensor, by default from torch's generator of its device,
    and of JAX key=, a key of jax.random. element: by default the arrays', else float32. like: an array whose package
    and device the result has. See `RandomPlan`.
    """


def _function(kind: RandomKind, name: str) -> Any:
    shown_as = _signature(kind.row.parameters)

    def call(*args: Any, **given: Any) -> Any:
        bound = shown_as.bind(*args, **given)
        bound.apply_defaults()
        held = dict(bound.arguments)
        options = {n: held.pop(n) for n in _OPTIONS}
        return _DRAWN.get(kind, fill)(kind, held, options.pop("shape"), options)

    call.__name__ = call.__qualname__ = name
    call.__signature__ = shown_as  # type: ignore[attr-defined]
    names = ", ".join(n for n, _ in kind.row.parameters)
    what = f"{kind.value.replace('_', ' ')}{f' of {names}, numbers or arrays' if names else ''}"
    call.__doc__ = f"Draws of the distribution {what}.\n{_KEYWORDS}"
    return entry(RandomPlan, kind=kind)(call)


def _normal(kind: RandomKind, values: dict[str, Any], shape: Any, given: dict[str, Any]) -> Any:
    """loc + scale z; where one of them is differentiated by fma of a standard variate, so that both have gradients."""
    arrays = {name: v for name, v in values.items() if is_array(v)}
    found = [*arrays.values()]
    if not found or not (followed(found) or staged(found)):
        return fill(kind, values, shape, given)
    whole = _shape(shape, arrays)
    rest = {n: given[n] for n in ("stream", "preference")}
    drawn = {**given, "out": None, "like": found[0] if given["like"] is None else given["like"]}
    drawn["element"] = read(found[0], next(iter(arrays))).element if given["element"] is None else given["element"]
    z = fill(kind, {"loc": 0.0, "scale": 1.0}, whole, drawn)
    return fma(values["scale"], z, values["loc"], out=given["out"], **rest)


_DRAWN: dict[RandomKind, Any] = {K.NORMAL: _normal}

for _kind in K:
    if _kind is not K.RANDINT:
        for _name in (_kind.row.name or _kind.value, *_kind.row.aliases):
            globals()[_name] = _function(_kind, _name)


@entry(RandomPlan, kind=K.UNIFORM)
def rand(
    shape: Any = (), *, seed: Scalar = None, offset: Scalar = 0, element: Any = "float32", like: Any = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Uniform numbers in [0, 1) (torch.rand); float32's are multiples of 2⁻²⁴. Keywords as of `uniform`."""
    given = {"seed": seed, "offset": offset, "element": element, "like": like, "out": out, "stream": stream,
             "preference": preference}  # fmt: skip
    return fill(K.UNIFORM, {"low": 0.0, "high": 1.0}, shape, given)


@entry(RandomPlan, kind=K.NORMAL)
def randn(
    shape: Any = (), *, seed: Scalar = None, offset: Scalar = 0, element: Any = "float32", like: Any = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Standard normal numbers (torch.randn). Keywords as of `normal`."""
    given = {"seed": seed, "offset": offset, "element": element, "like": like, "out": out, "stream": stream,
             "preference": preference}  # fmt: skip
    return fill(K.NORMAL, {"loc": 0.0, "scale": 1.0}, shape, given)


@entry(RandomPlan, kind=K.RANDINT)
def randint(
    low: Any, high: Any = None, *, shape: Any = None, seed: Scalar = None, offset: Scalar = 0, element: Any = "int64",
    like: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Whole numbers in [low, high), or in [0, low) where high is None (torch.randint), each as likely as any other.

    Bounds are integers, up to the whole range of `element`, or arrays of int64 or int32. Keywords as of `uniform`.
    """
    bounds = {"low": 0, "high": low} if high is None else {"low": low, "high": high}
    given = {"seed": seed, "offset": offset, "element": element, "like": like, "out": out, "stream": stream,
             "preference": preference}  # fmt: skip
    return fill(K.RANDINT, bounds, shape, given)


@entry(RandomPlan, kind=K.RANDINT)
def bits(
    shape: Any = (), *, seed: Scalar = None, offset: Scalar = 0, element: Any = "uint32", like: Any = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Random words of an integer element (jax.random.bits); uint32's are those of the Philox stream themselves.

    jax.lax.rng_bit_generator is it as well, without the next state, which here is the caller's next offset.
    """
    kind = ElementKind.of(element)
    if not kind.is_integer:
        raise InvalidProblemError(f"bits: element must be an integer, got {kind}")
    ends = {"low": int(kind.limits.min), "high": int(kind.limits.max) + 1}
    given = {"seed": seed, "offset": offset, "element": kind, "like": like, "out": out, "stream": stream,
             "preference": preference}  # fmt: skip
    return fill(K.RANDINT, ends, shape, given)


rng_bit_generator = bits


@entry(RandomPlan, kind=K.UNIFORM)
def rng_uniform(
    low: Any, high: Any, shape: Any = None, *, seed: Scalar = None, offset: Scalar = 0, element: Any = None,
    like: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`uniform` in the order of parameters of jax.lax.rng_uniform."""
    given = {"seed": seed, "offset": offset, "element": element, "like": like, "out": out, "stream": stream,
             "preference": preference}  # fmt: skip
    return fill(K.UNIFORM, {"low": low, "high": high}, shape, given)


def _as(x: Any, element: Any) -> dict[str, Any]:
    found = read(x, "x")
    return {"shape": found.shape, "element": found.element if element is None else element, "like": x}


@entry(RandomPlan, kind=K.UNIFORM)
def rand_like(
    x: Array, *, seed: Scalar = None, offset: Scalar = 0, element: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`rand` of x's shape, element, package and device (torch.rand_like); out= may be x."""
    return rand(**_as(x, element), seed=seed, offset=offset, out=out, stream=stream, preference=preference)


@entry(RandomPlan, kind=K.NORMAL)
def randn_like(
    x: Array, *, seed: Scalar = None, offset: Scalar = 0, element: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`randn` of x's shape, element, package and device (torch.randn_like); out= may be x."""
    return randn(**_as(x, element), seed=seed, offset=offset, out=out, stream=stream, preference=preference)


@entry(RandomPlan, kind=K.RANDINT)
def randint_like(
    x: Array, low: Any, high: Any = None, *, seed: Scalar = None, offset: Scalar = 0, element: Any = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`randint` of x's shape, element, package and device (torch.randint_like); out= may be x."""
    return randint(
        low, high, **_as(x, element), seed=seed, offset=offset, out=out, stream=stream, preference=preference
    )
