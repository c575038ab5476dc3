"""Affine quantisers on the emulator: chunks of which all quotients are numbers, others, and what lies beside them."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core import ElementKind
from baracuda_py.core.element import decode

pytestmark = pytest.mark.usefixtures("emulation")

ODD = (np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0, 1e-38)
WHOLE = ("int8", "uint8", "int4", "uint4", "int16", "uint16", "int32")
SMALL = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")


def same(name: str, y: np.ndarray, want: Any) -> None:
    """The same numbers, of which zeros have their sign, too."""
    got, wanted = (np.asarray(decode(np.asarray(one).view(y.dtype), name), np.float64) for one in (y, want))
    np.testing.assert_array_equal(got, wanted)
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(wanted[number]))


def quantized(name: str, element: str, x: np.ndarray, block: tuple[int, ...], scales: Any, zeros: Any) -> Any:
    """What the kernels make, and the reference."""
    desc = bc.QuantizePlan.descriptor(shape=x.shape, block_shape=block, to_element=name, element=element)
    own = {"scales": scales, "zero_points": zeros, "uniform_scale": 1.0, "uniform_zero_point": 0}
    y = np.zeros(desc.y_shape, ElementKind(name).carrier)
    call(bc.QuantizePlan, desc, {"y": y}, x=x, **own, seed=0, offset=0)
    return y, bc.QuantizePlan.reference(desc, x=x, **own, seed=0, offset=0)["y"]


@pytest.mark.parametrize("block", [(0, 0), (1, 32), (0, 1)], ids=["flat", "groups", "columns"])
@pytest.mark.parametrize("element", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [*WHOLE, *SMALL])
def test_chunks_with_and_without_odd_numbers(name: str, element: str, block: tuple[int, ...]) -> None:
    """Halves beside zero points that are odd, and scales of which a quotient may leave the range."""
    rng = np.random.default_rng(zlib.crc32(f"{name}{element}{block}".encode()))
    desc = bc.QuantizePlan.descriptor(shape=(32, 64), block_shape=block, element=element)
    scales = np.exp2(rng.integers(-3, 3, desc.scale_shape)).astype(np.float32)
    scales *= rng.choice(np.float32([1, 1, 0.7]), scales.shape)
    if scales.size > 1:
        at = rng.permutation(scales.size)[: scales.size // 4]
        scales.flat[at] = rng.choice([0.0, -0.5, 1e-38, 3e38, np.inf, np.nan, 2.0**-91, 2.0**91, 2.0**-61], at.size)
    x = rng.integers(-40, 40, (32, 64)) / 2.0 * rng.choice([1, 0.7, 20], (32, 1))
    for row in range(0, 32, 3):  # an odd number in a chunk of some rows
        x[row, rng.integers(64)] = ODD[row // 3 % len(ODD)]
    x[1], x[2], x[4, ::3], x[5:9] = -0.0, 0, -0.0, x[5:9] * 1e-9
    zeros = None
    if name in WHOLE:
        zeros = rng.choice([1, 0, -7, 3, 300, -70000], desc.scale_shape).astype(np.int32)
    with np.errstate(all="ignore"):
        given = bc.cast(x.astype(np.float32), element)
    y, want = quantized(name, element, given, block, scales, zeros)
    same(name, y, want)


@pytest.mark.parametrize("element", ["float32", "float16"])
def test_one_number_of_a_row_that_is_broadcast(element: str) -> None:
    x = np.broadcast_to(np.array([3.25, -5.5, np.nan]).astype(element)[:, None], (3, 64))
    for block in ((1, 32), (1, 1)):
        desc = bc.QuantizePlan.descriptor(shape=(3, 64), block_shape=block, element=element)
        scales = np.exp2(np.arange(np.prod(desc.scale_shape)) % 5 - 2).reshape(desc.scale_shape).astype(np.float32)
        y, want = quantized("int8", element, x, block, scales, None)
        np.testing.assert_array_equal(y, want)


ROWS = {
    "plain": lambda x: x, "zeros": lambda x: x * 0, "subnormal": lambda x: x * 1e-41, "huge": lambda x: x * 5e37,
    "some zeros": lambda x: x * (np.arange(x.size) % 3 > 0),
    "nan": lambda x: np.where(np.arange(x.size) == 77, np.nan, x),
    "inf": lambda x: np.where(np.arange(x.size) == 3, -np.inf, x), "small": lambda x: x * 1e-30,
}  # fmt: skip


@pytest.mark.parametrize("block", [(1, 0), (1, 64), (2, 64)], ids=["tokens", "groups", "blocks"])
@pytest.mark.parametrize("element", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("kind", "name", "scale"),
    [("symmetric", name, "float32") for name in ("int8", "int4", *SMALL)]
    + [("symmetric", "float8_e4m3fn", "float8_e8m0fnu"), ("asymmetric", "uint8", "float32")]
    + [("asymmetric", "int4", "float32")],
)
def test_dynamic_blocks_of_all_sizes(kind: str, name: str, scale: str, element: str, block: tuple[int, ...]) -> None:
    rng = np.random.default_rng(zlib.crc32(f"{kind}{name}{element}{block}".encode()))
    with np.errstate(all="ignore"):
        rows = [make(rng.standard_normal(128)) for make in ROWS.values() for _ in range(2)]
        x = bc.cast(np.array(rows, np.float32), element)
    desc = bc.DynamicQuantizePlan.descriptor(
        kind=kind, shape=x.shape, block_shape=block, to_element=name, scale_element=scale, element=element
    )
    made: dict[str, Any] = {
        "y": np.zeros(desc.y_shape, desc.to_element.carrier),
        "scales": np.zeros(desc.scale_shape, desc.scale_element.carrier),
        "zero_points": np.zeros(desc.scale_shape, np.int32) if kind == "asymmetric" else None,
    }
    call(bc.DynamicQuantizePlan, desc, made, x=x)
    want = bc.DynamicQuantizePlan.reference(desc, x=x, wanted={"y", "scales"})
    for key, value in want.items():
        same(name if key == "y" else scale if key == "scales" else "int32", made[key], value)
