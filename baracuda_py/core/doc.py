"""`Doc`: a docstring that becomes the whole help where it is shown."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_PAGE = "baracuda_py.help.page"  # imported when a page is asked for: it reads the whole registry


class Doc(str):
    """The text of a docstring; `help`, `inspect.getdoc` and `print` show the page of its function.

    `inspect.cleandoc`, through which they all go, asks a docstring for `expandtabs`, and `print` for `__str__`: that is
    where the page is made. Everything else sees the short text.
    """

    of: Callable[..., Any]

    def __new__(cls, text: str, of: Callable[..., Any]) -> Doc:
        made = super().__new__(cls, text)
        made.of = of
        return made

    def expandtabs(self, tabsize: Any = 8) -> str:
        return str(self).expandtabs(tabsize)

    def __str__(self) -> str:
        made: str = import_module(_PAGE).page(self.of, str.__str__(self))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str.__str__(self),)
