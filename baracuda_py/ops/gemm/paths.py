"""In which order the operands of a product of several are multiplied: opt_einsum's order, or one of our own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError
from .equation import Label

Path = tuple[tuple[int, ...], ...]
"""Places of the operands that each step takes out of the list; what it makes of them is appended."""


def path_of(inputs: Sequence[tuple[Label, ...]], output: Sequence[Label], extents: Mapping[Label, int]) -> Path:
    """The order that opt_einsum finds, where it is installed; else the smallest results first."""
    if len(inputs) < 3:
        return (tuple(range(len(inputs))),)
    try:
        opt_einsum: Any = import_module("opt_einsum")
    except ImportError:
        return greedy(inputs, output, extents)
    symbols = {label: opt_einsum.get_symbol(place) for place, label in enumerate(extents)}
    terms = ["".join(symbols[label] for label in labels) for labels in (*inputs, output)]
    shapes = [tuple(int(extents[label]) for label in labels) for labels in inputs]
    equation = f"{','.join(terms[:-1])}->{terms[-1]}"
    path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="auto")
    return tuple(tuple(step) for step in path)


def greedy(inputs: Sequence[tuple[Label, ...]], output: Sequence[Label], extents: Mapping[Label, int]) -> Path:
    """Each step takes the two whose product has the fewest elements beyond their own, the first of equals."""
    live = [frozenset(labels) for labels in inputs]
    steps: list[tuple[int, ...]] = []

    def size(labels: frozenset[Label]) -> int:
        return math.prod(extents[label] for label in labels)

    def product(i: int, j: int) -> frozenset[Label]:
        needed = frozenset(output).union(*(x for k, x in enumerate(live) if k not in (i, j)))
        return (live[i] | live[j]) & needed

    while len(live) > 1:
        pairs = [(i, j) for j in range(len(live)) for i in range(j)]
        i, j = min(pairs, key=lambda pair: size(product(*pair)) - size(live[pair[0]]) - size(live[pair[1]]))
        made = product(i, j)
        steps.append((i, j))
        live = [x for k, x in enumerate(live) if k not in (i, j)] + [made]
    return tuple(steps)


def checked_path(path: Any, operands: int) -> Path:
    """A path that a caller gives; raises where it does not take every operand and leave one."""
    if not isinstance(path, (list, tuple)):
        raise InvalidProblemError(f"path must be a list of tuples of places such as [(0, 1)], got {shown(path)}")
    live, steps = operands, list[tuple[int, ...]]()
    for step in path:
        listed = step if isinstance(step, (list, tuple)) else ()
        places = tuple(whole("path: a place", at, 0, live - 1) for at in listed)
        if not places or len({*places}) < len(places):
            raise InvalidProblemError(f"path: a step has different places among {live} operands, got {shown(step)}")
        steps.append(places)
        live += 1 - len(places)
    if live != 1:
        raise InvalidProblemError(f"path must leave one array of {operands} operands, {shown(path)} leaves {live}")
    return tuple(steps)
