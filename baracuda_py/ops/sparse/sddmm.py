"""sddmm: the entries of a product of two dense matrices at the places of a sparse one (torch.sparse.sampled_addmm)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.composed import composed
from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Kernel, Plan, Problem, Relative, Scalar, Step, Variant, choice,
    element, extent, extents, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import BYTES, EAGER, Benchmark
from ...core.views import shape_of
from ...schedules.segments import NOTHING, By, Columns, segment_params, widths
from ..elementwise.binary_functions import mul
from ..segment.gather_scatter import gather_scatter_sum
from ..segment.segment_index import segment_ids
from ..segment.segment_kinds import (
    ELEMENTS, I64, Segmented, count_segments, index_trouble, random_segments, segment_ids_of,
)  # fmt: skip
from ..segment.segment_reduce import ids_in_torch, known_index, segment_case, tokens_of

THREADS, ENTRIES, FLIGHT = 256, 256, 4


@dataclass(frozen=True, kw_only=True)
class SddmmDescriptor(Segmented):
    """a is [num_segments, *row_shape], b [rows, *row_shape], columns, c and y [tokens]; see `Segmented` for `by`.

    The tokens are the entries of a sparse matrix, whose row the index tells: offsets of CSR, ids of COO.
    """

    rows: int = extent()
    tokens: int = extent()
    row_shape: tuple[int, ...] = extents()
    by: str = choice(tuple(by.value for by in By), By.OFFSETS.value)
    element: ElementKind = element()

    @property
    def count(self) -> int:
        return self.tokens


def random_columns(rng: Any, desc: SddmmDescriptor, shape: tuple[int, ...]) -> Any:
    """Columns, at times some that b has not."""
    far = rng.choice((-1, desc.rows, -(2**31), 2**31 - 1), shape)
    columns = rng.integers(0, max(desc.rows, 1), shape)
    return np.where(rng.random(shape) < rng.choice((0.0, 0.1)), far, columns)


@dataclass(slots=True, kw_only=True)
class SddmmArgs(Args):
    """Any strides; columns and index are int64 or int32. y may be c. alpha, beta: numbers, or 0-d device arrays."""

    a: Array = operand("num_segments *row_shape")
    b: Array = operand("rows *row_shape")
    columns: Array = operand("tokens", element=ELEMENTS, values=random_columns)
    index: Array | None = operand("index_length", element=ELEMENTS, values=random_segments, instead="evenly")
    c: Array | None = operand("tokens", optional=True)
    y: Array = output("tokens", inplace=("c",))
    alpha: Scalar = scalar(1.0)
    beta: Scalar = scalar(1.0)


def reference(
    desc: SddmmDescriptor, *, a: Any, b: Any, columns: Any, index: Any, c: Any, alpha: Any, beta: Any
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype a comes in."""
    ids = segment_ids_of(desc, index)
    tokens = np.flatnonzero((ids >= 0) & (columns >= 0) & (columns < desc.rows))
    y = np.zeros(desc.tokens, a.dtype)
    width = int(np.prod(desc.row_shape, dtype=object))
    a, b = a.reshape(desc.num_segments, width), b.reshape(desc.rows, width)
    step = max(1, (1 << 22) // max(width, 1))  # so many entries at a time, as their rows are copied
    with np.errstate(all="ignore"):
        for some in (tokens[i : i + step] for i in range(0, len(tokens), step)):
            y[some] = np.einsum("ek,ek->e", a[ids[some]], b[columns[some]])
        y = y * y.dtype.type(alpha)
        return {"y": y if c is None else y + y.dtype.type(beta) * c}


PARAMS = segment_params(
    "SddmmParams", alpha="scalar", beta="scalar", sddmm_entries=ENTRIES, sddmm_threads=THREADS
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, segments = p.desc, tokens_of(p)
    columns = Columns.of(desc.row_shape, {"x": p.b, "h": p.a}, desc.element)
    if isinstance(columns, str):
        return columns
    if refusal := segments.refusal():
        return refusal
    chunks = -(-columns.dim // (16 // desc.element.itemsize))
    params = {
        **NOTHING, **segments.told(), **columns.params, "x": "b", "h": "a", "y": "y", "y_row": p.y.strides[0],
        "src": "columns", "src_step": p.columns.strides[0], "src_wide": p.columns.element is I64, "rows": desc.rows,
        "lanes": min(32, max(FLIGHT, 1 << max(chunks - 1, 0).bit_length())),
        **({"z": "c", "z_row": p.c.strides[0]} if p.c is not None else {}),
    }  # fmt: skip
    grid = (-(-desc.tokens // ENTRIES), 1, 1)
    dense = all(v is None or v.dense for v in (p.a, p.b, p.c, p.y))
    layout = "contiguous" if dense else "inner_contiguous" if columns.vec > 1 else "strided"
    return Geometry((Step("sddmm", grid, params, {"VEC": columns.vec}, THREADS),), layout=layout)


def in_torch(
    torch: Any, desc: SddmmDescriptor, *, a: Any, b: Any, columns: Any, index: Any, c: Any, alpha: Any, beta: Any
) -> Any:  # fmt: skip
    """A gather of both rows of every entry, their product, and its sum."""
    if not desc.rows or not desc.num_segments:
        return NotImplemented
    ids, columns = ids_in_torch(torch, desc, index), columns.long()
    known = (ids < desc.num_segments) & (columns >= 0) & (columns < desc.rows)
    pair = (desc.tokens, int(np.prod(desc.row_shape, dtype=object)))
    left = a[torch.where(known, ids, 0)].reshape(pair)
    right = b[torch.where(known, columns, 0)].reshape(pair)
    y = alpha * torch.where(known, (left * right).sum(1), 0)
    return y if c is None else y + beta * c


class SddmmPlan(Plan):
    """y[e] = alpha a[row(e), :] · b[columns[e], :] + beta c[e] at the entries e of a sparse matrix (SDDMM).

    The scores of attention along the edges of a graph, and the gradient of a sparse product in its values. Sums are in
    the accumulator, in an order that the number of columns and the element fix: the bits of an entry depend on its two
    rows alone.
    """

    op = "sparse.sddmm"
    descriptor = SddmmDescriptor
    args = SddmmArgs
    reference = staticmethod(reference)
    value_policy = (
        "an entry of no row, or whose column lies outside [0, rows), has 0 in the place of the product; offsets that "
        "decrease, or unsorted ids said to be sorted, leave the rows undefined, and nothing else is touched"
    )
    variants = (
        Variant(
            "tiles", _geometry, source="sparse/sddmm.cu", guarantee=Guarantee(Relative(2), batch_invariant=True),
            kernels=(Kernel("sddmm", "sddmm<{T}, {VEC}>", PARAMS, widths, threads=THREADS),),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"1048576 entries of [131072, 131072], width {width} {kind}", rows=131072, tokens=1 << 20,
            num_segments=131072, row_shape=(width,), by="offsets", element=kind, target=None, peers=(EAGER,),
            work=BYTES, make=lambda torch, desc: random_pattern(torch, desc),
        )
        for width, kind in ((64, "bfloat16"), (128, "bfloat16"), (256, "float32"))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SddmmDescriptor:
        rows = draw.sizes(1, 4, 30, rare=(1100,))
        return SddmmDescriptor(rows=rows, **segment_case(draw))

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        count_segments(shapes, facts, By.OFFSETS.value)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        columns = np.asarray(arrays["columns"])
        if ((columns < 0) | (columns >= desc.rows)).any():
            return f"columns must lie in [0, {desc.rows})"
        return index_trouble(desc, arrays["index"])

    @classmethod
    def bytes(cls, desc: SddmmDescriptor) -> int:
        row = int(np.prod(desc.row_shape, dtype=object)) * desc.element.itemsize
        once = min(desc.tokens, desc.rows) + min(desc.tokens, desc.num_segments)
        return once * row + (8 + desc.element.itemsize) * desc.tokens + 8 * desc.index_length


def random_pattern(torch: Any, desc: SddmmDescriptor) -> dict[str, Any]:
    """A benchmark's columns and rows."""
    made = {"columns": torch.randint(0, desc.rows, (desc.tokens,))}
    return made if desc.evenly else made | {"index": known_index(torch, desc)}


_sddmm = functional(SddmmPlan, "sddmm")


def _back(
    dy: Any, a: Any, b: Any, columns: Any, index: Any, c: Any, by: str, alpha: Any, beta: Any, preference: Any
) -> tuple[Any, Any, Any]:  # fmt: skip
    """da and db are sparse products of b and a with dy for values, dc is beta dy."""
    options = {"preference": preference}
    rows, tokens = shape_of(a, "a")[0], shape_of(columns, "columns")[0]
    scaled, ids = mul(dy, alpha, **options), index
    if by not in (By.IDS.value, By.SORTED.value):
        ids = segment_ids(index, tokens=tokens, num_segments=rows, by=by, **options)
    da = gather_scatter_sum(b, columns, index, scaled, by=by, num_segments=rows, **options)
    db = gather_scatter_sum(a, ids, columns, scaled, by="ids", num_segments=shape_of(b, "b")[0], **options)
    return da, db, None if c is None else mul(dy, beta, **options)


@composed(_back, "a", "b", "c", reads=("a", "b", "columns", "index"))
@entry(SddmmPlan)
def sddmm(
    a: Array, b: Array, columns: Array, index: Array, c: Array | None = None, *, by: str = "offsets",
    alpha: Scalar = 1.0, beta: Scalar = 1.0, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[e] = alpha a[row(e), :] · b[columns[e], :] + beta c[e] at the entries e of a sparse matrix; see `SddmmPlan`.

    a: [rows, k], b: [columns, k]; columns, c and y: one an entry. index: offsets [rows + 1] of CSR, or with by="ids"
    (ascending: "sorted") the row of every entry. Of a dense b [k, columns] give the transpose, a view. Gradients of a
    and b are `gather_scatter_sum`, of c beta dy.
    """
    given = {"alpha": alpha, "beta": beta, "out": out, "stream": stream, "preference": preference}
    return _sddmm(a, b, columns, index, c, by=by, num_segments=shape_of(a, "a")[0], **given)
