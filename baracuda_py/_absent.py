"""The error for a name that a module of this package has not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

_ALIKE = 0.75  # among so many names, some are a little like any word


class AbsentName(AttributeError):
    """Python's own words, and why there is none or which was meant, sought when they are read: `hasattr` never does."""

    def __init__(self, module: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"module {module!r} has no attribute {name!r}")
        self.word, self.known = name, list(known)

    def __str__(self) -> str:
        said = super().__str__()
        if self.word.startswith("_"):
            return said
        table = import_module(f"{__package__}._not_offered")  # read with the error: importing the package is light
        if row := table.NOT_OFFERED.get(self.word):
            return f"{said}; {row.words(self.word)} (docs/not-offered.md)"
        if found := get_close_matches(self.word, self.known, 3, _ALIKE):
            return f"{said}; did you mean {' or '.join(found)}?"
        return f"{said}; `python -m baracuda_py ops --search WORD` looks for functions by what they do"

    def __reduce__(self) -> Any:
        return AttributeError, (str(self),)
