"""layer_norm and its gradient: known values, invariances, large means, residuals, independent weight and bias."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core import TensorRef, registry
from baracuda_py.core.device import fake_device
from baracuda_py.ops.norm.layer_norm import LayerNormArgs, LayerNormDescriptor, LayerNormPlan, layer_norm
from baracuda_py.ops.norm.layer_norm_backward import LayerNormBackwardPlan, layer_norm_backward
from baracuda_py.ops.norm.rms_norm import rms_norm

RNG = np.random.default_rng(1)


def normal(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def test_known_values() -> None:
    y, mean, rstd = layer_norm(np.array([[1.0, 3.0], [5.0, 5.0]]), eps=3.0, return_mean=True, return_rstd=True)
    assert np.allclose(y, [[-0.5, 0.5], [0, 0]])
    assert np.allclose(mean, [2, 5])
    assert np.allclose(rstd, [0.5, 3**-0.5])


def test_weight_and_bias_are_independent() -> None:
    x, weight, bias = normal(3, 6), normal(6), normal(6)
    plain = layer_norm(x)
    assert np.allclose(layer_norm(x, weight), plain * weight)
    assert np.allclose(layer_norm(x, bias=bias), plain + bias)
    assert np.allclose(layer_norm(x, weight, bias), plain * weight + bias)


def test_rows_have_mean_zero_and_variance_one() -> None:
    y = layer_norm(normal(4, 3, 50) * 7 + 1000, normalized_shape=(3, 50), eps=0.0).reshape(4, -1)
    assert np.allclose(y.mean(1), 0, atol=1e-12)
    assert np.allclose(y.var(1), 1)


def test_a_large_mean_costs_no_accuracy() -> None:
    x = normal(4, 300, dtype=np.float32) + np.float32(30000)
    exact = x.astype(np.longdouble)
    wanted = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    assert np.abs(layer_norm(x) - wanted).max() < 1e-6


def test_residual_is_rounded_before_it_is_normalised() -> None:
    x, residual, weight = normal(4, 64, dtype=np.float16), normal(4, 64, dtype=np.float16), normal(64, dtype=np.float32)
    y, h = layer_norm(x, weight, residual=residual, return_h=True)
    assert np.array_equal(h, x + residual)
    assert np.array_equal(y, layer_norm(h, weight))


def test_backward_against_the_projection_it_is() -> None:
    x, dy, weight = normal(5, 8), normal(5, 8), normal(8)
    centred = x - x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(1) + 1e-5)
    dx, dweight, dbias = layer_norm_backward(dy, x, x.mean(1), rstd, weight)
    for i in range(5):  # the Jacobian of one row, written out
        xhat = centred[i] * rstd[i]
        jacobian = rstd[i] * (np.eye(8) - 1 / 8 - np.outer(xhat, xhat) / 8)
        assert np.allclose(dx[i], jacobian @ (dy[i] * weight))
    assert np.allclose(dweight, (dy * centred * rstd[:, None]).sum(0))
    assert np.allclose(dbias, dy.sum(0))
    assert np.allclose(dx.sum(1), 0, atol=1e-12)  # the norm ignores a shift of its row


def test_gradients_have_the_elements_of_what_they_belong_to() -> None:
    x, weight = normal(2, 8, dtype=ml_dtypes.bfloat16), normal(8, dtype=np.float32)
    y, mean, rstd = layer_norm(x, weight, return_mean=True, return_rstd=True)
    dx, dweight, dbias = layer_norm_backward(y, x, mean, rstd, weight)
    assert [a.dtype for a in (mean, rstd, dweight, dbias)] == [np.float32] * 4
    assert dx.dtype == ml_dtypes.bfloat16
    only = layer_norm_backward(y, x, mean, rstd, return_dx=False)  # no weight, so no dweight
    assert only.dtype == ml_dtypes.bfloat16


def test_empty_batches_have_zero_sums() -> None:
    empty, none = np.zeros((0, 4), np.float32), np.zeros(0, np.float32)
    dx, dweight, dbias = layer_norm_backward(empty, empty, none, none, np.ones(4, np.float32))
    assert dx.shape == (0, 4)
    assert not dweight.any()
    assert not dbias.any()


def test_forward_names_its_backward() -> None:
    assert LayerNormPlan.vjp is not None
    assert registry.plans()[LayerNormPlan.vjp.plan] is LayerNormBackwardPlan
    assert list(LayerNormPlan.vjp.cotangents(LayerNormPlan, LayerNormBackwardPlan)) == ["y", "h"]


@pytest.mark.gpu
@pytest.mark.parametrize("cols", [100, 1024, 5120, 50000])
@pytest.mark.parametrize("mean", [0, 1e4])
def test_accuracy_with_a_mean(cols: int, mean: float) -> None:
    import cupy

    x = (RNG.standard_normal((6, cols)) + mean).astype(np.float32)
    exact = x.astype(np.float64)
    wanted = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    got = cupy.asnumpy(layer_norm(cupy.asarray(x)))
    assert np.abs(got - wanted).max() < 4e-6


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1000, 128), (333, 4096), (40, 8192), (17, 16384), (5, 70000)])
def test_sums_repeat_bit_for_bit(shape: tuple[int, int]) -> None:
    import cupy

    x, dy = (cupy.asarray(RNG.standard_normal(shape), dtype=cupy.float32) for _ in range(2))
    weight = cupy.ones(shape[1], cupy.float32)
    mean, rstd = layer_norm(x, weight, return_mean=True, return_rstd=True)[1:]
    first = layer_norm_backward(dy, x, mean, rstd, weight)
    for _ in range(5):
        again = layer_norm_backward(dy, x, mean, rstd, weight)
        assert all(bool((a == b).all()) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize(("rows", "cc", "kernel"), [
    (264, 9.0, "row_2048"), (265, 9.0, "stream_2048"), (8192, 8.6, "row_2048"), (2**31, 9.0, "stream_2048"),
])  # fmt: skip
def test_many_long_rows_stream_where_the_ring_fits(rows: int, cc: float, kernel: str) -> None:
    desc = LayerNormDescriptor(batch_shape=rows, normalized_shape=16384, element="bfloat16")
    x, y = (TensorRef(i << 60, (rows, 16384), None, "bfloat16") for i in (1, 2))
    (step,) = LayerNormPlan.select(desc, device=fake_device(cc)).plan_layout(LayerNormArgs(x=x, y=y))[1].steps
    assert step.kernel == kernel


@pytest.mark.gpu
@pytest.mark.parametrize("op", [layer_norm, rms_norm])
@pytest.mark.parametrize("element", ["float16", "float32", "float64"])
@pytest.mark.parametrize("cols", [8, 104, 512, 3072, 6144, 9000, 16384])
def test_streamed_rows_have_the_bits_of_few(op: Any, element: str, cols: int) -> None:
    import cupy

    sms = cupy.cuda.Device().attributes["MultiProcessorCount"]
    rows = 2 * sms * max(16384 // cols, 1) + 37
    x = cupy.random.standard_normal((rows, cols), dtype=cupy.float32).astype(element)
    names = ("mean", "rstd") if op is layer_norm else ("rstd",)
    affine = [cupy.random.standard_normal(cols, dtype=cupy.float32).astype(element) for _ in names]
    wanted = {f"return_{name}": True for name in names}
    many = op(x, *affine, **wanted)
    spaced = cupy.zeros((rows, cols + 1), element)[:, :cols]
    spaced[...] = x
    for a, b in zip(many, op(spaced, *affine, **wanted), strict=True):
        assert bool((a == b).all())
    for first in (0, rows // 2, rows - 5):
        for a, b in zip(many, op(x[first : first + 5], *affine, **wanted), strict=True):
            assert bool((a[first : first + 5] == b).all())
