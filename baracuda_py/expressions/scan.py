"""`scan`: a scan of a formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..calls.exported import exported
from ..calls.functional import functional
from ..core.arrays import read
from ..core.checked import shown, truth
from ..core.errors import InvalidProblemError
from ..core.keywords import near
from ..core.memo import keep
from ..interop.dynamo import FORMULA, methods_in_graph, uncompiled
from ..ops.scan.linear_scan import linear_scan
from ..ops.scan.linear_scan_backward import linear_scan_backward
from ..ops.scan.scan import cumprod, cumsum, logcumsumexp
from ..ops.scan.scan_backward import scan_backward
from ..ops.scan.scan_extreme import cummax, cummin
from ..ops.scan.scan_extreme_backward import scan_extreme_backward
from ..ops.scan.scan_functions import nancumprod, nancumsum
from .affine import affine
from .build import call
from .calls import Call, by_names, has_gradient
from .elementwise import Expression
from .formula import Formula
from .nodes import named
from .parse import parse
from .reduce import no_kind, result_formula, split_call
from .reduce_gradients import widened
from .scanned import FORMS, RECURRENCE, STATE, ScannedPlan, scanned_plan_of
from .shape import Roles
from .signature import Signature
from .trace import trace

_NAMES = {
    **{name: name for name in FORMS if name != RECURRENCE}, "cumulative_sum": "cumsum", "cumulative_prod": "cumprod",
    "cumlogsumexp": "logcumsumexp",
}  # fmt: skip
_EXTREMES: Mapping[str, Callable[..., Any]] = {"cummax": cummax, "cummin": cummin}
_SCANS: Mapping[str, Callable[..., Any]] = {
    "cumsum": cumsum, "cumprod": cumprod, "logcumsumexp": logcumsumexp, "nancumsum": nancumsum,
    "nancumprod": nancumprod,
}  # fmt: skip
_TAKEN = ("initial", "carry", "return_carry", "axis", "reverse", "exclusive")


@exported
@uncompiled(FORMULA)
def scan(
    formula: str | Callable[..., Any], kind: str | None = None, *, axis: int = -1, reverse: bool = False,
    exclusive: bool = False, then: str | None = None, **defaults: Any,
) -> FormulaScan:  # fmt: skip
    """A function of arrays and numbers that scans a formula along an axis, without an array of its values.

        energy = bc.scan("sqrt(cumsum(x * x))", axis=-1)
        bc.scan("x * y", "cumsum", axis=0)                          # the same as bc.scan("cumsum(x * y)", axis=0)
        returns = bc.scan("where(done, 0, gamma) * h + x", "recurrence", axis=-1, reverse=True, gamma=0.99)
        average = bc.scan(lambda h, x, alpha: h + alpha * (x - h), "recurrence")

    The scan is cumsum, cumprod, logcumsumexp, nancumsum, nancumprod, cummax or cummin. Either the formula calls it, or
    `kind` names it; then `then` is the formula of the result, in which it has the kind's name, and other names are
    numbers. "recurrence": the formula, linear in `h`, makes the next h of the one before and an element; `then` has it
    as h. Operands are as in `elementwise`, at most four arrays; 16-bit floats are scanned in float32 or wider and
    rounded once, after the last formula. reverse: from the last element on; exclusive: an element's own value is not
    part of its prefix. A call takes initial=, one value a row that stands before it, and return_carry=, which returns
    what stands after it as well: the initial of a stream's next chunk. Of cummax and cummin it is an element of what is
    scanned: a wider integer is taken modulo.
    """
    if kind is None:
        inner, name, outer = split_call(formula, then, _NAMES, "scan", "cumsum")
    else:
        known = {**_NAMES, RECURRENCE: RECURRENCE}
        if kind not in known:
            raise no_kind("scan", kind, near(str(kind), known), FORMS)
        inner, name = trace(formula) if callable(formula) else parse(formula), known[kind]
        shows = STATE if name == RECURRENCE else name
        outer = result_formula(parse(shows if then is None else then), shows)
    if len(inner.outputs) != 1:
        raise inner.wrong(f"one value is scanned, the formula has {len(inner.outputs)} outputs")
    if name == RECURRENCE:
        inner = affine(inner, STATE)
    for one in (inner, outer):
        if clash := [word for word in one.inputs if word in _TAKEN]:
            raise one.wrong(f"{clash[0]} is a word of scans; give the operand another name", named(clash[0]))
    return FormulaScan(inner, name, outer, axis, reverse, exclusive, defaults)


@methods_in_graph("__call__", "vjp")
@exported
class FormulaScan(Call):
    """A scan of a formula as a function; `bc.scan` makes it. `plan(…)` is its Plan class."""

    def __init__(
        self, inner: Formula, kind: str, outer: Formula, axis: int, reverse: bool, exclusive: bool, defaults: Any
    ) -> None:
        inputs = dict.fromkeys((*inner.inputs, *outer.inputs[1:]))
        super().__init__(tuple(sorted(inputs, key=defaults.__contains__)), defaults)
        self.inner, self.kind, self.outer, self.axis = inner, kind, outer, axis
        self.reverse, self.exclusive = truth("reverse", reverse), truth("exclusive", exclusive)
        self._entries: dict[Roles, Callable[..., Any]] = {}

    def __call__(
        self, /, *args: Any, initial: Any = None, return_carry: bool = False, out: Any = None, stream: Any = None,
        preference: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        """The result for arrays and numbers, and with return_carry what stands after each row."""
        values = self.values(args, given)
        if initial is None and return_carry is False:
            return self.recorded(values, out, stream, preference)
        roles = self.roles(values)
        arrays, numbers = self.split(values, roles)
        return by_names(self.made(roles))(
            *arrays.values(), initial, **numbers, return_carry=return_carry, out=out, stream=stream,
            preference=preference,
        )  # fmt: skip

    @property
    def learnable(self) -> tuple[str, ...]:
        """The inputs of which there are gradients where they are 0-d floats: those of what is scanned alone."""
        return tuple(name for name in self.inner.inputs if name not in self.outer.inputs[1:])

    def plan(self, /, **roles: Any) -> type[ScannedPlan]:
        """The Plan class in which every input is an array but those given here: `plan(gamma=float)`.

        Inputs with a default are numbers unless it says `gamma=None`.
        """
        return self._plan(self.chosen(roles))

    def made(self, roles: Roles) -> Callable[..., Any]:
        """The functional entry for inputs that are what `roles` says."""
        function = self._entries.get(roles)
        if function is None:
            facts: dict[str, Any] = {"axis": self.axis, "reverse": self.reverse, "exclusive": self.exclusive}
            function = keep(self._entries, roles, functional(self._plan(roles), "formula", **facts), 64)
        return function

    def vjp(
        self, dy: Any, /, *args: Any, wrt: str | tuple[str, ...] | None = None, initial: Any = None, **given: Any
    ) -> Any:
        """The gradients for the arrays `wrt` (by default all of floats): `f.vjp(dy, x, y)` gives (dx, dy) for f(x, y).

        By the gradient of the scan, between those of the formulas; what is scanned is made anew, in float32 of 16-bit
        floats. `initial` is the call's, and has no gradient here. One array is not put in a tuple.
        """
        values = dict(zip(self.inputs, self.values(args, given), strict=True))
        if initial is not None and self.kind in _EXTREMES:
            raise InvalidProblemError(f"{self!r}: a {self.kind} that goes on from an initial has no gradient here")
        roles = self.roles(tuple(values.values()))
        arrays, numbers = self.split(tuple(values.values()), roles)
        wanted, wide = self._wanted(wrt, arrays, numbers), self._wide(roles, arrays)
        inner = {name: values[name] for name in self.inner.inputs}
        trees = tuple((name, call(wide, (tree,))) for name, tree in self.inner.outputs)
        first = Expression(Formula(self.inner.inputs, trees, self.inner.text, self.inner.spans))
        scanned = first(**inner)
        outer = self.outer.inputs[0]
        if self.outer.roots != [named(outer)]:
            last = {name: values[name] for name in self.outer.inputs[1:]}
            dy = Expression(self.outer).vjp(dy, self._plain(scanned, initial), wrt=outer, **last)
        elif str(read(dy, "dy").element) != wide:
            dy = Expression(widened("dy", wide))(dy)
        return first.vjp(*self._through(dy, scanned, initial), wrt=wanted, **inner)

    def _plain(self, scanned: Any, initial: Any) -> Any:
        """The scan of what is scanned."""
        if self.kind == RECURRENCE:
            term, factor = scanned
            return linear_scan(factor, term, initial, axis=self.axis, reverse=self.reverse)
        if self.kind in _EXTREMES:
            return _EXTREMES[self.kind](scanned, axis=self.axis, reverse=self.reverse)[0]
        return _SCANS[self.kind](
            scanned, self.axis, initial, reverse=self.reverse, exclusive=self.exclusive
        )  # fmt: skip

    def _through(self, dy: Any, scanned: Any, initial: Any) -> tuple[Any, ...]:
        """The gradient of the scan for what is scanned."""
        facts: dict[str, Any] = {"axis": self.axis, "reverse": self.reverse, "return_dinitial": False}
        if self.kind == RECURRENCE:
            h = self._plain(scanned, initial)
            dfactor, dterm = linear_scan_backward(dy, scanned[1], h, initial, **facts)
            return dterm, dfactor
        if self.kind in _EXTREMES:
            _, indices = _EXTREMES[self.kind](scanned, axis=self.axis, reverse=self.reverse)
            return (scan_extreme_backward(dy, indices, kind=self.kind, **facts),)
        x = None if self.kind == "cumsum" else scanned
        y = None if self.kind in ("cumsum", "nancumsum") else self._plain(scanned, initial)
        return (scan_backward(dy, x, y, initial, kind=self.kind, exclusive=self.exclusive, **facts),)

    def _wanted(
        self, wrt: str | tuple[str, ...] | None, arrays: Mapping[str, Any], numbers: Mapping[str, Any]
    ) -> tuple[str, ...]:
        """The arrays whose gradients are asked for."""
        floats = tuple(n for n in self.inner.inputs if n in arrays and read(arrays[n], n).element.is_float)
        names = floats if wrt is None else (wrt,) if isinstance(wrt, str) else tuple(wrt)
        known = (*floats, *(n for n in self.learnable if n in numbers and has_gradient(numbers[n], n)))
        if wrong := [name for name in names if name not in known]:
            raise InvalidProblemError(f"wrt names {shown(wrong[0])}; the arrays of floats are {', '.join(floats)}")
        return names

    def _wide(self, roles: Roles, arrays: Mapping[str, Any]) -> str:
        """The element in which gradients have what is scanned: float32 of 16-bit floats."""
        made = self._plan(roles).scan
        elements = tuple(read(arrays[name], name).element for name in made.map.arrays)
        return str(made.moved(Signature(elements)))

    def _plan(self, roles: Roles) -> type[ScannedPlan]:
        return scanned_plan_of(self.inner, self.kind, self.outer, self.inputs, roles)

    def _facts(self) -> tuple[Any, ...]:
        return self.inner, self.kind, self.outer, self.axis, self.reverse, self.exclusive, self.defaults

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormulaScan) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts()[:-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return FormulaScan, self._facts()

    def __repr__(self) -> str:
        said = self.outer.text if self.outer.text == self.inner.text else f"{self.inner.text}, {self.kind}"
        return f"scan({said!r}, axis={self.axis})"
