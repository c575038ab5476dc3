"""Options of low-bit products in random combinations, beside float64 sums of what the codes mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind

FLOATS = ("float32", "float16", "bfloat16")


def numbers(x: Any, element: str) -> Any:
    return np.asarray(x).astype(ElementKind.of(element).dtype)


def near(y: Any, x: Any, w: Any, more: Any, element: str) -> None:
    """Within what rounding weights and the result allows."""
    left = x.astype(np.float64)
    want, size = left @ w.T + more, np.abs(left) @ np.abs(w).T + np.abs(more)
    step = {"float32": 2.0**-20, "float16": 2.0**-9, "bfloat16": 2.0**-6}[element]
    assert y.shape == want.shape and (np.abs(y.astype(np.float64) - want) <= step * size + 1e-6).all()


@pytest.mark.parametrize("seed", range(10))
def test_quantized_matmul(seed: int) -> None:
    """Kinds, scales, zero points, groups by index, layouts of x and y, and the layouts of checkpoints on the way."""
    rng = np.random.default_rng(seed)
    bits, groups = int(rng.choice([4, 8])), int(rng.choice([1, 2, 4]))
    n, k, element = 64 * int(rng.integers(1, 3)), 16 * groups * int(rng.integers(1, 4)), str(rng.choice(FLOATS))
    scale_element = str(rng.choice(FLOATS))
    q = rng.integers(0, 1 << bits, (n, k), dtype=np.uint8)
    zeros = rng.integers(0, 1 << bits, (n, groups), dtype=np.uint8)
    scales = numbers(rng.standard_normal((n, groups)), scale_element)
    index = rng.permutation(np.repeat(np.arange(groups), k // groups)).astype(np.int32) if seed % 2 else None
    parts: tuple[Any, ...] = (bc.pack_codes(q, bits), scales, zeros)
    way = int(rng.integers(3 if bits == 4 and index is None else 2))
    if way == 0:
        parts = bc.repack_marlin(*bc.pack_marlin(*parts, index, bits=bits), bits=bits)[:3]
    elif way == 1:
        parts = bc.repack_gptq(*bc.pack_gptq(*parts, bits=bits, zero_offset=0), bits=bits, zero_offset=0)[:3]
    else:
        parts = bc.repack_awq(*bc.pack_awq(*parts))
    of = np.arange(k) // (k // groups) if index is None else index
    w = (q.astype(np.float64) - zeros[:, of]) * scales.astype(np.float64)[:, of]
    lead = [(), (3,), (2, 5), (1, 0)][int(rng.integers(4))]
    x, bias = numbers(rng.standard_normal((*lead, k)), element), numbers(rng.standard_normal(n), element)
    if rng.integers(2):
        x = np.flip(np.flip(x, -1).copy(), -1)
    factor, facts = float(rng.choice([1.0, -0.75])), {}
    if rng.integers(2):
        facts["out"] = np.zeros((*lead, 2 * n), x.dtype)[..., ::2]
    y = bc.quantized_matmul(x, *parts, bias, kind=f"uint{bits}", index=index, scale=factor, **facts)
    near(y, x, factor * w, bias.astype(np.float64), element)


@pytest.mark.parametrize("seed", range(10))
def test_hqq_and_w4a8(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    group, element = int(rng.choice([32, 64, 128])), str(rng.choice(FLOATS))
    n, k, lead = int(rng.integers(1, 40)), group * int(rng.integers(1, 4)), [(), (3,), (2, 9)][int(rng.integers(3))]
    w = rng.standard_normal((n, k), dtype=np.float32)
    kind = str(rng.choice(["uint2", "uint3", "uint4", "uint8"]))
    codes, scales, zeros = bc.hqq_quantize(w, kind=kind, group=group)
    q = bc.unpack_codes(codes, int(kind[4:])).astype(np.float64)
    real = (q - np.repeat(zeros.astype(np.float64), group, 1)) * np.repeat(scales.astype(np.float64), group, 1)
    x, bias = numbers(rng.standard_normal((*lead, k)), element), numbers(rng.standard_normal(n), element)
    near(bc.quantized_matmul(x, codes, scales, zeros, bias, kind=kind), x, real, bias.astype(np.float64), element)

    kind = ("int4", "uint4")[int(rng.integers(2))]
    stored = bc.block_quantize(w, kind=kind, group=group, scale_element=str(rng.choice(FLOATS)))
    x8, by = (
        bc.dynamic_quantize(x, scope="token") if lead else (np.rint(8 * x.astype(np.float32)).astype(np.int8), None)
    )
    q = bc.unpack_codes(stored[0], 4).astype(np.int64)
    q = (q ^ 8) - 8 if kind == "int4" else q - np.repeat(stored[2].astype(np.int64), group, 1)
    y = bc.matmul_w4a8(x8, *stored, x_scale=by, bias=bias, out_element=element)
    left = x8.astype(np.float64) * (1 if by is None else by.astype(np.float64))
    near(y, left, q * np.repeat(stored[1].astype(np.float64), group, 1), bias.astype(np.float64), element)


@pytest.mark.parametrize("seed", range(5))
def test_matmul_int4(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    groups = int(rng.integers(1, 4))
    m, n, k = int(rng.integers(0, 9)), int(rng.integers(1, 30)), 8 * groups * int(rng.integers(1, 5))
    q = rng.integers(-8, 8, (n, k))
    words = bc.pack_codes((q & 15).astype(np.uint8), 4).view((np.int32, np.uint32)[seed % 2])
    scales = rng.standard_normal((groups, n)).astype(np.float16)
    a = rng.standard_normal((m, k)).astype(np.float16)
    y = bc.matmul_int4(a, words if seed % 3 else words.reshape(k // 8, n), scales)
    assert y.dtype == np.float32
    near(y, a, q * np.repeat(scales.astype(np.float64), k // groups, 0).T, np.zeros(n), "float16")
