"""Inputs over the whole range of an element, and what results of kernels are compared with."""

from __future__ import annotations

import numpy as np
import truth

from baracuda_py.core.element import ElementKind
from baracuda_py.core.error_bound import Relative
from baracuda_py.ops.elementwise.unary_formulas import FORWARD
from baracuda_py.ops.elementwise.unary_gradients import GRADIENT, slope_bound
from baracuda_py.ops.elementwise.unary_kinds import ALPHA, UnaryKind
from baracuda_py.testing.tolerance import check

COUNT = {2: 2**16, 4: 2000, 8: 600}


def inputs(element: ElementKind) -> np.ndarray:
    """Every finite 16-bit float, some thousands of the wider ones."""
    return truth.points(element, COUNT[element.itemsize], tuple(ALPHA.values()))


def wide(x: np.ndarray, element: ElementKind) -> np.ndarray:
    """x in a type with more digits and exponents."""
    return x.astype(np.longdouble if element is ElementKind.F64 else np.float64)


def alpha_of(kind: UnaryKind, element: ElementKind) -> float:
    """PyTorch's coefficient as kernels have it."""
    return float(element.acc.dtype.type(ALPHA.get(kind, 0)))


def scale_of(kind: UnaryKind, dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """At least the size of both terms of a slope that crosses zero, times |dy|."""
    size = np.maximum(np.abs(x), 1e-300)
    tail = np.abs(FORWARD[kind](-size, None)) * (1 / size + 1 + size)
    return np.abs(dy) * np.where(x < 0, tail, 1)


def wrong_gradient(element: ElementKind, kind: UnaryKind, dy: np.ndarray, x: np.ndarray, got: np.ndarray) -> str | None:
    """What a kernel's dy f'(x) gets wrong, or None."""
    w, d = wide(x, element), wide(dy, element)
    wanted = GRADIENT[kind](d, w, w.dtype.type(alpha_of(kind, element)))
    bound = slope_bound(element, kind)
    if isinstance(bound, Relative):
        return truth.within_terms(element, got, wanted, scale_of(kind, d, w))
    return check(bound, got, wanted, element=element)


def report(found: dict[str, str | None]) -> None:
    """Fail with every message there is."""
    wrong = {name: message for name, message in found.items() if message}
    assert not wrong, "\n".join(f"{name}: {message}" for name, message in wrong.items())
