"""What a call would refuse, asked before something is written that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .args import arrays_of
from .errors import RecordedError
from .functional import entry_of, given_outputs
from .routed import Routed


def refuse_call(
    function: Callable[..., Any], arrays: Mapping[str, Any], attributes: Mapping[str, Any], out: Any, preference: Any
) -> None:
    """Raise what a call would raise, before a caller writes something that the call reads.

    It returns no optional outputs. A call that is recorded or traced is left to whoever does that.
    """
    preference = preference.preference if isinstance(preference, Routed) else preference
    plan, given = function.chosen(arrays, attributes)  # type: ignore[attr-defined]
    outs = [spec for spec in arrays_of(plan.args) if spec.role == "out"]
    try:
        entry = entry_of(plan, arrays, given, {spec.name: False for spec in outs if spec.optional}, preference)
        if out is None:
            return
        args = entry.args(
            **arrays, **{spec.name: one for spec, one in zip(outs, given_outputs(entry, out), strict=True)}
        )
    except RecordedError:
        return
    if (error := entry.plan.can_implement(args).error) is not None and not isinstance(error, RecordedError):
        raise error
