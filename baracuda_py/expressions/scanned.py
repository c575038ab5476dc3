"""The plan of a scan of a formula, `then(kind, so far along an axis, of formula(x0, x1, …))`, in one launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..core import Geometry, Guarantee, Step, Variant, flag, operand, output
from ..core.element import FLOATS, INTS, ElementKind
from ..core.error_bound import ErrorBound, Exact
from ..core.memo import keep
from ..ops.scan.linear_scan import LinearScanDescriptor
from ..ops.scan.linear_scan import reference as linear_reference
from ..ops.scan.scan import ScanDescriptor
from ..ops.scan.scan import reference as scan_reference
from ..ops.scan.scan_extreme import ScanExtremeDescriptor
from ..ops.scan.scan_extreme import reference as extreme_reference
from ..ops.scan.scan_kinds import AlongAxis, ScanExtremeKind, ScanKind, problem
from ..schedules.scan import INPUTS, ScanOperands, scan_geometry, scan_kernels, scan_params
from .bounds import bound_of
from .build import call
from .cpp import functor, headers, value_type
from .folded import (
    FoldedDescriptor,
    args_class,
    bound_of_both,
    computed_in,
    descriptor_class,
    drawn_elements,
    plan_class,
    scalar_params,
    scalar_places,
)  # fmt: skip
from .formula import RESULT, Formula
from .plan import FormulaPlan, evaluated
from .program import Program, program_of, result_of
from .reduced import Reduction
from .reference import evaluate
from .shape import Roles
from .signature import Signature

RECURRENCE, STATE = "recurrence", "h"
"""The kind h' = f(h, x …), linear in h; what stands before an element."""


@dataclass(frozen=True)
class ScanForm:
    """A kind of scan. cpp: its functor, without the element. elements: those of what is scanned.

    reference: (descriptor's fields, values, initial) → y and carry, as the plan without a formula has it. exclusive:
    whether it may be.
    """

    value: str
    cpp: str
    elements: tuple[ElementKind, ...]
    reference: Callable[[Mapping[str, Any], list[Any], Any], Mapping[str, Any]]
    widens: bool = False
    exclusive: bool = False

    def result(self, kind: ElementKind) -> ElementKind:
        """The element of the scan's value."""
        return _total(kind) if self.widens else kind


def _total(kind: ElementKind) -> ElementKind:
    return kind if kind.is_float or kind is ElementKind.U64 else ElementKind.I64


def _sums(kind: ScanKind) -> ScanForm:
    def made(facts: Mapping[str, Any], values: list[Any], initial: Any) -> Mapping[str, Any]:
        return scan_reference(ScanDescriptor(**facts, kind=kind), x=values[0], initial=initial, wanted=None)

    elements = tuple(e for e in kind.elements if not e.is_complex)
    return ScanForm(kind.value, kind.cpp, elements, made, widens=True, exclusive=True)


def _extreme(kind: ScanExtremeKind) -> ScanForm:
    def made(facts: Mapping[str, Any], values: list[Any], initial: Any) -> Mapping[str, Any]:
        desc = ScanExtremeDescriptor(**{n: x for n, x in facts.items() if n != "exclusive"}, kind=kind)
        first = None if initial is None else initial.astype(values[0].dtype)
        place = None if initial is None else np.zeros(first.shape, np.int64)  # type: ignore[union-attr]
        found = extreme_reference(desc, x=values[0], initial=first, initial_indices=place, offset=0, wanted=None)
        return {"y": found["y"], "carry": found["carry"]}

    return ScanForm(kind.value, f"kinds::Running{kind.value[3:].capitalize()}", (*FLOATS, *INTS), made)


def _recurrence(facts: Mapping[str, Any], values: list[Any], initial: Any) -> Mapping[str, Any]:
    desc = LinearScanDescriptor(**{n: x for n, x in facts.items() if n != "exclusive"})
    term, factor = values
    found = linear_reference(desc, a=factor, b=term, initial=initial, wanted=None)
    return {"y": found["h"], "carry": found["carry"]}


FORMS: Mapping[str, ScanForm] = {
    **{kind.value: _sums(kind) for kind in ScanKind}, **{kind.value: _extreme(kind) for kind in ScanExtremeKind},
    RECURRENCE: ScanForm(RECURRENCE, "kinds::Recurrence", FLOATS, _recurrence),
}  # fmt: skip
"""The kinds by name."""


@dataclass(frozen=True)
class Scan(Reduction):
    """What is scanned, by which kind, and the formula of the result; fields are those of a reduction."""

    kind: Any  # a ScanForm
    word = "scan"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.map.read) > INPUTS:
            raise self.inner.wrong(f"a scan reads at most {INPUTS} arrays, the formula has {len(self.map.read)}")

    def program(self, signature: Signature) -> Program:
        """The steps of the formula that is scanned; several values have the element that they have in common."""
        if len(self.inner.outputs) == 1:
            return self.map.program(signature)
        known = _programs.get((self, signature))
        return known or keep(_programs, (self, signature), self._joined(signature), 1024)

    def _joined(self, signature: Signature) -> Program:
        arrays = dict(zip(self.map.arrays, signature.elements, strict=True))
        whole = Formula(
            self.inner.inputs, ((RESULT, call("add", self.inner.roots)),), self.inner.text, self.inner.spans
        )
        common = program_of(whole, arrays, self.map.scalars).results
        return program_of(self.inner, arrays, self.map.scalars, common * len(self.inner.outputs))

    def reduced(self, signature: Signature) -> ElementKind:
        """The element of what is scanned."""
        found = self.program(signature).results[0]
        if found not in self.kind.elements:
            raise self.inner.wrong(f"{self.kind.value} of {found} is not served; cast the formula", self.inner.roots[0])
        return found

    def moved(self, signature: Signature) -> ElementKind:
        """The element of what is scanned as kernels have it: float32 of 16-bit floats."""
        found = self.reduced(signature)
        return found.acc if found.is_float else found

    def value(self, signature: Signature) -> ElementKind:
        return self.kind.result(self.reduced(signature))  # type: ignore[no-any-return]

    def chunk(self, signature: Signature) -> ElementKind:
        """The element that fixes the chunk: the widest of what is read and written."""
        elements = [signature.elements[i] for i in self.map.read]
        return max((*elements, self.last(signature).results[0]), key=lambda kind: kind.itemsize)


class ScannedPlan(FormulaPlan):
    """A scan of a formula along an axis, and a formula of the result."""

    scan: Scan

    @classmethod
    def case(cls, draw: Any) -> Any:
        """Short and long rows along any axis."""
        shape, axis = problem(draw)
        exclusive = cls.scan.kind.exclusive and draw.flag()
        descriptor: Any = cls.descriptor
        return descriptor(shape=shape, axis=axis, reverse=draw.flag(), exclusive=exclusive, **drawn_elements(cls, draw))


class ScannedDescriptor(AlongAxis, FoldedDescriptor):
    """All operands broadcast to `shape`; the scan is along `axis`. `element` is that of the first operand.

    The others have it without `<name>_element`. exclusive: an element's own value is not part of its prefix.
    """

    made_for: Scan
    exclusive: bool

    def validate(self) -> None:
        self.last  # noqa: B018  raises where the formula has no meaning for these elements
        if self.exclusive and not self.made_for.kind.exclusive:
            raise self.made_for.inner.wrong(f"{self.made_for.kind.value} is inclusive")

    @property
    def carried(self) -> ElementKind:
        """The element of initial and carry: float32 of floats of up to 32 bits, int64 of integers."""
        return _total(self.made_for.moved(self.kind))

    @property
    def scanned(self) -> dict[str, Any]:
        """The fields of the scan without formulas; what it scans is not rounded to 16 bits."""
        facts = {n: getattr(self, n) for n in ("shape", "axis", "reverse", "exclusive")}
        return {**facts, "element": self.made_for.moved(self.kind)}


def scanned_plan_of(
    inner: Formula, kind: str, outer: Formula, inputs: tuple[str, ...], roles: Roles
) -> type[ScannedPlan]:
    """The plan of a scan; made once."""
    key = (inner, kind, outer, inputs, roles)
    return _plans.get(key) or keep(_plans, key, _made(Scan(inner, FORMS[kind], outer, inputs, roles), key), 1024)


_plans: dict[Any, type[ScannedPlan]] = {}
_programs: dict[tuple[Scan, Signature], Program] = {}


def _made(made: Scan, key: Any) -> type[ScannedPlan]:
    name, recipe = f"Scan{made.digest.capitalize()}", (scanned_plan_of, key)
    kernels = scan_kernels("FormulaScan", scan_params("ScanFormulaParams", **scalar_params(made)))
    row = Variant(
        "segments", partial(_geometry, made), source="scan/expression_scan.cu",
        kernels=kernels, may_spill=True, elements=lambda kind: kind.elements[:1],
        prelude=lambda element, kind: _text(made, kind),
        guarantee=Guarantee(lambda element, kind: _bound(made, kind), batch_invariant=True),
    )  # fmt: skip
    more = (
        ("initial", Any, operand("*kept_shape", element="carried", optional=True)),
        (made.result, Any, output("*shape", element="result", inplace=made.map.arrays)),
        ("carry", Any, output("*kept_shape", element="carried", optional=True)),
    )
    return plan_class(  # type: ignore[no-any-return]
        ScannedPlan, name, made, recipe, row, _reference, op=f"scan.formula_{made.digest}", scan=made,
        descriptor=descriptor_class(ScannedDescriptor, name, made, recipe, (("exclusive", bool, flag(False)),)),
        args=args_class(ScannedPlan, name, made, recipe, more),
    )  # fmt: skip


def _geometry(made: Scan, p: Any) -> Geometry | str:
    desc = p.desc
    read = [made.map.arrays[i] for i in made.map.read]
    found = scan_geometry(
        p, ScanOperands(read, (made.result,), ("initial",), ("carry",)), desc.axis, reverse=desc.reverse,
        exclusive=desc.exclusive, views={name: p.views[name].broadcast_to(desc.shape) for name in read},
        chunk=made.chunk(desc.kind),
    )  # fmt: skip
    if isinstance(found, str):
        return found
    numbers = scalar_places(made)
    steps = [replace(one, params={**one.params, **numbers}) for one in found.steps if isinstance(one, Step)]
    return replace(found, steps=tuple(steps))


def _text(made: Scan, kind: Signature) -> str:
    """The functors of both formulas, and the kind `FormulaScan` of baracuda/scan_axis.cuh."""
    program, last, scanned = made.program(kind), made.last(kind), made.moved(kind)
    base = f"{made.kind.cpp}<{scanned.ctype}>"
    kinds = [value_type(result_of(program.steps[index])) for index, _ in program.outputs]
    order = {i: n for n, i in enumerate(made.map.read)}
    passed = [
        f"cast<{value_type(e)}>(x.template at<{order[i]}>())" if i in order else "{}"
        for i, e in enumerate(program.inputs)
    ]
    values = [f"y{j}" for j in range(len(kinds))]
    declared = " ".join(f"{ctype} {value};" for ctype, value in zip(kinds, values, strict=True))
    given = value_type(last.inputs[0])
    return f"""{headers(program)}{headers(last)}namespace baracuda {{
{functor("Formula", program, made.places(made.map.scalars))}
{functor("Then", last, made.places(made.outer.inputs[1:]))}
struct FormulaScan : {base} {{
  using Base = {base};
  using element = {made.chunk(kind).ctype};
  using State = typename Base::State;
  using Ins = Types<{", ".join(program.inputs[i].ctype for i in made.map.read)}>;
  using Outs = Types<{last.results[0].ctype}>;
  using Made = typename Base::Outs::first;
  static constexpr int leaves = Ins::count;
  const Formula f;
  const Then then;
  template <class P> BARACUDA_D FormulaScan(const P& p, const ScanPlaces& at) : Base(p, at), f(p), then(p) {{}}
  template <class X> BARACUDA_D State leaf(const X& x, i64 r) const {{
    {declared}
    f({", ".join((*passed, *values))});
    const {scanned.ctype} first = cast<{scanned.ctype}>(y0), second = cast<{scanned.ctype}>({values[-1]});
    return Base::leaf(ScanValues<const {scanned.ctype}, const {scanned.ctype}>{{first, second}}, r);
  }}
  template <class Y, class X> BARACUDA_D void put(const Y& to, const State& s, const X& x, i64 r) const {{
    Made made;
    Base::put(ScanValues<Made, Made>{{made, made}}, s, x, r);
    {value_type(result_of(last.steps[last.outputs[0][0]]))} y;
    then(static_cast<{given}>(made), y);
    to.template at<0>() = cast<{last.results[0].ctype}>(y);
  }}
}};
}}  // namespace baracuda
"""


def _bound(made: Scan, kind: Signature) -> ErrorBound:
    first, last = made.program(kind), made.last(kind)
    moved = made.reduced(kind)
    if all(isinstance(bound_of(one), Exact) for one in (first, last)) and not moved.is_float:
        return Exact()
    return bound_of_both(first, last)


def _reference(made: Scan, desc: Any, /, initial: Any = None, wanted: Any = None, **given: Any) -> Mapping[str, Any]:
    values = evaluated(made.map, desc, given)
    compute = computed_in(given)
    moved = made.moved(desc.kind)
    values = [np.asarray(x, compute if moved.is_float else moved.dtype) for x in values]
    with np.errstate(all="ignore"):
        found = made.kind.reference(desc.scanned, values, initial)
    numbers = [given[name] for name in made.outer.inputs[1:]]
    y = found["y"]
    (result,) = evaluate(desc.last, [y], numbers, y.dtype if y.dtype.kind == "f" else compute)
    return {made.result: np.broadcast_to(result, desc.shape), "carry": found["carry"]}
