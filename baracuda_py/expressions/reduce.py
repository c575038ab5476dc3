"""`reduce`: a reduction of a formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..calls.exported import exported
from ..calls.functional import functional
from ..core.arrays import read
from ..core.element import HALVES
from ..core.errors import InvalidProblemError
from ..core.keywords import near
from ..interop.dynamo import FORMULA, methods_in_graph, uncompiled
from ..ops.reduce.reduce_kinds import ReduceKind
from .calls import Call
from .elementwise import Expression
from .errors import ExpressionError
from .formula import RESULT, Formula, fresh, output_name
from .nodes import named, ordered, substituted
from .parse import parse
from .reduce_gradients import SURROGATES, C, N, R, places, widened
from .reduced import ReductionPlan, reduction_plan_of
from .shape import Roles, Shape
from .signature import Signature
from .trace import trace

_KINDS = {kind.value: kind for kind in ReduceKind if "p" not in kind.row.takes}
_NAMES = {name: kind.value for kind in _KINDS.values() for name in kind.names}


@exported
@uncompiled(FORMULA)
def reduce(
    formula: str | Callable[..., Any], kind: str | None = None, *, axis: Any = None, keepdims: bool = False,
    then: str | None = None, correction: int = 1, **defaults: Any,
) -> FormulaReduction:  # fmt: skip
    """A function of arrays and numbers that reduces a formula along axes, without an array of its values.

        rms = bc.reduce("sqrt(mean(x * x) + eps)", axis=-1, eps=1e-6)
        rms(x)
        bc.reduce("x * y", "sum", axis=-1)                  # the same as bc.reduce("sum(x * y)", axis=-1)
        bc.reduce("x * x", "mean", then="sqrt(mean + eps)")

    The reduction is one of `ReduceKind` (sum, mean, amax, argmax, any, logsumexp, var, …) along `axis` (an int, a
    tuple, None for all). Either the formula calls it, or `kind` names it; then `then` is the formula of the result, in
    which it has the kind's name, and other names are numbers. Operands are as in `elementwise`: arrays are broadcast
    together, 16-bit floats are reduced in float32 and rounded once, after the last formula. correction: of var and std.
    """
    if kind is None:
        inner, name, outer = split_call(formula, then, _NAMES)
    else:
        if kind not in _NAMES:
            close = near(str(kind), _NAMES)
            raise no_kind("reduction", kind, close, _KINDS)
        inner, name = trace(formula) if callable(formula) else parse(formula), _NAMES[kind]
        outer = result_formula(parse(name if then is None else then), name)
    if len(inner.outputs) != 1:
        raise inner.wrong(f"one value is reduced, the formula has {len(inner.outputs)} outputs")
    return FormulaReduction(inner, name, outer, axis, keepdims, correction, defaults)


def no_kind(what: str, kind: Any, close: Sequence[str], known: Iterable[str]) -> InvalidProblemError:
    """The error of a kind that there is not."""
    hint = f"; did you mean {' or '.join(close)}?" if close else f"; one of {', '.join(known)}"
    return InvalidProblemError(f"there is no {what} {kind!r}{hint}")


def split_call(
    formula: Any, then: str | None, names: Mapping[str, str], what: str = "reduction", example: str = "sum"
) -> tuple[Formula, str, Formula]:
    """The formula inside the one reduction that a text calls, its kind, and the formula around it."""
    if not isinstance(formula, str) or then is not None:
        raise InvalidProblemError(f'a function, or a formula with then=, needs the kind of the {what}, as "{example}"')
    whole = parse(formula, names)
    found = [node for node in whole.nodes if node.form == "reduce"]
    if len(found) != 1 or len(whole.outputs) != 1:
        raise whole.wrong(
            f"a formula has one {what}, as in {example}(x * x), got {len(found)}", found[1] if found[1:] else None
        )
    (node,) = found
    inputs = [name for name in whole.inputs if any(n == named(name) for n in ordered(node.args))]
    inner = Formula(tuple(inputs), ((output_name(RESULT, inputs), node.args[0]),), whole.text, whole.spans)
    value = fresh(node.value, whole.inputs)
    trees = substituted(whole.roots, {node: named(value)})
    others = [n.value for n in ordered(trees) if n.form == "input" and n.value != value]
    outer = (value, *others)
    return inner, node.value, Formula(outer, ((output_name(RESULT, outer), trees[0]),), whole.text, whole.spans)


def result_formula(then: Formula, name: str) -> Formula:
    """The formula of the result with the reduced value as its first input."""
    if len(then.outputs) != 1:
        raise then.wrong("the formula of the result has one output")
    if name not in then.inputs:
        raise ExpressionError(
            f"then= is a formula of {name}, the value that the kind makes; it does not use it", then.text, (0, 1)
        )
    return Formula((name, *(n for n in then.inputs if n != name)), then.outputs, then.text, then.spans)


@methods_in_graph("__call__", "vjp")
@exported
class FormulaReduction(Call):
    """A reduction of a formula as a function; `bc.reduce` makes it. `plan(…)` is its Plan class."""

    def __init__(
        self, inner: Formula, kind: str, outer: Formula, axis: Any, keepdims: bool, correction: int, defaults: Any
    ) -> None:
        inputs = dict.fromkeys((*inner.inputs, *outer.inputs[1:]))
        super().__init__(tuple(sorted(inputs, key=defaults.__contains__)), defaults)
        self.inner, self.kind, self.outer = inner, kind, outer
        self.axis, self.keepdims, self.correction = axis, keepdims, correction

    def __call__(self, /, *args: Any, out: Any = None, stream: Any = None, preference: Any = None, **given: Any) -> Any:
        """The result for arrays and numbers."""
        values = self.values(args, given)
        return (self.recorded if self.kind in SURROGATES else self.run)(values, out, stream, preference)

    @property
    def learnable(self) -> tuple[str, ...]:
        """The inputs of which there are gradients where they are 0-d floats: those of what is reduced alone."""
        return tuple(name for name in self.inner.inputs if name not in self.outer.inputs[1:])

    def plan(self, /, **roles: Any) -> type[ReductionPlan]:
        """The Plan class in which every input is an array but those given here: `plan(eps=float)`.

        Inputs with a default are numbers unless it says `eps=None`.
        """
        return self._plan(self.chosen(roles))

    def made(self, roles: Roles) -> Callable[..., Any]:
        """The functional entry for inputs that are what `roles` says."""
        return functional(
            self._plan(roles), "formula", axis=self.axis, keepdims=self.keepdims, correction=self.correction
        )

    def vjp(self, dy: Any, /, *args: Any, wrt: str | tuple[str, ...] | None = None, **given: Any) -> Any:
        """The gradients for the arrays `wrt` (by default all of floats): `f.vjp(dy, x, y)` gives (dx, dy) for f(x, y).

        For sum, mean, nansum, nanmean, sum_squares, norms, logsumexp, amax and amin (ties share), and var. The reduced
        value is computed anew, in float32 of 16-bit floats; one array is not put in a tuple.
        """
        row = SURROGATES.get(self.kind)
        if row is None:
            raise InvalidProblemError(f"{self!r}: {self.kind} has no gradient here; {', '.join(SURROGATES)} have")
        values = dict(zip(self.inputs, self.values(args, given), strict=True))
        inner = {name: values[name] for name in self.inner.inputs}
        arrays, _ = self.split(tuple(values.values()), self.roles(tuple(values.values())))
        shape = np.broadcast_shapes(*(tuple(arrays[name].shape) for name in inner if name in arrays))
        axes = self._axes(len(shape))
        kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
        wide = self._wide(inner, arrays)
        value = self.outer.inputs[0]
        if self.outer.roots != [named(value)]:
            reduced = self._again(self.inner, self.kind, widened(self.kind, wide))(**inner)
            numbers = {name: values[name] for name in self.outer.inputs[1:]}
            dy = Expression(self.outer).vjp(dy.reshape(reduced.shape), reduced, wrt=value, **numbers)
        surrogate, called = row.formula(self.inner), places(self.inner)
        more: dict[str, Any] = {}
        if called[R] in surrogate.inputs:
            more[called[R]] = self._again(self.inner, row.value, widened(row.value, wide))(**inner).reshape(kept)
        if called[C] in surrogate.inputs:
            counted = row.counted(self.inner)
            known = more if called[R] in counted.inputs else {}
            found = self._again(counted, "count_nonzero", widened("count_nonzero", ""))(**inner, **known)
            more[called[C]] = found.reshape(kept)
        if called[N] in surrogate.inputs:
            count = math.prod(shape[a] for a in axes)
            more[called[N]] = float(count - self.correction if row.corrected else count)
        wanted = wrt if wrt is not None else tuple(
            n for n in inner if n in arrays and read(arrays[n], n).element.is_float
        )  # fmt: skip
        return Expression(surrogate).vjp(dy.reshape(kept), wrt=wanted, **inner, **more)

    def _axes(self, rank: int) -> tuple[int, ...]:
        """The reduced axes of operands of this rank."""
        if self.axis is None:
            return tuple(range(rank))
        return tuple(a % max(rank, 1) for a in ((self.axis,) if isinstance(self.axis, int) else self.axis))

    def _wide(self, inner: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
        """The element that a reduced value of 16-bit floats is kept in, or nothing for those that stay as they are."""
        shape = Shape(self.inner, tuple(self.roles_of(inner)))
        elements = tuple(read(arrays[name], name).element for name in shape.arrays)
        (result,) = shape.program(Signature(elements)).results
        return "float32" if result in HALVES else ""

    def roles_of(self, inner: Mapping[str, Any]) -> Roles:
        """What the inputs of the formula that is reduced are."""
        return self.roles(tuple(inner.values()))

    def _again(self, inner: Formula, kind: str, outer: Formula) -> FormulaReduction:
        """Another reduction along the same axes."""
        return FormulaReduction(inner, kind, outer, self.axis, self.keepdims, self.correction, {})

    def _plan(self, roles: Roles) -> type[ReductionPlan]:
        return reduction_plan_of(self.inner, self.kind, self.outer, self.inputs, roles)

    def _facts(self) -> tuple[Any, ...]:
        axis = tuple(self.axis) if isinstance(self.axis, list) else self.axis
        return self.inner, self.kind, self.outer, axis, self.keepdims, self.correction, self.defaults

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormulaReduction) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts()[:-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return FormulaReduction, self._facts()

    def __repr__(self) -> str:
        said = self.outer.text if self.outer.text == self.inner.text else f"{self.inner.text}, {self.kind}"
        return f"reduce({said!r}, axis={self.axis})"
