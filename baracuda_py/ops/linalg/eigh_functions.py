"""eigh and eigvalsh, with gradients that are composed as torch's are."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.checked import shown, truth
from ...core.errors import InvalidProblemError
from ...core.views import shape_of
from ...calls.composed import composed
from ...calls.entries import entry
from ...calls.functional import functional
from .eigh import EighPlan
from .pieces import Pieces, across, down


_eigh: Any = functional(EighPlan)


def _upper(uplo: Any) -> bool:
    if not isinstance(uplo, str) or uplo.upper() not in ("L", "U"):
        raise InvalidProblemError(f"UPLO must be 'L' or 'U', got {shown(uplo)}")
    return uplo.upper() == "U"


def _eigh_gradient(
    dy: Any, a: Any, UPLO: str = "L", *, return_info: bool = False, y: Any, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """da = V (diag(dw) + F ∘ (Vᴴ dV - dVᴴ V) / 2) Vᴴ with F[i, j] = 1 / (w[j] - w[i]), 0 on the diagonal."""
    (dw, dv, *_), (w, v, *_) = dy, y
    do = Pieces(stream, preference)
    values = None if dw is None else do.scaled(v, across(dw))
    vectors = None
    if dv is not None:
        apart = do.of("0.5 * (1 - d) / (w - v + d)", w=across(w), v=down(w), d=do.unit(shape_of(w, "w")[-1], w))
        vectors = do.product(v, do.scaled(do.skew(do.product(do.turned(v), dv)), apart))
    return do.product(do.sum(values, vectors), do.turned(v))


@composed(_eigh_gradient, "a", result=True, reads=())
@entry(EighPlan)
def eigh(
    a: Array, UPLO: str = "L", *, return_info: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(w, v) with a = v diag(w) vᴴ, of Hermitian matrices, w ascending (torch.linalg.eigh, numpy.linalg.eigh).

    a: [..., n, n] of f32, f64, complex64, complex128, of which one triangle is read, the lower one or (UPLO="U") the
    upper; w [..., n] is real, v [..., n, n] has orthonormal columns, whose signs and phases are the library's.
    return_info: (w, v, info), info int32 [...], 0, or more where a matrix did not converge; its w and v are NaN.
    Nothing waits for the device. The gradient is for Hermitian changes; that of v takes distinct eigenvalues and is
    infinite or NaN where two are equal, as torch's, and has a meaning for functions of v that do not depend on signs
    and phases.
    """
    return _eigh(
        a, upper=_upper(UPLO), return_v=True, return_info=truth("return_info", return_info), out=out, stream=stream,
        preference=preference,
    )  # fmt: skip


def _eigvalsh_gradient(
    dy: Any, a: Any, UPLO: str = "L", *, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """da = V diag(dw) Vᴴ; the vectors are found then."""
    do = Pieces(stream, preference)
    _, v = eigh(a, UPLO, **do.options)
    return do.product(do.scaled(v, across(dy)), do.turned(v))


@composed(_eigvalsh_gradient, "a")
@entry(EighPlan)
def eigvalsh(a: Array, UPLO: str = "L", *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """w, the eigenvalues of Hermitian matrices, ascending (torch.linalg.eigvalsh, numpy.linalg.eigvalsh).

    As `eigh`, which makes vectors besides; its gradient makes them, and takes no distinct eigenvalues.
    """
    return _eigh(a, upper=_upper(UPLO), return_v=False, out=out, stream=stream, preference=preference)
