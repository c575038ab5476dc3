"""inverse_root: inverse roots of symmetric matrices by their eigenvalues, the preconditioners of Shampoo."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import real, whole
from ...core.element import ElementKind
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.views import shape_of, transposed, with_axis
from ...expressions.elementwise import elementwise
from ..gemm.matmul import matmul
from ..layout.moves import copy
from ..linalg.eigh import EighPlan
from ..linalg.eigh_functions import eigh

_SCALED = elementwise("v * maximum(w, eps) ** power")


@entry(EighPlan)
def inverse_root(
    a: Array, order: int = 2, *, eps: float = 0.0, out: Any = None, stream: Any = None, preference: Any = None
) -> Array:
    """a^(-1 / order) of symmetric matrices, v diag(max(w, eps)^(-1 / order)) vᵀ with a = v diag(w) vᵀ.

    a: [..., n, n] of float32 or float64, of which the lower triangle is read, positive semidefinite up to eps: an
    eigenvalue below 0 counts as eps, and eps = 0 makes a singular matrix infinite. order: 1 is the inverse, 4 what
    Shampoo takes of each side of a matrix (Gupta, Koren and Singer 2018). Nothing waits for the device. The
    gradient is that of `eigh`: for symmetric changes, of distinct eigenvalues.
    """
    shape, kind = shape_of(a, "a"), read(a, "a").element
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise InvalidProblemError(f"a must be square matrices [..., n, n], got shape {shape}")
    if kind not in (ElementKind.F32, ElementKind.F64):
        raise UnsupportedError(f"a must be float32 or float64, got {kind}; cast it")
    least = real("eps", eps)
    if not 0 <= least < float("inf"):
        raise InvalidProblemError(f"eps must be a number from 0 on, got {eps}")
    where = {"stream": stream, "preference": preference}
    power = -1.0 / whole("order", order, 1)
    if 0 in shape:
        return copy(a, out=out, **where)
    w, v = eigh(a, **where)
    scaled = _SCALED(v=v, w=with_axis(w, -2, "w"), eps=least, power=power, **where)
    return matmul(scaled, transposed(v, "v"), out=out, **where)


__all__ = ["inverse_root"]
