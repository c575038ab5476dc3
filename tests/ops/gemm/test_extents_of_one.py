"""Axes of extent 1 may have any stride: no thread past a matrix's end makes an address of it that is not aligned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

OURS = bc.PlanPreference(prefer_backend="bespoke")


def odd(x: np.ndarray, axis: int) -> np.ndarray:
    """x, dense but along `axis`, whose stride is odd where its extent is 1."""
    wide = np.zeros((x.shape[0] + 1, x.shape[1] + 3), x.dtype)[: x.shape[0], : x.shape[1]]
    wide[...] = x
    if x.shape[axis] != 1:
        return np.ascontiguousarray(x) if axis == 0 else np.asfortranarray(x)
    steps = [x.itemsize] * 2
    steps[axis] *= 5
    return np.lib.stride_tricks.as_strided(np.ascontiguousarray(x), x.shape, steps)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("cc", [8.0, 9.0])
@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize(
    "sizes", [(1, 16, 16), (17, 1, 16), (17, 16, 1), (1, 1, 16), (1, 16, 1), (17, 1, 1), (1, 1, 1)]
)
def test_products_on_the_emulator(sizes: Any, element: str, cc: float) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(element) for s in ((m, k), (k, n)))
    for axis in (0, 1):
        left, right, y = odd(a, axis), odd(b, 1 - axis), odd(np.full((m, n), 7, element), axis)
        with emulating(1):
            desc = bc.GemmDescriptor(m=m, n=n, k=k, element=element)
            plan = bc.GemmPlan.select(desc, OURS, device=emulated_device(cc))
            plan.run(bc.GemmArgs(a=pointer_view(left), b=pointer_view(right), y=pointer_view(y)))
        assert np.array_equal(y, a @ b)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize("sizes", [(1, 16, 16), (9, 1, 16), (9, 16, 1), (1, 1, 16), (1, 16, 1), (9, 1, 1), (1, 1, 1)])
def test_other_products_on_the_emulator(sizes: Any, element: str) -> None:
    """gemv, rows in one group, and a sum over the rows of one group."""
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(element) for s in ((m, k), (k, n)))
    facts = {"groups": 1, "n": n, "element": element}
    for axis in (0, 1):
        left, right, out = odd(a, axis), odd(b, 1 - axis), odd(np.full((m, n), 7, element), axis)
        calls = [
            (bc.GemvPlan, bc.GemvDescriptor(m=m, n=n, k=k, element=element), left, right, out, None),
            (bc.GroupedGemmPlan, bc.GroupedGemmDescriptor(total=m, k=k, **facts), left, right[None], out, m),
            (bc.GroupedInnerGemmPlan, bc.GroupedInnerGemmDescriptor(total=k, m=m, **facts), left, right, out[None], k),
        ]
        for plan, desc, x, w, y, end in calls:
            y[...] = 7
            offsets = {} if end is None else {"offsets": pointer_view(np.array([end]))}
            with emulating(1):
                chosen = plan.select(desc, OURS, device=emulated_device(8.0))
                chosen.run(plan.args(a=pointer_view(x), b=pointer_view(w), y=pointer_view(y), **offsets))
            assert np.array_equal(y.reshape(m, n), a @ b), plan.__name__
