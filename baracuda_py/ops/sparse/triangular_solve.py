"""Solves with sparse triangles in CSR: A x = b (SciPy's spsolve_triangular, cuSPARSE's SpSM), without levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    Args, Array, Backward, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    element, extent, flag, operand, output,
)  # fmt: skip
from ...core.args import finite_only
from ...core.benchmark import BYTES, Benchmark
from ...core.variant import aligned
from ..linalg.draws import ELEMENTS, row_size
from ..segment.segment_kinds import ELEMENTS as INDICES
from ..segment.segment_kinds import I64

_WARP, _THREADS, _SIDES = 32, 256, 4


@dataclass(frozen=True, kw_only=True)
class SparseTriangularSolveDescriptor(Descriptor):
    """A is [n, n] with `tokens` entries: values, columns [tokens], offsets [n + 1]; b and x are [n, k].

    upper: the entries right of the diagonal count, else those left of it. unit: the diagonal is of ones, and not read.
    """

    n: int = extent()
    k: int = extent()
    tokens: int = extent()
    upper: bool = flag(False)
    unit: bool = flag(False)
    element: ElementKind = element(ELEMENTS)

    @property
    def edges(self) -> int:
        """How many offsets there are."""
        return self.n + 1


def _offsets(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: an entry a row where there are as many, the others anywhere."""
    spare = max(desc.tokens - desc.n, 0)
    found = np.minimum(np.arange(desc.n + 1), desc.tokens)
    found[1:] += np.sort(rng.integers(0, spare + 1, desc.n))
    found[-1] = desc.tokens
    return found


def _columns(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: at times no columns of A."""
    far = rng.choice((-1, desc.n, -(2**31), 2**31 - 1), shape)
    return np.where(rng.random(shape) < rng.choice((0.0, 0.1)), far, rng.integers(0, max(desc.n, 1), shape))


@finite_only  # the bound is relative, which roundings of subnormals are not
def _numbers(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data."""
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if desc.element.is_complex else x


@dataclass(slots=True, kw_only=True)
class SparseTriangularSolveArgs(Args):
    """Any strides; columns and offsets are int64 or int32; x may be b itself."""

    values: Array = operand("tokens", values=_numbers)
    columns: Array = operand("tokens", element=INDICES, values=_columns)
    offsets: Array = operand("edges", element=INDICES, values=_offsets)
    b: Array = operand("n k", values=_numbers)
    x: Array = output("n k", inplace=("b",))


def reference(
    desc: SparseTriangularSolveDescriptor, *, values: Any, columns: Any, offsets: Any, b: Any
) -> Mapping[str, Any]:  # fmt: skip
    """Row by row."""
    x, n = np.array(b), desc.n
    edges = np.clip(offsets.astype(np.int64), 0, desc.tokens)
    with np.errstate(all="ignore"):
        for r in reversed(range(n)) if desc.upper else range(n):
            at, v = columns[edges[r] : edges[r + 1]], values[edges[r] : edges[r + 1]]
            off = ((at > r) & (at < n)) if desc.upper else ((at >= 0) & (at < r))
            x[r] = x[r] - (v[off][:, None] * x[at[off]]).sum(0)
            if not desc.unit:
                x[r] = x[r] / v[at == r].sum()
    return {"x": x}


def triangle(desc: SparseTriangularSolveDescriptor, values: Any, columns: Any, offsets: Any) -> Any:
    """The matrix that is solved with."""
    n, edges = desc.n, np.clip(np.asarray(offsets, np.int64), 0, desc.tokens)
    made = np.zeros((n, n), values.dtype)
    for r in range(n):
        at, v = columns[edges[r] : edges[r + 1]], values[edges[r] : edges[r + 1]]
        known = (at >= 0) & (at < n)
        np.add.at(made[r], at[known], v[known])
    made = np.triu(made, int(desc.unit)) if desc.upper else np.tril(made, -int(desc.unit))
    return made + np.eye(n).astype(made.dtype) if desc.unit else made


def residual(
    desc: SparseTriangularSolveDescriptor, name: str, *, values: Any, columns: Any, offsets: Any, b: Any, x: Any
) -> Any:  # fmt: skip
    """‖A X - B‖ / (n ‖A‖ ‖X‖) in the norm of the largest row; 0 where a diagonal is 0 and X is not finite."""
    matrix = triangle(desc, values, columns, offsets)
    if not np.diag(matrix).all() and not np.isfinite(x).all():
        return np.zeros(())
    off, scale = row_size(matrix @ x - b), max(desc.n, 1) * row_size(matrix) * row_size(x)
    return np.where(off == 0, 0, off / np.where(scale == 0, 1, scale))


def geometry(p: Problem) -> Geometry | str:
    """The flags of rows are cleared, then a warp takes each row."""
    desc: SparseTriangularSolveDescriptor = p.desc
    if not p.x.size:
        return Geometry(())
    tiles = -(-desc.k // _SIDES)
    if desc.n >= 2**31 or tiles > 65535:
        return f"2^31 or more rows, or more than {65535 * _SIDES} right sides"
    marks = desc.n * tiles
    params = {
        "flags": ("@workspace", 0), "marks": marks, "n": desc.n, "sides": desc.k, "tokens": desc.tokens,
        "values_step": p.values.strides[0], "columns_step": p.columns.strides[0], "offsets_step": p.offsets.strides[0],
        "b_steps": p.b.strides, "x_steps": p.x.strides, "upper": int(desc.upper), "unit": int(desc.unit),
        "columns_wide": p.columns.element is I64, "offsets_wide": p.offsets.element is I64,
    }  # fmt: skip
    steps = (
        Step("clear", (-(-marks // _THREADS), 1, 1), params, block=_THREADS),
        Step("solve", (desc.n, tiles, 1), params, block=_WARP),
    )
    dense = all(view.dense for view in (p.values, p.columns, p.offsets, p.b, p.x))
    return Geometry(steps, aligned(4 * marks), "contiguous" if dense else "strided")


_PARAMS = Params(
    "SparseTriangularParams", values="ptr", columns="ptr", offsets="ptr", b="ptr", x="ptr", flags="ptr", marks="i64",
    n="i64", sides="i64", tokens="i64", values_step="i64", columns_step="i64", offsets_step="i64", b_steps="i64[2]",
    x_steps="i64[2]", upper="i32", unit="i32", columns_wide="i32", offsets_wide="i32",
)  # fmt: skip


def random_triangle(torch: Any, desc: SparseTriangularSolveDescriptor) -> dict[str, Any]:
    """Rows of as many entries of a lower triangle, near the diagonal, which comes first."""
    per = desc.tokens // desc.n
    rows = torch.arange(desc.n).repeat_interleave(per)
    columns = (rows - torch.randint(1, 4096, (desc.tokens,))).clamp_min(0)
    columns[::per] = torch.arange(desc.n)
    values = torch.randn(desc.tokens) / (4 * per)
    values[::per] = 1
    return {"values": values, "columns": columns, "offsets": torch.arange(desc.n + 1) * per}


class SparseTriangularSolvePlan(Plan):
    """x with A x = b, A the lower triangle of a sparse matrix in CSR, or (`upper`) the upper one (cuSPARSE's SpSM).

    What stands beyond the triangle is not read, with `unit` nor is the diagonal, which is of ones. An entry that stands
    several times counts as the sum. f32, f64, complex64, complex128. No levels are found: a warp takes a row and waits
    for the rows that it needs, so the time is that of the longest chain. The order of sums is that of a row's entries.
    """

    op = "sparse.sparse_triangular_solve"
    descriptor = SparseTriangularSolveDescriptor
    args = SparseTriangularSolveArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = (
        "a diagonal that is not there is 0, and divided by: infinities and NaN follow; a column outside [0, n), or an "
        "offset outside [0, tokens], leaves its entries out"
    )
    variants = (
        Variant(
            "warps", geometry, "sparse/triangular_solve.cu",
            (
                Kernel("clear", "sparse_triangular_clear", _PARAMS, threads=_THREADS),
                Kernel("solve", "sparse_triangular_solve<{T}>", _PARAMS, threads=_WARP),
            ),
            elements=ELEMENTS, guarantee=Guarantee(Backward(2.0), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "1048576 rows of 16 entries f32", n=1 << 20, k=1, tokens=16 << 20, element="float32", target=None, peers=(),
            work=BYTES, make=random_triangle,
        ),
    )  # fmt: skip

    @staticmethod
    def torch(
        torch: Any, desc: SparseTriangularSolveDescriptor, *, values: Any, columns: Any, offsets: Any, b: Any
    ) -> Any:  # fmt: skip
        """torch.linalg.solve_triangular of the whole matrix."""
        n, edges = desc.n, offsets.long().clamp(0, desc.tokens)
        place = torch.arange(desc.tokens, device=values.device)
        rows = torch.searchsorted(edges.contiguous(), place, right=True) - 1
        columns = columns.long()
        known = (rows >= 0) & (rows < n) & (columns >= 0) & (columns < n)
        at = torch.where(known, rows * n + columns, n * n)
        dense = torch.zeros(n * n + 1, dtype=values.dtype, device=values.device).index_add(0, at, values)
        return {
            "x": torch.linalg.solve_triangular(
                dense[: n * n].reshape(n, n), b, upper=desc.upper, unitriangular=desc.unit
            )
        }

    @staticmethod
    def case(draw: Any) -> SparseTriangularSolveDescriptor:
        n = draw.sizes(0, 1, 2, 7, 33)
        return SparseTriangularSolveDescriptor(
            n=n, k=draw.sizes(0, 1, 3, 9), tokens=n * draw.choice((1, 3, 37)), upper=draw.flag(), unit=draw.flag(),
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: SparseTriangularSolveDescriptor, arrays: dict[str, Any]) -> None:
        """Rows that each begin with their diagonal, which is large beside the sum of the others."""
        values, columns = np.array(arrays["values"]), np.array(arrays["columns"])
        if 0 < desc.n <= desc.tokens:
            first = np.asarray(arrays["offsets"])[:-1].astype(np.int64)
            values = values * values.dtype.type(1 / (8 * max(desc.tokens, 1)))
            columns[columns == np.repeat(np.arange(desc.n), np.diff(arrays["offsets"]))] = -1
            columns[first], values[first] = np.arange(desc.n), 1.5
        arrays["values"], arrays["columns"] = values, columns

    @classmethod
    def check_values(cls, desc: SparseTriangularSolveDescriptor, arrays: Mapping[str, Any]) -> str | None:
        columns, offsets = np.asarray(arrays["columns"]), np.asarray(arrays["offsets"]).astype(np.int64)
        if ((columns < 0) | (columns >= desc.n)).any():
            return f"columns must lie in [0, {desc.n})"
        if (np.diff(offsets) < 0).any() or offsets[0] != 0 or offsets[-1] != desc.tokens:
            return f"offsets must ascend from 0 to {desc.tokens}, the number of entries"
        return None

    @classmethod
    def bytes(cls, desc: SparseTriangularSolveDescriptor) -> int:
        size = desc.element.itemsize
        return (8 + size) * desc.tokens + (8 + 2 * size * desc.k) * desc.n + desc.tokens * size * desc.k


_systems: Any = functional(SparseTriangularSolvePlan)


def sparse_triangular_systems(values: Any, columns: Any, offsets: Any, b: Any, **given: Any) -> Any:
    """`SparseTriangularSolvePlan` as a function."""
    return _systems(values, columns, offsets, b, **given)
