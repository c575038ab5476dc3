"""What torch.autocast does to the operands of a call."""

from __future__ import annotations

from typing import Any


def cast_operands(
    function: Any, args: tuple[Any, ...], given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands in the dtype that the op's rule asks for."""
    return args, given
