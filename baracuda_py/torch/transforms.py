"""Calls inside the transformations of torch.func: grad, vjp, jacrev, vmap, and one inside another.

torch peels a call off one transformation after the other, and asks `Transformed` what each makes of it: a gradient is
that of the op's page, and what is mapped is one call after the other. What is left in the end is a call on tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..core.errors import UnsupportedError
from ..interop.torch_rules import transformed
from .operation import Operation, shapes_of
from .prepared import undifferentiable
from .schema import OpCall, flattened, unflattened
from .untyped import torch
from .vjp import gradient_of, no_gradient, open_gradient

Pulled = Callable[..., dict[str, Any]]


def inside(tensors: Iterable[Any]) -> bool:
    """Whether a call is one for a transformation: of its tensors, or of those that are made where it runs."""
    return torch._C._functorch.maybe_current_level() is not None or any(map(transformed, tensors))


def written(op: Operation, name: str, call: OpCall, out: Mapping[str, Any] | None, stream: Any) -> dict[str, Any]:
    """The outputs of a call that writes to tensors that it is given, where there is nothing to follow or to map.

    A tensor that is made inside of a transformation belongs to it, and is one with memory nevertheless.
    """
    layout, flat = flattened({**call.arrays, **_tensors(call.scalars), **(out or {})})
    held = unflattened(layout, [_bare(name, t) for t in flat])
    arrays = {n: held.get(n) for n in call.arrays}
    scalars = {n: held.get(n, value) for n, value in call.scalars.items()}
    bare = dataclasses.replace(call, arrays=arrays, scalars=scalars)
    with torch._C._DisableFuncTorch(), torch.no_grad():
        made = op.run(bare, None if out is None else {n: held[n] for n in out}, stream)
    return {**made, **(out or {})}


def _bare(name: str, tensor: Any) -> Any:
    """The tensor of memory that one of a gradient's transformations stands for, if nothing is lost with them."""
    functorch = torch._C._functorch
    seen, top = torch.is_grad_enabled(), functorch.maybe_current_level()
    while transformed(tensor) and functorch.is_gradtrackingtensor(tensor):
        if tensor.requires_grad and (seen or functorch.maybe_get_level(tensor) != top):
            break
        tensor = functorch.get_unwrapped(tensor)
    if transformed(tensor) or tensor.requires_grad:
        raise UnsupportedError(
            f"{name}: it writes to an array, in place or by out=, and that is no part of a transformation "
            "(torch.func.vmap, grad …); call it outside of the transformation, or without out="
        )
    return tensor


def transform(pulled: Pulled, op: Operation, call: OpCall) -> dict[str, Any]:
    """The outputs wanted, by name, of a call inside of transformations.

    pulled: what calls the backward op (`recording.pulled`).
    """
    job, flat = _Job.of(pulled, op, call)
    made = job.named(Transformed.apply(job, *flat))
    return {name: made[name] for name in made if name in call.wanted}


class _Job:
    """A call without its tensors, which come in the order of `layout`; the results go in that of `results`."""

    def __init__(self, pulled: Pulled, op: Operation, call: OpCall, layout: Any, results: Any) -> None:
        self.pulled, self.op, self.rest, self.layout, self.results = pulled, op, call, layout, results

    @staticmethod
    def of(pulled: Pulled, op: Operation, call: OpCall) -> tuple[_Job, list[Any]]:
        """The job and the tensors of a call; the outputs that the gradient reads are made, too."""
        desc = op.descriptor(call)
        gradient = gradient_of(op, desc)
        kept = gradient.kept_outputs(call) if gradient else ()
        layout, flat = flattened({**call.arrays, **_tensors(call.scalars)})
        numbers = {n: value for n, value in call.scalars.items() if n not in dict(layout)}
        rest = dataclasses.replace(call, arrays={}, scalars=numbers, wanted=call.wanted.union(kept))
        made = [s for s in op.outputs if s.name in rest.wanted]
        results = tuple((s.name, len(shapes_of(s, desc)) if s.many else None) for s in made)
        return _Job(pulled, op, rest, layout, results), flat

    def call(self, flat: Sequence[Any]) -> OpCall:
        """The call on these tensors."""
        held = unflattened(self.layout, flat)
        names = {s.name for s in self.op.inputs}
        arrays = {n: value for n, value in held.items() if n in names}
        scalars = {n: value for n, value in held.items() if n not in names}
        return dataclasses.replace(self.rest, arrays=arrays, scalars={**self.rest.scalars, **scalars})

    def named(self, made: Sequence[Any]) -> dict[str, Any]:
        """The results by name."""
        return unflattened(self.results, made)


def _tensors(scalars: Mapping[str, Any]) -> dict[str, Any]:
    return {n: value for n, value in scalars.items() if isinstance(value, torch.Tensor)}


class Transformed(torch.autograd.Function):  # type: ignore[misc]
    """A call as torch.func's transformations see it."""

    @staticmethod
    def forward(job: _Job, *flat: Any) -> tuple[Any, ...]:
        """The results, of tensors that no transformation is left of."""
        return tuple(flattened(job.op.call(job.call(flat)))[1])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the gradient reads."""
        job, *flat = inputs
        ctx.job, call, made = job, job.call(flat), job.named(output)
        ctx.set_materialize_grads(False)
        ctx.gradient = found = open_gradient(job.op, call)
        ctx.mark_non_differentiable(*undifferentiable(output))
        kept: dict[str, Any] = {}
        if found is not None and found.backward is not None:
            kept = {n: call.arrays[n] for n in found.kept_inputs(call)} | _tensors(call.scalars)
            kept |= {n: made[n] for n in found.kept_outputs(call)}
        ctx.kept, saved = flattened(kept)
        ctx.save_for_backward(*saved)
        ctx.zeros = [(tuple(t.shape), t.dtype, t.device) for t in flat]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """The gradients of the tensors that need one."""
        job, gradient = ctx.job, ctx.gradient
        needs = ctx.needs_input_grad[1:]
        asked = unflattened(job.layout, needs)
        wanted = frozenset(n for n, need in asked.items() if need is True or (need and any(need)))
        for name in sorted(wanted):
            if gradient is None or name not in gradient.grads:
                raise no_gradient(job.op.name, name)
        if gradient.backward is None:
            zeros = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.zeros]
            return None, *[one if need else None for one, need in zip(zeros, needs, strict=True)]
        held, arrived = unflattened(ctx.kept, ctx.saved_tensors), job.named(cotangents)
        names, own = {s.name for s in job.op.inputs}, {s.name for s in job.op.outputs}
        numbers = {**job.rest.scalars, **{n: v for n, v in held.items() if n not in names | own}}
        inputs = {n: v for n, v in held.items() if n in names}
        outputs = {n: v for n, v in held.items() if n in own}
        found = job.pulled(gradient, inputs, outputs, arrived, wanted, numbers, job.rest.preference)
        each = [found.get(n) if count is None else found.get(n) or [None] * count for n, count in job.layout]
        return None, *[t for one in each for t in (one if isinstance(one, list) else (one,))]

    @staticmethod
    def vmap(info: Any, in_dims: Any, job: _Job, *flat: Any) -> tuple[Any, Any]:
        """The results of every item, one after the other, along axis 0."""
        made = mapped(partial(Transformed.apply, job), info, in_dims[1:], flat)
        return made, (0,) * len(made)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Raises."""
        raise no_tangent(ctx.job.op.name)


def mapped(call: Callable[..., Sequence[Any]], info: Any, dims: Sequence[int | None], tensors: Sequence[Any]) -> Any:
    """What `call` makes of every item of the tensors, along the axis of each that is mapped; along axis 0."""
    held = [t if not at else t.movedim(at, 0).contiguous() for t, at in zip(tensors, dims, strict=True)]
    if not info.batch_size:
        one = [t if at is None else t.new_zeros(t.shape[1:]) for t, at in zip(held, dims, strict=True)]
        return tuple([made.new_empty((0, *made.shape)) for made in call(*one)])
    items = [[t if at is None else t[i] for t, at in zip(held, dims, strict=True)] for i in range(info.batch_size)]
    return tuple(map(torch.stack, zip(*[call(*item) for item in items], strict=True)))


def no_tangent(name: str) -> UnsupportedError:
    """The error of a forward-mode derivative."""
    return UnsupportedError(
        f"{name} has no forward-mode derivative (torch.func.jvp, jacfwd, hessian); take a gradient (grad, vjp, jacrev)"
    )
