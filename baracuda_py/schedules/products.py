"""Batched matrix products between a plan's own kernels: cuBLAS, or the kernels of `gemm/tile.cuh`.

A sum of float32 or float64 products is one chain in cuBLAS: longer ones are summed in pieces (`PIECE`), as NumPy's
are, so that errors do not grow with the length. Sums of 16-bit products are in float32, far below their rounding.

Operands are [batch, heads, rows, cols] with dense columns. Heads are those of the queries or of the keys; query heads
that share a key head are rows of one matrix. An operand whose heads or rows are unevenly spaced is copied to the
workspace first (an output is copied from there), which `workspace_size(args)` counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..backends import cublas
from ..core.args import Args, arrays_of
from ..core.device import Device
from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View, merge_axes
from ..core.variant import Geometry, Kernel, LibraryStep, Problem, Step, aligned

_SCRATCH = cublas.GemmProblem.max_workspace
_PARTIALS = 64  # bytes of it for each output at most: sixteen partials
_TILE = 64
PIECE = 1024  # products of a chain

PRODUCT = Params(
    "ProductParams", a="ptr", b="ptr", y="ptr", m="i64", n="i64", k="i64", batch="i64[3]", strides="i64[4][2]",
    alpha="f64", a_cols_dense="i32", b_cols_dense="i32",
)  # fmt: skip
COPY = Params(
    "CopyParams", x="ptr", y="ptr", stride="i64[2][3]", rows="i64", row_count="i64", cols="i64", num_heads="i64",
    wide="i32",
)  # fmt: skip
COPY_KERNEL = Kernel("copy", "copy_rows<{T}>", COPY)
PRODUCT_KERNEL = Kernel("product", f"product<{{T}}, {PIECE}>", PRODUCT, min_blocks=2)


@dataclass(frozen=True)
class Place:
    """A place in memory: an operand's name, or "@workspace" and a byte offset."""

    name: str
    offset: int = 0

    @property
    def slot(self) -> str | tuple[str, int]:
        """As a pointer of `Step.params`."""
        return (self.name, self.offset) if self.offset else self.name


NOWHERE = Place("@null")


@dataclass(frozen=True)
class Stack:
    """`count` matrices [rows, cols]: row pitch `ld`, matrix pitch `step`; transposed: [cols, rows] in memory."""

    place: Place
    element: ElementKind
    count: int
    rows: int
    cols: int
    ld: int
    step: int
    alignment: int
    trans: bool = False

    @property
    def t(self) -> Stack:
        """The transposed matrices, over the same memory."""
        return replace(self, rows=self.cols, cols=self.rows, trans=not self.trans)

    @property
    def strides(self) -> tuple[int, int]:
        """From row to row and from column to column."""
        return (1, self.ld) if self.trans else (self.ld, 1)

    @property
    def matrix(self) -> cublas.Matrix:
        """The description that cuBLAS takes."""
        return cublas.Matrix(str(self.element), self.trans, self.ld, self.step, self.alignment)


@dataclass(frozen=True)
class Heads:
    """[batch, heads, rows, cols] in memory: strides in elements, columns dense."""

    place: Place
    view: View

    @property
    def wide(self) -> bool:
        """Whether every row starts 16-byte aligned."""
        return self.view.aligned(16)

    @property
    def strides(self) -> tuple[int, ...]:
        """Those of batch, heads and rows."""
        return self.view.strides[:3]

    def stack(self, kv_heads: int) -> Stack | None:
        """One matrix for each key head, the rows of its query heads below each other; None where a stride is uneven."""
        (batch, heads, rows, cols), (along_batch, along_heads, along_rows, _) = self.view.shape, self.view.strides
        group = heads // max(kv_heads, 1)
        _, (outer,) = merge_axes((batch, kv_heads), [(along_batch, along_heads * group)])
        _, (inner,) = merge_axes((group, rows), [(along_heads, along_rows)])
        if len(outer) > 1 or len(inner) > 1:
            return None
        ld, step = inner[0] if inner else max(cols, 1), outer[0] if outer else 0
        if ld < max(cols, 1) or step < 0:
            return None
        spots = self.view.ptr | ld * self.view.element.itemsize | step * self.view.element.itemsize
        alignment = min(16, spots & -spots) if spots else 16
        return Stack(self.place, self.view.element, batch * kv_heads, group * rows, cols, ld, step, alignment)


class Products:
    """Collects the steps of a plan, and the workspace that they take."""

    def __init__(self, p: Problem, args: type[Args], *, library: bool) -> None:
        self.p, self.library = p, library
        self.kv_heads: int = p.desc.num_kv_heads
        self.steps: list[Step | LibraryStep] = []
        self._names = [spec.name for spec in arrays_of(args)]
        self._used = 0
        self._outputs = 0  # of the largest product
        self._copies: dict[str, Heads] = {}

    def reserve(self, nbytes: int) -> Place:
        """Reserves part of the workspace."""
        place = Place("@workspace", self._used)
        self._used += aligned(nbytes)
        return place

    def hold(self, heads: int, rows: int, cols: int) -> Heads:
        """Reserves room for [batch, heads, rows, cols] of the element, rows 16-byte aligned."""
        kind, batch = self.p.desc.element, self.p.desc.batch_size
        width = 16 // kind.itemsize
        pitch = max(width, -(-cols // width) * width)
        strides = (heads * rows * pitch, rows * pitch, pitch, 1)
        return Heads(
            self.reserve(batch * heads * rows * pitch * kind.itemsize),
            View(0, (batch, heads, rows, cols), strides, kind),
        )

    def operand(self, name: str) -> Heads:
        """An operand in its own memory."""
        return Heads(Place(name), self.p.views[name])

    def room(self, name: str) -> Heads | None:
        """An output's own memory, where products can read and write it; else None."""
        if self.p.views[name] is None:
            return None
        heads = self.operand(name)
        return heads if heads.wide and heads.stack(self.kv_heads) is not None else None

    def even(self, heads: Heads) -> Stack:
        """The matrices of memory from `hold` or `room`."""
        found = heads.stack(self.kv_heads)
        assert found is not None
        return found

    def read(self, name: str) -> Stack:
        """An input's matrices; of a copy where its strides are uneven."""
        heads = self.operand(name)
        found = heads.stack(self.kv_heads)
        if found is not None:
            return found
        if name not in self._copies:
            copy = self._copies[name] = self.hold(*heads.view.shape[1:])
            self.copy(heads, copy)
        return self.even(self._copies[name])

    def multiply(self, a: Stack, b: Stack, to: str, alpha: float = 1.0) -> None:
        """Output `to` = alpha · a b, through the workspace where its strides are uneven."""
        heads = self.operand(to)
        found = heads.stack(self.kv_heads)
        if found is not None:
            self.product(a, b, found, alpha)
            return
        held = self.hold(*heads.view.shape[1:])
        self.product(a, b, self.even(held), alpha)
        self.copy(held, heads)

    def copy(self, x: Heads, y: Heads) -> None:
        """y = x."""
        batch, heads, rows, cols = x.view.shape
        chunks = batch * heads * rows * -(-cols * x.view.element.itemsize // 16)
        if chunks:
            params = {
                "x": x.place.slot, "y": y.place.slot, "stride": [x.strides, y.strides], "rows": batch * heads * rows,
                "row_count": rows, "cols": cols, "num_heads": heads, "wide": x.wide | y.wide << 1,
            }  # fmt: skip
            self.steps.append(Step("copy", (-(-chunks // 256), 1, 1), params))

    def product(self, a: Stack, b: Stack, y: Stack, alpha: float = 1.0) -> None:
        """y = alpha · a b, one product for each key head."""
        m, n, k = y.rows, y.cols, a.cols
        if not y.count * m * n:
            return
        self._outputs = max(self._outputs, y.count * m * n)
        if self.library:
            self.steps.append(LibraryStep(self._caller(a, b, y, alpha)))
            return
        blocks = y.count * -(-m // _TILE) * -(-n // _TILE)
        params = {
            "a": a.place.slot, "b": b.place.slot, "y": y.place.slot, "m": m, "n": n, "k": k,
            "batch": (a.step, b.step, y.step), "strides": [a.strides, b.strides, (0, 0), y.strides], "alpha": alpha,
            "a_cols_dense": int(not a.trans), "b_cols_dense": int(not b.trans),
        }  # fmt: skip
        self.steps.append(Step("product", (blocks, 1, 1), params))

    def _caller(self, a: Stack, b: Stack, y: Stack, alpha: float) -> Callable[[Device], Callable[..., None]]:
        """The prepared call of a product; the library's own workspace comes last."""
        where = [
            (self._names.index(s.place.name) if s.place.name in self._names else None, s.place.offset)
            for s in (a, b, y)
        ]
        problem: dict[str, Any] = {
            "m": y.rows, "n": y.cols, "a": a.matrix, "b": b.matrix, "d": y.matrix, "batch": y.count,
            "compute": str(y.element.acc),
        }  # fmt: skip
        size = y.element.itemsize
        length = PIECE if y.element is y.element.acc else max(a.cols, 1)

        def prepare(device: Device) -> Callable[..., None]:
            start, scratch = self._used, self.scratch
            pieces = [(at, min(length, a.cols - at)) for at in range(0, a.cols, length)] or [(0, 0)]
            shifts = [(at * a.strides[1] * size, at * b.strides[0] * size, k) for at, k in pieces]
            gemms = {
                k: cublas.prepare(cublas.GemmProblem(**problem, k=k, max_workspace=scratch), device)
                for k in {k for _, k in pieces}
            }

            def call(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
                left, right, to = ((workspace if i is None else pointers[i]) + offset for i, offset in where)
                beta = 0.0
                for along_a, along_b, k in shifts:
                    gemms[k].run(
                        left + along_a, right + along_b, 0, to, alpha, beta, workspace + start, scratch, stream
                    )
                    beta = 1.0

            return call

        return prepare

    @property
    def scratch(self) -> int:
        """Bytes of workspace for the library."""
        return aligned(min(_SCRATCH, _PARTIALS * self._outputs)) if self.library else 0

    def geometry(self, layout: str) -> Geometry:
        """The launch of all collected steps."""
        return Geometry(tuple(self.steps), self._used + self.scratch, layout)


def refuse_library(p: Problem) -> str | None:
    """Why cuBLAS does not take this problem, or None."""
    desc = p.desc
    if 0 in (desc.batch_size, desc.num_heads, desc.query_len, desc.key_len, desc.d_k, desc.d_v):
        return "cuBLAS takes no empty extents"
    return None
