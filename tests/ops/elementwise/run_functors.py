"""Functors of the elementwise kernels on the emulator: all of them in one kernel, a row of results each."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
import pytest
from everywhere import coefficients

from baracuda_py.core.element import FLOATS, ElementKind
from baracuda_py.jit import Unit
from baracuda_py.ops.elementwise.unary_kinds import UnaryKind
from baracuda_py.testing.emulator import run_kernel, translated

THREADS = 256

CODE = """
#include <baracuda/types.cuh>
namespace baracuda {{
struct Nothing {{}};
}}
{includes}
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


def run(sources: Iterable[str], element: ElementKind, formulas: list[str], *given: np.ndarray) -> np.ndarray:
    """One row of results for each formula of a, b and c; sources: the files under kernels/ that have the functors."""
    includes = "\n".join(f'#include "{source}"' for source in dict.fromkeys(sources) if source)
    lines = "\n".join(f"  p.y[{k} * p.n + i] = cast<T>({formula});" for k, formula in enumerate(formulas))
    text = CODE.format(includes=includes, ctype=element.ctype, lines=lines)
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


FILES: dict[str, tuple[str, ...]] = {
    "unary": (), "unary_special": ("special", "special_gradients"),
    "unary_bessel": ("bessel", "bessel_gradients"), "unary_gamma": ("gamma", "gamma_gradients"),
    "unary_integral": ("integrals", "integrals_gradients"),
}  # fmt: skip
"""Files of functors and of their gradients, of kernels whose kinds do not say theirs."""
files = functools.partial(pytest.mark.parametrize, "kernel", FILES)


def headers(kernel: str, kinds: Iterable[UnaryKind], gradient: bool) -> list[str]:
    """The files under kernels/ with the functors of kinds of a kernel, or with their gradients."""
    own = FILES[kernel]
    return [f"elementwise/{own[gradient]}.cuh"] if own else [kind.header for kind in kinds]


def gradients_of(
    element: ElementKind, kernel: str, kinds: list[UnaryKind], dy: np.ndarray, x: np.ndarray
) -> np.ndarray:
    """A row of dy f'(x) for each kind of a file of kernels."""
    lines = [f"gradient::{kind.cpp}<T>::value(b, a, {{{given(kind, element)}}})" for kind in kinds]
    return run(headers(kernel, kinds, True), element, lines, x, dy)
