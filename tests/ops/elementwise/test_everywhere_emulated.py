"""Kernels over the whole range of each element, on the emulator: every functor in one kernel, a row of results each.

The truth is the NumPy formula in a wider type, which `test_everywhere` compares with mpmath.
"""

import numpy as np
import pytest
import truth
from everywhere import (
    binary_coefficients, inputs, pairs, report, wrong_binary, wrong_forward, wrong_gradient, wrong_partial,
)  # fmt: skip
from run_functors import elements, files, given, gradients_of, headers, run

from baracuda_py.ops.elementwise import binary_functions
from baracuda_py.ops.elementwise.binary_kinds import WITH_GRADIENT, BinaryKind
from baracuda_py.ops.elementwise.operations.row import EVERY
from baracuda_py.ops.elementwise.unary_kinds import DIFFERENTIABLE, UnaryKind

pytestmark = pytest.mark.usefixtures("emulation")


@elements()
@files()
def test_forward(element, kernel):
    x = inputs(element)
    kinds = [kind for kind in UnaryKind if element in kind.row.elements and kind.row.kernel == kernel]
    lines = [f"{kind.cpp}<T>::value(a, {{{given(kind, element)}}})" for kind in kinds]
    rows = run(headers(kernel, kinds, False), element, lines, x)
    report({kind.value: wrong_forward(element, kind, x, got) for kind, got in zip(kinds, rows, strict=True)})


@elements()
@files()
def test_gradient(element, kernel):
    x = inputs(element)
    dy = truth.cotangents(element, x.size)
    kinds = [kind for kind in DIFFERENTIABLE if kind.row.kernel == kernel]
    rows = gradients_of(element, kernel, kinds, dy, x)
    report({kind.value: wrong_gradient(element, kind, dy, x, got) for kind, got in zip(kinds, rows, strict=True)})


@pytest.mark.parametrize("element", EVERY, ids=str)
def test_binary(element):
    a, b = pairs(element)
    kinds = [kind for kind in BinaryKind if element in kind.row.elements]
    more = [", ".join(("a", "b", *binary_coefficients(kind))) for kind in kinds]
    lines = [f"{kind.cpp}<T>::value({given})" for kind, given in zip(kinds, more, strict=True)]
    rows, found = run([kind.header for kind in kinds], element, lines, a, b), {}
    with np.errstate(all="ignore"):
        for kind, got in zip(kinds, rows, strict=True):
            found[kind.value] = wrong_binary(element, kind, a, b, got)
    report(found)


@elements()
def test_order_of_zeros_and_nan(element):
    values = np.array([0.0, -0.0, 1.0, np.nan, -np.inf]).astype(element.dtype)
    a, b = np.repeat(values, values.size), np.tile(values, values.size)
    kinds = [BinaryKind.MAXIMUM, BinaryKind.MINIMUM, BinaryKind.FMAX, BinaryKind.FMIN]
    rows = run([kind.header for kind in kinds], element, [f"{kind.cpp}<T>::value(a, b)" for kind in kinds], a, b)
    for kind, got in zip(kinds, rows, strict=True):
        wanted = getattr(binary_functions, kind.value)(a, b)
        np.testing.assert_array_equal(got.astype(float), wanted.astype(float))
        numbers = ~np.isnan(wanted.astype(float))
        np.testing.assert_array_equal(np.signbit(got[numbers].astype(float)), np.signbit(wanted[numbers].astype(float)))


@elements()
def test_binary_gradients(element):
    """Over the whole range of all three: products on the way neither overflow nor vanish."""
    a, b = pairs(element)
    dy = np.where(np.arange(a.size) % 4 == 0, truth.cotangents(element, a.size), np.ones_like(a))
    sides = [(kind, i) for kind in WITH_GRADIENT for i in (0, 1)]
    lines = [f"partial::{kind.cpp}<T>::{('da', 'db')[i]}(c, a, b, A(1.5))" for kind, i in sides]
    rows, found = run([kind.header for kind, _ in sides], element, lines, a, b, dy), {}
    for (kind, i), got in zip(sides, rows, strict=True):
        found[f"{kind.value} {i}"] = wrong_partial(element, kind, i, dy, a, b, got)
    report(found)
