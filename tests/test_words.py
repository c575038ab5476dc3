"""The texts of kernels and schedules: headers that name the kernel, comments without figures, pages that exist."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNELS = sorted((ROOT / "kernels").rglob("*.cu*"))
SCHEDULES = sorted((ROOT / "baracuda_py" / "schedules").rglob("*.py"))
FIGURE = re.compile(r"\b(?:H100|H200|A100|B200|TFLOP/s|TB/s)\b|\b\d[\d.]* ?(?:us|µs)\b")
NAMES = {"sampling.cu": "sample"}  # files whose kernel has another name


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def cuda_comments(text: str) -> list[str]:
    """The `//` comments of a source; a literal that holds two slashes is none."""
    found = re.finditer(r'"(?:\\.|[^"\\\n])*"|//([^\n]*)', text)
    return [match[1] for match in found if match[1] is not None]


def python_comments(text: str) -> list[str]:
    """The comments and the docstrings of a module, which are strings that are statements."""
    words, start = [], True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and start):
            words.append(token.string)
        if token.type != tokenize.COMMENT:
            start = token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
    return words


def comments(path: Path) -> list[str]:
    text = path.read_text()
    return python_comments(text) if path.suffix == ".py" else cuda_comments(text)


def test_comments_are_found() -> None:
    assert cuda_comments('a("//x");  // one\n// two 3 us') == [" one", " two 3 us"]
    assert python_comments('"""Doc."""\nx = "H200"  # one\ndef f():\n    """Two."""\n') == [
        '"""Doc."""',
        "# one",
        '"""Two."""',
    ]
    assert FIGURE.search("in 138 us") and FIGURE.search("(H200)") and not FIGURE.search("128 bytes, 16 users")


def test_a_header_names_its_file() -> None:
    """`// name    what it is`, on the first line, or on the second after `#pragma once`."""
    firsts = {path: next(line for line in path.read_text().splitlines() if line != "#pragma once") for path in KERNELS}
    assert firsts and not [
        f"{_name(path)}: {first}"
        for path, first in firsts.items()
        if not re.match(rf"// {re.escape(NAMES.get(path.name, path.stem))}(?:\.cuh)? +\S", first)
    ]


def test_figures_are_in_the_design_notes() -> None:
    """What was measured stands in docs/design, where it may grow; comments say why in a sentence."""
    said = [(path, line) for path in [*KERNELS, *SCHEDULES] for line in comments(path)]
    assert said and not [f"{_name(path)}: {line}" for path, line in said if FIGURE.search(line)]


def test_design_notes_that_are_named_exist() -> None:
    named = {
        page for path in [*KERNELS, *SCHEDULES] for page in re.findall(r"docs/design/[\w-]+\.md", path.read_text())
    }
    assert named and not {page for page in named if not (ROOT / page).is_file()}
    pages = {path.name for path in (ROOT / "docs" / "design").glob("*.md")} - {"README.md"}
    index = (ROOT / "docs" / "design" / "README.md").read_text()
    assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", index))


def test_kernel_files_are_small() -> None:
    lines = {_name(path): len(path.read_text().splitlines()) for path in KERNELS}
    assert lines and not {name: count for name, count in lines.items() if count > 500}


_GAP = re.compile(r"(?<=\S) {2,}(?=\S)(?!//)")
_TERM = 44  # columns of the longest first word of a table


def columns_in_prose(text: str) -> list[int]:
    """Lines, from 1, of a source whose comments have gaps where no column is: of a table that was wrapped as prose is.

    A gap stands behind the first words of a line, above or below another column, between formulas, or before `//`.
    """
    lines = [re.sub(r"^(\s*)//", r"\1  ", line) if line.lstrip().startswith("//") else "" for line in text.splitlines()]
    starts = [{m.end() for m in _GAP.finditer(line)} | {len(line) - len(line.lstrip())} for line in lines]
    starts = [found if line.strip() else set() for found, line in zip(starts, lines, strict=True)]
    wrong = []
    for number, line in enumerate(lines):
        beside = set().union(*starts[max(number - 1, 0) : number], *starts[number + 1 : number + 2])
        for gap in _GAP.finditer(line):
            before = line[: gap.start()].strip()
            first = len(before) <= _TERM and ". " not in before and not _GAP.search(before)
            if not (first or gap.end() in beside or "=" in before or before.endswith(";")):
                wrong.append(number + 1)
    return wrong


def test_tables_in_comments_are_tables() -> None:
    """A wrapped one reads as prose with gaps in it."""
    assert columns_in_prose("// Its layouts. Flat    all dense, Strided    the others.") == [1, 1]
    assert not columns_in_prose("// Flat      all dense\n// Strided   the others, or none of them\n//           at all")
    assert not columns_in_prose("// y = x + 1,   z = x - 1;  w = 0\nint x;  // one")
    assert not [f"{_name(path)}:{line}" for path in KERNELS for line in columns_in_prose(path.read_text())]
