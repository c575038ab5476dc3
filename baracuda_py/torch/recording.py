"""What autograd records of a call: a node of its graph for plain tensors, and the gradient of each torch op.

Both save what the backward op reads and call it for the gradients that are asked for. A node of its own costs a
fraction of what torch.library adds to an op, which is for traces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ..core.errors import UnsupportedError
from ..interop.torch_rules import intercepts, recorded
from .operation import LIBRARY, LOCK, NAMESPACE, Operation, swapped_outputs
from .schema import Call
from .stand_ins import described, stand_ins
from .untyped import torch
from .vjp import Gradient, gradient_of, no_gradient, open_gradient

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_traced(tensors: Iterable[Any]) -> bool:
    """Whether any tensor is a stand-in, or a mode sees every operation."""
    if torch._C._len_torch_dispatch_stack():
        return True
    return any(t.is_meta or (type(t) not in _PLAIN and intercepts(type(t))) for t in tensors)


def undifferentiable(tensors: Iterable[Any]) -> list[Any]:
    """Those whose dtype has no gradient."""
    return [t for t in tensors if isinstance(t, torch.Tensor) and not (t.is_floating_point() or t.is_complex())]


Layout = tuple[tuple[str, "int | None"], ...]  # operands in order, and how many tensors a list of them has


def flattened(arrays: Mapping[str, Any]) -> tuple[Layout, list[Any]]:
    """Tensors by name as a flat list, absent ones left out."""
    layout: list[tuple[str, int | None]] = []
    flat: list[Any] = []
    for name, value in arrays.items():
        if value is not None:
            many = isinstance(value, (list, tuple))
            layout.append((name, len(value) if many else None))
            flat.extend(value if many else (value,))
    return tuple(layout), flat


def unflattened(layout: Layout, flat: Iterable[Any]) -> dict[str, Any]:
    """The reverse of `flattened`."""
    items = iter(flat)
    return {name: next(items) if count is None else [next(items) for _ in range(count)] for name, count in layout}


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
    arrived = [name for name, value in cotangents.items() if value is not None]
    if not wanted or not arrived:
        return {}
    if gradient.backward is None:
        lists = {s.name for s in gradient.forward.inputs if s.many}
        made = {n: [make() for make in ctx.zeros[n]] for n in wanted}
        return {n: value if n in lists else value[0] for n, value in made.items()}
    for name in arrived:
        if name not in gradient.through:
            raise no_way(gradient.forward.name, name)
    flat = iter(ctx.saved_tensors)
    inputs, outputs = unflattened(ctx.inputs, flat), unflattened(ctx.outputs, flat)
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
    tensors = [t for t in arrays.values() if t is not None]
    traced = is_traced(tensors)
    grown = [t for t in tensors if recorded(t)] if not traced and torch.is_grad_enabled() else []
    if traced or (grown and backward.plan.vjp is not None):
        call = Call(arrays, scalars, dict(gradient.attributes), results, preference=preference)
        return registered(backward).call(call) if traced else record(backward, call)
    run = gradient.run(results, preference)
    out = turned(gradient, results, arrays)
    if not grown:
        return run(arrays, scalars, out=out)
    with torch.no_grad():
        made = run(arrays, scalars, out=out)
    return {n: Once.apply(backward.name, v, *grown) for n, v in made.items()}


def turned(gradient: Gradient, results: frozenset[str], arrays: Mapping[str, Any]) -> dict[str, Any] | None:
    """Gradients of matrices that lie transposed in memory, to be written so: torch would turn those of leaves."""
    found = {}
    for name in gradient.own_inputs:
        value, result = arrays.get(name), gradient.grads.get(name)
        if result in results and value is not None and not isinstance(value, list) and value.dim() > 1:
            flipped = value.transpose(-1, -2)
            if not value.is_contiguous() and flipped.is_contiguous():
                found[result] = torch.empty_like(flipped).transpose(-1, -2)
    return found or None


def no_way(name: str, output: str) -> UnsupportedError:
    """The error of a backward pass that comes to an output without a cotangent."""
    return UnsupportedError(
        f"{name}: there is no gradient through its output {output}; give its .detach() to what uses it"
    )


class Once(torch.autograd.Function):  # type: ignore[misc]
    """Hands a gradient on, and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, name: str, value: Any, *tensors: Any) -> Any:
        """A view of the gradient; `tensors` are what it depends on."""
        ctx.name = name
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Raises."""
        raise UnsupportedError(
            f"{ctx.name} has no gradient itself: what it is the gradient of can be differentiated once, not twice"
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


def traced(op: Operation, call: Call, recording: bool) -> dict[str, Any]:
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


# -- a node of autograd's graph --------------------------------------------------------------------------------------


class Job:
    """What a node does with tensors of one kind: `call` is one such call; neither its tensors nor numbers are kept."""

    def __init__(self, op: Operation, call: Call, desc: Any, gradient: Gradient) -> None:
        self.op, self.desc, self.gradient = op, desc, gradient
        self.layout, _ = flattened(call.arrays)
        self.names = tuple(s.name for s in op.outputs if s.name in call.wanted)  # of the outputs returned
        self.outputs = gradient.kept_outputs(call) if gradient.backward else ()
        self.inputs = gradient.kept_inputs(call) if gradient.backward else ()
        self.rest = dataclasses.replace(call, arrays={}, scalars={})
        self.run = op.prepared(call.attributes, call.wanted.union(self.outputs), call.preference)

    def apply(self, flat: Iterable[Any], scalars: Mapping[str, Any]) -> Any:
        """The outputs, as a functional entry returns them, in autograd's graph."""
        return Node.apply(self, scalars, *flat)

    def made(self, arrays: dict[str, Any], scalars: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs, and what the backward op reads beside them."""
        if not self.rest.swapped:
            return self.run(arrays, scalars)
        call = dataclasses.replace(self.rest, arrays=arrays)
        return self.run(arrays, scalars, out=swapped_outputs(self.op, call, self.desc))


class Node(torch.autograd.Function):  # type: ignore[misc]
    """One call in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, job: Job, scalars: Mapping[str, Any], *flat: Any) -> Any:
        """The outputs; what the backward op reads is kept."""
        arrays = unflattened(job.layout, flat)
        made = job.made(arrays, scalars)
        ctx.job, ctx.scalars = job, scalars
        ctx.set_materialize_grads(False)
        results = tuple([made[n] for n in job.names])
        if job.gradient.backward is None:
            ctx.zeros = zeros_of(arrays)
        else:
            ctx.inputs, inputs = flattened({n: arrays[n] for n in job.inputs})
            ctx.outputs, outputs = flattened({n: made[n] for n in job.outputs})
            ctx.save_for_backward(*inputs, *outputs)
        if apart := undifferentiable(results):
            ctx.mark_non_differentiable(*apart)
        return results if len(results) > 1 else results[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """The gradients of those tensors that need one."""
        job: Job = ctx.job
        needs = unflattened(job.layout, ctx.needs_input_grad[2:])
        wanted = frozenset(n for n, need in needs.items() if need is True or (need and any(need)))
        arrived = dict(zip(job.names, cotangents, strict=True))
        found = gradients(ctx, job.gradient, arrived, wanted, ctx.scalars, job.rest.preference)
        grads: list[Any] = [None, None]
        for name, count in job.layout:
            value = found.get(name)
            grads.extend([value] if count is None else value or [None] * count)
        return tuple(grads)


def job_of(op: Operation, call: Call) -> Job:
    """What a node does with a call on plain tensors."""
    desc = op.descriptor(call)
    gradient = gradient_of(op, desc)
    if gradient is None:
        raise no_gradient(op.name, next(n for n, value in call.arrays.items() if value is not None))
    return Job(op, call, desc, gradient)


def record(op: Operation, call: Call) -> dict[str, Any]:
    """A call on plain tensors as a node; the outputs by name."""
    job = job_of(op, call)
    made = job.apply(flattened(call.arrays)[1], call.scalars)
    return dict(zip(job.names, made if len(job.names) > 1 else (made,), strict=True))


# -- the gradient of a torch op --------------------------------------------------------------------------------------


def registered(op: Operation) -> Operation:
    """The op with its gradient and what stands for its results known to torch."""
    if not op.registered:
        with LOCK:
            if not op.registered:
                _register(op)
                op.registered = True
    return op


def _register(op: Operation) -> None:
    name = f"{NAMESPACE}::{op.name}"
    torch.library.register_fake(name, lambda *args, **given: stand_ins(op, op.schema.decode(args, given)), lib=LIBRARY)
    if not op.schema.mutates:
        torch.library.register_autograd(name, _backward(op), setup_context=_setup(op), lib=LIBRARY)


def _setup(op: Operation) -> Any:
    def setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        call = op.schema.decode(tuple(inputs), keyword_only_inputs)
        values = (output,) if len(op.outputs) == 1 else output or ()
        made = {s.name: v for s, v in zip(op.outputs, values, strict=True) if s.name in call.wanted}
        ctx.gradient = found = open_gradient(op, described(op, call))
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
    names = [s.name for s in op.inputs]

    def backward(ctx: Any, *cotangents: Any) -> Any:
        needs = dict(zip(names, ctx.needs_input_grad, strict=False))
        wanted = frozenset(n for n, need in needs.items() if need is True or (need and any(need)))
        for name in sorted(wanted):
            if ctx.gradient is None or name not in ctx.gradient.grads:
                raise no_gradient(op.name, name)
        arrived = dict(zip((s.name for s in op.outputs), cotangents, strict=True))
        found = gradients(ctx, ctx.gradient, arrived, wanted, ctx.call.scalars, ctx.call.preference)
        grads = [found.get(n) or [None] * ctx.lists[n] if n in ctx.lists else found.get(n) for n in needs]
        return tuple(grads + [None] * (len(ctx.needs_input_grad) - len(grads)))

    return backward
