"""read_safetensors: what was written comes back, shards and names; damaged files are refused by name."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import InvalidProblemError, UnsupportedError
from baracuda_py.weights import WeightsFileError, read_safetensors
from baracuda_py.weights import files as shared

safetensors = pytest.importorskip("safetensors")

NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip


def written(path: Path, header: dict[str, Any] | bytes, data: bytes, length: int | None = None) -> Path:
    """A file by the format's definition: the length of the header, the header, the bytes of the tensors."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def saved(path: Path, arrays: dict[str, Any], pad: int = 0) -> Path:
    """Tensors that begin `pad` bytes behind a multiple of 8."""
    header, data = dict[str, Any](), b""
    for name, array in arrays.items():
        end = len(data) + array.nbytes
        facts = {"dtype": NAMES[array.dtype.name], "shape": array.shape, "data_offsets": (len(data), end)}
        header[name], data = facts, data + array.tobytes()
    text = json.dumps(header).encode()
    return written(path, text + b" " * (-len(text) % 8 + pad), data)


def tensors() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {name: rng.integers(0, 2, (3, 4)).astype(getattr(ml_dtypes, name, name)) for name in NAMES}
    return made | {"scalar": np.float32(2.5).reshape(()), "none": np.zeros((0, 3), np.float16)}


@pytest.mark.parametrize("pad", range(8))
def test_what_was_written_comes_back(tmp_path: Path, pad: int) -> None:
    """Of every element, wherever the tensors begin in the file."""
    want = tensors()
    got = read_safetensors(saved(tmp_path / "a.safetensors", want, pad))
    assert {*got} == {*want}
    for name, one in want.items():
        assert got[name].dtype == one.dtype and got[name].shape == one.shape and got[name].flags.aligned, name
        assert got[name].tobytes() == one.tobytes(), name


def test_the_package_agrees_with_what_the_tests_write(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    w = np.random.default_rng(0).standard_normal((5, 7), dtype=np.float32)
    save_file({"w": w, "half": w.astype(np.float16)}, tmp_path / "a.safetensors", {"format": "np"})
    got = read_safetensors(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(got["w"], w)
    np.testing.assert_array_equal(load_file(saved(tmp_path / "b.safetensors", {"w": w}))["w"], got["w"])


def test_arrays_are_views_of_the_file_that_ops_take(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((6, 4)).astype(ml_dtypes.bfloat16)
    file = saved(tmp_path / "a.safetensors", {"w": w, "b": np.ones(4, np.float32)})
    got = read_safetensors(str(file), names=["b", "w"])
    assert [*got] == ["w", "b"] and not got["b"].flags.writeable and not got["b"].flags.owndata
    np.testing.assert_array_equal(bc.matmul(np.ones((2, 6), ml_dtypes.bfloat16), got["w"])[0], bc.sum(w, axis=0))


def test_place_takes_each_array_once(tmp_path: Path) -> None:
    seen: list[Any] = []

    def place(array: Any) -> str:
        seen.append(array)
        return f"placed {array.dtype}"

    want = {"a": np.ones(2, ml_dtypes.float8_e4m3fn), "b": np.ones(2, ml_dtypes.bfloat16), "c": np.ones(2, np.float32)}
    got = read_safetensors(saved(tmp_path / "a.safetensors", want), lambda name: name < "c", place=place)
    assert got == {"a": "placed uint8", "b": "placed bfloat16"} and len(seen) == 2


def test_names(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.safetensors", {f"layers.{i}.w": np.full(1, i) for i in range(12)})
    assert [*read_safetensors(file, "layers.1*")] == ["layers.1.w", "layers.10.w", "layers.11.w"]
    assert [*read_safetensors(file, {"layers.3.w"})] == ["layers.3.w"] and read_safetensors(file, []) == {}
    with pytest.raises(InvalidProblemError, match="has no tensor 'w'"):
        read_safetensors(file, ["w"])


# -- shards ---------------------------------------------------------------------------------------------------------


def sharded(folder: Path, index: Any = None) -> Path:
    saved(folder / "one.safetensors", {"a": np.arange(3), "b": np.arange(4)})
    saved(folder / "two.safetensors", {"c": np.arange(5)})
    shards = {"c": "two.safetensors", "a": "one.safetensors", "b": "one.safetensors"}
    file = folder / "model.safetensors.index.json"
    file.write_text(json.dumps({"metadata": {}, "weight_map": shards} if index is None else index))
    return file


def test_an_index_is_read_as_one_file(tmp_path: Path) -> None:
    for path in (sharded(tmp_path), tmp_path):
        got = read_safetensors(path)
        assert {name: len(one) for name, one in got.items()} == {"c": 5, "a": 3, "b": 4}
    (tmp_path / "two.safetensors").unlink()
    assert [*read_safetensors(tmp_path, ["b"])] == ["b"], "no more shards are opened than are needed"
    with pytest.raises(FileNotFoundError):
        read_safetensors(tmp_path, "c")
    with pytest.raises(InvalidProblemError, match=r"index\.json has no tensor 'd'"):
        read_safetensors(tmp_path, ["d"])


def test_a_folder_of_one_file(tmp_path: Path) -> None:
    saved(tmp_path / "model.safetensors", {"a": np.arange(3)})
    assert [*read_safetensors(tmp_path)] == ["a"]


@pytest.mark.parametrize(
    "index",
    [
        [], {}, {"weight_map": []}, {"weight_map": {"a": 3}}, {"weight_map": {"a": "../one.safetensors"}},
        {"weight_map": {"a": ""}}, {"weight_map": {"a": "x\0y"}}, {"weight_map": {"c": "one.safetensors"}},
        {"weight_map": {"a": "/etc/hostname"}}, {"weight_map": {"a": ".."}},
    ],
)  # fmt: skip
def test_an_index_that_is_none(tmp_path: Path, index: Any) -> None:
    with pytest.raises(WeightsFileError):
        read_safetensors(sharded(tmp_path, index))


def test_an_index_that_is_no_json(tmp_path: Path) -> None:
    for text in (b"", b"{", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "i.json").write_bytes(text)
        with pytest.raises(WeightsFileError, match="is no index"):
            read_safetensors(tmp_path / "i.json")


# -- damage ---------------------------------------------------------------------------------------------------------


def entry(begin: int, end: int, shape: Any = (2,), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HOSTILE: dict[str, tuple[Any, bytes, int | None]] = {
    "a header longer than the file": ({"a": entry(0, 8)}, bytes(8), 10**6),
    "a header of 2^64 - 1 bytes": ({"a": entry(0, 8)}, bytes(8), 2**64 - 1),
    "a header of no bytes": ({}, bytes(8), 0),
    "a header that is no JSON": (b"{'a'", b"", None),
    "a header that is no text": (b"\xff\xfe\xfd", b"", None),
    "overlapping tensors": ({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12), None),
    "a hole": ({"a": entry(0, 8), "b": entry(12, 20)}, bytes(20), None),
    "offsets beyond the file": ({"a": entry(0, 8), "b": entry(8, 16)}, bytes(8), None),
    "offsets that decrease": ({"a": entry(8, 0)}, bytes(8), None),
    "negative offsets": ({"a": entry(-8, 0)}, bytes(8), None),
    "another size than the shape": ({"a": entry(0, 8, (3,))}, bytes(8), None),
    "a shape whose size overflows": ({"a": entry(0, 0, (2**40, 2**40))}, b"", None),
    "a negative extent": ({"a": entry(0, 8, (-2,))}, bytes(8), None),
    "an unknown element": ({"a": entry(0, 8, dtype="Q7")}, bytes(8), None),
    "bytes behind the tensors": ({"a": entry(0, 8)}, bytes(9), None),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files(tmp_path: Path, what: str) -> None:
    header, data, length = HOSTILE[what]
    with pytest.raises(WeightsFileError, match=r"bad\.safetensors"):
        read_safetensors(written(tmp_path / "bad.safetensors", header, data, length))


def test_a_file_cut_off_anywhere(tmp_path: Path) -> None:
    whole = saved(tmp_path / "a.safetensors", {"a": np.arange(3), "b": np.ones((2, 2), np.float32)}).read_bytes()
    for size in range(len(whole)):
        (tmp_path / "bad.safetensors").write_bytes(whole[:size])
        with pytest.raises(WeightsFileError, match=r"bad\.safetensors"):
            read_safetensors(tmp_path / "bad.safetensors")


def test_bytes_changed_at_random(tmp_path: Path) -> None:
    """Of the length and the header: a typed error, or arrays of what is there."""
    rng = np.random.default_rng(0)
    file = saved(tmp_path / "a.safetensors", {"a": np.arange(3), "b": np.ones((2, 2), np.float32)})
    whole = bytearray(file.read_bytes())
    refused = 0
    for _ in range(400):
        bad = whole.copy()
        for at in rng.integers(0, len(whole) - 40, rng.integers(1, 4)):
            bad[at] = rng.integers(256)
        (tmp_path / "bad.safetensors").write_bytes(bad)
        try:
            read_safetensors(tmp_path / "bad.safetensors")
        except (WeightsFileError, UnsupportedError):
            refused += 1
    assert refused > 300


def test_elements_without_an_array(tmp_path: Path) -> None:
    """They are refused where they are wanted, and in nobody's way where they are not."""
    header = {"a": entry(0, 8), "b": entry(8, 12, (8,), "F4")}
    file = written(tmp_path / "a.safetensors", header, bytes(12))
    assert [*read_safetensors(file, "a")] == ["a"]
    with pytest.raises(UnsupportedError, match="no array here holds F4, which b is of"):
        read_safetensors(file)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_safetensors(tmp_path / "a.safetensors")
    with pytest.raises(FileNotFoundError):
        read_safetensors(tmp_path)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(tmp_path / "a.safetensors", {"a": np.arange(3)})

    def absent(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(shared.importlib, "import_module", absent)
    with pytest.raises(UnsupportedError, match=r'needs safetensors .*: pip install "baracuda_py\[weights\]"'):
        read_safetensors(file)
    with pytest.raises(UnsupportedError, match=r'needs gguf .*: pip install "baracuda_py\[weights\]"'):
        bc.weights.read_gguf(file)
