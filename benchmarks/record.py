"""What a benchmark leaves: rows that share their fields, as CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write(path: str | Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows so far: a run that is cut short keeps what it measured. Nothing without a path or rows."""
    if path is None or not rows:
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
