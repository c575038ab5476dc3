"""Kernels over the whole range of each element, on the emulator: every functor in one kernel, a row of results each.

The truth is the NumPy formula in a wider type, which `test_everywhere` compares with mpmath.
"""

import functools

import numpy as np
import pytest
from everywhere import (
    binary_coefficients, coefficients, inputs, pairs, report, wrong_binary, wrong_forward, wrong_gradient,
    wrong_partial,
)  # fmt: skip
import truth

from baracuda_py.core.element import FLOATS, ElementKind
from baracuda_py.jit import Unit
from baracuda_py.ops.elementwise import binary_functions
from baracuda_py.ops.elementwise.binary_kinds import WITH_GRADIENT, BinaryKind
from baracuda_py.ops.elementwise.operations.row import EVERY
from baracuda_py.ops.elementwise.unary_kinds import DIFFERENTIABLE, UnaryKind
from baracuda_py.testing.emulator import run_kernel, translated

pytestmark = pytest.mark.usefixtures("emulation")
THREADS = 256

CODE = """
#include <baracuda/types.cuh>
namespace baracuda {{
struct Nothing {{}};
}}
#include "{source}"
using namespace baracuda;
using T = {ctype};
using A = acc_t<T>;
struct P {{ T* y; const T* a; const T* b; const T* c; i64 n; }};
extern "C" __global__ void all(const __grid_constant__ P p) {{
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.n) return;
  const A a = cast<A>(p.a[i]), b = cast<A>(p.b[i]), c = cast<A>(p.c[i]);
{lines}
}}
"""


def run(source: str, element: ElementKind, formulas: list[str], *given: np.ndarray) -> np.ndarray:
    """One row of results for each formula of a, b and c."""
    lines = "\n".join(f"  p.y[{k} * p.n + i] = cast<T>({formula});" for k, formula in enumerate(formulas))
    text = CODE.format(source=source, ctype=element.ctype, lines=lines)
    unit = Unit(f"everywhere_{element}", text, symbols=("all",))
    arrays = [np.ascontiguousarray(x) for x in given]
    arrays += [arrays[0]] * (3 - len(arrays))
    n = arrays[0].size
    y = np.empty((len(formulas), n), element.dtype)
    params = np.array([y.ctypes.data, *(x.ctypes.data for x in arrays), n], np.uint64).tobytes()
    run_kernel(translated(unit, "sm_90", "all"), "all", (-(-n // THREADS), 1, 1), (THREADS, 1, 1), 0, params, 1)
    return y


elements = functools.partial(pytest.mark.parametrize, "element", FLOATS, ids=str)


def given(kind: UnaryKind, element: ElementKind) -> str:
    """The kind's coefficients as C++."""
    return ", ".join(f"A({c!r})" for c in coefficients(kind, element))


FILES = {
    "unary": ("functors", "gradients"), "unary_special": ("special", "special_gradients"),
    "unary_bessel": ("bessel", "bessel_gradients"), "unary_gamma": ("gamma", "gamma_gradients"),
    "unary_integral": ("integrals", "integrals_gradients"),
}  # fmt: skip
files = functools.partial(pytest.mark.parametrize, "kernel", FILES)


@elements()
@files()
def test_forward(element, kernel):
    x = inputs(element)
    kinds = [kind for kind in UnaryKind if element in kind.row.elements and kind.row.kernel == kernel]
    lines = [f"{kind.cpp}<T>::value(a, {{{given(kind, element)}}})" for kind in kinds]
    rows = run(f"elementwise/{FILES[kernel][0]}.cuh", element, lines, x)
    report({kind.value: wrong_forward(element, kind, x, got) for kind, got in zip(kinds, rows, strict=True)})


@elements()
@files()
def test_gradient(element, kernel):
    x = inputs(element)
    dy = truth.cotangents(element, x.size)
    kinds = [kind for kind in DIFFERENTIABLE if kind.row.kernel == kernel]
    lines = [f"gradient::{kind.cpp}<T>::value(b, a, {{{given(kind, element)}}})" for kind in kinds]
    rows = run(f"elementwise/{FILES[kernel][1]}.cuh", element, lines, x, dy)
    report({kind.value: wrong_gradient(element, kind, dy, x, got) for kind, got in zip(kinds, rows, strict=True)})


BINARY = "elementwise/binary_functors.cuh"


@pytest.mark.parametrize("element", EVERY, ids=str)
def test_binary(element):
    a, b = pairs(element)
    kinds = [kind for kind in BinaryKind if element in kind.row.elements]
    more = [", ".join(("a", "b", *binary_coefficients(kind))) for kind in kinds]
    lines = [f"{kind.cpp}<T>::value({given})" for kind, given in zip(kinds, more, strict=True)]
    rows, found = run(BINARY, element, lines, a, b), {}
    with np.errstate(all="ignore"):
        for kind, got in zip(kinds, rows, strict=True):
            found[kind.value] = wrong_binary(element, kind, a, b, got)
    report(found)


@elements()
def test_order_of_zeros_and_nan(element):
    values = np.array([0.0, -0.0, 1.0, np.nan, -np.inf]).astype(element.dtype)
    a, b = np.repeat(values, values.size), np.tile(values, values.size)
    kinds = [BinaryKind.MAXIMUM, BinaryKind.MINIMUM, BinaryKind.FMAX, BinaryKind.FMIN]
    rows = run(BINARY, element, [f"{kind.cpp}<T>::value(a, b)" for kind in kinds], a, b)
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
    rows, found = run("elementwise/binary_gradients.cuh", element, lines, a, b, dy), {}
    for (kind, i), got in zip(sides, rows, strict=True):
        found[f"{kind.value} {i}"] = wrong_partial(element, kind, i, dy, a, b, got)
    report(found)
