"""Sample calls of every public function: those written down, and problems that the function's page draws."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import baracuda_py as bc
from baracuda_py._exports import EXPORTS
from baracuda_py.core.args import arrays_of, scalars_of
from baracuda_py.core.element import ElementKind
from baracuda_py.testing.draw import Case, SeededDraw, make_case
from tests.interop.device_calls import CALLS
from tests.interop.hand_exported import EXPORTED
from tests.interop.hand_written import GIVEN, Call, operands_of

_DRAWS, _LARGEST = 40, 20_000  # draws to find a problem that a name serves, elements of all its operands
_ELEMENTS = (ElementKind.F32, ElementKind.F16, ElementKind.C64, ElementKind.I32, ElementKind.U8)


NOT_CALLED = {
    "autotune": "a context manager: what rows take is measured in it, which needs a GPU",
    "graph": "captures on a GPU",
    "warm": "compiles every kernel",
}


def functions() -> list[str]:
    """Public names that are called: all but classes, and `NOT_CALLED`."""
    return sorted(name for name in EXPORTS if name not in NOT_CALLED and not isinstance(getattr(bc, name), type))


def sample_calls(name: str, drawn: int = 2) -> dict[str, Call]:
    """Calls of a function by what they are called; `drawn`: how many of them its page draws at most."""
    found: dict[str, Call] = {}
    if name in EXPORTED:
        found |= {f"exported {i}": call for i, call in enumerate(EXPORTED[name]())}
    elif name in GIVEN:
        found["given"] = GIVEN[name]()
    elif hasattr(getattr(bc, name), "plan"):
        with contextlib.suppress(AssertionError):  # where a page draws some
            found["formed"] = operands_of(name)
    for case, call in CALLS.items():
        if call.name == name and small(call.operands):
            found[case] = (call.operands, call.facts)
    for i, one in zip(range(drawn), drawn_calls(name), strict=False):
        found[f"drawn {i}"] = one
    if not found:
        found["formed"] = operands_of(name)
    return found


def small(value: Any) -> bool:
    """Whether the arrays in a value have few elements."""
    return sum(np.size(one) for one in _arrays(value)) <= _LARGEST


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _arrays(one)
    elif isinstance(value, np.ndarray):
        yield value


def drawn_calls(name: str) -> Iterator[Call]:
    """Problems of the plan that a function is generated from, of the elements that it serves."""
    function: Any = getattr(bc, name)
    plan = getattr(function, "plan", None)
    if not isinstance(plan, type) or (name in GIVEN and not hasattr(function, "entry")):
        return
    fixed = dict(getattr(function, "fixed", {}) or {})
    kind = fixed.get("kind", next(iter(plan.kinds or (None,))))
    served = {e for v in plan.variants if v.kinds is None or kind in v.kinds for e in v.elements_for(kind)}
    elements = [e for e in _ELEMENTS if e in served] or [e for e in ElementKind if e in served]
    taken = inspect.signature(function).parameters
    for element in elements:
        for i in range(_DRAWS):
            case = make_case(plan, SeededDraw(zlib.crc32(f"{name} {element}".encode()) + i, element, kind))
            call = _call(case, fixed, taken)
            if call is not None:
                yield call
                break


def _call(case: Case, fixed: dict[str, Any], taken: Any) -> Call | None:
    """A drawn case as a call by keyword, where it is one of the function's, and small."""
    plan, desc = case.plan, case.desc
    if any(getattr(desc, n, None) != value for n, value in fixed.items()) or not small(case.arrays):
        return None
    facts: dict[str, Any] = {}
    for spec in (*arrays_of(plan.args), *scalars_of(plan.args)):
        value = case.arrays.get(spec.name)
        if value is not None and (getattr(spec, "role", "") != "out"):
            if spec.local not in taken:
                return None
            facts[spec.local] = np.asarray(value) if isinstance(value, np.generic) else value
    if not any(np.size(one) for one in _arrays(facts)) and any(True for _ in _arrays(facts)):
        return None
    for field in dataclasses.fields(desc):
        value = getattr(desc, field.name)
        own = taken.get(field.name)
        if own is not None and field.name != "element" and value is not None and not _usual(own.default, value):
            facts[field.name] = value
    needed = (p for p in taken.values() if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    if any(p.name not in facts for p in needed):
        return None
    held = {ElementKind.of(one.dtype) for one in _arrays(facts)}
    if "element" in taken and getattr(desc, "element", None) not in {None, *held}:
        facts["element"] = desc.element
    flags = {f"return_{s.local}": s.name in case.wanted for s in arrays_of(plan.args) if s.role == "out" and s.optional}
    return [], facts | {flag: wanted for flag, wanted in flags.items() if flag in taken}


def _usual(default: Any, value: Any) -> bool:
    return type(default) is type(value) and bool(default == value)
