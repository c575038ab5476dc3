"""`explain`: the dispatch table of an op for a problem, given by its fields or by the arrays of a call."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import re
import shlex
from typing import Any

from ..core.args import arrays_of, scalars_of
from ..core.device import fake_device, resolve_device
from ..core.element import ElementKind
from ..core.errors import BaracudaError
from ..core.plan import Plan
from ..core.solving import solve
from ..core.tensor import TensorRef, addressable, dense_strides
from ..testing.draw import SeededDraw
from .names import plan_of

SAYS = "the dispatch table of an op for a problem, with each row's verdict"
_ARRAY = re.compile(r"(?P<element>[A-Za-z]\w*)\[(?P<shape>[\d, ]*)\](?:@(?P<strides>[-\d, ]*))?(?:\+(?P<offset>\d+))?")


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("op", help="a plan or op name, such as RMSNormPlan or rms_norm")
    parser.add_argument(
        "fields", nargs="*", metavar="name=value",
        help="descriptor fields (batch_shape=8,128), or the operands of a call: x=bfloat16[8,4096], with strides in "
        "elements x=bfloat16[8,4096]@8192,1, off its alignment by bytes x=bfloat16[8,4096]+2",
    )  # fmt: skip
    parser.add_argument("--device", help="cpu, cuda:N, or a compute capability such as 8.6 (no GPU needed)")


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    plan = plan_of(options.op)
    if not options.fields and (needed := _needed(plan)):
        print(_of_nothing(plan, needed))
        return 0
    device = device_of(options.device)
    fields, arrays = {}, {}
    names = {spec.name for spec in arrays_of(plan.args)}
    for item in options.fields:
        name, equals, text = item.partition("=")
        if not equals:
            raise BaracudaError(f"{item!r} is not field=value; {plan.descriptor.__name__} has {_fields(plan)}")
        if name in names and _ARRAY.fullmatch(text):
            arrays[name] = text
        else:
            fields[name] = value_of(text)
    print(_of_arrays(plan, arrays, fields, device) if arrays else _of_fields(plan, fields, device))
    return 0


def device_of(text: str | None) -> Any:
    """A device by name, or one that is not there by its compute capability."""
    fake = text is not None and re.fullmatch(r"[0-9]{1,2}\.[0-9]", text)
    return fake_device(float(str(text))) if fake else text


def value_of(text: str) -> Any:
    """A Python literal, or the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def descriptor(plan: type[Plan], fields: dict[str, Any]) -> Any:
    """The descriptor of fields given by name."""
    try:
        return plan.descriptor(**fields)
    except TypeError as error:
        missing = [name for name in _needed(plan) if name not in fields]
        known = all(name in {f.name for f in dataclasses.fields(plan.descriptor)} for name in fields)
        said = f"{plan.op} also needs {', '.join(missing)}" if missing and known else error
        raise BaracudaError(f"{said}; the fields are {_fields(plan)}. For example: {example(plan)}") from None


def _of_fields(plan: type[Plan], fields: dict[str, Any], device: Any) -> str:
    return plan.select(descriptor(plan, fields), device=device).explain()


def _fields(plan: Any) -> str:
    return ", ".join(f.name for f in dataclasses.fields(plan.descriptor))


def _needed(plan: Any) -> list[str]:
    """The fields without which there is no problem."""
    missing = dataclasses.MISSING
    fields = dataclasses.fields(plan.descriptor)
    return [f.name for f in fields if f.default is missing and f.default_factory is missing]


def example(plan: Any) -> str:
    """A command that explains a problem of the plan: one that is measured, else one that tests draw."""
    if plan.benchmarks:
        fields = plan.benchmarks[0].fields
    else:
        kind = next(iter(plan.kinds or (None,)))
        served = next(v for v in plan.table() if v.kinds is None or kind in v.kinds).elements_for(kind)
        desc = plan.case(SeededDraw(0, served[0], kind))
        defaults = {f.name: f.default for f in dataclasses.fields(desc)}
        fields = {name: getattr(desc, name) for name in defaults if getattr(desc, name) != defaults[name]}
    words = [f"{name}={_text(value)}" for name, value in fields.items()]
    return f"python -m baracuda_py explain {plan.op.partition('.')[2]} {' '.join(map(shlex.quote, words))}"


def _text(value: Any) -> str:
    """A field's value as `value_of` reads it."""
    if isinstance(value, (tuple, list)):
        if len(value) > 2 and isinstance(value[0], (tuple, list)) and len(set(value)) == 1:
            value = value[:2]  # tensors of a step, all alike
        inner = ",".join(map(str, value))
        plain = len(value) > 1 and all(type(one) is int for one in value)
        return inner if plain else f"({inner},)" if value else "()"
    return str(getattr(value, "value", value))


def _of_nothing(plan: Any, needed: list[str]) -> str:
    """What may be asked: the fields, an example, and the rows."""
    told = {f.name: f.default for f in dataclasses.fields(plan.descriptor) if f.name not in needed}
    more = ", ".join(f"{name}={value}" for name, value in told.items() if value is not dataclasses.MISSING)
    lines = [
        f"{plan.op}: a problem has {', '.join(needed)}" + (f"; as they are if not given: {more}" if more else ""),
        f"for example: {example(plan)}",
        "with --device, such as 9.0 or cpu, of another device. The rows, of which the first that takes a call runs it:",
    ]
    for row in plan.table():
        elements = dict.fromkeys(str(e) for kind in plan.kinds or (None,) for e in row.elements_for(kind))
        lines.append(f"  {row.name:<20} {row.design.value:<6} {row.backend.value:<8} {' '.join(elements)}")
    return "\n".join(lines)


def _of_arrays(plan: type[Plan], texts: dict[str, str], fields: dict[str, Any], device: Any) -> str:
    """The table for a call's own layouts: outputs that are not given are dense."""
    at, place = resolve_device(device), 1 << 40
    scalars = {spec.name for spec in scalars_of(plan.args)}
    numbers = {name: fields.pop(name) for name in [*fields] if name in scalars}
    given: dict[str, Any] = {}
    for name, text in texts.items():
        given[name], place = _array(text, at.ordinal if at.kind == "cuda" else -1, place)
    reads = {spec.name for spec in arrays_of(plan.args) if spec.reads} & set(given)
    shapes = {name: given[name].shape for name in reads}
    elements = {name: given[name].element for name in reads}
    _complete(plan, [s.name for s in arrays_of(plan.args) if s.reads and not s.optional], given)
    desc = solve(plan, shapes, elements, fields)
    for spec in arrays_of(plan.args):
        if spec.name not in given and spec.role == "out" and spec.required(desc):
            text = f"{spec.elements(desc)[0]}[{','.join(map(str, spec.shape(desc)))}]"
            given[spec.name], place = _array(text, at.ordinal if at.kind == "cuda" else -1, place)
    _complete(plan, [s.name for s in arrays_of(plan.args) if s.reads and s.required(desc)], given)
    defaults = {f.name: f.default for f in dataclasses.fields(plan.args)}
    unset = {s: 1 for s in scalars if defaults[s] in (dataclasses.MISSING, None) and s not in numbers}
    return plan.select(desc, device=device).explain(plan.args(**given, **numbers, **unset))


def _complete(plan: type[Plan], names: list[str], given: dict[str, Any]) -> None:
    if missing := [name for name in names if name not in given]:
        raise BaracudaError(f"{plan.op} also needs {', '.join(f'{name}=' for name in missing)}")


def _array(text: str, ordinal: int, place: int) -> tuple[TensorRef, int]:
    """An operand without memory at an address of its own, and where the next one may lie."""
    parts = _ARRAY.fullmatch(text)
    assert parts is not None
    element = ElementKind.of(parts["element"])
    shape = tuple(int(n) for n in parts["shape"].split(",") if n.strip())
    said = parts["strides"]
    strides = dense_strides(shape) if said is None else tuple(int(n) for n in said.split(",") if n.strip())
    if len(strides) != len(shape):
        raise BaracudaError(f"{text}: {len(shape)} extents but {len(strides)} strides")
    low, high = addressable(0, shape, strides, element.itemsize)
    start = place - low // 256 * 256  # aligned, and its first byte no lower than `place`
    offset = int(parts["offset"] or 0)
    return TensorRef(start + offset, shape, strides, element, device=ordinal), -(-(start + offset + high) // 256) * 256
