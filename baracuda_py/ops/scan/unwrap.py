"""unwrap: a phase whose jumps by more than half a period are taken back; a difference, a formula and a running sum."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.keywords import entry, unexpected
from ...expressions.elementwise import elementwise
from ...interop.arrays import read
from .diff import DiffPlan, diff
from .scan import cumsum

_JUMP = elementwise(
    "_in = remainder(step + 0.5 * period, period) - 0.5 * period;"
    "_kept = where(_in == -0.5 * period and step > 0, 0.5 * period, _in);"
    "where(abs(step) < discont, 0, _kept - step)"
)
"""What takes a step back to the half period around 0."""
_SUM = elementwise("x + y")


@entry(DiffPlan)
def unwrap(
    p: Array, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi, stream: Any = None,
    preference: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """p with multiples of `period` added along `axis`, so that no step is larger than half a period (numpy.unwrap).

    Steps smaller than `discont`, by default half a period, stay as they are. Floats; four launches.
    """
    if unknown:
        raise unexpected(unwrap, unknown)
    found = read(p, "p")
    if not found.element.is_float:
        raise UnsupportedError(f"unwrap of {found.element} is not defined; cast it to a float first")
    if not isinstance(period, (int, float)) or not 0 < period < math.inf:
        raise InvalidProblemError(f"period must be a number above 0, got {shown(period)}")
    half = period / 2
    if discont is not None and not isinstance(discont, (int, float)):
        raise InvalidProblemError(f"discont must be a number or None, got {shown(discont)}")
    at = whole("axis", axis, -len(found.shape), len(found.shape) - 1) % max(len(found.shape), 1)
    more = {"stream": stream, "preference": preference}
    before = (*((slice(None),) * at), slice(None, 1))
    step = diff(p, prepend=p[before], axis=at, **more)
    jump = _JUMP(step, period=float(period), discont=max(half, half if discont is None else float(discont)), **more)
    return _SUM(p, cumsum(jump, axis=at, **more), **more)
