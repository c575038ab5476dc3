"""The operands of a plan in the message of an error, by what the caller's function calls them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import BaracudaError, DeviceMismatchError, InvalidProblemError, MisalignedOperandError, UnsupportedError

_OPERAND = re.compile(r"\b(?:(?<=overlaps )(\w+)|(?<=cast\()(\w+)|(\w+)(?= (?:must|is|has|overlaps|\()))")
_WITH_TEXT = (InvalidProblemError, DeviceMismatchError, MisalignedOperandError)  # their text is all that they hold


def renamed(error: BaracudaError, names: Mapping[str, str]) -> BaracudaError:
    """The error with `names` (the plan's → the caller's) in its message; itself where none stands in it."""
    text = _OPERAND.sub(lambda found: names.get(found[0], found[0]), str(error))
    plain = type(error) in _WITH_TEXT or (type(error) is UnsupportedError and not error.table)
    return error if not plain or text == str(error) else type(error)(text)
