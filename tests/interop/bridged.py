"""Drawn problems as calls of `baracuda_py.torch`: tensors, attributes and the outputs asked for."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from baracuda_py.core import ElementKind
from baracuda_py.core.args import arrays_of, scalars_of
from baracuda_py.core.plan import Plan
from baracuda_py.testing.draw import SeededDraw, fill
from baracuda_py.torch.operation import Operation, operation
from baracuda_py.torch.schema import OpCall
from baracuda_py.torch.vjp import gradient_of

SMALL, DRAWS = 6000, 60  # elements of all operands of a problem, draws to find one


def served(plan: type[Plan], kind: Any) -> set[ElementKind]:
    return {e for v in plan.variants if v.kinds is None or kind in v.kinds for e in v.elements_for(kind)}


def tensor(value: Any) -> Any:
    if isinstance(value, list):
        return [tensor(one) for one in value]
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.array(value, order="C")
    kind = ElementKind.of(array.dtype)
    if kind.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    carried = array.view(np.int16 if kind.itemsize == 2 else np.uint8)
    return torch.from_numpy(carried).view(getattr(torch, str(kind)))


def flat(values: Any) -> list[Any]:
    """All tensors in outputs or operands."""
    items = values if isinstance(values, (list, tuple)) else [values]
    return [t for one in items for t in (one if isinstance(one, (list, tuple)) else [one]) if t is not None]


def inexact(value: Any) -> bool:
    return bool(flat(value)) and all(t.is_floating_point() or t.is_complex() for t in flat(value))


def wide(value: Any) -> bool:
    """Whether differences in the dtype approximate a derivative."""
    return all(t.dtype in (torch.float64, torch.complex128) for t in flat(value))


@dataclasses.dataclass
class Problem:
    """A call of a plan's function: `names` are the float operands that may require a gradient."""

    op: Operation
    desc: Any
    call: OpCall

    @property
    def names(self) -> list[str]:
        link, found = self.op.plan.vjp, gradient_of(self.op, self.desc)
        grads = found.grads if found else link.grads if link else ()
        return [n for n in grads if inexact(held := self.call.arrays.get(n)) and wide(held)]

    @property
    def narrow(self) -> bool:
        """Whether all float operands with a gradient are held in too few bits for differences, whatever the element."""
        link = self.op.plan.vjp
        held = [t for n in (link.grads if link else ()) if inexact(t := self.call.arrays.get(n))]
        return bool(held) and not any(map(wide, held))

    @property
    def wanted(self) -> list[str]:
        return [s.name for s in self.op.outputs if s.name in self.call.wanted]

    def __call__(self, *leaves: Any) -> tuple[Any, ...]:
        """The outputs through the functional layer; `leaves` replace the operands `names`."""
        arrays, items = dict(self.call.arrays), iter(leaves)
        for name in self.names if leaves else ():
            held = arrays[name]
            arrays[name] = [next(items) for _ in held] if isinstance(held, list) else next(items)
        flags = {f"return_{s.name}": s.name in self.call.wanted for s in self.op.outputs if s.optional}
        made = self.op.function(**arrays, **self.call.attributes, **self.call.scalars, **flags)
        return made if isinstance(made, tuple) else (made,)

    def leaves(self) -> list[Any]:
        """Copies of the operands `names` that require a gradient."""
        return [t.clone().requires_grad_() for n in self.names for t in flat(self.call.arrays[n])]

    def tangents(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves, changes of which are those that gradients are for (`Spec.tangent`)."""
        names = [n for n in self.names for _ in flat(self.call.arrays[n])]
        return [self.op.plan.tangent(self.desc, n, x) for n, x in zip(names, leaves, strict=True)]

    def tame(self) -> bool:
        """Whether all results are finite and of ordinary size, so that differences say something."""
        with torch.no_grad():
            made = [t.to(torch.complex128) for t in flat(self()) if t.is_floating_point() or t.is_complex()]
        return all(not t.numel() or float(t.abs().nan_to_num(1e9, 1e9).max()) < 1e3 for t in made)


def problems(plan: type[Plan], kind: Any, element: ElementKind) -> Iterator[Problem]:
    """Small problems with something in them, in an order that the names fix."""
    for seed in range(DRAWS):
        draw = SeededDraw(zlib.crc32(f"{plan.op} {kind} {element}".encode()) + seed, element, kind)
        desc = getattr(plan, "gradient_case", plan.case)(draw)
        present = {s.name: draw.integer(0, 3) > 0 for s in arrays_of(plan.args) if s.optional}
        case = fill(plan, desc, draw.seed(), present, smooth=True, kind=kind)
        sizes = [np.size(a) for v in case.arrays.values() if v is not None for a in (v if isinstance(v, list) else [v])]
        if sum(sizes) > SMALL or not all(sizes) or plan.check_values(desc, case.arrays) is not None:
            continue
        op = operation(plan)
        arrays = {s.name: tensor(case.arrays.get(s.name)) for s in op.inputs}
        scalars = {s.name: case.arrays[s.name] for s in scalars_of(plan.args)}
        given = {f.name: v for f in dataclasses.fields(desc) if (v := getattr(desc, f.name)) is not None}
        wanted = frozenset(case.wanted) | {s.name for s in op.outputs if not s.optional}
        yield Problem(op, desc, OpCall(arrays, scalars, given, wanted))


def through(problem: Problem) -> set[str]:
    """The outputs that gradients come through, none where the page says of no gradient."""
    found = gradient_of(problem.op, problem.desc)
    return set() if found is None else set(found.through)
