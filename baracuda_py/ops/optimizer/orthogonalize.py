"""orthogonalize: the orthogonal factor of matrices by Newton-Schulz iterations, for Muon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...calls.exported import exported
from ...core import Array
from ...core.arrays import read
from ...core.element import FLOATS, ElementKind
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.views import shape_of, transposed
from ...expressions.elementwise import elementwise
from ..elementwise.cast import cast
from ..gemm.matmul import matmul
from ..gemm.syrk import syrk
from ..reduce.norm import norm

QUINTIC = (3.4445, -4.775, 2.0315)
"""Of Jordan et al. 2024: the steepest at 0; singular values end between about 0.7 and 1.2."""
POLAR_EXPRESS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
)
"""Of Amsel, Persson, Musco and Gower 2025, for singular values from 1e-3 on, by step; the last is repeated."""
_SAFE = 1.01
"""What all but the last of them are divided by, that rounding to bfloat16 drives no singular value beyond 1."""


@exported
def orthogonalize(
    x: Array, steps: int = 5, coefficients: Any = QUINTIC, *, element: Any = "bfloat16", eps: float = 1e-7,
    stream: Any = None, preference: Any = None,
) -> Array:  # fmt: skip
    """U Vᵀ of x = U Σ Vᵀ, nearly: the step of Muon (Jordan et al. 2024), for matrices [*batch, m, n] at once.

    x is divided by its Frobenius norm (at least eps), and each step is x ← a x + (b g + c g²) x with g = x xᵀ, of the
    transpose where m > n. coefficients: (a, b, c), by default those of Muon, with which singular values end near 1;
    one triple for each step; or "polar_express", those of Amsel et al. 2025, which converge.
    element: what the iterations compute in and give, bfloat16 as torch.optim.Muon, or None for that of x. Two of the
    three products of a step are symmetric (`syrk`). There is no gradient.
    """
    kind, shape = read(x, "x").element, shape_of(x, "x")
    if len(shape) < 2:
        raise InvalidProblemError(f"x must be matrices [*batch, m, n], got shape {shape}")
    if kind not in FLOATS:
        raise UnsupportedError(f"x must be a float, got {kind}")
    if isinstance(steps, bool) or not isinstance(steps, int) or not 0 <= steps < 100:
        raise InvalidProblemError(f"steps must be a whole number from 0 to 99, got {steps}")
    goal = kind if element is None else ElementKind.of(element)
    where = {"stream": stream, "preference": preference}
    value = x if goal is kind else cast(x, goal, **where)
    tall = shape[-2] > shape[-1]
    if tall:
        value = transposed(value, "x")
    if math.prod(shape):
        value = _over_norm(value, eps, where)
    for a, b, c in triples(coefficients, steps):
        gram = syrk(value, **where)
        change = syrk(gram, gram, alpha=c, beta=b, **where)
        value = matmul(change, value, value, beta=a, **where)
    return transposed(value, "x") if tall else value


def _over_norm(x: Any, eps: float, where: Any) -> Any:
    """x over its Frobenius norm."""
    return _DIVIDE(x, norm(x, 2, (-2, -1), True, **where), eps=eps, **where)


def triples(coefficients: Any, steps: int) -> list[tuple[float, float, float]]:
    """The coefficients of each step."""
    if isinstance(coefficients, str):
        if coefficients != "polar_express":
            raise InvalidProblemError(f"coefficients must be numbers or 'polar_express', got {coefficients!r}")
        safe = [(a / _SAFE, b / _SAFE**3, c / _SAFE**5) for a, b, c in POLAR_EXPRESS[:-1]]
        return [*safe, *[POLAR_EXPRESS[-1]] * steps][:steps]
    rows: Sequence[Any] = list(coefficients)
    if len(rows) == 3 and not any(hasattr(row, "__len__") for row in rows):
        rows = [rows] * steps
    if len(rows) != steps or any(len(row) != 3 for row in rows):
        raise InvalidProblemError(f"coefficients must be (a, b, c), or one such triple for each of {steps} steps")
    return [(float(a), float(b), float(c)) for a, b, c in rows]


_DIVIDE = elementwise("x / maximum(n, eps)", eps=1e-7)
