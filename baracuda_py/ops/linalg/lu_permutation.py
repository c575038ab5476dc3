"""The order of rows that the pivots of LU factors come to (jax.lax.linalg.lu_pivots_to_permutation)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant, element,
    extent, extents, flag, integer, operand, output,
)  # fmt: skip
from ...calls.entries import entry
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import INT32
from ...core.errors import InvalidProblemError
from ...schedules.in_library import COPY, COPY_SOURCE, Place, piece, sequence
from ...schedules.library_matrices import as_rows, whole

_THREADS = 128


@dataclass(frozen=True, kw_only=True)
class LuPermutationDescriptor(Descriptor):
    """pivots are [*batch_shape, count], permutation [*batch_shape, rows].

    first: the number that pivots give the first row, 1 of LAPACK's and torch's, 0 of JAX's. inverse: the inverse order.
    """

    batch_shape: tuple[int, ...] = extents(())
    count: int = extent()
    rows: int = extent()
    first: int = integer(1, minimum=0, maximum=1)
    inverse: bool = flag(False)
    element: ElementKind = element((ElementKind.I32,))

    def validate(self) -> None:
        """A row has one pivot at the most."""
        if self.count > self.rows:
            raise InvalidProblemError(f"rows must be at least the number of pivots, {self.count}, got {self.rows}")
        if self.rows > INT32:
            raise InvalidProblemError(f"rows must be numbers of int32, got {self.rows}")


def _swaps(rng: np.random.Generator, desc: LuPermutationDescriptor, shape: tuple[int, ...]) -> Any:
    """Test data: pivots, and at times numbers of no row."""
    own = np.arange(shape[-1])
    found = own + rng.integers(0, np.maximum(desc.rows - own, 1), shape) + desc.first
    far = rng.choice((-1, desc.rows + desc.first, -(2**31), 2**31 - 1), shape)
    return np.where(rng.random(shape) < rng.choice((0.0, 0.2)), far, found)


@dataclass(slots=True, kw_only=True)
class LuPermutationArgs(Args):
    """Any strides."""

    pivots: Array = operand("*batch_shape count", values=_swaps)
    permutation: Array = output("*batch_shape rows")


def reference(desc: LuPermutationDescriptor, *, pivots: Any) -> Mapping[str, Any]:
    """The swaps in turn."""
    made = np.empty((*desc.batch_shape, desc.rows), np.int32)
    made[...] = np.arange(desc.rows)
    steps = range(desc.count)
    for i in reversed(steps) if desc.inverse else steps:
        to = pivots[..., i, None].astype(np.int64) - desc.first
        to = np.where((to >= 0) & (to < desc.rows), to, i)
        held = np.take_along_axis(made, to, -1)
        np.put_along_axis(made, to, made[..., i, None].copy(), -1)
        made[..., i, None] = held
    return {"permutation": made}


PARAMS = Params(
    "LuPermutationParams", permutation="ptr", pivots="ptr", count="i64", rows="i64", first="i32", inverse="i32"
)
_KERNEL = Kernel("lu_permutation", "lu_permutation", PARAMS, threads=_THREADS, source="linalg/lu_permutation.cu")


def geometry(p: Problem) -> Geometry | str:
    """A block for each matrix, on dense vectors: copies where operands are not."""
    desc: LuPermutationDescriptor = p.desc
    if not p.permutation.size:
        return Geometry(())
    dense = p.pivots.dense or not p.pivots.size, p.permutation.dense
    pivots, end = (Place("pivots", 0, p.pivots), 0) if dense[0] else piece(p.pivots.shape, desc.element, 0)
    made, end = (
        (Place("permutation", 0, p.permutation), end) if dense[1] else piece(p.permutation.shape, desc.element, end)
    )
    params = {
        "permutation": made.name, "pivots": pivots.name, "count": desc.count, "rows": desc.rows, "first": desc.first,
        "inverse": desc.inverse,
    }  # fmt: skip
    blocks = int(np.prod(desc.batch_shape, dtype=np.int64))
    steps = sequence(
        () if dense[0] else whole(as_rows(pivots.view), as_rows(p.pivots), pivots.name, "pivots"),
        (Step("lu_permutation", (blocks, 1, 1), params, block=_THREADS),),
        () if dense[1] else whole(as_rows(p.permutation), as_rows(made.view), "permutation", made.name),
    )
    return steps if isinstance(steps, str) else Geometry(steps, end, "contiguous" if all(dense) else "strided")


class LuPermutationPlan(Plan):
    """permutation (int32): the rows of A in the order of L U, A[permutation] = L U, by the pivots of `lu_factor`.

    It begins as 0, 1, …, and number i is exchanged with number pivots[i] - first, for i = 0, 1, … in turn; `inverse`
    begins with the last i. A pivot that names no row exchanges nothing.
    """

    op = "linalg.lu_permutation"
    descriptor, args, reference = LuPermutationDescriptor, LuPermutationArgs, staticmethod(reference)
    value_policy = "a pivot that names no row exchanges nothing"
    variants = (
        Variant(
            "swaps", geometry, COPY_SOURCE, (COPY, _KERNEL), elements=(ElementKind.I32,),
            guarantee=Guarantee(batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("64 of 1024", batch_shape=(64,), count=1024, rows=1024, element="int32", peers=()),)

    @staticmethod
    def torch(torch: Any, desc: LuPermutationDescriptor, *, pivots: Any) -> Any:
        """The swaps in turn: torch.lu_unpack checks no pivots."""
        made = torch.arange(desc.rows, dtype=torch.int32, device=pivots.device).expand(*desc.batch_shape, -1).clone()
        steps = range(desc.count)
        for i in reversed(steps) if desc.inverse else steps:
            to = pivots[..., i, None].long() - desc.first
            to = torch.where((to >= 0) & (to < desc.rows), to, i)
            held, own = made.gather(-1, to), made[..., i, None].clone()
            made = made.scatter(-1, to, own)
            made[..., i, None] = held
        return {"permutation": made}

    @staticmethod
    def case(draw: Any) -> LuPermutationDescriptor:
        rows = draw.sizes(0, 1, 2, 7, 150)
        count = draw.choice((0, rows // 2, rows))
        return LuPermutationDescriptor(
            batch_shape=draw.shape(0, 2, 0, 3), count=count, rows=rows, first=draw.integer(0, 1), inverse=draw.flag(),
            element=draw.element,
        )  # fmt: skip


_row_order: Any = functional(LuPermutationPlan)


def row_order(pivots: Any, rows: int, options: dict[str, Any], first: int = 1, inverse: bool = False) -> Any:
    """`LuPermutationPlan` as a function."""
    return _row_order(pivots, rows=rows, first=first, inverse=inverse, **options)


@entry(LuPermutationPlan)
def lu_pivots_to_permutation(
    pivots: Array, permutation_size: int, *, first: int, inverse: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The order of rows that pivots come to, int32 [..., permutation_size] (jax.lax.linalg.lu_pivots_to_permutation).

    pivots: int32 [..., count], count <= permutation_size. first: the number that they give the first row, 1 of
    `lu_factor`, torch and LAPACK, 0 of JAX; it has no default, since pivots do not tell. A[permutation] = L U;
    `inverse`: (L U)[permutation] = A. A pivot that names no row exchanges nothing.
    """
    facts = {"rows": permutation_size, "first": first, "inverse": inverse}
    return _row_order(pivots, **facts, out=out, stream=stream, preference=preference)
