"""What torch.compile is told: each function of this package is one call of its graph, not Python to look into.

Importing `torch._dynamo` takes longer than all of this package, so it is told once somebody else has imported it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from .untyped import torch

_DYNAMO = "torch._dynamo"
_opaque: list[Callable[..., Any]] = []


def opaque(function: Callable[..., Any]) -> None:
    """Have torch.compile put calls of `function` into its graph as they are."""
    if _DYNAMO in sys.modules:
        torch.compiler.allow_in_graph(function)
    else:
        _opaque.append(function)


def _tell() -> None:
    while _opaque:
        torch.compiler.allow_in_graph(_opaque.pop())


class _Finder:
    """On the first import of torch._dynamo, calls `_tell` once that is done."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _DYNAMO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                _tell()

            loader.exec_module = exec_module
        return spec


if _DYNAMO not in sys.modules:
    sys.meta_path.insert(0, _Finder())
