"""Gradients of collectives, of the sum of all ranks' losses: each is a collective, which every rank calls in turn."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..calls.composed import may_grow, recording
from ..calls.interpreters import Composed
from ..core.errors import UnsupportedError
from ..core.registry import public
from ..interop.dynamo import uncompiled
from ..interop.jax_arrays import staged
from .communicator import Communicator

F = TypeVar("F", bound=Callable[..., Any])


GRAPH = "other ranks take part in a collective, which a graph does not know; it is called between compiled parts"


def recorded(backward: Callable[..., Any], operand: str, where: Callable[[dict[str, Any]], bool]) -> Callable[[F], F]:
    """Marks a collective whose gradient `backward(dy, …)` makes, where `where` tells by the arguments that it has one.

    As `calls.composed` does for functions of one device; autocast leaves what ranks exchange as it is, and
    torch.compile's graph ends there.
    """

    def mark(function: F) -> F:
        shown = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            noted = recording(shown, args, given)
            if noted is not None and where(noted[1]):
                return noted[0].compose(Composed(function, backward, noted[1], (operand,), False, ()))
            return function(*args, **given)

        return uncompiled(GRAPH)(call)  # type: ignore[return-value]

    return mark


def _of(name: str) -> Callable[..., Any]:
    """A collective, which stands above this module."""
    return getattr(public("distributed"), name)  # type: ignore[no-any-return]


def _plain(given: dict[str, Any]) -> None:
    if staged([value for value in given.values() if not isinstance(value, Communicator)]):
        raise UnsupportedError(
            "a collective takes no stand-ins of JAX (jit, grad, vmap): inside shard_map lax.psum and its relatives do "
            "this; outside give arrays"
        )


def grows(x: Any) -> bool:
    """Whether torch records what is done with a tensor."""
    return may_grow(x) and bool(sys.modules["torch"].is_grad_enabled())


def has_one(given: dict[str, Any]) -> bool:
    """Whether a call has a gradient: of the reductions, sum and mean have."""
    _plain(given)
    if getattr(given.get("op"), "value", given.get("op", "sum")) in ("sum", "mean"):
        return True
    if grows(given["x"]):
        raise UnsupportedError(f"op {given['op']} has no gradient over ranks, only sum and mean have; detach x")
    return False


def refused(name: str) -> Callable[[dict[str, Any]], bool]:
    """For a collective without a gradient."""

    def tell(given: dict[str, Any]) -> bool:
        _plain(given)
        if grows(given["like" if name == "receive" else "x"]):
            instead = "all_reduce" if name == "reduce" else "permute"
            raise UnsupportedError(f"{name} has no gradient, {instead} has one; or detach the operand")
        return False

    return tell


def none(dy: Any, **given: Any) -> Any:
    """Never called: what has no gradient is refused before."""
    raise UnsupportedError("no gradient")


def all_reduce(dy: Any, x: Any, comm: Communicator, op: Any, preference: Any = None, **_: Any) -> Any:
    """dx = the same reduction of the ranks' dy."""
    return _of("all_reduce")(dy, comm, op, preference=preference)


def reduce_scatter(dy: Any, x: Any, comm: Communicator, op: Any, axis: int, preference: Any = None, **_: Any) -> Any:
    """dx = the pieces of dy of all ranks, over their number for the mean."""
    mean = getattr(op, "value", op) == "mean"
    return _of("all_gather")(dy / comm.size if mean else dy, comm, axis, preference=preference)


def all_gather(dy: Any, x: Any, comm: Communicator, axis: int, preference: Any = None, **_: Any) -> Any:
    """dx = this rank's piece of the sum of the ranks' dy."""
    return _of("reduce_scatter")(dy, comm, "sum", axis, preference=preference)


def broadcast(dy: Any, x: Any, comm: Communicator, root: int, preference: Any = None, **_: Any) -> Any:
    """dx = the sum of the ranks' dy on root; the others' x was not read."""
    dx = _of("all_reduce")(dy, comm, preference=preference)
    return dx if comm.rank == root else dx * 0


def all_to_all(
    dy: Any, x: Any, comm: Communicator, split_axis: int, concat_axis: int, preference: Any = None, **_: Any
) -> Any:
    """dx: every piece goes back."""
    return _of("all_to_all")(dy, comm, concat_axis, split_axis, preference=preference)


def all_to_all_v(
    dy: Any, x: Any, send_counts: Sequence[int], receive_counts: Sequence[int], comm: Communicator,
    preference: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """dx: every row goes back."""
    return _of("all_to_all_v")(dy, receive_counts, send_counts, comm, preference=preference)


def permute(dy: Any, x: Any, comm: Communicator, pairs: Any, preference: Any = None, **_: Any) -> Any:
    """dx: everything goes back; 0 where this rank sent nothing."""
    return _of("permute")(dy, comm, [(to, source) for source, to in pairs], preference=preference)
