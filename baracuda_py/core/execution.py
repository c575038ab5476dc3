"""What runs a plan: one small protocol, and who keeps it for each kind of device.

A plan declares and chooses; it hands `run`, `prepare` and `bind` to its runner. Runners know plans, plans know only
this protocol: the table names them, and one is imported when a first plan of its kind of device is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from .args import Args
from .memo import memo

Makers: TypeAlias = "tuple[Callable[[], Any], ...]"
"""A maker for each declared output of a functional call; `nothing` for those that are not wanted."""

MISS: Any = object()
"""What a `Direct` answers where the call has to go through `run`."""


def nothing() -> None:
    """The maker of an output that is not wanted."""


class Direct(Protocol):
    """A short path of one functional entry: outputs made and launched without Args."""

    @property
    def call(self) -> Callable[..., Any]:
        """Takes the inputs and scalars in order; returns the outputs, or MISS."""

    def learn(self, arrays: Mapping[str, Any]) -> None:
        """Remember the call that `run` has just served."""


class Runner(Protocol):
    """Runs one plan on one device. All raise the typed error of `Plan.can_implement` before anything is written."""

    def prepare(self, args: Args) -> None:
        """Make ready whatever `run(args)` needs, without running."""

    def run(self, args: Args, workspace: Any = None, stream: Any = None) -> None:
        """Run; may put code made for these arguments in the place of `plan.run`."""

    def bind(self, args: Args, workspace: Any = None, stream: Any = None) -> Callable[[], None]:
        """A callable with everything fixed."""

    def direct(self, makers: Makers, lead: Any) -> Direct | None:
        """A short path for functional calls whose first array is like `lead`, where there is one."""


RUNNERS = {  # kind of device → "module:class", called with the plan
    "cuda": "baracuda_py.backends.cuda.runner:CudaRunner",
    "cpu": "baracuda_py.backends.numpy:NumpyRunner",
}


@memo()
def runner_for(kind: str) -> Callable[[Any], Runner]:
    """What makes a plan's runner for a kind of device."""
    module, _, name = RUNNERS[kind].partition(":")
    return getattr(import_module(module), name)  # type: ignore[no-any-return]
