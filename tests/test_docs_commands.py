"""Every command line of README and documentation is one that exists: understood, its files there, and run where that
needs neither a GPU nor a download."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from baracuda_py.cli.main import main, parsed

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```(?:bash|console|sh)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
QUICK = ("env", "ops", "explain")  # what runs anywhere, in little time
OURS = "python -m baracuda_py "


def _commands() -> list[tuple[str, str]]:
    """(page, command) of all bash blocks, and of the commands of this package that stand in the text."""
    found = []
    for page in PAGES:
        text, name = page.read_text(), str(page.relative_to(ROOT))
        lines = [line.strip() for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
        inline = re.findall(rf"`({re.escape(OURS)}[^`]*)`", BLOCK.sub("", text).replace("\n", " "))
        found += [(name, one.strip()) for line in (*lines, *inline) for one in line.split("&&") if one.strip()]
    return found


COMMANDS = [(page, one) for page, one in _commands() if not one.startswith("#")]
OWN = [(page, one) for page, one in COMMANDS if one.startswith(OURS) and " | " not in one]
SCRIPTS = [(page, one) for page, one in COMMANDS if re.search(r"\bpython (?:\S+/)?\S+\.py\b", one)]


def test_there_are_some() -> None:
    assert len(OWN) > 5 and len(SCRIPTS) > 5


@pytest.mark.parametrize(("page", "command"), OWN)
def test_a_command_of_this_package_is_understood(page: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command, comments=True)[3:]
    try:
        options = parsed(words)
    except SystemExit:
        raise AssertionError(f"{page}: {command}: {capsys.readouterr().err}") from None
    if options.command in QUICK and not any(word.isupper() or "…" in word for word in words):
        assert main(words) == 0, f"{page}: {command}: {capsys.readouterr().err}"
        assert capsys.readouterr().out


@pytest.mark.parametrize(("page", "command"), SCRIPTS)
def test_a_script_that_is_named_is_there(page: str, command: str) -> None:
    for script in re.findall(r"\bpython (\S+\.py)\b", command):
        assert (ROOT / script).exists() or (ROOT / "examples" / script).exists(), f"{page}: {command}"


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in PAGES])
def test_no_code_shows_an_escaped_bar(page: str) -> None:
    """In code a backslash before a bar is a backslash, in a table, too, where the site is made."""
    text = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"`[^`\n]*\\\|[^`\n]*`", text)
