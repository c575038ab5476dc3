"""Steps over packed rows, as torch's PackedSequence has them, and their launches: one a step, in runs that are alike.

Rows of step t follow those of step t - 1, `sizes[t]` of them, which do not grow. A walk goes from the first step to the
last or back, and a row's state comes from the step that was taken before where that has the row, else from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from ..core.checked import shown, whole
from ..core.errors import InvalidProblemError
from ..core.memo import memo


@dataclass(frozen=True)
class Place:
    """A step's first row, and how many there are; the same of the steps taken before and after it, 0 without one."""

    start: int
    rows: int
    before: int = 0
    known: int = 0
    later: int = 0
    later_rows: int = 0


@dataclass(frozen=True)
class Run:
    """`times` steps taken one after another, whose places move by `advance` rows each."""

    place: Place
    times: int = 1
    advance: int = 0


def sizes_of(name: str, value: Any) -> tuple[int, ...]:
    """The rows of each step, however many steps there are; refused where they grow, or are 0."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, bytearray)):
        raise InvalidProblemError(f"{name} must be integers, got {shown(value)}")
    found = tuple(value)
    if not all(type(n) is int for n in found):
        found = tuple([whole(name, n) for n in found])
    if found and (min(found) < 1 or any(a < b for a, b in pairwise(found))):
        raise InvalidProblemError(f"{name} must be positive and not grow from step to step, got {shown(found)}")
    return found


@memo(maxsize=64)
def places(sizes: tuple[int, ...], reverse: bool) -> tuple[Place, ...]:
    """Where the steps are, in the order of the walk."""
    starts = [0, *accumulate(sizes)]
    order = range(len(sizes))[:: -1 if reverse else 1]
    none = (0, 0)
    found = [(starts[t], sizes[t]) for t in order]
    return tuple(
        Place(*here, *before, *after)
        for here, before, after in zip(found, [none, *found][: len(found)], [*found, none][1:], strict=True)
    )


def runs(steps: Sequence[Place]) -> Iterator[Run]:
    """Neighbours with the same numbers of rows everywhere as one run."""
    held: Run | None = None
    for place in steps:
        if held is not None and (more := _longer(held, place)) is not None:
            held = more
            continue
        if held is not None:
            yield held
        held = Run(place)
    if held is not None:
        yield held


def _longer(run: Run, place: Place) -> Run | None:
    """The run with one step more, where it continues it."""
    first, rows = run.place, place.rows
    if not rows == first.rows == place.known == first.known == place.later_rows == first.later_rows:
        return None
    advance = (place.start - first.start) // run.times
    return Run(first, run.times + 1, advance) if run.times == 1 or advance == run.advance else None
