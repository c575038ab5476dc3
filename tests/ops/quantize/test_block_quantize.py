"""Quantisers of low-bit formats: what comes back, known codes, ties, specials."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.quantize.block_quantize import BLOCKS, GROUPED
from baracuda_py.ops.quantize.codebook_formats import FP4_VALUES, NF4_VALUES

# The largest |x - back| over the largest |x| of a group: half a step where the numbers of a format lie farthest apart.
STEP = {
    "int8": 0.5 / 127, "int4": 0.5 / 7, "uint8": 1 / 255, "uint4": 2 / 15, "uint3": 2 / 7, "uint2": 2 / 3,
    "nf4": 0.153, "fp4": 0.167, "fp8_e4m3": 1 / 28, "fp8_e5m2": 1 / 14, "mxfp8_e4m3": 1 / 8, "mxfp8_e5m2": 1 / 8,
    "mxfp6_e3m2": 1 / 8, "mxfp6_e2m3": 1 / 8, "mxfp4": 1 / 4, "nvfp4": 0.25,
}  # fmt: skip


@pytest.mark.parametrize("kind", [k.value for k in GROUPED])
def test_numbers_come_back_within_a_step(kind: str) -> None:
    x = np.random.default_rng(1).standard_normal((5, 256)).astype(np.float32)
    made = bc.block_quantize(x, kind=kind, **({} if kind.startswith(("mx", "nv")) else {"group": 64}))
    back = bc.block_dequantize(*made, kind=kind, element="float32")
    group = 256 // made[1].shape[-1]
    most = np.abs(x).reshape(5, -1, group).max(-1, keepdims=True).repeat(group, -1).reshape(x.shape)
    assert np.all(np.abs(x - back) <= STEP[kind] * most * 1.07)
    again = bc.block_quantize(back, kind=kind, **({} if kind.startswith(("mx", "nv")) else {"group": 64}))
    if not kind.startswith("uint"):
        assert np.array_equal(bc.block_dequantize(*again, kind=kind, element="float32"), back) or kind == "nvfp4"


def test_codes_of_the_tables_and_their_middles() -> None:
    for kind, table in (("nf4", NF4_VALUES), ("fp4", FP4_VALUES)):
        codes, scales = bc.block_quantize(table[None], kind=kind, group=16)
        want = np.where(table == 0, np.flatnonzero(table == 0)[0], np.arange(16))
        assert np.array_equal(np.stack((codes >> 4, codes & 15), -1).reshape(-1), want) and scales == 1
    middle = np.zeros((1, 16), np.float32)
    middle[0, :3] = 1, (NF4_VALUES[14] + 1) / 2, np.nextafter((NF4_VALUES[14] + 1) / 2, np.float32(2))
    codes, _ = bc.block_quantize(middle, kind="nf4", group=16)
    assert (codes[0, 0], codes[0, 1] >> 4) == (0xFE, 15)


@pytest.mark.parametrize(
    ("kind", "dtype", "most"),
    [("mxfp4", "float4_e2m1fn", 2), ("mxfp6_e2m3", "float6_e2m3fn", 2), ("mxfp6_e3m2", "float6_e3m2fn", 4),
     ("mxfp8_e4m3", "float8_e4m3fn", 8), ("mxfp8_e5m2", "float8_e5m2", 15)],
)  # fmt: skip
def test_microscaling_by_the_document(kind: str, dtype: str, most: int) -> None:
    """The scale is 2 to the power of floor(log2 m) - emax; numbers are rounded to nearest even and saturate."""
    x = np.random.default_rng(2).standard_normal((7, 96)).astype(np.float32) * np.float32(3)
    codes, scales = bc.block_quantize(x, kind=kind)
    power = np.floor(np.log2(np.abs(x).reshape(7, 3, 32).max(-1))) - most
    assert np.array_equal(scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32), np.exp2(power))
    over = x / np.exp2(power).repeat(32, -1)
    limit = float(ml_dtypes.finfo(getattr(ml_dtypes, dtype)).max)
    want = np.clip(over, -limit, limit).astype(getattr(ml_dtypes, dtype)).astype(np.float32)
    got = bc.block_dequantize(codes, scales, kind=kind, element="float32")
    assert np.array_equal(got, want * np.exp2(power).repeat(32, -1))


def test_zero_groups_nan_and_infinities() -> None:
    x = np.zeros((1, 32), np.float32)
    for kind in GROUPED:
        made = bc.block_quantize(x, kind=kind.value)
        assert np.array_equal(bc.block_dequantize(*made, kind=kind.value, element="float32"), x)
    x[0, :2] = np.nan, 3.0
    for kind in ("int8", "nf4", "uint4"):
        back = bc.block_dequantize(*bc.block_quantize(x, kind=kind), kind=kind, element="float32")
        assert back[0, 0] == 0 and abs(back[0, 1] - 3) < 1e-5
    back = bc.block_dequantize(*bc.block_quantize(x, kind="fp8_e4m3"), kind="fp8_e4m3", element="float32")
    assert np.isnan(back[0, 0]) and back[0, 1] == 3
    for kind in ("mxfp4", "nvfp4", "mxfp6_e3m2", "mxfp6_e2m3"):  # without a NaN: the largest number that the scale has
        codes, scales = bc.block_quantize(x, kind=kind)
        one = bc.block_dequantize(
            codes, np.full_like(scales, 127 if kind[0] == "m" else 0x38), kind=kind, element="float32"
        )
        assert one[0, 0] == one.max() == {"mxfp6_e3m2": 28, "mxfp6_e2m3": 7.5}.get(kind, 6)
    x[0, 0] = np.inf
    _, scales = bc.block_quantize(x, kind="mxfp8_e4m3")
    assert np.all(scales.view(np.uint8) == 255)


def test_asymmetric_groups_hold_zero() -> None:
    x = np.linspace(2.0, 5.0, 16, dtype=np.float32)[None]
    codes, scales, zeros = bc.block_quantize(x, kind="uint8")
    assert zeros == 0 and scales == np.float32(5 / 255) and codes.max() == 255
    codes, _, zeros = bc.block_quantize(-x, kind="uint8")
    assert zeros == 255 and codes.min() == 0


def test_bad_input_is_named() -> None:
    x = np.zeros((2, 48), np.float32)
    with pytest.raises(bc.InvalidProblemError, match="k of mxfp4 must be a multiple of 32"):
        bc.block_quantize(x, kind="mxfp4")
    for kind in ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "gguf_mxfp4"):
        with pytest.raises(bc.InvalidProblemError, match=f"kind must be one of .* got {kind}, "):
            bc.block_quantize(x, kind=kind)
    for kind in BLOCKS:
        with pytest.raises(bc.InvalidProblemError, match=f"k of {kind.value} must be a multiple of"):
            bc.block_quantize(x, kind=kind)
    with pytest.raises(bc.InvalidProblemError, match="group of q4_0 is 32, got 8"):
        bc.block_quantize(np.zeros((2, 64), np.float32), kind="q4_0", group=8)
    with pytest.raises(bc.InvalidProblemError, match="group must be"):
        bc.block_quantize(x, kind="int4", group=32)
    with pytest.raises(bc.BaracudaError, match="float64"):
        bc.block_quantize(x.astype(np.float64), kind="int4")
