"""Writes the README's tables: ops from the registry, figures from benchmarks/results; `--check` fails when stale."""

from __future__ import annotations

import argparse
import csv
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from baracuda_py.core.report import operations  # noqa: E402


def ops_table() -> str:
    """One line per plan."""
    lines = ["| family | plan | direction | elements | kinds | backends |", "| --- | --- | --- | --- | --- | --- |"]
    for op in operations():
        backends = ", ".join(dict.fromkeys(v["backend"] for v in op["variants"]))
        kinds = str(len(op["kinds"])) if op["kinds"] else ""
        cells = (op["family"], f"`{op['plan']}`", op["direction"], ", ".join(op["elements"]), kinds, backends)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def measured() -> str:
    """The benchmark table of each GPU on file."""
    parts = []
    for path in sorted((ROOT / "benchmarks/results").glob("*.csv")):
        if path.stem.endswith("_host"):
            parts.append(_host_table(path))
            continue
        with path.open() as file:
            rows = list(csv.DictReader(file))
        if not rows:
            continue
        parts.append(
            f"{path.stem.replace('_', ' ').upper()}: TB/s or TFLOP/s, the fraction of the ceiling measured in the same "
            "run, and the fastest peer interleaved in that run.\n\n"
            "| op | shape | µs | rate | of ceiling | best peer | speed-up |\n"
            "| --- | --- | --- | --- | --- | --- | --- |"
        )
        for row in rows:
            peer = f"{row['peer']} {float(row['peer_us']):.1f} µs" if row["peer"] else ""
            ratio = f"{float(row['peer_us']) / float(row['us']):.2f}×" if row["peer"] else ""
            parts[-1] += (
                f"\n| {row['op']} | {row['shape']} | {float(row['us']):.1f} | {row['rate']} {row['unit']} "
                f"| {100 * float(row['fraction']):.0f} % | {peer} | {ratio} |"
            )
    return "\n\n".join(parts) or "No figures are on file yet."


def _host_table(path: Path) -> str:
    with path.open() as file:
        rows = list(csv.reader(file))[1:]
    lines = ["Host cost of a call, µs:", "", "| call | µs | over the prepacked launch |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {us} | {over} |" for name, us, over in rows)])


def render(text: str) -> str:
    """The README with its generated sections renewed."""
    for name, body in (("ops", ops_table()), ("measured", measured())):
        block = f"<!-- {name} -->\n{body}\n<!-- /{name} -->"
        text = re.sub(f"<!-- {name} -->.*?<!-- /{name} -->", lambda _, block=block: block, text, flags=re.DOTALL)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the README is stale")
    check = parser.parse_args().check
    path = ROOT / "README.md"
    new = render(path.read_text())
    if new == path.read_text():
        return 0
    print("stale: README.md" if check else "wrote: README.md")
    if not check:
        path.write_text(new)
    return int(check)


if __name__ == "__main__":
    raise SystemExit(main())
