"""The functional layer: `y = bc.rms_norm(x, weight)`; outputs made in the caller's package, plan found in a cache.

`functional(RMSNormPlan)` generates a function from the declarations: in and in-out operands positional, then by
keyword descriptor attributes, scalars, `return_<optional output>`, `layout=` where the op has one, `out=`, `stream=`,
`preference=`; any other keyword is an error that names the one meant (`keywords`). The descriptor is
*solved* by unifying the arrays' shapes with the declared ones, once per distinct (shapes, dtypes, attributes);
afterwards a call is one dict lookup, the outputs' allocation, and `plan.run`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from ..interop.jax_arrays import staged, unwrapped, wraps
from ..interop.packages import package_name
from ..interop.torch_rules import stands_in
from . import config
from .args import Operand, arrays_of, operands_of, scalars_of
from .arrays import read
from .device import resolve_device
from .element import ElementKind
from .errors import InvalidProblemError, RecordedError
from .execution import MISS, Direct, nothing, staged_for
from .keywords import marked, traced, unexpected
from .memo import keep, records
from .ordinals import ordinal
from .outputs import allocating, channels_last, handed, make_all, maker
from .plan import Plan
from .problem import asked_for
from .routed import Routed, route
from .signatures import NAMES, may_serve, returned, taken
from .streams import keyed, stream_of

_CAPACITY = 4096
_OPTIONS = ("out", "stream", "preference")
_EVERY = ("element", *_OPTIONS)
FOLLOWS: dict[type[Plan], str] = {}
"""The operand whose order of axes in memory the outputs of a plan take, where its functions say so."""


class _Unset:
    def __repr__(self) -> str:
        return "…"


UNSET: Any = _Unset()


@dataclasses.dataclass
class Entry:
    """What one distinct call needs: its plan, and a maker per output that it returns."""

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


def functional(
    plan: type[Plan], name: str | None = None, doc: str | None = None, *, layouts: Any = None,
    returns: Sequence[str] = (), positional: Sequence[str] = (), follows: str = "",
    overloads: Sequence[Overload] = (), defaults: Mapping[str, Any] | None = None, **fixed: Any,
) -> Callable[..., Any]:  # fmt: skip
    """The function of a plan; `fixed` are descriptor attributes it fixes (a table op's kind).

    `overloads`: further plans, with what is fixed of theirs, whose operands have the same names; one serves a call
    where an operand has an element of its rows, at the same cost.
    `layouts` gives it a `layout=` (`ops.attention.layouts`): operands of another layout than the plan's own are views
    to the plan, and as they are to the direct path.
    `returns`: optional outputs of a forward plan that are returned unless declined (when what they need is given).
    `defaults`: of attributes, where the function's are not the descriptor's.
    `positional`: attributes that may follow the operands by position, in this order.
    `follows`: an input; where its channels lie last in memory, those of outputs do (`channels_last`).
    """
    name = name or plan.op.partition(".")[2]
    fields = [f for f in dataclasses.fields(plan.descriptor) if f.name not in fixed and f.name != "element"]
    served = [s for s in arrays_of(plan.args) if may_serve(s, fixed)]
    inputs = [s for s in served if s.reads]
    optional = [s for s in served if s.role == "out" and s.optional]
    backward = plan.direction == "backward"
    required = [s for s in inputs if not s.optional or (s.kinds and s.needed and "kind" in fixed) or s.instead in fixed]
    at = {s.name: s.local for s in operands_of(plan.args)}  # what the code calls them
    head = [s.local for s in required] + [f"{s.local}=None" for s in inputs if s not in required]
    solved = {d.lstrip("*") for s in arrays_of(plan.args) for d in s.dims} | {s.many for s in arrays_of(plan.args)}
    own = {f.name: UNSET if f.default is dataclasses.MISSING or f.name in solved else f.default for f in fields}
    defaults = {**own, **(defaults or {})}
    scalars = {
        f.name: f.default for f in dataclasses.fields(plan.args) if f.name in {s.name for s in scalars_of(plan.args)}
    }
    seeding = _seeding(plan, name, [] if backward else [s.local for s in inputs])
    scalars |= {"seed": None} if len(seeding) > 1 else {}
    head += [f"{f}=DEFAULTS[{f!r}]" for f in positional]
    keywords = [f"{f}=DEFAULTS[{f!r}]" for f in defaults if f not in positional]
    keywords += [at[n] if d is dataclasses.MISSING else f"{at[n]}=SCALARS[{n!r}]" for n, d in scalars.items()]
    keywords += [f"return_{s.local}={backward or s.name in returns}" for s in optional]
    keywords += [f"layout={layouts.names[0]!r}"] if layouts else []
    keywords += ["element=UNSET", "out=None", "stream=None", "preference=None", "**unknown"]
    flags = [f"return_{s.local}" for s in optional]
    numbers = [at[n] for n in scalars]
    typed = [*_types_of([f for f in fields if f.name not in solved]), *(f"type({flag})" for flag in flags)]
    if found := [f.name for f in fields if f.name in solved]:  # which hardly a call gives
        typed.append(f"UNSET is {' is '.join(found)} or TYPES(({', '.join(found)},))")
    keys = ", ".join((*(_key(s) for s in inputs), *defaults, *flags, *typed))
    lead = "None" if not inputs else f"{inputs[0].local}[0]" if inputs[0].many else inputs[0].local
    keys += f", ORDINAL({lead})" if inputs else ""
    keys += f", LAST({at[follows]})" if follows else ""
    keys += ", layout" if layouts else ""
    raw, check = config.raw("BARACUDA_CHECK")
    wanted = [s for s in arrays_of(plan.args) if s.role == "out"]
    gather = _named({s.name: s.local for s in inputs})
    attributes = "{" + ", ".join(f"{f!r}: {f}" for f in defaults) + ", 'element': element}"
    asked = {s.name: f"return_{s.local}" if s in served else "False" for s in wanted if s.optional}
    returns = _named(asked)
    passed = ", ".join(f"{n}={at[n]}" for n in [*(s.name for s in inputs), *scalars])
    outs = [s.local for s in wanted]
    listed = "".join(f"{n}, " for n in outs)
    handed_over = f"    if entry.package == 'jax': {listed} = HANDED(entry, ({listed}), {lead}, out, stream)"
    results = [s for s in wanted if s in served] or [s for s in inputs if s.role == "inout"]
    result = ", ".join(s.local for s in results)
    reads = [s.local if s in served else "None" for s in arrays_of(plan.args) if s.reads]
    grown = ", ".join([*map(_grown, inputs), *(f"getattr({n}, 'requires_grad', type({n}))" for n in numbers)])
    direct = [
        "    if entry.jobs and out is None and stream is None:",
        f"        job = entry.jobs.get(({grown},))",
        "        if job is not None:",
        f"            made = job.apply(({''.join(f'{n}, ' for n in numbers)}), {', '.join(reads)})",
        "            if made is not MISS: return made",
        "    if entry.direct is not None and out is None and stream is None:",
        f"        made = entry.direct.call({', '.join([*reads, *numbers])})",
        "        if made is not MISS: return made",
    ]
    held = {s.name: s.local if s in served or s.role == "out" else "None" for s in arrays_of(plan.args)}
    arrays = _named(held)
    learn = [f"    if entry.direct is not None and out is None and stream is None: entry.direct.learn({arrays})"]
    given = _named({n: at[n] for n in scalars})
    staging = f"STAGE({gather}, {attributes}, {given}, {returns}, {_own(_OPTIONS)})"
    arriving = f"STAGED(({''.join(f'{s.local}, ' for s in inputs)}), ({''.join(f'{n}, ' for n in numbers)}))"
    every = (*defaults, *numbers, *flags, *_EVERY)
    turned = ", layout" if layouts else ""
    if layouts:
        facts = _own(every)
        staging = f"{staging} if layout == {layouts.names[0]!r} else LAYOUTS.staged(SELF, layout, {gather}, {facts})"
    recorded = f"{gather}, {attributes}, {given}, {returns}, out, stream, preference{turned}"
    lines = [
        f"def {name}({', '.join(head)}, *, {', '.join(keywords)}):",
        *seeding,
        *([] if required else [f"    if {arriving}: return {staging}"]),  # nothing of a call without operands tells
        "    try:",
        "        try:",
        f"            key = ({keys}, element, preference, RAW(CHECK))",
        "            entry = CACHE.get(key)",
        # not an array, or a list for an attribute:
        "        except Exception: key = entry = None",
        "        if entry is None:",
        f"            symbol = TRACED({name!r}, {gather}, {attributes})",
        "            if symbol is not None: return symbol",
        f"            if {arriving}: return {staging}",
        f"            entry = NEW(key, {gather}, {attributes}, {returns}, preference{turned})",
        *([f"        if entry.package == 'jax' and {arriving}: return {staging}"] if scalars else []),
        *_indented(direct),
        *_indented(_making(outs) if outs else ["    if out is not None: raise NO_OUT"]),
        f"        entry.plan.run(entry.args({passed}{''.join(f', {s.name}={s.local}' for s in wanted)}), None, stream)",
        *_indented(learn),
        *_indented([handed_over] if outs and inputs else []),
        f"        return {result}" if len(results) <= 1 else f"        return RESULT(({result}), entry)",
        "    except RECORDED as error: said = error",
        f"    return ROUTE(SELF, said, entry, {recorded})",
        f"def routed({', '.join(head)}, *, {', '.join(keywords)}):",
        *seeding,
        f"    return ROUTE(SELF, None, None, {recorded})",
        f"def grown({', '.join([*(s.local for s in inputs), *numbers])}): return ({grown},)",
    ]
    # In a forked child entries of CUDA plans would make outputs first, which fails in CuPy; a new one is refused by us.
    cache: dict[Any, Entry] = records()

    def chosen(arrays: Any, attributes: Any) -> tuple[type[Plan], dict[str, Any]]:
        """The plan that serves a call, and the attributes that it is given."""
        serving, own = _serving(plan, fixed, overloads, arrays)
        left = () if serving is plan else [k for k, v in attributes.items() if v is defaults.get(k, UNSET)]
        return serving, {k: v for k, v in attributes.items() if v is not UNSET and k not in left} | dict(own)

    def stage(arrays: Any, attributes: Any, numbers: Any, returns: Any, options: Any) -> Any:
        arrays = unwrapped(arrays) if wraps(arrays.values()) else arrays
        serving, given = chosen(arrays, attributes)
        return staged_for("jax")(name, serving, *asked_for(serving, arrays, given, returns), arrays, numbers, options)

    def new(key: Any, arrays: Any, attributes: Any, returns: Any, preference: Any, layout: Any = None) -> Entry:
        if isinstance(preference, Routed) or stands_in(arrays.values()) or wraps(arrays.values()):
            raise RecordedError(f"{name}: a call of baracuda_py.torch")
        turned = layouts.turned(layout) if layouts else ()
        arrays = layouts.views(arrays, turned) if turned else arrays
        serving, given = chosen(arrays, attributes)
        entry = entry_of(serving, arrays, given, returns, preference, follows, turned, layouts)
        names = {s.name for s in (*arrays_of(serving.args), *scalars_of(serving.args))}
        if not {*held, *scalars} <= names:  # an overload may have fewer scalars
            args, entry.direct = entry.args, None
            entry.args = lambda **g: args(**{n: g[n] for n in names & g.keys()})
        return entry if key is None else keep(cache, key, entry, _CAPACITY)

    names: dict[str, Any] = {
        **NAMES, "RAW": raw, "CHECK": check, "TRACED": _traced, "RECORDED": RecordedError, "ROUTE": route,
        "STAGED": staged, "STAGE": stage, "KEYED": keyed, "STREAM": stream_of,
        "DEFAULTS": defaults, "SCALARS": scalars, "UNSET": UNSET, "CACHE": cache, "NEW": new, "GIVEN": given_outputs,
        "ORDINAL": ordinal, "RESULT": result_of, "ON_STREAM": _on_stream, "MISS": MISS,
        "HANDED": _handed, "TYPES": _types, "LAST": channels_last, "LAYOUTS": layouts, "UNEXPECTED": unexpected,
        "NO_OUT": InvalidProblemError(f"{name} works in place and takes no out="),
    }  # fmt: skip
    exec(compile("\n".join(lines), f"<function {name}>", "exec"), names)
    function = names["SELF"] = names[name]  # a keyword may have the function's own name
    function.__module__ = plan.__module__
    function.__qualname__ = name
    function.__doc__ = doc or plan.__doc__
    function.chosen, function.routed, function.grown = chosen, names["routed"], names["grown"]
    function.layouts, function.local = layouts, at
    function.reads = tuple([s.name if s in served else "None" for s in arrays_of(plan.args) if s.reads])
    function.entry, function.outs = partial(new, None), tuple([s.name for s in wanted])
    function.results = tuple([s.name for s in results])
    function.flags = frozenset(flags)
    if follows:
        FOLLOWS[plan] = follows
    shown = [*(s.local for s in inputs), *defaults, *numbers, *flags, *(["layout"] if layouts else []), *_EVERY]
    said = taken(plan, inputs, list(defaults), flags)
    function.__annotations__ = {n: said[n] for n in shown} | {"return": returned(plan, function.results, flags)}
    return marked(function, plan, fixed)  # type: ignore[no-any-return]


def _seeding(plan: type[Plan], name: str, operands: Sequence[str]) -> list[str]:
    """The lines that see to keywords that are not taken, and to a seed that is not given: see `interop.streams`."""
    seed = next((s for s in scalars_of(plan.args) if s.local == "seed"), None)  # not a formula's
    missing = {f.name for f in dataclasses.fields(plan.args) if f.default is dataclasses.MISSING}
    if seed is None or not (seed.drawn or "seed" in missing):
        return ["    if unknown: raise UNEXPECTED(SELF, unknown)"]
    drawn = f"{name!r}, {seed.drawn or True}, ({''.join(f'{n}, ' for n in operands)}), stream"
    return [
        "    if unknown: seed, offset = KEYED(SELF, UNEXPECTED, unknown, seed, offset)",
        f"    if seed is None: seed = STREAM({drawn})",
    ]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _named(values: Mapping[str, str]) -> str:
    """A dict, as source."""
    return "{" + ", ".join(f"{n!r}: {value}" for n, value in values.items()) + "}"


def _own(names: Iterable[str]) -> str:
    """A dict of locals by their names, as source."""
    return _named({n: n for n in names})


Overload: TypeAlias = "tuple[type[Plan], Mapping[str, Any]]"


def _serving(plan: type[Plan], fixed: Mapping[str, Any], overloads: Sequence[Overload], arrays: Any) -> Overload:
    """The overload that serves an element of the arrays, else the function's own plan."""
    found = {read(a, name).element for name, a in arrays.items() if a is not None and overloads}
    for one, facts in overloads:
        kind = facts.get("kind")
        if any(row.serves(kind, element) for row in one.variants for element in found):
            return one, facts
    return plan, fixed


def _traced(name: str, operands: Mapping[str, Any], attributes: Mapping[str, Any]) -> Any:
    """What operands that stand for arrays make of the call, or None; see `keywords.traced`."""
    given = {n: value for n, value in attributes.items() if value is not UNSET}
    return traced(name, [value for value in operands.values() if value is not None], given)


def _making(outs: Sequence[str]) -> list[str]:
    """Lines that make the outputs, or take them as given."""
    made = "; ".join(f"{n} = make_{n}()" for n in outs)
    return [
        f"    {', '.join(f'make_{n}' for n in outs)}, = entry.makers",
        f"    if out is None and stream is None: {made}",
        f"    elif stream is None: {', '.join(outs)}, = GIVEN(entry, out)",
        "    else:",
        f"        with ON_STREAM(entry, stream): {', '.join(outs)}, = GIVEN(entry, out)",
    ]


def _key(spec: Operand) -> str:
    n = spec.local
    each = f"tuple([(a.shape, a.dtype) for a in {n}]), type({n}[0])"
    one = each if spec.many else f"{n}.shape, {n}.dtype, type({n})"
    return f"(None if {n} is None else ({one}))" if spec.optional else one


def _grown(spec: Operand) -> str:
    """What tells whether an operand of torch requires a gradient."""
    n = spec.local
    one = f"tuple([a.requires_grad for a in {n}])" if spec.many else f"{n}.requires_grad"
    return f"None if {n} is None else {one}" if spec.optional else one


def _types_of(fields: Sequence[dataclasses.Field[Any]]) -> Iterator[str]:
    """What tells attributes from others that are equal, as 1, 1.0 and True are, within tuples too."""
    for f in fields:
        if f.type != "str":
            one = f"type({f.name})"
            plain = f.type in ("int", "float", "bool")
            yield one if plain else f"{one} if {one} is not tuple else TYPES({f.name})"


def _types(value: Any) -> Any:
    return tuple([_types(item) for item in value]) if type(value) is tuple else type(value)


def entry_of(
    plan: type[Plan], arrays: Mapping[str, Any], given: Mapping[str, Any], returns: Mapping[str, bool],
    preference: Any, follows: str = "", turned: Sequence[str] = (), layouts: Any = None,
) -> Entry:  # fmt: skip
    """The entry of calls like this one. `turned` are operands that `arrays` has views of, as `layouts` makes them."""
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
    return Entry(chosen, args, package_name(type(lead)), tuple(names), tuple(makers), kinds, direct, listed)


def _on_stream(entry: Entry, stream: Any) -> Any:
    return allocating(entry.package, entry.plan.device.ordinal, stream)


def _handed(entry: Entry, values: Sequence[Any], lead: Any, out: Any, stream: Any) -> list[Any]:
    """All outputs; those that the caller did not give are handed over on the stream that writes them."""
    own = out.values() if isinstance(out, Mapping) else out if isinstance(out, (list, tuple)) else (out,)
    with _on_stream(entry, stream):
        return [
            value if any(value is one for one in own) else handed(value, kind, lead)
            for value, kind in zip(values, entry.kinds, strict=True)
        ]


def given_outputs(entry: Entry, out: Any) -> list[Any]:
    """The caller's outputs, in declaration order; a mapping may leave some to be made."""
    if out is None:
        given = {}
    elif isinstance(out, Mapping):
        unknown = set(out) - set(entry.names)
        if unknown:
            raise InvalidProblemError(f"out= names {sorted(unknown)}; the outputs are {list(entry.names)}")
        given = {name: out[name] for name in entry.names if name in out}
    else:
        values = list(out) if isinstance(out, (list, tuple)) else [out]
        if entry.listed and not (len(values) == 1 and isinstance(values[0], (list, tuple))):
            values = [values]
        if len(values) != len(entry.names):
            raise InvalidProblemError(
                f"out= must give {len(entry.names)} arrays ({', '.join(entry.names)}), got {len(values)}"
            )
        given = dict(zip(entry.names, values, strict=True))
    names = iter(entry.names)
    result = []
    for make in entry.makers:
        name = None if make is nothing else next(names)
        result.append(given[name] if name in given else make())
    return result


def result_of(values: tuple[Any, ...], entry: Entry) -> Any:
    """What a function returns of the outputs that it may have."""
    if len(entry.names) == 1:
        return next(v for v in values if v is not None)
    return tuple(v for v in values if v is not None)
