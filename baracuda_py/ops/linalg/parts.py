"""What functions of linear systems share: shapes, views, adjoints, and what is said of singular matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...calls.interpreters import innermost, recorder
from ...calls.rehearsal import Rehearsal
from ...core import config
from ...core.arrays import read
from ...core.dump import on_host
from ...core.errors import InvalidProblemError, SingularMatrixError, UnsupportedError
from ...core.views import broadcast, cut, shape_of, transposed, without_axes
from ...interop.packages import package_name
from ..elementwise.complex_unary import conj
from ..gemm.matmul import matmul
from ..reduce.norm import sum_to_size
from .draws import ELEMENTS

Options = dict[str, Any]


def square(a: Any, name: str = "a") -> int:
    """The order of square matrices."""
    shape = shape_of(a, name)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise InvalidProblemError(f"{name} must be square matrices [..., n, n], got shape {shape}")
    return shape[-1]


def known(x: Any, name: str, function: str) -> Any:
    """A view of an operand of elements that factorisations take."""
    view = read(x, name)
    if view.element not in ELEMENTS:
        kinds = "float32, float64, complex64 or complex128"
        raise UnsupportedError(f"{function}: {name} must be {kinds}, got {view.element}; write cast({name}, 'float32')")
    return view


def fits(n: int, b: Any, left: bool, name: str = "b") -> None:
    """b has n rows, or columns where it stands on the left."""
    shape = shape_of(b, name)
    if len(shape) < 2 or shape[-2 if left else -1] != n:
        wanted = f"[..., {n}, k]" if left else f"[..., k, {n}]"
        raise InvalidProblemError(f"{name} must have shape {wanted}, as the matrices are of {n} rows, got {shape}")


def one_batch(*matrices: tuple[Any, str]) -> list[Any]:
    """Views of matrices whose leading axes are broadcast together."""
    shapes = [shape_of(x, name) for x, name in matrices]
    try:
        lead = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
    except ValueError:
        told = ", ".join(f"{name} {shape}" for (_, name), shape in zip(matrices, shapes, strict=True))
        raise InvalidProblemError(f"the leading axes do not broadcast together: {told}") from None
    return [broadcast(x, (*lead, *shape[-2:]), name) for (x, name), shape in zip(matrices, shapes, strict=True)]


def block(x: Any, *cuts: slice) -> Any:
    """A view of slices of the last axes."""
    rank = len(shape_of(x, "x"))
    return cut(x, (*(slice(None),) * (rank - len(cuts)), *cuts), "x")


def column(x: Any) -> Any:
    """A view of matrices of one column as vectors."""
    return without_axes(x, (len(shape_of(x, "x")) - 1,), "x")


def adjoint_of(x: Any, options: Options) -> Any:
    """xᴴ: a view of real numbers, an array of complex ones."""
    turned = transposed(x, "x")
    return conj(turned, **options) if read(x, "x").element.is_complex else turned


def conjugate(x: Any, options: Options, wanted: bool = True) -> Any:
    """The conjugate of complex numbers, others as they are."""
    return conj(x, **options) if wanted and read(x, "x").element.is_complex else x


def product(a: Any, b: Any, options: Options) -> Any:
    """a @ b."""
    return matmul(a, b, **options)


def as_operand(dx: Any, x: Any, options: Options) -> Any:
    """A gradient of broadcast matrices as that of x."""
    shape = shape_of(x, "x")
    return dx if shape_of(dx, "dx") == shape else sum_to_size(dx, shape, **options)


def rehearsed() -> bool:
    """Whether calls are only checked, before what `out=` gives is written: arrays have nothing in them."""
    return isinstance(innermost(), Rehearsal)


def looked_at(x: Any) -> bool:
    """Whether the host looks at values: at NumPy's arrays that have been computed, and at no others."""
    return type(x) is np.ndarray and innermost() is None


def refuse_singular(name: str, info: Any, what: str) -> None:
    """The error of a singular matrix where `info` is there to be read: on the host, or under BARACUDA_CHECK=1."""
    host = type(info) is np.ndarray
    if innermost() is not None or recorder((info,)) is not None:  # nothing has been computed
        return
    if not (host or config.get("BARACUDA_CHECK")):
        return
    found = on_host(info, package_name(type(info)))  # each launch was waited for: see BARACUDA_CHECK
    bad = np.argwhere(found != 0)
    if bad.size or (found.ndim == 0 and found != 0):
        first: Sequence[int] = tuple(int(i) for i in bad[0])
        place = f" at {first} of the batch" if first else ""
        raise SingularMatrixError(
            f"{name}: {what.format(int(found[tuple(first)]))}{place}; `{name}_ex` returns info instead"
        )
