"""The marks of functions that are entries of a plan: generated ones, and those written by hand."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..core.checked import truth
from ..core.doc import Doc
from ..core.dump import dumped
from ..core.errors import BaracudaError
from ..core.keywords import known_only, unexpected
from ..core.one_device import check_one_device
from ..core.signatures import completed
from ..interop.dynamo import opaque
from ..interop.torch_rules import autocasting
from .interpreters import Symbols, arriving, autocast_function, interpreting, symbol_of
from .misfits import raise_explained
from .rehearsal import rehearse
from .streams import is_key, keyed

F = TypeVar("F", bound=Callable[..., Any])


def marked(function: F, plan: Any, fixed: Mapping[str, Any]) -> F:
    """A function as a functional entry of `plan`."""
    function = opaque(dumped(function))
    function.plan, function.fixed = plan, fixed  # type: ignore[attr-defined]
    function = known_only(function)
    shown = completed(function.__signature__, plan)  # type: ignore[attr-defined]
    function.__signature__ = shown  # type: ignore[attr-defined]
    said = {p.name: p.annotation for p in shown.parameters.values() if p.annotation is not p.empty}
    function.__doc__ = Doc(function.__doc__ or "", function)
    function.__annotations__ = said | {"return": shown.return_annotation}
    return function


def entry(plan: Any, **fixed: Any) -> Callable[[F], F]:
    """Marks a function written by hand as a functional entry of `plan`; it is one of symbols, too.

    Flags are True or False. Another argument that its annotation does not take is named where the function fails by an
    error that is not ours.
    """

    def mark(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            if autocasting():
                return autocast_function(named, args, given)
            args, given, interpreter = arriving(args, given)
            if interpreter is not None:
                with interpreting(interpreter):
                    return call(*args, **given)
            try:
                if draws and is_key(given.get("seed")):
                    given["key"] = given.pop("seed")
                if draws and "key" in given:
                    unknown = {word: given.pop(word) for word in set(given) - set(shown.parameters)}
                    pair = keyed(named, unexpected, unknown, given.get("seed"), given.get("offset", 0))
                    given |= dict(zip(("seed", "offset"), pair, strict=True))
                for flag in flags:
                    if flag in given:
                        given[flag] = truth(flag, given[flag])
                check_one_device(shown, args, given)
                if given.get("out") is not None:
                    rehearse(function, args, given)
                return function(*args, **given)
            except Exception as error:
                if (symbol := symbol_of((*args, *given.values()))) is not None:
                    try:
                        return Symbols(symbol).make(call.__name__, args, given)
                    except BaracudaError as symbolic:
                        raise symbolic from None  # of the symbols, not of the arrays that they are not
                if type(error) is TypeError and words is not None and (others := [n for n in given if n not in words]):
                    raise unexpected(named, others) from None
                raise_explained(error, shown, args, given)

        named = marked(call, plan, fixed)
        shown = inspect.signature(named)
        words = _words(function)
        draws = "seed" in shown.parameters and "key" not in shown.parameters
        flags = [p.name for p in shown.parameters.values() if p.annotation == "bool"]
        return named  # type: ignore[return-value]

    return mark


def _words(function: Callable[..., Any]) -> frozenset[str] | None:
    """What a function takes by keyword; None where that is any word."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
