"""The functional layer in JAX: `from baracuda_py import jax as bj`, then `bj.rms_norm(x, weight)`.

Every function of `baracuda_py` that has a plan is here under its name, with its arguments: arrays are JAX's, traced or
not, everything else is fixed when a call is traced. They work eagerly and inside `jit`, `grad`, `vjp`, `vmap`, `scan`,
`while_loop` and the rest, as XLA custom calls: on a CUDA device the kernels are launched on XLA's stream over XLA's
buffers, nothing is copied and the host never waits; on the CPU the NumPy backend writes XLA's buffers. The functions
of `baracuda_py` itself do the same where they meet a traced array.

- Gradients are those of the op's page, for reverse mode; an op without one refuses to be differentiated, by name.
- vmap widens the problem where the op is independent along a leading axis, else it is one call after the other.
- What a plan updates in place (a cache, optimizer state) is returned, after the outputs; XLA reuses a donated buffer.
- A scalar that is a Python number is a constant of the compiled call; a 0-d array may change without compiling.
- `out=` and `stream=` are refused: arrays are immutable, and XLA chooses the stream.
"""

from __future__ import annotations

import importlib
from typing import Any

from .._absent import AbsentName
from .._exports import EXPORTS

try:
    importlib.import_module("jax")
except ImportError as error:
    raise ImportError('baracuda_py.jax needs JAX: pip install "baracuda_py[jax]"', name="jax") from error

from .staging import bridged
from .target import register

register()


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in EXPORTS:
        raise AbsentName(__name__, name, EXPORTS)
    plain = getattr(importlib.import_module("baracuda_py"), name)
    if isinstance(plain, type) or not hasattr(plain, "plan"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it is no function of arrays")
    made = bridged(name, plain)
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    """The functions: what has a plan and is none."""
    package = importlib.import_module("baracuda_py")
    return sorted(name for name in EXPORTS if name[0].islower() and hasattr(getattr(package, name), "plan"))
