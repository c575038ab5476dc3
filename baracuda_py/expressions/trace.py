"""A formula from a Python function: it is called once with symbols, which record what is done to them.

A symbol takes Python's operators, the functions of this package (`bc.silu(x)`), those of `baracuda_py.expressions`
(`expressions.where(c, a, b)`), and NumPy's and torch's functions of the same names.
"""

from __future__ import annotations

import inspect
import numbers
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ..core.checked import failure
from ..core.element import ElementKind
from ..core.errors import BaracudaError
from . import build
from .errors import ExpressionError
from .formula import RESULT, Formula, fresh
from .functions import CASTS, CONSTANTS
from .nodes import Node, constant, converted, named
from .parse import refused
from .show import shown

_FORWARD = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}  # fmt: skip
_COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}
_UNARY = {"neg": "neg", "invert": "bitwise_not", "abs": "abs"}


class Symbol:
    """An operand of a formula while its function is traced. `item`: (node, place) → what brackets make of it."""

    __slots__ = ("item", "node")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000

    def __init__(self, node: Node, item: Callable[[Node, Any], Symbol] | None = None) -> None:
        self.node, self.item = node, item

    def __getitem__(self, place: Any) -> Symbol:
        if self.item is None:
            raise ExpressionError("a symbol stands for one element and has no others")
        return self.item(self.node, place)

    def __bool__(self) -> bool:
        raise ExpressionError(
            "a symbol is neither true nor false while a formula is traced; write where(condition, a, b) for if, "
            "& | ~ for and, or, not"
        )

    def __iter__(self) -> NoReturn:
        raise ExpressionError("a symbol stands for one element and cannot be unpacked")

    def __pos__(self) -> Symbol:
        return self

    def astype(self, dtype: Any) -> Symbol:
        """The value rounded to another element."""
        return Symbol(converted(self.node, ElementKind.of(dtype)))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Symbol:
        if method != "__call__" or given:
            raise ExpressionError(f"numpy.{ufunc.__name__} of symbols takes operands alone")
        return apply(ufunc.__name__, inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Symbol:
        return apply(function.__name__, args, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Symbol:
        flags = {word: value for word, value in (kwargs or {}).items() if value is not False}  # inplace=False
        return apply(function.__name__.strip("_"), args, flags)

    def __baracuda_function__(self, name: str, args: tuple[Any, ...], given: Mapping[str, Any]) -> Symbol:
        """What a function of this package makes of symbols: `core.keywords.traced` asks for it."""
        held = {word: value for word, value in given.items() if value is not None and value is not False}
        if name == "cast":
            return symbol(args[0]).astype(held["to_element"] if "to_element" in held else args[1])
        return apply(name, args, {word: value for word, value in held.items() if word != "with_number"})


def _method(name: str, swapped: bool = False) -> Callable[..., Any]:
    def method(*operands: Any) -> Any:
        if not all(_is_operand(operand) for operand in operands):
            return NotImplemented
        return apply(name, operands[::-1] if swapped else operands)

    return method


for _dunder, _name in {**_FORWARD, **_COMPARE, **_UNARY}.items():
    setattr(Symbol, f"__{_dunder}__", _method(_name))
for _dunder, _name in _FORWARD.items():
    setattr(Symbol, f"__r{_dunder}__", _method(_name, swapped=True))


def _is_operand(value: Any) -> bool:
    return isinstance(value, (Symbol, numbers.Real)) or (hasattr(value, "item") and getattr(value, "shape", None) == ())


def symbol(value: Any) -> Symbol:
    """A symbol, or a number as one."""
    if isinstance(value, Symbol):
        return value
    if not _is_operand(value):
        raise ExpressionError(f"a formula is made of symbols and numbers, got {type(value).__name__}")
    number = value.item() if hasattr(value, "item") else value
    if not isinstance(number, (bool, int, float)):
        number = float(number)
    return Symbol(constant(number))


def apply(name: str, args: tuple[Any, ...], given: Mapping[str, Any] | None = None) -> Symbol:
    """A function of symbols and numbers."""
    words = {"input": "x", "other": "b", "min": "low", "max": "high"}
    parameters = build.parameters_of(name)
    values = {
        word if word in parameters else words.get(word, word): symbol(value).node
        for word, value in (given or {}).items()
        if value is not None
    }
    head = args
    if name in ("clamp", "clip"):  # either end may be None
        head = args[:1]
        ends = zip(("low", "high"), args[1:], strict=False)
        values |= {word: symbol(value).node for word, value in ends if value is not None}
    return Symbol(build.call(name, [symbol(value).node for value in head], values))


def trace(function: Callable[..., Any], make: Callable[[Node], Symbol] = Symbol) -> Formula:
    """The formula of a Python function: its parameters are the inputs, what it returns the outputs.

    One value is one output, a tuple several, a dict several that have names. `make` makes the parameters' symbols.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ExpressionError(f"the parameters of {function!r} cannot be seen: {failure(error)}") from None
    if wrong := [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]:
        raise ExpressionError(f"a formula has a fixed number of operands; {wrong[0]} takes any")
    for parameter in parameters:
        name = parameter.name
        if (word := refused(name)) is not None:
            raise ExpressionError(word)
        if name in CASTS or name in CONSTANTS:
            raise ExpressionError(f"{name} is a word of its own here; give the operand another name")
    symbols = {p.name: make(named(p.name)) for p in parameters}
    by_word = {p.name: symbols.pop(p.name) for p in parameters if p.kind is p.KEYWORD_ONLY}
    try:
        returned = function(*symbols.values(), **by_word)
    except (BaracudaError, MemoryError):
        raise
    except Exception as error:  # of the caller's own code, which goes with it
        raise ExpressionError(f"the function does not take symbols: {failure(error)}") from error
    outputs = _outputs(returned, [p.name for p in parameters])
    made = Formula(tuple(p.name for p in parameters), outputs)  # raises where it is too large to be shown
    text, spans = shown(outputs)
    return Formula(made.inputs, outputs, text, spans)


def _outputs(returned: Any, inputs: list[str]) -> tuple[tuple[str, Node], ...]:
    if isinstance(returned, Mapping):
        if not returned or not all(isinstance(name, str) and name.isidentifier() for name in returned):
            raise ExpressionError("a dict of outputs has names that are Python's")
        found = [(unicodedata.normalize("NFKC", name), symbol(value).node) for name, value in returned.items()]
    elif isinstance(returned, (tuple, list)):
        found = [(fresh(f"{RESULT}{i}", inputs), symbol(value).node) for i, value in enumerate(returned)]
    else:
        found = [(fresh(RESULT, inputs), symbol(returned).node)]
    if not found:
        raise ExpressionError("a formula needs an output, the function returned none")
    for i, (name, _) in enumerate(found):
        if (word := refused(name)) is not None:
            raise ExpressionError(f"an output: {word}")
        if name in inputs or name in [other for other, _ in found[:i]]:
            raise ExpressionError(f"the output {name} has the name of an operand or of another output")
    return tuple(found)
