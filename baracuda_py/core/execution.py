"""What runs a plan, or a captured function: small protocols, and who keeps them for each kind of device.

A plan declares and chooses; it hands `run`, `prepare` and `bind` to its runner. Runners know plans, plans know only
this protocol: the table names them, and one is imported when a first plan of its kind of device is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from .args import Args
from .device import Device
from .memo import memo

Makers: TypeAlias = "tuple[Callable[[], Any], ...]"
"""A maker for each declared output of a functional call; `nothing` for those that are not wanted."""

Views: TypeAlias = "Callable[[Mapping[str, Any]], dict[str, Any]] | None"

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


class Again(Protocol):
    """Calls of a plan of lists whose arrays lie as those of an earlier call did."""

    def run(self, lists: Mapping[str, Sequence[Any]], numbers: Mapping[str, Any], kept: Collection[str] = ()) -> bool:
        """Run on the current stream; False where these lists are otherwise, and nothing is done.

        kept: lists of the very arrays of an earlier call.
        """


class Runner(Protocol):
    """Runs one plan on one device. All raise the typed error of `Plan.can_implement` before anything is written."""

    def prepare(self, args: Args) -> None:
        """Make ready whatever `run(args)` needs, without running."""

    def run(self, args: Args, workspace: Any = None, stream: Any = None) -> None:
        """Run; may put code made for these arguments in the place of `plan.run`."""

    def run_refs(self, args: Args, workspace: Any, stream: int | None) -> None:
        """Run where every array, and the workspace if one is given, is a TensorRef; on a stream's pointer."""

    def bind(self, args: Args, workspace: Any = None, stream: Any = None) -> Callable[[], None]:
        """A callable with everything fixed."""

    def direct(self, makers: Makers, lead: Any, views: Views = None) -> Direct | None:
        """A short path for functional calls whose first array is like `lead`, where there is one.

        views: where calls come with arrays of another layout, what makes the plan's operands of them.
        """

    def again(self, args: Args) -> Again | None:
        """What runs calls like this one, all of lists, without a look at each array, where there is such a thing."""


class Replay(Protocol):
    """A function that was run `warmup` times at least, made ready to run again: what `graph` keeps."""

    outputs: Any

    @property
    def memory(self) -> int:
        """Bytes of a memory pool of its own."""

    def replay(self, stream: Any) -> Any:
        """Run again, on the current stream where it is None; returns `outputs`, rewritten."""


RUNNERS = {  # kind of device → "module:class", called with the plan
    "cuda": "baracuda_py.backends.cuda.runner:CudaRunner",
    "cpu": "baracuda_py.backends.numpy:NumpyRunner",
}


GRAPHS = {  # kind of device → "module:class", called with a function, the device and the number of warm-up calls
    "cuda": "baracuda_py.backends.cuda.graph:CudaGraph",
    "cpu": "baracuda_py.backends.numpy:NumpyGraph",
}


@memo()
def runner_for(kind: str) -> Callable[[Any], Runner]:
    """What makes a plan's runner for a kind of device."""
    return _named(RUNNERS[kind])  # type: ignore[no-any-return]


@memo()
def graph_for(kind: str) -> Callable[[Callable[[], Any], Device, int], Replay]:
    """What captures a function for a kind of device."""
    return _named(GRAPHS[kind])  # type: ignore[no-any-return]


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
