"""Dumps are written where nobody else can reach, and a dump that somebody else wrote chooses nothing but a call."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.cli.main import main
from baracuda_py.cli.replay import again, load
from baracuda_py.core import dump
from baracuda_py.core.errors import BaracudaError, InvalidProblemError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def written(folder: Path, name: str = "sum") -> Path:
    return dump.write(folder, {"function": name}, (X,), {"axis": 1}, InvalidProblemError("then"))


def changed(path: Path, **facts: Any) -> Path:
    """The file with some fields of the call replaced; None takes one away."""
    with np.load(path) as file:
        held = {name: file[name] for name in file.files}
    call = json.loads(str(held.pop("call"))) | facts
    kept = {name: value for name, value in call.items() if value is not None}
    np.savez(path, call=np.array(json.dumps(kept)), **held)
    return path


def test_a_dump_is_for_its_owner(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        path = written(tmp_path / "new" / "dumps")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert again(*load(path), "cpu").tolist() == X.sum(1).tolist()


def test_no_planted_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even under the very name: the file takes the link's place."""
    target = tmp_path / "precious"
    target.write_text("mine")
    monkeypatch.setattr(dump.secrets, "token_hex", lambda n: "0" * 2 * n)
    monkeypatch.setattr(dump.time, "strftime", lambda form: "now")
    monkeypatch.setattr(dump, "_count", iter([7, 7]))
    planted = tmp_path / f"now-{os.getpid()}-7-00000000-sum.npz"
    planted.symlink_to(target)
    assert written(tmp_path) == planted
    assert target.read_text() == "mine" and not planted.is_symlink()


def test_names_cannot_be_known_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump.time, "strftime", lambda form: "now")
    monkeypatch.setattr(dump, "_count", iter([7, 7]))
    assert written(tmp_path) != written(tmp_path)


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match=r"others may write in .*chmod 700"):
        written(folder)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "name",
    ["__init__", "__delattr__", "__getattr__", "importlib", "_exports", "SoftmaxPlan", "elementwise", "nothing", ""],
)
def test_only_functions_of_plans_are_called(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    with pytest.raises(BaracudaError, match="which is no function of a plan"):
        again(*load(path), "cpu")
    assert main(["replay", str(path), "--device", "cpu"]) == 1
    assert callable(bc.sum), "the package is as it was"


@pytest.mark.parametrize("name", ["Plan", "__init__", "sum", ""])
def test_only_plans_are_selected(name: str, tmp_path: Path) -> None:
    path = dump.write(tmp_path, {"plan": name, "descriptor": {}}, (), {"x": X}, ValueError())
    with pytest.raises(BaracudaError, match="which is no plan"):
        again(*load(path), "cpu")


WRONG: tuple[dict[str, Any], ...] = (
    {"function": None}, {"function": 3}, {"function": ["sum"]}, {"plan": "SoftmaxPlan"}, {"args": {}}, {"args": None},
    {"keywords": []}, {"error": "x"}, {"error": {"type": 1, "message": ""}}, {"error": {}}, {"environment": []},
    {"time": 0}, {"problem": None},
)  # fmt: skip


@pytest.mark.parametrize("facts", WRONG, ids=str)
def test_fields_have_their_types(facts: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(written(tmp_path), **facts)
    assert main(["replay", str(path)]) == 1
    assert "is no file of BARACUDA_DUMP" in capsys.readouterr().err


ARRAY = {
    "package": "numpy", "array": "a0", "element": "float32", "shape": [3, 4], "strides": [4, 1], "type": "ndarray",
    "device": -1, "alignment": 0, "readonly": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "facts",
    [
        {"strides": [2**40, 1]}, {"strides": [-(2**62), 1]}, {"strides": [2**70, 1]}, {"strides": [1]},
        {"strides": ["4", 1]}, {"shape": [-3, -4]}, {"shape": "12"}, {"alignment": "0"}, {"strides": None},
    ],
    ids=str,
)  # fmt: skip
def test_layouts_are_bounded(facts: dict[str, Any], tmp_path: Path) -> None:
    path = changed(written(tmp_path), args=[ARRAY | facts])
    with pytest.raises(BaracudaError, match="an array of the file"):
        again(*load(path), "cpu")


def test_numbers_are_bounded(tmp_path: Path) -> None:
    path = changed(written(tmp_path), keywords={"axis": 2**64})
    with pytest.raises(BaracudaError, match="number 18446744073709551616, which no call takes"):
        again(*load(path), "cpu")


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, call=np.array("{}"), a0=np.zeros(1 << 20, np.uint8))
    with pytest.raises(BaracudaError, match="is compressed, or too large"):
        load(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("call.npy", b"no array")
    with pytest.raises(BaracudaError, match="is no file of BARACUDA_DUMP"):
        load(path)


def test_text_of_a_file_moves_no_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"type": "ValueError", "message": "\x1b[2J\x9b31m\rwell\nfine", "traceback": ""}
    assert main(["replay", str(changed(written(tmp_path), error=error)), "--show"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\x9b" not in said and "\r" not in said and "\\x1b[2J" in said and "\nfine" in said
