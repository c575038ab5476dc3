"""Who serves a call: the stack of interpreters, of which the innermost that claims a call does.

A call of plain arrays is run at once (`functional`), and no interpreter hears of it. Symbols, stand-ins of a trace and
what holds an array claim the calls that they are operands of. Around a block an interpreter can be put that claims all
calls in it (`interpreting`): those of a function that is only gone through (`rehearsal`), those that a trace must see.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ..core.memo import memo
from ..interop.jax_arrays import staged, unwrapped, wraps
from ..interop.torch_rules import followed, modes, settled_call, stands_in

if TYPE_CHECKING:
    from .call import Call


class Interpreter(Protocol):
    """What serves calls in its own way."""

    def serve(self, call: Call) -> Any:
        """The result of a call, as the function returns it."""


class Recorder(Interpreter, Protocol):
    """An interpreter that differentiates."""

    def compose(self, composed: Composed) -> Any:
        """The result of a function of several calls, recorded as one of which `backward` makes the gradients."""


class Composed:
    """A call of a function of several calls, `function(**given)`; see `composed`."""

    def __init__(
        self, function: Callable[..., Any], backward: Callable[..., Any], given: Mapping[str, Any],
        operands: Sequence[str], result: bool, reads: Sequence[str] | None,
    ) -> None:  # fmt: skip
        self.function, self.backward, self.given = function, backward, given
        self.operands, self.result, self.reads = operands, result, reads


_PLACES = {  # whose arrays it is that are traced, or recorded → "module:interpreter"
    "torch": "baracuda_py.torch.routing:RECORD",
    "jax": "baracuda_py.jax.staging:STAGE",
}


@memo()
def interpreter_of(package: str) -> Recorder:
    """What records calls of a package's arrays for it."""
    module, _, name = _PLACES[package].partition(":")
    return getattr(import_module(module), name)  # type: ignore[no-any-return]


_innermost: contextvars.ContextVar[Interpreter | None] = contextvars.ContextVar("interpreter", default=None)
innermost = _innermost.get
"""The interpreter that claims all calls here, or None."""


@contextlib.contextmanager
def interpreting(one: Interpreter | None) -> Iterator[None]:
    """A context in which `one` claims all calls that no operand claims; None: in which nothing does."""
    token = _innermost.set(one)
    try:
        yield
    finally:
        _innermost.reset(token)


def claimed(call: Call) -> Interpreter | None:
    """The interpreter that serves a call, None where it is one of plain arrays."""
    operands = call.arrays.values()
    maker = symbol_of((*operands, *call.attributes.values()))
    if maker is not None:
        return Symbols(maker)
    if wraps(operands):
        return _UNWRAP
    if staged(operands, call.scalars.values()):
        return interpreter_of("jax")
    own = innermost()
    if own is not None:
        return own
    return interpreter_of("torch") if stands_in(operands) else None


def serve(call: Call) -> Any:
    """The result of a call that an interpreter claims."""
    found = claimed(call)
    assert found is not None
    return found.serve(call)


def arriving(
    args: tuple[Any, ...], given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], Interpreter | None]:  # fmt: skip
    """The arguments of a function written by hand, with arrays in the place of what wraps them, and who is to be put
    around all its calls: where a trace of torch's sees them, that, with numbers in the place of its symbols."""
    if wraps((*args, *given.values())):
        args, given = unwrapped(args), unwrapped(given)
    if innermost() is not None or not modes() or not stands_in([*args, *given.values()]):
        return args, given, None
    return *settled_call(args, given), interpreter_of("torch")


def autocast(call: Call) -> Any:
    """The result of a call under torch.autocast, which casts the operands as its rule for the op says."""
    return import_module("baracuda_py.torch.autocast").cast_call(call)


def autocast_function(function: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """The same for a function written by hand."""
    return import_module("baracuda_py.torch.autocast").cast_function(function, args, given)


def recorded(call: Call) -> Any:
    """What autograd or a transformation makes of a call that was refused for it."""
    return interpreter_of("torch").serve(call)


def recorder(values: Collection[Any]) -> Recorder | None:
    """What records a composed function of these values where torch or JAX does, else None."""
    if followed(values):
        return interpreter_of("torch")
    return interpreter_of("jax") if staged(values) else None


class _Unwrap:
    """Calls of what holds arrays of JAX, as parameters of Flax do, are calls of these."""

    def serve(self, call: Call) -> Any:
        """The call again."""
        return call.entry.function(**unwrapped(call.keywords))


_UNWRAP = _Unwrap()


class Symbols:
    """Calls of symbols are nodes of a formula, which `operand` makes by its `__baracuda_function__`."""

    def __init__(self, operand: Any) -> None:
        self.operand = operand

    def serve(self, call: Call) -> Any:
        """What stands for the result."""
        return self.make(call.entry.name, [one for one in call.arrays.values() if one is not None], call.given)

    def make(self, name: str, args: Iterable[Any], given: Mapping[str, Any]) -> Any:
        """What stands for the result of a function of that name."""
        return type(self.operand).__baracuda_function__(self.operand, name, tuple(args), given)


def symbol_of(values: Iterable[Any]) -> Any:
    """The first of the values that stands for arrays in a formula, or None."""
    return next((value for value in values if hasattr(type(value), "__baracuda_function__")), None)
