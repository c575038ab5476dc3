"""The dropout kernels on the emulator: every choice of axes with draws × layouts, bits as on NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py import DropoutPlan
from baracuda_py.core.element import FLOATS

pytestmark = pytest.mark.usefixtures("emulation")


def views(x: np.ndarray) -> list[np.ndarray]:
    """Dense, transposed, with gaps, reversed, broadcast along the first axis, one element off."""
    gaps = np.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)[..., :-3]
    gaps[...] = x
    off = np.zeros(x.size + 1, x.dtype)[1:].reshape(x.shape)
    off[...] = x
    return [x, np.array(x.T, order="C").T, gaps, x[::-1], np.broadcast_to(x[:1], x.shape), off]


@pytest.mark.parametrize("element", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(3, 4, 32), (2, 5, 7), (1100,), (2, 3, 4, 8)], ids=str)
def test_layouts_and_axes(element, shape):
    values = np.random.default_rng(1).standard_normal(shape).astype(element.dtype)
    every = [axis for n in range(len(shape) + 1) for axis in itertools.combinations(range(len(shape)), n)]
    for number, (axis, x) in enumerate(itertools.product(every, views(values))):
        alpha = bool(number % 2)
        function = bc.alpha_dropout if alpha else bc.dropout
        wanted, kept = function(x, 0.4, seed=-3, offset=2**35, axis=axis, return_mask=True)
        desc = DropoutPlan.descriptor(shape=shape, p=0.4, axis=axis, alpha=alpha, element=element)
        made = {"y": np.full(shape, 7, element.dtype), "mask": np.zeros(shape, bool)}
        if number % 3 == 0:
            made["y"] = np.zeros(shape[::-1], element.dtype).T
        if number % 5 == 0:
            made.pop("mask")
        got = call(DropoutPlan, desc, made, x=x, seed=-3, offset=2**35)
        if "mask" in got:
            np.testing.assert_array_equal(got["mask"], kept)
        if element.itemsize == 2:  # float32 rounded once more
            np.testing.assert_allclose(got["y"].astype("f4"), wanted.astype("f4"), rtol=2 * element.limits.eps)
            np.testing.assert_array_equal(got["y"] == 0, wanted == 0)
        else:
            np.testing.assert_allclose(got["y"], wanted, rtol=4 * element.limits.eps, atol=element.limits.eps)
