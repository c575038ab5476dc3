"""The descriptor of a call, found by unifying the arrays' shapes with the declared ones."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from .args import Operand, arrays_of
from .checked import check_field
from .descriptor import Descriptor
from .element import ElementKind
from .errors import InvalidProblemError, UnsupportedError
from .plan import Plan

_CODED = re.compile(r"float8_\w+")  # an element that arrays of bytes may hold


def solve(
    plan: type[Plan], shapes: Mapping[str, Any], elements: Mapping[str, ElementKind], given: Mapping[str, Any]
) -> Descriptor:
    """The descriptor whose declared shapes are those of the arrays; `given` are the attributes already known."""
    facts = {name: check_field(plan.descriptor, name, value) for name, value in given.items()}
    fields = {f.name for f in dataclasses.fields(plan.descriptor)}
    plan.infer(shapes, facts)
    pending = [s for s in arrays_of(plan.args) if shapes.get(s.name) is not None]
    for spec in pending:
        if spec.many:
            facts.setdefault(spec.many, tuple(shapes[spec.name]))
    rest = [s for s in pending if not s.many and not s.broadcast]
    while rest:
        later = [s for s in rest if not _unify(s, tuple(shapes[s.name]), facts, fields)]
        if len(later) == len(rest):
            break
        rest = later
    if "element" in fields and "element" not in facts:
        of_element = [s for s in pending if s.element == "element" and s.name in elements]
        derived = [s for s in pending if isinstance(s.element, str) and s.name in elements]  # a gradient without x
        derived.sort(key=lambda s: not s.name.startswith("d"))  # dy rather than parts of what is constant
        lead = next(iter((*of_element, *derived)), None)
        if lead is not None:
            facts["element"] = elements[lead.name]
    for spec in pending:
        if (
            isinstance(spec.element, str)
            and spec.element in fields
            and facts.get(spec.element) is None
            and spec.name in elements
        ):
            facts[spec.element] = elements[spec.name]
    known = {k: v for k, v in facts.items() if k in fields}
    open_ = [
        f.name for f in dataclasses.fields(plan.descriptor) if f.default is dataclasses.MISSING and f.name not in known
    ]
    if open_:
        names = ", ".join(f"{name}=" for name in open_)
        raise InvalidProblemError(f"{plan.op}: the operands' shapes leave {', '.join(open_)} open; pass {names}")
    try:
        return plan.descriptor(**known)
    except UnsupportedError as error:
        error.args = (f"{error}{_cast_that_would_do(str(error), pending, elements, known)}",)
        raise


def _cast_that_would_do(
    refusal: str, read: list[Operand], elements: Mapping[str, ElementKind], known: Mapping[str, Any]
) -> str:
    """What to write instead, where a descriptor refuses bytes, integers, bool or a float in the place of float32."""
    kind = known.get("element")
    floats = "a float first" in refusal or "float32" in refusal.partition("may be one of")[2]
    if not isinstance(kind, ElementKind) or kind.is_complex or not floats:
        return ""
    if kind is ElementKind.U8 and (coded := _CODED.search(refusal)):
        return f": of bytes say what they hold, as element={coded[0]!r}"
    casts = [f"cast({s.local}, 'float32')" for s in read if s.element == "element" and elements.get(s.name) is kind]
    return f": write {' and '.join(casts)}" if casts else ""


def _unify(spec: Operand, shape: tuple[int, ...], facts: dict[str, Any], fields: set[str]) -> bool:
    """Bind the unknown dimensions of one operand; False when more than one star is unknown."""
    widths = [_width(dim, facts) for dim in spec.dims]
    if widths.count(None) > 1:
        return False
    known = sum(w for w in widths if w is not None)
    if (None not in widths and known != len(shape)) or known > len(shape):
        raise InvalidProblemError(f"{spec.name} must have shape ({' '.join(spec.dims)}), got {shape}")
    at = 0
    for dim, width in zip(spec.dims, widths, strict=True):
        stop = at + (len(shape) - known if width is None else width)
        name = dim.lstrip("*")
        if name in fields and facts.get(name) is None:
            facts[name] = shape[at:stop] if dim[0] == "*" else shape[at]
        at = stop
    return True


def _width(dim: str, facts: Mapping[str, Any]) -> int | None:
    if dim[0] != "*":
        return 1
    bound = facts.get(dim[1:])
    return None if bound is None else len(bound)
