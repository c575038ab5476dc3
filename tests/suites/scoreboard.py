"""Where a suite's cases stand against a committed file: compare, print, rewrite."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STATUSES = ("passed", "not_implemented", "disagrees")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Where a case stands, and why."""

    op: str
    status: str
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Expected:
    """The committed statuses: case → status, the reasons of disagreements, and the suite's version."""

    version: str
    statuses: Mapping[str, str]
    reasons: Mapping[str, str]


def load(path: Path) -> Expected:
    """Read a file that `render` wrote."""
    data = tomllib.loads(path.read_text())
    statuses = dict.fromkeys(data["passed"], "passed")
    for cases in data["not_implemented"].values():
        statuses |= dict.fromkeys(cases, "not_implemented")
    statuses |= dict.fromkeys(data["disagrees"], "disagrees")
    if dict(Counter(statuses.values())) != {k: v for k, v in data["counts"].items() if v}:
        raise ValueError(f"{path.name}: the counts are not those of the lists")
    return Expected(data["version"], statuses, data["disagrees"])


def render(suite: str, version: str, found: Mapping[str, Outcome], reasons: Mapping[str, str]) -> str:
    """The file for these outcomes; a disagreement keeps its reason, a new one gets an empty one to fill in.

    What is not implemented stands under its op and why it is not, where that is known.
    """
    by_status: dict[str, list[str]] = {s: sorted(n for n, o in found.items() if o.status == s) for s in STATUSES}
    missing: dict[str, list[str]] = defaultdict(list)
    for name in by_status["not_implemented"]:
        missing[": ".join(filter(None, (found[name].op, found[name].why)))].append(name)
    lines = [f"# {suite}: where each case stands. Written by --update; the reasons are written by hand.", ""]
    lines += [f"version = {json.dumps(version)}"]
    lines += ["passed = [", *(f"  {json.dumps(name)}," for name in by_status["passed"]), "]"]
    lines += ["", "[counts]", *(f"{status} = {len(names)}" for status, names in by_status.items())]
    why = {name: json.dumps(reasons.get(name, ""), ensure_ascii=False) for name in by_status["disagrees"]}
    lines += ["", "[disagrees]", *(f"{name} = {text}" for name, text in why.items())]
    lines += ["", "[not_implemented]"]
    lines += [f"{json.dumps(op)} = [{', '.join(map(json.dumps, names))}]" for op, names in sorted(missing.items())]
    return "\n".join(lines) + "\n"


def differences(expected: Expected, found: Mapping[str, Outcome], version: str) -> list[str]:
    """What no longer is as the file says; what another version of the suite adds or drops is no difference."""
    lines = []
    for name, outcome in found.items():
        want = expected.statuses.get(name)
        if want is None and version != expected.version:
            continue
        if want != outcome.status:
            why = f" ({outcome.why})" if outcome.why else ""
            lines.append(f"{name}: {want or 'not listed'} → {outcome.status}{why}")
    if version == expected.version:
        lines += [f"{name}: {want} → gone" for name, want in expected.statuses.items() if name not in found]
    lines += [f"{name}: disagrees without a reason" for name, why in expected.reasons.items() if not why.strip()]
    return lines


def table(found: Mapping[str, Outcome], families: Mapping[str, str], mapped: Any) -> str:
    """One line a family: passed / mapped / total; `mapped` holds the suite's ops that have a counterpart here."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in found.values():
        family = families.get(outcome.op, "other")
        counts[family].update(total=1, mapped=outcome.op in mapped, passed=outcome.status == "passed")
    lines = [f"{'family':<12} {'passed':>6} {'mapped':>6} {'total':>6}"]
    for family in sorted(counts, key=lambda f: (f == "other", f)):
        c = counts[family]
        lines.append(f"{family:<12} {c['passed']:>6} {c['mapped']:>6} {c['total']:>6}")
    every = sum(counts.values(), Counter())
    return "\n".join([*lines, f"{'all':<12} {every['passed']:>6} {every['mapped']:>6} {every['total']:>6}"])
