"""Elementwise ops on a GPU over the whole range of each element, 16-bit floats in full, against the NumPy formulas."""

import numpy as np
import pytest
from everywhere import inputs, own, report, scale_of, wide, wrong_forward, wrong_gradient
import truth

from baracuda_py.core.element import FLOATS
from baracuda_py.ops.elementwise import binary, unary, unary_backward
from baracuda_py.ops.elementwise.binary import BinaryKind
from baracuda_py.ops.elementwise.unary_gradients import gated_gradient
from baracuda_py.ops.elementwise.unary_kinds import DIFFERENTIABLE, UnaryKind
from baracuda_py.ops.gated.gated_activation import GatedActivationKind, _bound, gated_activation
from baracuda_py.ops.gated.gated_activation_backward import gated_activation_backward
from baracuda_py.testing.tolerance import check

pytestmark = [pytest.mark.gpu, pytest.mark.parametrize("element", FLOATS, ids=str)]


def call(function, *given, **more):
    """On the device and back."""
    import cupy

    done = function(*(cupy.asarray(x) for x in given), **more)
    return tuple(y.get() for y in done) if isinstance(done, tuple) else done.get()


def test_forward(element):
    x, found = inputs(element), {}
    for kind in UnaryKind:
        if element in kind.row.elements:
            found[kind.value] = wrong_forward(element, kind, x, call(getattr(unary, kind.value), x, **own(kind)))
    report(found)


def test_gradient(element):
    x, found = inputs(element), {}
    dy = truth.cotangents(element, x.size)
    for kind in DIFFERENTIABLE:
        got = call(getattr(unary_backward, f"{kind.value}_backward"), dy, x, **own(kind))
        found[kind.value] = wrong_gradient(element, kind, dy, x, got)
    report(found)


def test_gated(element):
    gate, found = inputs(element), {}
    up, dy = truth.cotangents(element, gate.size), truth.cotangents(element, gate.size)[::-1].copy()
    g, u, d = (wide(x, element) for x in (gate, up, dy))
    with np.errstate(all="ignore"):
        lost = np.where(np.abs(d * u) > element.limits.max, np.abs(d * u), 0) * 2.0**element.limits.min_exponent
        for kind in GatedActivationKind:
            act = kind.activation
            y = call(gated_activation, gate, up, kind=kind)
            dgate, dup = call(gated_activation_backward, dy, gate, up, kind=kind)
            found[kind.value] = check(_bound(element, kind), y, act.row.gate(g, u), element=element)
            found[f"{kind.value} dup"] = check(_bound(element, kind), dup, act.row.gate(g, d), element=element)
            wanted = gated_gradient(act, d, u, g)
            found[f"{kind.value} dgate"] = truth.within_terms(element, dgate, wanted, scale_of(act, d * u, g) + lost)
    report(found)


def test_binary(element):
    x, found = inputs(element), {}
    order = np.random.default_rng(0).permutation(x.size)
    a, b = np.concatenate([x, x]), np.concatenate([x[order], np.roll(x, 1)])
    with np.errstate(all="ignore"):
        for kind in BinaryKind:
            wanted = binary._FORMULAS[kind](wide(a, element), wide(b, element))
            got = call(getattr(binary, kind.value), a, b)
            found[kind.value] = check(binary._bound(element, kind), got, wanted, element=element)
    report(found)


def test_order_of_zeros_and_nan(element):
    values = np.array([0.0, -0.0, 1.0, np.nan, -np.inf]).astype(element.dtype)
    a, b = np.repeat(values, values.size), np.tile(values, values.size)
    for name in ("maximum", "minimum", "fmax", "fmin"):
        got, wanted = call(getattr(binary, name), a, b).astype(float), getattr(binary, name)(a, b).astype(float)
        np.testing.assert_array_equal(got, wanted)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))
