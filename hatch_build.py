"""Writes the commit into the sdist, so that benchmarks run from it say what they measured."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """benchmarks/COMMIT, which `git archive` fills in too; what is built outside of a clone keeps what is there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files are collected."""
        words = ["git", "rev-parse", "HEAD"]
        try:
            commit = subprocess.run(words, cwd=self.root, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            commit = (Path(self.root) / "benchmarks" / "COMMIT").read_text()
        with tempfile.NamedTemporaryFile("w", suffix="-COMMIT", delete=False) as file:
            file.write(commit)
        self._made = Path(file.name)
        build_data["force_include"][file.name] = "benchmarks/COMMIT"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called when the sdist is there."""
        self._made.unlink()
