"""The steady state of `run`: straight-line code generated once per (Args class, array package).

Shapes, strides and dtypes are one flat key into the plan's prepared layouts; then devices, pointer alignment
and overlapping spans are checked, and each step packs its pointers and launches. Whatever is not known leaves
through the runner. `print(source(RMSNormArgs, "cupy"))` shows the code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...core import config
from ...core.args import Args, Operand, arrays_of, scalars_of
from ...core.dispatch import undrawn
from ...core.intake import stream_pointer
from ...core.memo import PLANS_KEPT, memo
from ...core.tensor import TensorRef
from ...interop.dynamo import PLAN, broken_at
from .intake import scalar_value, torch_names, twin

PACKAGES = {  # how to read an array: shape, strides, dtype, pointer, device
    "cupy": ("{a}.shape", "{a}.strides", "{a}.dtype", "{a}.data.ptr", "{a}.data.device_id"),
    "torch": ("{a}.shape", "{a}.stride()", "{a}.dtype", "{a}.data_ptr()", "{a}.get_device()"),
    "ref": ("{a}.shape", "{a}.strides", "{a}.element", "{a}.ptr", "{a}.device"),
}
REFUSED = "{a}.requires_grad and GRAD()"  # what only torch's tensors may be; see interop.torch_rules
LAZY = "{a}.is_neg() or {a}.is_conj()"  # asked for where `Prepared.lazy` says that it may be


LAYOUTS = 256  # remembered per plan and package: a server may meet ever new strides


@memo(maxsize=PLANS_KEPT)
def generated(cls: type[Args], package: str, kind: type, prepares: bool = False) -> Callable[..., None]:
    """The `run(runner, args, workspace, stream)` for an Args class whose arrays are all of type `kind`.

    With `prepares`, the same up to the key and the alignment, which go to `runner.remember`.
    """
    raw, check = config.raw("BARACUDA_CHECK")
    names: dict[str, Any] = {
        "RAW": raw,
        "CHECK": check,
        "KIND": kind,
        "TWIN": twin(kind),
        "ARGS": cls,
        "SCALAR": scalar_value,
        "UNDRAWN": undrawn,
        "SPECS": {s.local: s for s in scalars_of(cls)},
        **defaults(cls),
        "PLAIN": (int, float, np.generic, kind, TensorRef),
        "OWN": (kind, TensorRef, type(None)),
        "POINTER": stream_pointer,
        **(torch_names() if package == "torch" else {}),
    }
    exec(compile(source(cls, package, prepares), f"<run {cls.__name__} on {package}>", "exec"), names)
    return broken_at(PLAN)(names["run"])  # type: ignore[no-any-return]


def source(cls: type[Args], package: str, prepares: bool = False) -> str:
    """The generated Python, for reading and for `generated`."""
    arrays = arrays_of(cls)
    plain = [spec for spec in arrays if not spec.many]
    lists = [spec for spec in arrays if spec.many]
    scalars = [spec.local for spec in scalars_of(cls)]
    flat = ", ".join([f"*p_{s.local}" if s.many else f"p_{s.local}" for s in arrays] + [f"p_{n}" for n in scalars])
    values = "(" + "".join(f"v_{n}, " for n in scalars) + ")"
    body = ["ordinal = runner.ordinal", "if type(args) is not ARGS: runner.overlap(args)"]
    if package != "ref":
        lead = next(s for s in arrays if not s.optional)
        first = (
            f"(args.{lead.name}[0] if type(args.{lead.name}) in (list, tuple) and args.{lead.name} else None)"
            if lead.many
            else f"args.{lead.name}"
        )
        body.append(f"if type({first}) is not KIND: return runner.run(args, workspace, stream)")
    reads = [line for s in arrays for line in (_read_list if s.many else _read_one)(s, package)]
    # A tensor may have no memory of its own and raise; a try block costs nothing while nothing is raised.
    body += ["try:", *(f"    {line}" for line in reads), "except Exception as error: runner.unreadable(args, error)"]
    torch, elsewhere = package == "torch", "return runner.run_any(args, workspace, stream)"
    if torch:
        body.append("if FORWARD._current_level >= 0: runner.overlap(args)")
    key = ", ".join(f"k_{s.local}" if s.many else f"k_{s.local}, s_{s.local}, e_{s.local}" for s in arrays)
    low = " | ".join([f"p_{s.local}" for s in plain] or ["0"])
    each = "".join(f"*[p & 15 for p in p_{s.local}], " if s.many else f"p_{s.local} & 15, " for s in arrays)
    locate = [
        f"key = ({key},)",
        f"low = ({low}) & 15",
        *(f"for p in p_{s.local}: low |= p & 15" for s in lists),
        f"alignment = ({each}) if low else ()",
    ]
    if prepares:
        body += [*locate, f"runner.remember({package!r}, key, alignment, args)"]
        return "def run(runner, args, workspace=None, stream=None):\n" + "".join(f"    {line}\n" for line in body)
    for spec in scalars_of(cls):
        n = spec.local
        body += [
            f"v_{n} = args.{spec.name}; p_{n} = 0",
            *([f"if v_{n} is None: v_{n} = UNDRAWN(SPECS[{n!r}], runner.plan.desc)"] if spec.drawn else []),
            f"if {not_plain(spec)}:",
            *([] if package == "ref" else [f"    if not isinstance(v_{n}, PLAIN): {elsewhere}"]),
            f"    p_{n}, v_{n} = SCALAR(v_{n}, SPECS[{n!r}], ordinal, runner.plan.desc)",
        ]
    if cls.__joint__:
        known, placed = (", ".join(f"{c}_{n}" for n in scalars) for c in "vp")
        body.append(f"if ({known},) != runner.numbers: runner.check_numbers(({known},), ({placed},))")
    body += [
        "if runner.several and runner.runtime.current_device() != ordinal:",
        "    return runner.on_device(args, workspace, stream)",
        "if RAW(CHECK) != runner.check: return runner.run(args, workspace, stream)",
        *(["current = CURRENT(ordinal)"] if torch else []),
        f"stream = {'current' if torch else 'runner.runtime.current_stream()'} if stream is None else POINTER(stream)",
        *locate,
        f"layout = runner.layouts[{package!r}].get(key)",
        "prepared = None if layout is None else layout.by_alignment.get(alignment)",
        f"if prepared is None: return runner.run_unprepared({package!r}, key, alignment, args, workspace, stream)",
    ]
    if torch:
        body.append(f"if prepared.lazy and ({' or '.join(map(_lazy, arrays))}): runner.overlap(args)")
    body += [f"runner.check_spans(args, ({flat},), layout.spans)"] if lists else _overlap(plain)
    body += [
        "if prepared.workspace:",
        f"    if type(workspace) not in OWN: {elsewhere}",
        f"    memory = runner.workspace(workspace, prepared.workspace, stream, {package!r})",
        f"    prepared.call(({flat}, memory.ptr, 0, 0), {values}, stream)",
        "else:",
        f"    prepared.call(({flat}, 0, 0, 0), {values}, stream)",
    ]
    if torch:
        written = "".join(map(_listed, (s for s in arrays if s.writes)))
        body += [f"INCREMENT(({written}))", "if stream != current: runner.record_stream(args, workspace, stream)"]
    return "def run(runner, args, workspace=None, stream=None):\n" + "".join(f"    {line}\n" for line in body)


def not_plain(spec: Operand) -> str:
    """The test that sends a scalar operand to the full check: not the number that a launch packs as it is.

    The number is the local v_ and its name, which is none of the code's own, whatever a formula calls it.
    """
    n = f"v_{spec.local}"
    if spec.meets:
        whole = (
            f"type({n}) is int and " if spec.integer else ""
        )  # also where the element is a float, and it is not read
        return f"{n} is not DEFAULT_{spec.local} and not ({whole}runner.plain({n}, {spec.meets!r}))"
    return f"type({n}) is not int or not {-(2**63)} <= {n} < {2**64}" if spec.integer else f"type({n}) is not float"


def defaults(cls: type[Args]) -> dict[str, Any]:
    """The names of `not_plain` for what is packed unseen: defaults of numbers that meet an element."""
    held = {field.name: field.default for field in dataclasses.fields(cls)}
    return {f"DEFAULT_{s.local}": held[s.name] for s in scalars_of(cls) if s.meets}


@memo()
def _key_reader(package: str) -> Callable[[Any], tuple[Any, ...]]:
    shape, strides, dtype, pointer, _ = (form.format(a="a") for form in PACKAGES[package])
    return eval(f"lambda a: ({shape}, {strides}, {dtype}, {pointer})")  # type: ignore[no-any-return]


def layout_key(cls: type[Args], package: str, arrays: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The key that generated code finds a layout of plain operands by, and the pointers' alignment."""
    read = _key_reader(package)
    found = [(None, None, None, 0) if arrays[s.name] is None else read(arrays[s.name]) for s in arrays_of(cls)]
    return tuple(part for one in found for part in one[:3]), tuple(one[3] & 15 for one in found)


def _foreign(n: str, package: str) -> str:
    """Whether an array is of another type than the first one: torch's parameters are read as its tensors are."""
    return f"type({n}) is not KIND and type({n}) is not TWIN" if package == "torch" else f"type({n}) is not KIND"


def _read_one(spec: Operand, package: str) -> list[str]:
    """Locals of one operand: k_ shape, s_ strides, e_ dtype, p_ pointer."""
    n = spec.local
    shape, strides, dtype, pointer, device = (form.format(a=n) for form in PACKAGES[package])
    read = [
        f"if ({_foreign(n, package)}) or {device} != ordinal: return runner.run_any(args, workspace, stream)",
        f"k_{n} = {shape}; s_{n} = {strides}; e_{n} = {dtype}; p_{n} = {pointer}",
    ]
    if package == "ref":
        read[0] = f"if {device} != ordinal: runner.overlap(args)"
    if package == "torch":
        read.insert(1, f"if {REFUSED.format(a=n)}: raise RECORDED({spec.name!r})")
    if not spec.optional:
        return [f"{n} = args.{spec.name}", *read]
    return [
        f"{n} = args.{spec.name}",
        f"if {n} is None: k_{n} = s_{n} = e_{n} = None; p_{n} = 0",
        "else:",
        *(f"    {line}" for line in read),
    ]


def _read_list(spec: Operand, package: str) -> list[str]:
    """Locals of a list operand: k_ (shape, strides, dtype) of each item, p_ pointers."""
    n = spec.local
    shape, strides, dtype, pointer, device = (form.format(a="one") for form in PACKAGES[package])
    read = [
        f"if type({n}) is not list and type({n}) is not tuple: return runner.run(args, workspace, stream)",
        f"for one in {n}:",
        f"    if ({_foreign('one', package)}) or {device} != ordinal: return runner.run_any(args, workspace, stream)",
        f"k_{n} = tuple([({shape}, {strides}, {dtype}) for one in {n}]); p_{n} = [{pointer} for one in {n}]",
    ]
    if package == "ref":
        read[:3] = [f"for one in {n}:", f"    if {device} != ordinal: runner.overlap(args)"]
    if package == "torch":
        read.insert(3, f"    if {REFUSED.format(a='one')}: runner.overlap(args)")
    if not spec.optional:
        return [f"{n} = args.{spec.name}", *read]
    absent = f"if {n} is None: k_{n} = None; p_{n} = [0]"
    return [f"{n} = args.{spec.name}", absent, "else:", *(f"    {line}" for line in read)]


def _lazy(spec: Operand) -> str:
    """Whether a torch operand has its negative or conjugate bit set."""
    n = spec.local
    if spec.many:
        return f"any([{LAZY.format(a='one')} for one in {n} or ()])"
    return f"{n} is not None and ({LAZY.format(a=n)})" if spec.optional else LAZY.format(a=n)


def _listed(spec: Operand) -> str:
    """An operand's arrays as items of a tuple."""
    n = spec.local
    items = f"*{n}" if spec.many else n
    if not spec.optional:
        return f"{items}, "
    return f"*({n} or ()), " if spec.many else f"*(() if {n} is None else ({n},)), "


def _overlap(plain: list[Operand]) -> list[str]:
    """Null pointers, and byte spans of every written operand against every other; the runner looks closer.

    An output that is the very view of an input it may replace (in place) is let through.
    """
    tests = [f"not p_{s.local}" + (f" and {s.local} is not None" if s.optional else "") for s in plain]
    for i, a in enumerate(plain):
        for b in plain[i + 1 :]:
            if a.writes or b.writes:
                x, y = a.local, b.local
                test = f"p_{x} + l_{x} < p_{y} + h_{y} and p_{y} + l_{y} < p_{x} + h_{x}"
                if a.name in b.inplace or b.name in a.inplace:
                    test += f" and (p_{x} != p_{y} or s_{x} != s_{y} or k_{x} != k_{y} or e_{x} != e_{y})"
                tests.append(f"({test})")
    unpack = ", ".join(f"l_{s.local}, h_{s.local}" for s in plain)
    return [f"{unpack} = layout.spans", f"if {' or '.join(tests)}: runner.overlap(args)"]
