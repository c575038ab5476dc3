"""Products whose exchanges run beside them: what ranks sum goes out chunk by chunk, what they gather comes by ranks.

A chunk is some rows, and products are asked to give rows the same bits in every chunk (`shares.SAME_ROWS`); sums over
ranks are those of `tree`. So the chunks change no bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from ..core.arrays import read
from ..core.element import ElementKind
from ..core.preference import preferred
from ..core.views import broadcast, cut, reshaped, shape_of, transposed
from ..expressions.elementwise import elementwise
from ..ops.elementwise.binary_functions import add
from ..ops.elementwise.cast import cast
from ..ops.gemm.gemm import GemmArgs, GemmDescriptor, GemmPlan
from ..ops.gemm.linear import linear
from ..ops.gemm.matmul import matmul
from .device import BLOCK
from .lanes import Lane
from .refs import shares
from .shares import product_of_slices
from .tree import tree

Rows = tuple[int, int]


def _rows(x: Any, first: int, end: int) -> Any:
    return cut(x, (slice(first, end),), "rows")


def _product(
    lane: Lane, a: Any, b: Any, more: dict[str, Any], beside: bool, acc: Any = None, bias: Any = None, out: Any = None
) -> Any:
    """a @ b + bias in `acc`, b one matrix; beside an exchange by a grid that leaves it room."""
    spared, at = lane.spared if beside else None, read(a, "a")
    if spared is None:
        if bias is None:
            return matmul(a, b, out_element=acc, out=out, **more)
        return linear(a, transposed(b, "b"), bias, out=out, **more)
    *batch, m, k = at.shape
    n = shape_of(b, "b")[1]
    kind = at.element if acc is None else ElementKind.of(acc)
    desc = GemmDescriptor(batch_shape=tuple(batch), m=m, n=n, k=k, element=at.element, out_element=kind)
    plan = GemmPlan.select(desc, preferred(more["preference"]), device=spared)
    made = lane.empty((*batch, m, n), kind) if out is None else out
    right = broadcast(b, (*batch, k, n), "b") if batch else b
    plan.run(GemmArgs(a=a, b=right, bias=bias, y=made), None, more["stream"])
    return made


class Summed:
    """Σ over ranks of a @ b, then + bias, in a's element: [rows, n] on every rank, or scattered this rank's rows.

    a: [rows, k]; b: [k, n]; bounds: the slices of k (`slice_bounds`). Made, it has launched all but the end of the last
    chunk: what does not need the result can be launched before `result()`.
    """

    def __init__(
        self, lane: Lane, name: str, a: Any, b: Any, bounds: Sequence[Rows], acc: str, chunks: int, scattered: bool,
        more: dict[str, Any], bias: Any = None, out: Any = None,
    ) -> None:  # fmt: skip
        comm, n = lane.comm, shape_of(b, "b")[1]
        self.lane, self.name, self.scattered, self.more, self.bias = lane, name, scattered, more, bias
        self.kind, self.acc, self.columns = read(a, "a").element, ElementKind.of(acc), n
        rows, k = shape_of(a, "a")
        lane.agree(name, rows=rows, columns=n, element=self.kind, chunks=chunks, scattered=scattered)
        own = rows // comm.size if scattered else rows
        self.y = lane.hold(lane.empty((own, n), self.kind)) if out is None else out
        left = reshaped(a, (comm.size, own, k), "a") if scattered else a
        held: list[tuple[int, list[int], list[Any], Any]] = []
        for first, end in chunk_bounds(own, chunks):
            part = cut(left, (slice(None), slice(first, end)) if scattered else (slice(first, end),), "a")
            partial = lane.hold(product_of_slices(
                part, b, bounds, lambda x, w: _product(lane, x, w, more, bool(held), acc), more["stream"]
            ))  # fmt: skip
            lane.follow()
            held.append(self._sent(first, end, partial))
            if len(held) > 1:
                self._finish(*held.pop(0))
        self._last = held

    def _sent(self, first: int, end: int, partial: Any) -> tuple[int, list[int], list[Any], Any]:
        """A chunk's pieces go to the ranks that sum them."""
        lane, comm = self.lane, self.lane.comm
        if self.scattered:
            counts = [end - first] * comm.size
            pieces = [partial[rank] for rank in range(comm.size)]
        else:
            counts = shares(end - first, comm.size)
            pieces = [_rows(partial, *ends) for ends in pairwise([0, *accumulate(counts)])]
        own, mine = pieces[comm.rank], counts[comm.rank]
        parts = [
            own if rank == comm.rank else lane.hold(lane.empty((mine, self.columns), self.acc))
            for rank in range(comm.size)
        ]
        others = [r != comm.rank for r in range(comm.size)]
        lane.exchange(
            self.name,
            [one if other else None for one, other in zip(pieces, others, strict=True)],
            [one if other else None for one, other in zip(parts, others, strict=True)],
        )
        return first, counts, parts, lane.mark()

    def _finish(self, first: int, counts: list[int], parts: list[Any], mark: Any) -> None:
        """The sum of a chunk's parts, rounded, and where every rank has it all, its way to the others."""
        lane, comm = self.lane, self.lane.comm
        lane.wait(mark)
        if self.scattered:
            self._total(parts, _rows(self.y, first, first + counts[0]))
            return
        ends = [first + at for at in (0, *accumulate(counts))]
        places = [_rows(self.y, *pair) for pair in pairwise(ends)]
        self._total(parts, places[comm.rank])
        lane.follow()
        others = [rank != comm.rank for rank in range(comm.size)]
        lane.exchange(
            self.name,
            [places[comm.rank] if other else None for other in others],
            [one if other else None for one, other in zip(places, others, strict=True)],
        )

    def _total(self, parts: list[Any], y: Any) -> None:
        if 0 in shape_of(y, "y"):
            return
        if self.lane.ordinal < 0:  # the formulas of the host are evaluated in float64: one sum, one call
            total = tree(parts, lambda a, b: add(a, b))
            if self.bias is None:
                cast(total, str(self.kind), out=y)
            else:
                elementwise(f"{self.kind}(s + b)")(s=total, b=self.bias, out=y)
            return
        stream = self.more["stream"]
        while len(parts) > BLOCK:
            blocks = [parts[i : i + BLOCK] for i in range(0, len(parts), BLOCK)]
            parts = [
                self._added(block, self.lane.empty(shape_of(y, "y"), self.acc), "{}", {}, stream) for block in blocks
            ]
        more = {} if self.bias is None else {"b": self.bias}
        self._added(parts, y, f"{self.kind}({{}})" if self.bias is None else f"{self.kind}({{}} + b)", more, stream)

    @staticmethod
    def _added(parts: list[Any], y: Any, text: str, more: dict[str, Any], stream: Any) -> Any:
        names = [f"x{i}" for i in range(len(parts))]
        formula = elementwise(text.format(tree(names, "({} + {})".format)))
        return formula(**dict(zip(names, parts, strict=True)), **more, out=y, stream=stream)

    def result(self) -> Any:
        """The rows, after the exchanges."""
        for one in self._last:
            self._finish(*one)
        self._last = []
        self.lane.wait(self.lane.mark())
        return self.y


class Gathered:
    """Every rank's rows x [rows, k], which come rank after rank from the next one on while others are multiplied."""

    def __init__(self, lane: Lane, name: str, x: Any) -> None:
        comm, (rows, k) = lane.comm, shape_of(x, "x")
        self.lane, self.own, self.rows = lane, x, rows
        lane.agree(name, rows=rows, columns=k, element=read(x, "x").element, gathered=True)
        self.whole = lane.hold(lane.empty((comm.size * rows, k), read(x, "x").element))
        sent = _dense(lane, x, _rows(self.whole, comm.rank * rows, (comm.rank + 1) * rows))
        lane.follow()
        self._marks: list[tuple[int, Any]] = []
        for step in range(1, comm.size):
            to, source = (comm.rank - step) % comm.size, (comm.rank + step) % comm.size
            sends, receives = [None] * comm.size, [None] * comm.size
            sends[to], receives[source] = sent, self._part(source)
            lane.exchange(name, sends, receives)
            self._marks.append((source, lane.mark()))

    def _part(self, rank: int) -> Any:
        return _rows(self.whole, rank * self.rows, (rank + 1) * self.rows)

    def parts(self) -> Iterator[tuple[Rows, Any]]:
        """((first row, end), the rows) of this rank, then of the others as they come."""
        for rank, mark in ((self.lane.comm.rank, None), *self._marks):
            self.lane.wait(mark)
            yield (rank * self.rows, (rank + 1) * self.rows), self._part(rank)

    def all(self) -> Any:
        """All rows, when they have come."""
        self.lane.wait(self.lane.mark())
        return self.whole


def _dense(lane: Lane, x: Any, into: Any) -> Any:
    """x copied to its own place among all rows, from where it is sent."""
    if 0 not in shape_of(x, "x"):
        elementwise("x")(x, out=into, stream=lane.stream)
    return into


def product_of_gathered(gathered: Gathered, b: Any, bias: Any, more: dict[str, Any], out: Any = None) -> Any:
    """gathered @ b + bias, [all rows, n], in the order in which rows come."""
    lane, n = gathered.lane, shape_of(b, "b")[1]
    y = lane.empty((gathered.rows * lane.comm.size, n), read(b, "b").element) if out is None else out
    for number, ((first, end), part) in enumerate(gathered.parts(), 1):
        _product(lane, part, b, more, number < lane.comm.size, None, bias, _rows(y, first, end))
    return y


def chunk_bounds(rows: int, chunks: int) -> list[Rows]:
    """Rows in so many chunks, of whole tiles where there are enough rows."""
    unit = 256 if rows >= 256 * chunks else 1
    steps = -(-rows // unit)
    marks = [min(rows, unit * (steps * i // chunks)) for i in range(chunks + 1)]
    return [pair for pair in pairwise(marks) if pair[0] < pair[1]] or [(0, rows)]
