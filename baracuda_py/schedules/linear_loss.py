"""Losses of logits x Wᵀ that are never whole in memory: chunks of rows, each a product, a pass over it, two products.

A chunk's logits lie in the workspace in rows that start 16-byte aligned, and their gradient over them where both have
one element. dW and dbias are added over the chunks in the accumulator's element: in the output itself where it has that
element, in the workspace otherwise, and rounded once. Products are rows of `GemmPlan`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.args import Args
from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, LibraryStep, Problem, Step, Variant, aligned
from .gemm import Operand, mixed_order, product_steps
from .products import Place
from .row_groups import LONG, SLAB, slabs

LEAST = 256 << 20  # bytes of a chunk's logits that are worth no further cut
_MOST = 4096  # chunks, whose launches are made ready one by one
_ROWS = 128  # a chunk has a multiple of them, if it is none of the problem's own

BIAS = Params(
    "LinearBiasParams", grad="ptr", sums="ptr", dbias="ptr", rows="i64", cols="i64", grad_pitch="i64", dbias_step="i64",
    start="i32", end="i32", long_group=LONG,
)  # fmt: skip
ROUND = Params(
    "LinearRoundParams", sums="ptr", y="ptr", rows="i64", cols="i64", pitch="i64", strides="i64[2]", wide="i32",
    long_group=LONG,
)  # fmt: skip


def chunk_rows(rows: int, cols: int, hidden: int, kind: ElementKind, weights: bool) -> int:
    """How many rows a chunk has by default.

    A chunk of logits is at most as large as the sums of dW, which every further chunk reads and writes again, or as
    LEAST; where all logits are no larger than twice those sums one chunk takes less memory than two.
    """
    logits = rows * cols * kind.itemsize
    sums = cols * hidden * kind.acc.itemsize if weights else 0
    if logits <= max(2 * sums, LEAST):
        return max(rows, 1)
    count = -(-logits // max(sums, LEAST))
    return min(-(-rows // (count * _ROWS)) * _ROWS, rows)


class Chunks:
    """Collects the steps and the workspace of a problem of x [rows, hidden] and weight [num_classes, hidden].

    product: the descriptor of a product m × n × k with an output element. rows: of `GemmPlan`, those that products are
    asked of. start: the first byte of workspace that is free.
    """

    def __init__(
        self, p: Problem, args: type[Args], gemm: type[Args], rows: Sequence[Variant],
        product: Callable[[int, int, int, ElementKind], Any], chunk: int, start: int,
    ) -> None:  # fmt: skip
        self.p, self.args, self.gemm, self.rows, self.product = p, args, gemm, rows, product
        self.count, self.hidden = p.x.shape
        self.cols = p.weight.shape[0]
        self.chunk, self.used, self.scratch = chunk, start, 0
        self.steps: list[Step | LibraryStep] = []
        self.served: list[str] = []

    @property
    def firsts(self) -> range | Sequence[int]:
        """The first row of each chunk; one empty chunk where there are no rows."""
        return range(0, self.count, self.chunk) if self.count else (0,)

    def reserve(self, rows: int, cols: int, kind: ElementKind) -> Operand:
        """Room for a matrix in the workspace."""
        width = 16 // kind.itemsize
        pitch = max(-(-cols // width), 1) * width
        place = Place("@workspace", self.used)
        self.used += aligned(max(rows, 1) * pitch * kind.itemsize)
        return Operand(place, View(0, (rows, cols), (pitch, 1), kind))

    def rows_of(self, name: str, first: int, rows: int) -> Operand:
        """Some rows of an operand."""
        view = self.p.views[name]
        shift = first * view.strides[0] * view.element.itemsize if rows else 0
        part = View(view.ptr + shift if view.ptr else 0, (rows, *view.shape[1:]), view.strides, view.element)
        return Operand(Place(name, shift), part)

    def multiply(self, a: Operand, b: Operand, y: Operand, onto: bool = False) -> str | None:
        """y = a b, or y + a b."""
        if not y.view.size:
            return None
        (m, k), n = a.view.shape, b.view.shape[1]
        operands = {"a": a, "b": b, "y": y, **({"c": y} if onto else {})}
        desc = self.product(m, n, k, y.view.element)
        found = product_steps(self.p, self.args, self.rows, self.gemm, desc, operands, self.used, (1.0, float(onto)))
        if isinstance(found, str):
            return found
        steps, nbytes, name = found
        self.steps.extend(steps)
        self.scratch = max(self.scratch, nbytes)
        self.served.append(name)
        return None

    def run(
        self, kernel: str, constants: Mapping[str, Any], element: ElementKind, axes: Mapping[str, Any],
        beside: tuple[str, str] | None = None,
    ) -> str | None:  # fmt: skip
        """Every chunk's steps, after which the outputs are written; `element` is that of the logits.

        beside: x and weight of a second model, of whose logits there is no gradient.
        """
        p, rows = self.p, min(self.chunk, self.count)
        if self.count > _MOST * self.chunk:
            return f"chunks of {self.chunk} are {-(-self.count // self.chunk)} of {self.count} rows, more than {_MOST}"
        kind = p.x.element
        wanted = p.dx is not None or p.dweight is not None or p.dbias is not None
        logits = self.reserve(rows, self.cols, element)
        grad = logits if element is kind else self.reserve(rows, self.cols, kind) if wanted else logits
        teacher = None if beside is None else self.reserve(rows, self.cols, element)
        firsts = self.firsts
        direct = p.dweight is None or kind is kind.acc or len(firsts) == 1
        sums = None if direct else self.reserve(self.cols, self.hidden, kind.acc)
        bias = None if p.dbias is None or len(firsts) == 1 else self.reserve(1, self.cols, kind.acc)
        stage = slabs(self.cols, element, p.device.smem) if wanted and teacher is None else 0
        for first in firsts:
            count = min(rows, self.count - first)
            x, own, slopes = self.rows_of("x", first, count), _first(logits, count), _first(grad, count)
            failed = self.multiply(x, Operand(Place("weight"), p.weight).t, own)
            if teacher is not None and beside is not None:
                weight = p.views[beside[1]]
                failed = failed or self.multiply(
                    self.rows_of(beside[0], first, count), Operand(Place(beside[1]), weight).t, _first(teacher, count)
                )
            if failed:
                return failed
            if count:
                params = {
                    **constants, "logits": logits.place.slot, "grad": grad.place.slot if wanted else "@null",
                    "pitch": logits.view.strides[0], "grad_pitch": grad.view.strides[0], "first": first,
                }  # fmt: skip
                if teacher is None:
                    params["stage"] = stage
                else:
                    params |= {"teacher": teacher.place.slot, "teacher_pitch": teacher.view.strides[0]}
                self.steps.append(Step(kernel, (count, 1, 1), params, axes, LONG, stage * SLAB))
            if p.dx is not None:
                failed = self.multiply(slopes, Operand(Place("weight"), p.weight), self.rows_of("dx", first, count))
            if p.dweight is not None:
                to = sums or Operand(Place("dweight"), p.dweight)
                failed = failed or self.multiply(slopes.t, x, to, first > 0)
            if failed:
                return failed
            if p.dbias is not None:
                self._bias(slopes, bias, first == 0, first == firsts[-1])
        if sums is not None:
            self._round(sums, "dweight")
        return None

    def _bias(self, grad: Operand, sums: Operand | None, start: bool, end: bool) -> None:
        (rows, cols), kind = grad.view.shape, grad.view.element
        params = {
            "grad": grad.place.slot, "sums": sums.place.slot if sums else "@null", "rows": rows, "cols": cols,
            "grad_pitch": grad.view.strides[0], "dbias_step": self.p.dbias.strides[0], "start": start, "end": end,
        }  # fmt: skip
        self.steps.append(Step("bias", (-(-cols * kind.itemsize // (32 * 16)), 1, 1), params, {}, 256))

    def _round(self, sums: Operand, name: str) -> None:
        view = self.p.views[name]
        rows, cols = view.shape
        params = {
            "sums": sums.place.slot, "y": name, "rows": rows, "cols": cols, "pitch": sums.view.strides[0],
            "strides": list(view.strides), "wide": view.strides[1] == 1 and view.aligned(16),
        }  # fmt: skip
        blocks = -(-rows * -(-cols * view.element.itemsize // 16) // 256)
        if view.size:
            self.steps.append(Step("round", (blocks, 1, 1), params, {"SUM": sums.view.element}, 256))

    def geometry(self) -> Geometry | str:
        """All launches, if the first of the rows served one of the products."""
        if self.rows[0].name not in self.served and len(self.rows) > 1:
            return f"{self.rows[0].name} takes none of the products"
        dense = all(view.dense for view in self.p.flat())
        layout = "contiguous" if dense else "strided"
        return Geometry(tuple(self.steps), self.used + self.scratch, layout, self._order())

    def _order(self) -> str:
        """What the order of sums is called. That of dbias depends on the chunks, which are others beside dweight."""
        order = mixed_order(self.served)
        if self.p.dbias is None or len(self.firsts) == 1:
            return order
        return f"{order or self.rows[0].guarantee.order} chunks of {self.chunk}"


def _first(matrix: Operand, rows: int) -> Operand:
    """The first rows of a matrix."""
    view = matrix.view
    return Operand(matrix.place, View(view.ptr, (rows, *view.shape[1:]), view.strides, view.element))
