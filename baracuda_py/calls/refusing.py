"""What a call would refuse, asked before something is written that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.args import arrays_of
from ..core.errors import RecordedError
from .call import resolve
from .functional import entry_of


def refuse_call(
    function: Callable[..., Any], arrays: Mapping[str, Any], attributes: Mapping[str, Any], out: Any, preference: Any
) -> None:
    """Raise what a call would raise, before a caller writes something that the call reads.

    It returns no optional outputs. A call that is recorded or traced is left to whoever does that.
    """
    plan, given = entry_of(function).chosen(arrays, attributes)
    outs = [spec for spec in arrays_of(plan.args) if spec.role == "out"]
    try:
        found = resolve(plan, arrays, given, {spec.name: False for spec in outs if spec.optional}, preference)
        if out is None:
            return
        args = found.args(**arrays, **{spec.name: one for spec, one in zip(outs, found.outputs(out), strict=True)})
    except RecordedError:
        return
    if (error := found.plan.can_implement(args).error) is not None and not isinstance(error, RecordedError):
        raise error
