"""Rows in groups whose bounds stand on the device: the rule of the bounds, and operands for tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...core import Descriptor, ElementKind, InvalidProblemError, derived, element, extent
from ...core.element import INDICES

INDEX = INDICES
POLICY = (
    "offsets are clamped to [0, total] and to the largest offset before them, so groups never overlap; rows before the "
    "first and after the last group belong to none: their results are zeros, and no sum has them"
)


@dataclass(frozen=True, kw_only=True)
class GroupedDescriptor(Descriptor):
    """total rows in `groups` groups; num_offsets: `groups` (where each ends) or one more (from where to where)."""

    total: int = extent()
    groups: int = extent()
    n: int = extent()
    num_offsets: int = extent(derived(lambda desc: desc.groups))
    element: ElementKind = element()

    def validate(self) -> None:
        check_count(self)


class Grouped:
    """What plans over groups of rows share."""

    value_policy: ClassVar[str] = POLICY

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        shape = shapes.get("offsets")
        if shape is not None and len(shape) == 1 and "groups" not in facts and not _has_groups(shapes):
            facts["groups"] = shape[0]

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        given = np.asarray(arrays["offsets"]).astype(np.int64)
        kept = settled(given, desc.total)
        if (bad := np.flatnonzero(given != kept)).size:
            return f"offsets[{bad[0]}] is {given[bad[0]]}, which decreases or is not in [0, {desc.total}]"
        return None


def check_count(desc: Any) -> None:
    """Refuses a number of offsets that no such number of groups has."""
    if desc.num_offsets not in (desc.groups, desc.groups + 1):
        raise InvalidProblemError(
            f"offsets must have {desc.groups} items, the end of each group, or {desc.groups + 1}, from where to "
            f"where, for {desc.groups} groups; got {desc.num_offsets}"
        )


def _has_groups(shapes: Mapping[str, Any]) -> bool:
    """Whether some operand has an axis of groups."""
    return any(len(shapes.get(name) or ()) == 3 for name in ("a", "b", "dy"))


def settled(offsets: Any, total: int) -> Any:
    """Offsets as the kernels take them."""
    return np.maximum.accumulate(np.clip(np.asarray(offsets).astype(np.int64), 0, total))


def slices(desc: Any, offsets: Any) -> Iterator[slice]:
    """The rows of each group."""
    bounds = settled(offsets, desc.total).tolist()
    if desc.num_offsets == desc.groups:
        bounds = [0, *bounds]
    for begin, end in itertools.pairwise(bounds):
        yield slice(begin, end)


def torch_slices(torch: Any, desc: Any, offsets: Any) -> list[slice]:
    """The same of a tensor of offsets."""
    if not len(offsets):
        return []
    bounds = torch.cummax(offsets.long().clamp(0, desc.total), 0)[0].tolist()
    if desc.num_offsets == desc.groups:
        bounds = [0, *bounds]
    return [slice(begin, end) for begin, end in itertools.pairwise(bounds)]


def random_offsets(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Random offsets for tests: often to the last row, at times with rows of no group, seldom out of order."""
    offsets = np.sort(rng.integers(0, desc.total + 1, shape))
    if len(offsets) and rng.integers(4):
        offsets[-1] = desc.total
        if desc.num_offsets > desc.groups and len(offsets) > 1:
            offsets[0] = 0
    if len(offsets) and not rng.integers(6):
        offsets[rng.integers(len(offsets))] += rng.choice((-3, 5, 1000))
    return offsets


def grouped_case(draw: Any) -> dict[str, Any]:
    """Descriptor fields for tests."""
    groups = draw.integer(0, 5)
    return {
        "total": draw.sizes(0, 1, 7, 64, 130, 200), "groups": groups, "num_offsets": groups + draw.integer(0, 1),
        "n": draw.sizes(1, 5, 64, 72, 129), "element": draw.element,
    }  # fmt: skip
