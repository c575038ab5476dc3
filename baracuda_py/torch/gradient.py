"""The gradient of a call as the `Vjp` of its page links it: what is kept, and the call of the backward op."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..core.args import arrays_of, scalars_of
from ..core.element import ElementKind
from ..core.errors import BaracudaError, UnsupportedError
from ..core.memo import memo
from ..core.plan import Plan
from ..core.tensor import View
from .operation import Operation, element_dtype, operation, plan_named
from .schema import Call
from .untyped import torch


@dataclasses.dataclass(frozen=True)
class Gradient:
    """How gradients of one descriptor are made; the operands of the backward op map to what they are in the forward.

    backward: the op that makes them, or None where the derivative is 0 wherever there is one.
    """

    forward: Operation
    desc: Any
    twin: Any  # the backward op's descriptor
    backward: Operation | None
    grads: Mapping[str, str]  # the forward's inputs → the backward's outputs
    cotangents: Mapping[str, str] = dataclasses.field(default_factory=dict)
    inputs: tuple[str, ...] = ()  # that both have
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def through(self) -> set[str]:
        """The forward's outputs that gradients come through."""
        return set(self.cotangents.values()) if self.backward else {s.name for s in self.forward.outputs}

    def kept_outputs(self, call: Call) -> tuple[str, ...]:
        """The forward's outputs that the backward op reads, as far as the call has what they need."""
        needs = {s.name: s.needs or "" for s in self.forward.outputs}
        return tuple(n for n in self.outputs.values() if not needs[n] or call.arrays.get(needs[n]) is not None)

    def kept_inputs(self, call: Call) -> tuple[str, ...]:
        """The forward's inputs that it reads, or whose shapes its outputs have."""
        outputs = self.kept_outputs(call)
        replaced = {name for name, output in self.outputs.items() if output in outputs}
        like = [s.like for s in self.backward.outputs if s.like] if self.backward else []
        names = dict.fromkeys([*(n for n in self.inputs if n not in replaced), *like])
        return tuple(n for n in names if call.arrays.get(n) is not None)

    def call(self, saved: Call, made: Mapping[str, Any], cotangents: Mapping[str, Any], wanted: frozenset[str]) -> Call:
        """The backward op's call: `saved` is the forward's, `made` its outputs, `wanted` its inputs of interest."""
        assert self.backward is not None
        plan = self.backward.plan
        arrays: dict[str, Any] = {}
        for spec in self.backward.inputs:
            value = made.get(self.outputs[spec.name]) if spec.name in self.outputs else None
            if spec.name in self.cotangents:
                value = self._cotangent(self.cotangents[spec.name], cotangents, spec.required(self.twin))
            elif value is None and spec.name in self.inputs:
                value = saved.arrays.get(spec.name)
            elif value is None and spec.required(self.twin):
                name = self.outputs[spec.name]
                raise UnsupportedError(f"{self.forward.name}: its gradient needs {name}; call with return_{name}=True")
            arrays[spec.name] = value if value is None or spec.many else _laid(value, spec.layout)
        numbers = {s.name for s in scalars_of(plan.args)}
        asked = {self.grads[n] for n in wanted}
        results = frozenset(
            s.name
            for s in self.backward.outputs
            if not s.optional or (s.name in asked and (s.needs is None or arrays.get(s.needs) is not None))
        )
        return Call(
            arrays, {n: v for n, v in saved.scalars.items() if n in numbers}, shared_fields(self.desc, plan),
            results, preference=saved.preference,
        )  # fmt: skip

    def _cotangent(self, name: str, given: Mapping[str, Any], required: bool) -> Any:
        """The cotangent of an output: zeros where none arrived and the backward op needs one."""
        value = given.get(name)
        if value is not None:
            return value.resolve_conj().resolve_neg()
        if not required:
            return None
        arrived = next(one for one in given.values() if one is not None)
        spec = next(s for s in self.forward.outputs if s.name == name)
        dtype = element_dtype(spec.elements(self.desc)[0])
        return torch.zeros(spec.shape(self.desc), dtype=dtype, device=arrived.device)


def _laid(value: Any, layout: str) -> Any:
    """A saved tensor or cotangent as the backward op takes it: autograd hands over views of any strides."""
    if layout == "any":
        return value
    view = View(0, tuple(value.shape), tuple(value.stride()), ElementKind.of(value.dtype))
    return value if (view.dense if layout == "dense" else view.inner_dense) else value.contiguous()


def shared_fields(desc: Any, plan: type[Plan]) -> dict[str, Any]:
    """The attributes of a descriptor that another plan's descriptor has by the same names."""
    names = [f.name for f in dataclasses.fields(plan.descriptor) if hasattr(desc, f.name)]
    return {n: value for n in names if (value := getattr(desc, n)) is not None}


@memo()
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
        return Gradient(forward, desc, None, None, dict(link.grads))
    cotangents = {f"d{n}": n for n in link.cotangents(plan, backward)}
    own = {s.name for s in forward.inputs}
    renamed = {link.saves.get(s.name, s.name): s.name for s in forward.outputs}
    read = [s.name for s in arrays_of(backward.args) if s.reads and s.name not in cotangents and s.serves(twin)]
    outputs = {n: renamed[n] for n in read if n in renamed and (n in link.saves.values() or n not in own)}
    inputs = tuple(n for n in read if n in own)
    return Gradient(forward, desc, twin, operation(backward), dict(link.grads), cotangents, inputs, outputs)


def _value(kind: Any) -> Any:
    """Kinds of a forward and a backward table are the same where their values are."""
    return getattr(kind, "value", kind)


def no_gradient(name: str, operand: str) -> UnsupportedError:
    """The error of a call whose operand requires a gradient that does not exist."""
    return UnsupportedError(
        f"{operand}: it requires grad, and {name} has no gradient for it; give its .detach(), or call under "
        "torch.no_grad()"
    )
