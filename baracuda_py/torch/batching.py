"""vmap: a call with one more axis where the op's descriptor can hold it, else one call after the other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..core import batching
from ..core.args import arrays_of
from ..core.element import ElementKind
from ..core.errors import BaracudaError
from ..core.memo import PLANS_KEPT, memo
from ..core.plan import Plan
from ..core.solving import solve
from .operation import Operation
from .schema import OpCall
from .untyped import torch
from .vjp import attributes_of, laid

Wider = tuple[Any, batching.Shapes, Any]
"""The descriptor of all items, the shapes of its operands and outputs, and the attributes that it is solved from."""


def wider(op: Operation, desc: Any, call: OpCall, mapped: Collection[str], size: int) -> Wider | None:
    """The problem of all items of a call, of which one is given, at once; None where there is no such problem."""
    specs = arrays_of(op.plan.args)
    shapes = {n: tuple(value.shape) for n, value in call.arrays.items() if isinstance(value, torch.Tensor)}
    held = [s for s in specs if s.name in shapes or (s.role == "out" and s.name in call.wanted)]
    if (
        size == 0
        or any(s.many for s in held)
        or any(s.role == "inout" for s in specs)
        or not set(mapped) <= shapes.keys()
    ):
        return None
    for spec in held:
        if spec.name not in shapes:
            shapes[spec.name] = shapes[spec.like] if spec.like in shapes else spec.shape(desc)
    elements = {n: ElementKind.of(call.arrays[n].dtype) for n in shapes if n in call.arrays}
    return _wider(op, desc, tuple(shapes.items()), tuple(elements.items()), frozenset(mapped), size)


@memo(maxsize=PLANS_KEPT)
def _wider(
    op: Operation, desc: Any, shapes: tuple[Any, ...], elements: tuple[Any, ...], mapped: frozenset[str], size: int
) -> Wider | None:
    held = [(spec, dict(shapes)[spec.name]) for spec in arrays_of(op.plan.args) if spec.name in dict(shapes)]
    kinds = dict(elements)

    def check(one: Any, given: batching.Shapes) -> bool:
        try:
            return bool(solve(op.plan, {n: given[n] for n in kinds}, kinds, attributes_of(op, one)) == one)
        except BaracudaError:
            return False

    found = batching.batched(op.plan, desc, held, mapped, size, check)
    return None if found is None else (*found, attributes_of(op, found[0]))


def arranged(tensor: Any, at: int | None, new: tuple[int, ...], size: int, layout: str) -> Any:
    """An operand, mapped along axis `at`, as the wider problem takes it: as it is, or repeated for every item."""
    if at is None:
        if tuple(tensor.shape) == new:
            return tensor
        held = tensor.expand(size, *tensor.shape)
    else:
        held = tensor.movedim(at, 0)
    if math.prod(new) != held.numel():  # a batch of its own that was broadcast
        one = held.shape[1:]
        held = held.reshape(size, *(1,) * (len(new) - len(one)), *one).expand(size, new[0] // size, *new[1:])
    held = held.reshape(new)
    return held if layout == "any" else laid(held, layout)


def source_of(plan: type[Plan], desc: Any) -> tuple[type[Plan], Any] | None:
    """The op that a backward op is the gradient of, with the descriptor that another one of the backward op tells."""
    fields = {f.name for f in dataclasses.fields(plan.descriptor)} & {f.name for f in dataclasses.fields(desc)}
    try:
        return plan, plan.descriptor(**{name: getattr(desc, name) for name in fields})
    except BaracudaError:
        return None


def mapped(call: Callable[..., Sequence[Any]], info: Any, dims: Sequence[int | None], tensors: Sequence[Any]) -> Any:
    """What `call` makes of every item of the tensors, along the axis of each that is mapped; along axis 0."""
    held = [t if not at else t.movedim(at, 0).contiguous() for t, at in zip(tensors, dims, strict=True)]
    if not info.batch_size:
        one = [t if at is None else t.new_zeros(t.shape[1:]) for t, at in zip(held, dims, strict=True)]
        return tuple([made.new_empty((0, *made.shape)) for made in call(*one)])
    items = [[t if at is None else t[i] for t, at in zip(held, dims, strict=True)] for i in range(info.batch_size)]
    return tuple(map(torch.stack, zip(*[call(*item) for item in items], strict=True)))
