"""Systems of tridiagonal matrices, by elimination with exchanges of rows (LAPACK's gtsv)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Backward, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    element, extent, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.tensor import AXES, merge_axes, pad
from ...schedules.in_library import piece
from .draws import ELEMENTS, row_size, tame

_THREADS = 128


@dataclass(frozen=True, kw_only=True)
class TridiagonalSolveDescriptor(Descriptor):
    """dl, d and du are the diagonals [*batch_shape, n] of matrices, b and x are [*batch_shape, n, k]."""

    batch_shape: tuple[int, ...] = extents(())
    n: int = extent()
    k: int = extent()
    element: ElementKind = element(ELEMENTS)


@dataclass(slots=True, kw_only=True)
class TridiagonalSolveArgs(Args):
    """Any strides; x may be b itself. Row i has dl[i], d[i] and du[i]; dl[0] and du[n - 1] count for nothing."""

    dl: Array = operand("*batch_shape n")
    d: Array = operand("*batch_shape n")
    du: Array = operand("*batch_shape n")
    b: Array = operand("*batch_shape n k")
    x: Array = output("*batch_shape n k", inplace=("b",))


def _size(x: Any) -> Any:
    return np.maximum(np.abs(x.real), np.abs(x.imag))


def reference(desc: TridiagonalSolveDescriptor, *, dl: Any, d: Any, du: Any, b: Any) -> Mapping[str, Any]:
    """Row by row: of two neighbours the one whose number is larger is the pivot."""
    n, x = desc.n, np.array(b)
    if not n:
        return {"x": x}
    upper = np.zeros((3, n, *desc.batch_shape), d.dtype)
    own, right, zero = d[..., 0], du[..., 0] if n > 1 else 0 * d[..., 0], np.zeros_like(d[..., 0])
    with np.errstate(all="ignore"):
        for i in range(n - 1):
            left, following = dl[..., i + 1], d[..., i + 1]
            beyond = du[..., i + 1] if i + 2 < n else zero
            keep = _size(own) >= _size(left)
            share = np.where(keep, np.where(left == 0, 0, left / own), own / left)
            upper[0, i], upper[1, i] = np.where(keep, own, left), np.where(keep, right, following)
            upper[2, i] = np.where(keep, zero, beyond)
            own, right = (
                np.where(keep, following - share * right, right - share * following),
                np.where(keep, beyond, -share * beyond),
            )
            first, second, keep, share = x[..., i, :].copy(), x[..., i + 1, :].copy(), keep[..., None], share[..., None]
            x[..., i, :] = np.where(keep, first, second)
            x[..., i + 1, :] = np.where(keep, second - share * first, first - share * second)
        upper[0, n - 1] = own
        for i in reversed(range(n)):
            for j in range(1, min(3, n - i)):
                x[..., i, :] -= upper[j, i][..., None] * x[..., i + j, :]
            x[..., i, :] /= upper[0, i][..., None]
    return {"x": x}


def dense(dl: Any, d: Any, du: Any) -> Any:
    """The matrices of three diagonals."""
    n = d.shape[-1]
    made, own = np.zeros((*d.shape, n), d.dtype), np.arange(n)
    made[..., own, own] = d
    made[..., own[1:], own[:-1]], made[..., own[:-1], own[1:]] = dl[..., 1:], du[..., :-1]
    return made


def residual(desc: TridiagonalSolveDescriptor, name: str, *, dl: Any, d: Any, du: Any, b: Any, x: Any) -> Any:
    """‖A X - B‖ / (‖A‖ ‖X‖) in the norm of the largest row, of each system."""
    matrix = dense(dl, d, du)
    off, scale = row_size(matrix @ x - b), row_size(matrix) * row_size(x)
    return np.where(off == 0, 0, off / np.where(scale == 0, 1, scale))


def geometry(p: Problem) -> Geometry | str:
    """U and the multipliers in the workspace, a thread a system; then a thread a right side."""
    desc: TridiagonalSolveDescriptor = p.desc
    views = (p.dl, p.d, p.du, p.b, p.x)
    if not p.x.size:
        return Geometry(())
    rank, count = len(desc.batch_shape), int(np.prod(desc.batch_shape, dtype=np.int64))
    merged, batch = merge_axes(desc.batch_shape, [view.strides[:rank] for view in views])
    if len(merged) > AXES:
        return f"more than {AXES} axes of the batch remain after merging"
    made, end = piece((4, desc.n, count), desc.element, 0)
    exchanged, end = piece((desc.n, count), ElementKind.I32, end)
    params = {
        "u": made.name, "exchanged": exchanged.name, "n": desc.n, "sides": desc.k, "count": count,
        "batch_shape": pad(merged), "batch": [pad(strides) for strides in batch], "batch_rank": len(merged),
        "steps": [view.strides[rank] for view in views], "side_steps": [view.strides[-1] for view in views[3:]],
    }  # fmt: skip
    blocks = [-(-threads // _THREADS) for threads in (count, count * desc.k)]
    if blocks[1] >= 2**31:
        return "2^31 or more blocks"
    steps = tuple(
        Step(f"tridiagonal_{name}", (number, 1, 1), params, block=_THREADS)
        for name, number in zip(("factor", "substitute"), blocks, strict=True)
    )
    return Geometry(steps, end, "contiguous" if all(view.dense for view in views) else "strided")


_PARAMS = Params(
    "TridiagonalParams", dl="ptr", d="ptr", du="ptr", b="ptr", x="ptr", u="ptr", exchanged="ptr", n="i64", sides="i64",
    count="i64", batch_shape=f"i64[{AXES}]", batch=f"i64[5][{AXES}]", steps="i64[5]", side_steps="i64[2]",
    batch_rank="i32",
)  # fmt: skip
_KERNELS = tuple(
    Kernel(name, f"{name}<{{T}}>", _PARAMS, threads=_THREADS)
    for name in ("tridiagonal_factor", "tridiagonal_substitute")
)


def _dominant(torch: Any, desc: Any) -> dict[str, Any]:
    """Diagonals beyond the sum of those beside them, in torch."""
    return {"d": torch.rand(*desc.batch_shape, desc.n, dtype=getattr(torch, str(desc.element))) + 8}


class TridiagonalSolvePlan(Plan):
    """x with A x = b, A of the diagonals dl below, d and du above (LAPACK gtsv, cuSPARSE gtsv2).

    Gaussian elimination with exchanges of neighbouring rows: backward stable, whatever the matrix. A thread walks down
    the rows of a system, so batches take the time of one, and the order of every operation is that of the rows. f32,
    f64, complex64, complex128. The workspace has four numbers and an int32 of each row.
    """

    op = "linalg.tridiagonal_solve"
    descriptor = TridiagonalSolveDescriptor
    args = TridiagonalSolveArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = (
        "a singular matrix has a pivot of 0, which is divided by: infinities and NaN follow, in its system alone"
    )
    variants = (
        Variant(
            "rows", geometry, "linalg/tridiagonal_solve.cu", _KERNELS, elements=ELEMENTS,
            guarantee=Guarantee(Backward(8.0), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "65536 of 256 f32",
            batch_shape=(65536,),
            n=256,
            k=1,
            element="float32",
            peers=(),
            target=None,
            make=_dominant,
        ),
        Benchmark(
            "4096² f64", batch_shape=(4096,), n=4096, k=1, element="float64", peers=(), target=None, make=_dominant
        ),
    )

    @staticmethod
    def torch(torch: Any, desc: TridiagonalSolveDescriptor, *, dl: Any, d: Any, du: Any, b: Any) -> Any:
        """torch.linalg.solve of the whole matrices."""
        if not desc.n:
            return {"x": b.clone()}
        matrix = torch.diag_embed(d) + torch.diag_embed(dl[..., 1:], -1) + torch.diag_embed(du[..., :-1], 1)
        return {"x": torch.linalg.solve(matrix, b)}

    @staticmethod
    def case(draw: Any) -> TridiagonalSolveDescriptor:
        sizes = {
            "batch_shape": draw.shape(0, 2, 0, 3),
            "n": draw.sizes(0, 1, 2, 3, 7, 130),
            "k": draw.sizes(0, 1, 3, 20),
        }
        return TridiagonalSolveDescriptor(**sizes, element=draw.element)

    @classmethod
    def complete(cls, desc: TridiagonalSolveDescriptor, arrays: dict[str, Any]) -> None:
        """Far from singular: of every other system rows come in pairs whose numbers are large beside the diagonal."""
        dl, d, du = (tame(arrays[name]) for name in ("dl", "d", "du"))
        own, places = np.arange(desc.n), np.arange(int(np.prod(desc.batch_shape, dtype=np.int64)))
        paired = (places.reshape(desc.batch_shape)[..., None] + desc.n) % 2 == 1
        first = paired & (own % 2 == 0) & (own + 1 < desc.n)
        second = paired & (own % 2 == 1)
        arrays["d"] = d + np.where(first | second, 0, 24).astype(d.dtype)
        arrays["du"] = du + np.where(first, 24, 0).astype(d.dtype)
        arrays["dl"] = dl + np.where(second, 24, 0).astype(d.dtype)
        arrays["b"] = tame(arrays["b"])


_systems: Any = functional(TridiagonalSolvePlan)


def tridiagonal_systems(dl: Any, d: Any, du: Any, b: Any, **given: Any) -> Any:
    """`TridiagonalSolvePlan` as a function."""
    return _systems(dl, d, du, b, **given)
