"""Results on file: a CSV whose rows say which software they were read with, and two of them side by side."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from .. import __version__
from ..core import lock, storage
from ..core.errors import BaracudaError

KEY = ("op", "shape")


def write(
    path: Path, rows: Sequence[Mapping[str, Any]], key: Sequence[str] = KEY, told: Mapping[str, str] | None = None
) -> None:
    """Each row replaces the row on file of the same `key`, in its place, and new ones follow; without a key all of it.

    A run that is cut short keeps what it measured so far, and runs at the same time keep each other's rows: the file is
    replaced whole. `told`: what each row says besides (default: the versions).
    """
    if not rows:
        return
    told = {"versions": versions()} if told is None else told
    fresh = [{**{k: str(v) for k, v in row.items()}, **told} for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock.exclusive(path.with_name(f".{path.name}.lock")):  # what another run writes meanwhile is kept
        kept: dict[Any, Mapping[str, str]] = {}
        if key and path.exists():
            kept = {tuple(row.get(k) or "" for k in key): row for row in read(path)}
        for i, row in enumerate(fresh):
            kept[tuple(row[k] for k in key) if key else i] = row
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(fresh[0]), restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(kept.values())
        storage.write_file(path, text.getvalue().encode(), private=False)


def read(path: Path) -> list[dict[str, str]]:
    """The rows on file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def versions() -> str:
    """Software of the run."""
    found = [f"baracuda_py {__version__}"]
    if cupy := sys.modules.get("cupy"):
        found += [f"cupy {cupy.__version__}"]
        if cupy.cuda.is_available():
            found += [f"driver CUDA {cupy.cuda.runtime.driverGetVersion()}"]
    if torch := sys.modules.get("torch"):
        found.append(f"torch {torch.__version__}")
    return "; ".join(found)


@dataclass(frozen=True)
class Change:
    """One problem in two files: microseconds before and after."""

    name: str
    old: float
    new: float

    @property
    def speedup(self) -> float:
        """How many times faster the new one is."""
        return self.old / self.new


def compare(old: Path, new: Path) -> tuple[list[Change], list[str], list[str]]:
    """The problems that both files have, those that only the old one has, and those that only the new one has."""
    before, after = ({_name(row): row for row in read(path)} for path in (old, new))
    both = [
        Change(name, _time(old, name, before[name]), _time(new, name, after[name])) for name in before if name in after
    ]
    return both, [n for n in before if n not in after], [n for n in after if n not in before]


def _time(path: Path, name: str, row: Mapping[str, str]) -> float:
    try:
        found = float(row["us"])
    except (KeyError, TypeError, ValueError):
        found = math.nan
    if not 0 < found < math.inf:
        raise BaracudaError(f"{path}: {name} has no time to compare: us is {row.get('us')!r}; measure it again")
    return found


def mean_speedup(changes: Sequence[Change]) -> float:
    """The geometric mean over the problems."""
    return geometric_mean([change.speedup for change in changes]) if changes else 1.0


def _name(row: Mapping[str, str]) -> str:
    """What tells a problem: its op and shape, or the columns before the first figure."""
    if "op" in row:
        return f"{row['op']} {row.get('shape', '')}"
    return " ".join(value for name, value in row.items() if name in ("call", "direction", "head_dim", "length", "mask"))
