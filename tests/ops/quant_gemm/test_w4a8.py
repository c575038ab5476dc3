"""W4A8 products: exact integers, the order of groups, strides and errors; kernels run emulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

F = np.float32


def weights(rng: np.random.Generator, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers 0 … 15 and their bytes."""
    w = rng.integers(0, 16, (n, k), dtype=np.uint8)
    return w, w[:, ::2] | w[:, 1::2] << 4


def by_groups(x: Any, w: Any, scales: Any, zeros: Any, scale_x: Any, bias: Any) -> np.ndarray:
    """The definition, a group after the other, in float32."""
    group = w.shape[1] // scales.shape[1]
    y = np.zeros((len(x), len(w)), F)
    for g in range(scales.shape[1]):
        k = slice(g * group, (g + 1) * group)
        sums = x[:, k].astype(np.int64) @ (w[:, k].astype(np.int64) - zeros[:, g : g + 1]).T
        y += sums.astype(F) * scales[:, g].astype(F)
    return y * scale_x[:, None] + bias


@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_integers_are_exact(kind: str) -> None:
    rng = np.random.default_rng(1)
    w, codes = weights(rng, 9, 160)
    x = rng.integers(-128, 128, (5, 160), dtype=np.int8)
    number = (w.astype(np.int64) ^ 8) - 8 if kind == "int4" else w.astype(np.int64)
    y = bc.matmul_w4a8(x, codes, np.ones((9, 1), F), kind=kind)
    assert np.array_equal(y, x.astype(np.int64) @ number.T)
    assert np.array_equal(bc.matmul_w4a8(x[2], codes, np.ones((9, 5), F), kind=kind), y[2])


def test_layers_of_others() -> None:
    """What `dynamic_quantize` and `block_quantize` make; scales for rows in every form; a bias; 16 bits out."""
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((2, 3, 128)).astype(F), rng.standard_normal((20, 128)).astype(F)
    q, s = bc.dynamic_quantize(x, scope="token")
    codes, scales, zeros = bc.block_quantize(w, kind="uint4", group=32, scale_element="float16")
    y = bc.matmul_w4a8(q, codes, scales, zeros, x_scale=s)
    real = bc.block_dequantize(codes, scales, zeros, kind="uint4", element="float32")
    want = (q * s).astype(np.float64) @ real.astype(np.float64).T
    assert y.shape == (2, 3, 20) and np.allclose(y, want, rtol=1e-5, atol=1e-4)
    assert np.array_equal(bc.matmul_w4a8(q, codes, scales, zeros, x_scale=s[..., 0]), y)
    one = bc.matmul_w4a8(q, codes, scales, zeros, x_scale=np.array(2, F))
    assert np.array_equal(one, 2 * bc.matmul_w4a8(q, codes, scales, zeros))
    bias = rng.standard_normal(20).astype(np.float16)
    half = bc.matmul_w4a8(q, codes, scales, zeros, x_scale=s, bias=bias, out_element="float16")
    assert np.array_equal(half, (y + bias.astype(F)).astype(np.float16))
    out = np.zeros((2, 3, 20), F)
    assert bc.matmul_w4a8(q, codes, scales, zeros, x_scale=s, out=out) is out and np.array_equal(out, y)


def drawn(m: int, n: int, k: int, group: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    _, codes = weights(rng, n, k)
    return {
        "x": rng.integers(-128, 128, (m, k), dtype=np.int8), "codes": codes,
        "scales": (rng.standard_normal((n, k // group)) * 0.01).astype(F),
        "zeros": rng.integers(0, 256, (n, k // group), dtype=np.uint8),
        "scale_x": rng.standard_normal(m).astype(F), "bias": rng.standard_normal(n).astype(F),
    }  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("m", "n", "k", "group"),
    [(1, 33, 2304, 128), (9, 40, 1152, 384), (16, 17, 416, 32), (3, 18, 1120, 160), (16, 33, 1032, 1032),
     (2, 5, 8, 8), (17, 70, 288, 96), (70, 65, 640, 128), (33, 129, 136, 136), (130, 140, 160, 32), (20, 9, 224, 224)],
)  # fmt: skip
def test_kernels_add_in_the_order_of_groups(m: int, n: int, k: int, group: int) -> None:
    given = drawn(m, n, k, group, m + n)
    w = np.stack((given["codes"] & 15, given["codes"] >> 4), -1).reshape(n, k)
    zeros = np.minimum(given["zeros"], 127).astype(np.int64)
    want = by_groups(given["x"], w, given["scales"], zeros, given["scale_x"], given["bias"])
    desc = bc.W4A8GemmDescriptor(kind="uint4", m=m, n=n, k=k, group=group, element="float32")
    y = call(bc.W4A8GemmPlan, desc, {"y": np.full((m, n), np.nan, F)}, **given)["y"]
    assert np.array_equal(y, want)
    # Turned operands, bytes at an odd address, a result in rows apart: the same bits.
    room = np.zeros(n * k // 2 + 1, np.uint8)
    room[1:] = given["codes"].reshape(-1)
    apart = np.full((m, n + 3), np.nan, F)
    given |= {"x": np.asfortranarray(given["x"]), "scales": np.asfortranarray(given["scales"])}
    given |= {"codes": room[1:].reshape(n, k // 2), "scale_x": np.repeat(given["scale_x"], 2)[::2]}
    call(bc.W4A8GemmPlan, desc, {"y": apart[:, :n]}, **given)
    assert np.array_equal(apart[:, :n], want) and np.isnan(apart[:, n:]).all()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("row", "m", "n", "k", "group"),
    [("unpacked", 20, 150, 160, 32), ("unpacked", 33, 129, 48, 48), ("unpacked", 130, 300, 288, 96),
     ("unpacked", 17, 140, 1280, 1280), ("unpacked", 17, 20, 1280, 256), ("wgmma", 130, 300, 640, 32),
     ("wgmma", 30, 300, 1280, 128), ("few", 9, 40, 288, 96), ("tiles", 40, 70, 640, 128)],
)  # fmt: skip
def test_every_row_gives_the_same_bits(row: str, m: int, n: int, k: int, group: int) -> None:
    given = drawn(2 * m, 2 * n, k, group, m + n)
    given = {name: one.reshape(2, len(one) // 2, *one.shape[1:]) for name, one in given.items()}
    given["bias"] = given["bias"][0]
    y = np.full((2, m, n), np.nan, F)
    desc = bc.W4A8GemmDescriptor(kind="int4", batch_shape=(2,), m=m, n=n, k=k, group=group, element="float32")
    del given["zeros"]
    plan = bc.W4A8GemmPlan(desc, bc.PlanPreference(), emulated_device(9.0))
    plan.rows = tuple(one for one in plan.rows if one.name == row)
    with emulating(1):
        plan.run(plan.args(**{name: pointer_view(one) for name, one in (given | {"y": y}).items()}))
    w = np.stack((given["codes"] & 15, given["codes"] >> 4), -1).reshape(2, n, k).astype(np.int64)
    for i in range(2):
        of = {name: given[name][i] for name in ("x", "scales", "scale_x")}
        zeros = np.zeros_like(of["scales"], np.int64)
        assert np.array_equal(y[i], by_groups(w=(w[i] ^ 8) - 8, zeros=zeros, bias=given["bias"], **of))


@pytest.mark.parametrize(
    ("m", "group", "want"),
    [(1, 32, "wgmma"), (1, 128, "few"), (16, 4096, "few"), (17, 32, "wgmma"), (64, 128, "wgmma"),
     (512, 128, "unpacked"), (512, 32, "unpacked"), (4096, 32, "unpacked"), (4096, 128, "unpacked")],
)  # fmt: skip
def test_what_is_fastest_is_asked_first(m: int, group: int, want: str) -> None:
    facts = {"kind": "uint4", "n": 14336, "k": 4096, "scale_element": "float16", "element": "bfloat16"}
    plan = bc.W4A8GemmPlan.select(bc.W4A8GemmDescriptor(m=m, group=group, **facts), device=fake_device(9.0))
    assert plan.sku.variant == want


def test_a_row_alone_is_that_row_of_many() -> None:
    given = drawn(40, 10, 256, 64, 5)
    facts = {"kind": "uint4", "element": "float32"}
    y = bc.w4a8_gemm(**given, **facts)
    alone = bc.w4a8_gemm(**given | {"x": given["x"][7:8], "scale_x": given["scale_x"][7:8]}, **facts)
    assert np.array_equal(y[7:8], alone)


def test_bad_input_is_named() -> None:
    x, codes, scales = np.zeros((2, 64), np.int8), np.zeros((3, 32), np.uint8), np.ones((3, 2), F)
    with pytest.raises(bc.InvalidProblemError, match="kind must be int4 or uint4, got nf4"):
        bc.matmul_w4a8(x, codes, scales, kind="nf4")
    with pytest.raises(bc.InvalidProblemError, match="group must be a multiple of 32, or k = 64, got 16"):
        bc.matmul_w4a8(x, codes, np.ones((3, 4), F))
    with pytest.raises(bc.InvalidProblemError, match=r"x must have shape \(2, 64\) .* got \(2, 62\)"):
        bc.matmul_w4a8(x[:, :62], codes, scales)
    with pytest.raises(bc.InvalidProblemError, match="x must be int8, got uint8"):
        bc.matmul_w4a8(x.view(np.uint8), codes, scales)
    with pytest.raises(bc.InvalidProblemError, match=r"x_scale must have shape \(2,\), \(2, 1\) or \(\)"):
        bc.matmul_w4a8(x, codes, scales, x_scale=np.ones(3, F))
    with pytest.raises(bc.InvalidProblemError, match="zeros"):
        bc.matmul_w4a8(x, codes, scales, np.zeros((3, 2), np.uint8), kind="int4")
    with pytest.raises(bc.InvalidProblemError, match="zero_element must be uint8"):
        bc.W4A8GemmDescriptor(kind="uint4", m=1, n=1, k=64, zero_element="float16", element="float32")
    with pytest.raises(bc.InvalidProblemError, match="group must be at most 131072"):
        bc.W4A8GemmDescriptor(kind="int4", m=1, n=1, k=1 << 18, element="float32")
    with pytest.raises(bc.InvalidProblemError, match=r"codes \[n, k / 2\]"):
        bc.matmul_w4a8(x, codes[None], scales)
