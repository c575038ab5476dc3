"""A function of several calls as one node of autograd's graph: see `core.composed`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.errors import UnsupportedError
from ..interop.torch_rules import transformed
from .prepared import undifferentiable
from .recording import Once
from .untyped import torch
from .vjp import no_gradient


def call(
    function: Callable[..., Any], backward: Callable[..., Any], given: Mapping[str, Any], operands: Sequence[str],
    result: bool, reads: Sequence[str] | None,
) -> Any:  # fmt: skip
    """The result of `function(**given)`, recorded where an operand requires a gradient."""
    name = function.__name__
    tensors = {n: value for n, value in given.items() if isinstance(value, torch.Tensor)}
    grown = [n for n, value in tensors.items() if value.requires_grad] if torch.is_grad_enabled() else []
    watched = torch.autograd.forward_ad._current_level >= 0 or any(map(transformed, tensors.values()))
    if not grown or watched:
        return function(**given)
    for n in grown:
        if n not in operands:
            raise no_gradient(name, n)
    if given.get("out") is not None:
        raise UnsupportedError(f"{name}: out= takes no part in autograd; leave it out, or call under torch.no_grad()")
    seen = {n for n in tensors if reads is None or n not in operands or n in reads}
    job = _Job(function, backward, {n: v for n, v in given.items() if n not in tensors}, operands, seen, result)
    return Composition.apply(job, tuple(tensors), *tensors.values())


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
    def forward(ctx: Any, job: _Job, names: tuple[str, ...], *tensors: Any) -> Any:
        """The result; what the gradient reads is kept."""
        made = job.function(**dict(zip(names, tensors, strict=True)), **job.facts)
        kept = [t if n in job.seen else t.new_empty(0) for n, t in zip(names, tensors, strict=True)]
        ctx.job, ctx.names, ctx.shapes = job, names, [t.shape for t in tensors]
        ctx.save_for_backward(*kept, *((made,) if job.result else ()))
        ctx.mark_non_differentiable(*undifferentiable([made]))
        return made

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        """The gradients of the operands."""
        job, saved = ctx.job, ctx.saved_tensors
        given = {}
        for name, shape, tensor in zip(ctx.names, ctx.shapes, saved, strict=False):
            given[name] = tensor if name in job.seen else torch.empty(shape, dtype=tensor.dtype, device="meta")
        facts = {n: value for n, value in job.facts.items() if n not in ("out", "stream")}
        facts |= {"y": saved[-1]} if job.result else {}
        dy = dy.resolve_conj().resolve_neg()
        with torch.no_grad():
            made = job.backward(dy, **given, **facts)
        found = dict(zip(job.operands, made if isinstance(made, tuple) else (made,), strict=True))
        if torch.is_grad_enabled() and (grown := [t for t in (dy, *saved) if t.requires_grad]):
            found = {n: Once.apply(f"{job.function.__name__}_backward", g, *grown) for n, g in found.items()}
        needs = zip(ctx.names, ctx.needs_input_grad[2:], strict=True)
        return None, None, *[found.get(n) if need else None for n, need in needs]
