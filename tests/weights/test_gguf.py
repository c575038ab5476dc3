"""read_gguf: arrays and blocks as GGML's own package writes them; products run on them; damaged files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import InvalidProblemError, UnsupportedError
from baracuda_py.weights import WeightsFileError, read_gguf
from baracuda_py.weights.gguf_files import KINDS

gguf = pytest.importorskip("gguf")


def saved(path: Path, **tensors: tuple[Any, str | None]) -> Path:
    """A file of the package's writer: arrays, or bytes in blocks of a type."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc", ""])
    for name, (data, kind) in tensors.items():
        raw = None if kind is None else gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, data, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def blocks(kind: str, rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Random blocks whose numbers are of ordinary size: their float16 scales are small."""
    size, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    made = np.random.default_rng(seed).integers(0, 256, (rows, columns // size, nbytes), dtype=np.uint8)
    # a float16 below 1 has 0 to 0x3b in its upper byte; where a format has scales is its own, so all bytes are such
    return (made & 0x2F).reshape(rows, -1)


def test_the_package_knows_every_kind() -> None:
    assert {*KINDS} <= {one.name for one in gguf.GGMLQuantizationType} and len(KINDS) == 23


def test_arrays_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    want = {
        name: rng.integers(-9, 9, (2, 3, 4)).astype(name)
        for name in ("float16", "float32", "float64", "int8", "int16", "int32", "int64")
    }
    half = rng.standard_normal((3, 8)).astype(ml_dtypes.bfloat16)
    given = {name: (one, None) for name, one in want.items()} | {"bf16": (half.view(np.uint8), "BF16")}
    got = read_gguf(saved(tmp_path / "a.gguf", **given))
    for name, one in {**want, "bf16": half}.items():
        assert got[name].kind is None and got[name].data.dtype == one.dtype and got[name].shape == one.shape
        assert got[name].data.tobytes() == one.tobytes()
    assert not got["float32"].data.flags.owndata and not got["float32"].data.flags.writeable


@pytest.mark.parametrize("kind", KINDS)
def test_products_take_blocks_as_they_are(tmp_path: Path, kind: str) -> None:
    stored = blocks(kind, 6, 512)
    if kind == "Q8_K":  # its scale is a float32
        stored.reshape(6, 2, -1)[..., :4] = np.float32([1.5]).view(np.uint8)
    file = saved(tmp_path / "a.gguf", w=(stored, kind), x=(np.ones(3, np.float32), None))
    one = read_gguf(file, "w")["w"]
    assert one.shape == (6, 512) and one.kind is KINDS[kind] and one.data.dtype == np.uint8
    np.testing.assert_array_equal(one.data, stored)
    w = bc.block_dequantize(one.data, kind=one.kind, element="float32")
    if kind != "Q8_K":  # the package has no decoder of what GGML keeps activations in
        np.testing.assert_allclose(w, gguf.dequantize(stored, gguf.GGMLQuantizationType[kind]), rtol=1e-6, atol=1e-6)
    x = np.random.default_rng(1).standard_normal((2, 512), dtype=np.float32)
    got = bc.quantized_matmul(x, one.data, kind=one.kind)
    np.testing.assert_allclose(got, x @ w.T, rtol=1e-3, atol=1e-3 * np.abs(w).max())


def test_what_the_package_quantises_is_what_is_multiplied(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((8, 256), dtype=np.float32)
    stored = gguf.quantize(w, gguf.GGMLQuantizationType.Q8_0)
    one = read_gguf(saved(tmp_path / "a.gguf", w=(stored, "Q8_0")))["w"]
    np.testing.assert_array_equal(one.data, bc.block_quantize(w, kind="q8_0"))
    assert np.abs(bc.block_dequantize(one.data, kind=one.kind, element="float32") - w).max() < 0.02


def test_names_and_place(tmp_path: Path) -> None:
    given = {f"blk.{i}.w": (np.full(2, i, np.float32), None) for i in range(3)}
    file = saved(tmp_path / "a.gguf", **given, b=(blocks("Q4_0", 2, 32), "Q4_0"))
    assert [*read_gguf(str(file), "blk.*")] == ["blk.0.w", "blk.1.w", "blk.2.w"]
    seen: list[str] = []
    got = read_gguf(file, ["blk.1.w", "b"], place=lambda a: seen.append(str(a.dtype)) or "there")
    assert seen == ["float32", "uint8"] and got["b"].data == "there" and got["b"].shape == (2, 32)
    with pytest.raises(InvalidProblemError, match=r"a\.gguf has no tensor 'blk\.9\.w'"):
        read_gguf(file, ["blk.9.w"])


def test_formats_without_a_product(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.gguf", a=(np.ones(2, np.float32), None), b=(blocks("NVFP4", 2, 256), "NVFP4"))
    assert [*read_gguf(file, "a")] == ["a"]
    with pytest.raises(UnsupportedError, match="no product here takes NVFP4, which b is stored in"):
        read_gguf(file)


# -- damage ---------------------------------------------------------------------------------------------------------


def whole(folder: Path) -> tuple[bytearray, list[int]]:
    """The bytes of a file of two tensors, and where the offset of each stands in it."""
    file = saved(folder / "a.gguf", a=(np.ones((2, 32), np.float32), None), b=(blocks("Q4_0", 2, 32), "Q4_0"))
    fields = [tensor.field for tensor in gguf.GGUFReader(file).tensors]
    return bytearray(file.read_bytes()), [one.offset + sum(part.nbytes for part in one.parts) - 8 for one in fields]


def refused(folder: Path, data: bytes | bytearray) -> None:
    (folder / "bad.gguf").write_bytes(data)
    with pytest.raises(WeightsFileError, match=r"bad\.gguf"):
        read_gguf(folder / "bad.gguf")


def test_a_file_cut_off_anywhere(tmp_path: Path) -> None:
    data, _ = whole(tmp_path)
    end = len(data) - 28  # what pads the last tensor is no one's
    for size in (*range(0, end, 7), end - 1):
        refused(tmp_path, data[:size])


@pytest.mark.parametrize("offset", [0, 128, 2**20, 2**63, 2**64 - 32, 2**64 - 512])
def test_offsets_into_others_and_beyond(tmp_path: Path, offset: int) -> None:
    """The second tensor over the first one, in its midst, behind the file, and round into the header."""
    data, places = whole(tmp_path)
    data[places[1] : places[1] + 8] = offset.to_bytes(8, "little")
    refused(tmp_path, data)


@pytest.mark.parametrize(("at", "value"), [(0, 0), (4, 99), (8, 2**40), (16, 2**40), (8, 2**64 - 1), (16, 2)])
def test_heads_that_lie(tmp_path: Path, at: int, value: int) -> None:
    """Another word for GGUF, another version, more tensors and fields than there are, and fewer fields."""
    data, _ = whole(tmp_path)
    width = 4 if at < 8 else 8
    data[at : at + width] = value.to_bytes(width, "little")
    refused(tmp_path, data)


def test_bytes_changed_at_random(tmp_path: Path) -> None:
    """Of all that stands before the tensors: a typed error, or tensors within the file that share nothing."""
    rng, (data, places) = np.random.default_rng(0), whole(tmp_path)
    wrong = 0
    for _ in range(300):
        bad = data.copy()
        for at in rng.integers(0, places[1] + 8, rng.integers(1, 4)):
            bad[at] = rng.integers(256)
        (tmp_path / "bad.gguf").write_bytes(bad)
        try:
            for one in read_gguf(tmp_path / "bad.gguf").values():
                one.data.tobytes()
        except (WeightsFileError, UnsupportedError):
            wrong += 1
    assert 100 < wrong < 300


def test_arrays_in_arrays_without_end(tmp_path: Path) -> None:
    """A field of type array, whose items are arrays, and so on to the end of the file."""
    head = b"GGUF" + (3).to_bytes(4, "little") + (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
    key = (1).to_bytes(8, "little") + b"k" + (9).to_bytes(4, "little")
    refused(tmp_path, head + key + ((9).to_bytes(4, "little") + (1).to_bytes(8, "little")) * 100_000)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_gguf(tmp_path / "a.gguf")
    refused(tmp_path, b"")
