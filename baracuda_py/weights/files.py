"""What the readers share: the packages that they stand on, which names are wanted, and where arrays go."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..core.element import ElementKind
from ..core.errors import BaracudaError, InvalidProblemError, UnsupportedError

Names: TypeAlias = "str | Iterable[str] | Callable[[str], bool] | None"
Place: TypeAlias = "Callable[[Any], Any] | None"


class WeightsFileError(BaracudaError, ValueError):
    """A file of weights that is damaged, cut off, or not what its name says."""


def package(name: str, file: Path) -> Any:
    """A package that reads a kind of file; UnsupportedError says what to install where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            f'reading {file.name} needs {name} ({error}): pip install "baracuda_py[weights]"'
        ) from error


def chosen(names: Names, known: Iterable[str], file: Path) -> list[str]:
    """Those of the names that a file knows that are wanted, in its order.

    names: None for all, a pattern (`"model.layers.0.*"`), a function that says of each, or names, all of which must be
    there.
    """
    there = list(known)
    if names is None:
        return there
    if isinstance(names, str):
        return [name for name in there if fnmatchcase(name, names)]
    if callable(names):
        return [name for name in there if names(name)]
    wanted = dict.fromkeys(names)
    if missing := [name for name in wanted if name not in set(there)]:
        raise InvalidProblemError(f"{file.name} has no tensor {missing[0]!r}")
    return [name for name in there if name in wanted]


def placed(stored: Any, element: ElementKind, shape: tuple[int, ...], place: Place) -> Any:
    """Bytes of a file as an array of an element: a view where they are aligned; where `place` puts it, if given.

    Other packages have no dtype of 8-bit floats: `place` gets their bytes.
    """
    array = np.asarray(stored).view(element.dtype).reshape(shape)
    if not array.flags.aligned:
        array = array.copy()
    if place is None:
        return array
    return place(array if element.carrier == element.dtype else array.view(element.carrier))
