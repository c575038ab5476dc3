"""A page's reference, called for a case: in float64 (the truth), in the op's own dtypes, or on absolute values.

This is not the NumPy backend's code path on purpose: the two are compared with each other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..core.args import Operand, arrays_of, operands_of, scalars_of
from ..core.element import ElementKind, cast, decode
from ..core.error_bound import Chained
from ..core.plan import Plan
from .chains import in_chains
from .draw import Case

Change = Callable[[np.ndarray], np.ndarray]
_SMALL = 2**15  # elements of all operands of a problem that more evaluations cost little


def element_of(spec: Operand, desc: Any, array: np.ndarray) -> ElementKind:
    """What a stored array holds: its own dtype where the declaration allows it, else the tag of its carrier."""
    allowed = spec.elements(desc)
    own = ElementKind.of(array.dtype)
    return own if own in allowed else allowed[0]


def values(case: Case, compute: Any = np.float64, change: Change | None = None) -> dict[str, Any]:
    """The operands as the reference gets them: floats in `compute` (complex in its complex twin), copies throughout."""
    given: dict[str, Any] = {}
    for spec in arrays_of(case.plan.args):
        if spec.reads:
            held = case.arrays[spec.name]
            if isinstance(held, list):
                given[spec.name] = [_value(case, spec, item, compute, change) for item in held]
            else:
                given[spec.name] = None if held is None else _value(case, spec, held, compute, change)
    return given | {spec.name: case.arrays[spec.name] for spec in scalars_of(case.plan.args)}


def _value(case: Case, spec: Operand, array: np.ndarray, compute: Any, change: Change | None) -> np.ndarray:
    if case.plan.raw:
        return np.array(array)
    element = element_of(spec, case.desc, array)
    found: np.ndarray = np.array(decode(array, element), order="C")
    if not element.is_inexact:
        return found
    with np.errstate(all="ignore"):  # a narrower type may not reach as far
        found = found.astype(np.result_type(compute, np.complex64) if element.is_complex else compute)
    return found if change is None else change(found)


def call(
    plan: type[Plan], desc: Any, given: Mapping[str, Any], wanted: frozenset[str], store: Change | None = None
) -> dict[str, Any]:
    """`plan.reference` on values; the result holds every wanted output and every in-out."""
    extra: dict[str, Any] = {} if store is None else {"store": store}
    if any(s.role == "out" and s.optional for s in arrays_of(plan.args)):
        extra["wanted"] = set(wanted)
    with np.errstate(all="ignore"):
        results = dict(plan.reference(desc, **given, **extra))
    for spec in arrays_of(plan.args):
        if spec.role == "inout" and given[spec.name] is not None:
            results.setdefault(spec.name, given[spec.name])
    missing = {n for n in wanted if results.get(n) is None}
    if missing:
        raise AssertionError(f"{plan.__name__}: the reference returned no {', '.join(sorted(missing))}")
    known = {s.name for s in operands_of(plan.args) if s.writes}
    if set(results) - known:
        raise AssertionError(f"{plan.__name__}: the reference returned unknown {sorted(set(results) - known)}")
    return results


def evaluate(
    case: Case, compute: Any = np.float64, change: Change | None = None, store: Change | None = None
) -> dict[str, Any]:
    """The reference's results for a case, not rounded; `store` is what happens to intermediates kept in the element."""
    return call(case.plan, case.desc, values(case, compute, change), case.wanted, store)


def kept(case: Case) -> Change | None:
    """Rounding to the element, for a formula that keeps intermediates in it: one whose reference has a `store`."""
    if "store" not in inspect.signature(case.plan.reference).parameters:
        return None
    element = case.desc.element
    return lambda x: np.asarray(decode(cast(x, element), element), x.dtype)


def yardstick(
    case: Case, truth: Mapping[str, Any], wide: Any, narrow: Any, chained: Chained | None = None
) -> dict[str, Any]:
    """Results as far from the truth as the formula in `narrow` may fairly be: what `Relative` compares with.

    Elementwise the worst of the formula evaluated in `narrow`, on the operands and on operands shifted by up to one eps
    of `narrow`, each by its own random amount, so that every intermediate is rounded anew; and of exact evaluations of
    operands shifted all up or all down, as errors of a sum may line up. A few evaluations are no yardstick of a small
    problem: they are right by luck, and another order of the same sum is then "worse" without being wrong. A formula
    that keeps intermediates in the element (its reference has a `store`) is also evaluated with them rounded, and
    shifted likewise by up to half an eps of the element. `chained` adds evaluations with sums in chains.
    """
    small = sum(np.size(a) for a in case.arrays.values() if isinstance(a, np.ndarray)) <= _SMALL
    with np.errstate(all="ignore"):
        count = 15 if small else 3
        scattered, aligned = _shifts(float(np.finfo(narrow).eps), count)
        trials = [evaluate(case, narrow), *(evaluate(case, narrow, change) for change in scattered)]
        trials += [evaluate(case, wide, change) for change in aligned]
        if (stored := kept(case)) is not None:
            scattered, aligned = _shifts(case.desc.element.limits.eps / 2, 3)
            trials += [evaluate(case, wide, store=change) for change in (stored, *scattered, *aligned)]
        if chained is not None:
            trials += [evaluate(case, narrow, change) for change in in_chains(chained.piece, count)]
    return {name: _farthest(value, [trial[name] for trial in trials]) for name, value in truth.items()}


def _shifts(eps: float, count: int) -> tuple[list[Change], list[Change]]:
    """Changes of values by up to `eps` of them: `count` scattered, two that move all up or all down."""
    rng = np.random.default_rng(0)

    def scattered(x: np.ndarray) -> np.ndarray:
        by = rng.uniform(-1, 1, x.shape) if x.dtype.kind != "c" else rng.uniform(-1, 1, (2, *x.shape))
        return np.asarray(x + eps * (by if x.dtype.kind != "c" else by[0] + 1j * by[1]) * x, x.dtype)

    def aligned(x: np.ndarray) -> np.ndarray:
        return np.asarray(x + eps * rng.choice((-1, 1)) * np.abs(x), x.dtype)

    return [scattered] * count, [aligned] * 2


def _farthest(truth: Any, trials: list[Any]) -> Any:
    if isinstance(truth, list):
        return [_farthest(t, [trial[i] for trial in trials]) for i, t in enumerate(truth)]
    base = np.asarray(truth)
    if base.dtype.kind not in "fc":
        return truth
    with np.errstate(all="ignore"):
        errors = [np.abs(np.asarray(trial).astype(base.dtype) - base) for trial in trials]
        return base + np.fmax.reduce([np.where(np.isfinite(e), e, 0) for e in errors])


def rounded(result: Any, like: np.ndarray, element: ElementKind) -> np.ndarray:
    """A result as an array of `like`'s dtype that holds `element`, rounded once."""
    value = np.asarray(result)
    if value.dtype != like.dtype:
        value = cast(value, element)
    made: np.ndarray = np.ascontiguousarray(value).reshape(value.shape)
    return made if made.dtype == like.dtype else made.view(like.dtype)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shapes and values, where any NaN equals any other and -0 differs from +0."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes():
        return True
    with np.errstate(all="ignore"):
        both = (a != a) & (b != b)
    parts = [(a, b)] if a.dtype.kind != "c" else [(a.real, b.real), (a.imag, b.imag)]
    return all(bool(((x == y) & (np.signbit(_plain(x)) == np.signbit(_plain(y))) | both).all()) for x, y in parts)


def _plain(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind in "fiu" else x.astype(np.float32)


def difference(a: np.ndarray, b: np.ndarray) -> str:
    """Where and by how much two arrays of one dtype differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"got {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
    with np.errstate(all="ignore"):
        wrong = ~((a == b) | ((a != a) & (b != b)))
    if not wrong.any():
        return "the signs of zeros differ"
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {a.size} differ, the first at {at}: got {a[at]}, expected {b[at]}"
