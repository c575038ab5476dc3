"""Writes the README's tables: ops from the registry, figures from benchmarks/results; `--check` fails when stale."""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

ROOT = Path(__file__).resolve().parents[1]
_LENGTHS = ("1024", "4096", "16384")  # of attention, in the README
sys.path.insert(0, str(ROOT))

from baracuda_py.core.report import operations  # noqa: E402


def ops_table() -> str:
    """One line per plan."""
    lines = []
    for op in operations():
        backends = ", ".join(dict.fromkeys(v["backend"] for v in op["variants"]))
        kinds = str(len(op["kinds"])) if op["kinds"] else ""
        lines.append((op["family"], f"`{op['plan']}`", op["direction"], ", ".join(op["elements"]), kinds, backends))
    return _table("", ("family", "plan", "direction", "elements", "kinds", "backends"), lines)


def measured() -> str:
    """The tables and plots of the figures on file."""
    parts = []
    for path in sorted((ROOT / "benchmarks/results").glob("*.csv")):
        table = next((table for suffix, table in _TABLES.items() if path.stem.endswith(suffix)), _op_table)
        parts.append(table(path) + _plot(path))
    return "\n\n".join(part for part in parts if part) or "No figures are on file yet."


def _op_table(path: Path) -> str:
    lines = [
        (
            row["op"], row["shape"], f"{float(row['us']):.1f}", f"{row['rate']} {row['unit']}",
            f"{100 * float(row['fraction']):.0f} %",
            f"{row['peer']} {float(row['peer_us']):.1f} µs" if row["peer"] else "",
            f"{float(row['peer_us']) / float(row['us']):.2f}×" if row["peer"] else "",
        )
        for row in _rows(path)
    ]  # fmt: skip
    title = (
        f"{path.stem.replace('_', ' ').upper()}: TB/s or TFLOP/s, the fraction of the ceiling measured in the same "
        "run, and the fastest peer interleaved in that run"
    )
    return _table(title, ("op", "shape", "µs", "rate", "of ceiling", "best peer", "speed-up"), lines)


def _plot(path: Path) -> str:
    """The plot drawn from a CSV, where there is one beside it."""
    image = path.with_suffix(".png")
    return f"\n\n![{path.stem.replace('_', ' ')}]({image.relative_to(ROOT)})" if image.exists() else ""


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def _table(title: str, head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    """A table under its title, if it has one; nothing where there are no lines."""
    if not lines:
        return ""
    rows = (head, ("---",) * len(head), *lines)
    above = [f"{title}:", ""] if title else []
    return "\n".join([*above, *(f"| {' | '.join(cells)} |" for cells in rows)])


def _host_table(path: Path) -> str:
    with path.open() as file:
        lines = [tuple(row) for row in csv.reader(file)][1:]
    return _table("Host cost of a call, µs", ("call", "µs", "over the prepacked launch"), lines)


def _attention_table(path: Path) -> str:
    points: dict[tuple[str, ...], dict[str, str]] = {}
    for row in _rows(path):
        key = row["head_dim"], row["heads"], row["length"], row["mask"]
        found = points.setdefault(key, {})
        found[row["direction"] + row["variant"]] = row["tflops"]
        found |= {f"{row['direction']} {peer}": row[peer] for peer in ("flash", "cudnn")}
    shown = (
        "forward",
        "forward flash",
        "forward cudnn",
        "backward",
        "backwardany order",
        "backward flash",
        "backward cudnn",
    )
    lines = [(*key, *(found.get(name, "") for name in shown)) for key, found in points.items() if key[2] in _LENGTHS]
    title = (
        "Attention in bf16, 16384 tokens and a hidden size of 2048, TFLOP/s (`benchmarks/attention.py`; its CSV has "
        'more lengths). Backward is deterministic; "any order" is what `PlanPreference(deterministic=False)` takes'
    )
    heads = ("forward", "torch FLASH", "torch cuDNN", "backward", "any order", "torch FLASH", "torch cuDNN")
    return _table(title, ("head_dim", "heads", "length", "mask", *heads), lines) + "\n\n" + _over_flash(path)


def _terms_table(path: Path) -> str:
    points: dict[tuple[str, ...], dict[str, str]] = {}
    for row in _rows(path):
        key = row["direction"], row["head_dim"], row["length"]
        points.setdefault(key, {})[row["term"]] = f"{100 * float(row['of_plain']):.0f} %"
    terms = [t for t in next(iter(points.values()), {}) if not t.startswith("plain")]
    lines = [(*key, *(found.get(t, "") for t in terms)) for key, found in points.items()]
    title = (
        "Throughput with a score term, of the plain causal row's at equal work (`benchmarks/attention_terms.py`): mask "
        "is [batch, 1, 1, keys] of bool, bias [1, heads, queries, keys] of bf16, the window 1024 keys"
    )
    return _table(title, ("direction", "head_dim", "length", *terms), lines)


def _varlen_table(path: Path) -> str:
    lines = [
        (
            f"{row['direction']} {row['variant']}".strip(), row["head_dim"], row["mix"], row["tflops"], row["flash"],
            f"{100 * float(row['vs_dense']):.0f} %",
        )
        for row in _rows(path)
    ]  # fmt: skip
    title = "Packed sequences, 32768 tokens, causal, TFLOP/s (`benchmarks/attention_varlen.py`)"
    return _table(title, ("", "head_dim", "lengths", "ours", "torch FLASH", "of the dense row"), lines)


def _over_flash(path: Path) -> str:
    """Geometric mean and worst of the ratio to FLASH over all points, by row."""
    ratios: dict[str, list[float]] = {}
    for row in _rows(path):
        ratios.setdefault(f"{row['direction']} {row['variant']}".strip(), []).append(float(row["vs_flash"]))
    lines = [(name, f"{geometric_mean(found):.2f}×", f"{min(found):.2f}×") for name, found in ratios.items()]
    title = "Over torch's FLASH in the same run, all points of the table's CSV"
    return _table(title, ("", "geometric mean", "worst"), lines)


def _train_step_table(path: Path) -> str:
    rows = _rows(path)
    lines = [
        (
            row["candidate"], f"{float(row['ms']):.2f}", f"{int(row['tokens_per_s']) / 1e6:.2f}", row["peak_gb"],
            row["held_out"], row["seconds"],
        )
        for row in rows
    ]  # fmt: skip
    title = (
        "`examples/train_gpt.py --preset gpu`, a step of 23.9 M parameters on 32 x 1024 bytes in bf16, and the same "
        "model in torch in that run (`benchmarks/train_step.py --full`)"
    )
    return _table(title, ("", "ms a step", "million tokens/s", "peak GB", "held-out nats/byte", "whole run, s"), lines)


def _kernels_table(path: Path) -> str:
    lines = [
        (
            row["op"], row["shape"], row["calls"], row["us"], row["floor_us"],
            f"{100 * float(row['of_floor']):.0f} %" if row["of_floor"] else "",
        )
        for row in _rows(path)
        if float(row["us"]) >= 100
    ]  # fmt: skip
    title = (
        "The same step by call, where a call's share is above 100 µs. The floor is the larger of its bytes at the copy "
        "bandwidth and its arithmetic at the matrix rate measured in that run"
    )
    return _table(title, ("op", "shape", "calls", "µs", "floor, µs", "of floor"), lines)


def _generate_table(path: Path) -> str:
    lines = [
        (
            row["batch"], row["context"], f"{int(row['tokens_per_s']):,}", f"{100 * float(row['of_floor']):.0f} %",
            f"{int(row['torch_tokens_per_s']):,}" if row["torch_tokens_per_s"] else "",
        )
        for row in _rows(path)
    ]  # fmt: skip
    title = (
        "Generation with that model, one captured step a token at the end of a full cache (`benchmarks/generate.py`); "
        "the ceiling is reading the weights and the cache once"
    )
    return _table(title, ("batch", "keys", "tokens/s", "of ceiling", "torch, tokens/s"), lines)


def _fusions_table(path: Path) -> str:
    lines = [
        (row["fusion"], row["fused_us"], row["separate_us"], row["calls_a_step"], row["saved_us_a_step"])
        for row in _rows(path)
    ]
    title = "What each fusion of that step is worth, against this package's separate calls (`benchmarks/fusions.py`)"
    return _table(title, ("fusion", "µs", "separate, µs", "calls a step", "saved a step, µs"), lines)


_TABLES = {
    "_fusions": _fusions_table,
    "_attention": _attention_table,
    "_attention_terms": _terms_table,
    "_attention_varlen": _varlen_table,
    "_host": _host_table,
    "_train_step": _train_step_table,
    "_train_step_kernels": _kernels_table,
    "_generate": _generate_table,
}


def render(text: str) -> str:
    """The README with its generated sections renewed."""
    for name, body in (("ops", ops_table()), ("measured", measured())):
        block = f"<!-- {name} -->\n{body}\n<!-- /{name} -->"
        text = re.sub(f"<!-- {name} -->.*?<!-- /{name} -->", block.replace("\\", r"\\"), text, flags=re.DOTALL)
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
