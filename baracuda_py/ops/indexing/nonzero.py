"""nonzero: the positions of the elements that are not 0, in order (numpy.nonzero, torch.nonzero, jax.numpy.nonzero)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Variant, element, extents, flag,
    integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import derived
from ...core.element import decode
from ...schedules.compact import MOST_AXES, compact_geometry, in_order, position_kernels, position_params, value_bits
from .indexed import MOVED


@dataclass(frozen=True, kw_only=True)
class NonzeroDescriptor(Descriptor):
    """x has shape `shape`; y has a row of `size` positions for each axis of x (of its elements in a row: `flat`).

    size: by default as many as x has elements, which always suffices. fill_value: of the entries behind those found.
    """

    shape: tuple[int, ...] = extents()
    size: int = integer(derived(lambda desc: math.prod(desc.shape)), minimum=0)
    fill_value: int = integer(-1)
    flat: bool = flag(False)
    element: ElementKind = element(MOVED)

    @property
    def rows(self) -> int:
        """Rows of y."""
        return 1 if self.flat else len(self.shape)


@dataclass(slots=True, kw_only=True)
class NonzeroArgs(Args):
    """Any strides."""

    x: Array = operand("*shape")
    y: Array = output("rows size", element=ElementKind.I64)
    count: Array = output("", element=ElementKind.I64)


def reference(desc: NonzeroDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy's nonzero."""
    holds = np.asarray(decode(x, desc.element)) != 0
    found = np.nonzero(holds.reshape(-1) if desc.flat else np.atleast_1d(holds))
    y = np.full((desc.rows, desc.size), desc.fill_value, np.int64)
    count = len(found[0])
    for row, places in zip(y, found, strict=False):
        row[: min(count, desc.size)] = places[: desc.size]
    return {"y": y, "count": np.array(count, np.int64)}


PARAMS = position_params("NonzeroParams")


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    extents = (math.prod(desc.shape),) if desc.flat else desc.shape
    if len(extents) > MOST_AXES:
        return f"more than {MOST_AXES} axes"
    merged = in_order((p.x,))
    if isinstance(merged, str):
        return merged
    params = {
        **merged, "size": desc.size, "bits": value_bits(desc.element),
        "extents": [*extents, *(0,) * (MOST_AXES - len(extents))], "steps": list(p.y.strides), "axes": len(extents),
        "fill": [desc.fill_value, 0],
    }  # fmt: skip
    axes = {"BYTES": desc.element.itemsize}
    return compact_geometry("positions", p.x.size, params, axes, (p.x, p.y), "fill_positions", kept_bytes=2)


def in_torch(torch: Any, desc: NonzeroDescriptor, *, x: Any) -> Any:
    """torch.nonzero, cut or filled up."""
    found = torch.nonzero(x.reshape(-1) if desc.flat else x).T
    y = torch.full((desc.rows, desc.size), desc.fill_value)
    kept = min(found.shape[1], desc.size)
    y[:, :kept] = found[:, :kept]
    return y, torch.tensor(found.shape[1])


class NonzeroPlan(Plan):
    """y[k, r] = where along axis k the r-th element that is not 0 lies, in row-major order, padded; count: how many.

    NaN is not 0. The number `count` stays on the device: where it is less than `size` the entries behind it are
    fill_value, where it is more the first `size` positions are told. One pass over x; the same result in every run.
    """

    op = "indexing.nonzero"
    descriptor = NonzeroDescriptor
    args = NonzeroArgs
    raw = True
    reference = staticmethod(reference)
    variants = (
        Variant(
            "look_back", _geometry, "indexing/compact.cu", position_kernels(PARAMS), elements=MOVED,
            guarantee=Guarantee(native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "half of [16384, 16384] bool", shape=(16384, 16384), size=1 << 27, element="bool",
            make=lambda torch, desc: {"x": torch.rand(desc.shape) < 0.5},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> NonzeroDescriptor:
        shape = draw.choice((draw.shape(0, 4, 0, 7), (4100,), (3, 40, 70)))
        size = draw.choice((None, 0, 5, math.prod(shape) + 3))
        return NonzeroDescriptor(
            shape=shape, size=size, fill_value=draw.choice((-1, 7)), flat=draw.flag(), element=draw.element
        )

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Half of the elements 0, of floats at times -0."""
        rng = np.random.default_rng(math.prod(desc.shape))
        x = arrays["x"]
        zeros = np.zeros(x.shape, x.dtype)
        arrays["x"] = np.where(rng.random(x.shape) < 0.5, -zeros if x.dtype.kind in "fc" else zeros, x)


nonzero = functional(NonzeroPlan)
