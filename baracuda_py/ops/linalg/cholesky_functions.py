"""cholesky, cholesky_solve, cholesky_inverse, cho_factor and cho_solve: what is made of Cholesky factors."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.checked import shown, truth
from ...core.errors import InvalidProblemError
from ...core.views import shape_of, with_axis
from ..elementwise.binary_functions import ne
from ..elementwise.ternary_functions import masked_fill
from ..gemm.chains import matrix_power
from .cholesky import CholeskyPlan, cholesky_ex
from .parts import Options, adjoint_of, fits, product, refuse_singular, square
from .triangular_functions import solve_triangular
from .triangular_solve import TriangularSolvePlan

_NOT_POSITIVE = "the minor of the first {0} rows and columns is not positive definite"


@entry(CholeskyPlan)
def cholesky(a: Array, *, upper: bool = False, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """L with A = L Lᴴ of Hermitian positive definite matrices, or (`upper`) U with A = Uᴴ U (torch.linalg.cholesky).

    a: [..., n, n], of which one triangle is read. A matrix that is not positive definite gives NaN in all of its
    factor: nothing waits for a device. On NumPy arrays, and under BARACUDA_CHECK=1, a `SingularMatrixError` (a
    `numpy.linalg.LinAlgError`) is raised; `cholesky_ex` returns info in its place.
    """
    options = {"stream": stream, "preference": preference}
    y, info = cholesky_ex(a, upper=upper, **options)
    refuse_singular("cholesky", info, _NOT_POSITIVE)
    failed = ne(info, 0, **options)
    return masked_fill(y, with_axis(with_axis(failed, -1, "info"), -1, "info"), float("nan"), out=out, **options)


def _systems(factor: Any, b: Any, upper: bool, out: Any, options: Options) -> Any:
    """L Lᴴ x = b."""
    order = ("c", "n") if upper else ("n", "c")
    half = solve_triangular(factor, b, upper=upper, trans=order[0], **options)
    return solve_triangular(factor, half, upper=upper, trans=order[1], out=out, **options)


@entry(TriangularSolvePlan)
def cholesky_solve(
    b: Array, factor: Array, upper: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """x with A x = b, A = L Lᴴ by its Cholesky factor, or Uᴴ U (`upper`), as torch.cholesky_solve orders them.

    b, x: [..., n, k], factor: [..., n, n], of which one triangle is read; the leading axes broadcast. Two triangular
    systems.
    """
    fits(square(factor, "factor"), b, True)
    return _systems(factor, b, upper, out, {"stream": stream, "preference": preference})


@entry(TriangularSolvePlan)
def cholesky_inverse(
    factor: Array, upper: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """The inverse of A = L Lᴴ, or Uᴴ U (`upper`), by its Cholesky factor [..., n, n] (torch.cholesky_inverse)."""
    options = {"stream": stream, "preference": preference}
    square(factor, "factor")
    half = solve_triangular(
        factor, matrix_power(factor, 0, **options), upper=upper, trans="c" if upper else "n", **options
    )
    return product(adjoint_of(half, options), half, {**options, "out": out})


@entry(CholeskyPlan)
def cho_factor(a: Array, lower: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(c, lower): Cholesky factors for `cho_solve` (scipy.linalg.cho_factor), with zeros beyond; see `cholesky`."""
    flag = truth("lower", lower)
    return cholesky(a, upper=not flag, out=out, stream=stream, preference=preference), flag


@entry(TriangularSolvePlan)
def cho_solve(c_and_lower: Any, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x with A x = b by what `cho_factor` returns, (c, lower) (scipy.linalg.cho_solve).

    b: [..., n, k], or a vector [n].
    """
    if not isinstance(c_and_lower, (tuple, list)) or len(c_and_lower) != 2:
        raise InvalidProblemError(f"c_and_lower must be (c, lower), as cho_factor returns it, got {shown(c_and_lower)}")
    c, lower = c_and_lower
    options = {"stream": stream, "preference": preference}
    vector = len(shape_of(b, "b")) == 1
    right, to = (with_axis(b, -1, "b"), None if out is None else with_axis(out, -1, "out")) if vector else (b, out)
    x = cholesky_solve(right, c, not truth("lower", lower), out=to, **options)
    return (x[..., 0] if vector else x) if out is None else out
