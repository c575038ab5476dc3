"""The schema of an op's torch.library op, made from its declarations, and a call as arguments of that schema.

Arrays come first, required ones before optional ones as in the functional layer: `Tensor`, `Tensor?`, `Tensor[]` for
lists, with an alias annotation where they are updated. Scalars follow: a number, and beside it `<name>_tensor` among
the arrays for a 0-d tensor in its place. Then the descriptor's attributes, all optional: null stands for what is not
given. Numbers, flags, strings and tuples of integers are what they are; any other attribute is text that Python reads
as a literal. One `return_<name>` for each optional output says whether it is wanted; the op returns all outputs, those
not wanted with no elements.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..core.args import Operand, arrays_of, scalars_of
from ..core.checked import check_field, shown
from ..core.dispatch import host_number
from ..core.element import ElementKind
from ..core.errors import BaracudaError, UnsupportedError
from ..core.plan import Plan
from ..core.preference import PlanPreference, preferred
from ..interop.torch_rules import settled
from .untyped import torch

TEXT = "text"  # the type of attributes that are written as literals, a string in the schema
_PLAIN = {
    "int": "SymInt", "float": "float", "bool": "bool", "str": "str", "tuple[int, ...]": "SymInt[]", "Shape": "SymInt[]",
}  # fmt: skip


@dataclasses.dataclass
class OpCall:
    """One call of an op: tensors by name (None where absent), numbers, attributes given, outputs wanted."""

    arrays: dict[str, Any]
    scalars: dict[str, Any]
    attributes: dict[str, Any]
    wanted: frozenset[str]
    swapped: tuple[str, ...] = ()
    preference: Any = None


Layout = tuple[tuple[str, "int | None"], ...]  # operands in order, and how many tensors a list of them has


def flattened(arrays: Mapping[str, Any]) -> tuple[Layout, list[Any]]:
    """Tensors by name as a flat list, absent ones left out."""
    layout: list[tuple[str, int | None]] = []
    flat: list[Any] = []
    for name, value in arrays.items():
        if value is not None:
            many = isinstance(value, (list, tuple))
            layout.append((name, len(value) if many else None))
            flat.extend(value if many else (value,))
    return tuple(layout), flat


def unflattened(layout: Layout, flat: Iterable[Any]) -> dict[str, Any]:
    """The reverse of `flattened`."""
    items = iter(flat)
    return {name: next(items) if count is None else [next(items) for _ in range(count)] for name, count in layout}


class Schema:
    """How calls of one plan become arguments of its torch op, and back."""

    def __init__(self, plan: type[Plan]) -> None:
        self.plan = plan
        self.inputs = sorted((s for s in arrays_of(plan.args) if s.reads), key=lambda s: s.optional)
        self.outputs = [s for s in arrays_of(plan.args) if s.role == "out"]
        self.scalars = list(scalars_of(plan.args))
        self.kinds = {f.name: _kind(f) for f in dataclasses.fields(plan.descriptor)}
        self.spread = {n for n, kind in self.kinds.items() if kind == "SymInt[]" and _takes_one(plan, n)}
        self.spelt = {name: _spelt(name, i) for i, name in enumerate(self.kinds)}
        self.swaps = plan.op.startswith("attention.")  # whose functions have a `layout=`
        self.mutates = any(s.writes for s in self.inputs)

    def text(self, name: str) -> str:
        """The schema, as torch.library takes it."""
        head = [_declared(s, i) for i, s in enumerate(self.inputs)]
        head += [f"Tensor? {s.local}_tensor=None" for s in self.scalars]
        rest = [f"{'int' if s.integer else 'Scalar' if s.meets else 'float'}? {s.local}=None" for s in self.scalars]
        rest += [f"{'str' if kind == TEXT else kind}? {self.spelt[n]}=None" for n, kind in self.kinds.items()]
        rest += [f"bool return_{s.local}=False" for s in self.outputs if s.optional]
        rest += ["str? swapped=None"] if self.swaps else []
        rest += ["str? preference=None"]
        made = ["Tensor[]" if s.many else "Tensor" for s in self.outputs]
        returns = made[0] if len(made) == 1 else f"({', '.join(made)})"
        return f"{name}({', '.join([*head, '*', *rest])}) -> {returns}"

    def encode(self, call: OpCall) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of the torch op."""
        device = {n: v for n, v in call.scalars.items() if isinstance(v, torch.Tensor)}
        head = [call.arrays.get(s.name) for s in self.inputs] + [device.get(s.name) for s in self.scalars]
        rest: dict[str, Any] = {}
        for spec in self.scalars:
            if spec.name in call.scalars and spec.name not in device:
                rest[spec.local] = _number(spec, call.scalars[spec.name])
        for name, value in call.attributes.items():
            known = value if _symbolic(value) else check_field(self.plan.descriptor, name, value)
            rest[self.spelt[name]] = _plain(self.kinds[name], known)
        rest |= {f"return_{s.local}": True for s in self.outputs if s.optional and s.name in call.wanted}
        if call.swapped:
            rest["swapped"] = ",".join(call.swapped)
        if call.preference is not None:
            rest["preference"] = _written(call.preference)
        return head, rest

    def decode(self, args: tuple[Any, ...], given: Mapping[str, Any]) -> OpCall:
        """The call that arguments stand for."""
        names = [s.local for s in self.inputs] + [f"{s.local}_tensor" for s in self.scalars]
        held = {**dict(zip(names, args, strict=False)), **given}
        arrays = {s.name: held.get(s.local) for s in self.inputs}
        scalars: dict[str, Any] = {}
        for spec in self.scalars:
            value = held.get(f"{spec.local}_tensor")
            value = held.get(spec.local) if value is None else value
            if value is not None:
                scalars[spec.name] = self._wrapped(spec, value, arrays)
        said = {name: held.get(self.spelt[name]) for name in self.kinds}
        attributes = {name: _read(self.kinds[name], value) for name, value in said.items() if value is not None}
        attributes |= {n: attributes[n][0] for n in self.spread & attributes.keys() if len(attributes[n]) == 1}
        wanted = {s.name for s in self.outputs if not s.optional or held.get(f"return_{s.local}")}
        swapped = tuple((held.get("swapped") or "").split(",")) if held.get("swapped") else ()
        chosen = held.get("preference")
        preference = None if chosen is None else PlanPreference(**ast.literal_eval(chosen))
        return OpCall(arrays, scalars, attributes, frozenset(wanted), swapped, preference)

    def _wrapped(self, spec: Operand, value: Any, arrays: Mapping[str, Any]) -> Any:
        """A number of an unsigned 64-bit element, whose upper half the schema's integers hold as negative ones."""
        lead = next((a for a in arrays.values() if isinstance(a, torch.Tensor)), None)
        if _has_uint64(spec) and type(value) is int and value < 0 and lead is not None and lead.dtype is torch.uint64:
            return value + 2**64
        return value


def _has_uint64(spec: Operand) -> bool:
    """Whether a number may be one of uint64."""
    return spec.integer or spec.meets == "element"


def _takes_one(plan: type[Plan], name: str) -> bool:
    """Whether an attribute of integers may be one for all axes, which the schema has as a list of it alone."""
    try:
        return isinstance(check_field(plan.descriptor, name, 1), int)
    except BaracudaError:
        return False


def _spelt(name: str, place: int) -> str:
    """An attribute's name in the schema: torch's own functions, which hand keywords on, have some of these words.

    A formula's may have letters that schemas have not; it is called by its place then.
    """
    if not name.isascii():
        return f"attribute{place}"
    return f"{name}_" if name in ("mode", "op", "self", "func", "keyset") else name


def _declared(spec: Operand, index: int) -> str:
    alias = f"(a{index}!)" if spec.writes else ""
    kind = f"Tensor{alias}[]" if spec.many else f"Tensor{alias}"
    return f"{kind}? {spec.local}=None" if spec.optional else f"{kind} {spec.local}"


def _kind(field: dataclasses.Field[Any]) -> str:
    """The schema's type of an attribute; None is no value of its own where it is the default."""
    said = str(field.type).replace(" ", "")
    if said.endswith("|None") and field.default is None:
        said = said.removesuffix("|None")
    return _PLAIN.get(said.replace(",...", ", ..."), TEXT)


def _symbolic(value: Any) -> bool:
    """Whether an attribute has symbols of a trace in it, which a check would fix to the numbers of this call."""
    if isinstance(value, (list, tuple)):
        return any(_symbolic(one) for one in value)
    return isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat))


def _number(spec: Operand, value: Any) -> Any:
    number = host_number(settled(value), spec)
    if number is None:
        raise UnsupportedError(f"{spec.name} must be a number or a torch tensor in a trace, got {shown(value)}")
    if spec.meets and not -(2**63) <= number < 2**64:
        return float(number)
    return number - 2**64 if _has_uint64(spec) and isinstance(number, int) and number >= 2**63 else number


def _plain(kind: str, value: Any) -> Any:
    if kind == TEXT:
        made = _literal(value)
        return made if isinstance(made, str) and _read(TEXT, made) is made else repr(made)
    if isinstance(value, np.generic):
        value = value.item()
    if kind == "SymInt[]":
        items = value if isinstance(value, (list, tuple)) else [value]
        return [n if isinstance(n, torch.SymInt) else int(n) for n in items]
    return value


def _literal(value: Any) -> Any:
    """A value made of what `ast.literal_eval` reads back."""
    if isinstance(value, ElementKind):
        return str(value)
    if isinstance(value, enum.Enum):
        return _literal(value.value) if not isinstance(value.value, str) else value.value
    if isinstance(value, (list, tuple)):
        return tuple([_literal(one) for one in value])
    if isinstance(value, np.generic):
        return value.item()
    value = settled(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(ElementKind.of(value))


def _read(kind: str, value: Any) -> Any:
    if kind == "SymInt[]":
        return tuple(value)
    if kind != TEXT:
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def _written(preference: Any) -> str:
    default = PlanPreference()
    facts = {f.name: getattr(preferred(preference), f.name) for f in dataclasses.fields(PlanPreference)}
    return repr({n: _literal(v) for n, v in facts.items() if v != getattr(default, n)})
