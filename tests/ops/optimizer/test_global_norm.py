"""global_norm: known values, the whole range of the element, clipping, launches of long lists."""

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.ops.optimizer.global_norm import CAPACITY, CHUNK, GlobalNormDescriptor, GlobalNormPlan, global_norm


def test_known_values() -> None:
    norm, factor = global_norm(
        [np.array([3.0], np.float32), np.array([[4.0]], np.float32)], max_norm=1.0, return_clip_factor=True
    )
    assert norm == 5 and norm.shape == () and norm.dtype == np.float32
    assert factor == np.float32(1 / (5 + 1e-6))
    assert global_norm([np.full(4, 0.25)], max_norm=1.0, return_clip_factor=True)[1] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("power", [-1.0, -0.55, -0.45, 0.45, 0.55, 0.98])
def test_whole_range(dtype: type, power: float) -> None:
    limits = np.finfo(dtype)
    value = dtype(float(limits.max if power > 0 else 1 / limits.tiny) ** power)
    assert np.isclose(global_norm([np.full(4, value)]), 2 * value, rtol=4 * limits.eps, atol=0)


def test_not_finite() -> None:
    norm, factor = global_norm([np.array([np.inf, 1.0])], return_clip_factor=True)
    assert np.isinf(norm) and factor == 0
    norm, factor = global_norm([np.array([np.inf, np.nan])], return_clip_factor=True)
    assert np.isnan(norm) and np.isnan(factor)


def test_empty_tensors() -> None:
    norm, factor = global_norm([np.zeros((0, 3), np.float32)], max_norm=2.0, return_clip_factor=True)
    assert norm == 0 and factor == 1


def test_partials_follow_the_shapes_alone() -> None:
    sizes = [CHUNK + 1, 0, 5] + [1] * (CAPACITY + 3)
    plan = GlobalNormPlan.select(
        GlobalNormDescriptor(shapes=[(n,) for n in sizes], element="float32"), device=fake_device(9.0)
    )
    *launches, finish = plan.rows[0].geometry(plan._dense).steps
    slots = [slot for step in launches for slot in step.params["slot"]]
    assert slots == np.cumsum([0] + [-(-n // CHUNK) for n in sizes])[:-1].tolist()
    assert finish.params["count"] == sum(step.grid[0] for step in launches) == CAPACITY + 6
    assert all(len(step.params["sizes"]) <= CAPACITY for step in launches) and len(launches) == 2


@pytest.mark.gpu
def test_bits_do_not_depend_on_layout() -> None:
    import cupy as cp

    base = [cp.random.standard_normal(n).astype("float32") for n in (3 * CHUNK + 5, 7, 1000)]
    shifted = [cp.concatenate([cp.zeros(1, "float32"), x])[1:] for x in base]
    strided = [cp.repeat(x, 2)[::2] for x in base]
    bits = {global_norm(x).get().tobytes() for x in (base, shifted, strided)}
    assert len(bits) == 1
