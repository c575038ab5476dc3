"""Images and volumes that one launch takes sample by sample: fields and values of kernels/image/volumes.cuh."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Descriptor, ElementKind, View, element, extents, integer
from ...core.element import REALS
from ...core.errors import InvalidProblemError
from ...core.tensor import AXES, merge_axes, pad

BOOL = ElementKind.BOOL
MASKS = (BOOL, *REALS)
MOST = 2**31 - 1  # places of a sample, which 32 bits number


@dataclass(frozen=True, kw_only=True)
class VolumeDescriptor(Descriptor):
    """x has shape `shape`, whose last `rank` axes, 2 or 3, are an image or a volume."""

    shape: tuple[int, ...] = extents()
    rank: int = integer(2, 2, 3)
    element: ElementKind = element(MASKS, BOOL)

    def validate(self) -> None:
        """Axes of places, which 32 bits number."""
        if len(self.shape) < self.rank:
            raise InvalidProblemError(f"x must have {self.rank} axes of places or more, got shape {self.shape}")
        if self.places > MOST:
            raise InvalidProblemError(f"an image or a volume must have at most {MOST} places, got {self.places}")

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The axes before."""
        return self.shape[: -self.rank]

    @property
    def space(self) -> tuple[int, ...]:
        """Extents of a sample."""
        return self.shape[-self.rank :]

    @property
    def places(self) -> int:
        """Places of a sample."""
        return math.prod(self.space)

    @property
    def batches(self) -> int:
        """How many samples there are."""
        return math.prod(self.batch_shape)


def volume_params(operands: int) -> dict[str, Any]:
    """Params fields for `operands` operands."""
    return {
        "outer_shape": "i64[8]", "outer": f"i64[{operands}][8]", "outer_rank": "i32", "extents": "i32[3]",
        "places": "i32", "steps": f"i64[{operands}][3]",
    }  # fmt: skip


def volume_values(desc: VolumeDescriptor, views: Sequence[View | None]) -> Mapping[str, Any] | str:
    """Their values; an operand has the axes of the batch first, and may be absent or end there."""
    lead = len(desc.batch_shape)
    shape, strides = merge_axes(desc.batch_shape, [v.strides[:lead] if v else (0,) * lead for v in views])
    if len(shape) > AXES:
        return f"more than {AXES} axes before the places remain after merging"
    ones = (1,) * (3 - desc.rank)
    return {
        "outer_shape": pad(shape), "outer": [pad(s) for s in strides], "outer_rank": len(shape),
        "extents": (*ones, *desc.space), "places": desc.places,
        "steps": [[0] * (3 - len(own)) + list(own) for own in (v.strides[lead:] if v else () for v in views)],
    }  # fmt: skip


def random_mask(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: few or many places that are not 0, in threads and in lumps."""
    made = np.where(rng.random(shape) < rng.choice((0.1, 0.45, 0.6, 0.95)), rng.integers(1, 3, shape), 0)
    return made != 0 if desc.element is BOOL else made


def volume_shape(draw: Any, rank: int) -> tuple[int, ...]:
    """A shape to test, with tails behind tiles of 32 places, at times without an element."""
    last = draw.sizes(0, 1, 7, 33, rare=(70,))
    return (*draw.shape(0, 2, 0, 3), *((draw.sizes(1, 3, 5),) if rank == 3 else ()), draw.sizes(1, 2, 9, 40), last)
