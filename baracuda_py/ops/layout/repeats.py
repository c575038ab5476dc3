"""repeat_interleave: each element several times, by a number or by counts on the device (torch, numpy.repeat)."""

from __future__ import annotations


from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    element, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.checked import whole
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.tensor import Shape
from ...core.views import shape_of
from ...core.arrays import read
from ...schedules.copy import layout_of
from ...schedules.map import THREADS
from ..indexing.take import take
from ..scan.scan import cumsum
from .view_copy import ViewCopyPlan, view_copy
from .axes import place
from .views import broadcast_to, raveled
from .walk import Walk


@dataclass(frozen=True, kw_only=True)
class RunIndexDescriptor(Descriptor):
    """ends has `count` elements, index `total`."""

    count: int = extent()
    total: int = extent()
    element: ElementKind = element(INDICES)


def _ascending(rng: Any, desc: Any, shape: Shape) -> Any:
    return np.sort(rng.integers(0, desc.total + 2, shape))


@dataclass(slots=True, kw_only=True)
class RunIndexArgs(Args):
    """Any strides."""

    ends: Array = operand("count", values=_ascending)
    index: Array = output("total", element=ElementKind.I64)


def reference(desc: RunIndexDescriptor, *, ends: Any) -> Mapping[str, Any]:
    """NumPy's bisection, of ends that need not ascend: whatever it finds lies within [0, count]."""
    return {"index": np.searchsorted(ends, np.arange(desc.total), "right").astype(np.int64)}


PARAMS = Params("RunIndexParams", ends="ptr", index="ptr", total="i64", count="i64", step="i64", index_step="i64")


def _geometry(p: Problem) -> Geometry | str:
    params = {"total": p.desc.total, "count": p.desc.count, "step": p.ends.strides[0], "index_step": p.index.strides[0]}
    step = Step("run_index", (max(1, -(-p.desc.total // THREADS)), 1, 1), params, {}, THREADS)
    return Geometry((step,), layout=layout_of((p.ends, p.index)))


def in_torch(torch: Any, desc: RunIndexDescriptor, *, ends: Any) -> Any:
    """searchsorted."""
    return torch.searchsorted(ends.contiguous(), torch.arange(desc.total, dtype=ends.dtype), right=True)


class RunIndexPlan(Plan):
    """index[j] = how many of the ascending `ends` are <= j: of runs with these ends, the one that j lies in.

    `bc.repeat_interleave` with counts on the device picks by it. Where j lies behind the last end it is `count`.
    """

    op = "layout.run_index"
    descriptor = RunIndexDescriptor
    args = RunIndexArgs
    reference = staticmethod(reference)
    value_policy = "ends must ascend; of others each index is some number in [0, count]"
    variants = (
        Variant(
            "bisection", _geometry, "layout/run_index.cu",
            (Kernel("run_index", "run_index<{T}>", PARAMS, threads=THREADS),), elements=INDICES,
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "16M places in 1M runs", count=1 << 20, total=1 << 24, element="int64", work=BYTES,
            make=lambda torch, desc: {"ends": torch.arange(1, desc.count + 1) * 16},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> RunIndexDescriptor:
        return RunIndexDescriptor(count=draw.integer(0, 40), total=draw.integer(0, 300), element=draw.element)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return "ends must ascend" if (np.diff(np.asarray(arrays["ends"])) < 0).any() else None

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(desc.total * 8 + desc.count * desc.element.itemsize)


run_index = functional(RunIndexPlan)


@entry(ViewCopyPlan)
def repeat_interleave(
    x: Array, repeats: Any, axis: int | None = None, *, total: int | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Each element of x along an axis `repeats` times, one behind the other (torch.repeat_interleave, numpy.repeat).

    repeats: a number, or an array of counts on the device, one for each element; then `total` is what they add up to.
    Where they make less, what is left is 0; where they make more, the rest is left out. Without `axis` x is one axis.
    """
    if axis is None:
        x, axis = raveled(x, stream), 0
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    more = {"stream": stream, "preference": preference}
    if isinstance(repeats, (int, np.integer)):
        walk = Walk.of(shape).repeated(at + 1, whole("repeats", repeats, 0)).merged(at, 2)
        return view_copy(x, **walk.fields, out=out, **more)
    found = read(repeats, "repeats")
    if not found.element.is_integer or found.element is ElementKind.U64 or found.shape not in ((shape[at],), (1,)):
        raise InvalidProblemError(
            f"repeats must be a number or {shape[at]} integers of at most 63 bits, got {found.element} of shape "
            f"{found.shape}"
        )
    if total is None:
        raise InvalidProblemError("total must say what the counts on the device add up to; they are not read back")
    if found.shape != (shape[at],):
        repeats = broadcast_to(repeats, (shape[at],))
    index = run_index(cumsum(repeats, axis=0, **more), total=whole("total", total, 0), **more)
    return take(x, index, axis=at, out=out, **more)


repeat = repeat_interleave
