"""LU factors with partial pivoting: A = P L U, by cuSOLVER (LAPACK's getrf; torch.linalg.lu_factor_ex)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends.cusolver import CUSOLVER
from ...backends.cusolver_lu import Getrf
from ...backends.library import Call
from ...core import (
    Args, Array, BackendKind, Backward, Descriptor, ElementKind, Geometry, Guarantee, LibraryStep, Plan, Problem,
    Variant, element, extent, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.device import Device
from ...schedules.in_library import COPY, COPY_SOURCE, Place, offsets, piece, sequence
from ...schedules.in_workspace import bound
from ...schedules.library_matrices import as_rows, cleared, too_large, whole, work_by_columns
from ...schedules.map import widths
from ...schedules.small_matrices import small_geometry, small_kernel
from .draws import ELEMENTS, batches, pivoted, row_size


@dataclass(frozen=True, kw_only=True)
class LuFactorDescriptor(Descriptor):
    """a and lu are matrices [*batch_shape, m, n], pivots [*batch_shape, min(m, n)], info [*batch_shape]."""

    batch_shape: tuple[int, ...] = extents(())
    m: int = extent()
    n: int = extent()
    element: ElementKind = element(ELEMENTS)

    @property
    def least(self) -> int:
        """How many pivots there are."""
        return min(self.m, self.n)


@dataclass(slots=True, kw_only=True)
class LuFactorArgs(Args):
    """Any strides; lu may be a itself. info: 0, or the number, from 1, of the first zero on U's diagonal."""

    a: Array = operand("*batch_shape m n")
    lu: Array = output("*batch_shape m n", inplace=("a",))
    pivots: Array = output("*batch_shape least", element=ElementKind.I32)
    info: Array | None = output("*batch_shape", element=ElementKind.I32, optional=True)


def _size(x: Any) -> Any:
    """What LAPACK chooses a pivot by: |re| + |im|."""
    return np.abs(x.real) + np.abs(x.imag)


def _factor(a: Any) -> tuple[Any, Any, int]:
    """L and U of one matrix, packed, its pivots from 1, and info."""
    lu, info = np.array(a), 0
    pivots = np.zeros(min(a.shape), np.int32)
    for k in range(len(pivots)):
        at = k + int(np.argmax(_size(lu[k:, k])))
        pivots[k] = at + 1
        lu[[k, at]] = lu[[at, k]]
        if lu[k, k] == 0:
            info = info or k + 1
            continue
        lu[k + 1 :, k] /= lu[k, k]
        lu[k + 1 :, k + 1 :] -= lu[k + 1 :, k, None] * lu[k, k + 1 :]
    return lu, pivots, info


def reference(desc: LuFactorDescriptor, *, a: Any, wanted: set[str]) -> Mapping[str, Any]:
    """Columns in turn, the largest number first."""
    lu, pivots = np.zeros_like(a), np.zeros((*desc.batch_shape, desc.least), np.int32)
    info = np.zeros(desc.batch_shape, np.int32)
    with np.errstate(all="ignore"):
        for at in np.ndindex(desc.batch_shape):
            lu[at], pivots[at], info[at] = _factor(a[at])
    made = {"lu": lu, "pivots": pivots}
    return made | {"info": info} if "info" in wanted else made


def residual(desc: LuFactorDescriptor, name: str, *, a: Any, lu: Any, pivots: Any, info: Any = None) -> Any:
    """‖Pᵀ A - L U‖ / (n ‖|L| |U|‖) in the norm of the largest row, of each matrix; n the longer extent."""
    rows = np.array(a)
    for at in np.ndindex(desc.batch_shape):
        for k, pivot in enumerate(pivots[at].astype(np.int64) - 1):
            rows[at][[k, pivot]] = rows[at][[pivot, k]]
    lower = np.tril(lu[..., : desc.least], -1) + np.eye(desc.m, desc.least).astype(lu.real.dtype)
    upper = np.triu(lu[..., : desc.least, :])
    off = row_size(rows - lower @ upper)
    scale = max(desc.m, desc.n, 1) * row_size(np.abs(lower) @ np.abs(upper))
    return np.where(off == 0, 0, off / np.where(scale == 0, 1, scale))


PIVOTS = replace(COPY, name="pivots", axes=lambda kind: {"BYTES": (4,), "VEC": widths(4)})


def copied_pivots(target: Any, source: Any, to: Any, of: Any) -> Any:
    """The step that copies vectors of int32."""
    made = whole(as_rows(target), as_rows(source), to, of)
    return made if isinstance(made, str) else tuple(replace(step, kernel=PIVOTS.name) for step in made)


def small(p: Problem) -> Geometry | str:
    """One launch."""
    desc: LuFactorDescriptor = p.desc
    given = {"a": p.a, "lu": p.lu, "pivots": p.pivots, "info": p.info}
    return small_geometry("small", (desc.m, desc.n), desc.batch_shape, given)


_SMALL = small_kernel("small", "SmallLuParams", "a", "lu", "pivots", "info", source="small_lu")


def geometry(p: Problem) -> Geometry | str:
    """a by columns where cuSOLVER works, lu itself where its layout will do, and a copy to lu where it will not."""
    desc: LuFactorDescriptor = p.desc
    work, end = work_by_columns("lu", p.lu, 0)
    if refusal := too_large(m=desc.m, n=desc.n, stride=work.ld):
        return refusal
    straight = desc.least <= 1 or p.pivots.strides[-1] == 1
    pivots, end = (Place("pivots", 0, p.pivots), end) if straight else piece(p.pivots.shape, ElementKind.I32, end)
    kept = Place("info", 0, p.info) if p.info is not None else None
    info, end = (kept, end) if kept else piece(desc.batch_shape, ElementKind.I32, end)
    operands = tuple(p.views)
    call = _caller(desc, work, pivots, info, end, operands) if desc.least else cleared(info, end, operands)
    steps = sequence(
        whole(work.view, p.a, work.name, "a"),
        (LibraryStep(call),),
        () if work.operand else whole(p.lu, work.view, "lu", work.name),
        () if straight else copied_pivots(p.pivots, pivots.view, "pivots", pivots.name),
    )
    if isinstance(steps, str):
        return steps
    nbytes = end + bound(desc.element, (desc.m, desc.n), 0)
    return Geometry(steps, nbytes, "contiguous" if straight and work.operand else "strided")


def _caller(
    desc: LuFactorDescriptor, work: Place, pivots: Place, info: Place, end: int, operands: Sequence[str]
) -> Callable[[Device], Call]:
    """getrf on each matrix in turn; from byte `end` on the workspace is cuSOLVER's, which all of them share."""
    places = [(place, place.finder(operands), axes) for place, axes in ((work, 2), (pivots, 1), (info, 0))]

    def prepare(device: Device) -> Call:
        getrf = Getrf(str(desc.element), desc.m, desc.n, work.ld, device)
        triples = list(zip(*(offsets(place.view, axes) for place, _, axes in places), strict=True))

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            starts = [find(pointers, workspace) for _, find, _ in places]
            for at in triples:
                matrix, swaps, told = (start + one for start, one in zip(starts, at, strict=True))
                getrf.run(matrix, swaps, told, workspace + end, stream)

        return Call(run, end + getrf.workspace)

    return prepare


class LuFactorPlan(Plan):
    """lu and pivots with A = P L U: L, of ones on the diagonal, below it, and U on and above it (LAPACK getrf).

    pivots (int32, from 1): row i was exchanged with row pivots[i], for i = 1, 2, … in turn. f32, f64, complex64,
    complex128, any strides; matrices by columns are factored in place, those by rows in a copy. info (int32): 0, or k
    where U[k, k] is the first that is exactly 0. Nothing waits for the device.
    """

    op = "linalg.lu_factor"
    descriptor = LuFactorDescriptor
    args = LuFactorArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = (
        "of a singular matrix info tells the first zero of U's diagonal, and what comes behind it is the library's; "
        "NaN and infinities spread"
    )
    variants = (
        Variant(
            "small", small, "linalg/small_lu.cu", (_SMALL,), elements=ELEMENTS,
            guarantee=Guarantee(Backward(1.0), batch_invariant=True),
        ),
        Variant(
            "cusolver", geometry, COPY_SOURCE, (COPY, PIVOTS), elements=ELEMENTS, backend=BackendKind.CUSOLVER,
            guarantee=Guarantee(Backward(2.0), batch_invariant=True, order="cusolver"), missing=CUSOLVER.unavailable,
        ),
    )  # fmt: skip
    benchmarks = (
        *(
            Benchmark(f"{n}² f32", m=n, n=n, element="float32", work=FLOPS, target=None, peers=(EAGER,))
            for n in (1024, 8192)
        ),
        *batches((4096, 32, 32)),
    )

    @staticmethod
    def torch(torch: Any, desc: LuFactorDescriptor, *, a: Any, wanted: set[str]) -> Any:
        """torch.linalg.lu_factor_ex."""
        made = dict(zip(("lu", "pivots", "info"), torch.linalg.lu_factor_ex(a), strict=True))
        return {name: one for name, one in made.items() if name != "info" or name in wanted}

    @staticmethod
    def case(draw: Any) -> LuFactorDescriptor:
        m, n = draw.sizes(0, 1, 2, 7, 33), draw.sizes(0, 1, 2, 7, 33)
        same = draw.flag()
        return LuFactorDescriptor(batch_shape=draw.shape(0, 2, 0, 3), m=m, n=m if same else n, element=draw.element)

    @classmethod
    def complete(cls, desc: LuFactorDescriptor, arrays: dict[str, Any]) -> None:
        """Matrices whose pivots roundings do not change."""
        arrays["a"] = pivoted(arrays["a"])

    @classmethod
    def flops(cls, desc: LuFactorDescriptor) -> int:
        k, longer = desc.least, max(desc.m, desc.n)
        return int(np.prod(desc.batch_shape, dtype=np.int64)) * (k * k * longer - k**3 // 3)


_factors: Any = functional(LuFactorPlan)


def lu_factors(a: Any, out: Any, options: dict[str, Any]) -> Any:
    """`LuFactorPlan` as a function, with info."""
    return _factors(a, return_info=True, out=out, **options)
