"""What code means, as text to be hashed: without comments, docstrings and layout, and functions with all they call."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from ..core.memo import cached_property

_PACKAGE = "baracuda_py."
_FRAME = tuple(f"baracuda_py.{part}." for part in ("core", "calls", "jit", "interop", "testing.libraries"))
"""What runs the code, and is tested by itself; and the libraries' stand-ins, which no kernel of ours calls."""
_MATTERS = ("baracuda_py.core.element", "baracuda_py.core.error_bound")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(\"(?:[^\"\\\n]|\\.)*\")", re.S)
_LINE = re.compile(r"^#line [^\n]*\n", re.M)


def kernel_text(text: str) -> str:
    """CUDA or C++ without comments, line numbers and layout."""
    return "\n".join(filter(None, map(_plain, _LINE.split(text))))


@lru_cache(maxsize=4096)
def _plain(part: str) -> str:
    lines = _COMMENT.sub(lambda found: found[1] or " ", part).splitlines()
    return "\n".join(words for line in lines if (words := " ".join(line.split())))


def python_text(text: str) -> str:
    """Python without comments, docstrings and layout."""
    tree = ast.parse(textwrap.dedent(text))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0].value.value = ""
    return ast.unparse(tree)


def functions(*roots: Any) -> str:
    """The text of some functions and of those of this package that they name, but for the frame's."""
    texts: dict[str, str] = {}
    todo = [*roots]
    while todo:
        found = todo.pop()
        found = inspect.unwrap(getattr(found, "__func__", found)) if callable(found) else found
        if isinstance(found, FunctionType | type):
            name = f"{found.__module__}.{found.__qualname__}"
            if name not in texts and _ours(found.__module__):
                texts[name] = _text_of(found)
                todo += _named(found) if isinstance(found, FunctionType) else vars(found).values()
        elif isinstance(found, property | cached_property):
            todo.append(found.fget if isinstance(found, property) else found.func)
        elif isinstance(found, int | float | str | tuple) and " at 0x" not in repr(found):
            texts.setdefault(repr(found), "")
    return "\n".join(f"{name}\n{texts[name]}" for name in sorted(texts))


def _ours(module: str) -> bool:
    return module in _MATTERS or (module.startswith(_PACKAGE) and not f"{module}.".startswith(_FRAME))


@lru_cache(maxsize=4096)
def _text_of(found: Any) -> str:
    try:
        text = inspect.getsource(found)
    except (OSError, TypeError):  # made by a decorator, from what has a text itself
        return ""
    try:
        return python_text(text)
    except SyntaxError:  # a lambda in the middle of a statement
        return " ".join(text.split())


def _named(function: FunctionType) -> Iterator[Any]:
    """What a function names: globals of its module, what it closes over, its defaults."""
    codes = [function.__code__]
    for code in codes:
        codes += (constant for constant in code.co_consts if isinstance(constant, CodeType))
        yield from (function.__globals__[name] for name in code.co_names if name in function.__globals__)
    yield from (cell.cell_contents for cell in function.__closure__ or () if cell.cell_contents is not function)
    yield from function.__defaults__ or ()
