"""Scans by NumPy's names, with what they do where no axis is given: all elements in one row, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import Array
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import shape_of
from ..layout.views import raveled
from .scan import ScanPlan, cumprod, cumsum, scan_function
from .scan_kinds import ScanKind

_nancumsum, _nancumprod = (scan_function(kind) for kind in (ScanKind.NANCUMSUM, ScanKind.NANCUMPROD))


def _of_one_row(scan: Callable[..., Any], x: Any, initial: Any, axis: int | None, **options: Any) -> Any:
    """The scan along an axis, or without one of all elements in their row-major order."""
    if axis is None:
        x, axis = raveled(x, options["stream"]), 0
    return scan(x, axis, initial, **options)


def _along_the_only(name: str, x: Any, axis: int | None) -> int:
    """The axis that is given, or the only one that x has."""
    if axis is None and len(shape_of(x, "x")) > 1:
        raise InvalidProblemError(f"{name} of more than one axis needs axis=, x has shape {shape_of(x, 'x')}")
    return -1 if axis is None else axis


@entry(ScanPlan, kind=ScanKind.NANCUMSUM)
def nancumsum(
    x: Array, axis: int | None = None, initial: Array | None = None, *, reverse: bool = False, exclusive: bool = False,
    return_carry: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The cumsum of x along `axis` that takes NaN for 0 (numpy.nancumsum): of all elements as one row by default.

    See `ScanPlan`.
    """
    facts = {"reverse": reverse, "exclusive": exclusive, "return_carry": return_carry}
    return _of_one_row(_nancumsum, x, initial, axis, **facts, out=out, stream=stream, preference=preference)


@entry(ScanPlan, kind=ScanKind.NANCUMPROD)
def nancumprod(
    x: Array, axis: int | None = None, initial: Array | None = None, *, reverse: bool = False, exclusive: bool = False,
    return_carry: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The cumprod of x along `axis` that takes NaN for 1 (numpy.nancumprod): of all elements as one row by default.

    See `ScanPlan`.
    """
    facts = {"reverse": reverse, "exclusive": exclusive, "return_carry": return_carry}
    return _of_one_row(_nancumprod, x, initial, axis, **facts, out=out, stream=stream, preference=preference)


@entry(ScanPlan, kind=ScanKind.CUMSUM)
def cumulative_sum(
    x: Array, axis: int | None = None, initial: Array | None = None, *, reverse: bool = False, exclusive: bool = False,
    return_carry: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The cumsum of x along `axis`, which an array of several axes must be given (numpy.cumulative_sum).

    See `ScanPlan`.
    """
    facts = {"reverse": reverse, "exclusive": exclusive, "return_carry": return_carry}
    axis = _along_the_only("cumulative_sum", x, axis)
    return cumsum(x, axis, initial, **facts, out=out, stream=stream, preference=preference)


@entry(ScanPlan, kind=ScanKind.CUMPROD)
def cumulative_prod(
    x: Array, axis: int | None = None, initial: Array | None = None, *, reverse: bool = False, exclusive: bool = False,
    return_carry: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The cumprod of x along `axis`, which an array of several axes must be given (numpy.cumulative_prod).

    See `ScanPlan`.
    """
    facts = {"reverse": reverse, "exclusive": exclusive, "return_carry": return_carry}
    axis = _along_the_only("cumulative_prod", x, axis)
    return cumprod(x, axis, initial, **facts, out=out, stream=stream, preference=preference)
