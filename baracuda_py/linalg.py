"""Linear algebra by the names of torch.linalg, numpy.linalg and scipy.linalg: `baracuda_py.linalg.solve(a, b)`.

Each is the package's function of that name, but for `norm`: `baracuda_py.norm` is torch.norm, of vectors; here it is
the norm of vectors or of matrices.
"""

from __future__ import annotations

from typing import Any

from ._absent import AbsentName
from ._exports import EXPORTS
from .core.checked import wholes
from .core.errors import InvalidProblemError
from .core.views import shape_of
from .ops.linalg.matrix_norm import matrix_norm
from .ops.reduce.norm import vector_norm

_ELSEWHERE = (  # pages of other families that torch.linalg, numpy.linalg or scipy.linalg has
    "block_diag", "circulant", "companion", "convolution_matrix", "cross", "dft", "fiedler", "fiedler_companion",
    "hadamard", "hankel", "helmert", "hilbert", "invhilbert", "invpascal", "leslie", "matmul", "matrix_power",
    "matrix_transpose", "multi_dot", "outer", "pascal", "tensordot", "toeplitz", "trace", "vecdot", "vector_norm",
)  # fmt: skip
__all__ = sorted(
    name
    for name, module in EXPORTS.items()
    if (module.startswith("ops.linalg.") and name.islower() and not name.endswith("_backward"))
    or name in (*_ELSEWHERE, "norm")
)


def norm(
    a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The norm of a vector or a matrix (numpy.linalg.norm, torch.linalg.norm).

    axis: a number, whose norms are `vector_norm`, or two, whose norms are `matrix_norm`; by default those of a vector
    or a matrix. Without ord the root of the sum of |a|², without an axis either of all elements. Gradients are theirs.
    """
    rest = {"out": out, "stream": stream, "preference": preference}
    rank = len(shape_of(a, "a"))
    if axis is None and ord is None:
        return vector_norm(a, 2, None, keepdims, **rest)
    if axis is None and rank not in (1, 2):
        raise InvalidProblemError(f"a norm of order {ord!r} needs an axis, or two, of an array of {rank} axes")
    given = (axis,) if isinstance(axis, int) else axis
    axes = tuple(range(rank)) if axis is None else wholes("axis", given, -rank)
    if len(axes) == 1:
        return vector_norm(a, 2 if ord is None else ord, axes[0], keepdims, **rest)
    return matrix_norm(a, "fro" if ord is None else ord, axes, keepdims, **rest)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AbsentName(__name__, name, __all__)
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"baracuda_py.{EXPORTS[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
