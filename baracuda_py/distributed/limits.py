"""Time limits."""

from __future__ import annotations

from typing import Any

from ..core.checked import shown
from ..core.errors import InvalidProblemError


def seconds(timeout: Any) -> float:
    """A time limit, checked."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
        raise InvalidProblemError(f"timeout must be seconds above 0, got {shown(timeout)}")
    return float(timeout)
