"""The functional layer at home in torch: the same names and signatures, under autograd and torch.compile.

`baracuda_py.torch.rms_norm(x, weight)` is `baracuda_py.rms_norm` for tensors: its gradient is the op's own backward
kernel, and under `torch.compile` it is one op of the graph, `torch.ops.baracuda.rms_norm`. Importing
this package imports torch; importing `baracuda_py` does not.
"""

from __future__ import annotations

from typing import Any

from .._absent import AbsentName
from .._exports import EXPORTS
from .names import mirrored
from .routing import define_all


def __getattr__(name: str) -> Any:
    value = mirrored(name) if name in EXPORTS else None
    if value is None:
        raise AbsentName(__name__, name, EXPORTS)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *EXPORTS})


__all__ = ["define_all"]
