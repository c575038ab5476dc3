"""What a functional call asks for: the descriptor that its arrays' shapes fit, and its outputs' shapes and elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.args import Operand, arrays_of
from ..core.arrays import read
from ..core.checked import truth
from ..core.descriptor import Descriptor
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError, RecordedError
from ..core.plan import Plan
from ..core.solving import solve


class Output(NamedTuple):
    """A declared output: its element and, where it is asked for, the shape of each array, one or those of a list."""

    spec: Operand
    element: ElementKind
    shapes: tuple[tuple[int, ...], ...] | None


def asked_for(
    plan: type[Plan], arrays: Mapping[str, Any], given: Mapping[str, Any], returns: Mapping[str, bool]
) -> tuple[Descriptor, list[Output]]:
    """The descriptor of a call and its outputs; `given` are attributes, `returns` says which optional outputs to make.

    One whose input is absent, or has no gradient, is not made.
    """
    returns = {name: truth(f"return_{name}", value) for name, value in returns.items()}
    readings = _readings(plan, arrays)
    shapes = {n: [r.shape for r in v] if isinstance(v, list) else v.shape for n, v in readings.items()}
    elements = {n: (v[0] if isinstance(v, list) else v).element for n, v in readings.items() if v != []}
    desc = solve(plan, shapes, elements, given)
    outputs = []
    for spec in (s for s in arrays_of(plan.args) if s.role == "out"):
        absent = spec.needs and arrays.get(spec.needs) is None
        wanted = returns.get(spec.name, True) and not absent
        if wanted and spec.like and not elements[spec.like].is_inexact:
            wanted = False
        element = elements.get(spec.like or spec.name, spec.elements(desc)[0])
        made: tuple[Any, ...] | None = None
        if wanted and spec.many:
            made = tuple(spec.shape(desc, i) for i in range(len(getattr(desc, spec.many))))
        elif wanted:
            made = (shapes[spec.like] if spec.like else spec.shape(desc),)
        outputs.append(Output(spec, element, made))
    return desc, outputs


def _readings(plan: type[Plan], arrays: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for spec in arrays_of(plan.args):
        name, value = spec.name, arrays.get(spec.name)
        if value is None:
            if spec.reads and not spec.optional:
                raise InvalidProblemError(f"{name} is required, got None")
            continue
        many = isinstance(value, (list, tuple))
        if bool(spec.many) != many:
            what = "a list of arrays" if spec.many else "an array (CuPy, torch, JAX, NumPy, TensorRef …)"
            raise InvalidProblemError(f"{name} must be {what}, got {type(value).__name__}")
        found[name] = [read(v, f"{name}[{i}]") for i, v in enumerate(value)] if many else read(value, name)
        if any(one.traced for one in (found[name] if many else (found[name],))):
            raise RecordedError(f"{name}: the torch tensor stands for one in a trace, and has no memory")
    return found
