"""The largest errors that were measured, by plan, kind and element: `measured.tsv` beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.memo import memo
from ..core.plan import Plan


@memo()
def _table() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """(plan, kind) → (element, error) in the file's order."""
    path = Path(__file__).with_name("measured.tsv")
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line and not line.startswith("#"):
            plan, kind, element, error = line.split("\t")
            found.setdefault((plan, kind), []).append((element, error))
    return found


def measured(plan: type[Plan], kind: Any = None) -> str:
    """The errors measured for a plan, or for one kind of it; nothing where there are none on file."""
    rows = _table().get((plan.__name__, "-" if kind is None else kind.value), [])
    return "; ".join(f"{element}: {error}" for element, error in rows)
