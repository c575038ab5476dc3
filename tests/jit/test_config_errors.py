from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from baracuda_py.core import config, errors

ALL = [
    errors.BaracudaError("m"),
    errors.InvalidProblemError("m"),
    errors.UnsupportedError("m", "row: why"),
    errors.MisalignedOperandError("m"),
    errors.WorkspaceTooSmallError(512, 256),
    errors.BufferTooSmallError(64, 32, "x"),
    errors.DeviceMismatchError("m"),
    errors.NotPreparedError("m"),
    errors.CompileError("m", "the log", Path("saved.cu")),
]


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_and_copying(error: errors.BaracudaError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error) and str(twin) == str(error) and vars(twin) == vars(error)
    assert isinstance(error, errors.BaracudaError)


def test_errors_carry_their_facts() -> None:
    assert issubclass(errors.InvalidProblemError, ValueError)
    assert str(ALL[2]) == "m\nrow: why" and errors.UnsupportedError("m").table == ""
    assert "512" in str(ALL[4]) and "256" in str(ALL[4])
    assert str(ALL[5]).startswith("x:")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("BARACUDA_CHECK", "1", True),
        ("BARACUDA_CHECK", "", False),
        ("BARACUDA_JIT", "OFF", "off"),
        ("BARACUDA_JIT_JOBS", "3", 3),
        ("BARACUDA_BACKEND", "numpy", "numpy"),
        ("BARACUDA_NVRTC", "", None),
        ("BARACUDA_CACHE_DIR", "/x/y", Path("/x/y")),
        ("BARACUDA_LOG", "debug", "debug"),
        ("BARACUDA_LOG", "1", "calls"),
        ("BARACUDA_LOG", "0", None),
        ("BARACUDA_LOG", "/x/calls", Path("/x/calls")),
        ("BARACUDA_DUMP", "/x", Path("/x")),
    ],
)
def test_values(name: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    assert config.get(name) == value
    assert {s.name: s.value for s in config.table()}[name] == value


@pytest.mark.parametrize(
    ("name", "text"),
    [("BARACUDA_CHECK", "yes"), ("BARACUDA_JIT", "no"), ("BARACUDA_JIT_JOBS", "-1"), ("BARACUDA_LOG", "loud")],
)
def test_bad_values_name_the_variable(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(errors.InvalidProblemError, match=rf"{name}: got '{text}'; it takes"):
        config.get(name)


def test_default_cache_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BARACUDA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.get("BARACUDA_CACHE_DIR") == tmp_path / "baracuda_py"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config.get("BARACUDA_CACHE_DIR") == tmp_path / ".cache" / "baracuda_py"


def test_import_does_no_work(tmp_path: Path) -> None:
    script = (
        "import sys, baracuda_py.jit\n"
        "assert not any(m.startswith(('cupy', 'cuda.')) for m in sys.modules)\n"
        "assert 'nvrtc' not in open('/proc/self/maps').read()\n"
    )
    root = Path(config.__file__).parents[2]
    env = {"BARACUDA_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path), "BARACUDA_JIT": "nonsense"}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=root, env=env)
    assert not any(tmp_path.iterdir())
