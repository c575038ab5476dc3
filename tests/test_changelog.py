"""Changes are told in fragments, which a release joins."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts import tool

LOG = """# Changelog

## [Unreleased]

### Added

- An op.

### Fixed

- A fault,
  in two lines.

## [0.1.0]

### Added

- The first.
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a changelog and two fragments; the tool, under the name that it has here, works on it."""
    (tmp_path / "CHANGELOG.md").write_text(LOG)
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d/README.md").write_text("How.\n")
    (tmp_path / "changelog.d/a.md").write_text("### Changed\n\n- Another.\n\n### Added\n\n- An op more.\n")
    (tmp_path / "changelog.d/b.md").write_text("### Added\n\n- A third op.\n")
    monkeypatch.setattr(CHANGELOG, "ROOT", tmp_path)
    return tmp_path


CHANGELOG = tool("changelog")


def test_the_fragments_here_read() -> None:
    text = CHANGELOG.current()
    assert all(item in text for path in CHANGELOG.fragments() for item in CHANGELOG.read(path).values())


def test_a_release_joins_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["changelog", "0.2.0"])
    assert CHANGELOG.main() == 0
    added = "- An op.\n- An op more.\n- A third op.\n"
    changed, fixed = "- Another.\n", "- A fault,\n  in two lines.\n"
    now = f"## [0.2.0]\n\n### Added\n\n{added}\n### Changed\n\n{changed}\n### Fixed\n\n{fixed}"
    before = "\n## [0.1.0]\n\n### Added\n\n- The first.\n"
    assert (folder / "CHANGELOG.md").read_text() == f"# Changelog\n\n## [Unreleased]\n\n{now}{before}"
    assert [path.name for path in (folder / "changelog.d").iterdir()] == ["README.md"]


def test_a_check_writes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["changelog", "--check"])
    assert CHANGELOG.main() == 0
    assert (folder / "CHANGELOG.md").read_text() == LOG and len(list((folder / "changelog.d").iterdir())) == 3


@pytest.mark.parametrize(
    "text", ["", "- No heading.\n", "### Removed\n\n- A group of no name.\n", "### Added\n\nProse.\n"]
)
def test_what_is_no_fragment(text: str, folder: Path) -> None:
    (folder / "changelog.d/c.md").write_text(text)
    with pytest.raises(SystemExit, match=r"c\.md: a fragment has lists"):
        CHANGELOG.current()


def test_a_changelog_without_a_section_for_them(folder: Path) -> None:
    (folder / "CHANGELOG.md").write_text("# Changelog\n")
    with pytest.raises(SystemExit, match="no section"):
        CHANGELOG.current()
