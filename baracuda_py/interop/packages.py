"""Which array package a type belongs to, whether or not that package is loaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache


def _package_name(kind: type) -> str:
    for base in (kind, *kind.__mro__):
        module = base.__module__
        root = module.partition(".")[0] if isinstance(module, str) else ""
        root = {"jaxlib": "jax", "_cupy": "cupy"}.get(root, root)
        if root in ("cupy", "torch", "jax", "numpy"):
            return root
    module = kind.__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


package_name: Callable[[type], str] = lru_cache(maxsize=4096)(_package_name)
"""The array package that a type or a base of it belongs to: cupy, torch, jax, numpy; else its module's root."""
