"""QR factorisations: A = Q R, Q of orthonormal columns, R upper triangular, by cuSOLVER (LAPACK's geqrf and orgqr)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cusolver import CUSOLVER
from ...backends.cusolver_eigen import Geqrf, Orgqr
from ...backends.library import Call
from ...core import (
    Args, Array, BackendKind, Backward, Descriptor, ElementKind, Geometry, Guarantee, LibraryStep, Plan,
    Problem, Variant, element, extent, extents, flag, operand, output,
)  # fmt: skip
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.device import Device
from ...core.memo import cached_property
from ...jit.launch import runtime_for
from ...schedules.in_library import COPY, COPY_SOURCE, Place, copied, piece, sequence, swapped
from ...schedules.in_workspace import addresses, bound, cut
from ...schedules.library_matrices import piece_by_columns, whole
from ...schedules.small_matrices import small_geometry, small_kernel
from .bounded import adjoint, apart, finite, quotient, size
from .draws import ELEMENTS, batches, tame


@dataclass(frozen=True, kw_only=True)
class QrDescriptor(Descriptor):
    """a is [*batch_shape, m, n], of k = min(m, n); q is [*, m, k] and r [*, k, n], `complete`: [*, m, m], [*, m, n]."""

    batch_shape: tuple[int, ...] = extents(())
    m: int = extent()
    n: int = extent()
    complete: bool = flag(False)
    element: ElementKind = element(ELEMENTS)

    @cached_property
    def rank(self) -> int:
        """Columns of q, and rows of r."""
        return self.m if self.complete else min(self.m, self.n)


@dataclass(slots=True, kw_only=True)
class QrArgs(Args):
    """Any strides. Without q, R alone is made."""

    a: Array = operand("*batch_shape m n")
    q: Array | None = output("*batch_shape m rank", optional=True)
    r: Array = output("*batch_shape rank n")


def reference(desc: QrDescriptor, *, a: Any, wanted: set[str]) -> Mapping[str, Any]:
    """numpy.linalg.qr, which is LAPACK's, signs included."""
    q, r = np.linalg.qr(a, mode="complete" if desc.complete else "reduced")
    return {"q": q, "r": r} if "q" in wanted else {"r": r}


def residual(desc: QrDescriptor, name: str, *, a: Any, r: Any, q: Any = None) -> Any:
    """‖A - Q R‖ / (l ‖A‖) + ‖Qᴴ Q - I‖ / m, l the larger extent; without Q ‖Aᴴ A - Rᴴ R‖ / (l ‖A‖²).

    Of matrices with numbers that are not finite it is 0: what comes of them is the library's.
    """
    most, below = max(desc.m, desc.n, 1), np.abs(np.tril(r, -1)).sum((-1, -2))
    with np.errstate(all="ignore"):
        if q is None:
            found = quotient(size(adjoint(a) @ a - adjoint(r) @ r), most * size(a) ** 2)
        else:
            found = quotient(size(a - q @ r), most * size(a)) + apart(q)
    return np.where(finite(a), found + below, 0)


def small(p: Problem) -> Geometry | str:
    """One launch."""
    desc: QrDescriptor = p.desc
    given, shape = {"a": p.a, "q": p.q, "r": p.r}, (desc.m, max(desc.n, desc.rank))
    return small_geometry("small", shape, desc.batch_shape, given, 2, inner=desc.n, rank=desc.rank)


_SMALL = small_kernel("small", "SmallQrParams", "a", "q", "r", source="small_qr", inner="i32", rank="i32")


def geometry(p: Problem) -> Geometry | str:
    """a by columns in the workspace, factored there; R is copied from it, then Q made over it and copied, too."""
    desc: QrDescriptor = p.desc
    wide = max(desc.n, desc.rank, 1) if p.q is not None else max(desc.n, 1)
    work, end = piece_by_columns((*desc.batch_shape, desc.m, wide), desc.element, 0)
    tau, end = piece((*desc.batch_shape, max(min(desc.m, desc.n), 1)), desc.element, end)
    info, end = piece(desc.batch_shape, ElementKind.I32, end)
    triangle = cut(work.view, desc.rank, desc.n)
    steps = sequence(
        whole(cut(work.view, desc.m, desc.n), p.a, work.name, "a"),
        (LibraryStep(factoring(desc, work, tau, info, end)),) if work.view.size else (),
        copied(swapped(p.r), swapped(triangle), "r", work.name),
        () if p.q is None or not p.q.size else (LibraryStep(multiplying(desc, work, tau, info, end)),),
        () if p.q is None else whole(p.q, cut(work.view, desc.m, desc.rank), "q", work.name),
    )
    return steps if isinstance(steps, str) else Geometry(steps, end + bound(desc.element, (desc.m, wide)), "strided")


def factoring(desc: Any, work: Place, tau: Place, info: Place, end: int) -> Callable[[Device], Call]:
    """geqrf on each matrix in turn; from byte `end` on the workspace is cuSOLVER's, which all of them share.

    Where there are no columns, it is given one of zeros, of which the reflector is the identity.
    """

    def prepare(device: Device) -> Call:
        geqrf = Geqrf(str(desc.element), desc.m, max(desc.n, 1), desc.m, device)
        places = list(zip(addresses(work, 2), addresses(tau, 1), addresses(info, 0), strict=True))
        clear, zeros = runtime_for(device).clear, 0 if desc.n else work.view.size * desc.element.itemsize

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            if zeros:
                clear(workspace + work.start, zeros, stream)
            for matrix, own, one in places:
                geqrf.run(workspace + matrix, workspace + own, workspace + one, workspace + end, stream)

        return Call(run, end + geqrf.workspace)

    return prepare


def multiplying(desc: QrDescriptor, work: Place, tau: Place, info: Place, end: int) -> Callable[[Device], Call]:
    """orgqr on each matrix in turn: the first columns of Q."""

    def prepare(device: Device) -> Call:
        orgqr = Orgqr(str(desc.element), desc.m, desc.rank, tau.view.shape[-1], desc.m, device)
        places = list(zip(addresses(work, 2), addresses(tau, 1), addresses(info, 0), strict=True))

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            for matrix, own, one in places:
                orgqr.run(workspace + matrix, workspace + own, workspace + one, workspace + end, stream)

        return Call(run, end + orgqr.workspace)

    return prepare


class QrPlan(Plan):
    """a = q r, q of orthonormal columns, r 0 below its diagonal (LAPACK geqrf, orgqr; torch.linalg.qr).

    f32, f64, complex64, complex128. The diagonal of r is real, of either sign. Nothing waits for the device. `bc.qr`
    has a gradient.
    """

    op = "linalg.qr"
    descriptor = QrDescriptor
    args = QrArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = "NaN and infinities spread as the library has it; other matrices of the batch stay as they are"
    variants = (
        Variant(
            "small", small, "linalg/small_qr.cu", (_SMALL,), elements=ELEMENTS,
            guarantee=Guarantee(Backward(6.0), batch_invariant=True), may_spill=True,
        ),
        Variant(
            "cusolver", geometry, COPY_SOURCE, (COPY,), elements=ELEMENTS, backend=BackendKind.CUSOLVER,
            guarantee=Guarantee(Backward(10.0), batch_invariant=True, order="cusolver"), missing=CUSOLVER.unavailable,
        ),
    )  # fmt: skip
    benchmarks = (
        *(
            Benchmark(f"{m} x {n} f32", m=m, n=n, element="float32", work=FLOPS, target=None, peers=(EAGER,))
            for m, n in ((1024, 1024), (65536, 128))
        ),
        *batches((4096, 16, 16), (512, 3, 3)),
    )

    @staticmethod
    def torch(torch: Any, desc: QrDescriptor, *, a: Any, wanted: set[str]) -> Any:
        """torch.linalg.qr."""
        q, r = torch.linalg.qr(a, mode="complete" if desc.complete else "reduced")
        return {"q": q, "r": r} if "q" in wanted else {"r": r}

    @staticmethod
    def case(draw: Any) -> QrDescriptor:
        return QrDescriptor(**drawn(draw), complete=draw.flag())

    @classmethod
    def complete(cls, desc: QrDescriptor, arrays: dict[str, Any]) -> None:
        """Numbers of a moderate size."""
        arrays["a"] = tame(arrays["a"])

    @classmethod
    def flops(cls, desc: QrDescriptor) -> int:
        k = min(desc.m, desc.n)
        return int(np.prod(desc.batch_shape, dtype=np.int64)) * (4 * desc.m * desc.n * k - 4 * k**3 // 3)


def drawn(draw: Any) -> dict[str, Any]:
    """A few matrices, or one."""
    sizes = {"batch_shape": draw.shape(0, 2, 0, 3), "m": draw.sizes(0, 1, 2, 7, 33), "n": draw.sizes(0, 1, 3, 7, 17)}
    return {**sizes, "element": draw.element}
