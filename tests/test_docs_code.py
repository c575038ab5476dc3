"""Every Python block of the documentation runs, those of a page in order, as one script in a process of its own.

What a page needs and does not show stands in a comment, `<!-- run` … `-->`. Without a CUDA device CuPy's name stands
for NumPy. A page for a package that is not installed is skipped; `.ci/run` runs it where torch and JAX are.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import tool

from baracuda_py.core import registry
from baracuda_py.core.device import driver_device_count

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^(?:```python|<!-- run)\n(.*?)^(?:```|-->)$", re.DOTALL | re.MULTILINE)

PAGES = {  # page → its script
    name: "\n".join(BLOCK.findall(path.read_text()))
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if (name := str(path.relative_to(ROOT / "docs"))) != "ops.md"  # which has signatures, no calls
}


SCRIPTS = pytest.mark.parametrize("page", [page for page, code in PAGES.items() if code])


@SCRIPTS
def test_its_code_runs(page: str, tmp_path: Path) -> None:
    code = PAGES[page]
    for package in ("torch", "transformers", "jax", "numba", "gguf", "safetensors"):
        named = re.search(rf"^\s*(?:import|from) {package}\b", code, re.MULTILINE)
        if named and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; with it, run pytest tests/test_docs_code.py")
    if not driver_device_count():
        code = code.replace("import cupy as cp", "import numpy as cp")
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{code}\n{done.stderr}"


@pytest.mark.gpu
@SCRIPTS
def test_its_code_runs_on_a_gpu(page: str, tmp_path: Path) -> None:
    """Pages take the GPU where there is one: the trainings of the cookbook among them, in torch and in JAX."""
    test_its_code_runs(page, tmp_path)


def test_pages_of_the_site_are_those_that_exist() -> None:
    """The navigation names every page, also those that are made with the site, and none that is not there."""
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())) - {
        "contributing.md",
        "changelog.md",
        "security.md",
    }
    families = {plan.op.partition(".")[0] for plan in registry.plans().values()}
    made = {"ops.md", *(f"ops/{name}.md" for name in (*families, "formulas"))}
    made |= {f"functions/{family}.md" for family in tool("function_reference").families()}
    assert named == {*PAGES, *made}
