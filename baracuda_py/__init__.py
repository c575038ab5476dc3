"""Fused ML ops as plans over raw CUDA: Descriptor → `Plan.select` → `can_implement` → `run`.

Every name is imported when it is first used; importing the package loads no GPU library.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import _forking  # noqa: F401  (a fork waits for imports that began before anything else of the package)
from ._absent import AbsentName
from ._exports import EXPORTS

__version__ = "0.1.0"
__all__ = ["__version__", *EXPORTS]
_PACKAGES = (
    "distributed",
    "jax",
    "linalg",
    "nested",
    "nn",
    "serving",
    "signal",
    "sparse",
    "weights",
)  # sub-packages; `jax` needs JAX


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    module = EXPORTS.get(name)
    if module is None:
        raise AbsentName(__name__, name, EXPORTS)
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
