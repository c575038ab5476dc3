"""adam_step: closed forms, an independent loop, clipping, 16-bit copies, what it refuses."""

import math

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.optimizer.adam_step import CAPACITY, AdamStepDescriptor, AdamStepPlan, adam_step
from baracuda_py.ops.optimizer.global_norm import global_norm


def _lists(shapes: list[tuple[int, ...]], dtype: type = np.float64) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(3)
    made = [[np.asarray(rng.standard_normal(s)).astype(dtype) for s in shapes] for _ in range(2)]
    return [*made, [np.zeros(s, dtype) for s in shapes], [np.zeros(s, dtype) for s in shapes]]


def test_first_step_moves_by_lr() -> None:
    params, grads, m, v = _lists([(3, 4), (5,)])
    before = [p.copy() for p in params]
    adam_step(params, grads, m, v, lr=0.1, step=1, weight_decay=0.0, eps=0.0)
    for p, old, g in zip(params, before, grads, strict=True):
        np.testing.assert_allclose(old - p, 0.1 * np.sign(g), rtol=1e-12)


@pytest.mark.parametrize("mode", ["adamw", "adam"])
def test_against_scalar_arithmetic(mode: str) -> None:
    params, _, m, v = _lists([(4,)])
    lr, b1, b2, eps, decay, scale = 0.02, 0.8, 0.97, 1e-3, 0.3, 0.5
    want = [float(x) for x in params[0]]
    first, second = [0.0] * 4, [0.0] * 4
    rng = np.random.default_rng(5)
    for t in range(1, 6):
        g = rng.standard_normal(4)
        adam_step(
            params,
            [g],
            m,
            v,
            lr=lr,
            step=t,
            grad_scale=scale,
            beta1=b1,
            beta2=b2,
            eps=eps,
            weight_decay=decay,
            mode=mode,
        )
        for i in range(4):
            slope = float(g[i]) * scale + (decay * want[i] if mode == "adam" else 0)
            first[i] = b1 * first[i] + (1 - b1) * slope
            second[i] = b2 * second[i] + (1 - b2) * slope**2
            step = (first[i] / (1 - b1**t)) / (math.sqrt(second[i] / (1 - b2**t)) + eps)
            want[i] = want[i] - (lr * decay * want[i] if mode == "adamw" else 0) - lr * step
    np.testing.assert_allclose(params[0], want, rtol=1e-12)
    np.testing.assert_allclose(v[0], second, rtol=1e-12)


def test_clip_factor_as_scale() -> None:
    params, grads, m, v = _lists([(3, 4), (5,)], np.float32)
    norm, factor = global_norm(grads, max_norm=0.5, return_clip_factor=True)
    adam_step(params, grads, m, v, lr=0.1, step=1, grad_scale=factor)
    clipped = np.sqrt(sum(float(np.sum(np.square(x / 0.1, dtype=np.float64))) for x in m))
    assert norm > 0.5 and np.isclose(clipped, 0.5, rtol=1e-5)


def test_masters_with_16_bit_gradients_and_copy() -> None:
    params, grads, m, v = _lists([(3, 4), (), (0, 2)], np.float32)
    copies = [np.zeros(p.shape, ml_dtypes.bfloat16) for p in params]
    adam_step(params, [g.astype(ml_dtypes.bfloat16) for g in grads], m, v, copies, lr=0.1, step=1)
    for p, copy in zip(params, copies, strict=True):
        assert np.array_equal(p.astype(ml_dtypes.bfloat16), copy)
    half = [np.zeros(p.shape, np.float16) for p in params]
    adam_step(params, grads, m, v, half, lr=0.1, step=2)
    assert np.array_equal(params[0].astype(np.float16), half[0])


def test_no_gradient_is_no_step() -> None:
    params, _, m, v = _lists([(3,)], np.float32)
    before = params[0].copy()
    adam_step(params, [np.zeros(3, np.float32)], m, v, lr=1.0, step=1, weight_decay=0.0)
    assert np.array_equal(params[0], before)


def test_steps_below_one_count_as_one() -> None:
    results = []
    for step in (1, 0, -4):
        params, grads, m, v = _lists([(3,)], np.float32)
        adam_step(params, grads, m, v, lr=0.1, step=step)
        results.append(params[0].tobytes())
    assert len(set(results)) == 1


def test_torch_defaults() -> None:
    assert AdamStepDescriptor(shapes=((3,),), element="float32").weight_decay == 0.01
    assert AdamStepDescriptor(shapes=((3,),), mode="adam", element="float32").weight_decay == 0


def test_refusals() -> None:
    with pytest.raises(InvalidProblemError, match="beta1"):
        AdamStepDescriptor(shapes=((3,),), beta1=1.0, element="float32")
    with pytest.raises(UnsupportedError, match="gradients"):
        AdamStepDescriptor(shapes=((3,),), element="float64", grad_element="float16")


def test_long_lists_take_several_launches() -> None:
    shapes = [(0,), *[(3,)] * (2 * CAPACITY), (0,)]
    plan = AdamStepPlan.select(AdamStepDescriptor(shapes=shapes, element="float32"), device=fake_device(9.0))
    steps = plan.rows[0].geometry(plan._dense).steps
    assert [step.grid[0] for step in steps] == [CAPACITY - 1, CAPACITY, 1]
    assert steps[0].params["first"][:3] == [0, 0, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("step", [1, 10, 10**6])
def test_device_scalars(step: int) -> None:
    import cupy as cp

    lists = _lists([(3000,), (7, 9)], np.float32)
    host = [[x.copy() for x in part] for part in lists]
    device = [[cp.asarray(x) for x in part] for part in lists]
    adam_step(*host, lr=0.01, step=step, grad_scale=0.5)
    adam_step(*device, lr=cp.float32(0.01), step=cp.asarray(step), grad_scale=cp.asarray(0.5))
    for a, b in zip(host[0], device[0], strict=True):
        np.testing.assert_allclose(b.get(), a, rtol=3e-6, atol=1e-7)
