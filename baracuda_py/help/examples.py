"""A small example of every functional entry, as code that runs on NumPy arrays.

It is made from the page: the smallest of the problems that `case` draws, operands as its declaration describes them,
attributes where they are not the default's; and run before it is shown. Functions whose parameters are not the plan's
operands have a line in `TABLE`.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from ..core import registry
from ..core.args import Operand, arrays_of, scalars_of
from ..core.element import ElementKind
from ..core.errors import BaracudaError, InvalidProblemError
from ..core.memo import memo
from ..core.plan import Plan
from ..testing.draw import SeededDraw, fill, shapes_of
from ..testing.in_torch import descriptor_of, saved_by_forward
from .table import TABLE

HEAD = "import numpy as np\nimport baracuda_py as bc\n\n"
_SEEDS = 120
_LITERAL = 24  # elements of an array that is written out
_MOST = 1 << 13  # elements of all operands
_GIVEN = ("weight", "bias")  # optional operands that nearly every call gives
_KEPT = ("axis", "kernel_size", "stride", "to_element", "group_size")  # attributes that an example shows
Function = Callable[..., Any]


@memo(maxsize=None)
def example(function: Function) -> str:
    """The example of a functional entry; "" where none can be made."""
    if function.__name__ in TABLE:
        return HEAD + TABLE[function.__name__]
    for desc in _problems(function):
        code = _Writer(function, desc).code()
        if code:
            return HEAD + code
    return next((HEAD + code for code in map(partial(_of_plan, function.plan), _problems(function)) if code), "")  # type: ignore[attr-defined]


def _of_plan(plan: type[Plan], desc: Any) -> str:
    """The plan itself on a problem: for functions whose parameters are not its operands, and that have no line."""
    fields = [(f.name, getattr(desc, f.name), f.default) for f in dataclasses.fields(desc)]
    said = ", ".join(f"{name}={_literal(value)}" for name, value, default in fields if value != default)
    arrays, lines, operands = _filled(plan, desc), [], []
    for spec in arrays_of(plan.args):
        if not spec.serves(desc) or not spec.required(desc):
            continue
        if spec.reads:
            text = _array(plan, spec, desc, arrays[spec.name])
        else:
            each = [f"np.empty({shape}, np.{spec.elements(desc)[0].carrier})" for shape in shapes_of(spec, desc)]
            text = f"[{', '.join(each)}]" if spec.many else each[0]
        if text is None:
            return ""
        lines.append(f"{spec.name} = {text}")
        operands.append(f"{spec.name}={spec.name}")
    code = "\n".join(
        [
            *(["rng = np.random.default_rng(0)"] if any("rng." in line for line in lines) else []), *lines,
            f"plan = bc.{plan.__name__}.select(bc.{plan.descriptor.__name__}({said}))",
            f"plan({', '.join(operands)})",
        ]
    )  # fmt: skip
    try:
        runs(HEAD + code)
    except Exception:
        return ""
    return code


def runs(code: str) -> dict[str, Any]:
    """The names that the code of an example makes; raises what it raises."""
    space: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        exec(compile(code, "<example>", "exec"), space)
    return space


def _problems(function: Function) -> Iterator[Any]:
    """Descriptors that the function serves, the plainest first."""
    plan, fixed = function.plan, function.fixed  # type: ignore[attr-defined]
    kind = fixed.get("kind", next(iter(plan.kinds or (None,))))
    served = [e for v in plan.variants if v.kinds is None or kind in v.kinds for e in v.elements_for(kind)]
    first = (ElementKind.F32, ElementKind.I32, ElementKind.C64)
    lead = next((e for e in first if e in served), served[0] if served else ElementKind.F32)
    found = []
    for seed in range(_SEEDS):
        try:
            desc = plan.case(SeededDraw(seed, lead, kind))
            desc = _plain(plan, dataclasses.replace(desc, **fixed) if fixed else desc, fixed)
        except (BaracudaError, TypeError):
            continue
        shown = [s for s in arrays_of(plan.args) if s.required(desc) or (s.name in _GIVEN and s.serves(desc))]
        shapes = [shape for spec in shown for shape in shapes_of(spec, desc)]
        if sum(map(math.prod, shapes)) <= _MOST:
            odd = _oddness(shapes) + 50 * (getattr(desc, "axis", None) == ())
            odd += 10 * sum(len(shape) > 1 for s in shown if s.name == "weight" for shape in shapes_of(s, desc))
            found.append((odd, sum(map(math.prod, shapes)), seed, desc))
    yield from (desc for *_, desc in sorted(found, key=lambda one: one[:3]))


def _oddness(shapes: list[tuple[int, ...]]) -> int:
    """How far the shapes are from two axes of a few elements each."""
    extents = [n for shape in shapes for n in shape]
    lead = len(shapes[0]) if shapes else 2
    large = sum(n > 16 for n in extents)
    return 100 * extents.count(0) + 8 * extents.count(1) + 4 * abs(lead - 2) + 2 * large + 20 * shapes.count(())


def _plain(plan: type[Plan], desc: Any, fixed: Mapping[str, Any]) -> Any:
    """The descriptor with its attributes at their defaults, as far as that leaves the operands' shapes as they are."""
    dims = {d.lstrip("*") for s in arrays_of(plan.args) for d in s.dims} | {s.many for s in arrays_of(plan.args)}
    for field in dataclasses.fields(desc):
        if field.name in (*dims, *fixed, *_KEPT, "element", "kind") or field.default is dataclasses.MISSING:
            continue
        try:
            other = dataclasses.replace(desc, **{field.name: field.default})
            same = all(shapes_of(s, other) == shapes_of(s, desc) for s in arrays_of(plan.args) if s.serves(desc))
            desc = other if same else desc
        except (BaracudaError, TypeError):
            continue
    return desc


class _Writer:
    """Writes the example of one problem of a function."""

    def __init__(self, function: Function, desc: Any) -> None:
        self.function, self.desc, self.plan = function, desc, function.plan  # type: ignore[attr-defined]
        self.shown = inspect.signature(function).parameters
        self.lines: list[str] = []
        self.given: list[str] = []
        forward = _forward(self.plan, function.__name__)
        self.forward = forward
        self.saved = saved_by_forward(self.plan, forward.plan) if forward else {}  # type: ignore[attr-defined]

    def code(self) -> str:
        """The code, run; "" where the operands cannot be written shortly or the call fails."""
        arrays = _filled(self.plan, self.desc)
        if self.plan.check_values(self.desc, arrays) is not None or not self._operands(arrays):
            return ""
        if not self._forward():
            return ""
        arguments = self._arguments(arrays)
        if arguments is None:
            return ""
        head = "rng = np.random.default_rng(0)\n" if any("rng." in line for line in self.lines) else ""
        head += "".join(f"{line}\n" for line in self.lines)
        fixed = self.function.fixed  # type: ignore[attr-defined]
        every = arguments + _attributes(self.plan, fixed, self.desc, self.shown, arguments, derived=True)
        return self._run(head, arguments) or (self._run(head, every) if every != arguments else "")

    def _run(self, head: str, arguments: list[str]) -> str:
        """The example, run; once more with what the error asks for."""
        for _ in range(2):
            call = f"bc.{self.function.__name__}({', '.join(arguments)})"
            try:
                made = runs(f"{HEAD}{head}made = {call}")["made"]
            except InvalidProblemError as error:
                names = re.findall(r"(\w+)=", str(error).partition("; pass ")[2])
                if not names:
                    return ""
                arguments = arguments + [f"{name}={_literal(getattr(self.desc, name))}" for name in names]
            except Exception:
                return ""
            else:
                return head + self._assigned(made, call)
        return ""

    def _operands(self, arrays: Mapping[str, Any]) -> bool:
        for spec in arrays_of(self.plan.args):
            if not spec.reads or not spec.serves(self.desc):
                continue
            one = self.shown.get(spec.name)
            if one is None:
                return False
            if not spec.required(self.desc) and one.default is not one.empty and spec.name not in _GIVEN:
                continue
            if spec.name not in self.saved and not self._draw(self.plan, spec, self.desc, arrays[spec.name]):
                return False
            self.given.append(spec.name)
        return True

    def _draw(self, plan: type[Plan], spec: Operand, desc: Any, value: Any) -> bool:
        text = _array(plan, spec, desc, value)
        if text is not None:
            self.lines.append(f"{spec.name} = {text}")
        return text is not None

    def _forward(self) -> bool:
        """The forward call that makes what a gradient needs."""
        wanted = {source: own for own, source in self.saved.items() if own in self.given}
        if not wanted or self.forward is None:
            return not wanted
        plan, fixed = self.forward.plan, self.forward.fixed  # type: ignore[attr-defined]
        desc, given = descriptor_of(plan, self.desc), []
        arrays = _filled(plan, desc)
        for spec in arrays_of(plan.args):
            if not spec.reads or (spec.optional and spec.name not in self.given):
                continue
            if spec.name not in self.given and not self._draw(plan, spec, desc, arrays[spec.name]):
                return False
            given.append(spec.name)
        outputs = [s for s in arrays_of(plan.args) if s.role == "out"]
        names = [wanted.get(s.name, s.name) for s in outputs if not s.optional or s.name in wanted]
        flags = [f"return_{s.name}=True" for s in outputs if s.optional and s.name in wanted]
        shown = inspect.signature(self.forward).parameters
        call = [*given, *_attributes(plan, fixed, desc, shown, given), *flags]
        self.lines.append(f"{', '.join(names)} = bc.{self.forward.__name__}({', '.join(call)})")
        return True

    def _arguments(self, arrays: Mapping[str, Any]) -> list[str] | None:
        arguments: list[str] = []
        for name, one in self.shown.items():
            if name in self.given:
                named = one.kind is one.KEYWORD_ONLY or len(arguments) < list(self.shown).index(name)
                arguments.append(f"{name}={name}" if named else name)
            elif one.kind is not one.VAR_KEYWORD and (one.default is one.empty or name == "seed"):
                if name in {s.name for s in scalars_of(self.plan.args)}:
                    arguments.append(f"{name}={arrays[name]!r}")
                elif hasattr(self.desc, name):
                    arguments.append(f"{name}={_literal(getattr(self.desc, name))}")
                else:
                    return None
        fixed = self.function.fixed  # type: ignore[attr-defined]
        return arguments + _attributes(self.plan, fixed, self.desc, self.shown, arguments)

    def _assigned(self, made: Any, call: str) -> str:
        """The call with names for what it makes; those of the declaration where they are as many."""
        outputs = [s for s in arrays_of(self.plan.args) if s.role == "out" and s.serves(self.desc)]
        names = [s.name for s in outputs if not s.optional or (s.needs is None or s.needs in self.given)]
        if not names:
            return call
        if not isinstance(made, tuple):
            return f"{names[0]} = {call}"
        if len(names) != len(made):
            names = [s.name for s in outputs if not s.optional]
        return f"{', '.join(names) if len(names) == len(made) else 'made'} = {call}"


def _filled(plan: type[Plan], desc: Any) -> dict[str, Any]:
    return fill(plan, desc, np.random.default_rng(7), {}, smooth=True, usual=True).arrays


def _attributes(
    plan: type[Plan], fixed: Mapping[str, Any], desc: Any, shown: Mapping[str, Any], given: list[str],
    derived: bool = False,
) -> list[str]:  # fmt: skip
    """What a call says of the problem besides its arrays; `derived`: also what other attributes give by default."""
    said = {item.partition("=")[0] for item in given}
    solved = {d.lstrip("*") for s in arrays_of(plan.args) for d in s.dims} | {s.many for s in arrays_of(plan.args)}
    found = []
    for field in dataclasses.fields(plan.descriptor):
        one, value = shown.get(field.name), getattr(desc, field.name)
        if one is None or field.name in (*fixed, *said, *solved, "element") or value is None:
            continue
        told = derived or field.default is not None or field.name in _KEPT
        if value not in (one.default, field.default) and told:
            found.append(f"{field.name}={_literal(value)}")
    return found


def _literal(value: Any) -> str:
    if isinstance(value, ElementKind):
        return repr(str(value))
    value = getattr(value, "value", value)
    if isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], int):
        value = value[0]
    return repr(round(value, 4)) if isinstance(value, float) else repr(value)


def _array(plan: type[Plan], spec: Operand, desc: Any, value: Any) -> str | None:
    """An operand as code: drawn where any numbers do, written out where the page makes them."""
    if value is None:
        return None
    if isinstance(value, list):
        parts = [_array(plan, dataclasses.replace(spec, many=None), desc, one) for one in value]
        return None if None in parts else f"[{', '.join(str(p) for p in parts)}]"
    element = ElementKind.of(value.dtype)
    made = callable(spec.values) or spec.name in _completed(plan, desc)
    if made:
        if value.size > _LITERAL:
            return None
        dtype = f"np.{np.dtype(value.dtype).name}"
        numbers = np.round(value.astype(np.float64), 3) if value.dtype.kind == "f" else value
        return f"np.array({numbers.tolist()}, dtype={dtype})"
    shape = str(value.shape if value.ndim != 1 else value.shape[0])
    if value.dtype == np.bool_:
        return f"rng.random({shape}) < 0.5"
    if element.is_complex:
        return f"(rng.standard_normal({shape}) + 1j * rng.standard_normal({shape})).astype(np.{value.dtype.name})"
    if value.dtype.kind in "iu":
        low, high = spec.values if isinstance(spec.values, tuple) else (0 if value.dtype.kind == "u" else -9, 10)
        low, high = (getattr(desc, v) if isinstance(v, str) else v for v in (low, high))
        return f"rng.integers({low}, {high}, {shape}, dtype=np.{value.dtype.name})"
    if isinstance(spec.values, tuple):
        low, high = (getattr(desc, v) if isinstance(v, str) else v for v in spec.values)
        return f"rng.uniform({low}, {high}, {shape}).astype(np.{value.dtype.name})"
    if value.dtype.name in ("float32", "float64"):
        return f"rng.standard_normal({shape}, dtype=np.{value.dtype.name})"
    return None if value.dtype.kind == "V" else f"rng.standard_normal({shape}).astype(np.{value.dtype.name})"


def _completed(plan: type[Plan], desc: Any) -> set[str]:
    """The operands that the page's `complete` makes, which must agree with others."""
    probe = fill(plan, desc, np.random.default_rng(0), {}, usual=True)
    before = dict(probe.arrays)
    plan.complete(desc, probe.arrays)
    return {name for name, value in probe.arrays.items() if value is not before[name] and value is not None}


def _forward(plan: type[Plan], name: str) -> Function | None:
    """The function whose gradient a `…_backward` is."""
    forward = next((p for p in registry.plans().values() if p.vjp and p.vjp.plan == plan.__name__), None)
    function = (
        getattr(import_module("baracuda_py"), name.removesuffix("_backward"), None)
        if name.endswith("_backward")
        else None
    )
    return function if forward is not None and getattr(function, "plan", None) is forward else None
