"""Gated activations over the whole range of each element: the reference against mpmath, the kernels on the emulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import truth
from everywhere import inputs, report, scale_of, wide
from run_functors import run

import baracuda_py as bc
from baracuda_py.core.element import FLOATS, ElementKind
from baracuda_py.ops.elementwise.unary_kinds import UnaryKind
from baracuda_py.ops.gated.gated_kinds import GatedActivationKind, Unit, gate_gradient, gated, gated_bound
from baracuda_py.testing.tolerance import assert_within, check

ACTIVATIONS = [kind for kind in GatedActivationKind if not isinstance(kind.row, Unit)]
NAMES = {kind: next((u.value for u in UnaryKind if u.row is kind.row), None) for kind in ACTIVATIONS}
OWN = {  # those that only gate, and their slopes
    "bilinear_glu": (lambda x: x, lambda x: truth.mp.mpf(1)),
    "relu2_glu": (lambda x: max(x, 0) ** 2, lambda x: 2 * max(x, 0)),
}
COUNT = {2: 2**16, 4: 1500, 8: 500}


def coefficients(kind, element):
    return tuple(float(element.acc.dtype.type(c.default_for(element))) for c in kind.row.coefficients)


def exactly(kind, x, given):
    """act(x) and act'(x) at 60 digits, and the magnitudes that the bound of the slope is relative to."""
    numbers, given = [truth.exact(v) for v in x], [truth.mp.mpf(c) for c in given]
    if NAMES[kind] is None:
        act, slope = OWN[kind.value]
        return [truth.mp.mpf(act(v)) for v in numbers], [(truth.mp.mpf(slope(v)), 0) for v in numbers]
    name = NAMES[kind]
    terms = truth.TERMS.get(name)
    slopes = [truth.terms(name, v) if terms else (truth.mp.mpf(truth.SLOPE[name](v, *given)), 0) for v in numbers]
    return [truth.mp.mpf(truth.FORWARD[name](v, *given)) for v in numbers], slopes


def lost_scale(products, element):
    """A product dy up that overflows is scaled down: a slope below the smallest number is then 0."""
    return np.where(np.abs(products) > element.limits.max, np.abs(products), 0) * 2.0**element.limits.min_exponent


@pytest.mark.parametrize("kind", ACTIVATIONS, ids=lambda kind: kind.value)
def test_reference(kind):
    """The product of an activation that is subnormal and a large factor has all digits."""
    for element in FLOATS:
        step = 23 if element.itemsize == 2 else 5
        gate = truth.points(element, COUNT[element.itemsize])[::step]
        up, dy = truth.cotangents(element, gate.size), truth.cotangents(element, gate.size)[::-1].copy()
        act, slopes = exactly(kind, gate, coefficients(kind, element))
        y = bc.gated_activation(gate, up, kind=kind)
        dgate, dup = bc.gated_activation_backward(dy, gate, up, kind=kind)
        for got, factor in ((y, up), (dup, dy)):
            wanted = [truth.wide(f * truth.exact(b)) for f, b in zip(act, factor, strict=True)]
            assert_within(gated_bound(element, kind), got, np.array(wanted), element=element)
        products = [truth.exact(a) * truth.exact(b) for a, b in zip(dy, up, strict=True)]
        wanted = np.array([truth.wide(p * (s[0] + s[1])) for p, s in zip(products, slopes, strict=True)])
        scale = np.array([truth.wide(abs(p) * (abs(s[0]) + abs(s[1]))) for p, s in zip(products, slopes, strict=True)])
        wide_products = np.array([truth.wide(p) for p in products])
        wrong = truth.within_terms(element, dgate, wanted, scale + lost_scale(wide_products, element))
        assert wrong is None, wrong


def wrong_gated(element, kind, gate, up, dy, y, dgate):
    """What kernels get wrong of a kind, by name."""
    g, u, d = (wide(x, element) for x in (gate, up, dy))
    k = [g.dtype.type(c) for c in coefficients(kind, element)]
    with np.errstate(all="ignore"):
        wanted = gate_gradient(kind, d, u, g, *k, element=element)
        crosses = NAMES[kind] in truth.TERMS
        size = scale_of(UnaryKind(NAMES[kind]), d * u, g) if crosses else np.abs(wanted)
        return {
            kind.value: check(gated_bound(element, kind), y, gated(kind, g, u, *k), element=element),
            f"{kind.value} dgate": truth.within_terms(element, dgate, wanted, size + lost_scale(d * u, element)),
        }


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_kernels(element):
    gate = inputs(element)
    up, dy = truth.cotangents(element, gate.size), truth.cotangents(element, gate.size)[::-1].copy()
    kinds = ACTIVATIONS
    given = [", ".join(f"A({c!r})" for c in coefficients(kind, element)) for kind in kinds]
    functors = [f"{kind.cpp}<T>, gradient::{kind.cpp}<T>" for kind in kinds]
    lines = [f"gated<{f}>(a, b, Coefficients<A>({k}))" for f, k in zip(functors, given, strict=True)]
    lines += [
        f"gate_gradient<T, gradient::{kind.cpp}<T>>(c, b, a, Coefficients<A>({k}))"
        for kind, k in zip(kinds, given, strict=True)
    ]
    rows, found = run(["gated/gates.cuh", *(kind.header for kind in kinds)], element, lines, gate, up, dy), {}
    for n, kind in enumerate(kinds):
        found |= wrong_gated(element, kind, gate, up, dy, rows[n], rows[len(kinds) + n])
    report(found)


@pytest.mark.parametrize(("element", "dtype"), [("bfloat16", "f8"), ("float32", "f8"), ("float64", "g")])
def test_more_digits_where_dy_up_may_overflow(element: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The NumPy backend holds narrower elements in float64, where it cannot: longdouble is ten times slower."""
    seen = []

    def gradient(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        seen.append(dy.dtype)
        return dy * x

    kind = GatedActivationKind.SWIGLU
    monkeypatch.setattr(kind, "row", replace(kind.row, gradient=gradient))
    x = np.ones(3).astype(ElementKind.of(element).dtype)
    bc.gated_activation_backward(x, x, x, kind=kind)
    assert seen == [np.dtype(dtype)]
