"""A formula as operations of torch's own, its steps by the tables' functions: what torch differentiates further."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.memo import memo
from ..ops.elementwise.binary_kinds import BinaryKind
from ..ops.elementwise.ternary_kinds import TernaryKind
from ..ops.elementwise.unary_kinds import UnaryKind
from .function import Function
from .program import Program, Step
from .shape import Shape

Call = Callable[..., Any]  # torch, then the arguments

_PLAIN: Mapping[str, Call] = {
    "clamp_min": lambda torch, x, low: torch.maximum(x, low),
    "clamp_max": lambda torch, x, high: torch.minimum(x, high),
    "logical_and": lambda torch, a, b: (a != 0) & (b != 0), "logical_or": lambda torch, a, b: (a != 0) | (b != 0),
    "logical_xor": lambda torch, a, b: (a != 0) ^ (b != 0), "logical_not": lambda torch, a: a == 0,
    "where": lambda torch, c, a, b: torch.where(c != 0, a, b),
    "clamp": lambda torch, x, low, high: torch.clamp(x, low, high),
    "lerp": lambda torch, a, b, w: torch.lerp(a, b, w), "fma": lambda torch, a, b, c: a * b + c,
    "addcmul": lambda torch, x, a, b, v: x + v * (a * b), "addcdiv": lambda torch, x, a, b, v: x + v * (a / b),
}  # fmt: skip


def in_torch(shape: Shape, torch: Any, desc: Any, **given: Any) -> Any:
    """The outputs of a formula's plan, called as `Plan.torch` is; NotImplemented where torch has not one of its
    functions, or none with a derivative."""
    if any(step.form == "call" and _function(step.value) is None for step in desc.program.steps):
        return NotImplemented
    made = _evaluated(torch, desc.program, [given[n] for n in shape.arrays], [given[n] for n in shape.scalars])
    return {n: torch.broadcast_to(y, desc.shape) for n, y in zip(shape.outputs, made, strict=True)}


def gradient_in_torch(shape: Shape, torch: Any, desc: Any, *, wanted: Any, **given: Any) -> Any:
    """The same for the plan of a formula's gradients, summed to the shapes of the operands."""
    made = in_torch(shape, torch, desc, **given)
    if made is NotImplemented:
        return made
    return {n: made[n].sum_to_size(given[x].shape) for n, x in zip(shape.outputs, shape.of, strict=True) if n in wanted}


def _evaluated(torch: Any, program: Program, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
    """The outputs, floats in the dtype that kernels compute in."""
    device = arrays[0].device
    values: list[Any] = []

    def dtype(step: Step) -> Any:
        return torch.float64 if step.uniform and step.element.is_float else getattr(torch, str(step.element.acc))

    for step in program.steps:
        args = [values[i] for i in step.args]
        if step.form == "input":
            made = arrays[step.value].to(dtype(step))
        elif step.form == "scalar":
            number = scalars[step.value]
            tensor = number if isinstance(number, torch.Tensor) else torch.tensor(number, device=device)
            made = tensor.to(torch.int64 if program.scalars[step.value] else torch.float64)
        elif step.form == "constant":
            made = torch.tensor(step.value, dtype=dtype(step), device=device)
        elif step.form == "cast":
            made = args[0].to(getattr(torch, str(step.element))).to(dtype(step))
        elif step.form == "convert":
            made = args[0] != 0 if str(step.element) == "bool" else args[0].to(dtype(step))
        else:
            function = _function(step.value)
            assert function is not None
            made = function(torch, *args)
            made = made if made.dtype == torch.bool else made.to(dtype(step))
        values.append(made)
    return [values[index] for index, _ in program.outputs]


@memo()
def _function(function: Function) -> Call | None:
    """A function of formulas in torch, or None."""
    name = function.name
    if name in _PLAIN:
        return _PLAIN[name]
    for table in (UnaryKind, BinaryKind):
        for kind in table:
            if kind.value == name and kind.row.torch is not None:
                row: Any = kind.row
                return None if getattr(row.torch, "once", False) else row.in_torch
    if name in {kind.value for kind in TernaryKind}:
        return None
    return lambda torch, *args: getattr(torch, name)(*args)
