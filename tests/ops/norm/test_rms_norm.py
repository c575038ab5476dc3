"""rms_norm and its gradient: known values, the formula in PyTorch's words, residuals, and what the kernels promise."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core import InvalidProblemError, TensorRef, registry
from baracuda_py.core.device import fake_device
from baracuda_py.ops.norm.rms_norm import RMSNormArgs, RMSNormDescriptor, RMSNormPlan, rms_norm
from baracuda_py.ops.norm.rms_norm_backward import (
    RMSNormBackwardArgs, RMSNormBackwardDescriptor, RMSNormBackwardPlan, rms_norm_backward,
)  # fmt: skip

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def test_known_values() -> None:
    y, rstd = rms_norm(np.array([[3.0, 4.0]]), eps=0.0, return_rstd=True)
    assert np.allclose(y, [[3 / np.sqrt(12.5), 4 / np.sqrt(12.5)]])
    assert np.allclose(rstd, [1 / np.sqrt(12.5)])
    assert np.allclose(rms_norm(np.array([3.0, 4.0]), np.array([2.0, 10.0]), eps=12.5), [6 / 5, 40 / 5])


@pytest.mark.parametrize("axes", [1, 2])
def test_formula(axes: int) -> None:
    x = normal(2, 3, 4, 5)
    weight = normal(*x.shape[4 - axes :])
    over = tuple(range(4 - axes, 4))
    wanted = x / np.sqrt((x**2).mean(over, keepdims=True) + 1e-6) * weight
    assert np.allclose(rms_norm(x, weight), wanted, rtol=1e-14)
    assert np.allclose(rms_norm(x * 1e3, weight, eps=1.0), wanted, rtol=1e-5)  # scale falls out


def test_normalized_shape_defaults_to_the_last_axis_and_takes_an_int() -> None:
    x = normal(3, 4, dtype=np.float32)
    last = rms_norm(x)
    assert np.array_equal(last, rms_norm(x, normalized_shape=4))
    assert np.array_equal(last, rms_norm(x, normalized_shape=(4,)))
    assert not np.array_equal(last, rms_norm(x, normalized_shape=(3, 4)))


def test_residual_is_rounded_before_it_is_normalised() -> None:
    x, residual = (normal(4, 64, dtype=ml_dtypes.bfloat16) for _ in range(2))
    h = (x.astype(np.float32) + residual.astype(np.float32)).astype(ml_dtypes.bfloat16)
    y, stored = rms_norm(x, residual=residual, return_h=True)
    assert stored.tobytes() == h.tobytes()
    assert y.tobytes() == rms_norm(h).tobytes()


def test_float32_weight_beside_16_bit_rows() -> None:
    x = normal(2, 8, dtype=np.float16)
    weight = normal(8, dtype=np.float32)
    y, rstd = rms_norm(x, weight, return_rstd=True)
    assert (y.dtype, rstd.dtype) == (np.float16, np.float32)
    dx, dweight = rms_norm_backward(y, x, rstd, weight)
    assert (dx.dtype, dweight.dtype) == (np.float16, np.float32)
    with pytest.raises(InvalidProblemError, match="weight_element"):
        RMSNormDescriptor(batch_shape=2, normalized_shape=8, element="float64", weight_element="float32")


def test_gradient_of_the_residual_stream_is_added() -> None:
    x, dy, dh, weight = normal(5, 7), normal(5, 7), normal(5, 7), normal(7)
    rstd = 1 / np.sqrt((x**2).mean(1))
    plain, dweight = rms_norm_backward(dy, x, rstd, weight)
    both, same = rms_norm_backward(dy, x, rstd, weight, dh)
    assert np.allclose(both, plain + dh, rtol=1e-14)
    assert np.array_equal(dweight, same)
    assert np.allclose(dweight, (dy * x * rstd[:, None]).sum(0))


def test_gradient_is_orthogonal_to_the_row_without_eps() -> None:
    x, dy = normal(6, 9), normal(6, 9)  # the norm ignores a row's scale
    dx = rms_norm_backward(dy, x, 1 / np.sqrt((x**2).mean(1)), return_dweight=False)
    assert np.allclose((dx * x).sum(1), 0, atol=1e-12)


def test_empty_rows_and_empty_batches() -> None:
    assert rms_norm(np.zeros((3, 0), np.float32)).shape == (3, 0)
    rstd = np.zeros((0,), np.float32)
    dx, dweight = rms_norm_backward(
        np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32), rstd, np.ones(4, np.float32)
    )
    assert dx.shape == (0, 4)
    assert np.array_equal(dweight, np.zeros(4, np.float32))


def geometry(plan: Any, desc: Any, args: Any, cc: float = 9.0) -> Any:
    return plan.select(desc, device=fake_device(cc)).plan_layout(args)[1]


def forward_args(rows: int, cols: int, element: str = "bfloat16", **given: Any) -> tuple[Any, Any]:
    desc = RMSNormDescriptor(batch_shape=rows, normalized_shape=cols, element=element)
    x = given.pop("x", TensorRef(1 << 40, (rows, cols), None, element))
    return desc, RMSNormArgs(x=x, y=TensorRef(1 << 60, (rows, cols), None, element), **given)


@pytest.mark.parametrize(
    ("cols", "kernel"),
    [(8, "row_8"), (128, "row_16"), (1000, "row_128"), (4096, "row_512"), (8192, "row_1024"), (32776, "loop")],
)
def test_columns_alone_choose_the_kernel(cols: int, kernel: str) -> None:
    for rows in (1, 3, 70000, 2**31):
        (step,) = geometry(RMSNormPlan, *forward_args(rows, cols)).steps
        assert step.kernel == kernel
        assert 0 < step.grid[0] < 2**31


@pytest.mark.parametrize("x", [
    TensorRef((1 << 40) + 2, (6, 4096), None, "bfloat16"),  # not aligned
    TensorRef(1 << 40, (6, 4096), (4100, 1), "bfloat16"),  # rows not aligned
    TensorRef(1 << 40, (6, 4096), (8192, 2), "bfloat16"),  # strided
])  # fmt: skip
def test_any_layout_keeps_the_schedule(x: TensorRef) -> None:
    (step,) = geometry(RMSNormPlan, *forward_args(6, 4096, x=x)).steps
    assert step.kernel == "row_512_any"


def test_a_slice_of_a_batch_stays_wide() -> None:
    desc = RMSNormDescriptor(batch_shape=(4, 5), normalized_shape=256, element="float16")
    x = TensorRef(1 << 40, (4, 5, 256), (9 * 256, 256, 1), "float16")
    y = TensorRef(1 << 44, (4, 5, 256), None, "float16")
    assert geometry(RMSNormPlan, desc, RMSNormArgs(x=x, y=y)).steps[0].kernel == "row_32"


def backward_geometry(rows: int, cols: int, cc: float = 9.0, **given: Any) -> Any:
    def ref(i: int, *shape: int, element: str = "bfloat16") -> TensorRef:
        return TensorRef(i << 40, shape, None, element)

    desc = RMSNormBackwardDescriptor(batch_shape=rows, normalized_shape=cols, element="bfloat16")
    args = {"dx": ref(5, rows, cols), "weight": ref(6, cols), "dweight": ref(7, cols), **given}
    return geometry(RMSNormBackwardPlan, desc, RMSNormBackwardArgs(
        dy=ref(1, rows, cols), x=ref(2, rows, cols), rstd=ref(3, rows, element="float32"), **args
    ), cc)  # fmt: skip


def test_backward_is_one_pass_and_a_combine() -> None:
    found = backward_geometry(32768, 4096)
    assert [s.kernel for s in found.steps] == ["pipe_512_3", "combine"]
    assert found.steps[0].grid == (264, 1, 1)
    assert found.workspace == 264 * 4096 * 4
    assert backward_geometry(8192, 8192).steps[0].kernel == "pipe_1024_3"


def test_backward_fits_99_kilobytes_or_reads_twice() -> None:
    dh = TensorRef(9 << 40, (64, 8192), None, "bfloat16")
    assert backward_geometry(64, 8192, 8.6, dh=dh).steps[0].kernel == "pipe_1024_2"
    assert [s.kernel for s in backward_geometry(64, 16384, 8.6).steps] == ["columns", "loop", "combine"]
    assert [s.kernel for s in backward_geometry(64, 16384).steps] == ["pipe_2048_2", "combine"]


def test_unwanted_gradients_cost_nothing() -> None:
    found = backward_geometry(64, 4096, dweight=None)
    assert (len(found.steps), found.workspace) == (1, 0)
    assert [s.kernel for s in backward_geometry(64, 65536, dx=None).steps] == ["columns", "combine"]


def test_forward_names_its_backward() -> None:
    assert RMSNormPlan.vjp is not None
    assert registry.plans()[RMSNormPlan.vjp.plan] is RMSNormBackwardPlan
    assert list(RMSNormPlan.vjp.cotangents(RMSNormPlan, RMSNormBackwardPlan)) == ["y", "h"]


@pytest.mark.gpu
@pytest.mark.parametrize("cols", [64, 1000, 4096, 8192, 40000])
def test_bits_do_not_depend_on_the_batch(cols: int) -> None:
    import cupy

    x = cupy.asarray(RNG.standard_normal((37, cols)), dtype=cupy.float32)
    weight = cupy.asarray(RNG.standard_normal(cols), dtype=cupy.float32)
    whole = rms_norm(x, weight)
    for row in (0, 5, 36):
        assert bool((rms_norm(x[row], weight) == whole[row]).all())


@pytest.mark.gpu
def test_in_place_over_both_inputs() -> None:
    import cupy

    for cols in (512, 4096, 40000):
        x, residual = (cupy.asarray(RNG.standard_normal((9, cols)), dtype=cupy.float32) for _ in range(2))
        y, h = rms_norm(x, residual=residual, return_h=True)
        rms_norm(x, residual=residual, return_h=True, out={"y": x, "h": residual})
        assert bool((x == y).all())
        assert bool((residual == h).all())
