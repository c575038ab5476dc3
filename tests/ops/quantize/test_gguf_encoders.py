"""GGML's blocks: bytes of its own quantisers, known blocks, definitions number by number; kernels run emulated."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core.element import ElementKind, cast, decode, encode
from baracuda_py.ops.quantize.format_kinds import FormatKind
from baracuda_py.ops.quantize.gguf_encoders import BLOCK_ENCODERS
from baracuda_py.ops.quantize.gguf_formats import IQ4_VALUES

KINDS = [kind.value for kind in BLOCK_ENCODERS]
F = np.float32

# Of the bytes that the package gguf 0.19.0 (gguf.quants.quantize) makes of `numbers()`.
GGUF = {"q4_0": 0x2C54E520, "q4_1": 0x4FBEACB9, "q5_0": 0xD62D1DAC, "q5_1": 0x31E705BB, "q8_0": 0xCB1609A5}


def numbers() -> np.ndarray:
    """Groups of all sizes, and a row of multiples of 1/4, whose quotients tie."""
    rng = np.random.default_rng(11)
    x = rng.standard_normal((6, 512))
    sizes = np.exp2(rng.integers(-9, 9, (6, 512 // 32)).repeat(32, -1))
    made = (x * sizes).astype(F)
    made[0] = np.rint(made[0] * 4) / 4 + F(0)  # no -0, of which the package has another d than ggml-quants.c
    return made


@pytest.mark.parametrize("kind", GGUF)
def test_bytes_are_those_of_gguf(kind: str) -> None:
    assert zlib.crc32(bc.block_quantize(numbers(), kind=kind).tobytes()) == GGUF[kind]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if BLOCK_ENCODERS[FormatKind(kind)].header == "gguf"])
def test_numbers_come_back_within_a_step(kind: str) -> None:
    x = numbers()
    back = bc.block_dequantize(bc.block_quantize(x, kind=kind), kind=kind, element="float32")
    group = 256 if kind == "q8_k" else 32
    most = np.abs(x).reshape(6, -1, group).max(-1).repeat(group, -1)
    step = {"q4_0": 1 / 8, "q4_1": 1 / 15, "q5_0": 1 / 16, "q5_1": 1 / 31, "iq4_nl": 0.16}.get(kind, 1 / 254)
    held = 2.0**-11 if kind != "q8_k" else 2.0**-20  # what rounding of d costs the farthest number
    assert np.all(np.abs(back - x) <= (1.001 * step + held) * most)


def test_known_blocks() -> None:
    x = np.arange(32, dtype=F)[None] - 16  # the farthest is -16
    block = bc.block_quantize(x, kind="q4_0")
    want = np.trunc(x[0] / 2 + 8.5).clip(0, 15).astype(np.uint8)
    assert block[0, :2].view(np.float16) == 2 and np.array_equal(block[0, 2:], want[:16] | want[16:] << 4)
    block = bc.block_quantize(x, kind="q5_1")
    assert np.array_equal(block[0, :4].view(np.float16), [1, -16])
    assert np.array_equal(block[0, 4:8], [0, 0, 255, 255])
    assert np.array_equal(block[0, 8:], np.arange(16) * 17)
    block = bc.block_quantize(np.where(np.arange(32) == 5, 127, x[0] + 0.5).astype(F)[None], kind="q8_1")
    whole = block[0, 4:].view(np.int8)
    assert whole[5] == 127 and whole[0] == -16 and whole[15] == -1 and whole[16] == 1  # ties go away from 0
    assert np.array_equal(block[0, :4].view(np.float16), [1, whole.sum(dtype=np.int32)])
    for kind in KINDS:
        zero = bc.block_quantize(np.zeros((1, 256), F), kind=kind)
        assert not bc.block_dequantize(zero, kind=kind, element="float32").any()
    assert np.array_equal(bc.block_quantize(np.zeros((1, 32), F), kind="q4_0")[0], [0, 128, *[0x88] * 16])  # d is -0


def by_q8_k(x: np.ndarray) -> bytes:
    most = F(0)
    for v in x:
        most = v if abs(v) > abs(most) else most
    if not most:
        return bytes(292)
    scale = F(-127) / most
    codes = np.array([min(127, int(np.rint(scale * v))) for v in x], np.int8)
    sums = np.array([codes[16 * j : 16 * j + 16].sum(dtype=int) for j in range(16)], np.int16)
    return bytes((F(1) / scale).tobytes() + codes.tobytes() + sums.tobytes())


def by_iq4_nl(x: np.ndarray) -> bytes:
    most = F(0)
    for v in x:
        most = v if abs(v) > abs(most) else most
    if abs(most) < 1e-15:
        return bytes(18)
    by = F(1) / (most / F(-127))
    codes, sums = [], [F(0), F(0)]
    for v in x:
        y, at = by * v, 0
        while at < 14 and y >= IQ4_VALUES[at + 1]:
            at += 1
        code = at if y <= -127 or y - IQ4_VALUES[at] < IQ4_VALUES[at + 1] - y else at + 1
        weighted = v * v * IQ4_VALUES[code]
        sums = [sums[0] + weighted * v, sums[1] + weighted * IQ4_VALUES[code]]
        codes.append(code)
    halves = np.array(codes[:16], np.uint8) | np.array(codes[16:], np.uint8) << 4
    return bytes(np.float16(sums[0] / sums[1]).tobytes() + halves.tobytes())


@pytest.mark.parametrize(("kind", "group", "made"), [("q8_k", 256, by_q8_k), ("iq4_nl", 32, by_iq4_nl)])
def test_definitions_number_by_number(kind: str, group: int, made: Callable[[np.ndarray], bytes]) -> None:
    x = numbers()
    x[1, :256] = 0
    want = b"".join(made(part) for part in x.reshape(-1, group))
    assert bc.block_quantize(x, kind=kind).tobytes() == want


ELEMENTS = ("float32", "float16", "bfloat16")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("kind", "element"), [(kind, ELEMENTS[i % 3]) for i, kind in enumerate(KINDS)])
def test_kernels_make_the_same_bytes(kind: str, element: str) -> None:
    """Special numbers, ties of size, a number of blocks that fills no thread block, rows apart, codes at any byte."""
    rng = np.random.default_rng(3)
    rows = np.zeros((3, 2816 + 8), F)
    x = rows[:, :2816]
    x[:] = rng.standard_normal(x.shape) * np.exp2(rng.integers(-40, 40, (3, 88)).repeat(32, -1))
    x[0, 256:512] = rng.integers(-3, 4, 256)
    x[0, 512:] *= F(1e-38)
    x[1, :32], x[1, 32:64], x[1, 64:96], x[1, 96:128] = 0, -0.0, np.nan, np.inf
    x[1, 128], x[1, 161], x[1, 200], x[1, 224:226] = np.nan, -np.inf, 3e38, (np.inf, -np.inf)
    x[1, 512:768] = 1e-42
    x[1, 1024], x[1, 1300], x[2, :256], x[2, 256:512] = np.inf, np.nan, np.nan, -1e30
    x[2, 512:544], x[2, 544:576] = (0.0, -0.0) * 16, (-0.0, 0.0) * 16
    kind_of = ElementKind(element)
    with np.errstate(all="ignore"):
        held = np.asarray(encode(cast(rows.astype(np.float64), kind_of), kind_of))
    desc = bc.BlockQuantizeDescriptor(kind=kind, n=3, k=2816, element=element)
    want = bc.block_quantize(decode(held[:, :2816], kind_of), kind=kind)
    for start in (0, 1):
        room = np.full(want.size + 17, 0xAB, np.uint8)
        codes = room[start : start + want.size].reshape(want.shape)
        call(bc.BlockQuantizePlan, desc, {"codes": codes}, x=held[:, :2816])
        assert np.array_equal(codes, want), np.argwhere(codes != want)[:9]
        assert (room[:start] == 0xAB).all() and (room[start + want.size :] == 0xAB).all()
