"""Counting sort: a stable sort of tokens by row, `kernels/include/baracuda/segments.cuh` is the device side."""

from __future__ import annotations

SORT_THREADS = 1024  # of a block, which looks at one part of the tokens
RANGE = 4096  # rows that a block counts in shared memory
COUNTING = {"sort_threads": SORT_THREADS, "range_rows": RANGE}
"""Params fields of ops that sort so."""
