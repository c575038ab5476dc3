"""How the states of a recurrence pass from rank to rank, where each rank has a part of the steps.

"prefix": each rank runs its steps from a state of 0, which says what they add; the product of their decays says how a
state goes through them: S' = P S + Δ. These pairs are gathered, and every rank folds those before its own, in the order
of ranks, and runs its steps again from what comes out. Two runs of a rank's steps in place of `size`, all ranks at
once; for recurrences whose decay is diagonal. "sequential": each rank waits for the state of the one before it: the
sums of one rank, one rank at a time. Gradients go the other way alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.arrays import read
from ..core.checked import shown
from ..core.errors import InvalidProblemError
from ..core.outputs import beside
from ..core.views import cut, reshaped, shape_of, with_axis
from ..ops.elementwise.binary_functions import add, mul
from ..ops.layout.creation import empty, zeros
from ..ops.layout.moves import copy
from .agreement import checked_communicator
from .collectives import all_gather, all_reduce, broadcast, receive, send

Options = dict[str, Any]
METHODS = ("prefix", "sequential")


class Recurrence(NamedTuple):
    """A rank's steps. States have one shape and element, those of `like`.

    run(first): (y, last state) from a first state, None for 0. back(first, dlast, alone): gradients by name, that of
    the first state `"first"`, and only that where alone. decay(): the product of the steps' decays, broadcast with
    states, None where nothing fades.
    """

    shape: tuple[int, ...]
    element: Any
    like: Any
    run: Callable[[Any], tuple[Any, Any]]
    back: Callable[[Any, Any, bool], dict[str, Any]]
    decay: Callable[[], Any]


def method_of(method: Any, comm: Any, diagonal: bool, what: str) -> str:
    """The method, checked."""
    checked_communicator(comm)
    if method is None:
        return METHODS[0] if diagonal else METHODS[1]
    if method not in METHODS:
        raise InvalidProblemError(f"method must be one of {list(METHODS)} or None, got {shown(method)}")
    if method == METHODS[0] and not diagonal:
        raise InvalidProblemError(f'method "prefix" takes decays that are diagonal, {what} has none; "sequential" does')
    return str(method)


def run(one: Recurrence, comm: Any, first: Any, method: str, options: Options) -> tuple[Any, Any, Any]:
    """(y, last state of this rank, the state that its steps began with); `first` is that of rank 0."""
    rank, size = comm.rank, comm.size
    first = zeros_of(one, options) if rank or first is None else copy(first, **options)
    if method == METHODS[1]:
        if rank:
            first = receive(empty_of(one, options), comm, rank - 1, stream=options["stream"])
        y, last = one.run(first)
        if rank + 1 < size:
            send(last, comm, rank + 1, stream=options["stream"])
        return y, last, first
    y, last = one.run(first) if rank + 1 < size or size == 1 else (None, first)
    if size > 1:
        entered = _folded(one, comm, last, range(rank), options)
        if entered is not None:
            first = entered
            y, last = one.run(first)
    return y, last, first


def back(one: Recurrence, comm: Any, first: Any, dlast: Any, method: str, options: Options) -> dict[str, Any]:
    """The gradients of a rank's operands; dlast is what reaches the last rank's last state, or None."""
    rank, size = comm.rank, comm.size
    if rank + 1 < size:
        dlast = None
    if method == METHODS[1]:
        if rank + 1 < size:
            dlast = receive(empty_of(one, options), comm, rank + 1, stream=options["stream"])
        made = one.back(first, dlast, False)
        if rank:
            send(made["first"], comm, rank - 1, stream=options["stream"])
        return made
    if size == 1:
        return one.back(first, dlast, False)
    last = rank + 1 == size
    found = one.back(first, dlast, not last) if rank else {}
    slope = found["first"] if rank else zeros_of(one, options)
    reached = _folded(one, comm, slope, range(size - 1, rank, -1), options)
    return found if last else one.back(first, reached, False)


def empty_of(one: Recurrence, options: Options) -> Any:
    """Memory for a state."""
    with beside(one.like, options["stream"]):
        return empty(one.shape, one.element, like=one.like)


def zeros_of(one: Recurrence, options: Options) -> Any:
    """A state of 0."""
    with beside(one.like, options["stream"]):
        return zeros(one.shape, one.element, like=one.like)


def _folded(one: Recurrence, comm: Any, state: Any, ranks: range, options: Options) -> Any:
    """States of ranks folded in an order, x = P x + Δ; None where there are none. Every rank takes part."""
    decay = one.decay()
    states = _gathered(state, comm, options)
    decays = None if decay is None else _gathered(decay, comm, options)
    made = None
    for rank in ranks:
        if made is None:
            made = states[rank]
        else:
            faded = made if decays is None else mul(made, decays[rank], **options)
            made = add(faded, states[rank], **options)
    return None if made is None else copy(made, **options)


def _gathered(x: Any, comm: Any, options: Options) -> list[Any]:
    """x of every rank, in views."""
    whole = all_gather(with_axis(copy(x, **options), 0, "state"), comm, stream=options["stream"])
    shape = shape_of(x, "state")
    return [reshaped(cut(whole, (slice(n, n + 1),), "state"), shape, "state") for n in range(comm.size)]


def from_last(last: Any, comm: Any, options: Options) -> Any:
    """The last rank's state, on every rank."""
    return last if comm.size == 1 else broadcast(last, comm, comm.size - 1, stream=options["stream"])


def to_last(one: Recurrence, slope: Any, comm: Any, options: Options) -> Any:
    """The gradient of what `from_last` gave to all, which all add up."""
    held = zeros_of(one, options) if slope is None else copy(slope, **options)
    return held if comm.size == 1 else all_reduce(held, comm, stream=options["stream"])


def element_of(x: Any) -> Any:
    """The element of states beside x."""
    return read(x, "x").element.acc
