"""grouped_mm and ragged_dot: `grouped_gemm` and `grouped_inner_gemm` by PyTorch's and JAX's names and rules."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import shape_of, transposed
from ..scan.scan import cumsum
from .contraction import of_any_backend
from .grouped_gemm import GroupedGemmPlan, grouped_gemm
from .grouped_inner_gemm import grouped_inner_gemm
from .matmul import matmul


@entry(GroupedGemmPlan)
def grouped_mm(
    a: Array, b: Array, offsets: Array | None = None, bias: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Products of groups, by torch.nn.functional.grouped_mm's rules; offsets [groups]: where each group ends.

    a [rows, k], b [groups, k, n] → [rows, n]: the rows of a in groups, `grouped_gemm`; bias [groups, n].
    a [groups, m, k], b [k, columns] → [m, columns]: the columns of b in groups.
    a [m, k], b [k, n] → [groups, m, n]: k in groups, `grouped_inner_gemm`.
    a [groups, m, k], b [groups, k, n] → [groups, m, n]: without offsets, `matmul`.
    """
    ranks = len(shape_of(a, "a")), len(shape_of(b, "b"))
    given = {"out": out, "stream": stream, "preference": preference}
    if any(rank not in (2, 3) for rank in ranks):
        raise InvalidProblemError(f"a and b must have 2 or 3 axes, got {ranks[0]} and {ranks[1]}")
    if (offsets is None) != (ranks == (3, 3)):
        what = "have none" if ranks == (3, 3) else "be given"
        raise InvalidProblemError(f"offsets must {what} for operands of {ranks[0]} and {ranks[1]} axes")
    if bias is not None and ranks != (2, 3):
        raise InvalidProblemError(f"bias is for a of 2 axes and b of 3, got {ranks[0]} and {ranks[1]}")
    if ranks == (3, 3):
        return matmul(a, b, **given)
    if ranks == (2, 3):
        return grouped_gemm(a, b, offsets, bias, **given)
    if ranks == (2, 2):
        return grouped_inner_gemm(a, b, offsets, **given)
    given["out"] = None if out is None else transposed(out, "out")
    made = grouped_gemm(transposed(b, "b"), transposed(a, "a"), offsets, **given)
    return transposed(made, "y") if out is None else out


@entry(GroupedGemmPlan)
def ragged_dot(
    a: Array, b: Array, group_sizes: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[r] = a[r] b[g] for the rows r of group g, of which there are group_sizes[g] (jax.lax.ragged_dot).

    a [rows, k], b [groups, k, n], group_sizes [groups]; rows behind the last group give zeros. `grouped_gemm` of the
    running sums of the sizes: one launch more.
    """
    ends = cumsum(group_sizes, axis=0, stream=stream, preference=of_any_backend(preference))
    return grouped_gemm(a, b, ends, out=out, stream=stream, preference=preference)
