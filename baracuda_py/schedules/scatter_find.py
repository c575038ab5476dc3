"""How an element of a scatter finds the tokens that name it: parameters, and launches before the elements are made.

Of the tokens that are combined each element wants its own in order: lines are sorted stably, few positions by counts
(kernels/include/baracuda/segments.cuh), many by a radix sort of positions (schedules/radix_sort.py). Where the last
token wins its number is enough, which atomics find in any order. Lines of few tokens need nothing: every element looks
through them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.variant import Kernel, Problem, Step, aligned
from .counting_sort import RANGE, SORT_THREADS
from .geometry import MOST_BLOCKS
from .map import THREADS
from .radix_sort import Sort, Strided, sort_kernels, sort_params

COUNTED = ((1, 1 << 19), (16, 1 << 16), (1 << 19, 1 << 13))
"""Up to so many ranges of positions up to so many tokens of a line are counted: every range looks at all of them."""
SORT_PARAMS = sort_params("SortParams")
_PASSES = ("clear", "count", "pass")
PLACES = ("counts", "totals", "starts", "order", "latest", "keys", "sorted_keys")


def sorting_kernels(params: Params) -> tuple[Kernel, ...]:
    """Those that sort the tokens of long lines."""
    return (
        *(Kernel(name, f"scatter_{name}", params, threads=SORT_THREADS) for name in ("tally", "place")),
        *(Kernel(name, f"scatter_{name}", params, threads=THREADS) for name in ("keys", "bounds")),
        *(kernel for kernel in sort_kernels(SORT_PARAMS, "sort/sort.cu", ElementKind.I32) if kernel.name in _PASSES),
    )


def latest_kernels(params: Params) -> tuple[Kernel, ...]:
    """Those that find the last token of every position."""
    return (
        Kernel("empty", "scatter_clear", params, threads=THREADS),
        Kernel("latest", "scatter_latest", params, threads=THREADS),
    )


@dataclass(frozen=True)
class Finding:
    """Parameters with places in the workspace, where that ends, and the launches, given the parameters of all."""

    params: Mapping[str, Any]
    workspace: int
    launches: Callable[[Mapping[str, Any]], tuple[Step, ...]] = lambda params: ()


def looked_through(start: int) -> Finding:
    """Every element looks at all tokens."""
    nowhere = dict.fromkeys(PLACES, 0)
    return Finding({**nowhere, "starts_pitch": 0, "ranges": 1, "parts": 1, "range_pitch": 0, "marks": 0}, start)


def _placed(sizes: Mapping[str, int], start: int) -> Finding:
    found = looked_through(start)
    fields, end = dict(found.params), start
    for name, nbytes in sizes.items():
        fields[name], end = end, end + aligned(nbytes)
    return Finding(fields, end)


def latest(lines: int, tokens: int, extent: int, start: int) -> Finding | str:
    """The last token of every position of the lines; a string says why not."""
    pitch = -(-extent // 4) * 4
    marks = lines * pitch
    place = _placed({"latest": 4 * marks}, start)
    blocks = -(-marks // (4 * THREADS)), -(-lines * tokens // THREADS)
    if max(blocks) > MOST_BLOCKS:
        return "more than 2^31 blocks"

    def launches(params: Mapping[str, Any]) -> tuple[Step, ...]:
        pairs = zip(("empty", "latest"), blocks, strict=True)
        return tuple(Step(name, (max(count, 1), 1, 1), params, {}, THREADS) for name, count in pairs)

    return Finding({**place.params, "starts_pitch": pitch, "marks": marks}, place.workspace, launches)


def sorted_tokens(p: Problem, lines: int, tokens: int, extent: int, start: int) -> Finding | str:
    """The tokens of each line by position, in order; a string says why not."""
    ranges = -(-extent // RANGE)
    if any(ranges <= most and tokens <= few for most, few in COUNTED):
        return _counted(lines, tokens, extent, start)
    return _by_radix(p, lines, tokens, extent, start)


def _counted(lines: int, tokens: int, extent: int, start: int) -> Finding | str:
    ranges = max(1, -(-extent // RANGE))
    pitch = RANGE if ranges > 1 else max(4, -(-extent // 4) * 4)
    # Each part has counts of its own, and its blocks read those of all parts before: few where there are many blocks.
    parts = max(1, min(-(-tokens // SORT_THREADS), 128 // (ranges * lines or 1), 64, 8 * RANGE // pitch))
    starts_pitch, blocks = -(-extent // 4) * 4 + 1, max(1, lines * ranges * parts)
    if blocks > MOST_BLOCKS:
        return "more than 2^31 blocks"
    sizes = {
        "counts": lines * parts * ranges * pitch * 4, "totals": lines * parts * ranges * 4,
        "starts": lines * starts_pitch * 4, "order": lines * tokens * 4,
    }  # fmt: skip
    place = _placed(sizes, start)
    own = {"starts_pitch": starts_pitch, "ranges": ranges, "parts": parts, "range_pitch": pitch}

    def launches(params: Mapping[str, Any]) -> tuple[Step, ...]:
        return tuple(Step(name, (blocks, 1, 1), params, {}, SORT_THREADS) for name in ("tally", "place"))

    return Finding({**place.params, **own}, place.workspace, launches)


def _by_radix(p: Problem, lines: int, tokens: int, extent: int, start: int) -> Finding | str:
    starts_pitch, marks = -(-extent // 4) * 4 + 1, lines * tokens
    sizes = {"starts": lines * starts_pitch * 4, "order": marks * 4, "keys": marks * 4, "sorted_keys": marks * 4}
    place = _placed(sizes, start)
    at = {name: Strided.at(place.params[name], (lines,), tokens) for name in sizes}
    operands = at["keys"], at["sorted_keys"], at["order"]
    # A token that names nothing has the position `extent`, and comes last.
    sort = Sort.of(p, ElementKind.I32, (lines,), tokens, operands, bits=extent.bit_length())
    if isinstance(sort, str):
        return sort
    blocks = -(-marks // THREADS), -(-lines * (extent + 1) // THREADS)
    if max(blocks) > MOST_BLOCKS:
        return "more than 2^31 blocks"
    sorting = sort.passes(*operands, place.workspace)

    def launches(params: Mapping[str, Any]) -> tuple[Step, ...]:
        before, after = (
            Step(name, (max(count, 1), 1, 1), params, {}, THREADS)
            for name, count in zip(("keys", "bounds"), blocks, strict=True)
        )
        return before, *sorting.steps, after

    return Finding({**place.params, "starts_pitch": starts_pitch, "marks": marks}, aligned(sorting.workspace), launches)
