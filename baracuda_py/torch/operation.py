"""One torch.library op for each plan, in namespace `baracuda`, defined when it is first needed.

On CPU and CUDA it calls the functional layer. `recording` tells torch of its gradient and of what stands for its
results in a trace (`stand_ins`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .. import _exports
from .._forking import Mutex
from ..calls.functional import FOLLOWS, entry_of, functional
from ..core import registry
from ..core.args import Operand, arrays_of
from ..core.arrays import read
from ..core.element import ElementKind
from ..core.memo import memo
from ..core.plan import PLANS, Plan
from ..core.solving import solve
from .schema import OpCall, Schema
from .untyped import torch

NAMESPACE = "baracuda"
LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
LOCK = Mutex(whole=True)  # of what defines ops: torch would know half of one in a forked child


def plan_named(plan: Any) -> type[Plan]:
    """The plan that a `Vjp` names, importing its page alone."""
    if isinstance(plan, type):
        return plan
    if plan not in PLANS and plan in _exports.EXPORTS:
        importlib.import_module(f"baracuda_py.{_exports.EXPORTS[plan]}")
    return PLANS.get(plan) or registry.plan(plan)


class Operation:
    """A plan as a torch op: `call` dispatches, `run` computes.

    torch keeps an op for good, and of a formula's it keeps what makes the plan (`again`): the rest may be forgotten,
    and is made again where a graph that torch holds calls the op.
    """

    def __init__(self, plan: type[Plan]) -> None:
        self.plan = plan
        self.schema = Schema(plan)
        self.name, recipe = name_of(plan, self.schema), recipe_of(plan)
        self.function = functional(plan, self.name, follows=FOLLOWS.get(plan, ""))
        self.inputs, self.outputs = self.schema.inputs, self.schema.outputs
        self.again: Callable[[], Operation] = partial(_again, recipe)
        if self.name not in _defined:
            again = self.again
            LIBRARY.define(self.schema.text(self.name))
            for key in ("CPU", "CUDA"):
                LIBRARY.impl(self.name, lambda *args, **given: again()._kernel(*args, **given), key)
            _defined[self.name] = recipe
        self.op = getattr(getattr(torch.ops, NAMESPACE), self.name).default

    # -- a call, by dispatch or at once ------------------------------------------------------------------------------

    def call(self, call: OpCall) -> dict[str, Any]:
        """Through torch's dispatcher: outputs wanted, by name."""
        args, given = self.schema.encode(call)
        try:
            made = self.op(*args, **given)
        except RuntimeError:
            self.descriptor(call)  # refuses in our words what the dispatcher refuses in its own
            raise
        values = (made,) if len(self.outputs) == 1 else made or ()
        return {s.name: v for s, v in zip(self.outputs, values, strict=True) if s.name in call.wanted}

    def run(self, call: OpCall, out: Any = None, stream: Any = None) -> dict[str, Any]:
        """On memory, without torch's dispatcher; nothing is recorded."""
        if call.swapped:
            out = {**swapped_outputs(self, call, self.descriptor(call)), **(out or {})}
        run = self.prepared(call.attributes, call.wanted, call.preference)
        return run(call.arrays, call.scalars, out=out, stream=stream)

    def prepared(
        self, attributes: Mapping[str, Any], wanted: frozenset[str], preference: Any
    ) -> Callable[..., dict[str, Any]]:
        """`run` for many calls: a function of arrays and scalars, by name, which returns outputs by name."""
        flags = {f"return_{s.local}": s.name in wanted for s in self.outputs if s.optional}
        given = {**attributes, **flags, "preference": preference}
        names, function = [s.name for s in self.outputs if s.name in wanted], self.function
        place = entry_of(function).local

        def run(arrays: Mapping[str, Any], scalars: Mapping[str, Any], **options: Any) -> dict[str, Any]:
            operands = {place[name]: value for name, value in (*arrays.items(), *scalars.items())}
            with torch._C._DisableAutocast():  # which cast the operands, if at all, before the op was called
                made = function(**operands, **given, **options)
            return dict(zip(names, made if len(names) > 1 else (made,), strict=False))

        return run

    def descriptor(self, call: OpCall, number: Callable[[Any], int] = int) -> Any:
        """The descriptor that the call's shapes solve for; `number` makes one of a size that is a trace's symbol."""
        shapes: dict[str, Any] = {}
        elements: dict[str, ElementKind] = {}
        for spec in self.inputs:
            value = call.arrays.get(spec.name)
            if value is None:
                continue
            found = [read(one, spec.name) for one in (value if spec.many else (value,))]
            sizes = [tuple([number(n) for n in one.shape]) if one.traced else one.shape for one in found]
            shapes[spec.name] = sizes if spec.many else sizes[0]
            if found:
                elements[spec.name] = found[0].element
        given = {n: _numbers(value, number) for n, value in call.attributes.items()}
        return solve(self.plan, shapes, elements, given)

    # -- what torch calls ---------------------------------------------------------------------------------------------

    def _kernel(self, *args: Any, **given: Any) -> Any:
        call = self.schema.decode(args, given)
        with torch.no_grad():
            return self.listed(call, self.run(call))

    def listed(self, call: OpCall, made: Mapping[str, Any]) -> Any:
        """All outputs in order, those not wanted without elements."""
        lead = next((v for v in map(call.arrays.get, (s.name for s in self.inputs)) if v is not None), None)
        lead = lead[0] if isinstance(lead, (list, tuple)) else lead
        values = []
        for spec in self.outputs:
            absent: Any = [] if spec.many else None
            value = made.get(spec.name, absent)
            values.append(torch.empty(0, device=lead.device) if value is None else value)  # type: ignore[union-attr]
        return None if not values else values[0] if len(values) == 1 else tuple(values)


def element_dtype(kind: ElementKind) -> Any:
    """The dtype of torch that holds an element; its own 4-bit dtypes are not packed as ours are."""
    own = kind.bits >= 8 and hasattr(torch, str(kind))
    return getattr(torch, str(kind) if own else str(kind.carrier))


def _numbers(value: Any, number: Callable[[Any], int]) -> Any:
    """An attribute with numbers for symbols."""
    if isinstance(value, (list, tuple)):
        return type(value)([_numbers(one, number) for one in value])
    return number(value) if isinstance(value, torch.SymInt) else value


def shapes_of(spec: Operand, desc: Any) -> list[tuple[int, ...]]:
    """The shapes of an output, one or those of a list."""
    return [spec.shape(desc, i) for i in range(len(getattr(desc, spec.many)))] if spec.many else [spec.shape(desc)]


def empty(shape: Sequence[Any], dtype: Any, device: Any, swapped: bool, last: bool) -> Any:
    """An output without values; swapped: its axes 1 and 2 are exchanged in memory; last: its axis 1 moves fastest."""
    if swapped:
        a, b, c, *rest = shape
        return torch.empty((a, c, b, *rest), dtype=dtype, device=device).transpose(1, 2)
    facts: dict[str, Any] = {}
    if last:
        facts["memory_format"] = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return torch.empty(shape, dtype=dtype, device=device, **facts)


def lead_of(op: Operation, call: OpCall) -> Any:
    """The first tensor of a call, where the results are made."""
    first = next(v for v in (call.arrays.get(s.name) for s in arrays_of(op.plan.args)) if v is not None)
    return first[0] if isinstance(first, (list, tuple)) else first


def swapped_outputs(op: Operation, call: OpCall, desc: Any) -> dict[str, Any]:
    """The outputs whose axes 1 and 2 are exchanged in memory."""
    device = lead_of(op, call).device
    named = [s for s in op.outputs if s.name in call.swapped]
    return {s.name: empty(s.shape(desc), element_dtype(s.elements(desc)[0]), device, True, False) for s in named}


def name_of(plan: type[Plan], schema: Schema) -> str:
    """The name of a plan's torch op; a formula's is that of its trees, of its operands' names and of the schema.

    It is no other formula's: where a name is known, what it was made for is compared.
    """
    name = plan.op.partition(".")[2]
    if not plan.made:
        return name
    names = [[f.name for f in dataclasses.fields(cls)] for cls in (plan.args, plan.descriptor)]
    said = hashlib.blake2b(f"{schema.text('')} {names}".encode(), digest_size=16).hexdigest()
    name, recipe = f"{name}_{said}", recipe_of(plan)
    while _defined.get(name, recipe) != recipe:
        name += "_"
    return name


def recipe_of(plan: type[Plan]) -> Any:
    """What a plan is found by: itself, or of a formula's what makes it again."""
    return plan.__recipe__ if plan.made else plan  # type: ignore[attr-defined]


_defined: dict[str, Any] = {}
"""The ops that torch knows, and the recipe of each."""
REGISTERED: set[str] = set()
"""Those of which it knows the gradient, and what stands for their results."""


def _again(recipe: Any) -> Operation:
    if isinstance(recipe, tuple):
        make, args = recipe
        return operation(make(*args))
    return operation(recipe)


@memo(maxsize=2048)
def _made(plan: type[Plan]) -> Operation:
    return Operation(plan)


def operation(plan: type[Plan]) -> Operation:
    """The torch op of a plan, defined when it is first asked for."""
    with LOCK():
        return _made(plan)
