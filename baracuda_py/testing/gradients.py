"""Backward references against directional differences of the forward ones, both in float64.

The gradient for a complex number is that for its real part plus i times that for its imaginary part, as in PyTorch:
the derivative along v is the sum of Re(conj(gradient) v).

A page whose backward is by definition not the derivative everywhere (a padding row without a gradient) declares
`gradient_case(draw)`: a descriptor, as `case` draws one, for which it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core import registry
from ..core.args import arrays_of, operands_of
from ..core.element import ElementKind
from ..core.errors import BaracudaError
from ..core.plan import Plan
from .draw import Draw, fill
from .reference import call, values

_STEPS = (1e-6, 1e-5, 1e-4, 1e-7)
_TOLERANCE = 1e-6  # of the sum of absolute terms


def backward_of(plan: type[Plan]) -> type[Plan]:
    """The plan a page's Vjp names."""
    if plan.vjp is None:
        raise TypeError(f"{plan.__name__} declares no vjp")
    return plan.vjp.plan if isinstance(plan.vjp.plan, type) else registry.plan(plan.vjp.plan)


def backward_descriptor(plan: type[Plan], desc: Any) -> Any:
    """The backward descriptor: the forward's fields of equal name."""
    cls = backward_of(plan).descriptor
    return cls(**{f.name: getattr(desc, f.name) for f in dataclasses.fields(cls) if hasattr(desc, f.name)})


def check_gradients(plan: type[Plan], draw: Draw) -> None:
    """⟨gradients, v⟩ is the derivative of ⟨cotangents, f(x + h v)⟩ at h = 0, for random cotangents and directions."""
    if plan.vjp is None:
        return
    draw.element = _widest(plan, draw)
    desc = getattr(plan, "gradient_case", plan.case)(draw)
    if not plan.vjp.serves(draw.kind):
        _check_refusal(plan, desc)
        return
    present = {s.name: draw.integer(0, 3) > 0 for s in arrays_of(plan.args) if s.optional and s.reads}
    case = fill(plan, desc, draw.seed(), present, smooth=True, kind=draw.kind)
    rng = draw.seed()
    outputs = frozenset(s.name for s in arrays_of(plan.args) if s.role == "out" and s.serves(desc))
    outputs = frozenset(n for n in outputs if _possible(plan, n, case.arrays))
    point = values(case)
    if any(np.asarray(a).dtype.kind in "fc" and not np.isfinite(a).all() for v in point.values() for a in _list(v)):
        return
    backward = backward_of(plan)
    results = call(plan, desc, values(case), outputs)
    # Small weights where the function is large and small steps where it is steep: differences say nothing of the
    # rest beside exp(80) or a pole of tan.
    cotangents = {
        n: _map(lambda a: _normal(rng, a) / np.maximum(1, np.abs(np.nan_to_num(a))), results[n])
        for n in plan.vjp.cotangents(plan, backward)
        if results.get(n) is not None
    }
    served = {s.name for s in arrays_of(backward.args) if s.serves(desc)}  # a kind may have one by some inputs alone
    names = [n for n, grad in plan.vjp.grads.items() if _is_float(point.get(n)) and grad in served]
    try:
        twin = backward_descriptor(plan, desc)
    except BaracudaError:  # a kind without a backward must be one whose derivative is zero
        grads = {n: _map(np.zeros_like, point[n]) for n in names}
    else:
        grads = _gradients(plan, twin, case.arrays, point, results, cotangents, names)
    drawn = {n: _map(lambda g: _normal(rng, g) / np.maximum(1, np.abs(g)), grads[n]) for n in names}
    directions = {n: _map(lambda v, n=n: plan.tangent(desc, n, v), drawn[n]) for n in names}
    found = sum(_dot(grads[n], directions[n]) for n in names)
    size = 1 + sum(_dot(_map(np.abs, grads[n]), _map(np.abs, directions[n])) for n in names)
    base = _objective(plan, desc, case, {}, cotangents, 0.0)
    if not np.isfinite(base):
        return  # a mean over nothing has no derivative
    differences = []
    for step in _STEPS:
        sides = [_objective(plan, desc, case, directions, cotangents, sign * step) for sign in (1, -1)]
        differences.append((sides[0] - sides[1]) / (2 * step))
        if abs(differences[-1] - found) <= _TOLERANCE * size:
            return
    raise AssertionError(f"{case}\n⟨gradient, v⟩ = {found:.10g}, differences of the forward give {differences}")


def _check_refusal(plan: type[Plan], desc: Any) -> None:
    """A kind said to have no gradient has none."""
    try:
        backward_descriptor(plan, desc)
    except BaracudaError:
        return
    raise AssertionError(f"{plan.__name__} says that {desc.kind.value} has no gradient, but its backward takes it")


def _widest(plan: type[Plan], draw: Draw) -> ElementKind:
    served = {e for v in plan.variants if v.kinds is None or draw.kind in v.kinds for e in v.elements_for(draw.kind)}
    return next((e for e in (ElementKind.F64, ElementKind.C128) if e in served), draw.element)


def _possible(plan: type[Plan], name: str, arrays: Mapping[str, Any]) -> bool:
    needs = next(s.needs for s in arrays_of(plan.args) if s.name == name)
    return needs is None or arrays.get(needs, needs) is not None


def _gradients(
    plan: type[Plan], twin: Any, arrays: Mapping[str, Any], point: Mapping[str, Any], results: Mapping[str, Any],
    cotangents: Mapping[str, Any], names: list[str],
) -> dict[str, Any]:  # fmt: skip
    backward, vjp = backward_of(plan), plan.vjp
    assert vjp is not None
    saved = {vjp.saves.get(n, n): v for n, v in results.items()}
    given: dict[str, Any] = {}
    for spec in operands_of(backward.args):
        if not (spec.reads or spec.role == "scalar"):
            continue
        if not spec.serves(twin):
            given[spec.name] = None
            continue
        if spec.name[:1] == "d" and spec.name[1:] in cotangents:
            given[spec.name] = cotangents[spec.name[1:]]
        elif spec.name in saved and (spec.name in vjp.saves.values() or spec.name not in arrays):
            given[spec.name] = saved[spec.name]
        elif spec.name in point:
            given[spec.name] = point[spec.name]
        elif spec.name in saved:
            given[spec.name] = saved[spec.name]
        elif spec.optional:
            given[spec.name] = None
        elif spec.role == "scalar":
            given[spec.name] = next(f.default for f in dataclasses.fields(backward.args) if f.name == spec.name)
        else:
            raise AssertionError(f"{plan.__name__}: nothing gives {spec.name} of {backward.__name__}")
    given = {n: _map(np.array, v) if isinstance(v, (list, np.ndarray)) else v for n, v in given.items()}
    wanted = frozenset(vjp.grads[n] for n in names)
    unknown = wanted - {s.name for s in arrays_of(backward.args) if s.writes}
    if unknown:
        raise AssertionError(f"{plan.__name__}: grads names {sorted(unknown)}, no output of {backward.__name__}")
    done = call(backward, twin, given, wanted)
    grads = {n: done[vjp.grads[n]] for n in names}
    for name, grad in grads.items():
        for a, b in zip(_list(grad), _list(point[name]), strict=True):
            if np.shape(a) != np.shape(b):
                raise AssertionError(
                    f"{plan.__name__}: the gradient of {name} has shape {np.shape(a)}, {name} {np.shape(b)}"
                )
    return grads


def _objective(plan: type[Plan], desc: Any, case: Any, directions: Mapping[str, Any], cotangents: Mapping[str, Any],
               step: float) -> float:  # fmt: skip
    moved = values(case)
    for name, direction in directions.items():
        if isinstance(moved[name], list):
            moved[name] = [a + step * d for a, d in zip(moved[name], direction, strict=True)]
        else:
            moved[name] = moved[name] + step * direction
    results = call(plan, desc, moved, frozenset(cotangents))
    return float(sum(_dot(cotangents[n], results[n]) for n in cotangents))


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _map(function: Any, value: Any) -> Any:
    return [function(a) for a in value] if isinstance(value, (list, tuple)) else function(value)


def _is_float(value: Any) -> bool:
    return value is not None and all(np.asarray(a).dtype.kind in "fc" for a in _list(value))


def _normal(rng: np.random.Generator, like: Any) -> Any:
    """Standard normal numbers, complex where `like` is."""
    made = rng.standard_normal(np.shape(like))
    return made + 1j * rng.standard_normal(np.shape(like)) if np.iscomplexobj(like) else made


def _dot(a: Any, b: Any) -> float:
    return float(sum(np.vdot(x, y).real for x, y in zip(_list(a), _list(b), strict=True)))
