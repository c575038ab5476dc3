"""Singular values and vectors: A = U Σ Vᴴ, by cuSOLVER (LAPACK's gesvd; torch.linalg.svd)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cusolver import CUSOLVER
from ...backends.cusolver_eigen import Gesvd
from ...backends.library import Call
from ...core import (
    Args, Array, BackendKind, Backward, Descriptor, ElementKind, Geometry, Guarantee, LibraryStep, Plan, Problem,
    Variant, element, extent, extents, flag, operand, output,
)  # fmt: skip
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.device import Device
from ...core.memo import cached_property
from ...schedules.in_library import COPY, COPY_SOURCE, Place, piece, sequence, swapped
from ...schedules.in_workspace import INFO, UNCONVERGED, VALUES, addresses, bound, cleared, cut, given_out, unconverged
from ...schedules.library_matrices import piece_by_columns, whole
from ...schedules.small_matrices import small_geometry, small_kernel
from .bounded import adjoint, apart, doubled, finite, not_finite, quotient, size
from .draws import ELEMENTS, batches, tame


@dataclass(frozen=True, kw_only=True)
class SvdDescriptor(Descriptor):
    """a is [*batch_shape, m, n], of k = min(m, n); s [*, k] is real, u [*, m, k], vh [*, k, n], info [*].

    full_matrices: u is [*, m, m] and vh [*, n, n].
    """

    batch_shape: tuple[int, ...] = extents(())
    m: int = extent()
    n: int = extent()
    full_matrices: bool = flag(False)
    element: ElementKind = element(ELEMENTS)

    @property
    def values(self) -> ElementKind:
        """The element of s."""
        return self.element.part

    @cached_property
    def k(self) -> int:
        """How many singular values there are."""
        return min(self.m, self.n)

    @cached_property
    def left(self) -> int:
        """Columns of u."""
        return self.m if self.full_matrices else self.k

    @cached_property
    def right(self) -> int:
        """Rows of vh."""
        return self.n if self.full_matrices else self.k


@dataclass(slots=True, kw_only=True)
class SvdArgs(Args):
    """Any strides. Without u and vh singular values alone are found. info: 0 where they are."""

    a: Array = operand("*batch_shape m n")
    u: Array | None = output("*batch_shape m left", optional=True)
    s: Array = output("*batch_shape k", element="values")
    vh: Array | None = output("*batch_shape right n", optional=True)
    info: Array | None = output("*batch_shape", element=ElementKind.I32, optional=True)


def reference(desc: SvdDescriptor, *, a: Any, wanted: set[str]) -> Mapping[str, Any]:
    """numpy.linalg.svd of each matrix; NaN where it has numbers that are not finite, or does not converge."""
    batch, vectors = desc.batch_shape, bool(wanted & {"u", "vh"})
    u, vh = (
        np.full((*batch, *shape), np.nan, a.dtype) for shape in ((desc.m, desc.left), (desc.right, desc.n))
    )  # fmt: skip
    s, info = np.full((*batch, desc.k), np.nan, a.real.dtype), np.full(batch, max(desc.k, 1), np.int32)
    for at in np.ndindex(batch):
        if np.isfinite(a[at]).all():
            try:
                if not desc.k:
                    u[at], vh[at] = np.eye(desc.m, desc.left), np.eye(desc.right, desc.n)
                elif vectors:
                    u[at], s[at], vh[at] = np.linalg.svd(a[at], full_matrices=desc.full_matrices)
                else:
                    s[at] = np.linalg.svd(a[at], compute_uv=False)
                info[at] = 0
            except np.linalg.LinAlgError:
                pass
    found = {"u": u, "s": s, "vh": vh, "info": info}
    return {name: found[name] for name in found if name in {"s"} | wanted}


def residual(
    desc: SvdDescriptor, name: str, *, a: Any, s: Any, u: Any = None, vh: Any = None, info: Any = None
) -> Any:  # fmt: skip
    """‖A - U Σ Vᴴ‖ / (l ‖A‖) + ‖Uᴴ U - I‖ / m + ‖V Vᴴ - I‖ / n, l the larger extent; infinite where Σ ascends.

    Of one of U and V it is that of ‖Aᴴ U - V Σ‖'s norms, without both ‖Σ - Σ₀‖ / (l ‖A‖), Σ₀ NumPy's. 0 of matrices
    with numbers that are not finite.
    """
    known, scale = finite(a), max(desc.m, desc.n, 1) * size(a)
    with np.errstate(all="ignore"):
        a = np.where(known[..., None, None], a, 0)
        parts = [apart(q) for q in (u, None if vh is None else adjoint(vh)) if q is not None]
        if u is not None and vh is not None:
            found = quotient(size(a - u[..., : desc.k] * s[..., None, :] @ vh[..., : desc.k, :]), scale)
        elif desc.k:
            found = quotient(np.sqrt(np.square(s - np.linalg.svd(doubled(a), compute_uv=False)).sum(-1)), scale)
            if u is not None or vh is not None:
                along = adjoint(a) @ u[..., : desc.k] if vh is None else a @ adjoint(vh)[..., : desc.k]
                found = found + quotient(np.abs(np.sqrt(np.square(np.abs(along)).sum(-2)) - s).max(-1), scale)
        else:
            found = np.zeros(desc.batch_shape)
        found = np.where((np.diff(s) > 0).any(-1) | (s < 0).any(-1), np.inf, sum(parts, found))
    return np.where(known, found, 0)


def small(p: Problem) -> Geometry | str:
    """One launch, on the transposed matrices where they are wide."""
    desc: SvdDescriptor = p.desc
    a, u, vh = p.a, p.u, p.vh
    if desc.m < desc.n:
        a, u, vh = swapped(a), vh and swapped(vh), u and swapped(u)
    given = {"a": a, "u": u, "s": p.s, "vh": vh, "info": p.info}
    places = {"u": "vh", "vh": "u"} if desc.m < desc.n else {}
    rows, columns = a.shape[-2:]
    sizes = {"inner": columns, "vectors": rows if desc.full_matrices else columns}
    return small_geometry("small", (rows, max(sizes.values())), desc.batch_shape, given, 2, **sizes, **places)


_SMALL = small_kernel(
    "small", "SmallSvdParams", "a", "u", "s", "vh", "info", source="small_svd", inner="i32", vectors="i32"
)


def geometry(p: Problem) -> Geometry | str:
    """a by columns in the workspace, or if it is wide its transpose; the routine there, and copies of what it made.

    A wide matrix is the transpose of a tall one, whose U is the transpose of Vᴴ.
    """
    desc: SvdDescriptor = p.desc
    wide, batch, kind = desc.m < desc.n, desc.batch_shape, desc.element
    rows, cols = max(desc.m, desc.n), max(desc.k, 1)  # of no columns: one of zeros
    a, left, right = (p.a, p.u, p.vh) if not wide else (swapped(p.a), *(v and swapped(v) for v in (p.vh, p.u)))
    vectors = left is not None or right is not None
    work, end = piece_by_columns((*batch, rows, cols), kind, 0)
    s, end = piece((*batch, cols), desc.values, end)
    info, end = piece(batch, ElementKind.I32, end)
    u, v = s, s  # not read
    if vectors:
        u, end = piece_by_columns((*batch, rows, rows if desc.full_matrices else cols), kind, end)
        v, end = piece_by_columns((*batch, cols, cols), kind, end)
    call = (LibraryStep(_caller(desc, work, s, info, u, v, vectors, end)),) if rows else cleared(info, end)
    steps = sequence(
        cleared(work, end) if not desc.k else whole(work.view, a, work.name, "a"),
        call,
        *(unconverged(one, info) for one in ((s, u, v) if vectors else (s,)) if rows),
        given_out(p.s, s, "s", VALUES) if desc.k else (),
        kept(left, u, "vh" if wide else "u"),
        kept(right, v, "u" if wide else "vh"),
        given_out(p.info, info, "info", INFO),
    )
    return steps if isinstance(steps, str) else Geometry(steps, end + bound(kind, (rows, cols)), "strided")


def kept(target: Any, made: Place, name: str) -> Any:
    """The copy of vectors that are wanted."""
    return () if target is None else whole(target, cut(made.view, *target.shape[-2:]), name, made.name)


def _caller(
    desc: SvdDescriptor, work: Place, s: Place, info: Place, u: Place, v: Place, vectors: bool, end: int
) -> Callable[[Device], Call]:
    """gesvd on each matrix in turn; from byte `end` on the workspace is cuSOLVER's, which all of them share."""

    def prepare(device: Device) -> Call:
        rows, cols = work.view.shape[-2:]
        gesvd = Gesvd(str(desc.element), rows, cols, vectors, desc.full_matrices, device)
        given = [addresses(work, 2), addresses(s, 1), addresses(info, 0)]
        given += [addresses(u, 2), addresses(v, 2)] if vectors else [given[1], given[1]]
        places = list(zip(*given, strict=True))

        def run(pointers: tuple[int, ...], scalars: Any, at: int, nbytes: int, stream: int) -> None:
            for matrix, values, one, left, right in places:
                gesvd.run(at + matrix, at + values, at + left, at + right, at + one, at + end, stream)

        return Call(run, end + gesvd.workspace)

    return prepare


class SvdPlan(Plan):
    """a = u diag(s) vh, u and vhᴴ of orthonormal columns, s >= 0 descending (LAPACK gesvd; torch.linalg.svd).

    f32, f64, complex64, complex128; s is real. full_matrices: u and vh are square. Without u and vh they are not made.
    info (int32): 0, or more than 0 where a matrix did not converge, whose results are NaN. Nothing waits for the
    device. `bc.svd` and `bc.svdvals` have gradients.
    """

    op = "linalg.svd"
    descriptor = SvdDescriptor
    args = SvdArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = "a matrix that does not converge gets NaN, and info tells; one with NaN or infinities NaN, or info"
    variants = (
        Variant(
            "small", small, "linalg/small_svd.cu", (_SMALL,), elements=ELEMENTS,
            guarantee=Guarantee(Backward(8.0), batch_invariant=True), may_spill=True,
        ),
        Variant(
            "cusolver", geometry, COPY_SOURCE, (COPY, VALUES, INFO, UNCONVERGED), elements=ELEMENTS,
            backend=BackendKind.CUSOLVER, missing=CUSOLVER.unavailable,
            guarantee=Guarantee(Backward(20.0), batch_invariant=True, order="cusolver"),
        ),
    )  # fmt: skip
    benchmarks = (
        *(
            Benchmark(f"{m} x {n} f32", m=m, n=n, element="float32", work=FLOPS, target=None, peers=(EAGER,))
            for m, n in ((512, 512), (4096, 256))
        ),
        *batches((512, 64, 64), (512, 3, 3)),
    )

    @staticmethod
    def torch(torch: Any, desc: SvdDescriptor, *, a: Any, wanted: set[str]) -> Any:
        """torch.linalg.svd; of its vectors, another library's up to their signs, nothing can be compared."""
        vectors = wanted & {"u", "vh"}
        return {"s": torch.linalg.svd(a, desc.full_matrices)[1] if vectors else torch.linalg.svdvals(a)}

    @staticmethod
    def case(draw: Any) -> SvdDescriptor:
        return SvdDescriptor(
            batch_shape=draw.shape(0, 2, 0, 3), m=draw.sizes(0, 1, 2, 7, 33), n=draw.sizes(0, 1, 3, 7, 17),
            full_matrices=draw.flag(), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: SvdDescriptor, arrays: dict[str, Any]) -> None:
        """Numbers of a moderate size."""
        arrays["a"] = tame(arrays["a"])

    @classmethod
    def check_values(cls, desc: SvdDescriptor, arrays: Mapping[str, Any]) -> str | None:
        return not_finite("a", arrays["a"])

    @classmethod
    def flops(cls, desc: SvdDescriptor) -> int:
        return int(np.prod(desc.batch_shape, dtype=np.int64)) * (4 * desc.m * desc.n * desc.k + 8 * desc.k**3)
