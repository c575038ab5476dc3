"""Factors of symmetric and Hermitian matrices, A = L D L*, by Bunch and Kaufman (LAPACK's sytrf; torch.linalg)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cusolver import CUSOLVER
from ...backends.cusolver_lu import Sytrf
from ...backends.library import Call
from ...calls.functional import functional
from ...core import (
    Args, Array, BackendKind, Backward, Descriptor, ElementKind, Geometry, Guarantee, LibraryStep, Plan, Problem,
    Variant, element, extent, extents, flag, operand, output,
)  # fmt: skip
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.device import Device
from ...schedules.in_library import COPY, COPY_SOURCE, Place, copied, offsets, piece, sequence
from ...schedules.in_workspace import INFO, bound, given_out
from ...schedules.library_matrices import cleared, piece_by_columns, too_large
from ...schedules.small_matrices import small_geometry, small_kernel
from .draws import ELEMENTS, row_size, tame
from .lu_factor import PIVOTS, copied_pivots

_SHARE = (1 + 17**0.5) / 8


@dataclass(frozen=True, kw_only=True)
class LdlFactorDescriptor(Descriptor):
    """a and ld are matrices [*batch_shape, n, n], pivots [*batch_shape, n], info [*batch_shape].

    hermitian: of complex numbers the upper triangle is the conjugate of the lower one, which is read, else the same.
    """

    batch_shape: tuple[int, ...] = extents(())
    n: int = extent()
    hermitian: bool = flag(False)
    element: ElementKind = element(ELEMENTS)


@dataclass(slots=True, kw_only=True)
class LdlFactorArgs(Args):
    """Any strides; ld may be a itself. info: 0, or the number, from 1, of the first block of D that is 0."""

    a: Array = operand("*batch_shape n n")
    ld: Array = output("*batch_shape n n", inplace=("a",))
    pivots: Array = output("*batch_shape n", element=ElementKind.I32)
    info: Array | None = output("*batch_shape", element=ElementKind.I32, optional=True)


def _size(x: Any) -> Any:
    """What LAPACK chooses a pivot by: |re| + |im|."""
    return np.abs(x.real) + np.abs(x.imag)


def _chosen(a: Any, k: int) -> tuple[int, int]:
    """The row that is exchanged at column k, and how many rows the block has."""
    own, column = _size(a[k, k]), _size(a[k + 1 :, k])
    below = column.max(initial=0)
    if not own < _SHARE * below:
        return k, 1
    low = k + 1 + int(np.argmax(column))
    beside = np.delete(_size(a[low, k:]), low - k).max(initial=0)
    if not own < _SHARE * below * (below / beside):
        return k, 1
    return low, 1 if _size(a[low, low]) >= _SHARE * beside else 2


def whole_of(a: Any, hermitian: bool) -> Any:
    """The matrices whose lower triangles count."""
    turned = np.tril(a, -1).swapaxes(-1, -2)
    made = np.tril(a) + (turned.conj() if hermitian else turned)
    if hermitian and made.dtype.kind == "c":
        own = np.arange(made.shape[-1])
        made[..., own, own] = made[..., own, own].real
    return made


def _factor(a: Any) -> tuple[Any, Any, int]:
    """L and D of one matrix, packed, its pivots from 1, and info."""
    n, info = len(a), 0
    pivots, k = np.zeros(n, np.int32), 0
    while k < n:
        pivot, width = _chosen(a, k)
        moved, end = k + width - 1, k + width
        a[[moved, pivot], k:] = a[[pivot, moved], k:]
        a[k:, [moved, pivot]] = a[k:, [pivot, moved]]
        pivots[k:end] = (pivot + 1) * (1 if width == 1 else -1)
        block = a[k:end, k:end]
        if width == 1 and block[0, 0] == 0:
            info = info or k + 1
        else:
            factors = a[end:, k:end] @ np.linalg.inv(block) if width == 2 else a[end:, k:end] / block
            a[end:, end:] -= factors @ a[k:end, end:]
            a[end:, k:end] = factors
        k = end
    return np.tril(a), pivots, info


def reference(desc: LdlFactorDescriptor, *, a: Any, wanted: set[str]) -> Mapping[str, Any]:
    """Columns in turn, two at once where the diagonal is small."""
    ld, pivots = np.zeros_like(a), np.zeros((*desc.batch_shape, desc.n), np.int32)
    info = np.zeros(desc.batch_shape, np.int32)
    with np.errstate(all="ignore"):
        for at in np.ndindex(desc.batch_shape):
            ld[at], pivots[at], info[at] = _factor(whole_of(a[at], desc.hermitian))
    made = {"ld": ld, "pivots": pivots}
    return made | {"info": info} if "info" in wanted else made


def unpacked(ld: Any, pivots: Any, hermitian: bool) -> tuple[Any, Any]:
    """P L and D of one packed matrix, A = P L D (P L)*."""
    n = len(ld)
    lower, middle, k = np.eye(n, dtype=ld.dtype), np.diag(np.diag(ld)), 0
    blocks = []
    while k < n:
        width = 1 if pivots[k] > 0 else 2
        blocks.append((k, width))
        if width == 2:
            middle[k + 1, k] = ld[k + 1, k]
            middle[k, k + 1] = ld[k + 1, k].conj() if hermitian else ld[k + 1, k]
        k += width
    for k, width in reversed(blocks):  # of the factors, each of an exchange and of columns of L, the last ones first
        lower[k + width :] += ld[k + width :, k : k + width] @ lower[k : k + width]
        moved, pivot = k + width - 1, abs(int(pivots[k])) - 1
        lower[[moved, pivot]] = lower[[pivot, moved]]
    return lower, middle


def residual(desc: LdlFactorDescriptor, name: str, *, a: Any, ld: Any, pivots: Any, info: Any = None) -> Any:
    """‖A - L D L*‖ / (n ‖|L| |D| |L*|‖) in the norm of the largest row, of each matrix."""
    found = np.zeros(desc.batch_shape)
    for at in np.ndindex(desc.batch_shape):
        lower, middle = unpacked(ld[at], pivots[at], desc.hermitian)
        turned = lower.T.conj() if desc.hermitian else lower.T
        off = row_size(whole_of(a[at], desc.hermitian) - lower @ middle @ turned)
        scale = max(desc.n, 1) * row_size(np.abs(lower) @ np.abs(middle) @ np.abs(turned))
        above = np.abs(np.triu(ld[at], 1)).sum()
        found[at] = (off / scale if scale else off) + above
    return found


def small(p: Problem) -> Geometry | str:
    """One launch."""
    desc: LdlFactorDescriptor = p.desc
    given = {"a": p.a, "ld": p.ld, "pivots": p.pivots, "info": p.info}
    return small_geometry("small", (desc.n, desc.n), desc.batch_shape, given, hermitian=int(desc.hermitian))


_SMALL = small_kernel(
    "small", "SmallLdlParams", "a", "ld", "pivots", "info", source="small_ldl", hermitian="i32"
)  # fmt: skip


def geometry(p: Problem) -> Geometry | str:
    """The lower triangle of a by columns in the workspace, where cuSOLVER works, and copies of what it made."""
    desc: LdlFactorDescriptor = p.desc
    if desc.hermitian and desc.element.is_complex:
        return (
            "cuSOLVER has no factors of Hermitian matrices of complex numbers (LAPACK's hetrf); ours are of up to 64 "
            "rows, `lu_factor` and `eigh` take larger ones"
        )
    if refusal := too_large(n=desc.n):
        return refusal
    work, end = piece_by_columns(p.a.shape, desc.element, 0)
    pivots, end = piece(p.pivots.shape, ElementKind.I32, end)
    info, end = piece(desc.batch_shape, ElementKind.I32, end)
    operands = tuple(p.views)
    call = _caller(desc, work, pivots, info, end) if desc.n else cleared(info, end, operands)
    steps = sequence(
        copied(work.view, p.a, work.name, "a"),
        (LibraryStep(call),),
        copied(p.ld, work.view, "ld", work.name),
        copied_pivots(p.pivots, pivots.view, "pivots", pivots.name),
        given_out(p.info, info, "info", INFO),
    )
    return steps if isinstance(steps, str) else Geometry(steps, end + bound(desc.element, (desc.n, desc.n)), "strided")


def _caller(
    desc: LdlFactorDescriptor, work: Place, pivots: Place, info: Place, end: int
) -> Callable[[Device], Call]:  # fmt: skip
    """sytrf on each matrix in turn; from byte `end` on the workspace is cuSOLVER's, which all of them share."""

    def prepare(device: Device) -> Call:
        sytrf = Sytrf(str(desc.element), desc.n, device)
        places: Sequence[tuple[int, ...]] = list(
            zip(
                *(
                    [place.start + at for at in offsets(place.view, axes)]
                    for place, axes in ((work, 2), (pivots, 1), (info, 0))
                ),
                strict=True,
            )
        )

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            for matrix, swaps, told in places:
                sytrf.run(workspace + matrix, workspace + swaps, workspace + told, workspace + end, stream)

        return Call(run, end + sytrf.workspace)

    return prepare


class LdlFactorPlan(Plan):
    """ld and pivots with A = L D L*, D of blocks of one and two rows (LAPACK sytrf, hetrf of a lower triangle).

    ld: D's blocks on and beside the diagonal, and the columns of L, of ones on theirs, below them; zeros above. pivots
    (int32, from 1): k of a block of one row exchanged with row pivots[k]; -p for both rows of a block of two, whose
    second one was exchanged with p. L* is Lᵀ, or Lᴴ where `hermitian`. f32, f64, complex64, complex128, any strides.
    info (int32): 0, or k where block k of D is the first that is 0. Nothing waits for the device.
    """

    op = "linalg.ldl_factor"
    descriptor = LdlFactorDescriptor
    args = LdlFactorArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = "info tells the first zero of D, by which nothing is divided; NaN and infinities spread"
    variants = (
        Variant(
            "small", small, "linalg/small_ldl.cu", (_SMALL,), elements=ELEMENTS,
            guarantee=Guarantee(Backward(4.0), batch_invariant=True), may_spill=True,
        ),
        Variant(
            "cusolver", geometry, COPY_SOURCE, (COPY, PIVOTS, INFO), elements=ELEMENTS, backend=BackendKind.CUSOLVER,
            guarantee=Guarantee(Backward(4.0), batch_invariant=True, order="cusolver"), missing=CUSOLVER.unavailable,
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("1024² f32", n=1024, element="float32", work=FLOPS, target=None, peers=(EAGER,)),
        Benchmark(
            "4096 of 32² f32", batch_shape=(4096,), n=32, element="float32", work=FLOPS, target=None, peers=(EAGER,)
        ),
    )  # fmt: skip

    @staticmethod
    def torch(torch: Any, desc: LdlFactorDescriptor, *, a: Any, wanted: set[str]) -> Any:
        """torch.linalg.ldl_factor_ex, whose upper triangle is what it was."""
        ld, pivots, info = torch.linalg.ldl_factor_ex(a, hermitian=desc.hermitian)
        made = {"ld": torch.tril(ld), "pivots": pivots}
        return made | {"info": info} if "info" in wanted else made

    @staticmethod
    def case(draw: Any) -> LdlFactorDescriptor:
        return LdlFactorDescriptor(
            batch_shape=draw.shape(0, 2, 0, 3), n=draw.sizes(0, 1, 2, 7, 33), hermitian=draw.flag(),
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: LdlFactorDescriptor, arrays: dict[str, Any]) -> None:
        """Matrices of whose pivots there is no doubt: rows in groups of one, of two that need a block, of two that
        need an exchange."""
        made, n = tame(arrays["a"]), desc.n
        order = np.random.default_rng(n).permutation(n)
        place = 0
        while place < n:
            kind, i = place % 3 if place + 1 < n else 0, order[place]
            large = 64.0 * (n + 1)
            if kind == 0:
                made[..., i, i] = large
            else:
                j = order[place + 1]
                made[..., max(i, j), min(i, j)] = large
                if kind == 2:
                    made[..., j, j] = 4 * large
            place += 1 if kind == 0 else 2
        arrays["a"] = made

    @classmethod
    def flops(cls, desc: LdlFactorDescriptor) -> int:
        return int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.n**3 // 3


_factors: Any = functional(LdlFactorPlan)


def ldl_factors(a: Any, hermitian: bool, out: Any, options: dict[str, Any]) -> Any:
    """`LdlFactorPlan` as a function, with info."""
    return _factors(a, hermitian=hermitian, return_info=True, out=out, **options)
