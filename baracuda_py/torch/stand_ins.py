"""What stands for the results of a call in a trace, whose sizes may be symbols of torch.

Descriptors hold numbers. So a call with symbols is solved twice, with two sets of numbers in their place; what is equal
in both is a constant, and what is the number of an operand's axis in both is that axis. Anything else, or a problem
that these numbers do not make, and the symbols are settled: torch then traces again for other sizes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ..calls.functional import FOLLOWS
from ..core.arrays import read
from ..core.device import resolve_device
from ..core.dispatch import read_args
from ..core.errors import BaracudaError, DeviceMismatchError
from ..core.outputs import channels_last
from ..core.tensor import TensorRef
from ..interop.torch_rules import settled
from .operation import Operation, element_dtype, empty, lead_of, shapes_of
from .schema import OpCall
from .untyped import torch

_PRIMES = ((101, 103, 107, 109, 113, 127, 131, 137), (151, 157, 163, 167, 173, 179, 181, 191))
_STEP = 16  # of the numbers, so that halves and tiles come out even


class _Closed(Exception):
    """A size that is neither a constant nor an axis of an operand."""


@dataclasses.dataclass
class Described:
    """A call's descriptor, of numbers; `sizes(f)` is f(descriptor) with the trace's symbols in their place.

    number: what stands for a symbol in the descriptor.
    """

    call: OpCall
    desc: Any
    sizes: Callable[[Callable[[Any], Any]], Any]
    number: Callable[[Any], int]


def described(op: Operation, call: OpCall, *needs: Callable[[Any], Any]) -> Described:
    """The descriptor of a call, whose sizes may be symbols; `needs` are what else is asked `sizes` of."""
    symbols = list(_symbols([*_shapes(call), *call.attributes.values()]))
    for alike in (False, True) if symbols else ():
        try:
            return _open(op, call, symbols, alike, needs)
        except (BaracudaError, _Closed):
            continue
    if symbols:
        attributes = {n: settled(value) for n, value in call.attributes.items()}
        call = dataclasses.replace(call, attributes=attributes)
    desc = op.descriptor(call, int)
    _check(op, call, desc, int)
    return Described(call, desc, lambda f: f(desc), int)


def _open(op: Operation, call: OpCall, symbols: list[Any], alike: bool, needs: Iterable[Any]) -> Described:
    """With a number for each symbol, or, `alike`, for each size that symbols have now: then they must stay equal."""
    free = sorted({s for one in symbols for s in one.node.expr.free_symbols}, key=str)
    whole = {one.node.expr: one for one in symbols if one.node.expr in free}
    groups = {s: whole[s].node.hint if alike and s in whole else str(s) for s in free}
    places = {group: i for i, group in enumerate(dict.fromkeys(groups.values()))}
    if len(places) > len(_PRIMES[0]) or (alike and len(places) == len(free)):
        raise _Closed
    trials = [{s: _STEP * primes[places[groups[s]]] for s in free} for primes in _PRIMES]

    def number(size: Any, trial: int = 0) -> int:
        return _trial(size, trials[trial])

    axes = {(number(one), number(one, 1)): one for one in reversed(symbols)}
    first, second = op.descriptor(call, number), op.descriptor(call, partial(number, trial=1))
    _check(op, call, first, number)

    def sizes(f: Callable[[Any], Any]) -> Any:
        return _lifted(f(first), f(second), axes)

    shapes = [partial(shapes_of, s) for s in op.outputs if s.name in call.wanted and not s.like]
    for f in (*shapes, *needs):
        sizes(f)  # raises where they are not open
    for s in free:
        other = next(t for t in free if groups[t] == groups[s])
        if s is not other and not whole[s] == whole[other]:  # which the trace then holds to
            raise _Closed
    return Described(call, first, sizes, number)


def _trial(size: Any, numbers: Any) -> int:
    """A size with numbers for the symbols in it."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    found = size.node.expr.subs(numbers)
    if found.free_symbols:
        raise _Closed
    return int(found)


def _check(op: Operation, call: OpCall, desc: Any, number: Callable[[Any], int]) -> None:
    """Raise what a call on memory would: operands of the wrong shape, element or layout, or on several devices."""
    lead, place = lead_of(op, call), 0

    def ref(shape: Any, strides: Any, element: Any) -> TensorRef:
        nonlocal place
        place += 1  # each has memory of its own
        return TensorRef(place << 42, shape, strides, element, device=-1)

    def elsewhere(name: str, tensor: Any) -> DeviceMismatchError:
        return DeviceMismatchError(f"{name} is on {tensor.device}, others are on {lead.device}; copy it there")

    def operand(name: str, tensor: Any) -> TensorRef:
        if tensor.device != lead.device:
            raise elsewhere(name, tensor)
        got = read(tensor, name)
        shape = tuple([number(n) for n in got.shape])
        return ref(shape, _strides(shape, got.strides, number), got.element)

    held: dict[str, Any] = {}
    for name, value in call.arrays.items():
        many = isinstance(value, (list, tuple))
        held[name] = None if value is None else [operand(name, t) for t in value] if many else operand(name, value)
    for spec in op.outputs:
        if spec.name in call.wanted:
            like = held.get(spec.like) if spec.like else None
            shapes = shapes_of(spec, desc) if like is None else [like.shape]
            element = spec.elements(desc)[0] if like is None else like.element
            made = [ref(shape, None, element) for shape in shapes]
            held[spec.name] = made if spec.many else made[0]
    for name, value in call.scalars.items():
        if isinstance(value, torch.Tensor) and value.device.type == "meta" != lead.device.type:
            raise elsewhere(name, value)  # whose number nobody has; one of the host may be read for any device
    numbers = {n: 0 if isinstance(value, torch.Tensor) else value for n, value in call.scalars.items()}
    absent = {s.name: None for s in op.outputs if s.name not in held}
    read_args(op.plan, desc, resolve_device("cpu"), op.plan.args(**{**held, **absent, **numbers}))


def _strides(shape: tuple[int, ...], strides: Sequence[Any], number: Callable[[Any], int]) -> tuple[int, ...]:
    """An operand's strides as numbers.

    A view of a wider tensor steps by symbols that are in no shape, and of which nothing is known but their order: such
    steps become ones that keep it, with room between the rows.
    """
    try:
        return tuple([number(step) for step in strides])
    except _Closed:
        pass
    found, span = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda axis: _hint(strides[axis])):
        step = strides[axis]
        found[axis] = -(-span // _STEP + 1) * _STEP if isinstance(step, torch.SymInt) else int(step)
        span = max(span, 1 + sum((n - 1) * abs(one) for n, one in zip(shape, found, strict=True) if n))
    return tuple(found)


def _hint(step: Any) -> float:
    """The number that a stride has now, where it is known."""
    known = step.node.hint if isinstance(step, torch.SymInt) else step
    return math.inf if known is None else float(known)


def _lifted(a: Any, b: Any, axes: dict[tuple[int, int], Any]) -> Any:
    if isinstance(a, (list, tuple)) and type(a) is type(b) and len(a) == len(b):
        return type(a)([_lifted(x, y, axes) for x, y in zip(a, b, strict=True)])
    if isinstance(a, dict) and a.keys() == b.keys():
        return {key: _lifted(value, b[key], axes) for key, value in a.items()}
    if a == b:
        return a
    if isinstance(a, int) and isinstance(b, int) and (a, b) in axes:
        return axes[a, b]
    raise _Closed


def _shapes(call: OpCall) -> Iterator[Any]:
    for value in call.arrays.values():
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if tensor is not None:
                yield tuple(tensor.shape)


def _symbols(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.SymInt):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _symbols(value)


# -- stand-ins -------------------------------------------------------------------------------------------------------


def stand_ins(op: Operation, call: OpCall) -> Any:
    """What torch's op returns, without values; raises what a call on memory would."""
    known = described(op, call)
    follows = FOLLOWS.get(op.plan, "")
    last = bool(follows) and channels_last(call.arrays[follows])
    device = lead_of(op, call).device
    made: dict[str, Any] = {}
    for spec in op.outputs:
        if spec.name not in call.wanted:
            continue
        like = call.arrays.get(spec.like) if spec.like else None
        if like is not None:
            made[spec.name] = empty(tuple(like.shape), like.dtype, device, False, last)
            continue
        dtype = element_dtype(spec.elements(known.desc)[0])
        shapes = known.sizes(partial(shapes_of, spec))
        each = [empty(shape, dtype, device, spec.name in call.swapped, last) for shape in shapes]
        made[spec.name] = each if spec.many else each[0]
    return op.listed(call, made)
