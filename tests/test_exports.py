"""What is public: generated files are current, importing is light, everything has a docstring."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import ROOT, tool

import baracuda_py
from baracuda_py._exports import EXPORTS

PACKAGE = Path(baracuda_py.__file__).parent


def test_export_map_and_stub_are_current() -> None:
    for path, text in tool("exports").render().items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)} is stale: python tools/exports.py"


def test_each_family_has_a_section() -> None:
    """So that names that two families get stand apart, and branches that add them do not meet."""
    lines = [("core.plan", "Plan\n"), ("ops.norm.rms_norm", "rms_norm\n"), ("ops.loss.ctc_loss", "ctc_loss\n"),
             ("ops.norm.layer_norm", "layer_norm\n")]  # fmt: skip
    assert tool("exports").sections(lines, "  ") == (
        "  # core\nPlan\n  # ops.loss\nctc_loss\n  # ops.norm\nrms_norm\nlayer_norm\n"
    )


def test_a_stale_file_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--check` writes nothing and fails; without it the file is renewed."""
    made = tool("exports")
    (tmp_path / "baracuda_py").mkdir()
    monkeypatch.setattr(made, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["exports", "--check"])
    assert made.main() == 1
    assert not list((tmp_path / "baracuda_py").iterdir())
    monkeypatch.setattr(sys, "argv", ["exports"])
    assert made.main() == 0
    monkeypatch.setattr(sys, "argv", ["exports", "--check"])
    assert made.main() == 0


def test_import_is_light() -> None:
    """No array package, no page, no driver: names are imported when they are used."""
    code = (
        "import sys, ctypes.util\n"
        "before = set(sys.modules)\n"  # files of site-packages may import a namespace such as `cuda` at the start
        "import baracuda_py\n"
        "assert 'FlashSdpaPlan' in dir(baracuda_py)\n"
        "new = {m.partition('.')[0] for m in sys.modules.keys() - before}\n"
        "heavy = new & {'numpy', 'ml_dtypes', 'cupy', 'torch', 'jax', 'cuda'}\n"
        "light = {'baracuda_py._absent', 'baracuda_py._exports', 'baracuda_py._forking'}\n"
        "pages = [m for m in sys.modules if m.startswith('baracuda_py.') and m not in light]\n"
        "assert not heavy and not pages, (heavy, pages)\n"
        "baracuda_py.rms_norm\n"
        "assert 'cupy' not in sys.modules\n"
        "print('light')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "light\n", done.stderr


def test_names_resolve() -> None:
    assert set(baracuda_py.__all__) == {"__version__", *EXPORTS} == set(dir(baracuda_py))
    for name, module in EXPORTS.items():
        value = getattr(baracuda_py, name)
        assert value.__module__ == f"baracuda_py.{module}" and getattr(baracuda_py, value.__name__) is value
        assert value.__name__ == name or not inspect.isclass(value), "only functions have further names"
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        baracuda_py.nope  # noqa: B018


@pytest.mark.parametrize(
    ("module", "word", "says"),
    [
        ("baracuda_py", "rmsnorm", "did you mean rms_norm"), ("baracuda_py", "choleski", "did you mean cholesky"),
        ("baracuda_py.nn.functional", "bilinea", "did you mean bilinear"), ("baracuda_py", "_hidden", "'_hidden'$"),
        ("baracuda_py", "convolution_of_nothing", "ops --search"),
    ],
)  # fmt: skip
def test_a_name_that_is_not_there_names_the_one_meant(module: str, word: str, says: str) -> None:
    found = importlib.import_module(module)
    with pytest.raises(AttributeError, match=says) as caught:
        getattr(found, word)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_exports_have_docstrings() -> None:
    """A dataclass without one gets its signature from Python; that does not count."""
    bare = []
    for name in EXPORTS:
        value = getattr(baracuda_py, name)
        text = (value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__) or ""
        if len(text) < 10 or text.startswith(f"{name}("):
            bare.append(name)
    assert not bare


def _undocumented(path: Path) -> Iterator[str]:
    """A module, and its public classes and functions, without a docstring; overloads are documented once."""
    tree = ast.parse(path.read_text())
    where = str(path.relative_to(PACKAGE))
    if tree.body and ast.get_docstring(tree) is None:
        yield where
    for node in tree.body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
            continue
        overload = any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)
        if ast.get_docstring(node) is None and not overload:
            yield f"{where}: {node.name}"


def test_modules_have_docstrings() -> None:
    assert not [name for path in sorted(PACKAGE.rglob("*.py")) for name in _undocumented(path)]
