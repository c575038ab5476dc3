"""Every block format of GGUF against the package gguf: lattices, random bytes, every scale; kernels and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.ops.quantize import gguf_lattice_formats, gguf_lattices
from baracuda_py.ops.quantize.format_kinds import FormatKind
from baracuda_py.ops.quantize.gguf_lattices import Lattice

gguf = pytest.importorskip("gguf")
TYPES = {
    kind.value: gguf.GGMLQuantizationType[kind.value.removeprefix("gguf_").upper()]
    for kind in FormatKind
    if not kind.row.scales and kind not in (FormatKind.Q8_1, FormatKind.Q8_K)
}
NEW = ("gguf_mxfp4", "tq1_0", "tq2_0", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s")
HALVES = {"iq1_m": None, "tq1_0": 52, "tq2_0": 64, "q2_k": 80, "q3_k": 108, "q6_k": 208, "gguf_mxfp4": None}
"""Where d stands in a block, if not at 0; None: in pieces, or it is no float16."""


def same(got: Any, want: Any) -> bool:
    known = ~np.isnan(want)
    bits = np.array_equal(got.view(np.uint32)[known], want.view(np.uint32)[known])
    return bits and np.array_equal(np.isnan(got), ~known)


def blocks(kind: str, rows: int, k: int, seed: int = 0) -> np.ndarray:
    """Random bytes whose scales are finite and of ordinary size."""
    form, rng = FormatKind(kind).row, np.random.default_rng(seed)
    made = rng.integers(0, 256, (rows, k // form.multiple, form.bytes(form.multiple)), dtype=np.uint8)
    d = (rng.uniform(0.01, 1, made.shape[:2]) * rng.choice((-1, 1), made.shape[:2])).astype(np.float16)
    if kind == "gguf_mxfp4":
        made[..., 0] = rng.integers(118, 130, made.shape[:2])
    elif kind == "iq1_m":
        for i, shift in enumerate((12, 8, 4, 0)):
            upper = d.view(np.uint16) << shift & 0xF000
            made[..., 49 + 2 * i] = made[..., 49 + 2 * i] & 15 | (upper >> 8).astype(np.uint8)
    else:
        at = HALVES.get(kind, 0)
        made[..., at : at + 2] = d[..., None].view(np.uint8)
        if kind in ("q2_k", "q4_k", "q5_k", "q4_1", "q5_1"):
            made[..., at + 2 : at + 4] = d[..., None].view(np.uint8)
    return made.reshape(rows, -1)


@pytest.mark.parametrize(
    ("name", "ours"),
    [("IQ2_XXS", gguf_lattices.IQ2_XXS), ("IQ2_XS", gguf_lattices.IQ2_XS), ("IQ2_S", gguf_lattices.IQ2_S),
     ("IQ3_XXS", gguf_lattices.IQ3_XXS), ("IQ3_S", gguf_lattices.IQ3_S), ("IQ1_S", gguf_lattices.IQ1)],
)  # fmt: skip
def test_every_point_of_a_lattice_is_that_of_gguf(name: str, ours: Lattice) -> None:
    theirs = getattr(gguf.quants, name)
    theirs.init_grid()
    np.testing.assert_array_equal(ours.values, theirs.grid[0, 0])
    assert ours.values.shape == theirs.grid_shape


def test_signs_are_those_of_gguf() -> None:
    assert gguf_lattice_formats.SIGNS.tobytes() == bytes(gguf.quants.IQ2_XXS.ksigns)


@pytest.mark.parametrize("kind", TYPES)
def test_any_bytes_have_the_bits_of_gguf(kind: str) -> None:
    form = FormatKind(kind).row
    codes = np.random.default_rng(1).integers(0, 256, (23, form.bytes(768)), dtype=np.uint8)
    for one in (codes, blocks(kind, 5, 512), np.zeros_like(codes), np.full_like(codes, 0x55)):
        with np.errstate(all="ignore"):
            want = gguf.dequantize(one, TYPES[kind])
        assert same(bc.block_dequantize(one, kind=kind, element="float32"), want)


@pytest.mark.parametrize("kind", NEW)
def test_every_byte_of_a_block_takes_every_value(kind: str) -> None:
    """So that all scales, shifts, signs and upper bits are met, each beside random ones."""
    form = FormatKind(kind).row
    unit = form.bytes(form.multiple)
    codes = np.repeat(blocks(kind, 256, form.multiple)[None], unit, axis=0)
    codes[np.arange(unit), :, np.arange(unit)] = np.arange(256)
    with np.errstate(all="ignore"):
        want = gguf.dequantize(codes, TYPES[kind])
    assert same(bc.block_dequantize(codes, kind=kind, element="float32"), want)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("start", [0, 1, 2])
@pytest.mark.parametrize("kind", NEW)
def test_kernels_have_the_bits_of_the_reference(kind: str, start: int) -> None:
    """Codes at whole words, at even and at odd bytes; strips that are full and that end early."""
    desc = bc.BlockDequantizeDescriptor(kind=kind, batch_shape=(2,), n=2, k=1280 + 256 * start, element="float32")
    room = np.zeros(int(np.prod(desc.codes_shape)) + start, np.uint8)
    codes = room[start:].reshape(desc.codes_shape)
    codes[:] = np.random.default_rng(start).integers(0, 256, codes.shape)
    want = bc.block_dequantize(codes, kind=kind, element="float32")
    y = np.zeros(want.shape, np.float32)
    call(bc.BlockDequantizePlan, desc, {"y": y}, codes=codes, scales=None, zeros=None, index=None, scale=1.0)
    assert same(y, want)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("m", "element"), [(1, "bfloat16"), (3, "float32"), (9, "float16")])
@pytest.mark.parametrize("kind", NEW)
def test_products_are_those_of_the_values(kind: str, m: int, element: str) -> None:
    """Columns that fill no tile; the float64 product of what gguf decodes, rounded to x's element as weights are."""
    rng, n, k = np.random.default_rng(m), 19, 512
    codes = blocks(kind, n, k, m)
    kind_of = bc.ElementKind.of(element)
    x = rng.standard_normal((m, k)).astype(kind_of.dtype)
    w = gguf.dequantize(codes, TYPES[kind]).astype(kind_of.dtype).astype(np.float64)
    desc = bc.BlockGemmDescriptor(kind=kind, m=m, n=n, k=k, element=element, out_element="float32")
    y = np.full((m, n), np.nan, np.float32)
    call(bc.BlockGemmPlan, desc, {"y": y}, codes=codes, x=x, scales=None, zeros=None, index=None, bias=None, scale=1.0)
    wide = x.astype(np.float64)
    assert (np.abs(y - wide @ w.T) <= 64 * 2.0**-24 * (np.abs(wide) @ np.abs(w.T))).all()


@pytest.mark.parametrize("kind", NEW)
def test_experts_and_gradients_take_them(kind: str) -> None:
    rng, n, k = np.random.default_rng(3), 8, 512
    codes = np.stack([blocks(kind, n, k, seed) for seed in range(3)])
    w = np.stack([gguf.dequantize(one, TYPES[kind]) for one in codes])
    x, ends = rng.standard_normal((5, k), dtype=np.float32), np.array([2, 2, 5])
    y = bc.grouped_block_gemm(codes, x, ends, kind=kind)
    want = np.concatenate((x[:2] @ w[0].T, x[2:] @ w[2].T))
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    dy = rng.standard_normal((5, n), dtype=np.float32)
    dx = bc.block_gemm_backward(codes[0], dy, kind=kind)
    want = dy @ w[0]
    np.testing.assert_allclose(dx, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("kind", NEW)
def test_nothing_gives_nothing(kind: str) -> None:
    for rows in (0, 3):
        assert bc.block_dequantize(np.zeros((rows, 0), np.uint8), kind=kind, element="float32").shape == (rows, 0)


def test_blocks_are_whole() -> None:
    with pytest.raises(bc.InvalidProblemError, match="k of iq2_xs must be a multiple of 256, got 128"):
        bc.BlockDequantizeDescriptor(kind="iq2_xs", n=1, k=128, element="float32")
    with pytest.raises(bc.InvalidProblemError, match="k of gguf_mxfp4 must be a multiple of 32, got 40"):
        bc.BlockGemmDescriptor(kind="gguf_mxfp4", m=1, n=1, k=40, element="float32")
