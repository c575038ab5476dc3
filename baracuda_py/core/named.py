"""Names for some problems of a plan: subclasses of it and of its descriptor, made from a row of a table.

A named plan has the kernels, the rows, the args and the op of the plan that it is made of, so it is no plan more. Its
descriptor is that plan's with some fields fixed: they need not be given, and nothing else is taken for them.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .checked import checked, shown
from .descriptor import Descriptor
from .errors import InvalidProblemError
from .plan import Plan


@dataclass(frozen=True)
class OneOf:
    """A field that is one of these; the first by default if `first`, else it must be given."""

    values: tuple[Any, ...]
    first: bool = False


@dataclass(frozen=True)
class Rank:
    """A field that is a shape of so many axes."""

    axes: int


@dataclass(frozen=True)
class Told:
    """A field that others tell: `of(descriptor)`, once every field is checked by itself."""

    of: Callable[[Any], Any]


@dataclass(frozen=True)
class Name:
    """A row of the table: the name of a plan, and what is fixed of its descriptor.

    fixed: field → its value, `OneOf`, `Rank` or `Told`. more: fields of its own that `Told` reads → what
    declares them. note: what a user who knows the name should know besides.
    """

    plan: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def narrows(self) -> bool:
        """Whether it has a descriptor of its own."""
        return bool(self.fixed or self.more)

    @property
    def said(self) -> str:
        """What is fixed, in words."""
        told = [name for name, value in self.fixed.items() if isinstance(value, Told)]
        words = [_said(name, value) for name, value in self.fixed.items() if name not in told]
        words += [f"{', '.join(told)} told by {' and '.join(self.more or ['shape'])}"] if told else []
        return "; ".join(words)


def _said(name: str, value: Any) -> str:
    if isinstance(value, OneOf):
        return f"{name} {', '.join(map(str, value.values[:-1]))} or {value.values[-1]}"
    if isinstance(value, Rank):
        return f"{name} of {value.axes} {'axis' if value.axes == 1 else 'axes'}"
    return f"{name} {value}"


def descriptor_name(name: str) -> str:
    """HuberLossPlan → HuberLossDescriptor."""
    return f"{name.removesuffix('Plan')}Descriptor"


class _Named(Plan):
    """What a named plan adds: the descriptor of the plan that it names is taken, too, where it fits."""

    wide: ClassVar[type[Descriptor] | None]

    @classmethod
    def described(cls, desc: Descriptor) -> Descriptor:
        """The descriptor as its own."""
        if type(desc) is cls.wide:
            desc = cls.descriptor(**{f.name: getattr(desc, f.name) for f in dataclasses.fields(desc)})
        return super().described(desc)


def named_plan(name: str, row: Name, base: type[Plan], module: str) -> type[Plan]:
    """The plan that a row declares, as a class of `module`."""
    body: dict[str, Any] = {
        "pinned": True, "__module__": module, "wide": base.descriptor if row.narrows and not row.more else None,
        "descriptor": _descriptor(name, row, base.descriptor, module) if row.narrows else base.descriptor,
    }  # fmt: skip
    made: type[Plan] = type(name, (_Named, base), body, **_kinds(row, base))
    return made


def _kinds(row: Name, base: type[Plan]) -> dict[str, Any]:
    if "kind" not in row.fixed:
        return {}
    known = {kind.value: kind for kind in base.kinds}
    return {"kind": tuple(known[value] for value in _values(row.fixed["kind"]))}


def _descriptor(name: str, row: Name, wide: type[Descriptor], module: str) -> type[Descriptor]:
    own = descriptor_name(name)
    known = {f.name: f for f in dataclasses.fields(wide)}
    body: dict[str, Any] = {
        "__annotations__": {field: known[field].type for field in row.fixed} | dict.fromkeys(row.more, "Any"),
        "__doc__": _paragraphs(f"`{wide.__name__}` with {row.said}.", row.note, wide.__doc__),
        "__module__": module, "__qualname__": own,
        **{field: _fixed(own, known[field], value) for field, value in row.fixed.items()},
        **{field: declare() for field, declare in row.more.items()},
    }  # fmt: skip
    made: type[Descriptor] = dataclass(frozen=True, kw_only=True)(type(own, (wide,), body))
    return made


def _values(said: Any) -> tuple[Any, ...]:
    return said.values if isinstance(said, OneOf) else (said,)


def _fixed(owner: str, of: dataclasses.Field[Any], said: Any) -> Any:
    """The field of a base, which refuses what is not as `said`."""
    check, accepts = of.metadata["check"], of.metadata["accepts"]

    def refuse(value: Any, wanted: str) -> None:
        raise InvalidProblemError(f"{owner} has {wanted}, got {of.name} {shown(value)}")

    def settle(desc: Any, name: str, value: Any) -> Any:
        right = said.of(desc)
        if value not in (None, right):
            refuse(value, f"{name} {shown(right)}")
        return right

    if isinstance(said, Told):
        return checked(check, None, settle, accepts)
    values = () if isinstance(said, Rank) else tuple(check(of.name, value) for value in _values(said))
    given = isinstance(said, Rank) or (isinstance(said, OneOf) and not said.first)

    def narrow(name: str, value: Any) -> Any:
        held = check(name, value)
        if len(held) != said.axes if isinstance(said, Rank) else held not in values:
            refuse(held, _said(of.name, said))
        return held

    facts = {**of.metadata, "check": narrow}
    return dataclasses.field(default=of.default if given else values[0], metadata=facts)


def documented(row: Name, base: type[Plan], formula: str) -> str:
    """The docstring of a named plan: what it fixes, the formula of its kind, and what the plan's own says."""
    fixed = f", with {row.said}" if row.fixed else ""
    told = f"The formula: {formula.removesuffix('.')}." if formula else ""
    return _paragraphs(f"`{base.__name__}` by another name{fixed}.", told, row.note, base.__doc__)


def _paragraphs(*parts: str | None) -> str:
    return "\n\n".join(inspect.cleandoc(part) for part in parts if part)
