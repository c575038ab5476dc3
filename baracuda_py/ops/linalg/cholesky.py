"""Cholesky factors: A = L Lᴴ of Hermitian positive definite matrices (LAPACK's potrf; torch.linalg).

Matrices of up to 64 rows are factored by a kernel, all of a batch in one launch, larger ones by cuSOLVER one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cusolver import CUSOLVER, LOWER, UPPER, Potrf
from ...backends.library import Call
from ...core import (
    Args, Array, BackendKind, Backward, Descriptor, ElementKind, Geometry, Guarantee, LibraryStep, Plan,
    Problem, Variant, Vjp, element, extent, extents, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.device import Device
from ...calls.entries import entry
from ...schedules.in_library import COPY, COPY_SOURCE, Place, copied, offsets, piece, sequence, swapped, work_on
from ...schedules.in_workspace import bound
from ...schedules.library_matrices import cleared
from ...schedules.small_matrices import small_geometry, small_kernel
from .draws import ELEMENTS


@dataclass(frozen=True, kw_only=True)
class CholeskyDescriptor(Descriptor):
    """a and y are matrices [*batch_shape, n, n], info [*batch_shape].

    upper: of a the upper triangle is read, and y = U with A = Uᴴ U, else the lower one, and y = L with A = L Lᴴ.
    """

    batch_shape: tuple[int, ...] = extents(())
    n: int = extent()
    upper: bool = flag(False)
    element: ElementKind = element(ELEMENTS)


@dataclass(slots=True, kw_only=True)
class CholeskyArgs(Args):
    """Any strides; y may be a itself. info: 0, or the number, from 1, of the first minor that is not positive."""

    a: Array = operand("*batch_shape n n")
    y: Array = output("*batch_shape n n", inplace=("a",))
    info: Array | None = output("*batch_shape", element=ElementKind.I32, optional=True)


def _factor(a: Any) -> tuple[Any, int]:
    """L of one matrix whose lower triangle counts, and info. Where it has none, the first columns and NaN."""
    lower = np.tril(a)
    try:
        return np.linalg.cholesky(lower), 0  # which reads the lower triangle alone
    except np.linalg.LinAlgError:
        for k in range(1, len(a) + 1):
            try:
                np.linalg.cholesky(lower[:k, :k])
            except np.linalg.LinAlgError:
                return np.full_like(a, np.nan), k
        raise


def reference(desc: CholeskyDescriptor, *, a: Any, wanted: set[str]) -> Mapping[str, Any]:
    """numpy.linalg.cholesky of each matrix."""
    y, info = np.zeros_like(a), np.zeros(desc.batch_shape, np.int32)
    for at in np.ndindex(desc.batch_shape):
        if desc.n:
            part, info[at] = _factor(a[at].conj().T if desc.upper else a[at])
            y[at] = part.conj().T if desc.upper else part
    return {"y": y, "info": info} if "info" in wanted else {"y": y}


def residual(desc: CholeskyDescriptor, name: str, *, a: Any, y: Any, info: Any = None) -> Any:
    """‖A - L Lᴴ‖ / (n ‖A‖) in the norm of the largest row, of each matrix that has a factor."""
    a, y = (x.conj().swapaxes(-1, -2) for x in (a, y)) if desc.upper else (a, y)
    whole = np.tril(a, -1)
    whole = whole + whole.conj().swapaxes(-1, -2) + np.eye(desc.n) * a.real
    off = np.abs(whole - y @ y.conj().swapaxes(-1, -2)).sum(-1).max(-1, initial=0)
    above = np.abs(np.triu(y, 1)).sum((-1, -2))
    scale = max(desc.n, 1) * np.abs(whole).sum(-1).max(-1, initial=0)
    found = np.where(off == 0, 0, off / np.where(scale == 0, 1, scale)) + above
    return found if info is None else np.where(info == 0, found, 0)


def small(p: Problem) -> Geometry | str:
    """One launch. The transpose of an upper factor is the lower one of Aᵀ: the same memory, its axes exchanged."""
    a, y = (swapped(view) if p.desc.upper else view for view in (p.a, p.y))
    return small_geometry("small", (p.desc.n, p.desc.n), p.desc.batch_shape, {"a": a, "y": y, "info": p.info})


_SMALL = small_kernel("small", "SmallCholeskyParams", "a", "y", "info", source="small_cholesky")


def geometry(p: Problem) -> Geometry | str:
    """A triangle of a where cuSOLVER works, the factor in its place there, and a copy to y where that is elsewhere."""
    desc: CholeskyDescriptor = p.desc
    # The transpose of an upper factor is the lower one of Aᵀ: the same memory, its axes exchanged.
    a, y = (swapped(view) if desc.upper else view for view in (p.a, p.y))
    factor, end = work_on("y", y, 0)
    kept = Place("info", 0, p.info) if p.info is not None else None
    info, end = (kept, end) if kept else piece(desc.batch_shape, ElementKind.I32, end)
    steps = sequence(
        copied(factor.view, a, factor.name, "a"),
        (LibraryStep(_caller(desc, factor, info, end, tuple(p.views))),),
        () if factor.operand else copied(y, factor.view, "y", factor.name),
    )
    if isinstance(steps, str):
        return steps
    nbytes = end + bound(desc.element, (desc.n,), 0)
    return Geometry(steps, nbytes, "contiguous" if factor.operand and factor.by_rows else "strided")


def _caller(
    desc: CholeskyDescriptor, factor: Place, info: Place, end: int, operands: Sequence[str]
) -> Callable[[Device], Call]:
    """potrf on each matrix in turn; from byte `end` on the workspace is cuSOLVER's, which all of them share."""
    at, info_at = factor.finder(operands), info.finder(operands)

    def prepare(device: Device) -> Call:
        uplo = UPPER if factor.by_rows else LOWER  # a lower triangle by rows is an upper one by columns
        potrf = Potrf(str(desc.element), desc.n, factor.ld, uplo, device)
        pairs = list(zip(offsets(factor.view, 2), offsets(info.view, 0), strict=True))

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            first, told = at(pointers, workspace), info_at(pointers, workspace)
            for matrix, one in pairs:
                potrf.run(first + matrix, told + one, workspace + end, stream)

        return Call(run, end + potrf.workspace)

    return prepare if desc.n else cleared(info, end, operands)  # matrices of no rows are positive definite


def _definite(torch: Any, desc: Any) -> dict[str, Any]:
    """Positive definite matrices, in torch."""
    a = torch.randn(*desc.batch_shape, desc.n, desc.n)
    return {"a": a @ a.mT / desc.n + torch.eye(desc.n)}


class CholeskyPlan(Plan):
    """y = L with A = L Lᴴ of a Hermitian positive definite A, or (`upper`) U with A = Uᴴ U (LAPACK potrf).

    Only a's lower triangle is read (`upper`: the upper one), and of its diagonal the real parts; y is 0 beyond its own.
    f32, f64, complex64, complex128. info (int32): 0, or k where the minor of the first k rows and columns is not
    positive definite; y then has no meaning. Nothing waits for the device.
    """

    op = "linalg.cholesky"
    descriptor = CholeskyDescriptor
    args = CholeskyArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    vjp = Vjp("CholeskyBackwardPlan", grads={"a": "da"})
    value_policy = "where a matrix is not positive definite info tells the minor, and y has no meaning; NaN is in one"
    variants = (
        Variant(
            "small", small, "linalg/small_cholesky.cu", (_SMALL,), elements=ELEMENTS,
            guarantee=Guarantee(Backward(1.0), batch_invariant=True),
        ),
        Variant(
            "cusolver", geometry, COPY_SOURCE, (COPY,), elements=ELEMENTS, backend=BackendKind.CUSOLVER,
            guarantee=Guarantee(Backward(1.0), batch_invariant=True, order="cusolver"), missing=CUSOLVER.unavailable,
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(name, **sizes, element="float32", work=FLOPS, target=None, peers=(EAGER,), make=_definite)
        for name, sizes in (
            ("1024² f32", {"n": 1024}), ("8192² f32", {"n": 8192}),
            ("4096 of 32² f32", {"batch_shape": (4096,), "n": 32}),
        )
    )  # fmt: skip

    @staticmethod
    def torch(torch: Any, desc: CholeskyDescriptor, *, a: Any, wanted: set[str]) -> Any:
        """torch.linalg.cholesky_ex."""
        y, info = torch.linalg.cholesky_ex(a, upper=desc.upper)
        return {"y": y, "info": info} if "info" in wanted else {"y": y}

    @staticmethod
    def case(draw: Any) -> CholeskyDescriptor:
        return CholeskyDescriptor(**drawn(draw))

    @classmethod
    def complete(cls, desc: CholeskyDescriptor, arrays: dict[str, Any]) -> None:
        """Positive definite matrices."""
        arrays["a"] = definite(desc, arrays["a"])

    @staticmethod
    def tangent(desc: CholeskyDescriptor, name: str, v: Any) -> Any:
        """Hermitian, though one triangle alone is read."""
        return (v + v.conj().swapaxes(-1, -2)) / 2

    @classmethod
    def flops(cls, desc: CholeskyDescriptor) -> int:
        return int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.n**3 // 3


def drawn(draw: Any) -> dict[str, Any]:
    """A few matrices, or one."""
    sizes = {"batch_shape": draw.shape(0, 2, 0, 3), "n": draw.sizes(0, 1, 2, 4, 7, 8, 13, 33, 64, rare=(20, 65))}
    return {**sizes, "upper": draw.flag(), "element": draw.element}


def definite(desc: CholeskyDescriptor, drawn: Any) -> Any:
    """Positive definite matrices made of any numbers."""
    parts = [np.clip(np.nan_to_num(part), -4, 4) for part in (drawn.real, drawn.imag)]
    x = parts[0] + (1j * parts[1] if drawn.dtype.kind == "c" else 0)
    return (x @ x.conj().swapaxes(-1, -2) + np.eye(desc.n)).astype(drawn.dtype)


_cholesky: Any = functional(CholeskyPlan)


@entry(CholeskyPlan)
def cholesky_ex(a: Array, *, upper: bool = False, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(y, info): the Cholesky factors of matrices, and where there is none (torch.linalg.cholesky_ex).

    a: [..., n, n], Hermitian positive definite, of which the lower triangle is read (`upper`: the upper one). y: L with
    A = L Lᴴ, or U with A = Uᴴ U, its other triangle 0. info, int32 [...]: 0, or the number of the first minor that is
    not positive definite, and y has no meaning there. Nothing waits for the device: who has to know reads info.
    """
    return _cholesky(a, upper=upper, return_info=True, out=out, stream=stream, preference=preference)
