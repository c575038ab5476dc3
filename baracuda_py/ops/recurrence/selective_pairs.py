"""The selective scan's complex operands as pairs of real numbers: views, in JAX copies."""

from __future__ import annotations

from typing import Any

from ...core.arrays import read
from ...core.errors import InvalidProblemError
from ...core.views import broadcast, shape_of, with_axis
from ...interop.packages import package_name
from ..elementwise.array_views import view_as_complex, view_as_real
from ..elementwise.complex_pair import complex as of_parts
from ..elementwise.complex_unary import imag, real
from ..layout.concat import stack
from ..layout.views import seen_as


def is_complex(x: Any, name: str) -> bool:
    """Whether an operand has complex numbers."""
    return x is not None and read(x, name).element.is_complex


def pairs(x: Any, options: dict[str, Any]) -> Any:
    """A complex array with its parts on a last axis."""
    if x is None:
        return None
    if package_name(type(x)) == "jax":
        return stack((real(x, **options), imag(x, **options)), axis=-1, **options)
    return view_as_real(x)


def whole(x: Any, options: dict[str, Any]) -> Any:
    """Pairs as complex numbers."""
    if package_name(type(x)) == "jax":
        return of_parts(x[..., 0], x[..., 1], **options)
    return view_as_complex(x)


def pairs_of_inputs(x: Any, name: str, batch: int, length: int, options: dict[str, Any]) -> Any:
    """B or C beside a complex A as [batch, groups, states, length, 2].

    Of complex numbers, or of real ones that stand in pairs along time, as mamba-ssm has them.
    """
    shape = shape_of(x, name)
    if len(shape) == 2:
        if not is_complex(x, name):
            raise InvalidProblemError(f"{name} [dim, states] must be complex as A is, got {read(x, name).element}")
        both = with_axis(with_axis(pairs(x, options), 0, name), -2, name)
        return broadcast(both, (batch, *shape, length, 2), name)
    if len(shape) not in (3, 4):
        raise InvalidProblemError(
            f"{name} must be [dim, states], [batch, states, length] or [batch, groups, states, length], got {shape}"
        )
    if is_complex(x, name):
        both = pairs(x, options)
    elif shape[-1] == 2 * length:
        both = seen_as(x, (*shape[:-1], length, 2), **options)
    else:
        raise InvalidProblemError(
            f"{name} must be complex as A is, or real with a last axis of 2 length = {2 * length}, got shape {shape}"
        )
    return with_axis(both, 1, name) if len(shape) == 3 else both
