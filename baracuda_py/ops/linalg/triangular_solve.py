"""Solves with triangular matrices: A X = B, by cuBLAS (BLAS's trsm; torch.linalg.solve_triangular)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends.blas3 import ADJOINT, CUBLAS, LEFT, PLAIN, RIGHT, TRANSPOSED, Triangular
from ...backends.cusolver import LOWER, UPPER, leading
from ...core import (
    Args, Array, BackendKind, Backward, Descriptor, ElementKind, Geometry, Guarantee, LibraryStep, Plan, Problem,
    Step, Variant, element, extent, extents, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.device import Device
from ...schedules.in_library import COPY, COPY_SOURCE, Place, copied, offsets, piece, sequence, swapped, work_on
from ...schedules.library_matrices import piece_by_columns, too_large, whole
from ...schedules.small_matrices import group_of, small_geometry, small_kernel
from .draws import ELEMENTS, row_size, solved, tame


@dataclass(frozen=True, kw_only=True)
class TriangularSolveDescriptor(Descriptor):
    """a is matrices [*batch_shape, n, n], b and x are [*batch_shape, n, k].

    upper: a's upper triangle is read, else its lower one. unit: its diagonal is of ones, and not read. conjugate: the
    conjugate of a stands for a. Transposes are views of a, whose triangle is then the other.
    """

    batch_shape: tuple[int, ...] = extents(())
    n: int = extent()
    k: int = extent()
    upper: bool = flag(False)
    unit: bool = flag(False)
    conjugate: bool = flag(False)
    element: ElementKind = element(ELEMENTS)


@finite_only  # the bound is relative, which roundings of subnormals are not
def _numbers(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data."""
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if desc.element.is_complex else x


@dataclass(slots=True, kw_only=True)
class TriangularSolveArgs(Args):
    """Any strides; x may be b itself."""

    a: Array = operand("*batch_shape n n", values=_numbers)
    b: Array = operand("*batch_shape n k", values=_numbers)
    x: Array = output("*batch_shape n k", inplace=("b",))


def triangle(desc: TriangularSolveDescriptor, a: Any) -> Any:
    """The matrix that is solved with."""
    kept = np.triu(a, int(desc.unit)) if desc.upper else np.tril(a, -int(desc.unit))
    kept = kept + np.eye(desc.n).astype(a.real.dtype) if desc.unit else kept
    return kept.conj() if desc.conjugate else kept


def reference(desc: TriangularSolveDescriptor, *, a: Any, b: Any) -> Mapping[str, Any]:
    """Substitution."""
    matrix = triangle(desc, a)
    with np.errstate(all="ignore"):
        if desc.upper:
            return {"x": solved(matrix, b)}
        return {"x": solved(matrix[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]}


def residual(desc: TriangularSolveDescriptor, name: str, *, a: Any, b: Any, x: Any) -> Any:
    """‖A X - B‖ / (n ‖A‖ ‖X‖) in the norm of the largest row, of each system."""
    matrix = triangle(desc, a)
    off, scale = row_size(matrix @ x - b), max(desc.n, 1) * row_size(matrix) * row_size(x)
    return np.where(off == 0, 0, off / np.where(scale == 0, 1, scale))


def _triangle_place(desc: TriangularSolveDescriptor, a: Any, by_rows: bool, start: int) -> tuple[Place, int]:
    """a where it is, or a copy of its triangle in the workspace.

    A library of matrices by columns sees one by rows as its transpose, and has no conjugate without a transpose: of
    conjugates a and x lie the other way from each other.
    """
    found = leading(a)
    conjugate = desc.conjugate and desc.element.is_complex
    if found is not None and (not conjugate or found[1] != by_rows):
        return Place("a", 0, a, *found), start
    made = piece if by_rows != conjugate else piece_by_columns
    return made(a.shape, desc.element, start)


def small(p: Problem) -> Geometry | str:
    """One launch, of one right side with the solution in registers."""
    desc: TriangularSolveDescriptor = p.desc
    given = {"a": p.a, "b": p.b, "x": p.x}
    flags = {name: int(getattr(desc, name)) for name in _FLAGS}
    made = small_geometry("small", (desc.n, max(desc.n, desc.k)), desc.batch_shape, given, 2, sides=desc.k, **flags)
    if isinstance(made, str) or not made.steps or desc.k != 1 or (group := group_of(desc.n, 1)) not in _LANES:
        return made
    nbytes = group * (group | 1) * desc.element.itemsize
    threads = _MOST_THREADS if _MOST_THREADS // group * nbytes <= _MOST_BYTES else _MOST_THREADS // 2
    groups, step = threads // group, made.steps[0]
    assert isinstance(step, Step)
    blocks = -(-int(np.prod(desc.batch_shape, dtype=np.int64)) // groups)
    launch = Step("vector", (blocks, 1, 1), step.params, {"G": group}, threads, groups * nbytes)
    return replace(made, steps=(launch,))


_FLAGS = ("upper", "unit", "conjugate")
_SMALL = small_kernel(
    "small", "SmallTriangularSolveParams", "a", "b", "x", source="small_triangular_solve", sides="i32",
    **dict.fromkeys(_FLAGS, "i32"),
)  # fmt: skip
_LANES = (8, 16, 32)  # of a matrix whose solution lies in registers
_MOST_THREADS, _MOST_BYTES = 128, 64 * 1024
_VECTOR = replace(_SMALL, name="vector", template="small_triangular_vector<{T}, {G}>", axes={"G": _LANES})


def geometry(p: Problem) -> Geometry | str:
    """b where cuBLAS works, x itself where its layout will do, and a copy to x where that is elsewhere."""
    desc: TriangularSolveDescriptor = p.desc
    work, end = work_on("x", p.x, 0)
    factor, end = _triangle_place(desc, p.a, work.by_rows, end)
    if refusal := too_large(n=desc.n, k=desc.k, a_stride=factor.ld, x_stride=work.ld):
        return refusal
    target, source = (swapped(view) if desc.upper else view for view in (factor.view, p.a))
    steps = sequence(
        () if factor.operand or not p.x.size else copied(target, source, factor.name, "a"),
        whole(work.view, p.b, work.name, "b"),
        (LibraryStep(_caller(desc, factor, work, tuple(p.views))),) if p.x.size else (),
        () if work.operand else whole(p.x, work.view, "x", work.name),
    )
    dense = work.operand and factor.operand and work.by_rows
    return steps if isinstance(steps, str) else Geometry(steps, end, "contiguous" if dense else "strided")


def _caller(
    desc: TriangularSolveDescriptor, factor: Place, work: Place, operands: Sequence[str]
) -> Callable[[Device], Callable[..., None]]:
    """trsm on each system in turn."""
    find, found = factor.finder(operands), work.finder(operands)
    upper = desc.upper != factor.by_rows  # a triangle by rows is the other one by columns
    turned = TRANSPOSED if not (desc.conjugate and desc.element.is_complex) else ADJOINT
    side, op = RIGHT if work.by_rows else LEFT, PLAIN if factor.by_rows == work.by_rows else turned

    def prepare(device: Device) -> Callable[..., None]:
        triangular = Triangular(
            str(desc.element), desc.n, UPPER if upper else LOWER, device, others=desc.k, lds=(factor.ld, work.ld),
            unit=desc.unit,
        )  # fmt: skip
        pairs = list(zip(offsets(factor.view, 2), offsets(work.view, 2), strict=True))

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            a, x = find(pointers, workspace), found(pointers, workspace)
            for matrix, right in pairs:
                triangular.solve(side, op, a + matrix, x + right, stream)

        return run

    return prepare


def _far_from_singular(torch: Any, desc: Any) -> dict[str, Any]:
    """Matrices whose solutions are of the right sides' size, in torch."""
    return {"a": torch.randn(*desc.batch_shape, desc.n, desc.n) / (4 * desc.n) + torch.eye(desc.n)}


class TriangularSolvePlan(Plan):
    """x with A x = b, A the lower triangle of a, or (`upper`) the upper one (BLAS trsm).

    The other triangle is not read; `unit`: nor is the diagonal, which is of ones. `conjugate`: A is the conjugate. f32,
    f64, complex64, complex128, any strides. Transposes and systems x A = b are views: aᵀ, whose triangle is the other,
    with xᵀ and bᵀ.
    """

    op = "linalg.triangular_solve"
    descriptor = TriangularSolveDescriptor
    args = TriangularSolveArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = "a zero on the diagonal is divided by: infinities and NaN follow, which of them is the library's"
    variants = (
        Variant(
            "small", small, "linalg/small_triangular_solve.cu", (_SMALL, _VECTOR), elements=ELEMENTS,
            guarantee=Guarantee(Backward(2.0), batch_invariant=True),
        ),
        Variant(
            "cublas", geometry, COPY_SOURCE, (COPY,), elements=ELEMENTS, backend=BackendKind.CUBLAS,
            guarantee=Guarantee(Backward(2.0), batch_invariant=True, order="cublas"), missing=CUBLAS.unavailable,
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(name, **sizes, element="float32", work=FLOPS, target=None, peers=(EAGER,), make=_far_from_singular)
        for name, sizes in (
            ("1024² by 1024 f32", {"n": 1024, "k": 1024}), ("8192² by 64 f32", {"n": 8192, "k": 64}),
            ("4096 of 32² by 1 f32", {"batch_shape": (4096,), "n": 32, "k": 1}),
        )
    )  # fmt: skip

    @staticmethod
    def torch(torch: Any, desc: TriangularSolveDescriptor, *, a: Any, b: Any) -> Any:
        """torch.linalg.solve_triangular."""
        a = a.conj() if desc.conjugate else a
        return {"x": torch.linalg.solve_triangular(a, b, upper=desc.upper, unitriangular=desc.unit)}

    @staticmethod
    def case(draw: Any) -> TriangularSolveDescriptor:
        sizes = {"batch_shape": draw.shape(0, 2, 0, 3), "n": draw.sizes(0, 1, 2, 7, 33), "k": draw.sizes(0, 1, 3, 20)}
        flags = {name: draw.flag() for name in ("upper", "unit", "conjugate")}
        return TriangularSolveDescriptor(**sizes, **flags, element=draw.element)

    @classmethod
    def complete(cls, desc: TriangularSolveDescriptor, arrays: dict[str, Any]) -> None:
        """Matrices that are far from singular, and numbers of their size."""
        a = tame(arrays["a"])
        far = (a / a.dtype.type(4 * max(desc.n, 1))).astype(a.dtype)
        arrays["a"], arrays["b"] = far + np.eye(desc.n, dtype=a.dtype), tame(arrays["b"])

    @classmethod
    def flops(cls, desc: TriangularSolveDescriptor) -> int:
        return int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.n * desc.n * desc.k


_systems: Any = functional(TriangularSolvePlan)


def triangular_systems(a: Any, b: Any, **given: Any) -> Any:
    """`TriangularSolvePlan` as a function."""
    return _systems(a, b, **given)
