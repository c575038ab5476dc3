"""split_copy: an array in parts of their own memory along an axis, in one launch (torch.split_copy)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Args, Array, Exact, Geometry, Guarantee, Plan, Problem, Variant, operand, output
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import shape_of, with_axis, without_axes
from ...interop.jax_arrays import staged
from ...interop.torch_rules import followed
from ...schedules.concat import KERNELS, concat_geometry, elements
from ..indexing.indexed import MOVED
from .axes import place
from .concat import ConcatDescriptor, drawn
from .moves import copy
from .parts import split


@dataclass(frozen=True, kw_only=True)
class SplitCopyDescriptor(ConcatDescriptor):
    """Parts of these shapes, one at least, which are equal but along `axis`."""


@dataclass(slots=True, kw_only=True)
class SplitCopyArgs(Args):
    """Any strides."""

    x: Array = operand("*out_shape")
    ys: list[Array] = output(many="shapes")


def reference(desc: SplitCopyDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    bounds = np.cumsum([shape[desc.axis] for shape in desc.shapes])[:-1]
    return {"ys": [np.array(part) for part in np.split(x, bounds, desc.axis)]}


def _geometry(p: Problem) -> Geometry | str:
    return concat_geometry(p.x, p.ys, p.desc.axis, ("x", "ys"), apart=True)


def in_torch(torch: Any, desc: SplitCopyDescriptor, *, x: Any) -> Any:
    """split_with_sizes_copy."""
    return {"ys": [part.clone() for part in x.split([shape[desc.axis] for shape in desc.shapes], desc.axis)]}


class SplitCopyPlan(Plan):
    """ys = the parts of x one behind the other along `axis`; as few launches as `ConcatPlan` takes to join them.

    Elements are moved as they are.
    """

    op = "layout.split_copy"
    descriptor = SplitCopyDescriptor
    args = SplitCopyArgs
    raw = True
    reference = staticmethod(reference)
    variants = (
        Variant(
            "copy", _geometry, "layout/concat.cu", KERNELS, elements=MOVED,
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "64 of [2048, 1024] bf16 along axis 1", shapes=((2048, 1024),) * 64, axis=1, element="bfloat16", work=BYTES
        ),
    )

    @staticmethod
    def case(draw: Any) -> SplitCopyDescriptor:
        found, at = drawn(draw)
        return SplitCopyDescriptor(shapes=found, axis=at, element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(2 * elements(desc.shapes) * desc.element.itemsize)


_split_copy = functional(SplitCopyPlan, "split_copy")


def _listed(out: Any) -> Any:
    """What `out=` gives for the parts, by their name or as it is."""
    return out["ys"] if type(out) is dict and list(out) == ["ys"] else out


def _copied(x: Array, parts: Sequence[Array], axis: int, out: Any, options: dict[str, Any]) -> list[Array]:
    """The parts of x in memory of their own; each by a call of its own where gradients are recorded."""
    held = each_of(out, len(parts))
    if not parts:
        return []
    if followed([x]) or staged([x]):
        return [copy(part, out=to, **options) for part, to in zip(parts, held, strict=True)]
    shapes = tuple(shape_of(part, "x") for part in parts)
    made = _split_copy(x, shapes=shapes, axis=axis, out=None if out is None else list(held), **options)
    return list(made)


@entry(SplitCopyPlan)
def split_copy(
    x: Array, split_size: Any, axis: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Copies of the parts of x along an axis: of `split_size` elements each, or of the sizes listed (torch.split_copy).

    Together in one launch; `split` has views.
    """
    parts = split(x, split_size, axis)
    at = place(axis, len(shape_of(x, "x")))
    return _copied(x, parts, at, _listed(out), {"stream": stream, "preference": preference})


split_with_sizes_copy = split_copy


@entry(SplitCopyPlan)
def unbind_copy(x: Array, axis: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Copies of the slices of x at each index of an axis (torch.unbind_copy), in one launch; `unbind` has views.

    Of an axis of extent 0 there are none.
    """
    shape, options = shape_of(x, "x"), {"stream": stream, "preference": preference}
    at, out = place(axis, len(shape)), _listed(out)
    held = None if out is None else [with_axis(one, at, "out") for one in each_of(out, shape[at])]
    made = _copied(x, split(x, 1, at) if shape[at] else [], at, held, options)
    return list(each_of(out, shape[at])) if out is not None else [without_axes(one, (at,), "y") for one in made]
