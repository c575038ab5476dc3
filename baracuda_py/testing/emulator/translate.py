"""PTX to C++: a function a kernel, in terms of simt.hpp.

What the compiler makes of `kernels/` is translated, not the sources. An instruction that has no translation is an error
here, or of the C++ compiler, which names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .function import Function
from .words import UntranslatableError, number, parts_of, plain, size_of, storage, variable

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_FUNCTION = re.compile(r"\.(entry|func)\s+(?:\(([^()]*)\)\s*)?([\w$]+)\s*\(([^()]*)\)([^{};]*)\{", re.S)
_DATA = re.compile(r"^((?:\.(?:visible|weak|extern)\s+)*)\.(global|const|shared)\b([^;]*);", re.M)
_STATEMENT = re.compile(r"\s*(?:([{}])|([\w$]+:)(?!:)|((?:[^;{}]|\{[^{};]*\})*);)")


def translate(ptx: str, kernel: str) -> str:
    """C++ of one of a module's kernels: a function of a Thread&.

    Beside it `name__static`, its bytes of static shared memory, and `name__dynamic`, where the dynamic begins.
    """
    text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), ptx)
    functions = list(_FUNCTION.finditer(text))
    head = text[: functions[0].start()] if functions else text
    names: dict[str, str] = {}
    shared: list[str] = []
    dynamic = ""
    data, heads, bodies = [], [], []
    for found in _DATA.finditer(head):
        if found[2] != "shared":
            name, code = _constant(found[3])
            names[name] = f"reinterpret_cast<u64>({plain(name)})"
            data.append(code)
        elif "extern" in found[1]:
            dynamic = variable(found[3])[2]
        else:
            shared.append(found[3])
    for found in functions:
        kind, result, name, params, _ = found.groups()
        if kind == "entry" and name != kernel:
            continue
        function = Function(name, names, shared, dynamic)
        body = _statements(text, found.end())
        if kind == "entry":
            bodies.append(function.kernel(params, body))
        else:
            heads.append(f"static {function.head(result or '', params)};")
            bodies.append(function.device(result or "", params, body))
    return "\n".join(['#include "simt.hpp"', "using namespace simt;", *data, *heads, *bodies])


def _constant(declaration: str) -> tuple[str, str]:
    align, kind, name, count, value = variable(declaration)
    word = storage(kind)
    values = ", ".join(f"static_cast<{word}>({number(v)})" for v in parts_of(value or "0"))
    alignment = max(int(align or 1), size_of(kind))
    return name, f"alignas({alignment}) static {word} {plain(name)}[{count or 1}] = {{{values}}};"


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
