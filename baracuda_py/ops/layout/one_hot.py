"""one_hot: classes as vectors with one element on (torch.nn.functional.one_hot, jax.nn.one_hot)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    View, axis, element, extent, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import checked
from ...core.element import INDICES
from ...core.element import cast as cast_values
from ...core.element import encode
from ...calls.entries import entry
from ...core.tensor import Shape
from ...schedules.map import STRIDED, THREADS, chunked, lay_out, map_params, strided, takes, widths
from ..indexing.indexed import MOVED
from .pad import number_of


_ROWS_EACH = 4  # chunks of a thread, where rows of y are dense


@dataclass(frozen=True, kw_only=True)
class OneHotDescriptor(Descriptor):
    """index has shape `shape`; y has an axis of `classes` besides, which is its axis `axis`. on, off: its values."""

    shape: tuple[int, ...] = extents()
    classes: int = extent()
    axis: int = axis(-1, of="rank")
    on: float = checked(number_of, 1, accepts="complex")
    off: float = checked(number_of, 0, accepts="complex")
    element: ElementKind = element(MOVED)

    @property
    def rank(self) -> int:
        """Axes of y."""
        return len(self.shape) + 1

    @property
    def out_shape(self) -> Shape:
        """The shape of y."""
        return (*self.shape[: self.axis], self.classes, *self.shape[self.axis :])

    def stored(self, value: Any) -> Any:
        """A value as the element is stored: NumPy, 0-d."""
        return encode(cast_values(np.asarray(value), self.element), self.element)


def _classes(rng: Any, desc: Any, shape: Shape) -> Any:
    """Every other time inside throughout."""
    beyond = rng.choice((0, 2)) if desc.classes else 2
    return rng.integers(-beyond, desc.classes + beyond, shape)


@dataclass(slots=True, kw_only=True)
class OneHotArgs(Args):
    """Any strides; index is int64 or int32."""

    index: Array = operand("*shape", element=INDICES, values=_classes)
    y: Array = output("*out_shape")


def reference(desc: OneHotDescriptor, *, index: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    trailing = (-1, *(1,) * (len(desc.shape) - desc.axis))
    hit = np.expand_dims(index, desc.axis) == np.arange(desc.classes).reshape(trailing)
    return {"y": np.where(hit, desc.stored(desc.on), desc.stored(desc.off))}


PARAMS = Params(
    "OneHotParams", y="ptr", index="ptr", on="i64[2]", off="i64[2]", step="i64", along="i64", index_wide="i32",
    **map_params(3),
)  # fmt: skip


def _axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": (kind.itemsize,), "VEC": widths(kind.itemsize)}


def _wide(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": (kind.itemsize,), "VEC": tuple(n for n in widths(kind.itemsize) if n > 1)}


def _bits(desc: OneHotDescriptor, value: Any) -> list[int]:
    word = desc.stored(value).tobytes() * (16 // desc.element.itemsize)
    return [int.from_bytes(word[i : i + 8], "little", signed=True) for i in (0, 8)]


def _geometry(p: Problem) -> Geometry | str:
    desc, size = p.desc, p.desc.element.itemsize
    strides = (*p.index.strides[: desc.axis], 0, *p.index.strides[desc.axis :])
    picked = View(p.index.ptr, desc.out_shape, strides, p.index.element)
    number = View(0, desc.out_shape, tuple(int(a == desc.axis) for a in range(desc.rank)), desc.element)
    found = lay_out((p.y, picked, number))
    if isinstance(found, str):
        return found
    alone, (axes,) = replace(found, views=(p.y, None, None)), found.groups
    vec = next(w for w in widths(size) if takes(alone, w))
    last = [s[-1] if axes.rank else 0 for s in axes.strides]
    params = {
        **chunked(found, vec), "on": _bits(desc, desc.on), "off": _bits(desc, desc.off), "step": last[1],
        "along": last[2], "index_wide": p.index.element is ElementKind.I64,
    }  # fmt: skip
    rows = vec > 1 and last[1:] == [0, 1]
    each = _ROWS_EACH if rows else strided(vec)
    blocks = max(1, -(-(axes.count // vec) // (THREADS * each)))
    step = Step("one_hot_rows" if rows else "one_hot", (blocks, 1, 1), params, {"BYTES": size, "VEC": vec}, THREADS)
    return Geometry((step,), layout=alone.layout(alone.inner))


def in_torch(torch: Any, desc: OneHotDescriptor, *, index: Any) -> Any:
    """Classes compared."""
    kind = getattr(torch, str(desc.element), None)
    if kind is None or (not desc.element.is_integer and desc.element.itemsize == 1):
        return NotImplemented
    hit = index.unsqueeze(-1) == torch.arange(desc.classes, dtype=index.dtype)
    y = torch.where(hit, torch.tensor(desc.on, dtype=kind), torch.tensor(desc.off, dtype=kind))
    return y.movedim(-1, desc.axis)


class OneHotPlan(Plan):
    """y = `on` where the class along `axis` is the index, `off` elsewhere (torch.nn.functional.one_hot)."""

    op = "layout.one_hot"
    descriptor = OneHotDescriptor
    args = OneHotArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "an index outside [0, classes), negative ones included, is no class: all is off"
    variants = (
        Variant(
            "map", _geometry, "layout/one_hot.cu",
            (
                Kernel("one_hot", f"one_hot<{{BYTES}}, {STRIDED}>", PARAMS, _axes, threads=THREADS),
                Kernel("one_hot_rows", f"one_hot_rows<{{BYTES}}, Strided<{{VEC}}, {_ROWS_EACH}>>", PARAMS, _wide,
                       threads=THREADS),
            ),
            elements=MOVED, guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[65536] of 1024 classes, bf16", shape=65536, classes=1024, element="bfloat16",
            make=lambda torch, desc: {"index": torch.randint(0, desc.classes, desc.shape)},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> OneHotDescriptor:
        shape = draw.shape(0, 3, 0, 4)
        if draw.flag():
            shape = (*shape, draw.choice((16, 32)))
        axis = draw.integer(-len(shape) - 1, len(shape))
        classes, on = draw.sizes(16, 5, 1, 0), draw.choice((1, 3))
        return OneHotDescriptor(shape=shape, classes=classes, axis=axis, on=on, element=draw.element)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        index = np.asarray(arrays["index"])
        outside = ((index < 0) | (index >= desc.classes)).any()
        return f"an index must lie in [0, {desc.classes})" if outside else None

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(math.prod(desc.out_shape) * desc.element.itemsize + math.prod(desc.shape) * 8)


_one_hot = functional(OneHotPlan, "one_hot")


@entry(OneHotPlan)
def one_hot(
    index: Array, classes: int, *, axis: int = -1, on: Any = 1, off: Any = 0, element: Any = "int64", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Vectors of `classes` elements, of which the one at the index is `on` (torch.nn.functional.one_hot).

    axis: where they lie in the result. element: of the result. An index outside has none that is on, as in JAX.
    """
    facts = {"classes": classes, "axis": axis, "on": on, "off": off, "element": ElementKind.of(element)}
    return _one_hot(index, **facts, out=out, stream=stream, preference=preference)
