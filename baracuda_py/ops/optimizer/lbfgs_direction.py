"""lbfgs_direction: the direction of L-BFGS from the last steps and changes of the gradient, by two loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...calls.exported import exported
from ...core import Array
from ...core.arrays import read
from ...core.element import ElementKind
from ...core.errors import InvalidProblemError, UnsupportedError
from ...expressions.elementwise import elementwise
from ..elementwise.binary_functions import div, mul
from ..layout.moves import copy
from ..reduce.inner import vdot

_BACK = elementwise("q - rho * c * y")
_ON = elementwise("q + rho * (c - e) * s")
_INVERSE = elementwise("1 / x")
_MINUS = elementwise("-gamma * g")


@exported
def lbfgs_direction(
    grad: Array, steps: Sequence[Array], changes: Sequence[Array], *, rho: Sequence[Array] | None = None,
    gamma: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Array:  # fmt: skip
    """-H g, the direction of L-BFGS (Liu and Nocedal 1989; two loops: Nocedal and Wright 2006, algorithm 7.4).

    grad: [n] of float32 or float64; steps and changes: lists of as many [n], the oldest first: s = x₁ - x₀ and
    y = g₁ - g₀ of earlier iterations, with s · y > 0. rho: 1 / (s · y) of each, 0-d arrays, made here where not given.
    gamma: H before the pairs are counted in, a number or a 0-d array; by default s · y / (y · y) of the newest pair, 1
    without pairs. Products stay on the device: nothing waits for them, as torch.optim.LBFGS does for each. An inner
    product and a sum a pair in either loop. There is no gradient.
    """
    where = {"stream": stream, "preference": preference}
    view = read(grad, "grad")
    if view.element not in (ElementKind.F32, ElementKind.F64):
        raise UnsupportedError(f"grad must be float32 or float64, got {view.element}; cast it")
    if len(view.shape) != 1:
        raise InvalidProblemError(f"grad must be [n], all gradients in a row, got shape {view.shape}")
    lists = {"steps": steps, "changes": changes, **({} if rho is None else {"rho": rho})}
    for name, one in lists.items():
        if not isinstance(one, (list, tuple)) or len(one) != len(steps):
            raise InvalidProblemError(f"{name} must be a list of as many arrays as steps, got {len(one)}")
        shape = () if name == "rho" else view.shape
        for i, x in enumerate(one):
            found = read(x, f"{name}[{i}]")
            if found.shape != shape or found.element is not view.element:
                raise InvalidProblemError(
                    f"{name}[{i}] must have shape {shape} of {view.element}, got {found.shape} of {found.element}"
                )
    inverses = list(rho) if rho is not None else [
        _INVERSE(vdot(y, s, **where), **where) for s, y in zip(steps, changes, strict=True)
    ]  # fmt: skip
    if gamma is None:
        gamma = 1.0
        if len(steps):
            gamma = div(_INVERSE(inverses[-1], **where), vdot(changes[-1], changes[-1], **where), **where)
    q = _MINUS(g=grad, gamma=1.0, **where)
    shares = []
    for s, y, r in zip(reversed(steps), reversed(changes), reversed(inverses), strict=True):
        shares.append(vdot(s, q, **where))
        q = _BACK(q=q, rho=r, c=shares[-1], y=y, **where)
    q = mul(q, gamma, **where)
    for s, y, r, c in zip(steps, changes, inverses, reversed(shares), strict=True):
        q = _ON(q=q, rho=r, c=c, e=vdot(y, q, **where), s=s, **where)
    return q if out is None else copy(q, out=out, **where)


__all__ = ["lbfgs_direction"]
