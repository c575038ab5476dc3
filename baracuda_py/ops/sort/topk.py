"""topk: the k largest or smallest elements of rows, in order, and where they stand (torch.topk)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Plan, Problem, Step, Variant,
    Vjp, element, flag, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...calls.entries import entry
from ...core.tensor import Shape, View
from ...core.variant import Axes
from ...core.arrays import read
from ...schedules.geometry import MOST_BLOCKS
from ...schedules.radix_sort import WARP, WARP_ITEMS, Sort, Strided, rows_of, sort_params, warp_kernel
from .order import EVERY, KEYS, RowDescriptor, order_of, rows_back, rows_last, torch_keys
from .sort import sort

MOST = 2048  # elements that a block finds
THREADS = 256
ROOM = 2 * MOST  # candidates that a block holds
BLOCKS = 3  # a multiprocessor that are enough
_PART = 1 << 15  # elements of a part, where few rows are cut


@dataclass(frozen=True, kw_only=True)
class TopkDescriptor(RowDescriptor):
    """x has shape `shape`, y and indices k elements along `axis`: the largest or, if not `largest`, the smallest."""

    k: int = integer(minimum=0)
    largest: bool = flag(True)
    element: ElementKind = element(EVERY)

    def validate(self) -> None:
        """As many as there are."""
        if self.k > self.count:
            raise InvalidProblemError(f"k must be at most {self.count}, the elements of a row, got {self.k}")
        if not self.shape and self.k != 1:
            raise InvalidProblemError(f"k must be 1 for x of rank 0, got {self.k}")

    @property
    def picked_shape(self) -> Shape:
        """The shape of what is made."""
        return self.resized(self.k)


@dataclass(slots=True, kw_only=True)
class TopkArgs(Args):
    """Any strides. y: the k best in order; indices: where they stand. One of both is enough."""

    x: Array = operand("*shape", values=KEYS)
    y: Array | None = output("*picked_shape", optional=True)
    indices: Array | None = output("*picked_shape", element=ElementKind.I64, optional=True)


def reference(desc: TopkDescriptor, *, x: Any, wanted: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    rows = rows_last(desc, x)
    order = order_of(rows, desc.largest)[..., : desc.k]
    return {
        "y": rows_back(desc, np.take_along_axis(rows, order, -1), desc.k), "indices": rows_back(desc, order, desc.k)
    }  # fmt: skip


PARAMS = sort_params("TopkParams", share="i64", found="i64", room="i64")


def chunk(element: ElementKind) -> int:
    """Elements of an access."""
    return min(16 // element.itemsize, 8)


def _wide(view: View, keys: Strided, element: ElementKind) -> bool:
    width = chunk(element)
    return keys.step == 1 and view.ptr % (width * element.itemsize) == 0 and all(s % width == 0 for s in keys.outer)


def _geometry(p: Problem) -> Geometry | str:
    desc, axis, element = p.desc, p.desc.axis, p.desc.element
    if desc.k > MOST:
        return f"k is {desc.k}; a block finds {MOST}; sort(descending=…, stop=k) takes any"
    rows, cols = rows_of(p.x, axis)
    keys, y, indices = (Strided.of(name, p.views[name], axis) for name in ("x", "y", "indices"))
    assert keys is not None
    found = Sort.of(p, element, rows, cols, (keys, y, indices), desc.largest, (0, desc.k))
    if isinstance(found, str):
        return found
    count = math.prod(rows)
    layout = "contiguous" if all(v.dense for v in p.flat()) else "inner_contiguous" if keys.step == 1 else "strided"
    if cols <= WARP * WARP_ITEMS[-1]:
        return Geometry((found.warps(keys, y, indices, share=cols, found=0, room=0),), layout=layout)
    parts = max(1, min(-(-BLOCKS * p.device.sms // max(count, 1)), cols // max(_PART, 4 * desc.k)))
    if count * parts > MOST_BLOCKS:
        return "more than 2^31 blocks"
    width = chunk(element) if _wide(p.x, keys, element) else 1
    share = -(-cols // (parts * width)) * width

    def step(name: str, blocks: int, to: Strided | None, places: Strided | None, **given: Any) -> Step:
        most = given["found"] or share
        room = min(ROOM, max(WARP, 1 << (most - 1).bit_length()))
        axes = {"VEC": width} if name == "topk" else {}
        smem = room * (element.itemsize + 4)
        return found.step(name, blocks, THREADS, keys, to, places, axes, smem, room=room, **given)

    if parts == 1:
        return Geometry((step("topk", count, y, indices, share=share, found=0),), layout=layout)
    number = parts * desc.k
    between = Strided.at(0, rows, number)
    first = step("topk", count * parts, None, between, share=share, found=0, parts=parts)
    last = step("merge", count, y, indices, share=0, found=number, carried=between.name)
    return Geometry((first, last), 4 * count * number, layout)


def _axes(element: ElementKind) -> Axes:
    return {"VEC": (chunk(element), 1)}


def in_torch(torch: Any, desc: TopkDescriptor, *, x: Any, wanted: Any) -> Any:
    """torch's stable sort, of which the first are taken: its topk leaves open which of equal elements."""
    keys = torch_keys(torch, x)
    if keys is NotImplemented:
        return NotImplemented
    made = torch.sort(keys, dim=desc.axis, descending=desc.largest, stable=True)
    y, indices = made if not desc.shape else (a.narrow(desc.axis, 0, desc.k) for a in made)
    return {"y": y.to(x.dtype), "indices": indices}


class TopkPlan(Plan):
    """y = the k largest (or smallest) elements of every row along `axis`, in order; indices: where they stand.

    torch.topk. The best stand first; of equal elements the lowest indices are taken, and stand in their order. A NaN is
    above every number; -0 and +0 are equal. k is at most 2048 here; the function `topk` takes any. The gradient of x
    is dy, put back to where it came from.
    """

    op = "sort.topk"
    descriptor = TopkDescriptor
    args = TopkArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "select", _geometry, source="sort/topk.cu", elements=EVERY,
            kernels=(
                warp_kernel(PARAMS),
                Kernel("topk", f"topk<key_word<{{T}}>, {THREADS}, {{VEC}}, false>", PARAMS, _axes, THREADS, BLOCKS),
                Kernel("merge", f"topk<key_word<{{T}}>, {THREADS}, 1, true>", PARAMS, threads=THREADS),
            ),
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
    )  # fmt: skip
    vjp = Vjp("SortBackwardPlan", grads={"x": "dx"})
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("50 of [8192, 128256] bf16", shape=(8192, 128256), k=50, element="bfloat16", also=("y", "indices")),
        Benchmark("8 of [65536, 128] f32", shape=(65536, 128), k=8, element="float32", also=("y", "indices")),
        Benchmark("100 of [64 Mi] f32", shape=(1 << 26,), k=100, element="float32", also=("y", "indices")),
    )

    @staticmethod
    def case(draw: Any) -> TopkDescriptor:
        if draw.rarely():
            shape, axis = (1, 2 * _PART + 9), -1
        elif draw.flag():
            shape = draw.shape(1, 3, 0, 7)
            axis = draw.integer(-len(shape), len(shape) - 1)
        else:
            n = draw.sizes(40, 300, 2048, 2050, 5003, rare=(9000, 20000))
            shape, axis = ((draw.sizes(1, 3), n), -1) if draw.flag() else ((n, draw.sizes(1, 2)), 0)
        most = min(shape[axis], MOST)
        k = draw.choice((min(3, most), min(most, draw.integer(0, 70)), most))
        return TopkDescriptor(shape=shape, axis=axis, k=k, largest=draw.flag(), element=draw.element)


_topk = functional(TopkPlan, "topk", returns=("y", "indices"))


@entry(TopkPlan)
def topk(
    x: Array, k: int, axis: int = -1, largest: bool = True, sorted: bool = True, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The k largest, or smallest, elements of every row along `axis`, and where they stand (torch.topk, jax.lax.top_k).

    They stand in order, the best first, whatever `sorted` says, which leaves the order open where it is False. Of equal
    elements the lowest indices are taken. See `TopkPlan`; more than 2048 come from `sort`.
    """
    options = {"axis": axis, "out": out, "stream": stream, "preference": preference}
    if isinstance(k, (int, np.integer)) and k > MOST:
        shape = read(x, "x").shape
        count = shape[axis] if -len(shape) <= axis < len(shape) else 0
        if k <= count:
            return sort(x, descending=largest, stop=int(k), **options)
    return _topk(x, k=k, largest=largest, **options)


top_k = topk
approx_max_k = functional(
    TopkPlan, "approx_max_k", "The k largest elements of every row, exactly (jax.lax.approx_max_k); see `TopkPlan`.",
    returns=("y", "indices"), largest=True,
)  # fmt: skip
approx_min_k = functional(
    TopkPlan, "approx_min_k", "The k smallest elements of every row, exactly (jax.lax.approx_min_k); see `TopkPlan`.",
    returns=("y", "indices"), largest=False,
)  # fmt: skip
