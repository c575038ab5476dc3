"""The reductions in torch, where the kind's name is not the function's: (torch, x, axes, descriptor) → y."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Axes = tuple[int, ...]
Oracle = Callable[[Any, Any, Axes, Any], Any]


def rows(torch: Any, x: Any, axes: Axes) -> Any:
    """x with the reduced axes as its last one."""
    return torch.movedim(x, axes, tuple(range(-len(axes), 0))).flatten(-len(axes)) if len(axes) > 1 else x


def prod(torch: Any, x: Any, axes: Axes, desc: Any) -> Any:
    """torch.prod takes one axis."""
    return torch.prod(rows(torch, x, axes), axes[0] if len(axes) == 1 else -1)


def nanprod(torch: Any, x: Any, axes: Axes, desc: Any) -> Any:
    """The product with 1 in place of NaN."""
    return prod(torch, torch.where(torch.isnan(x), 1.0, x), axes, desc)


def place(name: str) -> Oracle:
    """torch.argmax and torch.argmin take one axis."""
    return lambda torch, x, axes, desc: getattr(torch, name)(rows(torch, x, axes), axes[0] if len(axes) == 1 else -1)


def spread(name: str) -> Oracle:
    """torch.var and torch.std."""
    return lambda torch, x, axes, desc: getattr(torch, name)(x, axes, correction=desc.correction)


def norm(order: float | None) -> Oracle:
    """torch.linalg.vector_norm of an order, or that of the descriptor."""
    return lambda torch, x, axes, desc: torch.linalg.vector_norm(x, desc.p if order is None else order, axes)


def sum_squares(torch: Any, x: Any, axes: Axes, desc: Any) -> Any:
    """A square and a sum."""
    return torch.sum(torch.square(x), axes)


def ptp(torch: Any, x: Any, axes: Axes, desc: Any) -> Any:
    """Both extremes."""
    return torch.amax(x, axes) - torch.amin(x, axes)


def logmeanexp(torch: Any, x: Any, axes: Axes, desc: Any) -> Any:
    """A mean of exponentials."""
    return torch.log(torch.mean(torch.exp(x), axes))


def nan_extreme(name: str) -> Oracle:
    """The extreme with an infinity in place of NaN, and NaN where all are."""
    bottom = -float("inf") if name == "amax" else float("inf")

    def function(torch: Any, x: Any, axes: Axes, desc: Any) -> Any:
        found = getattr(torch, name)(torch.where(torch.isnan(x), bottom, x), axes)
        return torch.where(torch.all(torch.isnan(x), axes), float("nan"), found)

    return function


def nan_place(name: str) -> Oracle:
    """The place with an infinity in place of NaN; -1 where all are."""
    bottom = -float("inf") if name == "argmax" else float("inf")

    def function(torch: Any, x: Any, axes: Axes, desc: Any) -> Any:
        found = place(name)(torch, torch.where(torch.isnan(x), bottom, x), axes, desc)
        return torch.where(torch.all(torch.isnan(x), axes), -1, found)

    return function


def nan_spread(power: float) -> Oracle:
    """The variance of what is not NaN, to a power."""

    def function(torch: Any, x: Any, axes: Axes, desc: Any) -> Any:
        numbers = (~torch.isnan(x)).sum(axes)
        apart = torch.where(torch.isnan(x), 0.0, x - torch.nanmean(x, axes, keepdim=True))
        squares = torch.sum(torch.square(apart), axes)
        return (squares / torch.clamp(numbers - desc.correction, min=0)) ** power

    return function


def bits(of: Callable[[Any, int], Any]) -> Oracle:
    """Every bit by `of`: (how many elements have it, elements) → whether the result has it."""

    def function(torch: Any, x: Any, axes: Axes, desc: Any) -> Any:
        wide = x.to(torch.int64)
        found = [of(((wide >> bit) & 1).sum(axes), desc.count).to(torch.int64) << bit for bit in range(64)]
        return torch.stack(found).sum(0).to(x.dtype)

    return function
