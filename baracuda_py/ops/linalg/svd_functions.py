"""svd and svdvals, with gradients that are composed as torch's are."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.arrays import read
from ...core.checked import shown, truth
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.views import cut, shape_of
from ...calls.composed import composed
from ...calls.entries import entry
from ...calls.functional import functional
from .pieces import Pieces, across, down
from .svd import SvdPlan

_svd: Any = functional(SvdPlan)
_LEFT = "(1 - d) * s / ((s - r) * (s + r) + d)"
_RIGHT = "(1 - d) * r / ((s - r) * (s + r) + d)"
_DRIVERS = (None, "gesvd", "gesvdj", "gesvda")


def _check_driver(driver: Any) -> None:
    """Refuses what is no driver of torch's, and those that are not here."""
    if driver not in _DRIVERS:
        raise InvalidProblemError(f"driver must be None, 'gesvd', 'gesvdj' or 'gesvda', got {shown(driver)}")
    if driver in ("gesvdj", "gesvda"):
        why = {
            "gesvdj": "waits for the device after each sweep, and reads complex64 matrices only where they are aligned",
            "gesvda": "finds singular values by those of aᴴ a, so that small ones have half of the digits",
        }[driver]
        raise UnsupportedError(f"{driver} {why}; write driver='gesvd' or None, or for the largest few `svd_lowrank`")


def _svd_gradient(
    dy: Any, a: Any, full_matrices: bool = True, *, driver: str | None = None, return_info: bool = False, y: Any,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """da = U M Vᴴ and what lies beyond the spaces of U and V (Townsend 2016; torch's svd_backward).

    M = skew(Uᴴ dU) ∘ E Σ + Σ (skew(Vᴴ dV) ∘ E) + diag(dΣ) with E[i, j] = 1 / (σ[j]² - σ[i]²), 0 on the diagonal, where
    complex matrices have i Im(Uᴴ dU) / Σ besides.
    """
    (du, ds, dvh, *_), (u, s, vh, *_) = dy, y
    do, (m, n) = Pieces(stream, preference), shape_of(a, "a")[-2:]
    k = min(m, n)
    if full_matrices and m != n:
        if du is not None or dvh is not None:
            raise UnsupportedError(
                "svd with full_matrices has no gradient by u and vh of matrices that are not square, for their last "
                "vectors are any; write full_matrices=False"
            )
        every = (slice(None),) * (len(shape_of(a, "a")) - 2)
        u, vh = cut(u, (*every, slice(None), slice(k)), "u"), cut(vh, (*every, slice(k)), "vh")
    if not k:
        return do.product(u, vh)  # zeros, of which there may be none
    squares: dict[str, Any] = {"s": across(s), "r": down(s), "d": do.unit(k, s)}
    inner, left, right = None, None if ds is None else do.scaled(u, across(ds)), None
    if du is not None:
        g, more = do.product(do.turned(u), du), " + 0.5 * d / s" if read(a, "a").element.is_complex else ""
        inner = do.scaled(do.skew(g), do.of(_LEFT + more, **squares))
        if m > k:
            over = do.of("1 / s", s=across(s))
            left = do.sum(left, do.scaled(du, over))
            inner = do.sum(inner, do.scaled(g, do.of("-s", s=over)))
    if dvh is not None:
        h = do.product(dvh, do.turned(vh))
        inner = do.sum(inner, do.scaled(do.skew(do.turned(h)), do.of(_RIGHT, **squares)))
        if n > k:
            over = do.of("1 / s", s=down(s))
            inner = do.sum(inner, do.scaled(h, do.of("-s", s=over)))
            right = do.product(u, do.scaled(dvh, over))
    left = do.sum(left, None if inner is None else do.product(u, inner))
    return do.sum(None if left is None else do.product(left, vh), right)


@composed(_svd_gradient, "a", result=True, reads=())
@entry(SvdPlan)
def svd(
    a: Array, full_matrices: bool = True, *, driver: str | None = None, return_info: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(u, s, vh) with a = u diag(s) vh, s >= 0 descending (torch.linalg.svd, numpy.linalg.svd).

    a: [..., m, n] of f32, f64, complex64, complex128; k = min(m, n). s [..., k] is real; u [..., m, m] and vh
    [..., n, n], without full_matrices [..., m, k] and [..., k, n], have orthonormal columns and rows, whose signs and
    phases are the library's. return_info: info, int32 [...], besides: 0, or more where a matrix did not converge, whose
    results are NaN. driver: None or "gesvd"; torch's "gesvdj" and "gesvda" are refused in words. Matrices of up to 64
    rows and columns take Jacobi's method in one launch. The gradient by u and vh takes full_matrices=False or a square
    a, and distinct singular values (of a rectangular one, off 0): it is infinite or NaN elsewhere, as torch's, and has
    a meaning for functions that do not depend on signs and phases.
    """
    _check_driver(driver)
    return _svd(
        a, full_matrices=truth("full_matrices", full_matrices), return_u=True, return_vh=True,
        return_info=truth("return_info", return_info), out=out, stream=stream, preference=preference,
    )  # fmt: skip


def _svdvals_gradient(dy: Any, a: Any, *, driver: str | None = None, stream: Any = None, preference: Any = None) -> Any:
    """da = U diag(dΣ) Vᴴ; the vectors are found then."""
    do = Pieces(stream, preference)
    u, _, vh = svd(a, False, driver=driver, **do.options)
    return do.product(do.scaled(u, across(dy)), vh)


@composed(_svdvals_gradient, "a")
@entry(SvdPlan)
def svdvals(
    a: Array, *, driver: str | None = None, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """s, the singular values of matrices, descending (torch.linalg.svdvals, numpy.linalg.svdvals).

    As `svd`, which makes vectors besides and says what `driver` chooses; its gradient makes them, and takes no distinct
    singular values.
    """
    _check_driver(driver)
    return _svd(a, return_u=False, return_vh=False, out=out, stream=stream, preference=preference)
