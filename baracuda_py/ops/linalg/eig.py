"""Eigenvalues and eigenvectors of general matrices, by cuSOLVER (LAPACK's geev; torch.linalg.eig)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cusolver import CUSOLVER
from ...backends.cusolver_eig import Geev
from ...backends.library import Call
from ...core import (
    Args, Array, BackendKind, Backward, Descriptor, ElementKind, Geometry, Guarantee, LibraryStep, Plan, Problem,
    Variant, element, extent, extents, operand, output,
)  # fmt: skip
from ...core.benchmark import FLOPS, Benchmark
from ...core.device import Device
from ...schedules.in_library import COPY, COPY_SOURCE, Place, piece, sequence
from ...schedules.in_workspace import INFO, UNCONVERGED, addresses, bound, cleared, given_out, unconverged
from ...schedules.library_matrices import piece_by_columns, whole
from .bounded import doubled, finite, not_finite, quotient, size
from .draws import tame

_ELEMENTS = (ElementKind.C64, ElementKind.C128)


@dataclass(frozen=True, kw_only=True)
class EigDescriptor(Descriptor):
    """a and v are matrices [*batch_shape, n, n], w is [*batch_shape, n], info [*batch_shape]."""

    batch_shape: tuple[int, ...] = extents(())
    n: int = extent()
    element: ElementKind = element(_ELEMENTS)


@dataclass(slots=True, kw_only=True)
class EigArgs(Args):
    """Any strides; v may be a itself. Without v eigenvalues alone are found. info: 0 where they are."""

    a: Array = operand("*batch_shape n n")
    w: Array = output("*batch_shape n")
    v: Array | None = output("*batch_shape n n", optional=True, inplace=("a",))
    info: Array | None = output("*batch_shape", element=ElementKind.I32, optional=True)


def reference(desc: EigDescriptor, *, a: Any, wanted: set[str]) -> Mapping[str, Any]:
    """numpy.linalg.eig of each matrix; NaN where it has numbers that are not finite, or does not converge."""
    w, v = np.full((*desc.batch_shape, desc.n), np.nan, a.dtype), np.full_like(a, np.nan)
    info = np.full(desc.batch_shape, desc.n, np.int32)
    for at in np.ndindex(desc.batch_shape):
        if np.isfinite(a[at]).all():
            try:
                if "v" in wanted:
                    w[at], v[at] = np.linalg.eig(a[at])
                else:
                    w[at] = np.linalg.eigvals(a[at])
                info[at] = 0
            except np.linalg.LinAlgError:
                pass
    return {name: x for name, x in (("w", w), ("v", v), ("info", info)) if name in {"w"} | wanted}


def residual(desc: EigDescriptor, name: str, *, a: Any, w: Any, v: Any = None, info: Any = None) -> Any:
    """The largest ‖A v - λ v‖ / (n ‖A‖) + |‖v‖ - 1|, or without v σ(A - λ I) / (n ‖A‖), σ the smallest; and of the sum.

    A matrix so near has the eigenvalue. |Σ λ - tr A| / (n ‖A‖) tells that all are there. Of matrices with numbers that
    are not finite it is 0.
    """
    known = finite(a)
    a, scale = np.where(known[..., None, None], a, 0), max(desc.n, 1) * size(a)
    with np.errstate(all="ignore"):
        found = quotient(np.abs(w.sum(-1) - np.trace(a, axis1=-2, axis2=-1)), scale)
        if v is not None:
            lengths = np.sqrt(np.square(np.abs(v)).sum(-2))
            off = np.sqrt(np.square(np.abs(a @ v - v * w[..., None, :])).sum(-2)).max(-1, initial=0)
            found = found + quotient(off, scale) + np.abs(lengths - 1).max(-1, initial=0)
        elif desc.n:
            apart = doubled(a[..., None, :, :] - w[..., None, None] * np.eye(desc.n))
            least = np.linalg.svd(np.nan_to_num(apart), compute_uv=False)[..., -1].max(-1)
            found = np.where(np.isfinite(w).all(-1), found + quotient(least, scale), np.inf)
    return np.where(known, found, 0)


def geometry(p: Problem) -> Geometry | str:
    """a by columns in the workspace, what is found beside it there, NaN where nothing was, and copies."""
    desc: EigDescriptor = p.desc
    work, end = piece_by_columns(p.a.shape, desc.element, 0)
    found, end = piece_by_columns(p.a.shape, desc.element, end) if p.v is not None else (work, end)
    w, end = piece(p.w.shape, desc.element, end)
    info, end = piece(desc.batch_shape, ElementKind.I32, end)
    steps = sequence(
        whole(work.view, p.a, work.name, "a"),
        (LibraryStep(_caller(desc, work, w, found if p.v is not None else None, info, end)),)
        if desc.n
        else cleared(info, end),
        unconverged(w, info),
        () if p.v is None else unconverged(found, info),
        whole(p.w, w.view, "w", w.name, 1),
        () if p.v is None else whole(p.v, found.view, "v", found.name),
        given_out(p.info, info, "info", INFO),
    )
    nbytes = end + bound(desc.element, (desc.n, desc.n), 4)
    return steps if isinstance(steps, str) else Geometry(steps, nbytes, "strided")


def _caller(
    desc: EigDescriptor, work: Place, w: Place, found: Place | None, info: Place, end: int
) -> Callable[[Device], Call]:
    """geev on each matrix in turn; from byte `end` on the workspace is cuSOLVER's, which all of them share."""

    def prepare(device: Device) -> Call:
        geev = Geev(str(desc.element), desc.n, found is not None, device)
        vectors = addresses(found, 2) if found else addresses(work, 2)
        places = list(zip(addresses(work, 2), addresses(w, 1), vectors, addresses(info, 0), strict=True))

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            for matrix, values, own, one in places:
                geev.run(
                    workspace + matrix, workspace + values, workspace + own, workspace + one, workspace + end, stream
                )

        return Call(run, end + geev.workspace)

    return prepare


class EigPlan(Plan):
    """a v = v diag(w) of complex matrices, v's columns of length 1, in no order (LAPACK geev).

    complex64, complex128; `bc.eig` takes real matrices as complex ones. info (int32): 0, or more than 0 where a matrix
    did not converge, whose w and v are NaN. cuSOLVER's routine works on host and device in turns: it waits for the
    device, and cannot be captured in a graph. `bc.eig` and `bc.eigvals` have gradients.
    """

    op = "linalg.eig"
    descriptor = EigDescriptor
    args = EigArgs
    widest = np.float64
    waits = True
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = "a matrix that does not converge gets NaN, and info tells; one with NaN or infinities NaN, or info"
    variants = (
        Variant(
            "cusolver", geometry, COPY_SOURCE, (COPY, INFO, UNCONVERGED), elements=_ELEMENTS,
            backend=BackendKind.CUSOLVER, missing=CUSOLVER.unavailable,
            guarantee=Guarantee(Backward(20.0), batch_invariant=True, order="cusolver"),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("512² c64", n=512, element="complex64", work=FLOPS, target=None, peers=()),)

    @staticmethod
    def case(draw: Any) -> EigDescriptor:
        sizes = {"batch_shape": draw.shape(0, 2, 0, 3), "n": draw.sizes(0, 1, 2, 7, 33)}
        return EigDescriptor(**sizes, element=draw.element)

    @classmethod
    def complete(cls, desc: EigDescriptor, arrays: dict[str, Any]) -> None:
        """Numbers of a moderate size."""
        arrays["a"] = tame(arrays["a"])

    @classmethod
    def check_values(cls, desc: EigDescriptor, arrays: Mapping[str, Any]) -> str | None:
        return not_finite("a", arrays["a"])

    @classmethod
    def flops(cls, desc: EigDescriptor) -> int:
        return 25 * int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.n**3
