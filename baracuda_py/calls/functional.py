"""The functional layer: `y = bc.rms_norm(x, weight)`; outputs made in the caller's package, plan found in a cache.

`functional(RMSNormPlan)` generates a function from the declarations: in and in-out operands (and an axis) by position,
then by keyword descriptor attributes, scalars, `return_<optional output>`, `layout=` where the op has one, `out=`,
`stream=`, `preference=`; any other keyword is an error that names the one meant (`keywords`). The descriptor is
*solved* by unifying the arrays' shapes with the declared ones, once per distinct (shapes, dtypes, attributes);
afterwards a call is one dict lookup, the outputs' allocation, and `plan.run`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..core import config
from ..core.args import Operand, arrays_of, operands_of, scalars_of
from ..core.errors import InvalidProblemError, RecordedError
from ..core.execution import MISS
from ..core.keywords import unexpected
from ..core.ordinals import ordinal
from ..core.outputs import channels_last
from ..core.plan import Plan
from ..core.signatures import NAMES, may_serve, returned, taken
from ..interop.jax_arrays import staged
from ..interop.torch_rules import autocasting
from .call import UNSET, Call, Entry, Overload
from .entries import marked
from .interpreters import autocast, claimed, innermost, recorded, serve
from .streams import is_key, keyed, stream_of

_OPTIONS = ("out", "stream", "preference")
_EVERY = ("element", *_OPTIONS)
_BY_POSITION = ("axis", "keepdims")
FOLLOWS: dict[type[Plan], str] = {}
"""The operand whose order of axes in memory the outputs of a plan take, where its functions say so."""


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
    `positional`: attributes that may follow the required operands by position, in this order; where there is a single
    operand, its axis and `keepdims` may, as in NumPy and torch.
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
    solved = {d.lstrip("*") for s in arrays_of(plan.args) for d in s.dims} | {s.many for s in arrays_of(plan.args)}
    own = {f.name: UNSET if f.default is dataclasses.MISSING or f.name in solved else f.default for f in fields}
    defaults = {**own, **(defaults or {})}
    scalars = {
        f.name: f.default for f in dataclasses.fields(plan.args) if f.name in {s.name for s in scalars_of(plan.args)}
    }
    seeding = _seeding(plan, name, [] if backward else [s.local for s in inputs])
    scalars |= {"seed": None} if len(seeding) > 1 else {}
    if not positional and not backward and len(inputs) == len(required) == 1:
        positional = [f for f in _BY_POSITION if f in defaults]
    head = [s.local for s in required] + [f"{f}=DEFAULTS[{f!r}]" for f in positional]
    head += [f"{s.local}=None" for s in inputs if s not in required]
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
    keys += ", element, preference, INNERMOST(), RAW(CHECK)"
    raw, check = config.raw("BARACUDA_CHECK")
    wanted = [s for s in arrays_of(plan.args) if s.role == "out"]
    gather = _named({s.name: s.local for s in inputs})
    attributes = "{" + ", ".join(f"{f!r}: {f}" for f in defaults) + ", 'element': element}"
    asked = {s.name: f"return_{s.local}" if s in served else "False" for s in wanted if s.optional}
    returns = _named(asked)
    passed = ", ".join(f"{n}={at[n]}" for n in [*(s.name for s in inputs), *scalars])
    outs = [s.local for s in wanted]
    listed = "".join(f"{n}, " for n in outs)
    handed_over = f"    if found.package == 'jax': {listed} = found.handed(({listed}), {lead}, out, stream)"
    results = [s for s in wanted if s in served] or [s for s in inputs if s.role == "inout"]
    result = ", ".join(s.local for s in results)
    reads = [s.local if s in served else "None" for s in arrays_of(plan.args) if s.reads]
    grown = ", ".join([*map(_grown, inputs), *(f"getattr({n}, 'requires_grad', type({n}))" for n in numbers)])
    direct = [
        "    if found.jobs and out is None and stream is None:",
        f"        job = found.jobs.get(({grown},))",
        "        if job is not None:",
        f"            made = job.apply(({''.join(f'{n}, ' for n in numbers)}), {', '.join(reads)})",
        "            if made is not MISS: return made",
        "    if found.direct is not None and out is None and stream is None:",
        f"        made = found.direct.call({', '.join([*reads, *numbers])})",
        "        if made is not MISS: return made",
    ]
    held = {s.name: s.local if s in served or s.role == "out" else "None" for s in arrays_of(plan.args)}
    learn = [f"    if found.direct is not None and out is None and stream is None: found.direct.learn({_named(held)})"]
    given = _named({n: at[n] for n in scalars})
    arriving = f"STAGED(({''.join(f'{s.local}, ' for s in inputs)}), ({''.join(f'{n}, ' for n in numbers)}))"
    # What the key does not tell: a number that is traced, and an array of a list behind its first.
    kept = "('jax', 'numpy')" if any(s.many for s in inputs) else "('jax',)" if scalars else ""
    facts = f"{gather}, {attributes}, {given}, {returns}, out, stream, preference, {'layout' if layouts else 'None'}"
    lines = [
        f"def {name}({', '.join(head)}, *, {', '.join(keywords)}):",
        *seeding,
        f"    if AUTOCASTING(): return AUTOCAST(CALL(ENTRY, {facts}))",
        # Nothing of a call without operands tells:
        *([] if required else [f"    if {arriving}: return SERVE(CALL(ENTRY, {facts}))"]),
        "    try:",
        f"        key = ({keys})",
        "        found = CACHE.get(key)",
        "    except Exception: key = found = None",  # not an array, or a list for an attribute
        "    if found is None:",
        f"        call = CALL(ENTRY, {facts})",
        "        interpreter = CLAIMED(call)",
        "        if interpreter is not None: return interpreter.serve(call)",
        "    try:",
        "        if found is None: found = ENTRY.kept(key, call)",
        *([f"        if found.package in {kept} and {arriving}: return SERVE(CALL(ENTRY, {facts}))"] if kept else []),
        *_indented(direct),
        *_indented(_making(outs) if outs else ["    if out is not None: raise NO_OUT"]),
        f"        found.plan.run(found.args({passed}{''.join(f', {s.name}={s.local}' for s in wanted)}), None, stream)",
        *_indented(learn),
        *_indented([handed_over] if outs and inputs else []),
        f"        return {result}" if len(results) <= 1 else f"        return found.result(({result}))",
        f"    except RECORDED as error: call = CALL(ENTRY, {facts}, found, error)",
        "    return RECORD(call)",
        f"def grown({', '.join([*(s.local for s in inputs), *numbers])}): return ({grown},)",
    ]
    entry = Entry(
        name, plan, fixed, overloads, defaults, scalars, follows, layouts, at,
        reads=tuple([s.name if s in served else "None" for s in arrays_of(plan.args) if s.reads]),
        arrays=tuple(held), outs=tuple([s.name for s in wanted]), results=tuple([s.name for s in results]),
        flags=frozenset(flags),
    )  # fmt: skip
    names: dict[str, Any] = {
        **NAMES, "AUTOCASTING": autocasting, "AUTOCAST": autocast,
        "RAW": raw, "CHECK": check, "ENTRY": entry, "CACHE": entry.cache, "CALL": Call, "CLAIMED": claimed,
        "SERVE": serve, "RECORD": recorded, "RECORDED": RecordedError, "INNERMOST": innermost, "STAGED": staged,
        "KEYED": keyed, "IS_KEY": is_key, "STREAM": stream_of, "DEFAULTS": defaults, "SCALARS": scalars, "UNSET": UNSET,
        "ORDINAL": ordinal, "MISS": MISS, "TYPES": _types, "LAST": channels_last, "UNEXPECTED": unexpected,
        "NO_OUT": InvalidProblemError(f"{name} works in place and takes no out="),
    }  # fmt: skip
    exec(compile("\n".join(lines), f"<function {name}>", "exec"), names)
    function = entry.function = names["SELF"] = names[name]  # a keyword may have the function's own name
    entry.grown = names["grown"]
    function.__module__ = plan.__module__
    function.__qualname__ = name
    function.__doc__ = doc or plan.__doc__
    function.entry = entry
    if follows:
        FOLLOWS[plan] = follows
    shown = [*(s.local for s in inputs), *defaults, *numbers, *flags, *(["layout"] if layouts else []), *_EVERY]
    said = taken(plan, inputs, list(defaults), flags)
    function.__annotations__ = {n: said[n] for n in shown} | {"return": returned(plan, entry.results, flags)}
    return marked(function, plan, fixed)  # type: ignore[no-any-return]


def entry_of(function: Callable[..., Any]) -> Entry:
    """What a generated function has beside its signature."""
    return function.entry  # type: ignore[attr-defined, no-any-return]


def _seeding(plan: type[Plan], name: str, operands: Sequence[str]) -> list[str]:
    """The lines that see to keywords that are not taken, and to a seed that is not given: see `streams`."""
    seed = next((s for s in scalars_of(plan.args) if s.local == "seed"), None)  # not a formula's
    missing = {f.name for f in dataclasses.fields(plan.args) if f.default is dataclasses.MISSING}
    if seed is None or not (seed.drawn or "seed" in missing):
        return ["    if unknown: raise UNEXPECTED(SELF, unknown)"]
    drawn = f"{name!r}, {seed.drawn or True}, ({''.join(f'{n}, ' for n in operands)}), stream"
    return [
        "    if unknown: seed, offset = KEYED(SELF, UNEXPECTED, unknown, seed, offset)",
        f"    if seed is None: seed = STREAM({drawn})",
        "    elif IS_KEY(seed): seed, offset = KEYED(SELF, UNEXPECTED, {'key': seed}, None, offset)",
    ]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _named(values: Mapping[str, str]) -> str:
    """A dict, as source."""
    return "{" + ", ".join(f"{n!r}: {value}" for n, value in values.items()) + "}"


def _making(outs: Sequence[str]) -> list[str]:
    """Lines that make the outputs, or take them as given."""
    made = "; ".join(f"{n} = make_{n}()" for n in outs)
    return [
        f"    {', '.join(f'make_{n}' for n in outs)}, = found.makers",
        f"    if out is None and stream is None: {made}",
        f"    elif stream is None: {', '.join(outs)}, = found.outputs(out)",
        "    else:",
        f"        with found.on_stream(stream): {', '.join(outs)}, = found.outputs(out)",
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
