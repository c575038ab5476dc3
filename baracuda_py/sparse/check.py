"""check: whether the indices of a sparse matrix are what its format asks, told by the host."""

from __future__ import annotations

from typing import Any

from ..core.errors import InvalidProblemError
from ..core.views import cut
from ..ops.reduce.reduce import count_nonzero  # type: ignore[attr-defined]  # made from a table
from .formats import BSR, COO, CSC, sparse_of
from .parts import Options, formula, host_count


def check(a: Any, *, stream: Any = None, preference: Any = None) -> None:
    """Raises where an index lies outside the matrix, or offsets do not ascend from 0 to the number of entries.

    Counts of what is wrong are read back, so this waits; the functions here never look, and leave such entries out.
    """
    a, options = sparse_of(a), {"stream": stream, "preference": preference}
    limits = a.grid if isinstance(a, BSR) else a.shape
    if not isinstance(a, CSC):
        _within(a.columns, "columns", limits[1], options)
    if isinstance(a, (COO, CSC)):
        _within(a.rows, "rows", limits[0], options)
    if isinstance(a, COO):
        return
    entries = a.values.shape[0]
    count = a.offsets.shape[0]
    low, high = cut(a.offsets, (slice(0, count - 1),), "offsets"), cut(a.offsets, (slice(1, count),), "offsets")
    ends = [cut(a.offsets, (slice(i, i + 1),), "offsets") for i in (0, count - 1)]
    falls = host_count(count_nonzero(formula("a > b")(a=low, b=high, **options), **options), "size", options)
    wrong = formula("a != 0 or b != n")(a=ends[0], b=ends[1], n=entries, **options)
    if falls or host_count(count_nonzero(wrong, **options), "size", options):
        raise InvalidProblemError(f"offsets must ascend from 0 to {entries}, the number of entries")


def _within(index: Any, name: str, extent: int, options: Options) -> None:
    outside = count_nonzero(formula("i < 0 or i >= n")(i=index, n=extent, **options), **options)
    if count := host_count(outside, "size", options):
        raise InvalidProblemError(f"{name} must lie in [0, {extent}), {count} do not")
