"""Tokens that may come next, for `Scheduler.schedule` to try in one step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..core.checked import whole
from .sequence import token_list


def prompt_lookup(tokens: Iterable[int], count: int, *, longest: int = 8) -> list[int]:
    """What followed where the end of a text occurred before: `count` tokens, or none (prompt lookup, Saxena 2023).

    Of all earlier places it takes those that agree with the most of the last `longest` tokens, and of these the last.
    Where what followed runs into the end of the text it repeats itself. O(tokens · longest).
    """
    text = np.array(token_list(tokens), np.int64)
    count, longest = whole("count", count, 0), whole("longest", longest, 1)
    places = np.arange(1, len(text))  # behind which tokens agree with the last of the text
    best = places[:0]
    for back in range(1, longest + 1):
        places = places[places >= back]
        places = places[text[places - back] == text[len(text) - back]] if len(places) else places
        if not len(places):
            break
        best = places
    if not len(best):
        return []
    at = int(best[-1])
    return [int(text[at + i % (len(text) - at)]) for i in range(count)]
