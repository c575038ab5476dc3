"""Joins the fragments of `changelog.d/` into CHANGELOG.md at a release.

python tools/changelog.py 0.2.0     # what is unreleased becomes [0.2.0], and the fragments are removed
python tools/changelog.py --check   # fails where a fragment does not read as one
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GROUPS = ("Added", "Changed", "Fixed")
_UNRELEASED = "## [Unreleased]\n"


def fragments() -> list[Path]:
    """The files of changes since the last release."""
    return sorted(path for path in (ROOT / "changelog.d").glob("*.md") if path.name != "README.md")


def read(path: Path) -> dict[str, str]:
    """The lists of a fragment by group."""
    found = groups(path.read_text())
    if not found or "" in found or not set(found) <= set(GROUPS) or not all(t.startswith("- ") for t in found.values()):
        raise SystemExit(f"{path}: a fragment has lists under ### {', ### '.join(GROUPS)} and nothing else")
    return found


def groups(text: str) -> dict[str, str]:
    """Heading of the third level → what stands below it; "" → what stands before the first."""
    before, *parts = re.split(r"^### (.*)\n", text, flags=re.MULTILINE)
    found = {"": before.strip()} if before.strip() else {}
    for heading, below in zip(parts[::2], parts[1::2], strict=True):
        found[heading] = "\n".join(filter(None, (found.get(heading, ""), below.strip())))
    return found


def joined(text: str, changes: Iterable[dict[str, str]]) -> str:
    """The changelog with changes below those that stand under [Unreleased]."""
    head, unreleased, rest = text.partition(_UNRELEASED)
    if not unreleased:
        raise SystemExit("CHANGELOG.md has no section [Unreleased]")
    now, following, released = rest.partition("\n## ")
    lists: dict[str, list[str]] = {group: [] for group in GROUPS}
    for change in (groups(now), *changes):
        for group, items in change.items():
            lists[group].append(items)
    body = "".join(f"\n### {group}\n\n" + "\n".join(items) + "\n" for group, items in lists.items() if items)
    return head + unreleased + body + following + released


def released(text: str, version: str) -> str:
    """The changelog with what is unreleased under a version, and nothing unreleased."""
    return text.replace(_UNRELEASED, f"{_UNRELEASED}\n## [{version}]\n", 1)


def current() -> str:
    """The changelog as it would be if it were released now."""
    return joined((ROOT / "CHANGELOG.md").read_text(), map(read, fragments()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("version", nargs="?", help="of the release")
    given.add_argument("--check", action="store_true", help="write nothing; fail where a fragment does not read")
    arguments = parser.parse_args()
    made = current()
    if not arguments.check:
        (ROOT / "CHANGELOG.md").write_text(released(made, arguments.version))
        for path in fragments():
            path.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
