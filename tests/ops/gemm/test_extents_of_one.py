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
