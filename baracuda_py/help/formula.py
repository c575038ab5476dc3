"""The NumPy formula of a table's kind as text, read from the source of its row."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np


def formula(kind: Any) -> str:
    """`x * sigmoid(x)` of a row written as `lambda x: x * sigmoid(x)`; of one that names a function, its first line."""
    function: Any = getattr(getattr(kind, "row", None), "formula", None)
    if isinstance(function, np.ufunc):
        return f"numpy.{function.__name__}"
    if not hasattr(function, "__code__"):
        return ""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return ""
    if function.__name__ != "<lambda>":
        return _of_function(source, function)
    for tree in _lambdas(source):
        if _same(tree, function):
            return ast.unparse(tree.body)
    return ""


def _of_function(source: str, function: Any) -> str:
    """What it returns where that is all it does; else the first paragraph of its docstring."""
    body = list(ast.parse(textwrap.dedent(source)).body[0].body)  # type: ignore[attr-defined]
    last = body[-1]
    if isinstance(last, ast.Return) and last.value is not None and all(isinstance(n, ast.Expr) for n in body[:-1]):
        return ast.unparse(last.value)
    text = " ".join(inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].split())
    if "by" in function.__code__.co_varnames:  # a factor that is 1 here
        text = re.sub(r"\bby /", "1 /", re.sub(r" by(?=[.,;]| =)", "", text))
    return text


def _lambdas(source: str) -> Iterator[ast.Lambda]:
    """The lambdas of a piece of source that may begin and end within a call."""
    start = source.find("lambda")
    while start >= 0:
        for stop in _ends(source, start):
            try:
                tree = ast.parse(" ".join(source[start:stop].split()), mode="eval").body
            except SyntaxError:
                continue
            if isinstance(tree, ast.Lambda):
                yield tree
                break
        start = source.find("lambda", start + 1)


def _ends(source: str, start: int) -> Iterator[int]:
    """Where an expression that starts there may end: at commas and brackets of its own level, the last first."""
    depth, found = 0, []
    for i, letter in enumerate(source[start:], start):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        if depth < 0 or (depth == 0 and letter in ",\n"):
            found.append(i)
        if depth < 0:
            break
    yield from reversed([*found, len(source)])


def _same(tree: ast.Lambda, function: Any) -> bool:
    """Whether the text is that of the function: the same names and constants, in one line of source."""
    code = eval(compile(ast.Expression(tree), "<row>", "eval")).__code__
    made, own = (
        (
            each.co_varnames,
            {*each.co_names, *each.co_freevars},
            sorted(repr(c) for c in each.co_consts if c is not None),
        )
        for each in (code, function.__code__)
    )
    return made == own
