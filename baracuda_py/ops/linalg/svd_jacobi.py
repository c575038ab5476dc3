"""Singular values and vectors by cuSOLVER's Jacobi method (gesvdj), which waits for the device between sweeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...backends.cusolver import CUSOLVER
from ...backends.cusolver_gesvdj import Gesvdj
from ...backends.library import Call
from ...calls.functional import functional
from ...core import (
    BackendKind, Backward, Geometry, Guarantee, Kernel, LibraryStep, Params, Plan, Problem, Step, Variant,
)  # fmt: skip
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.device import Device
from ...core.element import ElementKind
from ...schedules.in_library import COPY, COPY_SOURCE, Place, piece, sequence, swapped
from ...schedules.in_workspace import INFO, UNCONVERGED, VALUES, addresses, bound, cleared, given_out, unconverged
from ...schedules.library_matrices import piece_by_columns, whole
from .bounded import not_finite
from .draws import ELEMENTS, tame
from .svd import SvdArgs, SvdDescriptor, kept, reference, residual

_THREADS = 256
_CONJUGATED = Kernel(
    "conjugated", "conjugated<{T}>", Params("ConjugatedParams", x="ptr", count="i64"), threads=_THREADS,
    source="linalg/conjugated.cu",
)  # fmt: skip


def geometry(p: Problem) -> Geometry | str:
    """a by columns in the workspace, or if it is wide its transpose; the routine there, and copies of what it made.

    It makes V where Vᴴ is wanted: the same memory read by rows, conjugated.
    """
    desc: SvdDescriptor = p.desc
    wide, batch, kind = desc.m < desc.n, desc.batch_shape, desc.element
    rows, cols = max(desc.m, desc.n), max(desc.k, 1)  # of no columns: one of zeros
    a, left, right = (p.a, p.u, p.vh) if not wide else (swapped(p.a), *(v and swapped(v) for v in (p.vh, p.u)))
    vectors, full = left is not None or right is not None, desc.full_matrices
    work, end = piece_by_columns((*batch, rows, cols), kind, 0)
    s, end = piece((*batch, cols), desc.values, end)
    info, end = piece(batch, ElementKind.I32, end)
    u, v = s, s  # not read
    if vectors:
        u, end = piece_by_columns((*batch, rows, rows if full else cols), kind, end)
        v, end = piece((*batch, cols, cols), kind, end)
    steps = sequence(
        cleared(work, end) if not desc.k else whole(work.view, a, work.name, "a"),
        (LibraryStep(_caller(desc, work, s, info, u, v, vectors, end)),) if rows else cleared(info, end),
        *(unconverged(one, info) for one in ((s, u, v) if vectors else (s,)) if rows),
        _conjugate(v) if vectors and kind.is_complex else (),
        given_out(p.s, s, "s", VALUES) if desc.k else (),
        kept(left, u, "vh" if wide else "u"),
        kept(right, v, "u" if wide else "vh"),
        given_out(p.info, info, "info", INFO),
    )
    nbytes = end + bound(kind, (rows, rows if full else cols), 8)
    return steps if isinstance(steps, str) else Geometry(steps, nbytes, "strided")


def _conjugate(v: Place) -> tuple[Step, ...]:
    """The step that makes the conjugate of a piece."""
    count = v.view.size
    params = {"x": v.name, "count": count}
    return (Step("conjugated", (-(-count // _THREADS), 1, 1), params, block=_THREADS),) if count else ()


def _caller(
    desc: SvdDescriptor, work: Place, s: Place, info: Place, u: Place, v: Place, vectors: bool, end: int
) -> Callable[[Device], Call]:
    """gesvdj on each matrix in turn; from byte `end` on the workspace is cuSOLVER's, which all of them share."""

    def prepare(device: Device) -> Call:
        rows, cols = work.view.shape[-2:]
        gesvdj = Gesvdj(str(desc.element), rows, cols, vectors, desc.full_matrices, device)
        given = [addresses(work, 2), addresses(s, 1), addresses(info, 0)]
        given += [addresses(u, 2), addresses(v, 2)] if vectors else [given[1], given[1]]
        places = list(zip(*given, strict=True))

        def run(pointers: tuple[int, ...], scalars: Any, at: int, nbytes: int, stream: int) -> None:
            for matrix, values, one, left, right in places:
                gesvdj.run(at + matrix, at + values, at + left, at + right, at + one, at + end, stream)

        return Call(run, end + gesvdj.workspace)

    return prepare


class SvdJacobiPlan(Plan):
    """a = u diag(s) vh by cuSOLVER's Jacobi method (gesvdj): faster than gesvd, but it waits for the device.

    As `SvdPlan`, whose matrices of up to 64 rows and columns take Jacobi's method of ours and wait for nothing. The
    host looks after each sweep whether another is needed, so no graph can have it.
    """

    op = "linalg.svd_jacobi"
    descriptor = SvdDescriptor
    args = SvdArgs
    widest = np.float64
    waits = True
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = "a matrix that does not converge gets NaN, and info tells; one with NaN or infinities NaN, or info"
    variants = (
        Variant(
            "cusolver", geometry, COPY_SOURCE, (COPY, VALUES, INFO, UNCONVERGED, _CONJUGATED), elements=ELEMENTS,
            backend=BackendKind.CUSOLVER, missing=CUSOLVER.unavailable,
            guarantee=Guarantee(Backward(20.0), batch_invariant=True, order="cusolver"),
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(f"{m} x {n} f32", m=m, n=n, element="float32", work=FLOPS, target=None, peers=(EAGER,))
        for m, n in ((512, 512), (4096, 256))
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


_svd: Any = functional(SvdJacobiPlan)


def by_jacobi(a: Any, **given: Any) -> Any:
    """`SvdJacobiPlan` as a function."""
    return _svd(a, **given)
