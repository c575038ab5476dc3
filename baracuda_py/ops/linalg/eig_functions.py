"""eig and eigvals, with gradients that are composed as torch's are."""

from __future__ import annotations

from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...calls.functional import functional
from ...core import Array, ElementKind
from ...core.arrays import read
from ...core.checked import truth
from ...core.views import broadcast, diagonal, shape_of
from ..elementwise.binary_functions import div, sub
from ..elementwise.cast import cast
from ..elementwise.complex_unary import conj, real
from ..layout.written import diag_embed
from .eig import EigPlan
from .parts import known, square
from .pieces import Pieces, across, down
from .solve import solve

_eig: Any = functional(EigPlan)
_COMPLEX = {ElementKind.F32: ElementKind.C64, ElementKind.F64: ElementKind.C128}


def _complex(a: Any, name: str, options: Any) -> Any:
    """a as complex numbers."""
    found = known(a, "a", name).element
    square(a)
    return cast(a, _COMPLEX[found], **options) if found in _COMPLEX else a


def _as_given(da: Any, a: Any, options: Any) -> Any:
    """Of real matrices the real part."""
    return da if read(a, "a").element.is_complex else real(da, **options)


def _eig_gradient(
    dy: Any, a: Any, *, return_info: bool = False, y: Any, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """da = V⁻ᴴ (diag(dw) + (Vᴴ dV - Vᴴ V Re diag(Vᴴ dV)) ∘ F) Vᴴ, F[i, j] = 1 / (w[j] - w[i])*, 0 on the diagonal."""
    (dw, dv, *_), (w, v, *_) = dy, y
    do = Pieces(stream, preference)
    options, turned, n = do.options, do.turned(v), shape_of(w, "w")[-1]
    inner = None if dw is None else diag_embed(dw, **options)
    if dv is not None:
        along = do.product(turned, dv)
        rank = len(shape_of(along, "v"))
        own = real(diagonal(along, rank - 2, rank - 1, "v"), **options)
        along = sub(along, do.scaled(do.product(turned, v), across(own)), **options)
        unit = cast(do.unit(n, own), read(w, "w").element, **options)
        apart = sub(across(conj(w, **options)), down(conj(w, **options)), **options)
        apart = do.sum(apart, broadcast(unit, shape_of(apart, "w"), "w"))
        inner = do.sum(inner, do.scaled(div(along, apart, **options), do.of("1 - d", d=do.unit(n, own))))
    return _as_given(solve(turned, do.product(inner, turned), **options), a, options)


@composed(_eig_gradient, "a", result=True, reads=())
@entry(EigPlan)
def eig(
    a: Array, *, return_info: bool = False, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """(w, v) with a v = v diag(w), of general matrices (torch.linalg.eig, numpy.linalg.eig).

    a: [..., n, n] of f32, f64, complex64, complex128. w [..., n] and v [..., n, n] are complex, v's columns of length
    1, in the library's order and phases; a real matrix is taken as a complex one, so pairs of conjugates are such to
    within roundings. return_info: info, int32 [...], besides: 0, or more where a matrix did not converge, whose w and v
    are NaN. On a device cuSOLVER's routine is needed (CUDA 12.8 and later), which waits for the device; `eigh` is for
    Hermitian matrices. The gradient takes distinct eigenvalues, as torch's, and has a meaning for functions of v that
    do not depend on phases.
    """
    options = {"stream": stream, "preference": preference}
    given = _complex(a, "eig", options)
    return _eig(given, return_v=True, return_info=truth("return_info", return_info), out=out, **options)


def _eigvals_gradient(dy: Any, a: Any, *, stream: Any = None, preference: Any = None) -> Any:
    """da = V⁻ᴴ diag(dw) Vᴴ; the vectors are found then."""
    do = Pieces(stream, preference)
    _, v = eig(a, **do.options)
    turned = do.turned(v)
    made = solve(turned, do.product(diag_embed(dy, **do.options), turned), **do.options)
    return _as_given(made, a, do.options)


@composed(_eigvals_gradient, "a")
@entry(EigPlan)
def eigvals(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """w, the eigenvalues of general matrices, complex (torch.linalg.eigvals, numpy.linalg.eigvals).

    As `eig`, which makes vectors besides; its gradient makes them.
    """
    options = {"stream": stream, "preference": preference}
    return _eig(_complex(a, "eigvals", options), return_v=False, out=out, **options)
