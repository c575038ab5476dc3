"""associative_scan: prefixes under a named operator, which the scans have as kinds of their own (jax.lax's name)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.keywords import near
from ...core.outputs import each_of
from .linear_scan import linear_scan
from .scan import ScanPlan, cumprod, cumsum, logcumsumexp
from .scan_extreme import cummax, cummin

_SCANS: dict[str, Callable[..., Any]] = {"add": cumsum, "multiply": cumprod, "logaddexp": logcumsumexp}
_EXTREMES: dict[str, Callable[..., Any]] = {"maximum": cummax, "minimum": cummin}
_LINEAR = "linear"
OPERATORS = (*_SCANS, *_EXTREMES, _LINEAR)
_ALSO = {"mul": "multiply", "prod": "multiply", "sum": "add", "max": "maximum", "min": "minimum"}


def _operator(fn: Any) -> str:
    """The name of an operator, given as that or as the function of another library or this one."""
    given = fn if isinstance(fn, str) else getattr(fn, "__name__", None)
    name = _ALSO.get(str(given), given)
    if name in OPERATORS:
        return str(name)
    close = near(str(given), OPERATORS)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise InvalidProblemError(
        f"fn must name an operator that scans have, one of {', '.join(OPERATORS)}, got {shown(fn)}{hint} "
        "(Python functions of arrays are not compiled into a scan)"
    )


@entry(ScanPlan)
def associative_scan(
    fn: Any, elems: Any, *, reverse: bool = False, axis: int = 0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y[i] = elems[0] fn … fn elems[i] along `axis` (jax.lax.associative_scan), fn an operator's name.

    add, multiply, logaddexp, maximum and minimum are `cumsum`, `cumprod`, `logcumsumexp`, `cummax` and `cummin`; the
    functions of these names do, too. linear composes maps h → a h + b, elems being (a, b), as state-space models do:
    (cumprod(a), linear_scan(a, b)), which is both parts of the composed maps. reverse: from the last element on.
    """
    name = _operator(fn)
    options = {"axis": axis, "reverse": reverse, "stream": stream, "preference": preference}
    if name in _SCANS:
        return _SCANS[name](elems, **options, out=out)
    if name in _EXTREMES:
        return _EXTREMES[name](elems, **options, out=None if out is None else {"y": out})[0]
    if not isinstance(elems, (tuple, list)) or len(elems) != 2:
        raise InvalidProblemError("elems of the linear operator must be (a, b), the parts of maps h → a h + b")
    a, b = elems
    products, sums = each_of(out, 2)
    return cumprod(a, **options, out=products), linear_scan(a, b, **options, out=sums)
