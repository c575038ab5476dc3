"""long_convolution on a device: every length's kernel, 16-bit numbers, layouts, gradients, bits, beside float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu
NAMES = ("x", "filter", "skip", "pre_gate", "post_gate")


def operands(b: int, c: int, n: int, k: int, dtype: Any) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    acc = np.float64 if dtype is np.float64 else np.float32
    rows = {name: rng.standard_normal((b, c, n)).astype(dtype) for name in ("x", "pre_gate", "post_gate")}
    filters = rng.standard_normal((c, k)) * np.exp(-np.arange(k) * 8 / k)
    return {**rows, "filter": filters.astype(acc), "skip": rng.standard_normal(c).astype(acc)}


def moved(value: Any) -> Any:
    """On the device; bfloat16 by way of float32, which holds it."""
    import cupy

    if value.dtype == ml_dtypes.bfloat16:
        return bc.cast(cupy.asarray(value.astype(np.float32)), "bfloat16")
    return cupy.asarray(value)


def there(given: dict[str, Any]) -> dict[str, Any]:
    return {name: moved(value) for name, value in given.items()}


def back(y: Any) -> Any:
    """In float32 or float64 on the host."""
    return (y if y.dtype.itemsize == 8 else bc.cast(y, "float32")).get()


def convolved(u: Any, filter: Any, period: int) -> Any:
    return np.fft.irfft(np.fft.rfft(u, period) * np.fft.rfft(filter, period), period)[..., : u.shape[-1]]


def truth(given: dict[str, Any], circular: bool) -> Any:
    x, filter, skip, pre, post = (given[name].astype(float) for name in NAMES)
    u = x * pre
    return (convolved(u, filter, u.shape[-1] * (1 if circular else 2)) + skip[:, None] * u) * post


def near(got: Any, want: Any, bound: float) -> None:
    """Of every row."""
    off, size = (np.sqrt(np.square(one).sum(-1)) for one in (got.astype(float) - want, want))
    assert (off <= bound * size).all(), (off / size).max()


BOUNDS = {np.float32: 2e-6, np.float64: 4e-15, np.float16: 1.5e-3, ml_dtypes.bfloat16: 1e-2}


@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("n", [16, 100, 128, 512, 1000, 2048, 4096, 8192, 16384])
def test_lengths(n: int, dtype: Any) -> None:
    if n == 16384 and dtype is np.float64:
        pytest.skip("8192 is the most of float64 in one launch")
    circular = n & (n - 1) == 0
    for wraps in {False, circular}:
        given = operands(3, 5, n, n, dtype)
        near(back(bc.long_convolution(**there(given), circular=wraps)), truth(given, wraps), BOUNDS[dtype])


@pytest.mark.parametrize("n", [64, 1024, 4096])
def test_layouts_and_bits(n: int) -> None:
    """Channels last, a slice of a batch, one row alone: the same bits, every time."""
    import cupy

    given = there(operands(8, 6, n, n, np.float32))
    want = bc.long_convolution(**given)
    for _ in range(20):
        assert (bc.long_convolution(**given) == want).all()
    last = {
        name: cupy.ascontiguousarray(one.swapaxes(1, 2)).swapaxes(1, 2) if one.ndim == 3 else one
        for name, one in given.items()
    }
    assert (bc.long_convolution(**last) == want).all()
    alone = {name: one[5:6] if one.ndim == 3 else one for name, one in given.items()}
    assert (bc.long_convolution(**alone)[0] == want[5]).all()


@pytest.mark.parametrize("n, dtype", [(100, np.float32), (1024, np.float64), (4096, np.float32), (8192, np.float32),
                                      (16384, np.float32), (2048, ml_dtypes.bfloat16)])  # fmt: skip
def test_gradients(n: int, dtype: Any) -> None:
    """Against correlations in float64; twice: the same bits."""
    given, dy = operands(4, 3, n, n, dtype), np.random.default_rng(1).standard_normal((4, 3, n)).astype(dtype)
    device, slope = there(given), moved(dy)
    outs = {f"d{name}": bc.empty(value.shape, str(value.dtype), like=device[name]) for name, value in given.items()}
    more = {"batch": 4, "channels": 3, "length": n, "taps": n, "element": str(np.dtype(dtype))}
    plan = bc.LongConvolutionBackwardPlan.select(bc.LongConvolutionBackwardDescriptor(**more))
    plan(dy=slope, **device, **outs)
    first = {name: back(one) for name, one in outs.items()}
    plan(dy=slope, **device, **outs)
    assert all((first[name] == back(one)).all() for name, one in outs.items())
    x, filter, skip, pre, post = (given[name].astype(float) for name in NAMES)
    dy = dy.astype(float)
    u, inner, period = x * pre, dy * post, 2 * n
    du = np.fft.irfft(np.fft.rfft(inner, period) * np.conj(np.fft.rfft(filter, period)), period)[..., :n]
    du = du + skip[:, None] * inner
    sums = np.fft.irfft((np.conj(np.fft.rfft(u, period)) * np.fft.rfft(inner, period)).sum(0), period)
    want = {
        "dx": du * pre, "dpre_gate": du * x, "dfilter": sums[:, :n], "dskip": sums[:, :1],
        "dpost_gate": (convolved(u, filter, period) + skip[:, None] * u) * dy,
    }  # fmt: skip
    for name in ("dx", "dpre_gate", "dpost_gate", "dfilter"):
        near(first[name], want[name], BOUNDS[dtype] if name != "dfilter" else 5e-6)
    scale = np.sqrt(np.square(want["dfilter"]).sum(-1))
    assert (np.abs(first["dskip"] - sums[:, 0]) <= 5e-6 * scale).all()


def test_other_lengths() -> None:
    """By rfft and irfft."""
    host = operands(1, 2, 20000, 20000, np.float32)
    near(back(bc.long_convolution(**there(host))), truth(host, False), 2e-6)
    host = operands(1, 2, 1000, 500, np.float16)
    host["filter"] = host["filter"].astype(np.float32)
    near(back(bc.long_convolution(**there(host), circular=True)), truth(host, True), 3e-3)
