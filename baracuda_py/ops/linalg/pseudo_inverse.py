"""pinv, matrix_rank and lstsq: what singular values above a tolerance tell, in the words of torch.linalg."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.arrays import read
from ...core.checked import real, truth
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import shape_of, with_axis, without_axes
from ...calls.composed import composed
from ...calls.entries import entry
from ..elementwise.binary_functions import sub
from ..elementwise.cast import cast
from ..elementwise.unary import abs as magnitude, negative  # type: ignore[attr-defined]
from .eigh_functions import eigh, eigvalsh
from .pieces import Pieces, across, down, first
from .svd import SvdPlan
from .svd_functions import svd, svdvals


def matrices(x: Any, name: str, square: bool = False) -> tuple[int, ...]:
    """The shape of matrices."""
    shape = shape_of(x, name)
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        wanted = "[..., n, n]" if square else "[..., m, n]"
        raise InvalidProblemError(f"{name} must be matrices {wanted}, got shape {shape}")
    return shape


def _tolerance(value: Any, name: str) -> Any:
    """A number, or numbers for each matrix as columns."""
    return with_axis(value, -1, name) if getattr(value, "shape", None) else real(name, value)


def tolerances(do: Pieces, a: Any, atol: Any, rtol: Any) -> dict[str, Any]:
    """atol and rtol as torch completes them: rtol is max(m, n) eps where neither is given, 0 beside an atol above 0."""
    view = read(a, "a")
    usual = max(view.shape[-2:]) * float(view.element.limits.eps)
    low = 0.0 if atol is None else _tolerance(atol, "atol")
    if rtol is not None:
        return {"low": low, "share": _tolerance(rtol, "rtol")}
    if isinstance(low, float):
        return {"low": low, "share": 0.0 if low > 0 else usual}
    return {"low": low, "share": do.of("where(x > 0, 0, u)", x=low, u=usual)}


def _sizes(do: Pieces, w: Any) -> tuple[Any, Any]:
    """Magnitudes of eigenvalues, and the largest of them."""
    sizes = magnitude(w, **do.options)
    return sizes, do.reduced("amax", sizes, keepdims=True) if shape_of(w, "w")[-1] else sizes


@entry(SvdPlan)
def matrix_rank(
    a: Array, *, atol: Any = None, rtol: Any = None, hermitian: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """How many singular values of matrices are above max(atol, rtol σ₁), int64 (torch.linalg.matrix_rank).

    a: [..., m, n]. atol, rtol: numbers, or arrays [...]; without both rtol is max(m, n) eps, beside an atol above 0 it
    is 0. hermitian: a is, its lower triangle is read, and the magnitudes of its eigenvalues are counted. Nothing waits
    for the device.
    """
    do, _ = Pieces(stream, preference), matrices(a, "a", truth("hermitian", hermitian))
    if hermitian:
        s, most = _sizes(do, eigvalsh(a, **do.options))
    else:
        s = svdvals(a, **do.options)
        most = first(s)
    above = do.of("s > maximum(low, share * t)", s=s, t=most, **tolerances(do, a, atol, rtol))
    return do.reduced("count_nonzero", above, out=out)


def _pinv_gradient(
    dy: Any, a: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False, y: Any, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """da of P = pinv(a): - Pᴴ dP Pᴴ + (I - A P) dPᴴ P Pᴴ + Pᴴ P dPᴴ (I - P A) (Golub and Pereyra 1973)."""
    do, p = Pieces(stream, preference), y
    ph, slope = do.turned(p), do.turned(dy)
    left = do.product(do.product(slope, p), ph)
    right = do.product(ph, do.product(p, slope))
    beside = sub(left, do.product(a, do.product(p, left)), **do.options)
    beyond = sub(right, do.product(do.product(right, p), a), **do.options)
    inside = do.product(do.product(ph, dy), ph)
    return sub(do.sum(beside, beyond), inside, **do.options)


@composed(_pinv_gradient, "a", result=True)
@entry(SvdPlan)
def pinv(
    a: Array, *, atol: Any = None, rtol: Any = None, hermitian: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """V Σ⁺ Uᴴ, the pseudo-inverses of matrices (torch.linalg.pinv); Σ⁺ is 1 / σ above max(atol, rtol σ₁), else 0.

    a: [..., m, n]; the result is [..., n, m]. Tolerances and `hermitian` are as in `matrix_rank`. The gradient takes
    matrices whose rank does not change nearby, and no distinct singular values.
    """
    do, _ = Pieces(stream, preference), matrices(a, "a", truth("hermitian", hermitian))
    if hermitian:
        w, v = eigh(a, **do.options)
        sizes, most = _sizes(do, w)
        inverse = do.of(
            "where(s > maximum(low, share * t), 1 / w, 0)", s=sizes, t=most, w=w, **tolerances(do, a, atol, rtol)
        )
        return do.product(do.scaled(v, across(inverse)), do.turned(v), out)
    u, s, vh = svd(a, False, **do.options)
    inverse = do.of("where(s > maximum(low, share * t), 1 / s, 0)", s=s, t=first(s), **tolerances(do, a, atol, rtol))
    return do.product(do.scaled(do.turned(vh), across(inverse)), do.turned(u), out)


@entry(SvdPlan)
def pinverse(a: Array, rcond: float = 1e-15, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """`pinv` by its older name, of singular values above rcond σ₁ (torch.pinverse)."""
    return pinv(a, rtol=rcond, out=out, stream=stream, preference=preference)


def _lstsq_gradient(
    dy: Any, a: Any, b: Any, *, rtol: Any = None, y: Any, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """Those of x = pinv(a) @ b, of the squares of e = b - a @ x, and of the singular values."""
    (dx, dresiduals, _, ds), x, do = dy, y[0], Pieces(stream, preference)
    p = pinv(a, rtol=rtol, **do.options)
    if column := len(shape_of(b, "b")) == 1:
        dx, b, x = (one if one is None else with_axis(one, -1, "b") for one in (dx, b, x))
    da = db = None
    if dresiduals is not None:
        off = sub(b, do.product(a, x), **do.options)
        by = with_axis(dresiduals, 0, "dy") if column else across(dresiduals)
        db = do.scaled(off, do.of("2 * r", r=by))
        da = negative(do.product(db, do.turned(x)), **do.options)
        dx = do.sum(dx, negative(do.product(do.turned(a), db), **do.options))
    if dx is not None:
        da = do.sum(da, _pinv_gradient(do.product(dx, do.turned(b)), a, y=p, **do.options))
        db = do.sum(db, do.product(do.turned(p), dx))
    if ds is not None:
        u, _, vh = svd(a, False, **do.options)
        da = do.sum(da, do.product(do.scaled(u, across(ds)), vh))
    return da, db if db is None or not column else without_axes(db, (1,), "db")


@composed(_lstsq_gradient, "a", "b", result=True)
@entry(SvdPlan)
def lstsq(
    a: Array, b: Array, *, rtol: Any = None, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """(x, residuals, rank, s): x of the least |x| among those of the least |a x - b| (torch.linalg.lstsq, "gelsd").

    a: [..., m, n]; b: [..., m, r] of the same batch, or [m] where a is one matrix; x: [..., n, r] or [n]. Singular
    values s [..., min(m, n)] up to rtol σ₁ (by default max(m, n) eps) count as 0; rank, int64 [...], says how many do
    not. residuals [..., r]: sum |b - a x|², of every matrix, where torch and NumPy leave out those that fit, which only
    the device knows. Gradients are for matrices whose rank does not change nearby.
    """
    do, to = Pieces(stream, preference), each_of(out, 4)
    shape, right = matrices(a, "a"), shape_of(b, "b")
    column = len(right) == 1 and len(shape) == 2
    if right[: len(shape) - 1] != shape[:-1] or len(right) != len(shape) - column:
        raise InvalidProblemError(f"b must be [..., m, r] beside a of {shape}, or [m] beside one matrix, got {right}")
    limits = tolerances(do, a, None, rtol)
    u, s, vh = svd(a, False, **do.options)
    inverse = do.of("where(s > maximum(low, share * t), 1 / s, 0)", s=s, t=first(s), **limits)
    above = do.of("s > maximum(low, share * t)", s=s, t=first(s), **limits)
    along = do.product(do.turned(u), b)
    x = do.product(do.turned(vh), do.scaled(along, inverse if column else down(inverse)), to[0])
    apart = magnitude(sub(b, do.product(a, x), **do.options), **do.options)
    residuals = do.reduced("sum_squares", apart, -1 if column else -2, to[1])
    rank = do.reduced("count_nonzero", above, out=to[2])
    return x, residuals, rank, s if to[3] is None else cast(s, read(s, "s").element, out=to[3], **do.options)
