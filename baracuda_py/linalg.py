"""Linear algebra by the names of torch.linalg, numpy.linalg and scipy.linalg: `baracuda_py.linalg.solve(a, b)`.

Each is the package's function of that name. Where a name means something else there than in `baracuda_py`, as `norm`
does, it is not here.
"""

from __future__ import annotations

from typing import Any

from ._absent import AbsentName
from ._exports import EXPORTS

_ELSEWHERE = (  # pages of other families that torch.linalg, numpy.linalg or scipy.linalg has
    "block_diag", "circulant", "companion", "convolution_matrix", "cross", "dft", "fiedler", "fiedler_companion",
    "hadamard", "hankel", "helmert", "hilbert", "invhilbert", "invpascal", "leslie", "matmul", "matrix_power",
    "matrix_transpose", "multi_dot", "outer", "pascal", "tensordot", "toeplitz", "trace", "vecdot", "vector_norm",
)  # fmt: skip
__all__ = sorted(
    name
    for name, module in EXPORTS.items()
    if (module.startswith("ops.linalg.") and name.islower() and not name.endswith("_backward")) or name in _ELSEWHERE
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AbsentName(__name__, name, __all__)
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"baracuda_py.{EXPORTS[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
