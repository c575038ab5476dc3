"""One call in autograd's graph: a node for plain tensors, which costs a fraction of what torch.library adds to an op.

What a node does is prepared once for each kind of call (`Job`), and its backward pass once for each set of gradients
asked for (`Back`): a pass then makes results and launches, and looks nothing up but these.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ..calls.functional import FOLLOWS
from ..core import config
from ..core.args import arrays_of, scalars_of
from ..core.errors import InvalidProblemError, RecordedError
from ..core.execution import MISS
from ..core.outputs import channels_last
from .operation import Operation
from .prepared import Prepared, gathered, layout_of, spread, undifferentiable
from .schema import OpCall
from .untyped import torch
from .vjp import Gradient, Once, gradient_of, laid, lies_transposed, no_gradient

_grad, _modes = torch.is_grad_enabled, torch._C._len_torch_dispatch_stack
_forward_mode, _level = torch.autograd.forward_ad, torch._C._functorch.maybe_current_level
_RAW, _CHECK = config.raw("BARACUDA_CHECK")


def _watched() -> bool:
    """Whether something other than autograd follows what is done: a mode, forward mode, a transformation."""
    return bool(_modes()) or _forward_mode._current_level >= 0 or _level() is not None


def _facts(tensors: Sequence[Any]) -> list[Any]:
    """What of tensors a pass that was prepared for them relies on."""
    return [(t.shape, t.dtype, t.layout, t.device) for t in tensors]


Pulled = Callable[..., dict[str, Any]]


class Job:
    """What a node does with tensors of one kind: `call` is one such call; neither its tensors nor numbers are kept.

    pulled: what calls the backward op where a pass is itself recorded (`recording.pulled`). reads, numbers: the names
    that `apply` is given operands and numbers for. turned: operands that it gets with axes 1 and 2 exchanged, and not
    as `call` has them.
    """

    def __init__(
        self, pulled: Pulled, op: Operation, gradient: Gradient, call: OpCall, reads: Sequence[str],
        numbers: Sequence[str], turned: Sequence[str] = (), layouts: Any = None,
    ) -> None:  # fmt: skip
        self.gradient, self.preference, self.pulled = gradient, call.preference, pulled
        self.turned, self.layouts = tuple(turned), layouts
        kept = gradient.kept_outputs(call) if gradient.backward else ()
        own = layouts.views(call.arrays, turned) if turned else call.arrays
        self.forward = Prepared(op, own, call.attributes, call.wanted.union(kept), call.preference, turned, layouts)
        names, held = self.forward.names, [own.get(n) for n in self.forward.inputs]
        self.names = tuple(n for n in names if n in call.wanted)
        self.returned = None if self.names == names else [names.index(n) for n in self.names]
        self.apart: tuple[int, ...] | None = None  # of the results that have no gradient
        self.kept: list[Any] | None = None  # the facts of the tensors that are saved
        self.layout = layout_of(held)
        self.lists = any(n is not None and n >= 0 for n in self.layout)
        self._order(reads, numbers, call)
        self._keep(gradient.kept_inputs(call) if gradient.backward else (), kept)
        self.zeros = [None if t is None else (tuple(t.shape), t.dtype, t.device) for t in spread(held)]
        self.backs: dict[Any, Back | None] = {}

    def _order(self, reads: Sequence[str], numbers: Sequence[str], call: OpCall) -> None:
        """Where the plan's operands and numbers are among those given: `plain` if they are just these."""
        self.moved = [reads.index(n) if n in reads else None for n in self.forward.inputs]
        self.said = [numbers.index(n) if n in numbers else None for n in self.forward.numbers]
        values = [call.scalars.get(n) for n in self.forward.numbers]
        self.unsaid = [value if i is None else None for i, value in zip(self.said, values, strict=True)]
        self.ordered = self.moved == list(range(len(reads)))
        self.plain = self.ordered and not self.lists and self.said == list(range(len(numbers)))
        self.tensors = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]

    def _keep(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Which of the flat operands and of the results are saved, and where each is then."""
        sizes = [1 if n is None or n < 0 else n for n in self.layout]
        ends = list(itertools.accumulate(sizes, initial=0))
        self.places = {  # of each operand that is given among the flat ones
            n: range(start, start + size)
            for n, start, size, count in zip(self.forward.inputs, ends, sizes, self.layout, strict=False)
            if count is not None
        }
        self.inputs = [i for n in inputs for i in self.places[n]]
        self.outputs = [self.forward.names.index(n) for n in outputs]
        counts = [*(len(self.places[n]) for n in inputs), *(1 for _ in outputs)]
        starts = itertools.accumulate(counts, initial=0)
        self.saved = {n: slice(at, at + k) for n, at, k in zip((*inputs, *outputs), starts, counts, strict=False)}
        grads, backward = self.gradient.grads, self.gradient.backward
        matrices = [n for n in self.gradient.own_inputs if n in self.saved and n in grads and not self.turned]
        self.matrices = [(self.saved[n].start, grads[n]) for n in matrices if not self._many(n)]
        self.follows = FOLLOWS.get(backward.plan, "") if backward else ""

    def apply(self, numbers: Sequence[Any], *reads: Any) -> Any:
        """The outputs, as a functional entry returns them, in autograd's graph; MISS where more than that is wanted."""
        if not _grad() or _watched():
            return MISS
        return _apply(self, numbers, *reads) if self.plain else self.node(numbers, reads)

    def node(self, numbers: Sequence[Any], reads: Sequence[Any]) -> Any:
        """The outputs, in autograd's graph."""
        given = reads if self.ordered else [None if i is None else reads[i] for i in self.moved]
        said = [rest if i is None else numbers[i] for i, rest in zip(self.said, self.unsaid, strict=True)]
        return _apply(self, tuple(said), *spread(given))

    def pull(self, ctx: Any, cotangents: tuple[Any, ...]) -> list[Any]:
        """The gradients of the flat operands that need one."""
        needs = ctx.needs_input_grad[2:]
        if all(c is None for c in cotangents):
            return [None] * len(needs)
        if self.gradient.backward is None:
            found = zip(self.zeros, needs, strict=True)
            return [torch.zeros(f[0], dtype=f[1], device=f[2]) if f and need else None for f, need in found]
        saved, numbers = ctx.saved_tensors, ctx.numbers
        if self.tensors:
            numbers, kept = list(numbers), len(saved) - len(self.tensors)
            for i, value in zip(self.tensors, saved[kept:], strict=True):
                numbers[i] = value
            saved = saved[:kept]
        if not _grad() and not _watched():
            if _facts(saved) != self.kept:
                raise self._replaced(_facts(saved))
            flipped = tuple([result for at, result in self.matrices if lies_transposed(saved[at])])
            arrived = tuple([c is not None and c.layout for c in cotangents])
            key: Any = needs, arrived, self._last(saved, cotangents), flipped, _RAW(_CHECK)
            back = self.backs.get(key)
            if back is None and key not in self.backs:
                back = self.backs[key] = Back.of(self, needs, saved, cotangents, flipped)
            if back is not None:
                try:
                    return back(saved, cotangents, numbers)
                except RecordedError:  # of cotangents that are more than memory
                    pass
        return self._pulled(needs, saved, cotangents, numbers)

    def _replaced(self, facts: list[Any]) -> InvalidProblemError:
        """The error of saved tensors that are others now: by hooks that unpack them, or by an assignment to `.data`."""
        was, now = next((a, b) for a, b in zip(self.kept or (), facts, strict=True) if a != b)
        said = [f"{dtype} of shape {tuple(shape)} ({layout}, {device})" for shape, dtype, layout, device in (was, now)]
        return InvalidProblemError(
            f"{self.gradient.forward.name}: what it saved for its gradient was {said[0]} and is {said[1]} now; hooks "
            "of saved tensors must give back what they were given"
        )

    def _last(self, saved: Sequence[Any], cotangents: Sequence[Any]) -> bool:
        """Whether what the backward op's results follow in memory has its channels last."""
        if not self.follows:
            return False
        at = self.saved.get(self.follows)
        value = saved[at.start] if at else cotangents[self.names.index(self.follows.removeprefix("d"))]
        return value is not None and channels_last(value)

    def _pulled(self, needs: Any, saved: Any, cotangents: Any, numbers: Any) -> list[Any]:
        """The same where the pass is traced, transformed or itself recorded."""
        wanted = self.wanted(needs)
        held = {n: list(saved[at]) if self._many(n) else saved[at.start] for n, at in self.saved.items()}
        arrived = dict(zip(self.names, cotangents, strict=True))
        if self.turned:
            held, arrived = (self.layouts.views(one, self.turned) for one in (held, arrived))
        scalars = dict(zip(self.forward.numbers, numbers, strict=True))
        inputs = {n: held[n] for n in held if n in self.places}
        outputs = {n: held[n] for n in held if n not in self.places}
        if _grad():
            outputs = self._apart(outputs, [t for t in (*saved, *cotangents) if t is not None and t.requires_grad])
        found = self.pulled(self.gradient, inputs, outputs, arrived, wanted, scalars, self.preference)
        found = self.layouts.views(found, self.turned) if self.turned else found
        each = zip(self.forward.inputs, self.layout, strict=True)
        return spread([found.get(n) or [None] * (c or 0) if self._many(n) else found.get(n) for n, c in each])

    def _apart(self, outputs: dict[str, Any], grown: list[Any]) -> dict[str, Any]:
        """Outputs that were saved; those that nobody was given, to which no gradient comes back, refuse one."""
        name = self.gradient.forward.name
        apart = [n for n in outputs if n not in self.names and outputs[n].is_floating_point()] if grown else []
        return outputs | {n: Once.apply(f"{name}, of what it saves as {n},", outputs[n], *grown) for n in apart}

    def _many(self, name: str) -> bool:
        """Whether an operand is a list."""
        return name in self.places and bool(self.lists) and (self.layout[self.forward.inputs.index(name)] or 0) >= 0

    def wanted(self, needs: Sequence[bool]) -> frozenset[str]:
        """The operands of which a gradient is asked for."""
        each = zip(self.forward.inputs, gathered(self.layout, needs), strict=True)
        return frozenset(n for n, need in each if need is True or (need and any(need)))


class Back:
    """The backward op of a job for one set of gradients."""

    def __init__(self, prepared: Prepared, sources: list[Any], numbers: list[int], results: list[Any]) -> None:
        self.prepared, self.sources, self.numbers, self.results = prepared, sources, numbers, results

    @staticmethod
    def of(
        job: Job, needs: Any, saved: Sequence[Any], cotangents: Sequence[Any], flipped: Sequence[str]
    ) -> Back | None:
        """That of tensors like these; None where it cannot be told from them alone."""
        gradient, pool = job.gradient, (*saved, *cotangents)
        backward, wanted = gradient.backward, job.wanted(needs)
        arrived = {n: len(saved) + i for i, n in enumerate(job.names) if cotangents[i] is not None}
        if backward is None or not arrived or not wanted or not set(arrived) <= gradient.through:
            return None
        if any(job._many(n) for n in (*job.saved, *wanted)):
            return None
        places: dict[str, tuple[int, bool, str]] = {}
        turned = [gradient.grads[n] for n in job.turned if n in gradient.grads]
        for read in gradient.reads:
            names = [read.cotangent] if read.cotangent else [read.output, read.name if read.input else None]
            table = arrived if read.cotangent else {n: at.start for n, at in job.saved.items()}
            name = next((n for n in names if n in table), None)
            if name is not None:
                places[read.name] = table[name], bool(read.cotangent), read.layout
                turned += [read.name] if name in job.turned else []
            elif read.required:
                return None
        arrays = {n: pool[at] for n, (at, _, _) in places.items()}
        results = gradient.results(wanted, arrays)
        if any(t.is_conj() or t.is_neg() for t in arrays.values()):
            arrays = {n: t.resolve_conj().resolve_neg() for n, t in arrays.items()}
        prepared = Prepared(
            backward, arrays, gradient.attributes, results, job.preference, turned, job.layouts, flipped
        )
        if not set(prepared.numbers) <= set(job.forward.numbers):
            return None
        at = {n: i for i, n in enumerate(prepared.names)}
        return Back(
            prepared,
            [places.get(n) for n in prepared.inputs],
            [job.forward.numbers.index(n) for n in prepared.numbers],
            [at.get(gradient.grads[n]) if n in wanted else None for n in job.forward.inputs],
        )

    def __call__(self, saved: Sequence[Any], cotangents: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        pool = (*saved, *cotangents)
        given: list[Any] = []
        for source in self.sources:
            if source is None:
                given.append(None)
                continue
            at, arrived, layout = source
            value = pool[at]
            if arrived and (value.is_conj() or value.is_neg()):
                value = value.resolve_conj().resolve_neg()
            given.append(value if layout == "any" else laid(value, layout))
        made = self.prepared(given, [numbers[i] for i in self.numbers])
        return [None if i is None else made[i] for i in self.results]


class Node(torch.autograd.Function):  # type: ignore[misc]
    """One call in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, job: Job, numbers: Sequence[Any], *flat: Any) -> Any:
        """The outputs; what the backward op reads is kept."""
        made = job.forward(gathered(job.layout, flat) if job.lists else flat, numbers)
        ctx.job = job
        ctx.numbers = [None if i in job.tensors else n for i, n in enumerate(numbers)] if job.tensors else numbers
        ctx.set_materialize_grads(False)
        if job.gradient.backward is not None:
            saved = [*[flat[i] for i in job.inputs], *[made[i] for i in job.outputs]]
            ctx.save_for_backward(*saved, *[numbers[i] for i in job.tensors])
            if job.kept is None:
                job.kept = _facts(saved)
        results = made if job.returned is None else tuple([made[i] for i in job.returned])
        if job.apart is None:
            apart = undifferentiable(results)
            job.apart = tuple(i for i, t in enumerate(results) if any(t is one for one in apart))
        if job.apart:
            ctx.mark_non_differentiable(*[results[i] for i in job.apart])
        return results if len(results) > 1 else results[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """The gradients of those tensors that need one."""
        return None, None, *ctx.job.pull(ctx, cotangents)


_apply = super(torch.autograd.Function, Node).apply  # without a look for transformations, which `_watched` has had


def job_of(
    pulled: Pulled, op: Operation, call: OpCall, reads: Sequence[str], numbers: Sequence[str], turned: Sequence[str],
    layouts: Any,
) -> Job:  # fmt: skip
    """What a node does with a call on plain tensors."""
    gradient = gradient_of(op, op.descriptor(call))
    if gradient is None:
        raise no_gradient(op.name, next(n for n, value in call.arrays.items() if value is not None))
    return Job(pulled, op, gradient, call, reads, numbers, turned, layouts)


def record(pulled: Pulled, op: Operation, call: OpCall) -> dict[str, Any]:
    """A call on plain tensors as a node; the outputs by name."""
    names = [s.name for s in arrays_of(op.plan.args) if s.reads]
    job = job_of(pulled, op, call, names, [s.name for s in scalars_of(op.plan.args)], (), None)
    made = job.node(job.forward.defaulted(call.scalars), [call.arrays.get(n) for n in names])
    return dict(zip(job.names, made if len(job.names) > 1 else (made,), strict=True))
