"""Kernels over the whole range of each element, on the emulator: every functor in one kernel, a row of results each.

The truth is the NumPy formula in a wider type, which `test_everywhere` compares with mpmath.
"""

import functools

import numpy as np
import pytest
from everywhere import coefficients, inputs, report, scale_of, wide, wrong_forward, wrong_gradient
import truth

from baracuda_py.core.element import FLOATS, ElementKind
from baracuda_py.jit import Unit
from baracuda_py.ops.elementwise import binary
from baracuda_py.ops.elementwise.binary import BinaryKind
from baracuda_py.ops.elementwise.unary_gradients import gated_gradient
from baracuda_py.ops.elementwise.unary_kinds import DIFFERENTIABLE, UnaryKind
from baracuda_py.ops.gated.gated_activation import GatedActivationKind, _bound
from baracuda_py.testing.emulator import run_kernel, translated
from baracuda_py.testing.tolerance import check

pytestmark = pytest.mark.usefixtures("emulation")
THREADS = 256

CODE = """
#include <baracuda/types.cuh>
namespace baracuda {{
struct Nothing {{}};
struct BinaryParams {{}};
struct GatedActivationBackwardParams {{}};
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


FILES = {"unary": ("functors", "gradients"), "unary_special": ("special", "special_gradients")}
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


@elements()
def test_gated(element):
    gate = inputs(element)
    up, dy = truth.cotangents(element, gate.size), truth.cotangents(element, gate.size)[::-1].copy()
    kinds = list(GatedActivationKind)
    lines = [f"{kind.cpp}<T>::by(a, b)" for kind in kinds]
    lines += [
        f"gate_gradient<T>(c, b, [&](A d) {{ return gradient::{kind.cpp}<T>::value(d, a, A(0)); }})" for kind in kinds
    ]
    rows, found = run("gated/gated_activation_backward.cu", element, lines, gate, up, dy), {}
    g, u, d = (wide(x, element) for x in (gate, up, dy))
    with np.errstate(all="ignore"):
        lost = np.where(np.abs(d * u) > element.limits.max, np.abs(d * u), 0) * 2.0**element.limits.min_exponent
        for k, kind in enumerate(kinds):
            act = kind.activation
            found[kind.value] = check(_bound(element, kind), rows[k], act.row.gate(g, u), element=element)
            scale = scale_of(act, d * u, g) + lost
            wanted = gated_gradient(act, d, u, g)
            found[f"{kind.value} dgate"] = truth.within_terms(element, rows[len(kinds) + k], wanted, scale)
    report(found)


@elements()
def test_binary(element):
    x = inputs(element)
    order = np.random.default_rng(0).permutation(x.size)
    a, b = np.concatenate([x, x])[:30000], np.concatenate([x[order], np.roll(x, 1)])[:30000]
    kinds = list(BinaryKind)
    rows, found = run("elementwise/binary.cu", element, [f"{kind.cpp}<T>::value(a, b)" for kind in kinds], a, b), {}
    with np.errstate(all="ignore"):
        for kind, got in zip(kinds, rows, strict=True):
            wanted = binary._FORMULAS[kind](wide(a, element), wide(b, element))
            found[kind.value] = check(binary._bound(element, kind), got, wanted, element=element)
    report(found)


@elements()
def test_order_of_zeros_and_nan(element):
    values = np.array([0.0, -0.0, 1.0, np.nan, -np.inf]).astype(element.dtype)
    a, b = np.repeat(values, values.size), np.tile(values, values.size)
    kinds = [BinaryKind.MAXIMUM, BinaryKind.MINIMUM, BinaryKind.FMAX, BinaryKind.FMIN]
    rows = run("elementwise/binary.cu", element, [f"{kind.cpp}<T>::value(a, b)" for kind in kinds], a, b)
    for kind, got in zip(kinds, rows, strict=True):
        wanted = getattr(binary, kind.value)(a, b)
        np.testing.assert_array_equal(got.astype(float), wanted.astype(float))
        numbers = ~np.isnan(wanted.astype(float))
        np.testing.assert_array_equal(np.signbit(got[numbers].astype(float)), np.signbit(wanted[numbers].astype(float)))
