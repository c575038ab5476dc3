"""Kernels of complex functions over the whole range, on the emulator: every functor in one kernel.

The truth is the NumPy formula in a wider type, which `test_complex` compares with mpmath.
"""

from collections.abc import Sequence
from typing import Any

import complex_truth as truth
import numpy as np
import pytest

from baracuda_py.core.element import COMPLEX, ElementKind
from baracuda_py.jit import Unit
from baracuda_py.ops.elementwise.complex_binary_kinds import ComplexBinaryKind
from baracuda_py.ops.elementwise.complex_kinds import DIFFERENTIABLE, ComplexUnaryKind
from baracuda_py.testing.emulator import run_kernel, translated
from baracuda_py.testing.tolerance import check

pytestmark = pytest.mark.usefixtures("emulation")
THREADS, COUNT = 256, 400
WIDER = {ElementKind.C64: np.complex128, ElementKind.C128: np.clongdouble}

CODE = """
#include <baracuda/types.cuh>
namespace baracuda {{
struct ComplexUnaryParams {{}};
struct ComplexBinaryParams {{}};
}}
{includes}
using namespace baracuda;
using R = {ctype};
using T = complex<R>;
struct P {{ T* y; const T* a; const T* b; i64 n; }};
extern "C" __global__ void all(const __grid_constant__ P p) {{
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.n) return;
  [[maybe_unused]] const T a = p.a[i], b = p.b[i];
{lines}
}}
"""


def run(kinds: Sequence[Any], element: ElementKind, formulas: list[str], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One row of results for each formula of a and b, real ones and truth values in the real part.

    kinds: those whose functors the formulas name.
    """
    includes = "\n".join(dict.fromkeys(f'#include "{kind.row.header}"' for kind in kinds))
    lines = "\n".join(f"  p.y[{k} * p.n + i] = cast<T>({formula});" for k, formula in enumerate(formulas))
    unit = Unit(
        f"complex_{element}", CODE.format(includes=includes, ctype=element.part.ctype, lines=lines), symbols=("all",)
    )
    y = np.empty((len(formulas), a.size), element.dtype)
    params = np.array([y.ctypes.data, a.ctypes.data, b.ctypes.data, a.size], np.uint64).tobytes()
    run_kernel(translated(unit, "sm_90", "all"), "all", (-(-a.size // THREADS), 1, 1), (THREADS, 1, 1), 0, params, 1)
    return y


def operands(element: ElementKind) -> tuple[np.ndarray, np.ndarray]:
    z = np.concatenate([truth.points(element, COUNT), truth.corners(element)])
    w = np.concatenate([truth.points(element, COUNT, 1), truth.corners(element)])
    return z, np.random.default_rng(0).permutation(w)


def report(found: dict[str, str | None]) -> None:
    wrong = {name: message for name, message in found.items() if message}
    assert not wrong, "\n".join(f"{name}: {message}" for name, message in wrong.items())


elements = pytest.mark.parametrize("element", COMPLEX, ids=str)


@elements
def test_forward(element: ElementKind) -> None:
    z, _ = operands(element)
    kinds = list(ComplexUnaryKind)
    rows = run(kinds, element, [f"{kind.cpp}<R>::value(a)" for kind in kinds], z, z)
    found = {}
    with np.errstate(all="ignore"):
        for kind, got in zip(kinds, rows, strict=True):
            result = kind.row.result(element)
            got = got if result.is_complex else got.real.astype(result.dtype)
            wanted = np.asarray(kind.row.formula(z.astype(WIDER[element])))
            found[kind.value] = check(kind.row.error, got, wanted, element=result)
    report(found)


@elements
def test_gradient(element: ElementKind) -> None:
    z, dy = operands(element)
    lines = [f"gradient::{k.cpp}<R>::value({'b.re' if k.row.real else 'b'}, a)" for k in DIFFERENTIABLE]
    rows = run(DIFFERENTIABLE, element, lines, z, dy)
    found = {}
    wide, wide_dy = z.astype(WIDER[element]), dy.astype(WIDER[element])
    with np.errstate(all="ignore"):
        for kind, got in zip(DIFFERENTIABLE, rows, strict=True):
            wanted = kind.row.gradient(wide_dy.real if kind.row.real else wide_dy, wide)
            found[kind.value] = check(kind.row.slope_error, got, wanted, element=element)
    report(found)


@elements
def test_binary(element: ElementKind) -> None:
    a, b = operands(element)
    kinds = [kind for kind in ComplexBinaryKind if kind.row.everywhere]
    given = {kind: (0.5, 0.25, True) if kind.row.coefficients else () for kind in kinds}
    more = [", ".join(("a", "b", *(str(value).lower() for value in given[kind]))) for kind in kinds]
    lines = [f"{kind.cpp}<R>::value({operands})" for kind, operands in zip(kinds, more, strict=True)]
    rows = run(kinds, element, lines, a, b)
    found = {}
    with np.errstate(all="ignore"):
        for kind, got in zip(kinds, rows, strict=True):
            result = kind.row.result(element)
            wanted = kind.row.formula(a.astype(WIDER[element]), b.astype(WIDER[element]), *given[kind])
            got = got if result.is_complex else got.real.astype(result.dtype)
            found[kind.value] = check(kind.row.bound, got, wanted, element=result)
    report(found)
