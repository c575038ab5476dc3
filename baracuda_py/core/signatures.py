"""What the parameters of functions take, in words of types: for `inspect.signature`, and for the package's stub.

The declarations say it: an operand is an array, a field of a descriptor what its helper accepts. Annotations are text,
so that nothing is imported for them; `typing.get_type_hints` finds the names in `NAMES`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from .args import Array, Operand, Scalar, arrays_of, scalars_of
from .element import ElementKind
from .preference import PlanPreference


class _Dtype(Protocol):
    """A dtype of NumPy or torch."""

    @property
    def itemsize(self) -> int: ...


class _HasDtype(Protocol):
    """An array, or one of JAX's scalar types."""

    @property
    def dtype(self) -> Any: ...


DType: TypeAlias = ElementKind | str | type[Any] | _Dtype | _HasDtype
"""An `ElementKind`, its name ("bfloat16"), or a dtype of NumPy, CuPy, torch, JAX or ml_dtypes."""

Stream: TypeAlias = Any
"""A stream of CuPy or torch, an object with `__cuda_stream__`, or a pointer."""

Out: TypeAlias = "Array | Sequence[Array] | Mapping[str, Array] | None"
"""The outputs to write: one array, several in the order of declaration, or some by name."""

Arrays: TypeAlias = Any
"""One array, or a tuple where `return_…` asks for several outputs."""

NAMES: dict[str, Any] = {
    "Any": Any, "Array": Array, "Arrays": Arrays, "DType": DType, "ElementKind": ElementKind, "Literal": Literal,
    "Mapping": Mapping, "Out": Out, "PlanPreference": PlanPreference, "Scalar": Scalar, "Sequence": Sequence,
    "Stream": Stream,
}  # fmt: skip

COMMON = {"out": "Out", "stream": "Stream", "preference": "PlanPreference | None"}
"""The keywords that every function has."""


def accepted(field: dataclasses.Field[Any]) -> str:
    """What a field of a descriptor takes."""
    said: str = field.metadata.get("accepts", "Any")
    optional = field.default is None and said != "Any" and not said.endswith("None")
    return f"{said} | None" if optional else said


def taken(plan: Any, inputs: Sequence[Operand], attributes: Sequence[str], flags: Sequence[str]) -> dict[str, str]:
    """Of the function generated for a plan: its operands, the attributes it takes and its `return_…` flags."""
    fields = {f.name: f for f in dataclasses.fields(plan.descriptor)}
    said = {s.local: _operand(s) for s in inputs}
    said |= {name: accepted(fields[name]) for name in attributes}
    said |= {s.local: "Scalar" for s in scalars_of(plan.args)}
    said |= dict.fromkeys(flags, "bool") | {"layout": "str", "element": "DType"} | COMMON
    return said


def _operand(spec: Operand) -> str:
    one = "Sequence[Array]" if spec.many else "Array"
    return f"{one} | None" if spec.optional else one


def returned(plan: Any, results: Sequence[str], flags: Sequence[str]) -> str:
    """What the function returns: one array, a tuple, or what the flags ask for."""
    many = {s.name: bool(s.many) for s in arrays_of(plan.args)}
    each = ["list[Array]" if many[name] else "Array" for name in results]
    if not each:
        return "None"
    if len(each) == 1:
        return each[0]
    return "Arrays" if flags else f"tuple[{', '.join(each)}]"


def completed(shown: inspect.Signature, plan: Any) -> inspect.Signature:
    """A signature with what a function written by hand leaves open (`Any`), where its plan or every function has it."""
    flags = [name for name in shown.parameters if name.startswith("return_")]
    known = {f.name: accepted(f) for f in dataclasses.fields(plan.descriptor)}
    known |= {**COMMON, **_WORDS, **dict.fromkeys(flags, "bool"), "return": "Arrays" if flags else "Array"}
    known |= {s.name: _operand(s) for s in arrays_of(plan.args)} | {s.name: "Scalar" for s in scalars_of(plan.args)}
    parameters = []
    for one in shown.parameters.values():
        said = known.get(one.name, "Any") if one.annotation == "Any" else one.annotation
        if one.annotation == "Any" and said != "Any":
            said = said.removesuffix(" | None") + (" | None" if one.default is None and one.name not in COMMON else "")
            said = COMMON.get(one.name, said)
        if said == "DType" and one.default is None:
            said = "DType | None"
        parameters.append(one if said == one.annotation else one.replace(annotation=said))
    back = shown.return_annotation
    back = known["return"] if back == "Any" else back.replace("Any", "Array") if isinstance(back, str) else back
    return shown.replace(parameters=parameters, return_annotation=back)


def with_key(shown: inspect.Signature) -> inspect.Signature:
    """The signature in JAX of a function that draws: `key=` beside the seed and offset that it stands for."""
    if "seed" not in shown.parameters or "key" in shown.parameters:
        return shown
    key = inspect.Parameter("key", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Array | None")
    held = list(shown.parameters.values())
    at = [one.name for one in held].index("offset" if "offset" in shown.parameters else "seed") + 1
    return shown.replace(parameters=[*held[:at], key, *held[at:]])


def of_formula(inputs: Sequence[str], defaults: Mapping[str, Any]) -> inspect.Signature:
    """The signature of a function made from a formula: what has a default comes last, or is given by name."""
    by_name, parameters = False, list[inspect.Parameter]()
    for name in inputs:
        by_name = by_name or (name not in defaults and any(p.default is not p.empty for p in parameters))
        kind = inspect.Parameter.KEYWORD_ONLY if by_name else inspect.Parameter.POSITIONAL_OR_KEYWORD
        default = defaults.get(name, inspect.Parameter.empty)
        parameters.append(inspect.Parameter(name, kind, default=default, annotation="Array | Scalar"))
    for name, said in COMMON.items():
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=said))
    return inspect.Signature(parameters, return_annotation="Arrays")


_WORDS = {
    "axis": "int | Sequence[int] | None", "element": "DType", "to_element": "DType", "shape": "int | Sequence[int]",
    "min": "Array | float | None", "max": "Array | float | None",
}  # fmt: skip


def may_serve(spec: Operand, fixed: Mapping[str, Any]) -> bool:
    """Whether a function with these attributes fixed has the operand."""
    if spec.instead and fixed.get(spec.instead):
        return False
    if spec.kinds is None or "kind" not in fixed:
        return spec.kinds is None or bool(spec.kinds)
    return fixed["kind"] in spec.kinds
