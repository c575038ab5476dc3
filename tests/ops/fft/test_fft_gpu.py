"""Fourier transforms on a device: cuFFT's work areas within the bound, results, what it overwrites, graphs, threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.fft.fft import FftPlan
from baracuda_py.ops.fft.fft_backward import FftBackwardPlan
from baracuda_py.ops.fft.irfft import IrfftPlan
from baracuda_py.ops.fft.irfft_backward import IrfftBackwardPlan
from baracuda_py.ops.fft.rfft import RfftPlan
from baracuda_py.ops.fft.rfft_backward import RfftBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import DEVICE, OnDevice, wrong_plan
from baracuda_py.testing.operands import operands

pytestmark = pytest.mark.gpu
PLANS = (FftPlan, RfftPlan, IrfftPlan, FftBackwardPlan, RfftBackwardPlan, IrfftBackwardPlan)
SHAPES = (
    ((3, 1), (1,)), ((5, 2), (1,)), ((64, 1024), (1,)), ((7, 1009), (1,)), ((3, 65537), (1,)), ((2, 1 << 20), (1,)),
    ((1000, 12), (0,)), ((9, 20, 6), (1,)), ((4, 37, 64), (1, 2)), ((4, 60, 61), (2, 1)), ((12, 13, 14), (0, 1, 2)),
    ((2, 16, 16, 17), (1, 2, 3)), ((6, 5, 4), (2, 0)),
)  # fmt: skip


def _descriptor(plan: Any, double: bool, shape: Any, axis: Any) -> Any:
    whole = plan in (FftPlan, FftBackwardPlan)
    element = ("complex128" if double else "complex64") if whole else ("float64" if double else "float32")
    return plan.descriptor(shape=shape, axis=axis, norm="ortho", element=element)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.__name__)
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("problem", SHAPES, ids=str)
def test_results(plan: Any, double: bool, problem: Any) -> None:
    """Within the bound, in a workspace that is no larger than was said, inputs as they were."""
    desc = _descriptor(plan, double, *problem)
    case = fill(plan, desc, np.random.default_rng(0))
    chosen = plan.select(desc, device=DEVICE)
    assert wrong_plan(case, [chosen]) is None
    held = OnDevice(operands(case))
    runner: Any = chosen.runner
    prepared, _ = runner.ready(runner.refs(held.args())[1])
    assert prepared.workspace <= chosen.workspace_size(held.args())


@pytest.mark.parametrize("n", [6, 7, 64, 1009])
@pytest.mark.parametrize("ways", [1, 2])
def test_what_is_not_hermitian(n: int, ways: int) -> None:
    """cuFFT reads no imaginary part at the ends of one axis, and of several gets them Hermitian; x is as it was."""
    import cupy

    rng = np.random.default_rng(n)
    z = rng.standard_normal((8, n // 2 + 1)) + 1j * rng.standard_normal((8, n // 2 + 1))
    x = cupy.asarray(z)
    axis, s = ((1,), (n,)) if ways == 1 else ((0, 1), (8, n))
    np.testing.assert_allclose(bc.irfftn(x, s, axis).get(), np.fft.irfftn(z, s, axis), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(x.get(), z)


def test_in_a_graph() -> None:
    """Captured and replayed with other numbers, after the plans that were kept have changed."""
    import cupy

    x = cupy.zeros((5, 96), np.complex128)
    replay = bc.graph(lambda: bc.fft(x))
    for n in range(2, 80):
        bc.fft(cupy.ones((1, n), np.complex128))
    z = np.random.default_rng(0).standard_normal((5, 96)) + 0j
    x.set(z)
    np.testing.assert_allclose(replay().get(), np.fft.fft(z), rtol=1e-10, atol=1e-10)


def test_threads_share_a_plan() -> None:
    import cupy

    rng = np.random.default_rng(0)
    given = [rng.standard_normal((64, 1000)) + 0j for _ in range(8)]
    got: list[Any] = [None] * len(given)

    def work(i: int) -> None:
        with cupy.cuda.Device(DEVICE), cupy.cuda.Stream(non_blocking=True) as stream:
            x = cupy.asarray(given[i])
            for _ in range(20):
                y = bc.fft(x)
            stream.synchronize()
            got[i] = y.get()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x, y in zip(given, got, strict=True):
        np.testing.assert_allclose(y, np.fft.fft(x), rtol=1e-10, atol=1e-9)
