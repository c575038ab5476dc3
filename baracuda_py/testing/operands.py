"""A case's operands laid out in guarded buffers, ready to be given to a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.args import Operand, arrays_of, scalars_of
from .draw import Case, Draw, shapes_of
from .layouts import Laid, Placement, lay_out, place
from .reference import difference, element_of, rounded, same_bits

Wrap = Callable[[np.ndarray], Any]


@dataclass
class Operands:
    """Every array operand of a case as `Laid` (a list of them, or None); scalars stay in the case.

    held: scalars that a call gets as 0-d arrays.
    """

    case: Case
    laid: dict[str, Any]
    held: dict[str, np.ndarray] = field(default_factory=dict)

    def items(self) -> Iterator[tuple[Operand, int, Laid]]:
        """Every laid array with its declaration and place in its list."""
        for spec in arrays_of(self.case.plan.args):
            held = self.laid[spec.name]
            for i, one in enumerate(held if isinstance(held, list) else [] if held is None else [held]):
                yield spec, i, one

    def fields(self, wrap: Wrap = lambda a: a) -> dict[str, Any]:
        """Keyword arguments for the Args class."""
        given: dict[str, Any] = {}
        for spec in arrays_of(self.case.plan.args):
            held = self.laid[spec.name]
            many = isinstance(held, list)
            given[spec.name] = [wrap(x.view) for x in held] if many else None if held is None else wrap(held.view)
        numbers = {spec.name: self.case.arrays[spec.name] for spec in scalars_of(self.case.plan.args)}
        return given | numbers | {name: wrap(array) for name, array in self.held.items()}

    def args(self, wrap: Wrap = lambda a: a) -> Any:
        """The call's Args."""
        return self.case.plan.args(**self.fields(wrap))

    def damage(self, writes: bool = True) -> str | None:
        """What a run changed that it must not; `writes=False` when nothing at all may have changed."""
        for spec, i, one in self.items():
            harm = one.damage(writes and spec.writes)
            if harm:
                return f"{spec.name}{f'[{i}]' if spec.many else ''}: {harm}"
        return None

    def compare(self, results: dict[str, Any]) -> str | None:
        """How the written operands differ from the reference's results rounded once; None if they do not."""
        for spec, i, one in self.items():
            if not spec.writes:
                continue
            result = results[spec.name][i] if spec.many else results[spec.name]
            shape = one.shape if spec.like else shapes_of(spec, self.case.desc)[i]
            if np.shape(result) != shape:
                return f"{spec.name}: the reference returns shape {np.shape(result)}, declared is {shape}"
            wanted = rounded(result, one.view, element_of(spec, self.case.desc, one.view))
            if not same_bits(np.array(one.view), wanted):
                return f"{spec.name}{f'[{i}]' if spec.many else ''}: {difference(np.array(one.view), wanted)}"
        return None

    def __str__(self) -> str:
        places = ", ".join(f"{s.name}{f'[{i}]' if s.many else ''}: {one.placement.name}" for s, i, one in self.items())
        return f"{self.case}; {places}" + f"; 0-d arrays: {', '.join(self.held)}" * bool(self.held)


def held(case: Case) -> dict[str, np.ndarray]:
    """The scalars of a case as 0-d arrays that hold them exactly; one beyond int64 has none."""
    made = {}
    for spec in scalars_of(case.plan.args):
        value = case.arrays[spec.name]
        short = isinstance(value, float) and float(np.float32(value)) == value
        array = np.array(value, np.float32 if short else None)
        if array.dtype in (np.float32, np.float64, np.int64):
            made[spec.name] = array
    return made


_STRICTNESS = ("any", "inner", "dense")


def _tighter(own: str, rule: str | None) -> str:
    return max(own, rule or "any", key=_STRICTNESS.index)


def operands(case: Case, draw: Draw | None = None, poison: int = 0xFF, rule: str | None = None) -> Operands:
    """Lay a case out: dense without `draw`, else as the draw chooses within each operand's rule (or `rule`)."""
    laid: dict[str, Any] = {}
    for spec in arrays_of(case.plan.args):
        if not spec.reads:
            if spec.name not in case.wanted:
                laid[spec.name] = None
                continue
            kind = spec.elements(case.desc)[0]
            made = [np.empty(shape, kind.carrier) for shape in shapes_of(spec, case.desc)]
            if spec.like:
                made = [np.empty_like(case.arrays[spec.like])]
            given: Any = made if spec.many else made[0]
        else:
            given = case.arrays[spec.name]
        fill = None if spec.reads else poison

        def one(array: np.ndarray, spec: Operand = spec, fill: int | None = fill) -> Laid:
            where = (
                Placement()
                if draw is None
                else place(draw, array, _tighter(spec.layout, rule), reads_only=not spec.writes)
            )
            return lay_out(array, where, fill)

        laid[spec.name] = None if given is None else [one(a) for a in given] if isinstance(given, list) else one(given)
    return Operands(case, laid)
