"""scatter_reduce: scatter by the name of what tokens do (torch.scatter_reduce), and its gradients."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array
from ...core.checked import shown
from ...calls.composed import composed
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from .gather import gather
from .scatter import (
    ScatterPlan, scatter, scatter_add, scatter_amax, scatter_amin, scatter_mean, scatter_prod, scatter_sum,
)  # fmt: skip
from .scatter_backward import ScatterBackwardPlan

_FUNCTIONS = {
    "sum": scatter_sum, "prod": scatter_prod, "mean": scatter_mean, "amax": scatter_amax, "amin": scatter_amin,
}  # fmt: skip


def _named(reduce: Any) -> str:
    if not isinstance(reduce, str) or reduce not in _FUNCTIONS:
        raise InvalidProblemError(f"reduce must be one of {', '.join(_FUNCTIONS)}, got {shown(reduce)}")
    return str(reduce)


@composed("scatter_reduce_backward", "x", "src", result=True)
@entry(ScatterPlan)
def scatter_reduce(
    x: Array, index: Array, src: Array, reduce: str, *, axis: int, include_self: bool = True, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y = x with the tokens of src combined at positions along `axis` (torch.scatter_reduce); see `ScatterPlan`.

    reduce: sum, prod, mean, amax or amin. include_self: whether what x has there is one of them. One launch, or three
    where lines are long.
    """
    options = {"axis": axis, "include_self": include_self, "out": out, "stream": stream, "preference": preference}
    return _FUNCTIONS[_named(reduce)](x, index, src, **options)


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


_SAME = "(a == b) | (a != a) & (b != b)"


class _Tokens:
    """Numbers of elements and of tokens, made of one another; in the accumulator of dy's element."""

    def __init__(self, x: Any, index: Any, src: Any, axis: int, include_self: bool, options: Any) -> None:
        element = read(x, "x").element
        if not element.is_float:
            raise UnsupportedError(f"{element} has no gradient; cast to a float first")
        self.element, self.acc = str(element), str(element.acc)
        self.x, self.index, self.src, self.include_self = x, index, src, include_self
        self.along, self.options = {"axis": axis, **options}, options

    def made(self, text: str, **given: Any) -> Any:
        """A formula, in which A is the accumulator and E the element."""
        return _formula(text.replace("A(", f"{self.acc}(").replace("E(", f"{self.element}("))(**given, **self.options)

    def own(self, values: Any) -> Any:
        """values of elements, 0 where tokens leave what was there no part."""
        if self.include_self:
            return values
        element = read(values, "values").element
        zeros = _formula(f"{element}(isnan(s)) * 0")(s=self.src, **self.options)
        return scatter(values, self.index, zeros, **self.along)

    def at(self, values: Any) -> Any:
        """What the element of each token has; 0 for a token of none."""
        return gather(values, self.index, **self.along)

    def both(self, text: str) -> tuple[Any, Any]:
        """A formula of every element v of x, where it has a part, and of every token."""
        return self.own(self.made(text, v=self.x)), self.made(text, v=self.src)

    def total(self, of_elements: Any, of_tokens: Any) -> Any:
        """Of each element its own number and its tokens'."""
        return scatter_add(of_elements, self.index, of_tokens, **self.along)


def _sum(t: _Tokens, dy: Any, y: Any) -> tuple[Any, Any]:
    return t.own(dy), t.at(dy)


def _mean(t: _Tokens, dy: Any, y: Any) -> tuple[Any, Any]:
    share = t.made("E(A(g) / maximum(n, 1))", g=dy, n=t.total(*t.both("A(isnan(v)) * 0 + 1")))
    return t.own(share), t.at(share)


def _extreme(t: _Tokens, dy: Any, y: Any) -> tuple[Any, Any]:
    own = t.own(t.made(f"A({_SAME})", a=t.x, b=y))
    tokens = t.made(f"A({_SAME})", a=t.src, b=t.at(y))
    share = t.made("A(g) / maximum(n, 1)", g=dy, n=t.total(own, tokens))
    text = "E(where(o > 0, g, 0))"
    return t.made(text, o=own, g=share), t.made(text, o=tokens, g=t.at(share))


def _product(t: _Tokens, dy: Any, y: Any) -> tuple[Any, Any]:
    zeros = t.total(*t.both("A(v == 0)"))
    text = "where(v == 0, 1, A(v))"
    factors = t.made(text, v=t.x), t.index, t.made(text, v=t.src)
    others = scatter_prod(*factors, include_self=t.include_self, **t.along)
    # A zero is the only one where no other is left; then the product is that of all that are not 0.
    text = "E(where(n - A(v == 0) > 0, 0, A(g) * (p / where(v == 0, 1, A(v)))))"
    dx = t.own(t.made(text, n=zeros, v=t.x, g=dy, p=others))
    return dx, t.made(text, n=t.at(zeros), v=t.src, g=t.at(dy), p=t.at(others))


@entry(ScatterBackwardPlan)
def scatter_reduce_backward(
    dy: Array, x: Array, index: Array, src: Array, y: Array | None = None, reduce: str = "sum", *, axis: int,
    include_self: bool = True, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(dx, dsrc) of `scatter_reduce`; y is its result, which amax and amin need.

    An extreme's dy is divided evenly among all that are it, x included where it has a part (torch shares with it in any
    case), NaN among the NaN; of a product a factor of 0 gets the product of the others. A token of no element has the
    gradient 0. Up to ten launches of elements or tokens, and an array for each: composed of `gather`, `scatter_add` and
    formulas, in the accumulator. What out= gives takes a launch more, which copies.
    """
    tokens = _Tokens(x, index, src, axis, include_self, {"stream": stream, "preference": preference})
    kind = _named(reduce)
    if kind in ("amax", "amin") and y is None:
        raise InvalidProblemError(f"y, the result of the forward, must be given for {kind}, got None")
    made = {"sum": _sum, "mean": _mean, "prod": _product, "amax": _extreme, "amin": _extreme}[kind]
    found = zip(made(tokens, dy, y), each_of(out, 2), strict=True)
    dx, dsrc = (one if target is None else _formula("g")(g=one, out=target, **tokens.options) for one, target in found)
    return dx, dsrc
