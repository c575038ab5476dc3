"""The gradient of a call as the `Vjp` of its page links it: what is kept, and the call of the backward op."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from ..core.errors import BaracudaError, UnsupportedError
from ..core.memo import PLANS_KEPT, cached_property, memo
from ..core.plan import Plan
from ..core.solving import solve
from .operation import Operation, element_dtype, operation, plan_named
from .schema import OpCall
from .stand_ins import described
from .untyped import torch


@dataclasses.dataclass(frozen=True)
class Read:
    """An operand of a backward op: what it is in the forward, and how it must lie in memory."""

    name: str
    cotangent: str | None  # the output whose cotangent it is
    output: str | None  # the output that it is
    input: bool  # whether it is the input of its own name, where there is no output
    required: bool
    layout: str
    spared: Callable[[Collection[str]], bool] | None = None  # whether it is not needed, where these operands are given

    def saves(self, call: OpCall) -> bool:
        """Whether the forward's output is kept for it."""
        given = {n for n, value in call.arrays.items() if value is not None}
        return self.output is not None and not (self.spared and self.spared(given))


@dataclasses.dataclass
class Gradient:
    """How gradients of one descriptor are made.

    backward: the op that makes them, or None where the derivative is 0 wherever there is one. reads: its operands.
    attributes: what it is given besides. grads: the forward's inputs, each with the output that is its gradient.
    shapes: of the forward's outputs, where the sizes are symbols of a trace.
    """

    forward: Operation
    desc: Any
    backward: Operation | None
    grads: Mapping[str, str]
    reads: tuple[Read, ...] = ()
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    shapes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    _runs: dict[Any, Callable[..., dict[str, Any]]] = dataclasses.field(default_factory=dict)

    @cached_property
    def through(self) -> frozenset[str]:
        """The forward's outputs that gradients come through."""
        if self.backward is None:
            return frozenset(s.name for s in self.forward.outputs)
        return frozenset(read.cotangent for read in self.reads if read.cotangent)

    @cached_property
    def own_inputs(self) -> tuple[str, ...]:
        """The backward op's operands that are the forward's inputs themselves."""
        return tuple(read.name for read in self.reads if read.input and not read.output and not read.cotangent)

    def kept_outputs(self, call: OpCall) -> tuple[str, ...]:
        """The forward's outputs that the backward op reads, as far as the call has what they need."""
        needs = {s.name: s.needs or "" for s in self.forward.outputs}
        names = [read.output for read in self.reads if read.output and read.saves(call)]
        return tuple(n for n in names if not needs[n] or call.arrays.get(needs[n]) is not None)

    def kept_inputs(self, call: OpCall) -> tuple[str, ...]:
        """The forward's inputs that it reads, or whose shapes its outputs have."""
        outputs = self.kept_outputs(call)
        names = [read.name for read in self.reads if read.input and read.output not in outputs]
        names += [s.like for s in self.backward.outputs if s.like] if self.backward else []
        return tuple(n for n in dict.fromkeys(names) if call.arrays.get(n) is not None)

    def operands(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], cotangents: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The backward op's arrays, from what was kept and the cotangents that arrived."""
        arrays: dict[str, Any] = {}
        for read in self.reads:
            if read.cotangent:
                value = cotangents.get(read.cotangent)
                if value is None and read.required:
                    value = self._zeros(read.cotangent, cotangents)
                elif value is not None and (value.is_conj() or value.is_neg()):
                    value = value.resolve_conj().resolve_neg()
            else:
                value = outputs.get(read.output) if read.output else None
                if value is None and read.input:
                    value = inputs.get(read.name)
                if value is None and read.required:
                    raise UnsupportedError(
                        f"{self.forward.name}: its gradient needs {read.output}; call with return_{read.output}=True"
                    )
            arrays[read.name] = value if value is None or read.layout == "any" else laid(value, read.layout)
        return arrays

    def results(self, wanted: Iterable[str], arrays: Mapping[str, Any]) -> frozenset[str]:
        """The outputs of the backward op for the gradients of the inputs `wanted`, as far as `arrays` allow them."""
        assert self.backward is not None
        asked = {self.grads[n] for n in wanted}
        return frozenset(
            s.name
            for s in self.backward.outputs
            if not s.optional or (s.name in asked and (s.needs is None or arrays.get(s.needs) is not None))
        )

    def flipped(self, arrays: Mapping[str, Any]) -> tuple[str, ...]:
        """The results that are gradients of matrices that lie transposed in memory, and that are written so.

        torch would turn those of leaves. `arrays` are the backward op's.
        """
        held = {n: arrays.get(n) for n in self.own_inputs if n in self.grads}
        return tuple(self.grads[n] for n, value in held.items() if lies_transposed(value))

    def run(self, results: frozenset[str], preference: Any) -> Callable[..., dict[str, Any]]:
        """The backward op on memory, for the outputs `results`."""
        assert self.backward is not None
        key = results, preference
        if key not in self._runs:
            self._runs[key] = self.backward.prepared(self.attributes, results, preference)
        return self._runs[key]

    def _zeros(self, name: str, cotangents: Mapping[str, Any]) -> Any:
        """The cotangent of an output that none arrived at, where others did."""
        arrived = next(one for one in cotangents.values() if one is not None)
        spec = next(s for s in self.forward.outputs if s.name == name)
        dtype = element_dtype(spec.elements(self.desc)[0])
        return torch.zeros(self.shapes.get(name) or spec.shape(self.desc), dtype=dtype, device=arrived.device)


def lies_transposed(value: Any) -> bool:
    """Whether a tensor, of matrices, has their columns in its rows' place in memory."""
    if value is None or isinstance(value, list) or value.is_contiguous():
        return False
    return value.dim() > 1 and bool(value.transpose(-1, -2).is_contiguous())


def laid(value: Any, layout: str) -> Any:
    """A kept tensor or cotangent as the backward op takes it: autograd hands over views of any strides."""
    inner = layout == "inner" and (not value.dim() or value.stride(-1) == 1 or value.shape[-1] <= 1)
    return value if inner else value.contiguous()


def shared_fields(desc: Any, plan: type[Plan]) -> dict[str, Any]:
    """The attributes of a descriptor that another plan's descriptor has by the same names."""
    names = [f.name for f in dataclasses.fields(plan.descriptor) if hasattr(desc, f.name)]
    return {n: value for n in names if (value := getattr(desc, n)) is not None}


@memo(maxsize=PLANS_KEPT)
def _backward(plan: type[Plan]) -> type[Plan] | None:
    return None if plan.vjp is None else plan_named(plan.vjp.plan)


def gradient_of(forward: Operation, desc: Any) -> Gradient | None:
    """The gradient of a descriptor, or None where its page says none."""
    plan, kind = forward.plan, getattr(desc, "kind", None)
    link, backward = plan.vjp, _backward(plan)
    if link is None or backward is None or not link.serves(kind):
        return None
    try:
        twin = backward.descriptor(**shared_fields(desc, backward))
    except BaracudaError:
        if backward.kinds is None or _value(kind) in {_value(one) for one in backward.kinds}:
            return None  # for its element, say
        return Gradient(forward, desc, None, dict(link.grads))
    cotangents = {f"d{n}": n for n in link.cotangents(plan, backward)}
    own = {s.name for s in forward.inputs}
    renamed = {link.saves.get(s.name, s.name): s.name for s in forward.outputs}
    op, reads = operation(backward), []
    for spec in op.inputs:
        name, given = spec.name, spec.serves(twin)
        output = renamed.get(name) if name in link.saves.values() or name not in own else None
        cotangent = cotangents.get(name)
        if given:
            required = spec.required(twin)
            spared = None if spec.spared is None else partial(spec.spared, twin)
            kept = None if cotangent else output
            reads.append(Read(name, cotangent, kept, name in own, required, spec.layout, spared))
    return Gradient(forward, desc, op, link.served(backward, twin), tuple(reads), attributes_of(op, twin))


def open_gradient(forward: Operation, call: OpCall) -> Gradient | None:
    """`gradient_of` a call in a trace, whose sizes may be symbols."""

    def attributes(desc: Any) -> Mapping[str, Any]:
        one = gradient_of(forward, desc)
        return {} if one is None else dict(one.attributes)

    known = described(forward, call, attributes)
    found = gradient_of(forward, known.desc)
    if found is None or found.backward is None:
        return found
    shapes = {s.name: known.sizes(s.shape) for s in forward.outputs if s.name in known.call.wanted and not s.many}
    return dataclasses.replace(found, attributes=known.sizes(attributes), shapes=shapes, _runs={})


def attributes_of(op: Operation, desc: Any) -> dict[str, Any]:
    """What the functional layer needs to solve for a descriptor again: little, as each costs time in every call."""
    every = shared_fields(desc, op.plan)
    needed = [s for s in op.inputs if s.required(desc) and not s.many]
    bound = {d.lstrip("*") for s in needed if not s.broadcast for d in s.dims}
    defaults = {f.name: f.default for f in dataclasses.fields(desc)}
    few = {n: v for n, v in every.items() if n not in bound and n != "element" and v != defaults[n]}
    shapes, elements = {s.name: s.shape(desc) for s in needed}, {s.name: s.elements(desc)[0] for s in needed}
    try:
        return few if solve(op.plan, shapes, elements, few) == desc else every
    except BaracudaError:
        return every


def _value(kind: Any) -> Any:
    """Kinds of a forward and a backward table are the same where their values are."""
    return getattr(kind, "value", kind)


def no_gradient(name: str, operand: str) -> UnsupportedError:
    """The error of a call whose operand requires a gradient that does not exist."""
    return UnsupportedError(
        f"{operand}: it requires grad, and {name} has no gradient for it; give its .detach(), or call under "
        "torch.no_grad()"
    )


def once_only(name: str) -> UnsupportedError:
    """The error of a second derivative that there is none of."""
    return UnsupportedError(
        f"{name} has no gradient itself here: what it is the gradient of can be differentiated once, not twice; "
        "make the gradient without create_graph, or the value of torch's own operations"
    )


class Once(torch.autograd.Function):  # type: ignore[misc]
    """Hands a value on that belongs to a gradient, and refuses to be differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, value: Any, *tensors: Any) -> Any:
        """A view of the value; `tensors` are what it depends on."""
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the name."""
        ctx.name, ctx.count = inputs[0], len(inputs)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Raises where there is a cotangent."""
        if any(one is not None for one in cotangents):
            raise once_only(ctx.name)
        return (None,) * ctx.count
