"""Ops that other packages bring: their pages, and the folders of their kernels.

A package names its pages in its metadata, `[project.entry-points."baracuda_py.pages"]` with a line
`my_ops = "my_package.pages"`. The plans of that module are then plans like any other, and `#include "my_ops/scale.cu"`
is `my_package/kernels/scale.cu`.
"""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from .checked import failure

GROUP = "baracuda_py.pages"


@cache
def named() -> dict[str, EntryPoint]:
    """Name → the module of a package's pages, of all that are installed; once a process."""
    return {found.name: found for found in entry_points(group=GROUP)}


def import_pages() -> None:
    """Import the pages of other packages. One that fails is left out, and a warning says whose it is and why."""
    for name, found in named().items():
        try:
            importlib.import_module(found.module)
        except Exception as error:
            warnings.warn(f"the pages {name} ({found.value}) are left out: {failure(error)}", RuntimeWarning, 2)


@cache
def kernel_folder(name: str) -> Path | None:
    """Where the kernels of the pages of a name are: `kernels` in the folder of their package; None where there is none.

    The package is found without being imported.
    """
    found = named().get(name)
    spec = None if found is None else find_spec(found.module.partition(".")[0])
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    folders = [Path(place) / "kernels" for place in places]
    return next((folder for folder in folders if folder.is_dir()), None)
