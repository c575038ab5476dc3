"""What a benchmark leaves: a CSV file a GPU, whose rows say which commit and versions they were read with."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import checkout  # noqa: F401

from baracuda_py.measure import results
from baracuda_py.measure.results import versions

ROOT = Path(__file__).resolve().parents[1]
PACKED = ROOT / "benchmarks" / "COMMIT"
RESULTS = ROOT / "benchmarks" / "results"


def slug(device: str) -> str:
    """A device's name as results are filed: without its memory ("NVIDIA H100 80GB HBM3" is nvidia_h100)."""
    words = re.split(r"[\s\-_]+", device.lower())
    return "_".join(word for word in words if word and not re.fullmatch(r"\d+gb|hbm\d\w*", word))


def gpu() -> str:
    """The slug of this machine's first device."""
    import cupy as cp

    return slug(cp.cuda.runtime.getDeviceProperties(0)["name"].decode())


def add_options(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """`--csv [FILE]`: where rows go, without FILE to the results of this GPU; and `--commit`."""
    parser.add_argument(
        "--csv", nargs="?", const="", default=default, metavar="FILE", type=_csv,
        help="keep the rows here, in place of rows of the same problems; without FILE in benchmarks/results",
    )  # fmt: skip
    parser.add_argument("--commit", default=None, help="what rows say they were read with, where this is no clone")


def _csv(name: str) -> str:
    """A word that follows `--csv` and is no file of the kind was meant for something else."""
    if name and not name.endswith(".csv"):
        raise argparse.ArgumentTypeError(f"FILE must end in .csv, got {name}; what else is given goes before --csv")
    return name


class Results:
    """The file that a run's options name, for results of a kind ("attention"); `path` is None where nothing is kept.

    key: the fields that name a problem. Without one a run's rows are the whole file.
    """

    def __init__(self, options: argparse.Namespace, kind: str = "", key: Sequence[str] = ()) -> None:
        self.key = key
        self.commit = head() if options.commit is None else options.commit
        self.path: Path | None = None
        if options.csv is not None:
            named = Path(options.csv or RESULTS / f"{gpu()}.csv")
            self.path = named.with_stem(f"{named.stem}_{kind}") if kind and not options.csv else named

    def beside(self, end: str) -> Path | None:
        """A file of another ending beside it: ".png", or "_kernels.csv"."""
        return self.path and self.path.with_name(self.path.stem + end)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep rows as `write` does."""
        write(self.path, rows, self.key, self.commit)


def write(
    path: Path | None, rows: Sequence[Mapping[str, Any]], key: Sequence[str] = (), commit: str | None = None
) -> None:
    """Each row replaces the row on file of the same `key`, in its place, and new ones follow; without a key all of it.

    A run that is cut short keeps what it measured so far. Rows also say the commit and versions they were read with.
    """
    if path is None or not rows:
        return
    results.write(path, rows, key, {"commit": head() if commit is None else commit, "versions": versions()})


def head() -> str:
    """The commit of this clone, with a + where files but results differ from it; of a packed tree; or "unknown"."""
    try:
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
        return _git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return packed(PACKED.read_text()) if PACKED.exists() else "unknown"


def packed(text: str) -> str:
    """The commit in the file COMMIT, which `git archive` and the sdist fill in."""
    return found[0] if (found := re.search(r"^[0-9a-f]{12}", text)) else "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
