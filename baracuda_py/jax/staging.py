"""Calls of the functional layer inside JAX's transformations, and the functions of `baracuda_py.jax` made from it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from ..calls.call import Call
from ..calls.interpreters import Composed
from ..calls.problem import Output, asked_for
from ..core.args import Operand, arrays_of, scalars_of
from ..core.checked import shown
from ..core.dispatch import host_number, scalar_view
from ..core.doc import Doc
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError, UnsupportedError
from ..core.memo import keep
from ..core.plan import Plan
from ..core.preference import DEFAULT, PlanPreference
from ..core.signatures import with_key
from ..interop import jax_arrays
from ..interop.packages import package_name
from .composition import compose
from .gradients import function
from .problem import Buffer, Problem

_CAPACITY = 4096
_WIDENED = (ElementKind.I8, ElementKind.I16, ElementKind.U8, ElementKind.U16, ElementKind.U32)


class Stage:
    """The interpreter of calls that become part of a program of JAX's."""

    def serve(self, call: Call) -> Any:
        """The outputs of a call on traced arrays: one, or a tuple of those asked for and of operands updated."""
        entry, layouts = call.entry, call.entry.layouts
        if layouts and call.layout != layouts.names[0]:
            return layouts.staged(call)
        plan, given = entry.chosen(call.arrays, call.attributes)
        desc, outputs = asked_for(plan, call.arrays, given, call.returns)
        return _staged(call, plan, desc, outputs)

    def compose(self, composed: Composed) -> Any:
        """The result of a function of several calls."""
        return compose(composed)


STAGE = Stage()


def _staged(call: Call, plan: type[Plan], desc: Any, outputs: Sequence[Output]) -> Any:
    name, operands = call.entry.name, call.arrays
    if call.out is not None:
        raise InvalidProblemError(f"{name}: out= cannot be had of a call that JAX traces: its arrays are immutable")
    if call.stream is not None:
        raise InvalidProblemError(f"{name}: stream= cannot be had of a call that JAX traces: XLA chooses it")
    preference = DEFAULT if call.preference is None else call.preference
    if not isinstance(preference, PlanPreference):
        raise InvalidProblemError(f"{name}: preference must be a PlanPreference or None, got {shown(preference)}")
    made = {
        spec.name: tuple(Buffer(shape, element) for shape in shapes)
        for spec, element, shapes in outputs
        if shapes is not None
    }
    arrays: list[Any] = []
    buffers: list[tuple[str, tuple[Buffer, ...]]] = []
    for spec in arrays_of(plan.args):
        if spec.reads and operands.get(spec.name) is not None:
            value = operands[spec.name]
            items = [_array(one, spec.name) for one in (value if spec.many else [value])]
            arrays += items
            buffers.append((spec.name, tuple(_buffer(one, spec.elements(desc)) for one in items)))
        elif spec.name in made:
            buffers.append((spec.name, made[spec.name]))
    numbers, traced = [], []
    defaults = {field.name: field.default for field in dataclasses.fields(plan.args)}
    for spec in scalars_of(plan.args):
        value = call.scalars.get(spec.name, defaults[spec.name])  # an overload may have more of them
        if isinstance(value, (jax.Array, np.ndarray)):
            value = _array(value, spec.name)
            traced.append((spec.name, Buffer((), _number_element(value, spec))))
            arrays.append(value.reshape(()))
        else:
            numbers.append((spec.name, repr(host_number(value, spec))))
    problem = Problem(plan, desc, tuple(buffers), tuple(numbers), tuple(traced), preference)
    problem.check()
    results = _results(problem, function(problem)(*arrays))
    return results[0] if len(results) == 1 else tuple(results)


def _array(value: Any, name: str) -> Any:
    """An operand as JAX has it; other packages' device arrays are nothing that a compiled function may hold."""
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return jnp.asarray(value)
    package = package_name(type(value))
    raise InvalidProblemError(
        f"{name} must be a JAX or NumPy array beside traced ones, got one of {package}; jax.dlpack.from_dlpack makes "
        "one without a copy"
    )


def _number_element(value: Any, spec: Operand) -> ElementKind:
    """The element in which a kernel reads a traced number: XLA widens integers of other kinds than those."""
    found = ElementKind.of(value.dtype)
    if spec.integer and value.size == 1 and found in _WIDENED:
        return ElementKind.I64
    return scalar_view(value, spec).element


def _buffer(value: Any, allowed: tuple[ElementKind, ...]) -> Buffer:
    """What the operand holds; bytes may be those of an element that travels so."""
    found = ElementKind.of(value.dtype)
    if found.bits < 8:
        raise UnsupportedError(f"JAX does not pack {found} as kernels read it; give the packed bytes as uint8")
    held = [one for one in allowed if one.carrier == found.dtype and one.carrier != one.dtype]
    carried = found not in allowed and bool(held)
    return Buffer(tuple(value.shape), held[0] if carried else found, carried)


def _results(problem: Problem, made: tuple[Any, ...]) -> list[Any]:
    """The outputs, lists where they are lists, then the operands that were updated."""
    rest = iter(made)
    held: dict[str, Any] = {}
    for spec, buffers in problem.operands:
        if spec.writes:
            items = [next(rest) for _ in buffers]
            held[spec.name] = items if spec.many else items[0]
    order = sorted((spec for spec, _ in problem.operands if spec.writes), key=lambda spec: spec.role == "inout")
    return [held[spec.name] for spec in order]


class _Array:
    """Where an array stands in the key of a call."""


def bridged(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """The function of `baracuda_py.jax` of a functional entry: compiled once for each set of what is not an array."""
    cache: dict[Any, Any] = {}

    @functools.wraps(plain)
    def staged(*args: Any, **given: Any) -> Any:
        if jax_arrays.wraps((*args, *given.values())):
            args, given = jax_arrays.unwrapped(args), jax_arrays.unwrapped(given)
        leaves, tree = jax.tree.flatten((args, given))
        places = [isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves]
        arrays = [leaf for leaf, place in zip(leaves, places, strict=True) if place]
        try:
            key = (tree, *(_Array if place else _static(leaf) for leaf, place in zip(leaves, places, strict=True)))
            found = cache.get(key)
        except TypeError:  # an argument without a hash, for the function itself to refuse
            return _jitted(plain, leaves, places, tree)(*arrays)
        if found is not None:
            return found(*arrays)
        made = _jitted(plain, leaves, places, tree)
        result = made(*arrays)
        keep(cache, key, made, _CAPACITY)  # not of a call that is refused: it would hold on to what it was given
        return result

    staged.__module__ = "baracuda_py.jax"
    staged.__name__ = staged.__qualname__ = name
    _show_key(staged, plain)
    return staged


def _show_key(staged: Any, plain: Callable[..., Any]) -> None:
    """Have signature and help of a function that draws say that it takes `key=`."""
    own = inspect.signature(plain)
    keyed = with_key(own)
    if keyed is not own:
        staged.__signature__ = keyed
        staged.__annotations__ = {**plain.__annotations__, "key": keyed.parameters["key"].annotation}
        staged.__doc__ = Doc(f"{str.__str__(plain.__doc__ or '')}\n\n{_KEY}", plain)


_KEY = "key is one key of jax.random, new or old, and stands for seed and offset: one of the two is needed."


def _jitted(plain: Callable[..., Any], leaves: list[Any], places: list[bool], tree: Any) -> Callable[..., Any]:
    """The plain function of the arrays alone, traced where it is called."""
    fixed = [None if place else leaf for leaf, place in zip(leaves, places, strict=True)]

    def run(*arrays: Any) -> Any:
        rest = iter(arrays)
        filled = [next(rest) if place else leaf for leaf, place in zip(fixed, places, strict=True)]
        args, given = jax.tree.unflatten(tree, filled)
        with jax_arrays.staging():
            return plain(*args, **given)

    return jax.jit(run, inline=True)  # type: ignore[no-any-return]


def _static(leaf: Any) -> Any:
    """A leaf that is no array as part of a key: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(leaf, (float, complex)):
        return type(leaf), repr(leaf)
    if isinstance(leaf, np.generic):
        return leaf.dtype, leaf.tobytes()
    return type(leaf), leaf
