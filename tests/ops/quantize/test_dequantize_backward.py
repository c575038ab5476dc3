"""The gradient of dequantize in its scales: every scope and code against a loop, through torch, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc

CODES = ("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("blocks", [(1, 8), (0, 1), (2, 0), (0, 0)])
def test_it_is_the_sum_of_products(code: str, blocks: tuple[int, int]) -> None:
    """Of codes that mean the numbers that a scale of 1 gives."""
    shape, dy = (4, 24), draw(4, 24)
    x = bc.quantize(draw(*shape, seed=1), 0.05 if "int" in code else 0.5, 3 if "int" in code else None, to_element=code)
    zeros = np.full([-(-n // (b or n)) for n, b in zip(shape, blocks, strict=True)], 3, np.int32)
    given = zeros if "int" in code else None
    ones = np.ones(zeros.shape, np.float32)
    facts = {"element": code, "shape": shape, "block_shape": blocks}
    values = bc.dequantize(x, ones, given, **facts)
    found = bc.dequantize_backward(dy, x, ones, given, **facts)
    for i in np.ndindex(*zeros.shape):
        part = tuple(slice(k * (b or n), (k + 1) * (b or n)) for k, b, n in zip(i, blocks, shape, strict=True))
        terms = dy[part].astype(np.float64) * values[part]
        np.testing.assert_allclose(found[i], terms.sum(), rtol=1e-5, atol=1e-5 * np.abs(terms).sum())


def test_scales_that_several_blocks_share_get_the_sum_of_all() -> None:
    x, dy = np.random.default_rng(2).integers(-128, 128, (6, 32), dtype=np.int8), draw(6, 32)
    apart = bc.dequantize_backward(dy, x, np.ones((6, 4), np.float32))
    for shape, axes in (((4,), (0,)), ((6, 1), (1,)), ((1,), (0, 1)), ((), (0, 1))):
        found = bc.dequantize_backward(dy, x, np.ones(shape, np.float32), block_shape=(1, 8))
        np.testing.assert_allclose(found, apart.astype(np.float64).sum(axes).reshape(shape), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("scope", ["tensor", "channel", "group"])
def test_autograd_reaches_scales_alone(scope: str) -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    x = torch.from_numpy(np.random.default_rng(2).integers(-128, 128, (6, 32), dtype=np.int8))
    dy = torch.from_numpy(draw(6, 32))
    shape, wide = {"tensor": ((), (1, 1)), "channel": ((6,), (6, 1)), "group": ((6, 4), (6, 4))}[scope]
    scale = torch.full(shape, 0.1, requires_grad=True)
    y = bt.dequantize_per_channel(x, scale) if scope == "channel" else bt.dequantize(x, scale)
    y.backward(dy)
    want = (dy * x).reshape(wide[0], 6 // wide[0], wide[1], 32 // wide[1]).sum((1, 3)).reshape(shape)
    torch.testing.assert_close(scale.grad, want, rtol=1e-4, atol=1e-3)


def test_what_has_no_gradient_says_so() -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    with pytest.raises(bc.UnsupportedError, match="power of two"):
        bc.dequantize_backward(draw(2, 8), np.zeros((2, 8), np.uint8), np.full((2, 1), 127, np.uint8),
                               element="float8_e4m3fn", scale_element="float8_e8m0fnu")  # fmt: skip
    x = torch.zeros(2, 8, requires_grad=True)
    with pytest.raises(bc.UnsupportedError, match="requires grad"):
        bt.quantize(x, 0.1, to_element="float8_e4m3fn")
    assert not bt.quantize(x, 0.1).requires_grad
