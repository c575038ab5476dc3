"""What a step found of a group, kept for the next one: parameters of one launch, their states, the count of steps.

Steps follow one another with the same parameters and states, and other gradients. To look at each tensor again and to
count each one's steps would take longer than the kernel. `Found.holds` compares whole lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

from ..untyped import torch


class Batch:
    """Parameters that are stepped in one launch, with their states; `lists` has a list for each name of a state.

    Steps that are counted on the host become views of one array, so that an addition counts them all.
    """

    def __init__(self, params: list[Any], states: list[dict[str, Any]], names: Sequence[str], counted: bool) -> None:
        self.params, self.states = params, states
        self.lists: dict[str, list[Any]] = {name: [state.get(name) for state in states] for name in names}
        self.runs = 0
        """How often it has been stepped."""
        self.steps: Any = None
        if counted and not torch.is_inference_mode_enabled():
            first = states[0]["step"]
            self.steps, self.count = torch.full((len(states),), float(first), dtype=first.dtype), int(first)
            self.views = list(self.steps.unbind())
            for state, view in zip(states, self.views, strict=True):
                state["step"] = view
            self.version = self.steps._version

    def counts(self) -> int:
        """Count a step on the host; its number."""
        if self.steps is None:
            for state in self.states:
                state["step"] += 1
            return int(self.states[0]["step"])
        self.steps += 1
        self.count, self.version = self.count + 1, self.steps._version
        return self.count

    def same(self) -> bool:
        """Whether the states are those tensors, and nobody else has counted."""
        for name, one in self.lists.items():
            if not all(map(is_, [state.get(name) for state in self.states], one)):
                return False
        if self.steps is None:
            return True
        return self.steps._version == self.version and all(
            map(is_, [state.get("step") for state in self.states], self.views)
        )


class Found:
    """The batches of a group, and what they were found by."""

    def __init__(self, optimizer: Any, group: dict[str, Any], batches: list[Batch]) -> None:
        self.batches = batches
        self.params = list(group["params"])
        self.facts = _facts(optimizer, group)
        self.grads = _grads(self.params)
        self.stepped = [p for batch in batches for p in batch.params]
        self.states = [state for batch in batches for state in batch.states]
        # Counts on the device have no version that the host may ask for: the counters themselves tell batches apart.
        self.counters = [state.get("step") for state in self.states]

    def holds(self, optimizer: Any, group: dict[str, Any]) -> bool:
        """Whether a step would find the same."""
        params = group["params"]
        return (
            len(params) == len(self.params)
            and all(map(is_, params, self.params))
            and _facts(optimizer, group) == self.facts
            and _grads(params) == self.grads
            and all(map(is_, map(optimizer.state.get, self.stepped), self.states))
            and all(map(is_, [state.get("step") for state in self.states], self.counters))
            and all(batch.same() for batch in self.batches)
        )


def _facts(optimizer: Any, group: dict[str, Any]) -> tuple[Any, ...]:
    return optimizer.held(group), bool(group.get("capturable"))


def _grads(params: list[Any]) -> list[Any]:
    """Of each parameter its gradient's dtype, None without one, and what no step takes."""
    return [None if (g := p.grad) is None else "sparse" if g.is_sparse else g.dtype for p in params]
