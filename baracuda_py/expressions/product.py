"""`product`: a matrix product whose result goes through a formula before it is written."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from ..calls.exported import exported
from ..calls.functional import functional
from ..core.arrays import read
from ..core.checked import shown
from ..core.errors import InvalidProblemError
from ..core.memo import keep
from ..core.tensor import broadcast_shape
from ..core.views import broadcast, rows_of, shape_of, transposed
from ..interop.dynamo import FORMULA, methods_in_graph, uncompiled
from ..ops.elementwise.cast import cast
from ..ops.gemm.matmul import matmul
from ..ops.reduce.norm import sum_to_size
from .calls import Call, by_names
from .elementwise import Expression
from .formula import Formula
from .nodes import ordered
from .parse import parse
from .product_plan import ProductPlan, product_plan_of
from .product_shape import PRODUCT
from .shape import Roles
from .trace import trace

_KNOWN = 256
_OWN = (
    "a", "b", "y", "dy", "alpha", "beta", "c", "m", "n", "k", "wrt", "batch_shape", "out_element", "math_precision",
    "epilogue", "self", "values", "return_y",
)  # fmt: skip
"""Words of products, which are no operands of a formula."""


@exported
@uncompiled(FORMULA)
def product(formula: str | Callable[..., Any], **defaults: Any) -> FormulaProduct:
    """A matrix product whose result goes through a formula before it is written: no array of the product is made.

        f = bc.product("silu(x + bias) * gate")
        y = f(a, b, bias=bias, gate=gate)
        da, db, dbias, dgate = f.vjp(dy, a, b, bias=bias, gate=gate)

    `bc.matmul(a, b, epilogue="silu(x + bias) * gate", bias=bias, gate=gate)` is the same in one call. In the formula x
    is alpha · a @ b as it was summed, in float32 (float64 of float64). Every other name is an array, which broadcasts
    to the result [*batch, m, n] (a vector [n] has a value for each column, [m, 1] one for each row), or a number, a
    Python one or a 0-d array; what a call gives decides. Arrays may have any element and any strides. The result is
    rounded once, to the element of a and b or to `out_element`. `defaults` are numbers that are taken where a name is
    not given.

    A formula is a text or a Python function of symbols with these names, `lambda x, bias: bc.silu(x + bias)`, which is
    called once. One without meaning raises `ExpressionError`, which points at the characters.
    """
    shared = not defaults and isinstance(formula, (str, FunctionType))
    known = _by_text.get(formula) if shared else None
    if known is not None:
        return known
    made = FormulaProduct(product_formula(formula), defaults)
    return keep(_by_text, formula, keep(_by_tree, made.formula, made, _KNOWN), _KNOWN) if shared else made


_by_text: dict[Any, FormulaProduct] = {}
_by_tree: dict[Formula, FormulaProduct] = {}
"""What was made: equal formulas share their functions, so that one that is written in a call is read once."""


def product_formula(given: Any, own: tuple[str, ...] = _OWN) -> Formula:
    """The formula of a text, of a function, or of an expression; x is its first input. own: words it cannot name."""
    found = given.formula if isinstance(given, Expression) else trace(given) if callable(given) else parse(given)
    if len(found.outputs) != 1:
        raise found.wrong(f"a product's formula is one value, this one has {len(found.outputs)}")
    used = {node.value: node for node in ordered(found.roots) if node.form == "input"}
    if PRODUCT not in used:
        raise found.wrong(f"a product's formula is one of {PRODUCT}, the product; this one has no {PRODUCT}")
    if clash := [name for name in used if name in own]:
        raise found.wrong(f"{clash[0]} is a word of products; give the operand another name", used[clash[0]])
    return found.reordered((PRODUCT, *(name for name in found.inputs if name in used and name != PRODUCT)))


@methods_in_graph("__call__", "vjp")
@exported
class FormulaProduct(Call):
    """A matrix product with a formula as a function; `bc.product` makes it. `plan(…)` is its Plan class.

    `formula` is the tree, `inputs` are the names of its arrays and numbers.
    """

    factors: tuple[str, ...] = ("a", "b")
    """What the product is of."""
    words: Mapping[str, Any] = {"alpha": 1.0, "out_element": None, "out": None, "stream": None, "preference": None}
    """The keywords of every call."""

    def __init__(self, formula: Formula, defaults: Mapping[str, Any] | None = None) -> None:
        super().__init__(formula.inputs[1:], defaults)
        self.formula = formula
        self.__signature__ = _signature(self.factors, self.inputs, self.defaults, self.words)

    def __call__(
        self, /, a: Any, b: Any, *, alpha: Any = 1.0, out_element: Any = None, out: Any = None, stream: Any = None,
        preference: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        """f(alpha · a @ b, …) [*batch, m, n]: `given` are the formula's arrays and numbers.

        a is [*batch, m, k] and b [*batch, k, n]; their batch axes broadcast. `out` may be one of the arrays.
        """
        roles, arrays, numbers = self._given(a, given)
        lead, shape = _shapes(a, b)
        given_out = out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
        if given_out is not None and shape_of(given_out, "out") != shape:
            raise InvalidProblemError(f"out must have shape {shape}, got {shape_of(given_out, 'out')}")
        flat = _as_rows(a, given_out, arrays, shape) if lead and len(shape_of(b, "b")) == 2 else None
        if flat is None:
            left, target = broadcast(a, (*lead, *shape_of(a, "a")[-2:]), "a"), given_out
            right = broadcast(b, (*lead, *shape_of(b, "b")[-2:]), "b")
        else:
            (left, target, arrays), right = flat, b
        function = self._functions.get(roles)
        if function is None:
            function = keep(self._functions, roles, by_names(self.made(roles)), 64)
        facts = {**numbers, "alpha": alpha, "out_element": out_element}
        y = function(left, right, *arrays.values(), **facts, out=target, stream=stream, preference=preference)
        return given_out if given_out is not None else y if flat is None else y.reshape(shape)

    def vjp(
        self, /, dy: Any, a: Any, b: Any, *, wrt: str | tuple[str, ...] | None = None, alpha: Any = 1.0,
        stream: Any = None, preference: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        """The gradients for `wrt` of the call f(a, b, **given): one array, or a tuple in the order of `wrt`.

        By default those of a, of b and of all arrays of floats. x is computed anew, by a product of its own; what
        reaches it is rounded once to the element of a and b before the products that make da and db. Of an operand that
        was broadcast the gradient is summed to its shape.
        """
        _, arrays, numbers = self._given(a, given)
        _shapes(a, b)  # raises where they do not go together
        names = self._wanted(wrt, arrays)
        where = {"stream": stream, "preference": preference}
        kind = read(a, "a").element
        x = matmul(a, b, alpha=alpha, out_element=kind.acc, **where)
        outer = tuple(n for n in names if n not in ("a", "b"))
        inner = (PRODUCT,) if len(outer) < len(names) else ()
        found = Expression(self.formula).vjp(dy, x, wrt=(*inner, *outer), **arrays, **numbers, **where)
        made = dict(zip((*inner, *outer), found if isinstance(found, tuple) else (found,), strict=True))
        if inner:
            g = made[PRODUCT] if kind.acc is kind else cast(made[PRODUCT], kind, **where)
            if "a" in names:
                made["a"] = _factor(g, transposed(b, "b"), shape_of(a, "a"), kind, alpha, where)
            if "b" in names:
                made["b"] = _factor(transposed(a, "a"), g, shape_of(b, "b"), kind, alpha, where)
        return made[names[0]] if len(names) == 1 else tuple(made[name] for name in names)

    def plan(self, /, **roles: Any) -> type[ProductPlan]:
        """The Plan class in which every name is an array but those given here: `plan(cap=float)`."""
        return product_plan_of(self.formula, self.chosen(roles))

    def made(self, roles: Roles) -> Callable[..., Any]:
        """The functional entry for names that are what `roles` says."""
        return functional(product_plan_of(self.formula, roles), "product")

    def _given(self, a: Any, given: Mapping[str, Any]) -> tuple[Roles, dict[str, Any], dict[str, Any]]:
        """What the names are, the arrays, the numbers."""
        values = self.values((), given)
        roles = self.roles((a, *values))[1:]  # a is an array, so that those of no axes are numbers
        return (roles, *self.split(values, roles))

    def _wanted(self, wrt: str | tuple[str, ...] | None, arrays: Mapping[str, Any]) -> tuple[str, ...]:
        floats = (*self.factors, *(n for n, value in arrays.items() if read(value, n).element.is_float))
        names = floats if wrt is None else (wrt,) if isinstance(wrt, str) else tuple(wrt)
        if not names:
            raise InvalidProblemError(f"wrt names some of {', '.join(floats)}, got none of them")
        for name in names:
            if name not in (*self.factors, *self.inputs):
                operands = ", ".join((*self.factors, *self.inputs))
                raise InvalidProblemError(f"wrt names {shown(name)}; the operands are {operands}")
            if name not in floats:
                what = "an array of integers" if name in arrays else "a number; give it as an array of shape (1,)"
                raise InvalidProblemError(f"{name} has no gradient, as it is {what}")
        return names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormulaProduct) and (self.formula, self.defaults) == (other.formula, other.defaults)

    def __hash__(self) -> int:
        return hash(self.formula)

    def __reduce__(self) -> tuple[Any, ...]:
        return FormulaProduct, (self.formula, self.defaults)

    def __repr__(self) -> str:
        return f"product({self.formula.text!r})"


def _signature(
    factors: tuple[str, ...], inputs: tuple[str, ...], defaults: Mapping[str, Any], words: Mapping[str, Any]
) -> inspect.Signature:
    """That of a call: the factors, then the formula's names and the keywords of every call."""
    P = inspect.Parameter
    named = [P(name, P.KEYWORD_ONLY, default=defaults.get(name, P.empty)) for name in inputs]
    rest = [P(name, P.KEYWORD_ONLY, default=value) for name, value in words.items()]
    return inspect.Signature([*(P(name, P.POSITIONAL_OR_KEYWORD) for name in factors), *named, *rest])


def _shapes(a: Any, b: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The batch axes and the shape of the result."""
    left, right = shape_of(a, "a"), shape_of(b, "b")
    for name, shape in (("a", left), ("b", right)):
        if len(shape) < 2:
            raise InvalidProblemError(
                f"{name} must have two axes at least beside a formula, got shape {shape}; a row is "
                f"{name}[None, :], a column {name}[:, None]"
            )
    if left[-1] != right[-2]:
        raise InvalidProblemError(f"a has {left[-1]} columns and b {right[-2]} rows: {left} @ {right}")
    lead = broadcast_shape({"a": left[:-2], "b": right[:-2]}, ("a", "b"))
    return lead, (*lead, left[-2], right[-1])


def _as_rows(a: Any, out: Any, arrays: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[Any, Any, Any] | None:
    """a, out and the arrays with the rows of the batch's items below each other, or None where that needs a copy."""
    rows = {"a": rows_of(a, "a"), "out": None if out is None else rows_of(out, "out")}
    for name, x in arrays.items():
        own = shape_of(x, name)
        if math.prod(own[:-1]) != 1:
            x = broadcast(x, shape, name)
        rows[name] = x if len(own) < 2 else rows_of(x, name)
    if any(rows[name] is None for name in ("a", *arrays)) or (out is not None and rows["out"] is None):
        return None
    return rows["a"], rows["out"], {name: rows[name] for name in arrays}


def _factor(left: Any, right: Any, shape: tuple[int, ...], kind: Any, alpha: Any, where: Mapping[str, Any]) -> Any:
    """The gradient alpha · left @ right of a factor of this shape, summed over the batch that shares it."""
    leads = {"left": shape_of(left, "left")[:-2], "right": shape_of(right, "right")[:-2]}
    lead = broadcast_shape(leads, tuple(leads))
    if (*lead, *shape[-2:]) == shape:
        return matmul(left, right, alpha=alpha, **where)
    each = matmul(left, right, alpha=alpha, out_element=kind.acc, **where)
    summed = sum_to_size(each, shape, **where)
    return summed if kind.acc is kind else cast(summed, kind, **where)
