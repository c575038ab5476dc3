"""What ops on segments share: their kinds, what tells the segments, references in NumPy."""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Descriptor, choice, extent
from ...core.element import INDICES, ElementKind
from ...core.errors import InvalidProblemError
from ...core.views import reshaped, shape_of
from ...interop.packages import package_name
from ...schedules.segments import By

ELEMENTS = INDICES[::-1]  # of an index
I64 = ElementKind.I64


def narrow(like: Any) -> bool:
    """Whether 64-bit results become 32-bit ones: beside arrays of JAX without jax_enable_x64."""
    return package_name(type(like)) == "jax" and not sys.modules["jax"].config.jax_enable_x64


def beyond(like: Any) -> int:
    """A number that `take` finds no row for, and that is no mistake, in an index made beside `like`: -1 is the last."""
    return -(2**31) if narrow(like) else -(2**63)


class SegmentKind(enum.Enum):
    """What the tokens of a segment are combined to."""

    SUM = "sum"
    MEAN = "mean"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    LOGSUMEXP = "logsumexp"

    @property
    def cpp(self) -> str:
        """The end of functors' names under kernels/segment/."""
        return self.name.title()


@dataclass(frozen=True, kw_only=True)
class Segmented(Descriptor):
    """Tokens in num_segments segments; `by` says what the index has.

    ids: the segment of every token; an id outside [0, num_segments) is of none. sorted: the same, ascending. offsets:
    num_segments + 1 numbers, tokens offsets[s] to offsets[s + 1] - 1 being those of segment s. starts: the same without
    the last, which is the number of tokens; ends: without the first, which is 0. evenly: no index, as all
    segments have as many tokens.
    """

    num_segments: int = extent()
    by: str = choice(tuple(by.value for by in By), By.IDS.value)

    @property
    def count(self) -> int:
        """How many tokens there are."""
        raise NotImplementedError

    def validate(self) -> None:
        if self.evenly and (self.count % self.num_segments if self.num_segments else self.count):
            raise InvalidProblemError(f"{self.count} tokens do not make {self.num_segments} segments of one length")

    @property
    def evenly(self) -> bool:
        """Whether there is no index."""
        return self.by == By.EVENLY.value

    @property
    def index_length(self) -> int:
        """How long the index is."""
        return By(self.by).length(self.count, self.num_segments)


def refuse_absent(absent: int, element: ElementKind) -> None:
    """Raises where the number that stands for none is none of the element's."""
    if absent < element.limits.min:
        raise InvalidProblemError(f"absent must be at least {int(element.limits.min)} in {element}, got {absent}")


def count_segments(shapes: Mapping[str, Any], facts: dict[str, Any], by: str = "") -> None:
    """The number of segments, where it is not given and the index has one for each; by: what tells them otherwise."""
    index = shapes.get("index")
    if facts.get("num_segments") is None and index is not None and len(index) == 1:
        more = {By.OFFSETS.value: 1, By.STARTS.value: 0, By.ENDS.value: 0}.get(facts.get("by", by))
        if more is not None and index[0] >= more:
            facts["num_segments"] = index[0] - more


def random_segments(rng: Any, desc: Segmented, shape: tuple[int, ...]) -> Any:
    """Ids, mostly in range, or bounds; often with segments that have none or most of the tokens."""
    tokens, segments = desc.count, desc.num_segments
    if By(desc.by).bounds:
        bounds = np.sort(rng.integers(0, tokens + 1, shape))
        if bounds.size and rng.integers(2):
            bounds[0] = 0
        return bounds
    ids = rng.integers(0, max(segments, 1), shape)
    ids = np.where(rng.random(shape) < rng.choice((0.0, 0.7)), segments // 2, ids)
    far = rng.choice((-1, segments, -(2**31), 2**31 - 1), shape)
    ids = np.where(rng.random(shape) < rng.choice((0.0, 0.1)), far, ids)
    return np.sort(ids) if desc.by == By.SORTED.value else ids


def segment_ids_of(desc: Segmented, index: Any) -> Any:
    """The segment of every token, -1 for none (NumPy)."""
    tokens, segments = desc.count, desc.num_segments
    if desc.evenly:
        return np.arange(tokens) // max(tokens // max(segments, 1), 1)
    if desc.by in (By.IDS.value, By.SORTED.value):
        return np.where((index >= 0) & (index < segments), index, -1).astype(np.int64)
    edges = np.clip(index.astype(np.int64), 0, tokens)
    if desc.by == By.STARTS.value:
        edges = np.append(edges, tokens)
    if desc.by == By.ENDS.value:
        edges = np.append(0, edges)
    ids = np.searchsorted(edges, np.arange(tokens), side="right") - 1
    return np.where(ids < segments, ids, -1)


def runs(ids: Any, segments: int) -> tuple[Any, Any, Any]:
    """The tokens in the order of their segments, the segments that have some, and the first place of each (NumPy)."""
    tokens = np.flatnonzero((ids >= 0) & (ids < segments))
    tokens = tokens[np.argsort(ids[tokens], kind="stable")]
    found, starts = np.unique(ids[tokens], return_index=True)
    return tokens, found, starts


def index_trouble(desc: Segmented, index: Any) -> str | None:
    """What is wrong with an index, or None."""
    if index is None:
        return None
    held = np.asarray(index)
    if By(desc.by).bounds:
        if (held.size and (np.diff(held) < 0).any()) or ((held < 0) | (held > desc.count)).any():
            return f"offsets must ascend within [0, {desc.count}]"
        return None
    if ((held < 0) | (held >= desc.num_segments)).any():
        return f"ids must lie in [0, {desc.num_segments})"
    if desc.by == By.SORTED.value and (np.diff(held) < 0).any():
        return "ids said to be sorted must ascend"
    return None


def combined(combine: Callable[..., Any], x: Any, ids: Any, segments: int, identity: Any) -> tuple[Any, Any]:
    """x combined segment by segment by a ufunc's reduceat, and how many tokens each has (NumPy)."""
    y = np.full((segments, *x.shape[1:]), identity, x.dtype)
    tokens, found, starts = runs(ids, segments)
    if tokens.size and x[:1].size:
        y[found] = combine(x[tokens], starts, axis=0)
    return y, np.bincount(ids[tokens], minlength=segments)


def each(ids: Any, segments: int) -> Iterator[tuple[int, Any]]:
    """Every segment that has tokens, with them, in order (NumPy)."""
    tokens, found, starts = runs(ids, segments)
    return zip(found.tolist(), np.split(tokens, starts[1:]), strict=False)  # without a token there is one part, empty


def expand(n: Any, rank: int) -> Any:
    """A number a segment, to be combined with rows of `rank` axes."""
    return n.reshape(-1, *(1,) * rank)


def flat(x: Any, shape: tuple[int, ...], name: str) -> Any:
    """x, an array of that shape or None, as one axis."""
    if x is None:
        return None
    if shape_of(x, name) != shape:
        raise InvalidProblemError(f"{name} must have shape {shape}, got {shape_of(x, name)}")
    made = reshaped(x, (math.prod(shape),), name)
    if made is None:
        raise InvalidProblemError(
            f"{name} must be one run of memory, got strides that are not; copy it to a dense array"
        )
    return made
