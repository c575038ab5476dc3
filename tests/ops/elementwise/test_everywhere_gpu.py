"""Elementwise ops on a GPU over the whole range of each element, 16-bit floats in full, against the NumPy formulas."""

import pytest
from everywhere import inputs, own, report, wrong_forward, wrong_gradient
from test_gated_everywhere import ACTIVATIONS, wrong_gated
import truth

from baracuda_py.core.element import FLOATS
from baracuda_py.ops.elementwise import unary, unary_backward
from baracuda_py.ops.elementwise.unary_kinds import DIFFERENTIABLE, UnaryKind
from baracuda_py.ops.gated.gated_functions import gated_activation, gated_activation_backward

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
    for kind in ACTIVATIONS:
        y = call(gated_activation, gate, up, kind=kind)
        dgate, dup = call(gated_activation_backward, dy, gate, up, kind=kind)
        found |= wrong_gated(element, kind, gate, up, dy, y, dgate)
        found[f"{kind.value} dup"] = wrong_gated(element, kind, gate, dy, up, dup, dgate)[kind.value]
    report(found)
