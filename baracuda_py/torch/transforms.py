"""Calls inside the transformations of torch.func: grad, vjp, jacrev, vmap, and one inside another.

torch peels a call off one transformation after the other, and asks `Transformed` what each makes of it: a gradient is
that of the op's page; what is mapped is one call where the op has a batch, else one after the other; forward mode and
gradients of gradients take the kernels that have the slopes, else the op as operations of torch (`decomposed`). What is
left in the end is a call on tensors.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..core.errors import UnsupportedError
from ..interop.torch_rules import transformed
from .batching import arranged, mapped, source_of, wider
from .decomposed import Decomposed, Source, decomposed, tangents
from .operation import Operation, element_dtype, shapes_of
from .prepared import undifferentiable
from .schema import OpCall, flattened, unflattened
from .untyped import torch
from .vjp import Gradient, gradient_of, no_gradient, once_only, open_gradient

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
    stack = functorch.get_interpreter_stack() or ()
    forward = [one.level() for one in stack if one.key() == functorch.TransformType.Jvp]
    while transformed(tensor) and functorch.is_gradtrackingtensor(tensor):
        level = functorch.maybe_get_level(tensor)
        if (tensor.requires_grad and (seen or level != top)) or (level in forward and (level != top or _moves(tensor))):
            break
        tensor = functorch.get_unwrapped(tensor)
    if transformed(tensor) or tensor.requires_grad:
        raise UnsupportedError(
            f"{name}: it writes to an array, in place or by out=, and that is no part of a transformation "
            "(torch.func.vmap, grad …); call it outside of the transformation, or without out="
        )
    return tensor


def _moves(tensor: Any) -> bool:
    """Whether a tensor of the innermost forward mode has a tangent."""
    return torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None


def transform(pulled: Pulled, op: Operation, call: OpCall, source: Source | None = None) -> dict[str, Any]:
    """The outputs wanted, by name, of a call inside of transformations.

    pulled: what calls the backward op (`recording.pulled`). source: what `op` is the gradient of, if it is one.
    """
    job, flat = _Job.of(pulled, op, call, source)
    made = job.named(Transformed.apply(job, *flat))
    return {name: made[name] for name in made if name in call.wanted}


class _Job:
    """A call without its tensors, which come in the order of `layout`; the results go in that of `results`."""

    def __init__(
        self, pulled: Pulled, op: Operation, call: OpCall, layout: Any, results: Any, source: Source | None
    ) -> None:
        self.pulled, self.op, self.rest, self.layout, self.results = pulled, op, call, layout, results
        self.source = source
        self.asked = call.wanted

    @staticmethod
    def of(pulled: Pulled, op: Operation, call: OpCall, source: Source | None) -> tuple[_Job, list[Any]]:
        """The job and the tensors of a call; the outputs that the gradient reads are made, too."""
        desc = op.descriptor(call)
        gradient = gradient_of(op, desc)
        kept = gradient.kept_outputs(call) if gradient else ()
        layout, flat = flattened({**call.arrays, **_tensors(call.scalars)})
        numbers = {n: value for n, value in call.scalars.items() if n not in dict(layout)}
        rest = dataclasses.replace(call, arrays={}, scalars=numbers)
        found = _Job(pulled, op, rest, layout, (), source)
        rest.wanted = call.wanted.union(kept)
        made = [s for s in op.outputs if s.name in rest.wanted]
        found.results = tuple((s.name, len(shapes_of(s, desc)) if s.many else None) for s in made)
        return found, flat

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

    @property
    def names(self) -> list[str]:
        """The operand or number that each of the flat tensors is, or is one of."""
        return [name for name, count in self.layout for _ in range(1 if count is None else count)]

    def followed(self, gradient: Gradient | None) -> frozenset[str]:
        """The outputs whose changes somebody sees: the caller, or the backward op in the place of an input."""
        inputs = {s.name for s in self.op.inputs}
        reads = () if gradient is None else gradient.reads
        return self.asked.union(r.output for r in reads if r.output is not None and r.name in inputs)

    def in_torch(self, flat: Sequence[Any], ends: Iterable[str]) -> Decomposed | None:
        """What makes the results `ends` of operations of torch, which torch differentiates."""
        return decomposed(self.op.plan, self.op.descriptor(self.call(flat)), frozenset(ends), self.source)

    def through(
        self,
        way: Decomposed,
        flat: Sequence[Any],
        places: Sequence[int],
        ends: Sequence[int],
        refusal: UnsupportedError,
    ) -> Callable[..., tuple[Any, ...]]:
        """The results `ends` in torch, as a function of the tensors at `places`; it raises `refusal` of others."""

        def run(*leaves: Any) -> tuple[Any, ...]:
            held = list(flat)
            for at, leaf in zip(places, leaves, strict=True):
                held[at] = leaf
            call = self.call(held)
            made = way.call({**call.arrays, **call.scalars})
            each = [None if made is None else made.get(n) for n, _ in self.results]
            found = [t for (_, count), one in zip(self.results, each, strict=True)
                     for t in (one or [None] * count if count is not None else [one])]  # fmt: skip
            if any(found[at] is None for at in ends):
                raise refusal
            return tuple([found[at] for at in ends])

        return run


def _tensors(scalars: Mapping[str, Any]) -> dict[str, Any]:
    return {n: value for n, value in scalars.items() if isinstance(value, torch.Tensor)}


class Transformed(torch.autograd.Function):  # type: ignore[misc]
    """A call as torch.func's transformations see it."""

    @staticmethod
    def forward(job: _Job, *flat: Any) -> tuple[Any, ...]:
        """The results, of tensors that no transformation is left of."""
        if torch.autograd.forward_ad._current_level >= 0:
            flat = tuple([torch.autograd.forward_ad.unpack_dual(t).primal for t in flat])
        return tuple(flattened(job.op.call(job.call(flat)))[1])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the gradient reads."""
        job, *flat = inputs
        ctx.job, call, made = job, job.call(flat), job.named(output)
        ctx.set_materialize_grads(False)
        ctx.gradient = found = open_gradient(job.op, call)
        ctx.way = job.in_torch(flat, job.rest.wanted) if found is None and job.op.plan.direction == "backward" else None
        if torch.autograd.forward_ad._current_level >= 0:
            ctx.save_for_forward(*flat)
        ctx.mark_non_differentiable(*undifferentiable(output))
        kept: dict[str, Any] = {}
        if found is not None and found.backward is not None:
            kept = {n: call.arrays[n] for n in found.kept_inputs(call)} | _tensors(call.scalars)
            kept |= {n: made[n] for n in found.kept_outputs(call)}
        ctx.kept, saved = flattened(kept)
        ctx.save_for_backward(*(flat if ctx.way is not None else saved))
        ctx.zeros = [(tuple(t.shape), t.dtype, t.device) for t in flat]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """The gradients of the tensors that need one."""
        job, gradient = ctx.job, ctx.gradient
        needs = ctx.needs_input_grad[1:]
        if gradient is None and job.op.plan.direction == "backward":
            return None, *_once_more(job, ctx.way, ctx.saved_tensors, needs, cotangents)
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
        """The results of every item along axis 0: of one call where the op has a batch, else one after the other."""
        made = _batched(job, info.batch_size, in_dims[1:], flat)
        made = mapped(partial(Transformed.apply, job), info, in_dims[1:], flat) if made is None else made
        return made, (0,) * len(made)

    @staticmethod
    def jvp(ctx: Any, *moves: Any) -> Any:
        """The changes of the results."""
        with torch.autograd.forward_ad._set_fwd_grad_enabled(True):  # of transformations around this one
            return _moved(ctx.job, ctx.gradient, ctx.way, ctx.saved_tensors, moves[1:])


def _batched(job: _Job, size: int, dims: Sequence[int | None], flat: Sequence[Any]) -> tuple[Any, ...] | None:
    """The results of all items by one call, or None where the op has no such problem."""
    if any(count is not None for _, count in (*job.layout, *job.results)) or not size:
        return None
    one = job.call([t if at is None else t.select(at, 0) for t, at in zip(flat, dims, strict=True)])
    desc = job.op.descriptor(one)
    found = wider(job.op, desc, one, {n for n, at in zip(job.names, dims, strict=True) if at is not None}, size)
    if found is None:
        return None
    all_of, shapes, attributes = found
    layouts = {s.name: s.layout for s in job.op.inputs}
    each = zip(job.names, dims, flat, strict=True)
    given = [arranged(t, at, shapes[n], size, layouts[n]) if n in shapes else t for n, at, t in each]
    source = job.source and source_of(job.source[0], all_of)
    call = dataclasses.replace(job.call(given), attributes=attributes)
    all_at_once, tensors = _Job.of(job.pulled, job.op, call, source)
    all_at_once.asked = job.asked
    made = all_at_once.named(Transformed.apply(all_at_once, *tensors))
    return tuple([made[s.name].reshape(size, *_size(s, desc, one)) for s in job.op.outputs if s.name in made])


def _size(spec: Any, desc: Any, call: OpCall) -> tuple[int, ...]:
    """The shape of an output."""
    like = call.arrays.get(spec.like) if spec.like else None
    return tuple(spec.shape(desc) if like is None else like.shape)


def _once_more(
    job: _Job, way: Decomposed | None, flat: Sequence[Any], needs: Sequence[bool], cotangents: Sequence[Any]
) -> list[Any]:
    """The gradients of a backward op, which has no backward op itself."""
    if way is None:
        raise once_only(job.op.name)
    places = [i for i, (name, need) in enumerate(zip(job.names, needs, strict=True)) if need and name in way.uses]
    ends = [i for i, one in enumerate(cotangents) if one is not None]
    found: dict[int, Any] = {}
    if places and ends and job.op.plan.op in _SYMMETRIC:
        found = {places[0]: _of(job, flat, {places[0]: cotangents[ends[0]]})}
    elif places and ends:
        with _by_torch(refusal := once_only(job.op.name)):
            _, pull = torch.func.vjp(job.through(way, flat, places, ends, refusal), *[flat[i] for i in places])
            found = dict(zip(places, pull(tuple([cotangents[i] for i in ends])), strict=True))
    return [found.get(i) for i in range(len(needs))]


def _moved(
    job: _Job, gradient: Gradient | None, way: Decomposed | None, flat: Sequence[Any], moves: Sequence[Any]
) -> tuple[Any, ...]:
    """The changes of a call's results where its tensors change by `moves`, None where one does not."""
    flat = [torch.autograd.forward_ad.unpack_dual(t).primal for t in flat]
    call = job.call(flat)
    desc = job.op.descriptor(call)
    names = [name for name, count in job.results for _ in range(1 if count is None else count)]
    exact = {s.name for s in job.op.outputs if s.elements(desc)[0].is_inexact}
    ends = [i for i, name in enumerate(names) if name in exact and name in job.followed(gradient)]
    places = [i for i, move in enumerate(moves) if move is not None]
    backward = job.op.plan.direction == "backward" and gradient is None
    for i in places:
        if ends and not backward and (gradient is None or job.names[i] not in gradient.grads):
            raise no_tangent(job.op.name, job.names[i])
    found: dict[int, Any] = {}
    if not ends or not places or (gradient is not None and gradient.backward is None):
        pass  # it is 0 wherever there is one
    elif gradient is not None and len(ends) == 1 and _is_elementwise(job, flat):
        found = {ends[0]: _slopes(job, gradient, call, desc, names[ends[0]], {i: moves[i] for i in places})}
    elif job.op.plan.op in _SYMMETRIC or (job.op.plan.op, _kind(desc)) in _LINEAR:
        still = {i: torch.zeros_like(t) for i, t in enumerate(flat) if gradient and job.names[i] in gradient.grads}
        found = {ends[0]: _of(job, flat, still | {i: moves[i] for i in places})}
    else:
        way = way or job.in_torch(flat, {names[i] for i in ends})
        if way is None:
            raise no_tangent(job.op.name, job.names[places[0]])
        used = [i for i in places if job.names[i] in way.uses]
        with _by_torch(refusal := no_tangent(job.op.name, job.names[places[0]])):
            run, primals = job.through(way, flat, used, ends, refusal), [flat[i] for i in used]
            made = tangents(run, primals, [moves[i] for i in used]) if used else ()
        found = dict(zip(ends, made, strict=False))
    own = [s for s in job.op.outputs if s.name in dict(job.results)]
    sizes = [(s, shape) for s in own for shape in (shapes_of(s, desc) if s.many else [_size(s, desc, call)])]
    for i, (spec, shape) in enumerate(sizes):
        if spec.name in exact and i not in found:  # it does not change, or is saved alone, where nothing asks for it
            found[i] = torch.zeros(shape, dtype=element_dtype(spec.elements(desc)[0]), device=flat[0].device)
    return tuple([found.get(i) for i in range(len(names))])


_SYMMETRIC = ("random.dropout_backward",)
"""Backward ops that are linear in a cotangent, and their own transposes."""
_LINEAR = (("indexing.index_put", "set"), ("indexing.scatter", "set"))
"""Ops, of a kind, that are linear in all floats together, and not in torch's words: of equal indices one is kept."""


def _kind(desc: Any) -> str:
    """The kind of a table op by its value."""
    return str(getattr(getattr(desc, "kind", None), "value", ""))


def _of(job: _Job, flat: Sequence[Any], others: Mapping[int, Any]) -> Any:
    """The one result of the op with other tensors in the place of some."""
    call = job.call([others.get(i, t) for i, t in enumerate(flat)])
    (made,) = transform(job.pulled, job.op, call, job.source).values()
    return made


@contextlib.contextmanager
def _by_torch(refusal: UnsupportedError) -> Iterator[None]:
    """A block in which torch differentiates, in the dtypes given; `refusal` is raised of what it does not."""
    try:
        with torch._C._DisableAutocast():
            yield
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise refusal from error


_ELEMENTWISE = (
    *(f"elementwise.{name}" for name in ("unary", "binary", "ternary", "special_function")),
    "random.dropout", "random.rrelu",
)  # fmt: skip


def _is_elementwise(job: _Job, flat: Sequence[Any]) -> bool:
    """Whether each element of the one result depends on one of each real operand: the backward op has the slopes."""
    plan = job.op.plan
    known = plan.op in _ELEMENTWISE or (plan.made and plan.op.startswith("elementwise."))
    return known and not any(t.is_complex() for t in flat)


def _slopes(job: _Job, gradient: Gradient, call: OpCall, desc: Any, name: str, moves: Mapping[int, Any]) -> Any:
    """The sum of what each operand's change makes of the output `name`: of what the backward op makes of the change."""
    (shape,) = shapes_of(next(s for s in job.op.outputs if s.name == name), desc)
    arrays = {n: t if t is None else t.expand(shape) for n, t in call.arrays.items()}
    total = None
    for at, change in moves.items():
        wanted, move = frozenset((job.names[at],)), {name: change.expand(shape)}
        found = job.pulled(gradient, arrays, {}, move, wanted, call.scalars, call.preference)[job.names[at]]
        total = found if total is None else total + found
    return total


def no_tangent(name: str, operand: str) -> UnsupportedError:
    """The error of a forward-mode derivative that there is none of."""
    return UnsupportedError(
        f"{operand}: it has a tangent, and {name} has no forward-mode derivative for it (torch.func.jvp, jacfwd, "
        "hessian); take a gradient where there is one (grad, vjp, jacrev), or give its .detach()"
    )
