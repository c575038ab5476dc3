"""What `patch` did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A module, or a function of a modelling file, and what became of it. reason: why it stays, None if replaced."""

    path: str
    kind: str
    piece: str
    reason: str | None

    @property
    def replaced(self) -> bool:
        """Whether ours stands in its place."""
        return self.reason is None


@dataclass(frozen=True)
class Report:
    """Everything that was known in a model; printed, a line for what is alike."""

    entries: tuple[Entry, ...]

    @property
    def replaced(self) -> tuple[Entry, ...]:
        """What ours stands for."""
        return tuple(entry for entry in self.entries if entry.replaced)

    @property
    def kept(self) -> tuple[Entry, ...]:
        """What stays as it is, each with its reason."""
        return tuple(entry for entry in self.entries if not entry.replaced)

    def __str__(self) -> str:
        if not self.entries:
            return "nothing was replaced: no class of a known family is in this model"
        lines = Counter((entry.kind.rpartition(".")[2], entry.piece, entry.reason) for entry in self.entries)
        return "\n".join(
            f"{count:4} {kind} → {piece}" if reason is None else f"{count:4} {kind} stays: {reason}"
            for (kind, piece, reason), count in lines.items()
        )
