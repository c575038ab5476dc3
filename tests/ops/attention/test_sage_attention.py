"""sage_attention and flash_sdpa_fp8: how near they are to exact attention, lse, layouts, gradients, what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.attention.quantized.sage_attention import KEYS, QUERIES

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def operands(d: int, dtype: Any, outliers: float = 0.0, queries: int = 150, keys: int = 200) -> list[Any]:
    """q, k and v of normal data, two query heads a key head; keys whose channels have means of their own."""
    rng = np.random.default_rng(d)
    k = rng.standard_normal((2, 2, keys, d)) + outliers * rng.standard_normal((2, 2, 1, d))
    return [x.astype(dtype) for x in (rng.standard_normal((2, 4, queries, d)), k, rng.standard_normal((2, 2, keys, d)))]


def exact(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """y and lse in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        s[..., np.arange(k.shape[2]) > np.arange(q.shape[2])[:, None]] = -np.inf
    lse = np.logaddexp.reduce(s, -1)
    return np.exp(s - lse[..., None]) @ v, lse


def cosine(a: Any, b: Any) -> float:
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("dtype", [np.float16, BF16])
@pytest.mark.parametrize(("qk", "apart"), [("int8", 1e-4), ("fp8", 1e-3)])
@pytest.mark.parametrize("causal", [False, True])
def test_near_exact_attention_on_normal_data(d: int, dtype: Any, qk: str, apart: float, causal: bool) -> None:
    q, k, v = operands(d, dtype)
    y, lse = bc.sage_attention(q, k, v, qk=qk, is_causal=causal, return_lse=True)
    want, sums = exact(q, k, v, causal)
    assert cosine(y, want) > 1 - apart
    assert np.abs(lse - sums).max() < (0.05 if qk == "int8" else 0.3)
    assert (bc.sage_attention(q, k, v, qk=qk, is_causal=causal) == y).all()


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("qk", ["int8", "fp8"])
def test_hopper_takes_its_own_rows(d: int, qk: str) -> None:
    """Whose tiles of keys have one scale each: the blocks of codes are whole tiles of all rows."""
    code = {"int8": "int8", "fp8": "float8_e4m3fn"}[qk]
    desc = bc.QuantizedSdpaDescriptor(
        batch_size=1, num_heads=2, query_len=300, key_len=300, d_k=d, d_v=d, element="bfloat16", code_element=code,
        q_block=QUERIES, k_block=KEYS,
    )  # fmt: skip
    assert "/wgmma" in str(bc.QuantizedSdpaPlan.select(desc, device=fake_device(9.0)).sku)


def test_means_of_channels_are_taken_off_the_keys() -> None:
    """Outliers of channels: without the mean codes of keys have few steps left; lse has the mean back."""
    q, k, v = operands(64, np.float16, 20.0)
    want, sums = exact(q, k, v)
    smooth, lse = bc.sage_attention(q, k, v, return_lse=True)
    rough = bc.sage_attention(q, k, v, smooth_k=False)
    assert cosine(smooth, want) > 0.9995 > cosine(rough, want)
    np.testing.assert_allclose(lse, sums, atol=0.1)


@pytest.mark.parametrize("lse", [False, True])
def test_layouts_and_out(lse: bool) -> None:
    q, k, v = operands(32, np.float16, 1.0)
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    want = bc.sage_attention(q, k, v, return_lse=True, causal_alignment="bottom_right", is_causal=True)
    out = [np.zeros_like(turned[0]), np.zeros(q.shape[:3], np.float32)][: 1 + lse]
    made = bc.sage_attention(
        *turned, layout="bshd", causal_alignment="bottom_right", is_causal=True, return_lse=lse,
        out=tuple(out) if lse else out[0],
    )  # fmt: skip
    assert (out[0].swapaxes(1, 2) == want[0]).all()
    assert (made[0] if lse else made) is out[0]
    if lse:
        np.testing.assert_array_equal(out[1], want[1])


@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
def test_nothing(sizes: tuple[int, int, int]) -> None:
    batch, queries, keys = sizes
    q, k = np.zeros((batch, 2, queries, 16), np.float16), np.zeros((batch, 2, keys, 16), np.float16)
    for y, lse in (
        bc.sage_attention(q, k, k, return_lse=True),
        bc.flash_sdpa_fp8(q.astype(E4M3), k.astype(E4M3), k.astype(E4M3), return_lse=True),
    ):
        assert y.shape == q.shape and not y.any() and (np.isneginf(lse).all() if not keys else np.isfinite(lse).all())


@pytest.mark.parametrize("qk", ["int8", "fp8"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_exact_attention(qk: str, causal: bool) -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (
        torch.tensor(x.astype(np.float32)).half().requires_grad_() for x in operands(64, np.float16, 2.0, 70, 90)
    )
    dy, dlse = torch.randn(2, 4, 70, 64), torch.randn(2, 4, 70)
    y, lse = bc.sage_attention(q, k, v, qk=qk, is_causal=causal, return_lse=True)
    ((y.float() * dy).sum() + (lse * dlse).sum()).backward()
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    s = wide[0] @ wide[1].repeat_interleave(2, 1).transpose(-1, -2) / 8
    if causal:
        s = s.masked_fill(torch.arange(90) > torch.arange(70)[:, None], -torch.inf)
    want = torch.softmax(s, -1) @ wide[2].repeat_interleave(2, 1)
    ((want * dy).sum() + (torch.logsumexp(s, -1) * dlse).sum()).backward()
    for got, to in zip((q, k, v), wide, strict=True):
        assert cosine(got.grad.numpy(), to.grad.numpy()) > (0.999 if qk == "int8" else 0.99)
    (alone,) = torch.autograd.grad(bc.sage_attention(q, k, v, qk=qk, is_causal=causal).float().mul(dy).sum(), v)
    assert cosine(alone.numpy(), v.grad.numpy()) > 0.9999


def test_fp8_of_heads() -> None:
    """FlashAttention-3's operands, against float64 of the decoded ones; fp8 outputs saturate."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, h, 40, 64)).astype(E4M3) for h in (4, 2, 2))
    scales = [np.exp2(rng.uniform(-1, 1, (2, 2))).astype(np.float32) for _ in range(3)]
    by_head = [np.repeat(s, x.shape[1] // 2, 1)[..., None, None] for s, x in zip(scales, (q, k, v), strict=True)]
    want, sums = exact(*(x.astype(np.float64) * s for x, s in zip((q, k, v), by_head, strict=True)))
    y, lse = bc.flash_sdpa_fp8(q, k, v, *scales, out_element="float16", return_lse=True)
    np.testing.assert_allclose(y.astype(np.float64), want, atol=2e-3)
    np.testing.assert_allclose(lse, sums, atol=1e-4)
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    assert (bc.flash_sdpa_fp8(*turned, *scales, out_element="float16", layout="bshd").swapaxes(1, 2) == y).all()
    codes = bc.flash_sdpa_fp8(q, k, v, *scales, out_element="float8_e4m3fn", out_scale=200.0)
    found = np.asarray(codes).view(E4M3).astype(np.float64)
    np.testing.assert_allclose(found, np.clip(want * 200, -448, 448), rtol=2**-4 + 2**-7, atol=0.5)
    assert np.abs(found).max() == 448
    one = bc.flash_sdpa_fp8(q, k, v)
    np.testing.assert_allclose(one.astype(np.float64), exact(q, k, v)[0], atol=2**-7)


def test_what_is_refused() -> None:
    q, k, v = operands(16, np.float16, queries=8, keys=8)
    with pytest.raises(UnsupportedError, match="all float16 or all bfloat16, got q float32"):
        bc.sage_attention(q.astype(np.float32), k, v)
    with pytest.raises(InvalidProblemError, match='qk must be "int8" or "fp8", got \'int4\''):
        bc.sage_attention(q, k, v, qk="int4")
    with pytest.raises(InvalidProblemError, match="do not fit"):
        bc.sage_attention(q, k, v[:, :, 1:])
    with pytest.raises(InvalidProblemError, match="multiple of num_kv_heads"):
        bc.sage_attention(q[:, :3], k, v)
    with pytest.raises(InvalidProblemError, match="scale must be a finite number"):
        bc.sage_attention(q, k, v, scale="x")
    codes = [x.astype(E4M3) for x in (q, k, v)]
    with pytest.raises(InvalidProblemError, match=r"descale_k must have shape \(2, 2\)"):
        bc.flash_sdpa_fp8(*codes, None, np.ones((2, 4), np.float32))
    with pytest.raises(InvalidProblemError, match="q must be float8_e4m3fn, got float16"):
        bc.flash_sdpa_fp8(q, k, v)
