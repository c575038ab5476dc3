"""A plan's launch for tensors of one signature: outputs are made and written without a look at what was asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..calls.call import resolve
from ..calls.functional import FOLLOWS
from ..core.args import arrays_of, scalars_of
from ..core.execution import MISS, nothing
from .operation import Operation
from .untyped import torch


class Prepared:
    """Called with the plan's inputs, as it declares them, and its numbers; returns the outputs wanted, in order.

    arrays: tensors like those of the calls, by name, which are not kept; those `turned` come with axes 1 and 2
    exchanged, and so do results of these names (`layouts` says how). flipped: the results that lie transposed.
    """

    def __init__(
        self, op: Operation, arrays: Mapping[str, Any], attributes: Mapping[str, Any], wanted: frozenset[str],
        preference: Any, turned: Sequence[str] = (), layouts: Any = None, flipped: Sequence[str] = (),
    ) -> None:  # fmt: skip
        specs = arrays_of(op.plan.args)
        flags = {s.name: s.name in wanted for s in op.outputs if s.optional}
        views = layouts.views(arrays, turned) if turned else arrays
        follows = FOLLOWS.get(op.plan, "")
        self.resolved = resolve(op.plan, views, attributes, flags, preference, follows, turned, layouts)
        if flipped:
            self._flip(flipped, next(a for a in spread(arrays.values()) if a is not None))
        self.inputs = tuple(s.name for s in specs if s.reads)
        self.numbers = tuple(s.name for s in scalars_of(op.plan.args))
        self.outputs = tuple(s.name for s in specs if s.role == "out")
        self.names = self.resolved.names
        self.several = len(self.names) > 1
        self.direct = self.resolved.direct

    def _flip(self, names: Sequence[str], lead: Any) -> None:
        """Have results made with their last two axes exchanged in memory."""
        found, outputs = self.resolved, [s.name for s in arrays_of(self.resolved.plan.args) if s.role == "out"]
        each = zip(outputs, found.makers, strict=True)
        found.makers = tuple(
            [partial(_transposed, make) if n in names and make is not nothing else make for n, make in each]
        )
        found.direct = found.plan.runner.direct(found.makers, lead)

    def __call__(self, arrays: Sequence[Any], numbers: Sequence[Any]) -> tuple[Any, ...]:
        made = MISS if self.direct is None else self.direct.call(*arrays, *numbers)
        if made is MISS:
            return self._run(arrays, numbers)
        return made if self.several else (made,)

    def _run(self, arrays: Sequence[Any], numbers: Sequence[Any]) -> tuple[Any, ...]:
        found = self.resolved
        made = [make() for make in found.makers]
        held = {**dict(zip(self.inputs, arrays, strict=True)), **dict(zip(self.outputs, made, strict=True))}
        found.plan.run(found.args(**held, **dict(zip(self.numbers, numbers, strict=True))), None, None)
        if found.direct is not None:
            found.direct.learn(held)
        return tuple([value for value, make in zip(made, found.makers, strict=True) if make is not nothing])

    def defaulted(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """The plan's numbers in order, those that are not given being what its declaration says."""
        fields = {f.name: f.default for f in dataclasses.fields(self.resolved.plan.args)}
        return tuple([given.get(name, fields[name]) for name in self.numbers])


def _transposed(make: Callable[[], Any]) -> Any:
    """An output whose last two axes are exchanged in memory."""
    made = make()
    *batch, rows, columns = made.shape
    return made.view(*batch, columns, rows).transpose(-1, -2)


Layout = tuple["int | None", ...]  # how many tensors each operand is: a list's, -1 for one, None for none


def layout_of(values: Iterable[Any]) -> Layout:
    """What tells how operands were flattened."""
    return tuple([None if v is None else len(v) if isinstance(v, (list, tuple)) else -1 for v in values])


def spread(values: Iterable[Any]) -> list[Any]:
    """Tensors of operands, lists among them, one after the other; None stands for one that is absent."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found.extend(value)
        else:
            found.append(value)
    return found


def gathered(layout: Layout, flat: Iterable[Any]) -> list[Any]:
    """The reverse of `spread`."""
    items: Iterator[Any] = iter(flat)
    return [next(items) if n is None or n < 0 else [next(items) for _ in range(n)] for n in layout]


def undifferentiable(tensors: Iterable[Any]) -> list[Any]:
    """Those whose dtype has no gradient."""
    return [t for t in tensors if isinstance(t, torch.Tensor) and not (t.is_floating_point() or t.is_complex())]
