"""The functional layer's `layout=`: plans take [batch, heads, sequence, d]; "bshd" passes views, axes swapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core import TensorRef
from ...core.args import arrays_of
from ...core.checked import failure, shown, truth
from ...core.device import resolve_device
from ...core.errors import InvalidProblemError
from ...core.functional import Routed
from ...core.outputs import allocating, handed, maker, ordinal
from ...interop.arrays import package_name, read
from ...interop.jax_arrays import staged
from ...interop.torch_rules import recorded

LAYOUTS = ("bhsd", "bshd")
PAGE_LAYOUTS = ("hnd", "nhd")  # of paged caches: [page, heads, cell, d] and [page, cell, heads, d]


def is_swapped(layout: str, layouts: Sequence[str] = LAYOUTS) -> bool:
    """Whether the caller's arrays have the second of the layouts, whatever the case: heads after the sequence."""
    name = layout.lower() if isinstance(layout, str) else layout
    if not isinstance(name, str) or name not in layouts:
        raise InvalidProblemError(f"layout must be one of {list(layouts)}, got {shown(layout)}")
    return bool(name == layouts[1])


def swap(array: Any) -> Any:
    """Axes 1 and 2 exchanged, over the same memory; what has not four axes stays, for the plan to judge."""
    try:
        if len(array.shape) != 4:
            return array
    except Exception:
        return array
    if isinstance(array, TensorRef):
        (a, b, c, d), (p, q, r, s) = array.shape, array.strides or ()
        return TensorRef(array.ptr, (a, c, b, d), (p, r, q, s), array.element, array.nbytes, array.device)
    try:
        return array.swapaxes(1, 2)
    except Exception as error:
        shape_of(array, "an operand of layout=")
        raise InvalidProblemError(
            f"layout= takes arrays that have views of themselves, got a {type(array).__name__} ({failure(error)})"
        ) from error


def asked(flags: Mapping[str, Any]) -> dict[str, bool]:
    """Which results are wanted, by name, each flag being True or False."""
    return {name: truth(f"return_{name}", flag) for name, flag in flags.items()}


def shape_of(array: Any, name: str) -> tuple[int, ...]:
    """The four extents of an operand."""
    shape = read(array, name).shape
    if len(shape) != 4:
        raise InvalidProblemError(f"{name} must have four axes, got shape {shape}")
    return shape


@dataclass(frozen=True)
class Layouts:
    """The `layout=` of a generated function: the plan's own and another, in which axes 1 and 2 are exchanged.

    inputs: the operands that have four axes in that order. outputs: those of the results, each with the input whose
    shape it has.
    """

    names: tuple[str, str] = LAYOUTS
    inputs: tuple[str, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)

    def call(self, function: Any, layout: Any, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> Any:
        """Call `function` with views of the caller's arrays; updated operands are returned as they were given."""
        if not is_swapped(layout, self.names):
            return function(**arrays, **facts)
        views = {name: swap(array) if name in self.inputs else array for name, array in arrays.items()}
        specs = arrays_of(function.plan.args)
        if staged(arrays.values(), facts.values()):
            return self._staged(function, views, facts)
        if not self.outputs:
            function(**views, **facts)
            updated = tuple(arrays[spec.name] for spec in specs if spec.role == "inout")
            return updated[0] if len(updated) == 1 else updated
        outputs = [s for s in specs if s.role == "out" and truth(name := f"return_{s.name}", facts.get(name, True))]
        names = [s.name for s in outputs if not (s.needs and arrays[s.needs] is None)]
        shapes = {name: read(arrays[self.outputs[name]], self.outputs[name]).shape for name in names}
        operands = [views[s.name] for optional in (False, True) for s in specs if s.reads and s.optional is optional]
        rest = dict(facts)
        out, stream, preference = (rest.pop(name) for name in ("out", "stream", "preference"))
        return swapped_call(function, operands, rest, names, shapes, out, stream, preference)

    def _staged(self, function: Any, views: Mapping[str, Any], facts: Mapping[str, Any]) -> Any:
        """Traced by JAX: outputs that are asked for and updated operands, all of them results, swapped back."""
        specs = arrays_of(function.plan.args)
        asked = [s for s in specs if s.role == "out" and truth(n := f"return_{s.name}", facts.get(n, True))]
        made = [s for s in asked if s.needs is None or views[s.needs] is not None]
        names = [s.name for s in (*made, *(s for s in specs if s.role == "inout"))]
        results = function(**views, **facts)
        values = results if len(names) > 1 else (results,)
        turned = {*self.outputs, *self.inputs}
        swapped = tuple(swap(v) if n in turned else v for n, v in zip(names, values, strict=True))
        return swapped if len(swapped) > 1 else swapped[0]


def check_heads(shapes: Mapping[str, Any], new: str, cache: str, layouts: Sequence[str] = LAYOUTS) -> None:
    """Functional layer: refuse a cache with other heads than what is appended, as one of another layout has."""
    rows, whole = (tuple(shapes[name]) for name in (new, cache))
    if len(rows) > 1 and len(whole) == 4 and rows[1] != whole[1]:
        raise InvalidProblemError(
            f"{cache} of shape {whole} has {whole[1]} heads, {new} of shape {rows} has {rows[1]}: heads are on axis 1 "
            f"of a cache by the default layout={layouts[0]!r}, on axis 2 by layout={layouts[1]!r}"
        )


def swapped_call(
    function: Callable[..., Any], operands: Sequence[Any], facts: Mapping[str, Any], names: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]], out: Any, stream: Any, preference: Any,
) -> Any:  # fmt: skip
    """Call the plan's function with outputs made in the caller's layout.

    `names` are the outputs asked for, in order; `shapes` those to swap, with their shapes in the caller's layout.
    """
    if staged(operands, facts.values()):
        result = function(*operands, **facts, out=out, stream=stream, preference=preference)
        values = result if len(names) > 1 else (result,)
        swapped = tuple(swap(v) if n in shapes else v for n, v in zip(names, values, strict=True))
        return swapped if len(swapped) > 1 else swapped[0]
    given, lead = named_outputs(out, names), operands[0]
    if isinstance(preference, Routed) or any(map(recorded, operands)):
        # Who records the call makes the outputs; a view of one leaves its axes as the caller has them.
        views = {name: swap(array) if name in shapes else array for name, array in given.items()}
        routed = Routed(preference, tuple(name for name in shapes if name not in given))
        result = function(*operands, **facts, out=views or None, stream=stream, preference=routed)
        values = result if len(names) > 1 else (result,)
        seen = [swap(value) if name in shapes else value for name, value in zip(names, values, strict=True)]
        return seen[0] if len(seen) == 1 else tuple(seen)
    made = [name for name in shapes if given.get(name) is None]
    if made:
        kind, place = read(lead, "q").element, (package_name(type(lead)), ordinal(lead))
        resolve_device("cpu" if place[1] < 0 else place[1])  # a device that is not there is refused by its name
        with allocating(*place, stream):
            given.update({name: maker(lead, shapes[name], kind, place[1])() for name in made})
    views = {name: swap(array) if name in shapes else array for name, array in given.items() if array is not None}
    result = function(*operands, **facts, out=views, stream=stream, preference=preference)
    if made:
        with allocating(*place, stream):
            given.update({name: handed(given[name], kind, lead) for name in made})
    results = dict(zip(names, result if len(names) > 1 else (result,), strict=True))
    values = tuple(given[name] if name in shapes else value for name, value in results.items())
    return values[0] if len(values) == 1 else values


def named_outputs(out: Any, names: Sequence[str]) -> dict[str, Any]:
    """What `out=` gives, by name; `names` are the outputs asked for, in order."""
    if out is None or isinstance(out, Mapping):
        return dict(out or {})
    values = out if isinstance(out, (list, tuple)) else (out,)
    if len(values) != len(names):
        raise InvalidProblemError(f"out= must give {len(names)} arrays, got {len(values)}")
    return dict(zip(names, values, strict=True))
