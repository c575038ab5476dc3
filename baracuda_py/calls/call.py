"""A call of a functional entry as a value, the entry that it is a call of, and what is found once for calls like it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from ..core.args import arrays_of, scalars_of
from ..core.arrays import read
from ..core.device import resolve_device
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError, RecordedError
from ..core.execution import Direct, nothing
from ..core.memo import keep, records
from ..core.ordinals import ordinal
from ..core.outputs import allocating, channels_last, handed, make_all, maker
from ..core.plan import Plan
from ..interop.packages import package_name
from .problem import asked_for

_CAPACITY = 4096


class _Unset:
    def __repr__(self) -> str:
        return "…"


UNSET: Any = _Unset()
"""An attribute that is not given, of those that have no default or are solved from the operands' shapes."""

Overload: TypeAlias = "tuple[type[Plan], Mapping[str, Any]]"
"""A plan, and the attributes that a function fixes of it."""


@dataclasses.dataclass(eq=False)
class Call:
    """What an entry is called with: everything by the names of the declarations.

    arrays: the operands that are read, None where one is left out; those of another `layout` as the caller has them.
    returns: whether each optional output is wanted. resolved: what has been found for calls like it. refused: how it
    was refused, which whoever records it may serve nevertheless.
    """

    entry: Entry
    arrays: Mapping[str, Any]
    attributes: Mapping[str, Any]
    scalars: Mapping[str, Any]
    returns: Mapping[str, Any]
    out: Any
    stream: Any
    preference: Any
    layout: Any = None
    resolved: Resolved | None = None
    refused: RecordedError | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The attributes that are given, or have a default."""
        return {name: value for name, value in self.attributes.items() if value is not UNSET}

    @property
    def turned(self) -> tuple[str, ...]:
        """The operands whose axes 1 and 2 are exchanged for the plan."""
        return self.entry.layouts.turned(self.layout) if self.entry.layouts else ()

    @property
    def seen(self) -> Mapping[str, Any]:
        """The arrays as the plan sees them."""
        turned = self.turned
        return self.entry.layouts.views(self.arrays, turned) if turned else self.arrays

    @property
    def keywords(self) -> dict[str, Any]:
        """The same call by keywords alone."""
        place = self.entry.local
        flags = {flag: v for n, v in self.returns.items() if (flag := f"return_{place[n]}") in self.entry.flags}
        operands = {place[n]: value for n, value in {**self.arrays, **self.scalars}.items()}
        options = {"out": self.out, "stream": self.stream, "preference": self.preference}
        options |= {"layout": self.layout} if self.entry.layouts else {}
        return {**operands, **self.attributes, **flags, **options}


@dataclasses.dataclass(eq=False)
class Resolved:
    """What calls that differ in values alone share: their plan, and a maker per output that they return."""

    plan: Plan
    args: Callable[..., Any]
    package: str  # of the first operand: whose arrays are returned
    names: tuple[str, ...]  # of the outputs returned
    makers: tuple[Callable[[], Any], ...]  # one per declared output; `nothing` for those not wanted
    kinds: tuple[ElementKind, ...]  # of the declared outputs
    direct: Direct | None = None
    listed: bool = False  # whether it returns one output, a list
    jobs: dict[Any, Any] = dataclasses.field(default_factory=dict)
    """What `baracuda_py.torch` has prepared for calls that autograd records, by what of them requires a gradient."""

    def on_stream(self, stream: Any) -> Any:
        """A context in which outputs are made in the order of a stream."""
        return allocating(self.package, self.plan.device.ordinal, stream)

    def outputs(self, out: Any) -> list[Any]:
        """All declared outputs, those that the caller gives among them; a mapping may leave some to be made."""
        if out is None:
            given: Mapping[str, Any] = {}
        elif isinstance(out, Mapping):
            unknown = set(out) - set(self.names)
            if unknown:
                raise InvalidProblemError(f"out= names {sorted(unknown)}; the outputs are {list(self.names)}")
            given = {name: out[name] for name in self.names if name in out}
        else:
            values = list(out) if isinstance(out, (list, tuple)) else [out]
            if self.listed and not (len(values) == 1 and isinstance(values[0], (list, tuple))):
                values = [values]
            if len(values) != len(self.names):
                raise InvalidProblemError(
                    f"out= must give {len(self.names)} arrays ({', '.join(self.names)}), got {len(values)}"
                )
            given = dict(zip(self.names, values, strict=True))
        names = iter(self.names)
        each = [(make, "" if make is nothing else next(names)) for make in self.makers]
        return [given[name] if name in given else make() for make, name in each]

    def handed(self, values: Sequence[Any], lead: Any, out: Any, stream: Any) -> list[Any]:
        """All outputs; those that the caller did not give are handed over on the stream that writes them."""
        own = out.values() if isinstance(out, Mapping) else out if isinstance(out, (list, tuple)) else (out,)
        with self.on_stream(stream):
            return [
                value if any(value is one for one in own) else handed(value, kind, lead)
                for value, kind in zip(values, self.kinds, strict=True)
            ]

    def result(self, values: Sequence[Any]) -> Any:
        """What a function returns of the outputs that it may have."""
        if len(self.names) == 1:
            return next(v for v in values if v is not None)
        return tuple(v for v in values if v is not None)


@dataclasses.dataclass(eq=False)
class Entry:
    """A generated function, and what whoever serves its calls must know.

    fixed: attributes that it fixes. overloads: further plans, one of which serves a call where an operand has an
    element of its rows. defaults: of its attributes. follows: the operand whose order of axes in memory outputs take.
    layouts: what makes the plan's operands of those in another `layout=`.
    """

    name: str
    plan: type[Plan]
    fixed: Mapping[str, Any]
    overloads: Sequence[Overload]
    defaults: Mapping[str, Any]
    scalars: Mapping[str, Any]
    """Their defaults, `dataclasses.MISSING` where a number must be given."""
    follows: str
    layouts: Any
    local: Mapping[str, str]
    """What the function calls each operand and number."""
    reads: tuple[str, ...]
    """The operands that are read, in the order of declaration; "None" in the place of one that it does not have."""
    arrays: tuple[str, ...]
    """The operands and outputs that it names when it runs a plan."""
    outs: tuple[str, ...]
    results: tuple[str, ...]
    """What it returns: the outputs, or what is updated in place."""
    flags: frozenset[str]
    cache: dict[Any, Resolved] = dataclasses.field(default_factory=records)
    """In a forked child entries of CUDA plans would make outputs first, which fails in CuPy: it is empty there."""
    function: Callable[..., Any] = dataclasses.field(init=False)
    grown: Callable[..., Any] = dataclasses.field(init=False)
    """What of a call's arrays and numbers requires a gradient, as a key of `Resolved.jobs`."""

    def chosen(self, arrays: Mapping[str, Any], attributes: Mapping[str, Any]) -> Overload:
        """The plan that serves a call, and the attributes that it is given."""
        serving, own = self._serving(arrays)
        left = () if serving is self.plan else [k for k, v in attributes.items() if v is self.defaults.get(k, UNSET)]
        return serving, {k: v for k, v in attributes.items() if v is not UNSET and k not in left} | dict(own)

    def _serving(self, arrays: Mapping[str, Any]) -> Overload:
        """The overload that serves an element of the arrays, else the function's own plan."""
        found = {read(a, name).element for name, a in arrays.items() if a is not None and self.overloads}
        for one, facts in self.overloads:
            kind = facts.get("kind")
            if any(row.serves(kind, element) for row in one.variants for element in found):
                return one, facts
        return self.plan, self.fixed

    def kept(self, key: Any, call: Call) -> Resolved:
        """What is found for a call, and for those of the same key."""
        found = self.resolved(call)
        return found if key is None else keep(self.cache, key, found, _CAPACITY)

    def resolved(self, call: Call) -> Resolved:
        """What is found for a call of plain arrays."""
        seen = call.seen
        serving, given = self.chosen(seen, call.attributes)
        found = resolve(serving, seen, given, call.returns, call.preference, self.follows, call.turned, self.layouts)
        names = {s.name for s in (*arrays_of(serving.args), *scalars_of(serving.args))}
        if not {*self.arrays, *self.scalars} <= names:  # an overload may have fewer scalars
            args, found.direct = found.args, None
            found.args = lambda **g: args(**{n: g[n] for n in names & g.keys()})
        return found


def resolve(
    plan: type[Plan], arrays: Mapping[str, Any], given: Mapping[str, Any], returns: Mapping[str, bool],
    preference: Any, follows: str = "", turned: Sequence[str] = (), layouts: Any = None,
) -> Resolved:  # fmt: skip
    """What is found for calls like this one. turned: operands that `arrays` has views of, as `layouts` makes them."""
    desc, outputs = asked_for(plan, arrays, given, returns)
    lead = next(
        (a for v in arrays.values() for a in (v if isinstance(v, (list, tuple)) else [v]) if a is not None), None
    )
    device = resolve_device().ordinal if lead is None else ordinal(lead)
    chosen = plan.select(desc, preference, device="cpu" if device < 0 else device)
    last = bool(follows) and channels_last(arrays[follows])
    makers: list[Callable[[], Any]] = []
    names: list[str] = []
    for spec, kind, shapes in outputs:
        if shapes is None:
            makers.append(nothing)
        else:
            shapes = tuple(map(layouts.shape, shapes)) if spec.name in turned else shapes
            many = [maker(lead, shape, kind, device, last and 4 <= len(shape) <= 5) for shape in shapes]
            makers.append(partial(make_all, many) if spec.many else many[0])
            names.append(spec.name)
    views = partial(layouts.views, turned=turned) if turned else None
    direct = chosen.runner.direct(tuple(makers), lead, views) if makers else None
    kinds = tuple(output.element for output in outputs)
    listed = [bool(output.spec.many) for output in outputs if output.shapes is not None] == [True]
    args: Callable[..., Any] = plan.args if views is None else lambda **given: plan.args(**views(given))
    return Resolved(chosen, args, package_name(type(lead)), tuple(names), tuple(makers), kinds, direct, listed)
