"""What ops that read or write at positions along one axis share: their index, its policy, their rows of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from ...core import FLOATS, Geometry, Guarantee, Params, Plan, Problem, Relative, Variant
from ...core.element import ALL, FP8, INDICES
from ...schedules.gather import gather_kernel
from ...schedules.scatter import scatter_kernels

MOVED = (*ALL, *FP8)  # elements that are copied as they are
ELEMENTS = INDICES[::-1]  # of an index
_Geometry = Callable[[Problem], "Geometry | str"]


def random_index(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Every other time in range throughout; else mostly, at times just outside or far from it."""
    extent = desc.shape[desc.axis]
    far, share = rng.choice((-1, extent, -(2**31), 2**31 - 1), shape), rng.choice((0.0, 0.1))
    return np.where(rng.random(shape) < share, far, rng.integers(0, max(extent, 1), shape))


def known_indices(name: str) -> Callable[[Any, Any], Mapping[str, Any]]:
    """What makes the operand `name` of a benchmark: random indices in range, as torch wants them."""
    return lambda torch, desc: {name: torch.randint(0, desc.shape[desc.axis], desc.index_shape)}


class Indexed(Plan):
    """Base of the plans: `index` names the operand whose values lie in [0, extent of the descriptor's axis)."""

    index: ClassVar[str] = "index"

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        index, extent = np.asarray(arrays[cls.index]), desc.shape[desc.axis]
        return f"an index must lie in [0, {extent})" if ((index < 0) | (index >= extent)).any() else None


def moving_row(geometry: _Geometry, params: Params) -> Variant:
    """The row of ops that copy what they read."""
    guarantee = Guarantee(native=True, batch_invariant=True)
    kernels = (gather_kernel(params),)
    return Variant("words", geometry, "indexing/gather.cu", kernels, elements=MOVED, guarantee=guarantee)


def adding_row(geometry: _Geometry, params: Params) -> Variant:
    """The row of ops that add up what they are given, in its order."""
    kernels = scatter_kernels(params, "ScatterAdd")
    guarantee = Guarantee(Relative(2))
    return Variant("sorted", geometry, "indexing/scatter.cu", kernels, elements=FLOATS, guarantee=guarantee)
