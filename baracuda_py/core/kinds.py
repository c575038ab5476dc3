"""Kinds that are rows of a table: what an op of one shape of problem computes, and everything that differs with it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self


class WithFunctor:
    """A row that names its functor: "rounding/Floor" is Floor of the file rounding.cuh in `folder`, "Floor" alone one
    of the kernel's own file.
    """

    functor: str
    folder: ClassVar[str]
    """Under kernels/."""

    @property
    def cpp(self) -> str:
        """The functor's name."""
        return self.functor.rpartition("/")[2]

    @property
    def header(self) -> str:
        """The functor's file under kernels/; "" where the kernel's own has it."""
        file = self.functor.rpartition("/")[0]
        return f"{self.folder}/{file}.cuh" if file else ""


class TableKind(enum.Enum):
    """A member is written `NAME = "name", row`; its value is the name, and `row` the rest."""

    row: Any

    def __new__(cls, name: str, row: Any) -> Self:
        kind = object.__new__(cls)
        kind._value_ = name
        kind.row = row
        return kind

    @property
    def cpp(self) -> str:
        """The functor that the row names, without its template argument."""
        return str(self.row.cpp)

    @property
    def header(self) -> str:
        """The file under kernels/ that has the functor; "" where the kernel's own file has it."""
        return self.row.header if isinstance(self.row, WithFunctor) else ""

    @property
    def names(self) -> tuple[str, ...]:
        """The public names of its function: its own and the row's aliases."""
        return self.value, *self.row.aliases
