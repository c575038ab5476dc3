"""What a case's results should be: the reference in a wider type, and whether a run's are within their bound of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.args import Operand, arrays_of, scalars_of
from ..core.element import ElementKind, decode, joined
from ..core.error_bound import Backward, Chained, ErrorBound, Exact, Forward, PerOutput, Relative
from ..core.memo import cached_property
from .draw import Case, stored
from .reference import element_of, evaluate, kept, values, yardstick
from .tolerance import check

_WIDER = {ElementKind.F64: np.longdouble, ElementKind.C128: np.longdouble}


class Truth:
    """A case's results as they should be, for as many runs as one likes."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._wide = _WIDER.get(case.desc.element, np.float64) if case.plan.widest is np.longdouble else np.float64
        self._limits = case.desc.element.limits
        self._truth = evaluate(case, self._wide)
        self._narrow = np.float64 if self._wide is np.longdouble else np.float32
        self._lows: dict[Chained | None, dict[str, Any]] = {}

    def _low(self, bound: Relative) -> dict[str, Any]:
        chained = bound if isinstance(bound, Chained) else None
        if chained not in self._lows:
            self._lows[chained] = yardstick(self.case, self._truth, self._wide, self._narrow, chained)
        return self._lows[chained]

    @cached_property
    def _own(self) -> dict[str, Any]:
        """By the formula in the dtypes of the op, those included in which it keeps intermediates."""
        return evaluate(self.case, self._narrow, store=kept(self.case))

    @cached_property
    def _finite(self) -> list[dict[str, Any]]:
        """With the largest number of the element in place of infinities, and with half of it."""

        def at(largest: float) -> dict[str, Any]:
            def within(x: np.ndarray) -> np.ndarray:
                return joined(within(x.real), within(x.imag)) if x.dtype.kind == "c" else np.clip(x, -largest, largest)

            return evaluate(self.case, self._wide, within)

        return [at(float(self._limits.max)), at(float(self._limits.max) / 2)]

    @cached_property
    def _scale(self) -> dict[str, Any]:
        """On absolute values, those of factors and terms too: a negative one takes nothing from a bound."""
        given = self.case.arrays
        numbers = [spec.name for spec in scalars_of(self.case.plan.args) if not spec.integer]  # a seed stays itself
        sizes = {name: abs(given[name]) for name in numbers if isinstance(given[name], (int, float))}
        return evaluate(replace(self.case, arrays={**given, **sizes}), self._wide, np.abs)

    @cached_property
    def _bounded(self) -> Truth:
        """Of the case with the largest number of an operand's element in place of its infinities."""
        given = dict(self.case.arrays)

        def bounded(spec: Operand, x: np.ndarray) -> np.ndarray:
            element = element_of(spec, self.case.desc, x)
            if not element.is_float:
                return x
            number, largest = decode(x, element), float(element.limits.max)
            return np.where(np.isinf(number), stored(np.copysign(largest, number), element), x)

        for spec in arrays_of(self.case.plan.args):
            held = given.get(spec.name)
            if held is not None:
                given[spec.name] = [bounded(spec, x) for x in held] if spec.many else bounded(spec, held)
        return Truth(replace(self.case, arrays=given))

    def _vanishes(self, item: Callable[[Any], Any], bound: Relative) -> np.ndarray:
        """Whether 0 would be within the bound, were infinities the largest number: the rounding errors of what they are
        multiplied by are as large as it is itself."""
        with np.errstate(all="ignore"):
            truth = np.asarray(item(self._bounded._truth))
            error = np.abs(np.asarray(item(self._bounded._low(bound))) - truth)
            return np.asarray(np.abs(truth) <= bound.k * error)

    def _wanted(self, actual: np.ndarray, item: Callable[[Any], Any], bound: ErrorBound) -> np.ndarray:
        """The truth. NaN serves for an infinity times a factor that may be 0 in the dtypes of the op, since it is
        below the element's least normal number: where (of real numbers) the formula in them gives NaN, or the result
        hardly differs between the largest number of the element in place of the infinity and half of it. It serves as
        well where the formula gives NaN in them since sums beyond the element's largest number meet. Where the factor
        is a difference that vanishes within the bound, of which not even the sign is known, NaN and both infinities
        serve."""
        truth = np.asarray(item(self._truth))
        if truth.dtype.kind not in "fc":
            return truth
        if truth.dtype.kind == "f" and isinstance(bound, Relative):
            other = np.isinf(truth) & (
                np.isnan(actual) | (np.isinf(actual) & (np.signbit(actual) != np.signbit(truth)))
            )
            if other.any():
                truth = np.where(other & self._vanishes(item, bound), actual.astype(truth.dtype), truth)
        unsure = ~(np.abs(truth) <= np.float64(self._limits.max)) & ~np.isnan(truth) & (actual != actual)
        if not unsure.any():
            return truth
        with np.errstate(invalid="ignore"):
            part = np.abs(np.subtract(*map(item, self._finite)))
        lost = np.isinf(truth) & (part < float(self._limits.max) * 2.0 ** (self._limits.min_exponent - 1))
        if truth.dtype.kind == "f":
            lost |= np.isnan(np.asarray(item(self._own)))
        return np.where(unsure & lost, np.nan, truth)

    def wrong(self, got: dict[tuple[str, int], np.ndarray], bound: ErrorBound) -> str | None:
        """The first result outside its bound, or None. Integer and bool outputs are exact under any bound."""
        specs = {s.name: s for s in arrays_of(self.case.plan.args)}
        for (name, i), actual in got.items():
            spec = specs[name]

            def item(results: Any, name: str = name, i: int = i, many: bool = bool(spec.many)) -> Any:
                return None if results is None else results[name][i] if many else results[name]

            element = element_of(spec, self.case.desc, actual)
            own = Exact() if not element.is_inexact else bound.of(name) if isinstance(bound, PerOutput) else bound
            if isinstance(own, Backward):
                if far := self._residual(got, name, element, own):
                    return f"{name}: {far}"
                continue
            low = self._low(own) if isinstance(own, Relative) else None
            scale = self._scale if isinstance(own, Forward) else None
            wanted = self._wanted(actual, item, own)
            message = check(own, actual, wanted, element=element, low=item(low), scale=item(scale))
            if message:
                return f"{name}{f'[{i}]' if spec.many else ''}: {message}"
        return None

    def _residual(
        self, got: dict[tuple[str, int], np.ndarray], name: str, element: ElementKind, bound: Backward
    ) -> str:
        """How far the backward error of an output is beyond its bound, or ""."""
        wide = _WIDER.get(element, np.float64)
        results = {
            spec: one.astype(np.result_type(wide, np.complex64) if one.dtype.kind == "c" else wide)
            for (spec, _), one in got.items()
        }
        given = {operand: x for operand, x in values(self.case, wide).items() if x is not None}
        found = np.asarray(self.case.plan.residual(self.case.desc, name, **(given | results)))
        worst = found.max(initial=0.0)
        allowed = bound.c * element.limits.eps
        return "" if worst <= allowed else f"{element}, {bound}: {float(worst):.4g}, allowed {float(allowed):.4g}"
