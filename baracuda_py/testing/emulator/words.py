"""Words of PTX in C++: types, literals, names, declarations."""

from __future__ import annotations

import re
from functools import cache

_VARIABLE = re.compile(r"(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)\s*(?:\[(\d*)\])?\s*(?:=\s*(.*))?$", re.S)
_BYTES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "b64": 8, "u64": 8, "s64": 8, "f64": 8}


class UntranslatableError(Exception):
    """PTX that has no translation."""


def variable(declaration: str) -> tuple[str, str, str, str, str]:
    """Alignment, type, name, count and value."""
    found = _VARIABLE.match(declaration.strip())
    if not found:
        raise UntranslatableError(declaration)
    return found.groups()  # type: ignore[return-value]


def size_of(kind: str) -> int:
    """Bytes of a type."""
    return _BYTES.get(kind, 4)


@cache
def whole(kind: str) -> bool:
    """Whether a type is an integer, bits, or a predicate."""
    return kind == "pred" or (kind[0] in "bus" and kind[1:].isdigit())


def bits(kind: str, told: str) -> str:
    """An expression of a type as a register's word."""
    return told if whole(kind) else f"bits({told})"


def storage(kind: str, count: str | None = None) -> str:
    """The type of a register, or of so many bytes."""
    return f"Bytes<{count}>" if count else "pred" if kind == "pred" else f"b{8 * size_of(kind)}"


def number(text: str) -> str:
    """A literal; floats are written as their bits."""
    digits = {"0f": "u", "0F": "u", "0d": "ull", "0D": "ull"}.get(text[:2])
    return f"0x{text[2:]}{digits}" if digits else text


def plain(name: str) -> str:
    """An identifier of C++."""
    return name.replace("%", "_").replace("$", "_")


def parts_of(x: str) -> list[str]:
    """The words in braces."""
    return [part.strip() for part in x.strip("{} ").split(",")]


def yes(x: bool) -> str:
    """A bool of C++."""
    return "true" if x else "false"
