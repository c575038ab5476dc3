"""What the site has besides `docs/`: the pages of ops and functions, the plots, how to contribute, and the changelog.

mkdocs calls these functions (`hooks` in mkdocs.yml). Links are written so that they hold in the repository; here they
are turned into the site's own.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import changelog  # noqa: E402
import function_reference  # noqa: E402
import ops_reference  # noqa: E402

ADDED = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}
PLOTS = "benchmarks/results"


def on_files(files: Any, config: Any) -> Any:
    """Pages that stand at the root of the repository, those that are made, and the plots of what was measured."""
    made = {name: (ROOT / source).read_text() for name, source in ADDED.items()} | {"changelog.md": changelog.current()}
    for name, text in (made | ops_reference.pages() | function_reference.pages()).items():
        files.append(File.generated(config, name, content=text))
    for plot in sorted((ROOT / PLOTS).glob("*.png")):
        files.append(File.generated(config, f"results/{plot.name}", abs_src_path=str(plot)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links out of `docs/` become the site's: to the plots, and to the pages at the root."""
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(rf"\((?:\.\./)*{PLOTS}/([\w.]+\.png)\)", rf"({up}results/\1)", markdown)
    for name, source in ADDED.items():
        markdown = re.sub(rf"\((?:\.\./)*{re.escape(source)}(#[\w-]+)?\)", rf"({up}{name}\1)", markdown)
    markdown = re.sub(
        r"\[([^\]]+)\]\((?:\.\./)+(?:examples|kernels|benchmarks)/[^)]*\)", r"\1", markdown
    )  # not on the site
    if page.file.src_uri == "ops.md":
        markdown = re.sub(r"^\| \[(\w+)\]\(ops/\1\.md\).*$", _linked, markdown, flags=re.MULTILINE)
    if page.parent is None:  # a tab of one page: a column with its name alone would stand beside it
        page.meta["hide"] = ["navigation"]
    if page.file.src_uri in ADDED:  # which link into docs/ from outside
        markdown = re.sub(r"\(docs/([^)\s]+)\)", r"(\1)", markdown)
    return markdown


def _linked(row: re.Match[str]) -> str:
    """A family's row of the table of ops, in which each function leads to its entry."""
    return re.sub(r"`(\w+)`", rf"[`\1`](functions/{row[1]}.md#\1)", row[0])
