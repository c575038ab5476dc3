"""A function of this package as PyTorch calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, wraps
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from .._exports import EXPORTS
from ..core.arrays import read
from ..core.element import HALVES, ElementKind
from ..core.errors import InvalidProblemError
from ..core.keywords import unknown_keywords
from ..core.numbers import plain
from ..interop.dynamo import opaque
from ..ops.elementwise.cast import cast
from ..ops.reduce.reduce_kinds import total
from . import creating
from .arguments import MENDED, VALUES, reduction_of
from .orders import DEFAULTS, HELD, IGNORED, LIKE, LOSSES, MADE, ORDERS, RESULTS, WORDS
from .promotion import brought_together


def bc(name: str) -> Callable[..., Any]:
    """A function of this package."""
    return getattr(import_module("baracuda_py"), name)  # type: ignore[no-any-return]


def has_spelling(name: str) -> bool:
    """Whether a public name is a function that PyTorch calls otherwise."""
    function = bc(name) if name in EXPORTS else None
    if function is None or isinstance(function, type):
        return False
    return name in ORDERS or (hasattr(function, "plan") and not _variadic(function))


@cache
def spelled(name: str) -> Callable[..., Any]:
    """The function as PyTorch calls it; this package's own keywords are taken, too.

    Operands of several dtypes are cast as torch casts them (`promotion`). `inplace=True` writes the result over the
    input; `dtype=` casts the input first, where there is one, and a total of integers, which is of 64 bits here, to
    that dtype.
    """
    function = bc(name)
    spelling = _Spelling(name, function)

    def call(*args: Any, **given: Any) -> Any:
        return spelling(*args, **given)

    call.__name__ = call.__qualname__ = name
    first = str.partition(function.__doc__ or "", "\n\n")[0]
    call.__doc__ = f"{first}\n\nSpelled as in PyTorch; see `baracuda_py.{function.__name__}`."
    call.__wrapped__ = function  # type: ignore[attr-defined]
    call.__signature__ = spelling.signature  # type: ignore[attr-defined]
    return opaque(call)


def _plain(value: Any) -> Any:
    """A number of NumPy as Python's, in tuples and lists, too; all else as it is."""
    if isinstance(value, tuple) and any(isinstance(one, (np.generic, tuple, list)) for one in value):
        return tuple([_plain(one) for one in value])
    return [_plain(one) for one in value] if type(value) is list else plain(value)


def results(name: str, value: Any) -> Any:
    """Several results with the names that they have in torch, where these are told."""
    made = RESULTS.get(name)
    if made is None or not isinstance(value, tuple) or len(value) != len(made._fields):
        return value
    return made(*value)


def like_input(made: Any, input: Any) -> Any:
    """A loss in the dtype of its input of 16-bit floats, which our functions give in float32."""
    kind = read(input, "input").element if hasattr(made, "dtype") else None
    return cast(made, kind) if kind in HALVES and read(made, "loss").element is ElementKind.F32 else made


F = TypeVar("F", bound=Callable[..., Any])


def own(function: F) -> F:
    """Marks a function written by hand as PyTorch calls it: NumPy's numbers are plain ones, results have names.

    It takes our words beside PyTorch's. torch.compile has each call in its graph as it is.
    """
    name, shown = function.__name__, inspect.signature(function).parameters

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        named: dict[str, Any] = {}
        for word, value in given.items():
            word = word if word in shown else _torchs_words(name).get(word, word)
            if word in named:
                raise InvalidProblemError(f"{name}() has {word} twice")
            named[word] = _plain(value)
        return results(name, function(*[_plain(one) for one in args], **named))

    return opaque(call)  # type: ignore[return-value]


@cache
def _torchs_words(name: str) -> dict[str, str]:
    """Our words for parameters of a function → PyTorch's."""
    ours = _Spelling(name, bc(name)).ours if name in EXPORTS else {}
    return {"x": "input"} | {own: word for word, own in ours.items() if own != word}


def _variadic(function: Callable[..., Any]) -> bool:
    """Whether it takes any number of operands: they have no names that PyTorch could have others for."""
    return any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(function).parameters.values())


class _Spelling:
    """What a function is called, and what PyTorch's words for its parameters are."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        self.shown = inspect.signature(function).parameters
        pairs = [word.partition(":")[::2] for word in ORDERS.get(name) or _default(self.shown)]
        self.rest = next((i for i, (word, _) in enumerate(pairs) if word[0] == "*"), None)
        self.spread = next((named[1:] for _, named in pairs if named[:1] == "*"), "")
        pairs = [(word.lstrip("*"), named.lstrip("*")) for word, named in pairs]
        self.words = [word for word, _ in pairs]
        self.ours = {word: named or self._known(word) for word, named in pairs}
        led = (word for word in self.words if word in ("input", "x1", "condition") or self.ours[word] in ("x", "a"))
        self.lead = self.ours[next(led, self.words[0])] if pairs else ""
        self.legacy = "size_average" in self.words

    def __call__(self, /, *args: Any, **given: Any) -> Any:
        named = {word: _plain(value) for word, value in {**self._by_word(args, given), **given}.items()}
        inplace = named.pop("inplace", False)
        finish = self._placed(named)
        into = named.pop("out", None) if self.name in MADE and "out" not in self.shown else None
        dtype = None if "dtype" in self.ours else named.pop("dtype", None)
        if self.legacy:
            reduction_of(named)
        passed = {**DEFAULTS.get(self.name, {}), **self._ours(named)}
        if mend := MENDED.get(self.name):
            with suppress(KeyError):  # of an operand that is not given, which the function misses
                mend(passed)
        over = passed.get(self.lead)
        if dtype is not None and self.name not in MADE:
            passed[self.lead] = cast(passed[self.lead], dtype)
        passed = dict(brought_together(self.name, passed))
        if inplace:
            passed["out"] = over
        rest = passed.pop(self.spread, ()) if self.spread else ()
        lead = (passed.pop(self.lead), *rest) if self.spread else ()
        if dtype is None or self.name in MADE or total(ElementKind.of(dtype)) is ElementKind.of(dtype):
            made = self.function(*lead, **passed)
        else:
            made = _narrowed(self.function, ElementKind.of(dtype), **passed)
        if self.name in MADE:
            made = creating.as_element(made, dtype, into)
        if self.name in LOSSES and passed.get("out") is None:
            made = like_input(made, passed[self.lead])
        return finish(results(self.name, made))

    def _by_word(self, args: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments given by position."""
        at = self.rest
        if at is not None and len(args) > at and not isinstance(args[at], (list, tuple)):
            args = (*args[:at], args[at:])
        if len(args) > len(self.words):
            raise InvalidProblemError(
                f"{self.name}() takes {len(self.words)} positional arguments, {len(args)} were given"
            )
        named = dict(zip(self.words, args, strict=False))
        if "unbiased" in self.words and type(named.get("dim")) is bool:  # the form without axes
            named["unbiased"] = named.pop("dim")
        if "_stacklevel" in self.words and not isinstance(named.get("_stacklevel", 0), int):  # torch.softmax has none
            named["dtype"] = named.pop("_stacklevel")
        if twice := [word for word in named if word in given]:
            raise InvalidProblemError(f"{self.name}() has {twice[0]} twice")
        return named

    def _placed(self, named: dict[str, Any]) -> Callable[[Any], Any]:
        """What is to be done with the result, by the words that tell where it is and how it lies in memory."""
        if self.name not in MADE and self.name not in LIKE and self.name != "clone":
            self._seeded(named)
            return lambda made: made
        finish = creating.taken(self.name, named)
        if self.name in LIKE:
            word = next((w for w in ("input", self.lead) if w in named), None)
            if word is not None:
                named[word] = creating.moved(self.name, named[word], named.pop("device", None))
        elif self.name in MADE:
            creating.place(self.name, named)
        self._seeded(named)
        return finish

    def _seeded(self, named: dict[str, Any]) -> None:
        """The seed that a generator of torch gives."""
        if "seed" not in self.shown or named.get("seed") is not None:
            return
        if named.get("generator") is not None:
            like = named.get("like", next(iter(named.values())))
            named["seed"] = creating.drawn(self.name, named.pop("generator"), like)
        elif self.name in MADE and not any(hasattr(value, "shape") for value in named.values()) and "key" not in named:
            raise InvalidProblemError(f"{self.name}: seed is None; give a stream by seed=, or device= for torch's own")

    def _ours(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by our names."""
        passed: dict[str, Any] = {}
        for word, value in named.items():
            key = self.ours.get(word) or self._known(word)
            if key not in self.shown and word in VALUES:
                key, value = VALUES[word][0], VALUES[word][1](value)
            if key not in self.shown and word in self.words and (word in HELD or value is None):
                continue
            if key not in self.shown and word in IGNORED and not value:
                continue
            if key not in self.shown:
                raise unknown_keywords(self.name, [word], dict.fromkeys([*self.words, *self.shown]))
            if key in passed and key != "right":  # which two words may say
                raise InvalidProblemError(f"{self.name}() has {key} twice: by {word}=, and by another word or position")
            passed[key] = value or passed[key] if key in passed else value
        return passed

    def _known(self, word: str) -> str:
        """Our name for a word of PyTorch's."""
        if word in self.shown:
            return word
        meant = WORDS.get(word, word)
        named: dict[str, str] = getattr(self, "ours", {})  # which are being found at first
        return named.get(meant, meant)

    @property
    def signature(self) -> inspect.Signature:
        """PyTorch's parameters, then our keywords that it has not."""
        parameters, optional = [], False
        for word in self.words:
            one = self.shown.get(self.ours[word])
            default = inspect.Parameter.empty if one is None else one.default
            optional = optional or default is not inspect.Parameter.empty or one is None
            default = None if optional and default is inspect.Parameter.empty else default
            annotation = "Any" if one is None else one.annotation
            parameters.append(
                inspect.Parameter(word, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)
            )
        taken = {*self.ours.values(), *self.words}
        for name, one in self.shown.items():
            if name not in taken:
                default = None if one.default is one.empty else one.default
                parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY, default=default))
        return inspect.Signature(parameters)


def _narrowed(function: Callable[..., Any], kind: ElementKind, out: Any = None, **passed: Any) -> Any:
    """The result of a function of integers of fewer than 64 bits in their element: a total modulo theirs."""
    y = function(**passed)
    if out is None and read(y, "y").element is kind:
        return y
    return cast(y, kind, out=out, **{n: passed[n] for n in ("stream", "preference") if n in passed})


def _default(shown: Any) -> tuple[str, ...]:
    """The operands of a function that is in no row: one is `input`, a second `other`."""
    names = [n for n, p in shown.items() if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    if names == ["x"]:
        return ("input",)
    return ("input:a", "other:b") if names == ["a", "b"] else tuple(names)
