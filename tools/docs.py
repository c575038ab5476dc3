"""Writes what documents say that code and results know; `--check` fails when it is stale.

README.md: the headline figures. docs/ops.md and docs/ops/: the reference of all ops, from the registry.
docs/performance.md: every table of `benchmarks/results`. docs/reference-names.md: where baracuda's plans are. What
stands outside `<!-- name -->` … `<!-- /name -->` is written by hand, but the pages of docs/ops/, which are generated
whole.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from measured import headline, measured  # noqa: E402
from ops_reference import index, pages  # noqa: E402
from reference_names import absent, elsewhere, same, table  # noqa: E402

SECTIONS = {
    "README.md": {"headline": headline},
    "docs/ops.md": {"ops": index},
    "docs/performance.md": {"measured": measured},
    "docs/reference-names.md": {"named": table, "same": same, "elsewhere": elsewhere, "absent": absent},
}


PAGES = pages


def render() -> dict[Path, str]:
    """Every document with its generated sections renewed, and those that are generated whole."""
    made = {ROOT / name: text for name, text in PAGES().items()}
    for name, sections in SECTIONS.items():
        text = (ROOT / name).read_text()
        for section, write in sections.items():
            block = f"<!-- {section} -->\n{write()}\n<!-- /{section} -->"
            pattern = f"<!-- {section} -->.*?<!-- /{section} -->"
            text, count = re.subn(pattern, block.replace("\\", r"\\"), text, flags=re.DOTALL)
            if count != 1:
                raise SystemExit(f"{name} must have one section <!-- {section} -->, it has {count}")
        made[ROOT / name] = text
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a document is stale")
    check = parser.parse_args().check
    made = render()
    stale = {path: text for path, text in made.items() if not path.exists() or path.read_text() != text}
    gone = [path for path in (ROOT / "docs/ops").glob("*.md") if path not in made]
    for path, text in stale.items():
        print(f"{'stale' if check else 'wrote'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    for path in gone:
        print(f"{'stale' if check else 'removed'}: {path.relative_to(ROOT)}")
        if not check:
            path.unlink()
    return int(check and bool(stale or gone))


if __name__ == "__main__":
    raise SystemExit(main())
