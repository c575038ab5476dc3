"""Low-bit formats against what others make of the same bytes."""

from __future__ import annotations

import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.quantize.codebook_formats import FP4_VALUES, NF4_VALUES
from baracuda_py.ops.quantize.format_kinds import FormatKind
from call_emulated import call

# Of the float32 values that the package gguf 0.19.0 (gguf.quants.dequantize) has of the codes below, NaN as 0.
GGUF = {
    "q4_0": 0x09EF065D,
    "q4_1": 0xE579D8E0,
    "q5_0": 0x3BD9AF0B,
    "q5_1": 0x2463E6F4,
    "q8_0": 0x6A571BD7,
    "q2_k": 0x7F21D010,
    "q3_k": 0x47892778,
    "q4_k": 0x8CC185F2,
    "q5_k": 0xF5BC01D7,
    "q6_k": 0x5DA763A1,
    "iq4_nl": 0xB803FDEB,
    "iq4_xs": 0x838920B2,
    "gguf_mxfp4": 0x3179DC35,
    "tq1_0": 0xF369B07B,
    "tq2_0": 0x01DE1A2E,
    "iq1_s": 0x8377106C,
    "iq1_m": 0x8C984D23,
    "iq2_xxs": 0xB4FB9C04,
    "iq2_xs": 0xFBCCA552,
    "iq2_s": 0x04C2B9D1,
    "iq3_xxs": 0xCE61FD83,
    "iq3_s": 0xF03A10BC,
}


@pytest.mark.parametrize("kind", GGUF)
def test_blocks_of_gguf_are_bit_exact(kind: str) -> None:
    codes = np.random.default_rng(7).integers(0, 256, (3, FormatKind(kind).row.bytes(512)), dtype=np.uint8)
    x = bc.block_dequantize(codes, kind=kind, element="float32")
    x = np.where(np.isnan(x), np.float32(0), x) + np.float32(0)
    assert zlib.crc32(x.astype("<f4").tobytes()) == GGUF[kind]


def test_every_format_of_gguf_has_an_oracle_or_a_definition_of_one_line() -> None:
    rng = np.random.default_rng(1)
    whole = rng.integers(-128, 128, (2, 2, 32), dtype=np.int8)
    d = rng.standard_normal((2, 2, 1)).astype(np.float16)
    block = np.concatenate((d.view(np.uint8), np.zeros((2, 2, 2), np.uint8), whole.view(np.uint8)), axis=-1)
    q8_1 = bc.block_dequantize(block.reshape(2, -1), kind="q8_1", element="float32")
    assert np.array_equal(q8_1, (d.astype(np.float32) * whole).reshape(2, 64))
    whole = rng.integers(-128, 128, (3, 256), dtype=np.int8)
    wide = rng.standard_normal((3, 1)).astype(np.float32)
    block = np.concatenate((wide.view(np.uint8), whole.view(np.uint8), np.zeros((3, 32), np.uint8)), axis=-1)
    assert np.array_equal(bc.block_dequantize(block, kind="q8_k", element="float32"), wide * whole)
    assert {k.value for k in FormatKind if not k.row.scales} == {*GGUF, "q8_1", "q8_k"}


@pytest.mark.parametrize(
    ("kind", "dtype", "bits"),
    [("mxfp4", "float4_e2m1fn", 4), ("mxfp6_e2m3", "float6_e2m3fn", 6), ("mxfp6_e3m2", "float6_e3m2fn", 6),
     ("mxfp8_e4m3", "float8_e4m3fn", 8), ("mxfp8_e5m2", "float8_e5m2", 8)],
)  # fmt: skip
def test_microscaling_formats_hold_what_ml_dtypes_says(kind: str, dtype: str, bits: int) -> None:
    code = np.random.default_rng(2).integers(0, 1 << bits, (3, 64), dtype=np.uint8)
    each = np.unpackbits(code[..., None], axis=-1, bitorder="little")[..., :bits]
    codes = np.packbits(each.reshape(3, -1), axis=-1, bitorder="little")
    scales = np.random.default_rng(3).integers(100, 140, (3, 2), dtype=np.uint8)
    want = code.view(getattr(ml_dtypes, dtype)).astype(np.float32)
    want = want * np.repeat(np.exp2(scales.astype(np.float32) - 127), 32, axis=-1)
    got = bc.block_dequantize(codes, scales, kind=kind, element="float32")
    assert np.array_equal(got, want, equal_nan=True)


def test_nvfp4_has_a_scale_of_sixteen_and_one_of_all() -> None:
    code = np.random.default_rng(4).integers(0, 16, (2, 32), dtype=np.uint8)
    scales = np.array([[1.0, 0.5], [3.5, -448.0]], ml_dtypes.float8_e4m3fn)
    want = code.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    want *= np.repeat(scales.astype(np.float32) * np.float32(0.3), 16, axis=-1)
    packed = code[:, ::2] | code[:, 1::2] << 4
    got = bc.block_dequantize(packed, scales.view(np.uint8), scale=0.3, kind="nvfp4", element="float32")
    assert np.array_equal(got, want)


@pytest.mark.parametrize(("kind", "table"), [("nf4", NF4_VALUES), ("fp4", FP4_VALUES)])
def test_tables_of_bitsandbytes(kind: str, table: np.ndarray) -> None:
    packed = np.array([[0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]], np.uint8)
    got = bc.block_dequantize(packed, np.array([[2.0]], np.float32), kind=kind, element="float32")
    assert np.array_equal(got[0], 2 * table)
    assert (np.sort(table) == table).all() == (kind == "nf4") and abs(table).max() == 1


def test_zero_points_groups_and_their_order() -> None:
    rng = np.random.default_rng(5)
    q, z, s = rng.integers(0, 16, (4, 64)), rng.integers(0, 16, (4, 4)), rng.standard_normal((4, 4)).astype(np.float32)
    packed = (q[:, ::2] | q[:, 1::2] << 4).astype(np.uint8)
    want = (q - np.repeat(z, 16, axis=1)) * np.repeat(s, 16, axis=1)
    given = {"kind": "uint4", "element": "float32"}
    assert np.array_equal(bc.block_dequantize(packed, s, z.astype(np.uint8), **given), want.astype(np.float32))
    index = rng.integers(0, 4, 64).astype(np.int32)
    want = (q - z[:, index]) * s[:, index]
    got = bc.block_dequantize(packed, s, z.astype(np.uint8), index, **given)
    assert np.array_equal(got, want.astype(np.float32))
    kaio = bc.block_dequantize(packed, np.ascontiguousarray(s.T).T, kind="int4", element="float32")
    assert np.array_equal(kaio, (((q ^ 8) - 8) * np.repeat(s, 16, axis=1)).astype(np.float32))


def test_128_by_128_blocks_of_float8() -> None:
    rng = np.random.default_rng(6)
    w = rng.standard_normal((200, 256)).astype(ml_dtypes.float8_e4m3fn)
    s = rng.uniform(0.5, 2, (2, 2)).astype(np.float32)
    got = bc.block_dequantize(w.view(np.uint8), s, kind="fp8_e4m3", row_group=128, element="float32")
    assert np.array_equal(got, w.astype(np.float32) * np.repeat(np.repeat(s, 128, 0), 128, 1)[:200])


STRIPS = [  # kind, batch, n, k, group, row_group, whether columns say their group, element
    ("uint4", 2, 3, 1312, 32, 1, False, "bfloat16"),
    ("uint2", 1, 2, 320, 40, 1, True, "float16"),
    ("nf4", 1, 3, 1056, 24, 2, False, "float32"),
    ("fp8_e4m3", 1, 2, 1280, 640, 1, False, "bfloat16"),
    (
        "q5_0",
        1,
        2,
        1312,
        None,
        1,
        False,
        "bfloat16",
    ),  # rows of an odd number of blocks: every other starts within a word
    ("q8_0", 1, 3, 288, None, 1, False, "float16"),  # not whole words
    ("q6_k", 2, 1, 1280, None, 1, False, "float32"),
    ("iq4_xs", 1, 2, 256, None, 1, False, "bfloat16"),
]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("kind", "batch", "n", "k", "group", "row_group", "index", "element"), STRIPS)
def test_strips_of_rows_have_the_bits_of_the_reference(
    kind: str, batch: int, n: int, k: int, group: int | None, row_group: int, index: bool, element: str
) -> None:
    """Strips of 1024, the last with fewer, parts of 256 that end anywhere, groups that begin anywhere."""
    rng, sizes = np.random.default_rng(8), {"group": group} if group else {}
    desc = bc.BlockDequantizeDescriptor(
        kind=kind, batch_shape=(batch,), n=n, k=k, row_group=row_group, element=element, **sizes
    )
    given: dict[str, Any] = {"codes": rng.integers(0, 256, desc.codes_shape, dtype=np.uint8)}
    if desc.kind.row.scales:
        given["scales"] = np.exp2(rng.uniform(-6, 2, desc.scales_shape)).astype(np.float32)
    if desc.kind.row.zeros:
        given["zeros"] = rng.integers(0, 16, desc.scales_shape, dtype=np.uint8)
    if index:
        given["index"] = rng.integers(-1, k // (group or 1) + 1, k).astype(np.int32)
    words = {"kind": kind, "element": element, "n": n, "k": k, "row_group": row_group, "batch_shape": batch, **sizes}
    want = np.asarray(bc.block_dequantize(**given, scale=0.40625, **words))
    y = np.zeros(want.shape, want.dtype)
    operands = dict.fromkeys(("scales", "zeros", "index")) | given
    call(bc.BlockDequantizePlan, desc, {"y": y}, scale=0.40625, **operands)
    wide, known = y.astype(np.float32), want.astype(np.float32)
    assert np.array_equal(wide.view(np.uint32)[~np.isnan(known)], known.view(np.uint32)[~np.isnan(known)])
    assert np.array_equal(np.isnan(wide), np.isnan(known)) and not np.isnan(known).all()


def test_bad_input_is_named() -> None:
    codes = np.zeros((2, 16), np.uint8)
    with pytest.raises(bc.InvalidProblemError, match="k of q4_0 must be a multiple of 32"):
        bc.BlockDequantizeDescriptor(kind="q4_0", n=1, k=40, element="float32")
    with pytest.raises(bc.InvalidProblemError, match="codes must have shape"):
        bc.block_dequantize(codes, kind="q4_0", n=2, k=64, element="float32")
    with pytest.raises(bc.InvalidProblemError, match="scales"):
        bc.block_dequantize(codes, kind="int4", element="float32")
    with pytest.raises(bc.InvalidProblemError, match="group must be a multiple of 8 that divides"):
        bc.block_dequantize(codes, np.ones((2, 5), np.float32), kind="int4", group=7, element="float32")
    with pytest.raises(bc.UnsupportedError, match="scale_element float64"):
        bc.block_dequantize(codes, np.ones((2, 1), np.float64), kind="int4", element="float32")
