"""The Schur form of general matrices, A = Z T Zᴴ (LAPACK's hseqr; jax.scipy.linalg.schur), small ones on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    Args, Array, Backward, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Variant, element, extent,
    extents, operand, output,
)  # fmt: skip
from ...core.benchmark import FLOPS, Benchmark
from ...schedules.small_matrices import small_geometry, small_kernel
from .bounded import adjoint, apart, finite, not_finite, quotient, size
from .draws import tame

_ELEMENTS = (ElementKind.C64, ElementKind.C128)
_STEPS = 30  # of a row


@dataclass(frozen=True, kw_only=True)
class SchurDescriptor(Descriptor):
    """a, t and z are matrices [*batch_shape, n, n], info [*batch_shape]."""

    batch_shape: tuple[int, ...] = extents(())
    n: int = extent()
    element: ElementKind = element(_ELEMENTS)


@dataclass(slots=True, kw_only=True)
class SchurArgs(Args):
    """Any strides; t may be a itself. info: 0 where the form was found."""

    a: Array = operand("*batch_shape n n")
    t: Array = output("*batch_shape n n", inplace=("a",))
    z: Array | None = output("*batch_shape n n", optional=True)
    info: Array | None = output("*batch_shape", element=ElementKind.I32, optional=True)


def _hessenberg(t: Any, z: Any) -> None:
    """Zeros below the diagonal's neighbour, by reflectors; t's largest number is of about 1."""
    for k in range(len(t) - 2):
        v = t[k + 1 :, k].copy()
        own, length = np.abs(v[0]), np.sqrt(np.square(np.abs(v)).sum())
        if np.square(np.abs(v[1:])).sum() < np.finfo(t.dtype).tiny:
            t[k + 2 :, k] = 0
            continue
        v[0] += (v[0] / own if own else 1) * length
        v /= np.sqrt(np.square(np.abs(v)).sum())
        t[k + 1 :] -= 2 * np.outer(v, v.conj() @ t[k + 1 :])
        for x in (t, z):
            x[:, k + 1 :] -= 2 * np.outer(x[:, k + 1 :] @ v, v.conj())
        t[k + 2 :, k] = 0


def _shift(t: Any, end: int, tried: int) -> Any:
    """The eigenvalue of the last two rows that is nearer to the last number; every tenth time another."""
    low, high = t[end, end], t[end - 1, end - 1]
    product, half = t[end, end - 1] * t[end - 1, end], (high - low) / 2
    root = np.sqrt(half * half + product)
    root = -root if (half.conj() * root).real < 0 else root
    if tried % 10 == 0:
        return low + np.abs(t[end, end - 1])
    return low - product / (half + root) if half + root else low


def _iterate(t: Any, z: Any) -> bool:
    """The QR iteration, of one shift; whether all rows were left off."""
    n = len(t)
    eps, least, left, end, tried = np.finfo(t.dtype).eps, np.finfo(t.dtype).tiny, _STEPS * n, n - 1, 0

    def joins(row: int) -> bool:
        """Whether a row is not yet left off from the one before it: its square has digits, and it counts."""
        size, near = np.abs(t[row, row - 1]), np.abs(t[row, row]) + np.abs(t[row - 1, row - 1])
        return bool(size > eps * near and size * size >= least)

    while end > 0 and left:
        begin = end
        while begin > 0 and joins(begin):
            begin -= 1
        if begin == end:
            end, tried = end - 1, 0
            continue
        left, tried = left - 1, tried + 1
        if begin:
            t[begin, begin - 1] = 0
        x, y = t[begin, begin] - _shift(t, end, tried), t[begin + 1, begin]
        for k in range(begin, end):
            length = np.hypot(np.abs(x), np.abs(y))
            c = np.abs(x) / length if length else 1.0
            s = (x / np.abs(x) if x else 1) * np.conj(y) / length if length else 0.0
            turn, first = np.array([[c, s], [-np.conj(s), c]], t.dtype), max(k - 1, begin)
            t[k : k + 2, first:] = turn @ t[k : k + 2, first:]
            if k > begin:
                t[k + 1, k - 1] = 0
            t[: end + 1, k : k + 2] = t[: end + 1, k : k + 2] @ turn.conj().T
            z[:, k : k + 2] = z[:, k : k + 2] @ turn.conj().T
            if k + 2 <= end:
                x, y = t[k + 1, k], t[k + 2, k]
    return end <= 0


def reference(desc: SchurDescriptor, *, a: Any, wanted: set[str]) -> Mapping[str, Any]:
    """Hessenberg's form and the QR iteration; NaN where a matrix has numbers that are not finite."""
    t, z = np.full_like(a, np.nan), np.full_like(a, np.nan)
    info = np.full(desc.batch_shape, desc.n, np.int32)
    for at in np.ndindex(desc.batch_shape):
        if np.isfinite(a[at]).all():
            power = float(np.exp2(np.frexp(np.abs(a[at].astype(complex)).max(initial=1e-300))[1] - 1))
            form, vectors = (a[at].astype(complex) / power).astype(a.dtype), np.eye(desc.n, dtype=a.dtype)
            _hessenberg(form, vectors)
            if _iterate(form, vectors):
                t[at], z[at], info[at] = np.triu(form.astype(complex) * power), vectors, 0
    found = {"t": t, "z": z, "info": info}
    return {name: found[name] for name in found if name in {"t"} | wanted}


def residual(desc: SchurDescriptor, name: str, *, a: Any, t: Any, z: Any = None, info: Any = None) -> Any:
    """‖A - Z T Zᴴ‖ / (n ‖A‖) + ‖Zᴴ Z - I‖ / n; without Z |‖A‖ - ‖T‖| + |tr A - tr T|; infinite below the diagonal."""
    known, scale = finite(a), max(desc.n, 1) * size(a)
    a = np.where(known[..., None, None], a, 0)
    with np.errstate(all="ignore"):
        if z is None:
            traces = np.abs(np.trace(a, axis1=-2, axis2=-1) - np.trace(t, axis1=-2, axis2=-1))
            found = quotient(np.abs(size(a) - size(t)) + traces, scale)
        else:
            found = quotient(size(a - z @ t @ adjoint(z)), scale) + apart(z)
        below = (np.tril(t, -1) != 0).any((-1, -2))
    return np.where(known, np.where(below, np.inf, found), 0)


def small(p: Problem) -> Geometry | str:
    """One launch."""
    desc: SchurDescriptor = p.desc
    given = {"a": p.a, "t": p.t, "z": p.z, "info": p.info}
    return small_geometry("small", (desc.n, desc.n), desc.batch_shape, given, arrays=2)


_SMALL = small_kernel("small", "SmallSchurParams", "a", "t", "z", "info", source="small_schur")


class SchurPlan(Plan):
    """a = z t zᴴ, t upper triangular with the eigenvalues on its diagonal, z unitary (LAPACK gees without an order).

    complex64, complex128, up to 64 rows on a device: no library has a routine for larger ones. Hessenberg's form by
    reflectors, then the QR iteration with Wilkinson's shift. info (int32): 0, or n of a matrix that did not converge,
    which is NaN then.
    """

    op = "linalg.schur"
    descriptor = SchurDescriptor
    args = SchurArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = "a matrix with NaN or infinities, or that does not converge, is NaN, and info tells"
    variants = (
        Variant(
            "small", small, "linalg/small_schur.cu", (_SMALL,), elements=_ELEMENTS,
            guarantee=Guarantee(Backward(20.0), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("512 of 32² c64", batch_shape=(512,), n=32, element="complex64", work=FLOPS, target=None, peers=()),
    )

    @staticmethod
    def case(draw: Any) -> SchurDescriptor:
        return SchurDescriptor(batch_shape=draw.shape(0, 2, 0, 3), n=draw.sizes(0, 1, 2, 7, 17), element=draw.element)

    @classmethod
    def complete(cls, desc: SchurDescriptor, arrays: dict[str, Any]) -> None:
        """Numbers of a moderate size."""
        arrays["a"] = tame(arrays["a"])

    @classmethod
    def check_values(cls, desc: SchurDescriptor, arrays: Mapping[str, Any]) -> str | None:
        return not_finite("a", arrays["a"])

    @classmethod
    def flops(cls, desc: SchurDescriptor) -> int:
        return 25 * int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.n**3


_schur: Any = functional(SchurPlan)


def schur_form(a: Any, **given: Any) -> Any:
    """`SchurPlan` as a function."""
    return _schur(a, **given)
