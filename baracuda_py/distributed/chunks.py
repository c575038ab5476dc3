"""How many chunks a layer over ranks cuts its rows into, so that exchanges run beside its products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.arrays import Reading, read
from ..core.checked import whole
from ..core.element import ElementKind
from ..core.tensor import TensorRef
from ..interop.packages import package_name
from . import refs
from .communicator import Communicator
from .lanes import Lane

ROWS = 2048
"""Fewer rows are not cut: their products fill a device as one only."""

RATES = {ElementKind.F16: 5e14, ElementKind.BF16: 5e14, ElementKind.F32: 3e13, ElementKind.F64: 5e13}
"""Products' operations a second that the choice reckons with."""

WIRE = 3e11
"""Bytes a second that a rank sends, and as many that it receives."""

MEMORY = 3e12
"""Bytes a second that a kernel reads and writes."""

START = 4e-5
"""Seconds that an exchange takes beside its bytes."""

HOST = 2e-4
"""Seconds that the host takes to launch a chunk."""

WORTH = 0.95
"""The share of the time that chunks must be reckoned to take at most."""

WAVE = 100 * 128 * 256
"""Places of a result that fill a device's multiprocessors with tiles once, nearly."""

NARROW = 1.1
"""What products take beside NCCL's kernels, which have some multiprocessors."""


def lane_for(
    overlap: int | None, comm: Any, x: Any, rows: int, columns: int, k: int, stream: Any, *, sums: bool,
    out: Any = None, reads: Sequence[Any] = (),
) -> tuple[Lane | None, int]:  # fmt: skip
    """A lane, and the chunks of a product [rows, k] @ [k, columns] on this rank; None where there is one chunk.

    overlap: the chunks, or None to choose by time. sums: ranks sum what is multiplied, in float32, else they gather the
    rows x. out, where it is given, is written while `reads` are read.
    """
    asked = None if overlap is None else whole("overlap", overlap, 1)
    if asked == 1 or not isinstance(comm, Communicator) or comm.size == 1 or not rows:
        return None, 1
    at = read(x, "x")
    there = at.device < 0 or (comm.link is not None and at.device == comm.device)
    if at.traced or package_name(type(x)) == "jax" or not there:
        return None, 1  # what is wrong is said where it is exchanged
    if out is not None and not _written_apart(out, (rows, columns), at.element, reads):
        return None, 1
    if asked is None and (at.device < 0 or isinstance(comm.peers, str) or comm.link.device.fake or rows < ROWS):
        return None, 1
    lane = Lane(comm, x, stream)
    lane.prepare()
    if asked is not None:
        return lane, min(asked, rows)
    take, slower = _of_sums if sums else _of_shares, 1.0 if lane.copies is not None else NARROW
    chunks = take(at.element, comm.size, rows, columns, k, slower, lane.capturing)
    return (lane, chunks) if chunks > 1 else (None, 1)


def _written_apart(out: Any, shape: tuple[int, int], element: ElementKind, reads: Sequence[Any]) -> bool:
    """Whether chunks may write `out` while others are multiplied; what does not fit is refused elsewhere."""
    at = read(out, "out")
    into = _ref(at)
    if at.element is not element or at.readonly or not refs.dense(into) or at.shape[-1:] != shape[1:]:
        return False
    return not any(refs.overlap(into, _ref(read(one))) for one in reads if one is not None)


def _ref(at: Reading) -> TensorRef:
    return TensorRef.of_checked(at.ptr, at.shape, at.strides, at.element, at.device)


def _product(element: ElementKind, rows: int, columns: int, k: int) -> float:
    return 2 * rows * columns * k / RATES.get(element, 5e14)


def _of_shares(
    element: ElementKind, ranks: int, rows: int, columns: int, k: int, slower: float, capturing: bool
) -> int:
    """Rows come in the ranks' shares, whose number is what it is."""
    one, moved = _product(element, rows, columns, k) / ranks, rows * k * element.itemsize / ranks / WIRE
    at_once = ranks * one + (ranks - 1) * moved + START
    apart = (ranks - 1) * max(slower * one, moved + START) + one
    if not capturing:
        apart = max(apart, ranks * HOST)
    return ranks if apart < WORTH * at_once else 1


def _of_sums(element: ElementKind, ranks: int, rows: int, columns: int, k: int, slower: float, capturing: bool) -> int:
    """The number of chunks that takes least, if it is worth it."""
    product, places = _product(element, rows, columns, k), rows * columns
    wide, final, far = places * element.acc.itemsize, places * element.itemsize, (ranks - 1) / ranks
    # All at once: an all-reduce in the element of sums, a kernel that adds the parts, one that rounds.
    at_once = product + (wide if ranks == 2 else 2 * far * wide) / WIRE + START
    at_once += ((3 if ranks == 2 else 1 + 2 / ranks) * wide + wide + final) / MEMORY
    # In chunks: parts go to the rank that adds and rounds them, whose rows go to all in the element of y.
    moved, added = far * (wide + final) / WIRE, (wide + final / ranks) / MEMORY

    def took(chunks: int) -> float:
        one, way = slower * product / chunks, moved / chunks + START
        found = product / chunks + (chunks - 1) * max(one, way) + way + added
        return found if capturing else max(found, chunks * HOST)

    fitting = [n for n in (2, 3, 4, 6, 8) if math.ceil(rows / n) * columns >= WAVE]
    best = min(fitting, key=took, default=1)
    return best if best > 1 and took(best) < WORTH * at_once else 1
