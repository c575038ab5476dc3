"""`elementwise`: an op from a formula."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..calls.exported import exported
from ..calls.functional import functional
from ..core.arrays import read
from ..core.checked import shown
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError
from ..core.memo import keep
from ..interop.dynamo import FORMULA, methods_in_graph, uncompiled
from .backward import gradient_plan_of
from .calls import Call, by_names, has_gradient
from .cpp import functor, headers
from .derive import gradient, is_smooth
from .errors import ExpressionError
from .formula import Formula
from .forward import plan_of
from .nodes import named, substituted
from .parse import parse
from .plan import FormulaPlan
from .program import program_of
from .shape import ARRAY, REAL, Roles, Shape
from .trace import Symbol, symbol, trace


@exported
@uncompiled(FORMULA)
def elementwise(formula: str | Callable[..., Any], /, **defaults: Any) -> Expression:
    """A function of arrays and numbers, element by element, from a formula.

        swish = bc.elementwise("silu(x) * y + alpha")
        swish(x, y, 0.5)                        # or swish(x, y, alpha=0.5)

    A call takes the names of the formula in the order in which they first stand there, those with a default last (of a
    Python function: the order of its parameters). What is given decides what a name is: an array, which is broadcast
    with the others, or a number (a Python number or a 0-d array), which may change from call to call and takes no new
    kernel. `defaults` are what is taken where a name is not given. One kernel is compiled for each choice of elements;
    layouts are the caller's.

    The formula has Python's operators, comparisons, `a if c else b`, `and`, `or`, `not`, the functions of the
    elementwise tables by their names (`exp`, `silu`, `maximum`, …), `where`, `clamp`, `lerp`, `isnan`, casts as
    `float16(x)`, and `pi`, `inf`, `nan`. `"y = a * b; z = y + 1"` has two outputs. It may be a Python function of
    symbols, `bc.elementwise(lambda x, y: bc.silu(x) * y)`, which is called once. Elements promote as in PyTorch;
    16-bit floats are computed in float32 and rounded once, at the end. A formula without meaning raises
    `ExpressionError`, which points at the characters.
    """
    if isinstance(formula, Expression):
        return Expression(formula.formula, {**formula.defaults, **defaults})
    if callable(formula) and not isinstance(formula, str):
        parameters = inspect.signature(formula).parameters.values()
        own = {p.name: p.default for p in parameters if p.default is not p.empty}
        return Expression(trace(formula), {**own, **defaults})
    found = parse(formula)
    return Expression(found.reordered(sorted(found.inputs, key=defaults.__contains__)), defaults)


@methods_in_graph("__call__", "vjp")
@exported
class Expression(Call):
    """A formula as a function; `bc.elementwise` makes it. Equal formulas share plans and kernels.

    `formula` is its tree and `text` what it reads as; `inputs` and `outputs` are names. `plan(…)` is its Plan class for
    the full Descriptor → select → can_implement → run.
    """

    def __init__(self, formula: Formula, defaults: Mapping[str, Any] | None = None) -> None:
        super().__init__(formula.inputs, defaults)
        self.formula = formula
        self._gradients: dict[Any, Callable[..., Any]] = {}

    @property
    def learnable(self) -> tuple[str, ...]:
        """The inputs of which there are gradients where they are 0-d arrays of floats."""
        return self.inputs if len(self.outputs) == 1 else ()

    @property
    def text(self) -> str:
        """The formula."""
        return self.formula.text

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what it gives."""
        return tuple(name for name, _ in self.formula.outputs)

    @property
    def smooth(self) -> bool:
        """Whether it is made of smooth functions alone, so that differences of values tell its derivatives."""
        return all(
            node.form in ("input", "constant") or (node.form == "call" and is_smooth(node.value))
            for node in self.formula.nodes
        )

    @property
    def differentiable(self) -> bool:
        """Whether the derivatives of all its functions are known."""
        try:
            gradient(self.formula, self.inputs)
        except ExpressionError:
            return False
        return True

    def __call__(
        self, /, *args: Any, out: Any = None, stream: Any = None, preference: Any = None, **given: Any
    ) -> Any:  # fmt: skip
        """The outputs for arrays and numbers: one array, or a tuple. `out=` takes arrays to write, in place too."""
        values = self.values(args, given)
        if Symbol in [type(value) for value in values]:
            return self._of_symbols(values)
        if self._learns(values):
            return self.recorded(values, out, stream, preference)
        return self.run(values, out, stream, preference)

    def plan(self, /, **roles: Any) -> type[FormulaPlan]:
        """The Plan class in which every input is an array but those given here: `plan(alpha=float)`, `plan(n=int)`.

        Inputs with a default are numbers unless it says `alpha=None`.
        """
        return plan_of(self.formula, self.chosen(roles))

    def made(self, roles: Roles) -> Callable[..., Any]:
        """The functional entry for inputs that are what `roles` says."""
        return functional(plan_of(self.formula, roles), "formula")

    def functor(self, name: str, /, **operands: Any) -> str:
        """The device code of the formula, a struct `name`, for kernels that embed it: see `expressions.cpp`.

        operands: the element of each input that is an array (`x="bfloat16"`), and `float` or `int` for a number, which
        the struct reads from the parameters as p.s0(), p.s1(), … in the order of the inputs.
        """
        values = self.values((), operands)
        numbers = {n: v is int for n, v in zip(self.inputs, values, strict=True) if v in (float, int)}
        arrays = {n: ElementKind.of(v) for n, v in zip(self.inputs, values, strict=True) if n not in numbers}
        program = program_of(self.formula, arrays, numbers)
        return f"{headers(program)}namespace baracuda {{\n{functor(name, program)}}}  // namespace baracuda\n"

    def vjp(
        self, /, *args: Any, wrt: str | tuple[str, ...] | None = None, out: Any = None, stream: Any = None,
        preference: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        """The gradients for the arrays `wrt` (by default all of floats): `f.vjp(dy, x, y)` gives (dx, dy) for f(x, y).

        First the cotangents, one for each output (None: none), then what the call took. Of an operand that was
        broadcast, or is a 0-d array that `wrt` names, the gradient is summed to its shape, in an order that the shapes
        fix. One array is not put in a tuple.
        """
        count = len(self.outputs)
        if len(args) < count:
            raise InvalidProblemError(f"{self!r}: vjp takes {count} cotangents first, then the operands")
        cotangents, values = args[:count], self.values(args[count:], given)
        asked = (wrt,) if isinstance(wrt, str) else wrt or ()
        roles = tuple([
            ARRAY if role == REAL and name in asked and has_gradient(value, name) else role
            for name, value, role in zip(self.inputs, values, self.roles(values), strict=True)
        ])  # fmt: skip
        arrays, numbers = self.split(values, roles)
        names = self._wanted(wrt, arrays)
        kept = tuple(name for name, d in zip(self.outputs, cotangents, strict=True) if d is not None)
        if not kept:
            raise InvalidProblemError(f"{self!r}: vjp needs a cotangent, got None for every output")
        key = (roles, names, kept)
        function = self._gradients.get(key)
        if function is None:
            plan = gradient_plan_of(Shape(self.formula, roles), names, kept)
            function = keep(self._gradients, key, by_names(functional(plan, "formula_vjp")), 64)
        passed = (*arrays.values(), *(d for d in cotangents if d is not None))
        return function(*passed, **numbers, out=out, stream=stream, preference=preference)

    def _learns(self, values: tuple[Any, ...]) -> bool:
        """Whether autograd or JAX may want the gradient of a number, a 0-d array of floats."""
        if 0 not in [getattr(value, "ndim", 1) for value in values]:
            return False
        return bool(self.numbers_learned(self.split(values, self.roles(values))[1]))

    def _wanted(self, wrt: str | tuple[str, ...] | None, arrays: Mapping[str, Any]) -> tuple[str, ...]:
        """The operands whose gradients are asked for."""
        floats = tuple(n for n, value in arrays.items() if read(value, n).element.is_float)
        names = floats if wrt is None else (wrt,) if isinstance(wrt, str) else tuple(wrt)
        for name in names:
            if name not in self.inputs:
                raise InvalidProblemError(f"wrt names {shown(name)}; the operands are {', '.join(self.inputs)}")
            if name not in floats:
                what = "an array of integers" if name in arrays else "a number; give it as a 0-d array of floats"
                raise InvalidProblemError(f"{name} has no gradient, as it is {what}")
        if not names:
            raise InvalidProblemError(f"{self!r}: no operand is an array of floats, so there is no gradient")
        return names

    def _of_symbols(self, values: tuple[Any, ...]) -> Any:
        """The formula inside another one."""
        given = {named(name): symbol(value).node for name, value in zip(self.inputs, values, strict=True)}
        made = tuple(Symbol(tree) for tree in substituted(self.formula.roots, given))
        return made[0] if len(made) == 1 else made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and (self.formula, self.defaults) == (other.formula, other.defaults)

    def __hash__(self) -> int:
        return hash(self.formula)

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression, (self.formula, self.defaults)

    def __repr__(self) -> str:
        return f"elementwise({self.text!r})"


__all__ = ["Expression", "ExpressionError", "elementwise"]
