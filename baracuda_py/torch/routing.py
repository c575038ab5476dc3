"""Where a call of the functional layer goes that autograd or a trace records.

A stand-in (a fake or meta tensor) goes through torch's dispatcher, as an op of its own; a plain tensor that requires
a gradient through one node of autograd's graph, which costs less.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..calls.call import Call
from ..calls.interpreters import Composed, interpreting
from ..core import registry
from ..core.args import arrays_of
from ..core.arrays import located
from ..core.checked import shown
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError, RecordedError, UnsupportedError
from ..core.intake import stream_pointer
from ..core.memo import keep
from ..interop.torch_rules import has_tangent, raw_stream_getter, requires_grad, settled, transformed
from .composition import compose
from .node import job_of
from .operation import Operation, operation
from .recording import is_traced, pulled, registered, traced
from .schema import OpCall
from .stand_ins import described
from .transforms import inside, transform, written
from .untyped import torch
from .vjp import gradient_of, no_gradient

Tensors = list[tuple[str, Any]]  # each with the name of its operand, and its index in a list


def _tensors(values: Mapping[str, Any]) -> Tensors:
    found: Tensors = []
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            found.extend((f"{name}[{i}]", one) for i, one in enumerate(value))
        elif value is not None:
            found.append((name, value))
    return found


class Record:
    """The interpreter of calls that autograd or a trace of torch's records."""

    def serve(self, call: Call) -> Any:
        """The result, recorded; raises where it cannot be, in the words of who refused the call if it was tried."""
        with interpreting(None):
            return _recorded(call)

    def compose(self, composed: Composed) -> Any:
        """The result of a function of several calls."""
        return compose(composed)


RECORD = Record()


def _recorded(call: Call) -> Any:
    """What a node does with calls that require the same gradients is kept with what is `resolved` of them."""
    entry, layouts, turned = call.entry, call.entry.layouts, call.turned
    error, out, stream = call.refused, call.out, call.stream
    if error is not None:
        error.__traceback__ = None  # whose frames have the arrays, and are of one cycle with it
    every = {n: settled(value) for n, value in call.scalars.items()}
    held = _tensors(call.arrays) + [(n, value) for n, value in every.items() if isinstance(value, torch.Tensor)]
    for where, value in held:
        if not isinstance(value, torch.Tensor):
            raise InvalidProblemError(f"{where} must be a torch tensor as others are, got a {type(value).__name__}")
    seen = call.seen
    plan, given = entry.chosen(seen, call.attributes)
    op = operation(plan)
    lists = {n: list(value) if isinstance(value, tuple) else value for n, value in seen.items()}
    wanted = _wanted(op, seen, call.returns)
    own = OpCall(lists, _own(op, every), dict(given), wanted, (), call.preference)
    outputs = _named(op, own, out)
    for where, value in _tensors(outputs or {}):
        if requires_grad([value]) and torch.is_grad_enabled():
            located(value, where)  # raises
    views = layouts.views(outputs, turned) if turned and outputs else outputs
    dual = [where for where, value in held if not transformed(value) and has_tangent(value)]
    writes = op.schema.mutates or outputs
    if dual and writes:
        raise error or RecordedError(
            f"{dual[0]}: it has a tangent, which {entry.name} does not follow where it writes to an array"
        )
    if dual or inside([value for _, value in held]):
        made = written(op, entry.name, own, views, stream) if writes else transform(pulled, registered(op), own)
        made = {**layouts.views(made, turned), **(outputs or {})} if turned else made
        return _results(op, own, made, call.arrays)
    recording = _is_recorded(op, entry.name, own, held, out)
    if recording and not is_traced([value for _, value in held]):
        _check_stream(entry.name, stream, held)
        job = job_of(pulled, op, own, entry.reads, tuple(every), turned, layouts)
        kept = call.resolved
        if kept is not None and out is stream is None and all(n is call.scalars[k] for k, n in every.items()):
            keep(kept.jobs, entry.grown(**_by_place(call)), job, _CAPACITY)
        return job.node(tuple(every.values()), [call.arrays.get(n) for n in entry.reads])
    own.swapped = tuple(n for n in turned if n in wanted and n not in (outputs or {}))
    if is_traced([value for _, value in held]):
        _check_stream(entry.name, stream, held)
        made = _filled(op, traced(op, own, recording), views)
    else:
        with torch.no_grad():
            made = op.run(own, views, stream)
    made = {**layouts.views(made, turned), **(outputs or {})} if turned else made
    return _results(op, own, made, call.arrays)


def _by_place(call: Call) -> dict[str, Any]:
    """Operands and numbers by what the function's code calls them."""
    return {call.entry.local[name]: value for name, value in (*call.arrays.items(), *call.scalars.items())}


_CAPACITY = 64  # what of a call requires a gradient varies little


def _own(op: Operation, scalars: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that the op has: an overload of a function may have others, which are as by default then."""
    defaults = {f.name: f.default for f in dataclasses.fields(op.plan.args)}
    return {s.name: scalars.get(s.name, defaults[s.name]) for s in op.schema.scalars}


def _wanted(op: Operation, arrays: Mapping[str, Any], returns: Mapping[str, Any]) -> frozenset[str]:
    """The outputs that the functional layer returns."""

    def given(name: str | None) -> bool:
        return name is None or arrays.get(name) is not None

    return frozenset(
        spec.name
        for spec in op.outputs
        if (not spec.optional or returns.get(spec.name, False))
        and given(spec.needs)
        and (not spec.like or ElementKind.of(arrays[spec.like].dtype).is_inexact)
    )


def _is_recorded(op: Operation, name: str, call: OpCall, held: Tensors, out: Any) -> bool:
    """Whether the call is one for autograd; raises where it would be and there is no gradient."""
    grown = [where for where, value in held if value.requires_grad] if torch.is_grad_enabled() else []
    if not grown:
        return False
    if op.schema.mutates:
        raise no_gradient(f"{name}, which works in place,", grown[0])
    desc = described(op, call).desc
    if not any(spec.elements(desc)[0].is_inexact for spec in op.outputs if spec.name in call.wanted):
        return False  # of comparisons and indices there is nothing to differentiate
    found = gradient_of(op, desc)
    for where in grown:
        if found is None or where.partition("[")[0] not in found.grads:
            raise no_gradient(name, where)
    if out is not None:
        raise UnsupportedError(f"{name}: out= takes no part in autograd; leave it out, or call under torch.no_grad()")
    return True


def _check_stream(name: str, stream: Any, held: Tensors) -> None:
    lead = held[0][1]
    if stream is not None and lead.is_cuda and stream_pointer(stream) != raw_stream_getter()(lead.get_device()):
        raise UnsupportedError(
            f"{name}: stream= is not torch's current one, which autograd and traces work on; call under "
            "torch.cuda.stream(…) instead"
        )


def _named(op: Operation, call: OpCall, out: Any) -> dict[str, Any] | None:
    """What `out=` gives, by the names of the outputs wanted."""
    if out is None:
        return None
    names = [s.name for s in op.outputs if s.name in call.wanted]
    given = out if isinstance(out, Mapping) else None
    if given is None:
        values = list(out) if isinstance(out, (list, tuple)) else [out]
        if len(values) != len(names):
            raise InvalidProblemError(f"out= must give {len(names)} arrays ({', '.join(names)}), got {len(values)}")
        given = dict(zip(names, values, strict=True))
    if unknown := sorted(set(given) - set(names)):
        raise InvalidProblemError(f"out= names {unknown}; the outputs are {names}")
    return dict(given)


def _filled(op: Operation, made: dict[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
    """In a trace, outputs that the caller gives take a copy of what the op makes."""
    for name, target in (out or {}).items():
        if not isinstance(target, torch.Tensor):
            raise InvalidProblemError(f"{name} must be a torch tensor as the operands are, got {shown(target)}")
        if target.is_meta != made[name].is_meta:
            raise InvalidProblemError(f"{name} must be on {made[name].device} as the operands are, got {target.device}")
        if (target.shape, target.dtype) != (made[name].shape, made[name].dtype):
            raise InvalidProblemError(
                f"{name} must be {made[name].dtype} of shape {tuple(made[name].shape)}, got {target.dtype} of shape "
                f"{tuple(target.shape)}"
            )
        made[name] = target.copy_(made[name])
    return made


def _results(op: Operation, call: OpCall, made: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """What a functional entry returns: the outputs wanted, else what was updated in place."""
    values = [made[s.name] for s in op.outputs if s.name in call.wanted]
    if not op.outputs:
        held = [arrays[s.name] for s in arrays_of(op.plan.args) if s.role == "inout"]
        values = [one for one in held if one is not None]
        if len(held) > 1:
            return tuple(values)
    return values[0] if len(values) == 1 else tuple(values)


def define_all() -> list[str]:
    """Define the torch op of every plan, with its gradient, and return their names: for loading exported programs."""
    return [registered(operation(plan)).name for plan in registry.plans().values()]
