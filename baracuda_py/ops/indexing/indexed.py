"""What ops that read or write at positions along one axis share: their index, its policy, their rows of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ...core import FLOATS, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Variant
from ...core.element import ALL, COMPLEX, FP8, INDICES, ElementKind
from ...core.errors import InvalidProblemError
from ...core.tensor import Shape
from ...core.arrays import read
from ...schedules.gather import gather_kernel
from ...schedules.scatter import atomic_kernels, combining_kernels

MOVED = (*ALL, *FP8)  # elements that are copied as they are
SUMMED = (*FLOATS, *COMPLEX)  # elements with a gradient
ATOMIC = (ElementKind.F32, ElementKind.F64)  # elements that memory adds to
ELEMENTS = INDICES[::-1]  # of an index
_Geometry = Callable[[Problem], "Geometry | str"]


def random_index(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Random indices of the descriptor's axis: see `random_positions`."""
    return random_positions(rng, desc.shape[desc.axis], shape)


def random_positions(rng: Any, extent: int, shape: tuple[int, ...]) -> Any:
    """In range throughout, or mostly and at times just outside or far from it; half the time some are from the end."""
    far, share = rng.choice((-1 - extent, extent, 1 - 2**31, 2**31 - 1), shape), rng.choice((0.0, 0.1))
    near = rng.integers(0, max(extent, 1), shape) - extent * (rng.random(shape) < rng.choice((0.0, 0.5)))
    return np.where(rng.random(shape) < share, far, near)


def indices_read(index: Any, name: str) -> Any:
    """What an index is, by the name that a function gives it; raises where it is no int64 or int32."""
    found = read(index, name)
    if found.element not in INDICES:
        raise InvalidProblemError(f"{name} must be int64 or int32, got {found.element}")
    return found


def located(index: Any, extent: int) -> tuple[Any, Any]:
    """(positions, known) of indices that count as NumPy's: where one names nothing the position is 0, and not known."""
    index = np.asarray(index, np.int64)
    at = np.where(index < 0, index + extent, index)
    known = (at >= 0) & (at < extent)
    return np.where(known, at, 0), known


def broadcast_together(shapes: Sequence[Shape]) -> Shape:
    """The shape that those of indices broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        said = ", ".join(map(str, shapes))
        raise InvalidProblemError(f"indices must broadcast together, got shapes {said}") from None


def mistaken(index: Any, extent: int) -> bool:
    """Whether some index names nothing, the least number of its type aside, which is meant to."""
    index = np.asarray(index)
    return bool((~located(index, extent)[1] & (index != np.iinfo(index.dtype).min)).any())


def from_start(torch: Any, index: Any, extent: int) -> Any:
    """An index in range as torch's functions take it."""
    index = index.long()
    return torch.where(index < 0, index + extent, index)


def known_indices(name: str) -> Callable[[Any, Any], Mapping[str, Any]]:
    """What makes the operand `name` of a benchmark: random indices in range, as torch wants them."""
    return lambda torch, desc: {name: torch.randint(0, desc.shape[desc.axis], desc.index_shape)}


def distinct_indices(name: str) -> Callable[[Any, Any], Mapping[str, Any]]:
    """The same, all different along the axis, so that it does not matter which of two is set last."""
    return lambda torch, desc: {name: torch.rand(desc.index_shape).argsort(desc.axis)}


class Indexed(Plan):
    """Base of the plans: `index` names the operand whose values lie in [-extent, extent) of the descriptor's axis."""

    index: ClassVar[str] = "index"

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        extent = desc.shape[desc.axis]
        return f"an index must lie in [{-extent}, {extent})" if mistaken(arrays[cls.index], extent) else None


def moving_row(geometry: _Geometry, params: Params) -> Variant:
    """The row of ops that copy what they read."""
    guarantee = Guarantee(native=True, batch_invariant=True)
    kernels = (gather_kernel(params),)
    return Variant("words", geometry, "indexing/gather.cu", kernels, elements=MOVED, guarantee=guarantee)


def adding_rows(geometry: Callable[..., Geometry | str], params: Params, *also: Kernel) -> tuple[Variant, Variant]:
    """The rows of ops that add up what they are given: in any order, where that is asked for, or in its own.

    geometry(problem, atomic=False) is of both. also: kernels that run before.
    """
    kernels = (*combining_kernels(params, "ScatterAdd"), *also)
    return (
        atomic_row(lambda p: geometry(p, True), params, None, *also),
        Variant("sorted", geometry, "indexing/scatter.cu", kernels, elements=SUMMED, guarantee=Guarantee(Relative(2))),
    )


def atomic_row(geometry: _Geometry, params: Params, kinds: tuple[Any, ...] | None = None, *also: Kernel) -> Variant:
    """The row of sums in any order, which `PlanPreference(deterministic=False)` allows."""
    # Memory's own sums of float32 flush, those of float64 do not (PTX ISA: atom, red).
    guarantee = Guarantee(Relative(2), deterministic=False, bit_stable=False, flushes=(ElementKind.F32,))
    return Variant(
        "atomic", geometry, "indexing/scatter.cu", (*atomic_kernels(params), *also), elements=ATOMIC, kinds=kinds,
        guarantee=guarantee,
    )  # fmt: skip
