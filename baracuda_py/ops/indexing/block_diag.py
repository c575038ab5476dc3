"""block_diag: matrices along the diagonal of one (torch.block_diag, scipy.linalg.block_diag), and its gradient."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant, Vjp,
    element, operand, output, shapes,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.element import COMPLEX, FLOATS
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.tensor import Shape, View
from ...core.views import shape_of, with_axis
from ...schedules.concat import IN_ROWS, rows_apart
from .indexed import MOVED

CAPACITY = 64  # matrices a launch: their places travel in its parameters
THREADS, IN_FLIGHT = 256, 4  # chunks of a thread


def _starts(shapes: Sequence[Shape]) -> list[tuple[int, int]]:
    """The row and column of y that each matrix begins at, and where the last one ends."""
    rows, columns = ([shape[axis] for shape in shapes] for axis in (0, 1))
    return list(zip(*(itertools.accumulate(each, initial=0) for each in (rows, columns)), strict=True))


def _matrices(shapes: Sequence[Shape]) -> None:
    for i, shape in enumerate(shapes):
        if len(shape) != 2:
            raise InvalidProblemError(f"shapes[{i}] must be (rows, columns), got {shape}")


@dataclass(frozen=True, kw_only=True)
class BlockDiagDescriptor(Descriptor):
    """Matrices of these shapes, (rows, columns) each, of which either may be 0."""

    shapes: tuple[tuple[int, ...], ...] = shapes()
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        _matrices(self.shapes)

    @property
    def out_shape(self) -> Shape:
        """The shape of y: all rows, all columns."""
        return _starts(self.shapes)[-1]


@dataclass(slots=True, kw_only=True)
class BlockDiagArgs(Args):
    """Any strides."""

    matrices: list[Array] = operand(many="shapes")
    y: Array = output("*out_shape")


def reference(desc: BlockDiagDescriptor, *, matrices: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    y = np.zeros(desc.out_shape, matrices[0].dtype if matrices else desc.element.carrier)
    for x, (row, column) in zip(matrices, _starts(desc.shapes), strict=False):
        y[row : row + x.shape[0], column : column + x.shape[1]] = x
    return {"y": y}


_TABLES = {"place": f"i64[{CAPACITY}]", "extent": f"i64[{CAPACITY}]", "strides": f"i64[{CAPACITY}][2]"}
PARAMS = Params(
    "BlockDiagParams", matrices=f"ptr[{CAPACITY}]", y="ptr", rows="i64", columns="i64", chunks="i64", row="i64",
    step="i64[2]", first=f"i64[{CAPACITY}]", **_TABLES, count="i32", wide="i32", lanes="i32", segments="i32",
    block_diag_in_flight=IN_FLIGHT,
)  # fmt: skip


def _width(element: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": (element.itemsize,)}


def _filled(values: Sequence[Any], empty: Any = 0) -> list[Any]:
    return [*values, *(empty,) * (CAPACITY - len(values))]


def _tables(views: Sequence[View], starts: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """What the launch of some matrices knows of each."""
    return {
        "place": _filled([column for _, column in starts]), "extent": _filled([view.shape[1] for view in views]),
        "strides": _filled([view.strides for view in views], (0, 0)), "count": len(views),
    }  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    y, size, starts = p.y, p.desc.element.itemsize, _starts(p.desc.shapes)
    width = 16 // size
    chunks, wide = -(-y.shape[1] // width), y.inner_dense and y.shape[1] % width == 0 and y.aligned(16)
    lanes = min(max(-(-chunks // IN_FLIGHT) - 1, 0).bit_length(), THREADS.bit_length() - 1)  # the logarithm of two
    segments = -(-chunks // (IN_FLIGHT << lanes))
    steps = []
    for at in range(0, len(p.matrices), CAPACITY):
        views = p.matrices[at : at + CAPACITY]
        row, rows = starts[at][0], starts[at + len(views)][0] - starts[at][0]
        blocks = -(-rows // (THREADS >> lanes)) * segments
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        if not blocks:
            continue
        params = {
            "matrices": ("matrices", at, at + len(views)), "rows": rows, "columns": y.shape[1], "chunks": chunks,
            "row": row, "step": y.strides, "first": _filled([start - row for start, _ in starts[at : at + len(views)]]),
            "wide": wide, "lanes": lanes, "segments": segments, **_tables(views, starts[at : at + len(views)]),
        }  # fmt: skip
        steps.append(Step("block_diag", (blocks, 1, 1), params, {"BYTES": size}, THREADS))
    return Geometry(tuple(steps), layout=_layout(p.matrices, y))


def _layout(matrices: Sequence[View], whole: View) -> str:
    return "contiguous" if whole.dense and all(view.dense for view in matrices) else "strided"


class BlockDiagPlan(Plan):
    """y = the matrices along its diagonal, each below and to the right of the one before, 0 elsewhere.

    torch.block_diag of matrices; those without rows or columns take up what they have. Elements are moved as they are.
    """

    op = "indexing.block_diag"
    descriptor = BlockDiagDescriptor
    args = BlockDiagArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("BlockDiagBackwardPlan", grads={"matrices": "dmatrices"})
    variants = (
        Variant(
            "words", _geometry, "indexing/block_diag.cu",
            (Kernel("block_diag", "block_diag<{BYTES}>", PARAMS, _width, threads=THREADS),), elements=MOVED,
            guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(lambda torch, desc, *, matrices: torch.block_diag(*matrices))
    benchmarks = (Benchmark("64 of [256, 256] bf16", shapes=((256, 256),) * 64, element="bfloat16", work=BYTES),)

    @staticmethod
    def case(draw: Any) -> BlockDiagDescriptor:
        return BlockDiagDescriptor(shapes=drawn(draw), element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        moved = sum(map(math.prod, desc.shapes)) + math.prod(desc.out_shape)
        return int(moved * desc.element.itemsize)


def drawn(draw: Any) -> tuple[Shape, ...]:
    """A few matrices, some without elements, some so that y has whole words; or more than a launch takes."""
    if draw.rarely():
        return tuple((i % 3, 1 + i % 2) for i in range(CAPACITY + 6))
    even = draw.choice((1, 8, 16))
    return tuple((draw.integer(0, 5), even * draw.integer(0, 4)) for _ in range(draw.integer(1, 5)))


@dataclass(frozen=True, kw_only=True)
class BlockDiagBackwardDescriptor(BlockDiagDescriptor):
    """As `BlockDiagDescriptor`."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


@dataclass(slots=True, kw_only=True)
class BlockDiagBackwardArgs(Args):
    """Any strides."""

    dy: Array = operand("*out_shape")
    dmatrices: list[Array] = output(many="shapes")


def backward_reference(desc: BlockDiagBackwardDescriptor, *, dy: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    places = zip(desc.shapes, _starts(desc.shapes), strict=False)
    return {"dmatrices": [dy[r : r + rows, c : c + columns].copy() for (rows, columns), (r, c) in places]}


BACKWARD_PARAMS = Params(
    "BlockDiagBackwardParams", dy="ptr", dmatrices=f"ptr[{CAPACITY}]", elements="i64", step="i64[2]",
    first=f"i64[{CAPACITY}]", row=f"i64[{CAPACITY}]", **_TABLES, count="i32", block_diag_in_flight=IN_FLIGHT,
)  # fmt: skip


def _backward_geometry(p: Problem) -> Geometry | str:
    starts, layout = _starts(p.desc.shapes), _layout(p.dmatrices, p.dy)
    places = [sum(k * s for k, s in zip(start, p.dy.strides, strict=True)) for start in starts[:-1]]
    rows = rows_apart(p.dy, p.dmatrices, places, ("dy", "dmatrices"))
    if rows is not None:
        return Geometry(tuple(rows), layout=layout)
    steps = []
    for at in range(0, len(p.dmatrices), CAPACITY):
        views, own = p.dmatrices[at : at + CAPACITY], starts[at : at + CAPACITY]
        *first, elements = itertools.accumulate((view.size for view in views), initial=0)
        blocks = -(-elements // THREADS)
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        if not blocks:
            continue
        params = {
            "dmatrices": ("dmatrices", at, at + len(views)), "elements": elements, "step": p.dy.strides,
            "first": _filled(first), "row": _filled([row for row, _ in own[: len(views)]]),
            **_tables(views, own[: len(views)]),
        }  # fmt: skip
        axes = {"BYTES": p.desc.element.itemsize}
        steps.append(Step("block_diag_backward", (blocks, 1, 1), params, axes, THREADS))
    return Geometry(tuple(steps), layout=layout)


def backward_in_torch(torch: Any, desc: BlockDiagBackwardDescriptor, *, dy: Any) -> Any:
    """torch's own gradient of block_diag."""
    leaves = [dy.new_zeros(shape).requires_grad_() for shape in desc.shapes]
    with torch.enable_grad():
        y = torch.block_diag(*leaves)
    return {"dmatrices": torch.autograd.grad(y, leaves, dy)}


class BlockDiagBackwardPlan(Plan):
    """dmatrices[i] = dy where matrix i stands in y."""

    op = "indexing.block_diag_backward"
    direction = "backward"
    descriptor = BlockDiagBackwardDescriptor
    args = BlockDiagBackwardArgs
    raw = True
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "words", _backward_geometry, "indexing/block_diag.cu",
            (
                Kernel("block_diag_backward", "block_diag_backward<{BYTES}>", BACKWARD_PARAMS, _width, threads=THREADS),
                *IN_ROWS,
            ),
            elements=(*FLOATS, *COMPLEX), guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(backward_in_torch)
    benchmarks = (Benchmark("64 of [256, 256] bf16", shapes=((256, 256),) * 64, element="bfloat16", work=BYTES),)

    @staticmethod
    def case(draw: Any) -> BlockDiagBackwardDescriptor:
        return BlockDiagBackwardDescriptor(shapes=drawn(draw), element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(2 * sum(map(math.prod, desc.shapes)) * desc.element.itemsize)


_block_diag = functional(BlockDiagPlan, "block_diag")
block_diag_backward = functional(BlockDiagBackwardPlan)


@entry(BlockDiagPlan)
def block_diag(*matrices: Any, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The matrices along the diagonal of one array, 0 elsewhere (torch.block_diag); a vector is a row, a number 1 × 1.

    All have one element. One launch for each 64 matrices.
    """
    if not matrices:
        raise InvalidProblemError("block_diag takes a matrix at least")
    rows = []
    for i, x in enumerate(matrices):
        shape = shape_of(x, f"matrices[{i}]")
        if len(shape) > 2:
            raise InvalidProblemError(f"matrices[{i}] must be a matrix, a vector or a number, got shape {shape}")
        for _ in range(2 - len(shape)):
            x = with_axis(x, 0, f"matrices[{i}]")
        rows.append(x)
    return _block_diag(rows, out=out, stream=stream, preference=preference)
