"""What a trace and autograd record of a torch op: its stand-ins and its gradient.

What the backward op reads is saved, and it is called for the gradients that are asked for. Plain tensors have a node of
their own (`node`), which costs a fraction of what torch.library adds to an op.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ..core.errors import UnsupportedError
from ..interop.torch_rules import intercepts, recorded
from .node import record
from .operation import LIBRARY, LOCK, NAMESPACE, REGISTERED, Operation
from .prepared import undifferentiable
from .schema import OpCall, flattened, unflattened
from .stand_ins import described, stand_ins
from .transforms import inside, transform
from .untyped import torch
from .vjp import Gradient, gradient_of, no_gradient, open_gradient

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_traced(tensors: Iterable[Any]) -> bool:
    """Whether any tensor is a stand-in, or a mode sees every operation."""
    if torch._C._len_torch_dispatch_stack():
        return True
    return any(t.is_meta or (type(t) not in _PLAIN and intercepts(type(t))) for t in tensors)


# -- what a backward pass needs --------------------------------------------------------------------------------------


def zeros_of(arrays: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What makes gradients of zeros, by operand; the tensors are not kept."""
    return {
        name: [
            partial(torch.zeros, tuple(t.shape), dtype=t.dtype, device=t.device) for t in flattened({name: value})[1]
        ]
        for name, value in arrays.items()
    }


def gradients(
    ctx: Any, gradient: Gradient, cotangents: Mapping[str, Any], wanted: frozenset[str], numbers: Mapping[str, Any],
    preference: Any,
) -> dict[str, Any]:  # fmt: skip
    """The gradients for the inputs `wanted` from what is kept in `ctx`; none where no cotangent arrived."""
    if gradient.backward is None and any(value is not None for value in cotangents.values()):
        lists = {s.name for s in gradient.forward.inputs if s.many}
        made = {n: [make() for make in ctx.zeros[n]] for n in wanted}
        return {n: value if n in lists else value[0] for n, value in made.items()}
    if gradient.backward is None:
        return {}
    flat = iter(ctx.saved_tensors)
    inputs, outputs = unflattened(ctx.inputs, flat), unflattened(ctx.outputs, flat)
    return pulled(gradient, inputs, outputs, cotangents, wanted, numbers, preference)


def pulled(
    gradient: Gradient, inputs: Mapping[str, Any], outputs: Mapping[str, Any], cotangents: Mapping[str, Any],
    wanted: frozenset[str], numbers: Mapping[str, Any], preference: Any,
) -> dict[str, Any]:  # fmt: skip
    """The same by the backward op, from the inputs and outputs that were kept."""
    arrived = [name for name, value in cotangents.items() if value is not None]
    if not wanted or not arrived:
        return {}
    for name in arrived:
        if name not in gradient.through:
            raise no_way(gradient.forward.name, name)
    found = invoke(gradient, gradient.operands(inputs, outputs, cotangents), wanted, numbers, preference)
    return {name: found.get(gradient.grads[name]) for name in wanted}


def invoke(
    gradient: Gradient, arrays: dict[str, Any], wanted: frozenset[str], numbers: Mapping[str, Any], preference: Any
) -> dict[str, Any]:
    """A backward op inside a backward pass, which may itself be traced, or be differentiated once more."""
    backward = gradient.backward
    assert backward is not None
    scalars = {s.name: numbers[s.name] for s in backward.schema.scalars if s.name in numbers}
    results = gradient.results(wanted, arrays)
    _, tensors = flattened(arrays)
    if inside(tensors):
        call = OpCall(arrays, scalars, dict(gradient.attributes), results, preference=preference)
        return transform(pulled, registered(backward), call, (gradient.forward.plan, gradient.desc))
    traced = is_traced(tensors)
    grown = [t for t in tensors if recorded(t)] if not traced and torch.is_grad_enabled() else []
    if traced or (grown and backward.plan.vjp is not None):
        call = OpCall(arrays, scalars, dict(gradient.attributes), results, preference=preference)
        return registered(backward).call(call) if traced else record(pulled, backward, call)
    if grown:
        call = OpCall(arrays, scalars, dict(gradient.attributes), results, preference=preference)
        return transform(pulled, registered(backward), call, (gradient.forward.plan, gradient.desc))
    return gradient.run(results, preference)(arrays, scalars, out=turned(gradient, results, arrays))


def turned(gradient: Gradient, results: frozenset[str], arrays: Mapping[str, Any]) -> dict[str, Any] | None:
    """The results that are written transposed: see `Gradient.flipped`."""
    names = {result: name for name, result in gradient.grads.items()}
    found = [n for n in gradient.flipped(arrays) if n in results]
    return {n: torch.empty_like(arrays[names[n]].transpose(-1, -2)).transpose(-1, -2) for n in found} or None


def no_way(name: str, output: str) -> UnsupportedError:
    """The error of a backward pass that comes to an output without a cotangent."""
    return UnsupportedError(
        f"{name}: there is no gradient through its output {output}; give its .detach() to what uses it"
    )


class End(torch.autograd.Function):  # type: ignore[misc]
    """Hands on an output of a traced op that has no cotangent, so that what asks for one is told."""

    @staticmethod
    def forward(ctx: Any, name: str, output: str, value: Any, *tensors: Any) -> Any:
        """A view of the output; `tensors` are those that require a gradient."""
        ctx.names = name, output
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Raises."""
        raise no_way(*ctx.names)


def traced(op: Operation, call: OpCall, recording: bool) -> dict[str, Any]:
    """A call in a trace, as an op of torch; what its backward op reads is made beside the outputs."""
    if not recording:
        return registered(op).call(call)
    found = gradient_of(op, described(op, call).desc)
    kept = () if found is None else found.kept_outputs(call)
    made = registered(op).call(dataclasses.replace(call, wanted=call.wanted.union(kept)))
    through = set(made) if found is None else found.through
    grown = [t for t in flattened(call.arrays)[1] if t.requires_grad]
    for name in call.wanted - through:
        if made[name].is_floating_point() or made[name].is_complex():
            made[name] = End.apply(op.name, name, made[name], *grown)
    return made


# -- the gradient of a torch op --------------------------------------------------------------------------------------


def registered(op: Operation) -> Operation:
    """The op with its gradient and what stands for its results known to torch."""
    if op.name not in REGISTERED:
        with LOCK():
            if op.name not in REGISTERED:
                _register(op)
                REGISTERED.add(op.name)
    return op


def _register(op: Operation) -> None:
    name, again = f"{NAMESPACE}::{op.name}", op.again

    def stand_in(*args: Any, **given: Any) -> Any:
        found = again()
        return stand_ins(found, found.schema.decode(args, given))

    torch.library.register_fake(name, stand_in, lib=LIBRARY)
    if not op.schema.mutates:
        torch.library.register_autograd(name, _backward(op), setup_context=_setup(again), lib=LIBRARY)


def _setup(again: Callable[[], Operation]) -> Any:
    def setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        op = again()
        call = op.schema.decode(tuple(inputs), keyword_only_inputs)
        values = (output,) if len(op.outputs) == 1 else output or ()
        made = {s.name: v for s, v in zip(op.outputs, values, strict=True) if s.name in call.wanted}
        ctx.gradient = found = open_gradient(op, call)
        ctx.call = dataclasses.replace(call, arrays={})
        ctx.set_materialize_grads(False)
        through = set(made) if found is None else found.through & set(made)
        apart = [v for s, v in zip(op.outputs, values, strict=True) if s.name not in through]
        ctx.mark_non_differentiable(*undifferentiable(values), *(v for v in apart if isinstance(v, torch.Tensor)))
        # Trailing operands that were not given are none of autograd's, so lists and needs are told by name.
        ctx.lists = {s.name: len(v) for s in op.inputs if isinstance(v := call.arrays.get(s.name), (list, tuple))}
        if found is not None and found.backward is None:
            ctx.zeros = zeros_of(call.arrays)
        elif found is not None:
            ctx.inputs, kept = flattened({n: call.arrays[n] for n in found.kept_inputs(call)})
            ctx.outputs, results = flattened({n: made.get(n) for n in found.kept_outputs(call)})
            ctx.save_for_backward(*kept, *results)

    return setup_context


def _backward(op: Operation) -> Any:
    name, names, outputs = op.name, [s.name for s in op.inputs], [s.name for s in op.outputs]

    def backward(ctx: Any, *cotangents: Any) -> Any:
        needs = dict(zip(names, ctx.needs_input_grad, strict=False))
        wanted = frozenset(n for n, need in needs.items() if need is True or (need and any(need)))
        for one in sorted(wanted):
            if ctx.gradient is None or one not in ctx.gradient.grads:
                raise no_gradient(name, one)
        arrived = dict(zip(outputs, cotangents, strict=True))
        found = gradients(ctx, ctx.gradient, arrived, wanted, ctx.call.scalars, ctx.call.preference)
        grads = [found.get(n) or [None] * ctx.lists[n] if n in ctx.lists else found.get(n) for n in needs]
        return tuple(grads + [None] * (len(ctx.needs_input_grad) - len(grads)))

    return backward
