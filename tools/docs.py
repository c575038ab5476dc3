"""Writes what documents say that code and results know; `--check` fails when it is stale.

README.md: the headline figures, and those of patched models. docs/ops.md: the index of all ops, from the registry; its
pages are made with the site (tools/site.py). docs/performance.md: the headline, and all tables of `benchmarks/results`.
docs/not-offered.md: names of other libraries that are not here, and why. docs/reference-names.md: where baracuda's
plans are. docs/torch-names.md: where torch's functions are, written with the
torch that tools/torch_names.py names. What stands outside `<!-- name -->` … `<!-- /name -->` is written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from measured import headline, measured, models  # noqa: E402
from ops_reference import index  # noqa: E402
from reference_names import absent, elsewhere, same, table  # noqa: E402
from torch_names import functions, modules, usable  # noqa: E402

from baracuda_py._not_offered import LIMITED, NOT_OFFERED  # noqa: E402
from baracuda_py._not_offered import table as not_offered  # noqa: E402

SECTIONS = {
    "README.md": {"headline": headline, "models": models},
    "docs/ops.md": {"ops": index},
    "docs/not-offered.md": {"names": lambda: not_offered(NOT_OFFERED), "limits": lambda: not_offered(LIMITED)},
    "docs/performance.md": {"headline": headline, "measured": measured},
    "docs/reference-names.md": {"named": table, "same": same, "elsewhere": elsewhere, "absent": absent},
}
if usable():
    SECTIONS["docs/torch-names.md"] = {"functions": functions, "modules": modules}


def render() -> dict[Path, str]:
    """Every document with its generated sections renewed."""
    made = {}
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
    stale = {path: text for path, text in made.items() if path.read_text() != text}
    for path, text in stale.items():
        print(f"{'stale' if check else 'wrote'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(text)
    return int(check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
