"""The help of one function, from its plan's declaration: operands, elements, gradient, guarantee, an example."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from .._exports import EXPORTS
from ..core import registry
from ..core.args import Operand, arrays_of, scalars_of
from ..core.element import ElementKind
from ..core.plan import Plan
from ..core.signatures import accepted
from .examples import example
from .formula import formula
from .measured import measured

_WIDTH = 112
Function = Callable[..., Any]


def page(function: Function, text: str) -> str:
    """The docstring `text` of a functional entry, and all that its plan says."""
    plan, fixed = function.plan, function.fixed  # type: ignore[attr-defined]
    code = example(function)
    parts = [
        inspect.cleandoc(text),
        _of_the_plan(plan, text),
        _listed("Formula", [("", _formula(plan, fixed))] if _formula(plan, fixed) else []),
        _listed("Operands", _operands(plan, fixed, inspect.signature(function).parameters)),
        _listed("Results", _results(plan, fixed)),
        _listed("Keywords", _keywords(plan, fixed, inspect.signature(function).parameters)),
        _listed("Elements", [("", ", ".join(map(str, elements(plan, fixed))))]),
        _listed("Gradient", [("", gradient(function))]),
        _listed("Guarantee", _guarantee(plan, fixed)),
        _listed("Values on the device", [("", plan.value_policy)]) if plan.value_policy else "",
        "Example\n" + textwrap.indent(code, "    ") if code else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _of_the_plan(plan: type[Plan], text: str) -> str:
    """The plan's own docstring, where the function's only points to it."""
    whole = inspect.cleandoc(plan.__doc__ or "")
    pointed = any(f"`{name}`" in text for name in (plan.__name__, *(base.__name__ for base in plan.__mro__)))
    return (
        f"{plan.__name__}\n{textwrap.indent(whole, '    ')}" if pointed and whole not in inspect.cleandoc(text) else ""
    )


def _formula(plan: type[Plan], fixed: Mapping[str, Any]) -> str:
    """The formula of a table's kind, where the docstring is one for all kinds."""
    return formula(fixed["kind"]) if plan.kinds and "kind" in fixed and plan.direction == "forward" else ""


def _listed(title: str, rows: list[tuple[str, str]]) -> str:
    """A title and under it a line a row; a name in front is a column."""
    if not rows:
        return ""
    wide = min(max(len(name) for name, _ in rows), 24)
    lines = [title]
    for name, said in rows:
        head = f"    {name:<{wide}}  " if wide else "    "
        lines += textwrap.wrap(said, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head)) or [head.rstrip()]
    return "\n".join(lines)


def _operands(plan: type[Plan], fixed: Mapping[str, Any], shown: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The inputs, and the numbers that may change from call to call."""
    rows = [(s.name, _operand(s)) for s in served(plan, fixed) if s.reads]
    for spec in scalars_of(plan.args):
        if spec.name in shown:
            what = "an integer" if spec.integer else "a number"
            rows.append((spec.name, f"{what}, or a 0-d array on the device{_default(shown[spec.name])}"))
    return rows


def _results(plan: type[Plan], fixed: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for spec in served(plan, fixed):
        if spec.role != "out":
            continue
        more = f"; may be {' or '.join(spec.inplace)}" if spec.inplace else ""
        more += f"; with return_{spec.name}" if spec.optional else ""
        rows.append((spec.name, _operand(dataclasses.replace(spec, optional=False)) + more))
    return rows


def served(plan: type[Plan], fixed: Mapping[str, Any]) -> list[Operand]:
    """The operands that the function's kind has."""
    return [
        s
        for s in arrays_of(plan.args)
        if not (s.instead and fixed.get(s.instead))
        and (s.kinds is None or ("kind" not in fixed and bool(s.kinds)) or fixed.get("kind") in s.kinds)
    ]


def _operand(spec: Operand) -> str:
    """Shape, element and layout of one operand."""
    shape = f"a list of arrays, of shapes {spec.many}" if spec.many else f"[{', '.join(spec.dims)}]"
    rule = spec.element if isinstance(spec.element, tuple) else (spec.element,)
    strides = {"any": "any strides", "inner": "the last axis dense", "dense": "dense"}[spec.layout]
    words = [shape, " or ".join(map(str, rule)), strides]
    words += ["broadcasts"] if spec.broadcast and not spec.like else []
    words += ["updated in place"] if spec.role == "inout" else []
    may_lack = not spec.needed or (spec.kinds is None and spec.instead is None)
    words += ["optional"] if spec.optional and may_lack else []
    return ", ".join(words) + (f"; {spec.doc}" if spec.doc else "")


def _keywords(plan: type[Plan], fixed: Mapping[str, Any], shown: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The attributes that the shapes of the operands do not tell."""
    told = {d.lstrip("*") for s in served(plan, fixed) if s.reads for d in (*s.dims, s.many or "")}
    rows = []
    for field in dataclasses.fields(plan.descriptor):
        one = shown.get(field.name)
        if one is None or field.name in fixed or field.name in ("element", *told):
            continue
        rows.append((field.name, f"{accepted(field)}{_default(one)}"))
    return rows


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty or str(parameter.default) == "…":
        return ""
    return f", by default {parameter.default!r}"


def elements(plan: type[Plan], fixed: Mapping[str, Any]) -> list[ElementKind]:
    """What the operands may hold."""
    kinds = [fixed["kind"]] if plan.kinds and "kind" in fixed else list(plan.kinds or (None,))
    found = {
        e for v in plan.variants for kind in kinds if v.kinds is None or kind in v.kinds for e in v.elements_for(kind)
    }
    return [e for e in ElementKind if e in found]


def entries() -> Iterator[tuple[str, Function]]:
    """Every functional entry by its public name."""
    package = import_module("baracuda_py")
    for name in EXPORTS:
        value = getattr(package, name)
        if not inspect.isclass(value) and isinstance(getattr(value, "plan", None), type):
            yield name, value


def gradient(function: Function) -> str:
    """Which function gives the gradients, of what, or that there is none."""
    plan, kind = function.plan, function.fixed.get("kind")  # type: ignore[attr-defined]
    link = plan.vjp
    if plan.direction == "backward":
        forward = next((p for p in registry.plans().values() if p.vjp and p.vjp.plan == plan.__name__), None)
        return f"this is the gradient of {forward.op if forward else 'another op'}; it has none of its own"
    backward = None if link is None else registry.plan(link.plan) if isinstance(link.plan, str) else link.plan
    if link is None or backward is None or not _serves(link, backward, kind):
        return "none"
    known = {n: f.fixed.get("kind") for n, f in entries() if f.plan is backward}  # type: ignore[attr-defined]
    same = f"{function.__name__}_backward"
    name = same if same in known else next((n for k in (kind, None) for n in known if known[n] == k), None)
    by = f"{name} ({backward.__name__})" if name else backward.__name__
    return f"of {', '.join(link.grads)}, by {by}"


def _serves(link: Any, backward: type[Plan], kind: Any) -> bool:
    """Whether a kind has a gradient: its row says how, and a row of the backward plan takes it."""
    if kind is None:
        return True
    row: Any = getattr(kind, "row", None)
    told = not hasattr(row, "gradient") or row.gradient is not None
    taken = any((v.kinds is None or kind in v.kinds) and v.elements_for(kind) for v in backward.variants)
    return link.serves(kind) and told and taken


def _guarantee(plan: type[Plan], fixed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A row of the dispatch table: its error bound, and what of the order of its operations is promised."""
    rows, known = [], elements(plan, fixed)
    for row in plan.table():
        kinds = [fixed["kind"]] if plan.kinds and "kind" in fixed else list(plan.kinds or (None,))
        kinds = [kind for kind in kinds if row.kinds is None or kind in row.kinds]
        promises = {(e, k): row.guarantee.of(e, k) for k in kinds for e in row.elements_for(k) if e in known}
        if not promises:
            continue
        by_error: dict[str, list[str]] = {}
        for (element, _), promise in promises.items():
            names = by_error.setdefault(str(promise.error), [])
            names += [str(element)] if str(element) not in names else []
        said = "; ".join(
            error if len(by_error) == 1 else f"{error} ({', '.join(names)})" for error, names in by_error.items()
        )
        facts = [
            "deterministic" if all(p.deterministic for p in promises.values()) else "not deterministic",
            "batch-invariant" if all(p.batch_invariant for p in promises.values()) else "not batch-invariant",
            *((f"with the bits that {row.guarantee.same_bits} shares",) if row.guarantee.same_bits else ()),
            f"on {row.design.value}" if row.backend.value != "numpy" else "without a GPU",
        ]
        rows.append((row.name, f"{said}; {', '.join(facts)}"))
    found = measured(plan, fixed.get("kind"))
    return [*rows, ("measured", found)] if found else rows
