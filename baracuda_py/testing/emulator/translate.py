"""PTX to C++, in terms of simt.hpp: a list of statements a kernel, or a function.

What the compiler makes of `kernels/` is translated, not the sources. An instruction that has no translation is an error
here, or of the C++ compiler, which names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .function import Function
from .steps import Listing, listing
from .words import UntranslatableError, number, parts_of, plain, size_of, storage, variable

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_FUNCTION = re.compile(r"\.(entry|func)\s+(?:\(([^()]*)\)\s*)?([\w$]+)\s*\(([^()]*)\)([^{};]*)\{", re.S)
_DATA = re.compile(r"^((?:\.(?:visible|weak|extern)\s+)*)\.(global|const|shared)\b([^;]*);", re.M)
_STATEMENT = re.compile(r"\s*(?:([{}])|([\w$]+:)(?!:)|((?:[^;{}]|\{[^{};]*\})*);)")


def translate(ptx: str, kernel: str) -> str:
    """C++ of one of a module's kernels: a function of a Thread&.

    Beside it `name__static`, its bytes of static shared memory, and `name__dynamic`, where the dynamic begins.
    """
    module = _Module(ptx)
    heads, bodies = [], []
    for found in module.functions:
        kind, result, name, params, _ = found.groups()
        if kind == "entry" and name != kernel:
            continue
        function = module.function(name)
        body = _statements(module.text, found.end())
        if kind == "entry":
            bodies.append(function.kernel(params, body))
        else:
            heads.append(f"static {function.head(result or '', params)};")
            bodies.append(function.device(result or "", params, body))
    data = map(_constant, module.data.values())
    return "\n".join(['#include "simt.hpp"', "using namespace simt;", *data, *heads, *bodies])


def listed(ptx: str, kernel: str) -> Listing | None:
    """One of a module's kernels as steps, or None: where it calls functions, or has addresses in its data."""
    module = _Module(ptx)
    try:
        data = {plain(name): _bytes(declaration) for name, declaration in module.data.items()}
    except ValueError:
        return None
    found = next(found for found in module.functions if found[3] == kernel)
    function = module.function(kernel)
    statements = function.statements(found[4], _statements(module.text, found.end()))
    if function.calls:
        return None
    sizes = function.reserved, function.dynamic_from
    return listing(statements, function.registers, function.arrays, data, sizes)


class _Module:
    """PTX without comments, its functions, and what it declares before them."""

    def __init__(self, ptx: str) -> None:
        self.text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), ptx)
        self.functions = list(_FUNCTION.finditer(self.text))
        self.data: dict[str, str] = {}
        self._shared: list[str] = []
        self._dynamic = ""
        head = self.text[: self.functions[0].start()] if self.functions else self.text
        for found in _DATA.finditer(head):
            if found[2] != "shared":
                self.data[variable(found[3])[2]] = found[3]
            elif "extern" in found[1]:
                self._dynamic = variable(found[3])[2]
            else:
                self._shared.append(found[3])

    def function(self, name: str) -> Function:
        """One to be translated."""
        names = {name: f"reinterpret_cast<u64>({plain(name)})" for name in self.data}
        return Function(name, names, self._shared, self._dynamic)


def _bytes(declaration: str) -> tuple[int, bytes]:
    """The alignment and the values of an array."""
    align, kind, _, count, value = variable(declaration)
    size = size_of(kind)
    values = [int(number(v).rstrip("ul"), 0) % (1 << 8 * size) for v in parts_of(value or "0")]
    held = b"".join(v.to_bytes(size, "little") for v in values)
    return max(int(align or 1), size), held.ljust(int(count or 1) * size, b"\0")


def _constant(declaration: str) -> str:
    align, kind, name, count, value = variable(declaration)
    word = storage(kind)
    values = ", ".join(f"static_cast<{word}>({number(v)})" for v in parts_of(value or "0"))
    alignment = max(int(align or 1), size_of(kind))
    return f"alignas({alignment}) static {word} {plain(name)}[{count or 1}] = {{{values}}};"


def _statements(text: str, at: int) -> Iterator[tuple[int, str]]:
    """Instructions, directives, labels and braces of a body, with their lines."""
    depth, line, counted = 1, text.count("\n", 0, at) + 1, at
    while True:
        found = _STATEMENT.match(text, at)
        if not found:
            raise UntranslatableError(f"line {line}: {text[at : at + 80]}")
        start = found.start(found.lastindex or 0)
        line, counted, at = line + text.count("\n", counted, start), start, found.end()
        statement = (found[1] or found[2] or found[3]).strip()
        depth += (statement == "{") - (statement == "}")
        if depth == 0:
            return
        yield line, statement
