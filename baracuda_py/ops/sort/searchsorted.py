"""searchsorted: where values would stand in sorted rows (torch.searchsorted, torch.bucketize, numpy.digitize)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan,
    Problem, Variant, element, extents, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import INDICES, decode
from ...calls.entries import entry
from ...core.tensor import Shape, View
from ...core.variant import Step
from ...schedules.geometry import MOST_BLOCKS
from ...schedules.map import THREADS, chunked, lay_out, map_params
from ...schedules.radix_sort import key_order
from .order import EVERY, KEYS, order_of, sorted_rows, torch_keys

I32, I64 = INDICES


@dataclass(frozen=True, kw_only=True)
class SearchsortedDescriptor(Descriptor):
    """sorted_sequence has shape `shape`, values and index `values_shape`.

    Rows of the sequence lie along its last axis; its other axes are those of the values, or it is one row for all.
    right: equal elements stand before a value. index_element: int64 or int32.
    """

    shape: Shape = extents()
    values_shape: Shape = extents()
    right: bool = flag(False)
    index_element: ElementKind = element(INDICES, I64)
    element: ElementKind = element(EVERY)

    def validate(self) -> None:
        """A row for all, or one for every row of values."""
        if len(self.shape) != 1 and (len(self.shape) < 1 or self.shape[:-1] != self.values_shape[:-1]):
            raise InvalidProblemError(
                f"sorted_sequence must be one row or have the axes of the values but the last, got shape {self.shape} "
                f"for {self.values_shape}"
            )
        if len(self.shape) > 1 and len(self.values_shape) != len(self.shape):
            raise InvalidProblemError(f"values must have rows for those of {self.shape}, got {self.values_shape}")
        if self.index_element is I32 and self.shape[-1] >= 2**31:
            raise InvalidProblemError(f"index_element must be int64 for rows of {self.shape[-1]}")

    @property
    def count(self) -> int:
        """Elements of a row."""
        return self.shape[-1]


@dataclass(slots=True, kw_only=True)
class SearchsortedArgs(Args):
    """Any strides. sorter: where each element of the sorted rows is, for a sequence that is not sorted itself."""

    sorted_sequence: Array = operand("*shape", values=KEYS)
    values: Array = operand("*values_shape", values=KEYS)
    sorter: Array | None = operand("*shape", element=INDICES[::-1], optional=True)
    index: Array = output("*values_shape", element="index_element")


def reference(desc: SearchsortedDescriptor, *, sorted_sequence: Any, values: Any, sorter: Any) -> Mapping[str, Any]:
    """NumPy's searchsorted, row by row."""
    if sorter is not None and desc.count:
        sorted_sequence = np.take_along_axis(sorted_sequence, np.clip(sorter, 0, desc.count - 1), -1)
    side: Any = "right" if desc.right else "left"
    if len(desc.shape) == 1:
        return {"index": np.searchsorted(sorted_sequence, values, side)}
    index = np.zeros(desc.values_shape, np.int64)
    for at in np.ndindex(desc.shape[:-1]):
        index[at] = np.searchsorted(sorted_sequence[at], values[at], side)
    return {"index": index}


PARAMS = Params(
    "SearchsortedParams", index="ptr", values="ptr", sorted_sequence="ptr", sorter="ptr", extent="i64", step="i64",
    sorter_step="i64", gap="i64", order="u64[7]", right="i32", index_wide="i32", sorter_wide="i32", held="i32",
    top="i32", **map_params(4),
)  # fmt: skip
_HELD_BYTES = 32768  # of a row in shared memory
_VALUES = 4  # that a thread has on the way
_BLOCKS = 6  # a multiprocessor


def one_each(name: str, views: tuple[View | None, ...], params: Mapping[str, Any]) -> Geometry | str:
    """A launch of a kernel that makes an element of the first view a thread."""
    found = lay_out(views)
    if isinstance(found, str):
        return found
    blocks = max(1, -(-found.groups[0].count // THREADS))
    if blocks > MOST_BLOCKS:
        return "more than 2^31 blocks"
    step = Step(name, (blocks, 1, 1), {**params, **chunked(found, 1)}, {}, THREADS)
    return Geometry((step,), layout=found.layout(found.inner))


def _geometry(p: Problem) -> Geometry | str:
    desc, shape = p.desc, p.values.shape

    def rows(view: View | None) -> View | None:
        if view is None:
            return None
        outer = (*view.strides[:-1], 0) if len(view.shape) > 1 else (0,) * len(shape)
        return View(view.ptr, shape, outer, view.element)

    step, sorter_step = p.sorted_sequence.strides[-1], 0 if p.sorter is None else p.sorter.strides[-1]
    params = {
        "extent": desc.count, "step": step, "sorter_step": sorter_step, "order": key_order(desc.element),
        "right": desc.right, "index_wide": desc.index_element is I64,
        "sorter_wide": p.sorter is not None and p.sorter.element is I64, "gap": 1, "held": 0, "top": 0,
    }  # fmt: skip
    views = (p.index, p.values, rows(p.sorted_sequence), rows(p.sorter))
    held = _held(p, views, params)
    return held if held is not None else one_each("searchsorted", views, params)


def _held(p: Problem, views: tuple[View | None, ...], params: Mapping[str, Any]) -> Geometry | None:
    """The launch of blocks that hold a row, or a sample of it; None of several rows, or for few values."""
    count, size = p.desc.count, p.desc.element.itemsize
    gap = max(1, -(-count // (_HELD_BYTES // size - 1)))
    held = -(-count // gap)
    found = lay_out(views)
    if len(p.sorted_sequence.shape) > 1 or not held or p.values.size < held or isinstance(found, str):
        return None
    top = 1 << (held.bit_length() - 1)
    blocks = min(max(1, -(-p.values.size // (THREADS * _VALUES))), _BLOCKS * max(p.device.sms, 1))
    values = {**params, **chunked(found, 1), "gap": gap, "held": held, "top": top}
    step = Step("held", (blocks, 1, 1), values, {}, THREADS, 2 * top * size)
    return Geometry((step,), layout=found.layout(found.inner))


def in_torch(torch: Any, desc: SearchsortedDescriptor, *, sorted_sequence: Any, values: Any, sorter: Any) -> Any:
    """torch's, which takes a NaN in a row for a number below every other."""
    row, given = torch_keys(torch, sorted_sequence), torch_keys(torch, values)
    if row is NotImplemented or row.dtype == torch.bool or (row != row).any():
        return NotImplemented
    if sorter is not None:
        row, sorter = torch.gather(row, -1, sorter.long()), None
    return torch.searchsorted(row.contiguous(), given.contiguous(), right=desc.right)


class SearchsortedPlan(Plan):
    """index[…, i] = how many elements of the sorted row are below values[…, i] or, if `right`, not above it.

    torch.searchsorted, numpy.searchsorted. The order is that of `sort`: a NaN is
    above every number, as in NumPy, and -0 and +0 are equal. A row that is not sorted gives some index in [0, extent].
    An index of `sorter` outside the row counts as its nearest element.
    """

    op = "sort.searchsorted"
    descriptor = SearchsortedDescriptor
    args = SearchsortedArgs
    reference = staticmethod(reference)
    value_policy = "an index of sorter outside [0, extent) counts as the nearest within"
    variants = (
        Variant(
            "search", _geometry, source="sort/searchsorted.cu", elements=EVERY,
            kernels=(
                Kernel("searchsorted", "searchsorted<key_word<{T}>>", PARAMS, threads=THREADS),
                Kernel("held", "searchsorted_held<key_word<{T}>>", PARAMS, threads=THREADS),
            ),
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{label} f32 in {count}", shape=shape, values_shape=values, element="float32",
                  make=sorted_rows("sorted_sequence"))
        for label, count, shape, values in (
            ("64 Mi", "1000", (1000,), (1 << 26,)), ("16 Mi", "16 Mi", (1 << 24,), (1 << 24,)),
        )
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SearchsortedDescriptor:
        values = draw.shape(0, 3, 0, 7)
        n = draw.sizes(5, 1, 0, 33, 300)
        shape = (*values[:-1], n) if values and draw.flag() else (n,)
        return SearchsortedDescriptor(
            shape=shape, values_shape=values, right=draw.flag(), index_element=draw.choice((I64, I32)),
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: SearchsortedDescriptor, arrays: dict[str, Any]) -> None:
        """Sorted rows, or with a sorter any."""
        rows = arrays["sorted_sequence"]
        order = order_of(decode(rows, desc.element))
        if arrays["sorter"] is None:
            arrays["sorted_sequence"] = np.take_along_axis(rows, order, -1)
        else:
            arrays["sorter"] = order.astype(arrays["sorter"].dtype)

    @classmethod
    def check_values(cls, desc: SearchsortedDescriptor, arrays: Mapping[str, Any]) -> str | None:
        if arrays["sorter"] is None:
            return None
        index = np.asarray(arrays["sorter"])
        wrong = ((index < 0) | (index >= desc.count)).any()
        return f"an index of sorter must lie in [0, {desc.count})" if wrong else None


searchsorted = functional(SearchsortedPlan)


@entry(SearchsortedPlan)
def bucketize(
    x: Array, boundaries: Array, right: bool = False, *, index_element: Any = I64, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The bucket of every element of x between ascending boundaries, one row of them (torch.bucketize).

    index[i] has boundaries[index - 1] < x[i] <= boundaries[index] or, if `right`, <= on the left and < on the right.
    """
    return searchsorted(
        boundaries, x, right=right, index_element=index_element, out=out, stream=stream, preference=preference
    )


@entry(SearchsortedPlan)
def digitize(
    x: Array, bins: Array, right: bool = False, *, index_element: Any = I64, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The bin of every element of x between ascending bins (numpy.digitize): `bucketize` with the sides exchanged.

    index[i] has bins[index - 1] <= x[i] < bins[index] or, if `right`, < on the left and <= on the right. Bins that
    descend, which NumPy takes too, are not looked for, as values on the device are not read.
    """
    return searchsorted(
        bins, x, right=not right, index_element=index_element, out=out, stream=stream, preference=preference
    )
