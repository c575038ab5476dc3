"""`bind`: a call with everything fixed, and nothing of one call shared with another that may run beside it.

A workspace of its own, and an array that another package has ordered after one stream, are good for that stream alone,
and a workspace for one thread, since a second could launch between two kernels that pass something on through it. So
each stream and thread has its own, made at its first call there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from threading import get_ident
from typing import Any, NamedTuple

from ...core.args import Args
from ...core.intake import stream_pointer, torch_written
from ...interop.packages import package_name
from .intake import flatten, torch_names
from .prepared import Layouts


class Fixed(NamedTuple):
    """The launches of a bound call, and what they hold: arrays handed over by other packages, memory of their own."""

    calls: list[Callable[[int], None]]
    held: list[Any]
    memory: Any


def bound(runner: Layouts, args: Args, workspace: Any, stream: Any) -> Callable[[], None]:
    """See `Plan.bind`."""
    torch = any(package_name(type(a)) == "torch" for a in runner.given(args))
    if stream is None:
        current = runner.current(args)
        first = _fix(runner, args, workspace, current())
    else:
        at = stream_pointer(stream)
        current = lambda: at  # noqa: E731
        first = _fix(runner, args, workspace, at)
        runner.record_stream(args, workspace, at)
    if first.held or first.memory is not None:
        call = _by_stream(runner, args, workspace, current, first)
    elif len(first.calls) == 1:
        call = _single(first.calls[0], current, (args, workspace))
    else:
        call = _all(first.calls, current, (args, workspace))
    if torch:
        call = _watched(runner, args, call)
    return partial(runner.there, call) if runner.several else call


def _fix(runner: Layouts, args: Args, workspace: Any, at: int) -> Fixed:
    """Read the operands under the stream, and fill the launches in."""
    held, refs, workspace = runner.read_on(at, args, workspace)
    prepared, _ = runner.ready(refs)
    memory = None
    if prepared.workspace:
        memory = runner.workspace(workspace, prepared.workspace, at, runner.package(args))
    flat, values = flatten(runner.plan, refs, 0 if memory is None else memory.ptr, runner.ordinal)
    return Fixed([step.fixed(flat, values) for step in prepared.steps], held, None if workspace is not None else memory)


def _single(launch: Callable[[int], None], current: Callable[[], int], keep: Any) -> Callable[[], None]:
    def call(_keep: Any = keep) -> None:
        launch(current())

    return call


def _all(launches: list[Callable[[int], None]], current: Callable[[], int], keep: Any) -> Callable[[], None]:
    def call(_keep: Any = keep) -> None:
        where = current()
        for launch in launches:
            launch(where)

    return call


def _by_stream(
    runner: Layouts, args: Args, workspace: Any, current: Callable[[], int], first: Fixed
) -> Callable[[], None]:
    made = {(current(), get_ident()): first}

    def call() -> None:
        where = current()
        fixed = made.get(key := (where, get_ident()))
        if fixed is None:
            fixed = made[key] = _fix(runner, args, workspace, where)
        for launch in fixed.calls:
            launch(where)
        if fixed.held:
            runner.runtime.keep(where, fixed.held)

    return call


def _watched(runner: Layouts, args: Args, call: Callable[[], None]) -> Callable[[], None]:
    """What torch must be asked before each call and told after it."""
    names, written = torch_names(), torch_written(args)
    tensors = [a for a in runner.given(args) if package_name(type(a)) == "torch"]
    grad, increment, wants_grad = names["GRAD"], names["INCREMENT"], attrgetter("requires_grad")

    def watched() -> None:
        if grad() and any(map(wants_grad, tensors)):
            runner.overlap(args)
        call()
        increment(written)

    return watched
