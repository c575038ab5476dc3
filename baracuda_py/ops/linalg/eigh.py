"""Eigenvalues and eigenvectors of Hermitian matrices, by cuSOLVER (LAPACK's syevd and heevd; torch.linalg.eigh)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cusolver import CUSOLVER, LOWER, UPPER
from ...backends.cusolver_eigen import Syevd
from ...backends.library import Call
from ...core import (
    Args, Array, BackendKind, Backward, Descriptor, ElementKind, Geometry, Guarantee, LibraryStep, Plan, Problem,
    Variant, element, extent, extents, flag, operand, output,
)  # fmt: skip
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.device import Device
from ...schedules.in_library import COPY, COPY_SOURCE, Place, copied, piece, sequence, swapped
from ...schedules.in_workspace import INFO, UNCONVERGED, VALUES, addresses, bound, cleared, given_out, unconverged
from ...schedules.library_matrices import piece_by_columns, whole
from ...schedules.small_matrices import small_geometry, small_kernel
from .bounded import adjoint, apart, doubled, finite, not_finite, quotient, size
from .draws import ELEMENTS, tame


@dataclass(frozen=True, kw_only=True)
class EighDescriptor(Descriptor):
    """a and v are matrices [*batch_shape, n, n], w [*batch_shape, n] holds real numbers, info is [*batch_shape].

    upper: of a the upper triangle is read, else the lower one.
    """

    batch_shape: tuple[int, ...] = extents(())
    n: int = extent()
    upper: bool = flag(False)
    element: ElementKind = element(ELEMENTS)

    @property
    def values(self) -> ElementKind:
        """The element of w."""
        return self.element.part


@dataclass(slots=True, kw_only=True)
class EighArgs(Args):
    """Any strides; v may be a itself. Without v eigenvalues alone are found. info: 0 where they are."""

    a: Array = operand("*batch_shape n n")
    w: Array = output("*batch_shape n", element="values")
    v: Array | None = output("*batch_shape n n", optional=True, inplace=("a",))
    info: Array | None = output("*batch_shape", element=ElementKind.I32, optional=True)


def hermitian(desc: EighDescriptor, a: Any) -> Any:
    """The matrices that one triangle tells."""
    lower = adjoint(np.triu(a)) if desc.upper else np.tril(a)
    return np.tril(lower, -1) + adjoint(np.tril(lower, -1)) + np.where(np.eye(desc.n, dtype=bool), lower.real, 0)


def reference(desc: EighDescriptor, *, a: Any, wanted: set[str]) -> Mapping[str, Any]:
    """numpy.linalg.eigh of each matrix; NaN where it has numbers that are not finite, or does not converge."""
    w, v = np.full((*desc.batch_shape, desc.n), np.nan, a.real.dtype), np.full_like(a, np.nan)
    info = np.full(desc.batch_shape, desc.n, np.int32)
    for at in np.ndindex(desc.batch_shape):
        one = hermitian(desc, a[at])
        if np.isfinite(one).all():
            try:
                if "v" in wanted:
                    w[at], v[at] = np.linalg.eigh(one)
                else:
                    w[at] = np.linalg.eigvalsh(one)
                info[at] = 0
            except np.linalg.LinAlgError:
                pass
    return {name: x for name, x in (("w", w), ("v", v), ("info", info)) if name in {"w"} | wanted}


def residual(desc: EighDescriptor, name: str, *, a: Any, w: Any, v: Any = None, info: Any = None) -> Any:
    """‖A V - V Λ‖ / (n ‖A‖) + ‖Vᴴ V - I‖ / n; without V ‖Λ - Λ₀‖ / (n ‖A‖), Λ₀ NumPy's; infinite where Λ descends.

    Of matrices with numbers that are not finite it is 0.
    """
    whole_of = hermitian(desc, a)
    known, scale = finite(whole_of), max(desc.n, 1) * size(whole_of)
    whole_of = np.where(known[..., None, None], whole_of, 0)
    with np.errstate(all="ignore"):
        if v is None:
            found = quotient(np.sqrt(np.square(w - np.linalg.eigvalsh(doubled(whole_of))).sum(-1)), scale)
        else:
            found = quotient(size(whole_of @ v - v * w[..., None, :]), scale) + apart(v)
        found = np.where((np.diff(w) < 0).any(-1), np.inf, found)
    return np.where(known, found, 0)


def small(p: Problem) -> Geometry | str:
    """One launch. An upper triangle is the lower one of the transposed matrix, which is the conjugate."""
    desc: EighDescriptor = p.desc
    given = {"a": swapped(p.a) if desc.upper else p.a, "w": p.w, "v": p.v, "info": p.info}
    return small_geometry("small", (desc.n, desc.n), desc.batch_shape, given, arrays=2, conjugate=int(desc.upper))


_SMALL = small_kernel("small", "SmallEighParams", "a", "w", "v", "info", source="small_eigh", conjugate="i32")


def geometry(p: Problem) -> Geometry | str:
    """A triangle of a by columns in the workspace; the routine there, NaN where it failed, and copies."""
    desc: EighDescriptor = p.desc
    work, end = piece_by_columns(p.a.shape, desc.element, 0)
    w, end = piece(p.w.shape, desc.values, end)
    info, end = piece(desc.batch_shape, ElementKind.I32, end)
    a, held = (swapped(view) if desc.upper else view for view in (p.a, work.view))
    steps = sequence(
        copied(held, a, work.name, "a"),
        (LibraryStep(_caller(desc, work, w, info, p.v is not None, end)),) if desc.n else cleared(info, end),
        unconverged(w, info),
        () if p.v is None else unconverged(work, info),
        given_out(p.w, w, "w", VALUES),
        () if p.v is None else whole(p.v, work.view, "v", work.name),
        given_out(p.info, info, "info", INFO),
    )
    return (
        steps if isinstance(steps, str) else Geometry(steps, end + bound(desc.element, (desc.n, desc.n), 6), "strided")
    )


def _caller(
    desc: EighDescriptor, work: Place, w: Place, info: Place, vectors: bool, end: int
) -> Callable[[Device], Call]:
    """syevd on each matrix in turn; from byte `end` on the workspace is cuSOLVER's, which all of them share."""

    def prepare(device: Device) -> Call:
        syevd = Syevd(str(desc.element), desc.n, UPPER if desc.upper else LOWER, vectors, device)
        places = list(zip(addresses(work, 2), addresses(w, 1), addresses(info, 0), strict=True))

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            for matrix, values, one in places:
                syevd.run(workspace + matrix, workspace + values, workspace + one, workspace + end, stream)

        return Call(run, end + syevd.workspace)

    return prepare


class EighPlan(Plan):
    """a = v diag(w) vᴴ of a Hermitian a, w ascending, v of orthonormal columns (LAPACK syevd, heevd).

    Only a's lower triangle is read (`upper`: the upper one), and of its diagonal the real parts. f32, f64, complex64,
    complex128; w is real. info (int32): 0, or more than 0 where a matrix did not converge, whose w and v are NaN.
    Nothing waits for the device. `bc.eigh` and `bc.eigvalsh` have gradients.
    """

    op = "linalg.eigh"
    descriptor = EighDescriptor
    args = EighArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = "a matrix that does not converge gets NaN, and info tells; one with NaN or infinities NaN, or info"
    variants = (
        Variant(
            "small", small, "linalg/small_eigh.cu", (_SMALL,), elements=ELEMENTS,
            guarantee=Guarantee(Backward(8.0), batch_invariant=True), may_spill=True,
        ),
        Variant(
            "cusolver", geometry, COPY_SOURCE, (COPY, VALUES, INFO, UNCONVERGED), elements=ELEMENTS,
            backend=BackendKind.CUSOLVER, missing=CUSOLVER.unavailable,
            guarantee=Guarantee(Backward(10.0), batch_invariant=True, order="cusolver"),
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(f"{n}² f32", n=n, element="float32", work=FLOPS, target=None, peers=(EAGER,)) for n in (256, 2048)
    ) + tuple(
        Benchmark(
            f"{count} of {n}² f32",
            batch_shape=(count,),
            n=n,
            element="float32",
            work=FLOPS,
            target=None,
            peers=(EAGER,),
        )
        for count, n in ((512, 64), (4096, 32))
    )

    @staticmethod
    def torch(torch: Any, desc: EighDescriptor, *, a: Any, wanted: set[str]) -> Any:
        """torch.linalg.eigh; of its vectors, another library's up to their signs, nothing can be compared."""
        uplo = "U" if desc.upper else "L"
        return {"w": torch.linalg.eigh(a, UPLO=uplo)[0] if "v" in wanted else torch.linalg.eigvalsh(a, UPLO=uplo)}

    @staticmethod
    def case(draw: Any) -> EighDescriptor:
        sizes = {"batch_shape": draw.shape(0, 2, 0, 3), "n": draw.sizes(0, 1, 2, 7, 33)}
        return EighDescriptor(**sizes, upper=draw.flag(), element=draw.element)

    @classmethod
    def complete(cls, desc: EighDescriptor, arrays: dict[str, Any]) -> None:
        """Numbers of a moderate size."""
        arrays["a"] = tame(arrays["a"])

    @classmethod
    def check_values(cls, desc: EighDescriptor, arrays: Mapping[str, Any]) -> str | None:
        return not_finite("a", np.triu(arrays["a"]) if desc.upper else np.tril(arrays["a"]))

    @classmethod
    def flops(cls, desc: EighDescriptor) -> int:
        return 9 * int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.n**3
