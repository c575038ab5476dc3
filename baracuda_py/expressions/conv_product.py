"""`conv_formula`: a convolution whose result goes through a formula before it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from ..calls.composed import may_grow
from ..calls.exported import exported
from ..calls.functional import functional
from ..calls.interpreters import Composed, recorder
from ..core.arrays import read
from ..core.element import ElementKind
from ..core.memo import keep
from ..core.views import reshaped, shape_of
from ..interop.dynamo import FORMULA, methods_in_graph, uncompiled
from ..ops.conv.conv_backward import conv_backward
from ..ops.elementwise.cast import cast
from ..schedules.conv_formula import CODES
from .calls import by_names
from .conv_plan import FormulaConvPlan, conv_plan_of
from .elementwise import Expression
from .formula import Formula
from .product import FormulaProduct, product_formula
from .product_shape import PRODUCT
from .shape import Roles

_KNOWN = 256
_WORDS: dict[str, Any] = {
    "stride": 1, "padding": 0, "dilation": 1, "input_dilation": 1, "groups": 1, "transposed": False,
    "math_precision": "element", "out_element": None, "out": None, "stream": None, "preference": None,
}  # fmt: skip
_OWN = (
    *_WORDS, "w", "y", "dy", "z", "bias_element", "shape", "filter_shape", "activation", "element", "wrt", "epilogue",
    "self", "values", "return_y",
)  # fmt: skip
"""Words of convolutions, which are no operands of a formula."""


@exported
@uncompiled(FORMULA)
def conv_formula(formula: str | Callable[..., Any], **defaults: Any) -> FormulaConv:
    """A convolution whose result goes through a formula before it is written: no array of the sums is made.

        f = bc.conv_formula("relu(x + bias + r)")
        y = f(image, weight, bias=bias, r=residual, padding=1)
        q = f(image, weight, bias=bias, r=residual, padding=1, out_element="int8")
        dx, dw, dbias, dr = f.vjp(dy, image, weight, bias=bias, r=residual, padding=1)

    In the formula x is the convolution as it was summed, in float32 (float64 of float64). Every other name is an array,
    which broadcasts to the result [*batch, outputs, *spatial], or of one axis has a value for each output channel, or a
    number, a Python one or a 0-d array; what a call gives decides. Arrays may have any element and any strides. The
    result is rounded once, to the element of the input or to `out_element`: the accumulator's, or int8, uint8,
    float8_e4m3fn or float8_e5m2, which saturate ("x / scale" quantises; integers are to nearest, ties to even, NaN is
    0). `defaults` are numbers that are taken where a name is not given; one without meaning raises `ExpressionError`.
    """
    shared = not defaults and isinstance(formula, (str, FunctionType))
    known = _by_text.get(formula) if shared else None
    if known is not None:
        return known
    made = FormulaConv(product_formula(formula, _OWN), defaults)
    return keep(_by_text, formula, keep(_by_tree, made.formula, made, _KNOWN), _KNOWN) if shared else made


_by_text: dict[Any, FormulaConv] = {}
_by_tree: dict[Formula, FormulaConv] = {}


@methods_in_graph("__call__", "vjp")
@exported
class FormulaConv(FormulaProduct):
    """A convolution with a formula as a function; `bc.conv_formula` makes it. `plan(…)` is its Plan class.

    `formula` is the tree, `inputs` are the names of its arrays and numbers.
    """

    factors = ("x", "w")
    words = _WORDS

    def __call__(  # type: ignore[override]  # of convolutions
        self, /, x: Any, w: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, input_dilation: Any = 1,
        groups: int = 1, transposed: bool = False, math_precision: str = "element", out_element: Any = None,
        out: Any = None, stream: Any = None, preference: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        """f(the convolution of x and w, …) [*batch, outputs, *spatial]: `given` are the formula's arrays and numbers.

        x, w, stride, padding, dilation, input_dilation, groups and transposed are those of `conv_nd`. `out` may be one
        of the arrays.
        """
        facts: dict[str, Any] = {
            "stride": stride, "padding": padding, "dilation": dilation, "input_dilation": input_dilation,
            "groups": groups, "transposed": transposed, "math_precision": math_precision,
        }  # fmt: skip
        where = {"out": out, "stream": stream, "preference": preference}
        values = self.values((), given)
        found = recorder((x, w, *values))
        if found is None:
            return self._run(x, w, given, {**facts, "out_element": out_element, **where})
        floats = {n: v for n, v in zip(self.inputs, values, strict=True) if getattr(v, "ndim", 0)}
        floats = {"x": x, "w": w, **{n: v for n, v in floats.items() if read(v, n).element.is_float}}
        codes = out_element is not None and ElementKind.of(out_element) in CODES
        wanted = () if codes else tuple(n for n, v in floats.items() if may_grow(v))

        def conv_formula(out: Any, stream: Any, preference: Any, x: Any, w: Any, **held: Any) -> Any:
            more = {"out": out, "stream": stream, "preference": preference}
            return self._run(x, w, held, {**facts, "out_element": out_element, **more})

        def backward(dy: Any, /, preference: Any, x: Any, w: Any, **held: Any) -> Any:
            own = {n: held[n] for n in self.inputs}
            return self.vjp(dy, x, w, wrt=wanted, **facts, preference=preference, **own)

        held = {"x": x, "w": w, **dict(zip(self.inputs, values, strict=True)), **where}
        return found.compose(Composed(conv_formula, backward, held, wanted, False, None))

    def _run(self, x: Any, w: Any, given: Mapping[str, Any], facts: dict[str, Any]) -> Any:
        """The call's result."""
        roles, arrays, numbers = self._given(x, given)
        rank = len(shape_of(w, "w")) - 2
        held = [_each_channel(value, name, rank) for name, value in arrays.items()]
        function = self._functions.get(roles)
        if function is None:
            function = keep(self._functions, roles, by_names(self.made(roles)), 64)
        return function(x, w, *held, **numbers, **facts)

    def vjp(  # type: ignore[override]  # of convolutions
        self, /, dy: Any, x: Any, w: Any, *, wrt: str | tuple[str, ...] | None = None, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, input_dilation: Any = 1, groups: int = 1, transposed: bool = False,
        math_precision: str = "element", stream: Any = None, preference: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        """The gradients for `wrt` of the call f(x, w, **given): one array, or a tuple in the order of `wrt`.

        By default those of x, of w and of all arrays of floats. They are of what is not rounded to codes: dy is of the
        result before that. The convolution is computed anew; what reaches it is rounded once to the element of x and w
        before `conv_backward`. Of an operand that was broadcast the gradient is summed to its shape.
        """
        _, arrays, numbers = self._given(x, given)
        names = self._wanted(wrt, arrays)
        where = {"stream": stream, "preference": preference}
        facts: dict[str, Any] = {
            "stride": stride, "padding": padding, "dilation": dilation, "input_dilation": input_dilation,
            "groups": groups, "transposed": transposed, "math_precision": math_precision,
        }  # fmt: skip
        kind, rank = read(x, "x").element, len(shape_of(w, "w")) - 2
        held = {name: _each_channel(value, name, rank) for name, value in arrays.items()}
        sums = conv_formula(PRODUCT)(x, w, **facts, out_element=kind.acc, **where)
        outer = tuple(n for n in names if n not in self.factors)
        inner = (PRODUCT,) if len(outer) < len(names) else ()
        found = Expression(self.formula).vjp(dy, sums, wrt=(*inner, *outer), **held, **numbers, **where)
        made = dict(zip((*inner, *outer), found if isinstance(found, tuple) else (found,), strict=True))
        if inner:
            g = made[PRODUCT] if kind.acc is kind else cast(made[PRODUCT], kind, **where)
            wanted = [n for n in self.factors if n in names]
            grads = conv_backward(
                g, x, w, **facts, return_dx="x" in wanted, return_dw="w" in wanted, return_dbias=False, **where
            )
            made |= dict(zip(wanted, grads if isinstance(grads, (tuple, list)) else (grads,), strict=False))
        results = [
            reshaped(made[n], shape_of(arrays[n], n), n) if n in arrays else made[n] for n in names
        ]  # of one axis again where the operand has one
        return results[0] if len(names) == 1 else tuple(results)

    def plan(self, /, **roles: Any) -> type[FormulaConvPlan]:  # type: ignore[override]  # of convolutions
        """The Plan class in which every name is an array but those given here: `plan(cap=float)`."""
        return conv_plan_of(self.formula, self.chosen(roles))

    def made(self, roles: Roles) -> Callable[..., Any]:
        """The functional entry for names that are what `roles` says."""
        return functional(conv_plan_of(self.formula, roles), "conv_formula")

    def __repr__(self) -> str:
        return f"conv_formula({self.formula.text!r})"


def _each_channel(value: Any, name: str, rank: int) -> Any:
    """An array of one axis with a value for each output channel."""
    own = shape_of(value, name)
    return value if len(own) != 1 or own == (1,) else reshaped(value, (*own, *(1,) * rank), name)
