"""Every command line of README and documentation is one that exists: understood, its files there, and run, by a small
setting, where that needs neither a GPU nor a download."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from baracuda_py.cli.main import main, parsed

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```(?:bash|console|sh)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
QUICK = ("env", "ops", "explain")  # what runs anywhere, in little time
OURS = "python -m baracuda_py "


# What a command is run with besides, so that it takes seconds. The commands of `QUICK` are run as they stand.
SMALL = {
    "python examples/train_gpt.py": ["--steps", "1", "--out", "out"],
    "python benchmarks/bindings.py": ["--calls", "100"],
    "python -m baracuda_py doctor": [],
}
# Why the others are not run here.
NOT_RUN = {
    r"(git clone|pip install) ": "downloads",
    r"cd baracuda_py$": "leads into what was downloaded",
    r"pytest ": "runs this test, among all others",
    r"compute-sanitizer ": "wants a GPU",
    r"python benchmarks/(run|bandwidth|host|train_step|generate|attention|fusions|linear_loss)\.py": "measures a GPU",
    r"python benchmarks/(sparse_products|optimizers|recurrent_layers|distributed)\.py": "measures a GPU",
    r"python benchmarks/first_call\.py .*--arch": "compiles every problem of an op; tests/test_compile.py does so",
    r"python benchmarks/cub_compile\.py": "wants a download of CCCL; tests/test_cub_compile.py runs it on a stand-in",
    r"python examples/quantize_gpt\.py": "quantises for minutes; tests/test_quantize_example.py runs a smaller model",
    r"python -m baracuda_py warm ": "compiles an op whole, or a model; tests/test_cli_warm.py runs little of it",
    r"python -m baracuda_py cache --(export|import) ": "of the user's own cache; tests/jit/test_archive.py runs both",
    r"python -m baracuda_py tune ": "measures a GPU",
    r"(torchrun|srun|mpirun) ": "starts ranks on several hosts",
    r"export (MASTER_ADDR|BARACUDA_DISTRIBUTED_KEY)=": "says where the ranks meet",
    r"python -m baracuda_py (env \||ops OP$)": "stands for several commands",
}


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
    assert all(re.fullmatch(r"sm_\w+", target) for target in getattr(options, "arch", None) or ()), f"{page}: {command}"
    if options.command in QUICK and not any(word.isupper() or "…" in word for word in words):
        assert main(words) == 0, f"{page}: {command}: {capsys.readouterr().err}"
        assert capsys.readouterr().out


def _quick(command: str) -> bool:
    return command.startswith(tuple(OURS + name for name in QUICK)) and not _reasons(command)


def _reasons(command: str) -> list[str]:
    return [why for pattern, why in NOT_RUN.items() if re.match(pattern, command)]


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_is_run_or_there_is_a_reason(page: str, command: str) -> None:
    plain = command.split("  #")[0].strip()
    ways = [plain in SMALL, _quick(plain), *map(bool, _reasons(plain))]
    assert sum(ways) == 1, f"{page}: {command}: add it to SMALL, or to NOT_RUN with the reason"


def test_every_setting_and_every_reason_is_of_a_command() -> None:
    plain = {command.split("  #")[0].strip() for _, command in COMMANDS}
    assert not [one for one in SMALL if one not in plain]
    assert not [pattern for pattern in NOT_RUN if not any(re.match(pattern, command) for command in plain)]


@pytest.mark.parametrize("command", SMALL)
def test_a_command_runs(command: str, tmp_path: Path) -> None:
    """From a clone, in a folder of its own, on a machine without a GPU."""
    words = [sys.executable, *shlex.split(command)[1:], *SMALL[command]]
    words = [str(ROOT / word) if word.endswith(".py") else word for word in words]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "BARACUDA_CACHE_DIR": str(tmp_path / "cache"), "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout, f"{command}: {done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(("page", "command"), SCRIPTS)
def test_a_script_that_is_named_is_there(page: str, command: str) -> None:
    for script in re.findall(r"\bpython (\S+\.py)\b", command):
        assert (ROOT / script).exists() or (ROOT / "examples" / script).exists(), f"{page}: {command}"


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in PAGES])
def test_no_code_shows_an_escaped_bar(page: str) -> None:
    """In code a backslash before a bar is a backslash, in a table, too, where the site is made."""
    text = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"`[^`\n]*\\\|[^`\n]*`", text)
