"""A function of several calls as one node of autograd's graph: see `calls.composed`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ..calls.interpreters import Composed
from ..core.errors import UnsupportedError
from ..interop.torch_rules import has_tangent, transformed
from .batching import mapped
from .decomposed import transposed_twice
from .prepared import spread, undifferentiable
from .transforms import no_tangent
from .untyped import torch
from .vjp import Once, no_gradient


def compose(call: Composed) -> Any:
    """The result, recorded where an operand requires a gradient, or is transformed."""
    name, given, operands = call.function.__name__, call.given, call.operands
    tensors = {n: value for n, value in given.items() if isinstance(value, torch.Tensor)}
    grown = [n for n, value in tensors.items() if value.requires_grad] if torch.is_grad_enabled() else []
    inside = any(transformed(t) or has_tangent(t) for t in tensors.values())
    others = spread(value for n, value in given.items() if n not in tensors)
    apart = any(isinstance(value, torch.Tensor) and transformed(value) for value in others)
    if apart or not (grown or inside):
        return call.function(**given)
    for n in grown:
        if n not in operands:
            raise no_gradient(name, n)
    if given.get("out") is not None:
        raise UnsupportedError(
            f"{name}: out= takes no part in autograd, nor in a transformation; leave it out, or call under "
            "torch.no_grad()"
        )
    seen = {n for n in tensors if call.reads is None or n not in operands or n in call.reads}
    facts = {n: v for n, v in given.items() if n not in tensors}
    job = _Job(call.function, call.backward, facts, operands, seen, call.result)
    args = (job, tuple(tensors), *tensors.values())
    if inside or torch._C._are_functorch_transforms_active():
        return Composition.apply(*args)
    # The same without Function.apply's binding of arguments to a signature that it makes anew in every call.
    return super(torch.autograd.Function, Composition).apply(*args)


class _Job:
    """What a node calls: `facts` are the arguments that are no tensors, `seen` the tensors whose values are kept."""

    def __init__(
        self, function: Any, backward: Any, facts: dict[str, Any], operands: Sequence[str], seen: set[str], result: bool
    ) -> None:
        self.function, self.backward, self.facts = function, backward, facts
        self.operands, self.seen, self.result = operands, seen, result


class Composition(torch.autograd.Function):  # type: ignore[misc]
    """A composed function in autograd's graph."""

    @staticmethod
    def forward(job: _Job, names: tuple[str, ...], *tensors: Any) -> Any:
        """The result."""
        return job.function(**dict(zip(names, tensors, strict=True)), **job.facts)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the gradient reads."""
        job, names, *tensors = inputs
        results = _several(output)
        kept = [t if n in job.seen else t.new_empty(0) for n, t in zip(names, tensors, strict=True)]
        ctx.job, ctx.names, ctx.shapes = job, names, [t.shape for t in tensors]
        ctx.several = len(results) if isinstance(output, tuple) else 0
        ctx.set_materialize_grads(not ctx.several)  # of several results some may have no part in what is differentiated
        ctx.save_for_backward(*kept, *(results if job.result else ()))
        if torch.autograd.forward_ad._current_level >= 0:
            ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(*undifferentiable(results))

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        """The gradients of the operands."""
        job, saved = ctx.job, ctx.saved_tensors
        slopes = tuple(one if one is None else one.resolve_conj().resolve_neg() for one in slopes)
        if all(one is None for one in slopes):
            return (None,) * (2 + len(ctx.names))
        dy = slopes if ctx.several else slopes[0]
        needs = dict(zip(ctx.names, ctx.needs_input_grad[2:], strict=True))
        for name in ctx.names:
            if needs[name] and name not in job.operands:
                raise no_gradient(job.function.__name__, name)
        given = {}
        for name, shape, tensor in zip(ctx.names, ctx.shapes, saved, strict=False):
            given[name] = tensor if name in job.seen else torch.empty(shape, dtype=tensor.dtype, device="meta")
        facts = {n: value for n, value in job.facts.items() if n not in ("out", "stream")}
        if job.result:
            facts["y"] = tuple(saved[-ctx.several :]) if ctx.several else saved[-1]
        if _chooses(job.backward):
            facts["wanted"] = frozenset(n for n, need in needs.items() if need)
        held = [t for t in (*slopes, *saved) if t is not None]
        grown = [t for t in held if t.requires_grad] if torch.is_grad_enabled() else []
        with torch._C._DisableAutocast():
            made = _recorded(job, dy, given, facts) if grown else job.backward(dy, **given, **facts)
        found = dict(zip(job.operands, made if isinstance(made, tuple) else (made,), strict=True))
        return None, None, *[found.get(n) if need else None for n, need in needs.items()]

    @staticmethod
    def vmap(info: Any, in_dims: Any, job: _Job, names: tuple[str, ...], *tensors: Any) -> tuple[Any, Any]:
        """The result of every item, one after the other, along axis 0."""
        several: list[bool] = []

        def one(*items: Any) -> tuple[Any, ...]:
            made = Composition.apply(job, names, *items)
            several.append(isinstance(made, tuple))
            return _several(made)

        made = tuple(mapped(one, info, in_dims[2:], tensors))
        return (made, (0,) * len(made)) if several[-1:] == [True] else (made[0], 0)

    @staticmethod
    def jvp(ctx: Any, *moves: Any) -> Any:
        """The change of the result."""
        job, names, moves = ctx.job, ctx.names, moves[2:]
        held = [torch.autograd.forward_ad.unpack_dual(t).primal for t in ctx.saved_tensors]
        places = [i for i, move in enumerate(moves) if move is not None]
        for i in places:
            if names[i] not in job.operands:
                raise no_tangent(job.function.__name__, names[i])

        def run(*leaves: Any) -> tuple[Any, ...]:
            given = dict(zip(places, leaves, strict=True))
            return _several(Composition.apply(job, names, *[given.get(i, t) for i, t in enumerate(held)]))

        with torch.autograd.forward_ad._set_fwd_grad_enabled(True):  # of transformations around this one
            moved = transposed_twice(run, [held[i] for i in places], [moves[i] for i in places])
        return tuple(moved) if ctx.several else moved[0]


@cache
def _chooses(backward: Callable[..., Any]) -> bool:
    """Whether a function of gradients makes only those that are wanted."""
    return "wanted" in inspect.signature(backward).parameters


def _several(output: Any) -> tuple[Any, ...]:
    return output if isinstance(output, tuple) else (output,)


def _recorded(job: _Job, dy: Any, given: dict[str, Any], facts: dict[str, Any]) -> Any:
    """The gradients, recorded themselves where the functions that make them can be, else to be used once."""
    try:
        return job.backward(dy, **given, **facts)
    except UnsupportedError:
        pass
    with torch.no_grad():
        made = job.backward(dy, **given, **facts)
    grown = [t for t in (*_several(dy), *given.values()) if t is not None and t.requires_grad]
    once = f"{job.function.__name__}_backward"
    each = [None if g is None else Once.apply(once, g, *grown) for g in (made if isinstance(made, tuple) else (made,))]
    return tuple(each)
