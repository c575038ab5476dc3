"""isin: which elements of x are among others (torch.isin, numpy.isin)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Variant, element,
    extent, extents, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import decode
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.tensor import Shape
from ...core.arrays import read
from ...schedules.map import THREADS, map_params
from ...schedules.radix_sort import key_order
from .order import EVERY, KEYS, order_of, sorted_rows, torch_keys
from .searchsorted import one_each
from .seen import row_of
from .sort import sort


@dataclass(frozen=True, kw_only=True)
class MemberDescriptor(Descriptor):
    """x and y have shape `shape`, elements are `count` in a row. invert: y is whether x is not among them."""

    shape: Shape = extents()
    count: int = extent()
    invert: bool = flag(False)
    element: ElementKind = element(EVERY)


@dataclass(slots=True, kw_only=True)
class MemberArgs(Args):
    """Any strides. elements: sorted as `sort` does."""

    x: Array = operand("*shape", values=KEYS)
    elements: Array = operand("count", values=KEYS)
    y: Array = output("*shape", element=ElementKind.BOOL)


def reference(desc: MemberDescriptor, *, x: Any, elements: Any) -> Mapping[str, Any]:
    """NumPy's isin."""
    return {"y": np.isin(x, elements, invert=desc.invert)}


PARAMS = Params("MemberParams", y="ptr", x="ptr", elements="ptr", extent="i64", step="i64", order="u64[7]",
                invert="i32", floats="i32", **map_params(2))  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, kind = p.desc, p.desc.element
    params = {
        "extent": desc.count, "step": p.elements.strides[0], "order": key_order(kind), "invert": desc.invert,
        "floats": kind.is_float,
    }  # fmt: skip
    return one_each("member", (p.y, p.x), params)


def in_torch(torch: Any, desc: MemberDescriptor, *, x: Any, elements: Any) -> Any:
    """torch's isin."""
    x, elements = torch_keys(torch, x), torch_keys(torch, elements)
    if x is NotImplemented:
        return NotImplemented
    return torch.isin(x, elements, invert=desc.invert)


class MemberPlan(Plan):
    """y[i] = whether x[i] is one of the elements, sorted ones: a binary search. A NaN is none, -0 equals +0."""

    op = "sort.member"
    descriptor = MemberDescriptor
    args = MemberArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "search", _geometry, source="sort/searchsorted.cu", elements=EVERY,
            kernels=(Kernel("member", "member<key_word<{T}>>", PARAMS, threads=THREADS),),
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("64 Mi i32 in 1000", shape=(1 << 26,), count=1000, element="int32",
                  make=sorted_rows("elements", "count")),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> MemberDescriptor:
        shape = draw.shape(0, 3, 0, 9)
        return MemberDescriptor(shape=shape, count=draw.sizes(5, 0, 1, 70), invert=draw.flag(), element=draw.element)

    @classmethod
    def complete(cls, desc: MemberDescriptor, arrays: dict[str, Any]) -> None:
        """Elements in order, some of them in x."""
        found = arrays["elements"]
        arrays["elements"] = found[order_of(decode(found, desc.element))]


member = functional(MemberPlan)


@entry(MemberPlan)
def isin(
    x: Array, test_elements: Array, *, invert: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y[i] = whether x[i] is one of test_elements, of any shape (torch.isin): a sort of them, and a binary search.

    test_elements of more axes than one must be contiguous, as they are seen as a row. A NaN is never among them, -0 and
    +0 are equal. `member` takes elements that are sorted already.
    """
    options = {"stream": stream, "preference": preference}
    element, given = read(x, "x").element, read(test_elements, "test_elements").element
    if given is not element:
        raise InvalidProblemError(
            f"test_elements must be {element}, as x is, got {given}; write cast(test_elements, '{element}')"
        )
    row = row_of(test_elements, "test_elements")
    return member(x, sort(row, return_indices=False, **options), invert=invert, out=out, **options)
