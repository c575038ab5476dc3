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
from .gradient import Gradient, gradient_of, no_gradient
from .operation import LIBRARY, NAMESPACE, Operation
from .schema import Call
from .untyped import torch


def is_traced(tensors: Iterable[Any]) -> bool:
    """Whether any tensor is a stand-in, or a mode sees every operation."""
    return bool(torch._C._len_torch_dispatch_stack()) or any(t.is_meta or intercepts(type(t)) for t in tensors)


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


def keep(ctx: Any, gradient: Gradient | None, call: Call, made: Mapping[str, Any]) -> None:
    """Save what the backward op reads, and the rest of the call beside it."""
    ctx.set_materialize_grads(False)
    ctx.gradient, ctx.call = gradient, dataclasses.replace(call, arrays={})
    if gradient is None:
        return
    if gradient.backward is None:
        ctx.zeros = {n: [_like(t) for t in flattened({n: v})[1]] for n, v in call.arrays.items() if n in gradient.grads}
        return
    ctx.inputs, inputs = flattened({n: call.arrays[n] for n in gradient.kept_inputs(call)})
    ctx.outputs, outputs = flattened({n: made.get(n) for n in gradient.kept_outputs(call)})
    ctx.save_for_backward(*inputs, *outputs)


def _like(tensor: Any) -> Any:
    """What makes a gradient of zeros for a tensor, which is not kept."""
    return partial(torch.zeros, tuple(tensor.shape), dtype=tensor.dtype, device=tensor.device)


def gradients(ctx: Any, cotangents: Mapping[str, Any], wanted: frozenset[str]) -> dict[str, Any]:
    """The gradients for the inputs `wanted` from what `keep` saved; none where no cotangent arrived."""
    gradient: Gradient = ctx.gradient
    arrived = [name for name, value in cotangents.items() if value is not None]
    if not wanted or not arrived:
        return {}
    if gradient.backward is None:
        made = {n: [make() for make in ctx.zeros[n]] for n in wanted}
        lists = {s.name for s in gradient.forward.inputs if s.many}
        return {n: value if n in lists else value[0] for n, value in made.items()}
    for name in arrived:
        if name not in gradient.through():
            raise no_way(gradient.forward.name, name)
    flat = iter(ctx.saved_tensors)
    arrays, made = unflattened(ctx.inputs, flat), unflattened(ctx.outputs, flat)
    call = gradient.call(dataclasses.replace(ctx.call, arrays=arrays), made, cotangents, wanted)
    found = invoke(gradient.backward, call)
    return {name: found.get(gradient.grads[name]) for name in wanted}


def invoke(backward: Operation, call: Call) -> dict[str, Any]:
    """A backward op inside a backward pass, which may itself be traced, or be differentiated once more."""
    _, tensors = flattened(call.arrays)
    if is_traced(tensors):
        return registered(backward).call(call)
    grown = [t for t in tensors if recorded(t)]
    if grown and backward.plan.vjp is not None:
        return record(backward, call)
    with torch.no_grad():
        made = backward.run(call)
    return {n: Once.apply(backward.name, v, *grown) for n, v in made.items()} if grown else made


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
    found = gradient_of(op, op.descriptor(call))
    kept = () if found is None else found.kept_outputs(call)
    made = registered(op).call(dataclasses.replace(call, wanted=call.wanted.union(kept)))
    through = set(made) if found is None else found.through()
    grown = [t for t in flattened(call.arrays)[1] if t.requires_grad]
    for name in call.wanted - through:
        if made[name].is_floating_point() or made[name].is_complex():
            made[name] = End.apply(op.name, name, made[name], *grown)
    return made


# -- a node of autograd's graph --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Job:
    """What a node does: a call without its tensors, and how those lie flat."""

    op: Operation
    gradient: Gradient
    call: Call
    layout: Layout
    names: tuple[str, ...]  # of the outputs returned


class Node(torch.autograd.Function):  # type: ignore[misc]
    """One call in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, job: Job, *flat: Any) -> Any:
        """The outputs; what the backward op reads is made beside them."""
        call = dataclasses.replace(job.call, arrays=unflattened(job.layout, flat))
        made = job.op.run(dataclasses.replace(call, wanted=call.wanted.union(job.gradient.kept_outputs(call))))
        keep(ctx, job.gradient, call, made)
        ctx.job = job
        results = tuple(made[n] for n in job.names)
        ctx.mark_non_differentiable(*undifferentiable(results))
        return results if len(results) > 1 else results[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """The gradients of those tensors that need one."""
        job: Job = ctx.job
        needs = unflattened(job.layout, ctx.needs_input_grad[1:])
        wanted = frozenset(n for n, need in needs.items() if need is True or (need and any(need)))
        found = gradients(ctx, dict(zip(job.names, cotangents, strict=True)), wanted)
        grads: list[Any] = [None]
        for name, count in job.layout:
            value = found.get(name)
            grads.extend([value] if count is None else value or [None] * count)
        return tuple(grads)


def record(op: Operation, call: Call) -> dict[str, Any]:
    """A call on plain tensors as a node."""
    layout, flat = flattened(call.arrays)
    gradient = gradient_of(op, op.descriptor(call))
    if gradient is None:
        raise no_gradient(op.name, layout[0][0])
    names = tuple(s.name for s in op.outputs if s.name in call.wanted)
    made = Node.apply(Job(op, gradient, dataclasses.replace(call, arrays={}), layout, names), *flat)
    return dict(zip(names, made if len(names) > 1 else (made,), strict=True))


# -- the gradient of a torch op --------------------------------------------------------------------------------------


def registered(op: Operation) -> Operation:
    """The op with its gradient known to torch's dispatcher."""
    if not op.differentiable and not op.schema.mutates:
        op.differentiable = True
        name = f"{NAMESPACE}::{op.name}"
        torch.library.register_autograd(name, _backward(op), setup_context=_setup(op), lib=LIBRARY)
    return op


def _setup(op: Operation) -> Any:
    def setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        call = op.schema.decode(tuple(inputs), keyword_only_inputs)
        values = (output,) if len(op.outputs) == 1 else output or ()
        made = {s.name: v for s, v in zip(op.outputs, values, strict=True) if s.name in call.wanted}
        found = gradient_of(op, op.descriptor(call))
        through = set(made) if found is None else found.through() & set(made)
        apart = [v for s, v in zip(op.outputs, values, strict=True) if s.name not in through]
        ctx.mark_non_differentiable(*undifferentiable(values), *(v for v in apart if isinstance(v, torch.Tensor)))
        keep(ctx, found, call, made)
        # Trailing operands that were not given are none of autograd's, so lists and needs are told by name.
        ctx.lists = {s.name: len(v) for s in op.inputs if isinstance(v := call.arrays.get(s.name), (list, tuple))}

    return setup_context


def _backward(op: Operation) -> Any:
    names = [s.name for s in op.inputs]

    def backward(ctx: Any, *cotangents: Any) -> Any:
        needs = dict(zip(names, ctx.needs_input_grad, strict=False))
        wanted = frozenset(n for n, need in needs.items() if need is True or (need and any(need)))
        for name in sorted(wanted):
            if ctx.gradient is None or name not in ctx.gradient.grads:
                raise no_gradient(op.name, name)
        found = gradients(ctx, dict(zip((s.name for s in op.outputs), cotangents, strict=True)), wanted)
        grads = [found.get(n) or [None] * ctx.lists[n] if n in ctx.lists else found.get(n) for n in needs]
        return tuple(grads + [None] * (len(ctx.needs_input_grad) - len(grads)))

    return backward
