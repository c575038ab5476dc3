"""What functions made from formulas share: how a call's operands are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..calls.composed import may_grow
from ..calls.functional import entry_of
from ..calls.interpreters import Composed, recorder
from ..core.arrays import read
from ..core.checked import shown
from ..core.dispatch import SCALAR_TAGS
from ..core.errors import InvalidProblemError
from ..core.keywords import unknown_keywords
from ..core.memo import keep
from ..core.numbers import LEAST, MOST
from ..core.signatures import of_formula
from ..interop.dynamo import calls_in_graph
from ..interop.jax_arrays import unwrapped, wraps
from .shape import ARRAY, REAL, WHOLE, Roles

_ROLES: dict[type, str] = {int: WHOLE, float: REAL, bool: WHOLE}
_OPTIONS = ("out", "stream", "preference")
_WORDS = {float: REAL, int: WHOLE, None: ARRAY, REAL: REAL, "int": WHOLE, WHOLE: WHOLE, ARRAY: ARRAY}


class Call:
    """A function of `inputs`, arrays or numbers, with defaults for some; what is given decides what an input is."""

    inputs: tuple[str, ...]

    @property
    def learnable(self) -> tuple[str, ...]:
        """The inputs of which `vjp` makes gradients where they are numbers, too, 0-d arrays of floats."""
        return ()

    def __init__(self, inputs: tuple[str, ...], defaults: Mapping[str, Any] | None = None) -> None:
        self.inputs = inputs
        self.defaults = dict(defaults or {})
        self.__signature__ = of_formula(inputs, self.defaults)
        self.in_graph = calls_in_graph(self, "__call__", "vjp")
        self._functions: dict[Roles, Callable[..., Any]] = {}
        if unknown := [name for name in self.defaults if name not in inputs]:
            raise unknown_keywords("formula", unknown, inputs)
        for name, value in self.defaults.items():
            if not isinstance(value, (int, float, np.generic)):
                raise InvalidProblemError(f"the default of {name} must be a number, got {shown(value)}")

    def made(self, roles: Roles) -> Callable[..., Any]:
        """The functional entry for inputs that are what `roles` says."""
        raise NotImplementedError

    def values(self, args: tuple[Any, ...], given: Mapping[str, Any]) -> tuple[Any, ...]:
        """The inputs of a call in order, defaults filled in."""
        names = self.inputs
        if len(args) == len(names) and not given:
            return args
        if len(args) > len(names):
            raise InvalidProblemError(f"{self!r} takes {len(names)} operands ({', '.join(names)}), got {len(args)}")
        if unknown := [name for name in given if name not in names]:
            raise unknown_keywords("formula", unknown, (*names, *_OPTIONS))
        if twice := [name for name in names[: len(args)] if name in given]:
            raise InvalidProblemError(f"{self!r}: {twice[0]} is given twice")
        held = {**self.defaults, **dict(zip(names, args, strict=False)), **given}
        if missing := [name for name in names if name not in held]:
            raise InvalidProblemError(f"{self!r} needs {' and '.join(missing)}")
        return tuple(held[name] for name in names)

    def roles(self, values: tuple[Any, ...]) -> Roles:
        """What each input is, by what is given for it: an array, or a number."""
        # On the way of every call: numbers and arrays with axes are told apart without a function.
        roles = tuple([_ROLES.get(type(v)) or (ARRAY if getattr(v, "ndim", 0) else _role(v)) for v in values])
        if WHOLE in roles and any(type(v) is int and not LEAST <= v <= MOST for v in values):
            roles = self._beyond(values, roles)
        if ARRAY in roles:
            return roles
        # 0-d arrays alone are what the formula is of.
        whole = [hasattr(v, "shape") and not isinstance(v, np.generic) for v in values]
        roles = tuple(ARRAY if is_array else r for is_array, r in zip(whole, roles, strict=True))
        if ARRAY not in roles:
            raise InvalidProblemError(f"{self!r} needs an array, got numbers alone")
        return roles

    def _beyond(self, values: tuple[Any, ...], roles: Roles) -> Roles:
        """The roles where an integer is beyond int64: among arrays of floats it is one."""
        arrays = [read(v, n).element for n, v, r in zip(self.inputs, values, roles, strict=False) if r == ARRAY]
        if not all(element.is_float for element in arrays):
            return roles  # which refuses what their elements do not have
        large = [type(v) is int and not LEAST <= v <= MOST for v in values]
        return tuple(REAL if one else role for one, role in zip(large, roles, strict=True))

    def split(self, values: tuple[Any, ...], roles: Roles) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arrays and the numbers of a call, by name."""
        named = list(zip(self.inputs, values, roles, strict=True))
        return {n: v for n, v, r in named if r == ARRAY}, {n: v for n, v, r in named if r != ARRAY}

    def run(self, values: tuple[Any, ...], out: Any, stream: Any, preference: Any) -> Any:
        """The call's result."""
        values = unwrapped(values) if wraps(values) else values
        roles = self.roles(values)
        function = self._functions.get(roles)
        if function is None:
            function = keep(self._functions, roles, _in_order(self.made(roles), self.inputs, roles), 64)
        return function(out, stream, preference, *values)

    def recorded(self, values: tuple[Any, ...], out: Any, stream: Any, preference: Any) -> Any:
        """The same where torch's autograd or JAX may record the call: arrays of floats have a gradient then, `vjp`.

        Of numbers those have one that `numbers_learned` names.
        """
        found = recorder(values)
        if found is None:
            return self.run(values, out, stream, preference)
        arrays, numbers = self.split(values, self.roles(values))
        floats = tuple(n for n, value in arrays.items() if read(value, n).element.is_float)
        wanted = tuple(n for n in floats if may_grow(arrays[n]))
        wanted += self.numbers_learned(numbers)

        def formula(out: Any, stream: Any, preference: Any, **held: Any) -> Any:
            return self.run(tuple(held[name] for name in self.inputs), out, stream, preference)

        def backward(dy: Any, /, preference: Any, **held: Any) -> Any:
            return self.vjp(dy, *(held[name] for name in self.inputs), wrt=wanted)

        given = {**dict(zip(self.inputs, values, strict=True)), "out": out, "stream": stream, "preference": preference}
        return found.compose(Composed(formula, backward, given, wanted, False, None))

    def numbers_learned(self, numbers: Mapping[str, Any]) -> tuple[str, ...]:
        """The numbers of a call that are 0-d arrays of floats whose gradient autograd or JAX may want."""
        given = {n: v for n, v in numbers.items() if n in self.learnable and has_gradient(v, n)}
        return tuple(n for n, v in given.items() if recorder([v]) is not None and may_grow(v))

    def vjp(self, *args: Any, **given: Any) -> Any:
        """The gradients of a call."""
        raise NotImplementedError

    def chosen(self, roles: Mapping[str, Any]) -> Roles:
        """Roles from words: an input is an array unless it has a default, or `roles` says float, int or None."""
        if unknown := [name for name in roles if name not in self.inputs]:
            raise unknown_keywords("plan", unknown, self.inputs)
        chosen = {name: _ROLES.get(type(value), REAL) for name, value in self.defaults.items()}
        for name, said in roles.items():
            if said not in _WORDS:
                raise InvalidProblemError(f"{name} must be float, int or None (an array), got {shown(said)}")
            chosen[name] = _WORDS[said]
        return tuple(chosen.get(name, ARRAY) for name in self.inputs)


def by_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """A functional entry whose keywords are a user's names, which none of its parameters has."""
    entry = entry_of(function)
    asked = {f"return_{name}": f"return_{entry.local[name]}" for name in entry.outs}
    places = {name: place for name, place in {**asked, **entry.local}.items() if place != name}

    def call(*args: Any, **given: Any) -> Any:
        return function(*args, **{places.get(name, name): value for name, value in given.items()})

    return call if places else function


def _in_order(function: Callable[..., Any], inputs: tuple[str, ...], roles: Roles) -> Callable[..., Any]:
    """A functional entry, which takes arrays and then numbers by keyword, as a function of inputs in order."""
    places = [entry_of(function).local[name] for name in inputs]
    passed = [place for place, role in zip(places, roles, strict=True) if role == ARRAY]
    passed += [f"{place}={place}" for place, role in zip(places, roles, strict=True) if role != ARRAY]
    options = ("out", "stream", "preference")
    head, tail = ", ".join((*options, *places)), ", ".join((*passed, *(f"{one}={one}" for one in options)))
    made: Callable[..., Any] = eval(f"lambda {head}: FUNCTION({tail})", {"FUNCTION": function})
    return made


def has_gradient(value: Any, name: str) -> bool:
    """Whether a number of a formula is a 0-d array of floats, of which there is a gradient."""
    return getattr(value, "ndim", 1) == 0 and not isinstance(value, np.generic) and read(value, name).element.is_float


def number_role(value: Any, name: str) -> str:
    """What a number of a formula is, an integer or a float; an array with axes is none."""
    role = _ROLES.get(type(value)) or (ARRAY if getattr(value, "ndim", 0) else _role(value))
    if role == ARRAY:
        raise InvalidProblemError(
            f"{name} is a number in the formula: a Python one, or a 0-d array of float32, float64, int32 or int64; got "
            f"{shown(value)}"
        )
    return role


def _role(value: Any) -> str:
    """What a value that is no Python number is."""
    if isinstance(value, np.generic):
        return WHOLE if isinstance(value, (np.integer, np.bool_)) else REAL
    if getattr(value, "shape", None) != ():
        return ARRAY
    element = read(value, "an operand").element
    return ARRAY if element not in SCALAR_TAGS else REAL if element.is_float else WHOLE
