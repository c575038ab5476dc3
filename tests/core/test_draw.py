"""Test values of operands declared `Everywhere`: the ends, the subnormals, the named points and their neighbours."""

from dataclasses import dataclass

import numpy as np
import pytest
from frame_toys import AxpyDescriptor, AxpyPlan

from baracuda_py.core import Args, Array, Everywhere, operand, output
from baracuda_py.core.element import FLOATS, INTS
from baracuda_py.testing.draw import everywhere, fill

COUNT = (4000,)


def drawn(element, points=()):
    return everywhere(element, COUNT, np.random.default_rng(0), points)


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_floats_of_every_exponent(element):
    x = drawn(element, (3.0,)).astype(np.float64)
    size, limits = np.abs(x), element.limits
    assert np.isfinite(x).all() and {limits.max, -limits.max, 0.0} <= set(x.tolist())
    exponents = np.frexp(size[size > 0])[1]
    lowest, highest = limits.min_exponent + 1, np.frexp(limits.max)[1]
    bins = np.linspace(lowest, highest, 17).astype(int)
    assert (np.histogram(exponents, bins)[0] > 20).all()
    assert ((size > 0) & (size < 2.0**limits.min_exponent)).sum() > 20
    for step in (-2, -1, 1, 2):  # of 3, which lies between 2 and 4
        assert (size == 3 + step * 2 * limits.eps).sum() > 5
    assert (x < 0).sum() > 1000 and (x > 0).sum() > 1000


@pytest.mark.parametrize("element", INTS, ids=str)
def test_integers_over_the_whole_range(element):
    x = drawn(element)
    info = np.iinfo(element.dtype)
    assert {info.min, info.max, 0, 1} <= set(x.tolist())
    assert (np.abs(x.astype(float)) > info.max / 2).sum() > 50 and (np.abs(x.astype(float)) < 20).sum() > 50


@dataclass(slots=True, kw_only=True)
class WideArgs(Args):
    x: Array = operand("*shape", values=Everywhere(lambda desc: desc.shape))
    y: Array = output("*shape")


def test_an_operand_says_so_and_differences_stay_near():
    plan = type("WidePlan", (AxpyPlan,), {"args": WideArgs, "op": ""})  # not registered
    desc = AxpyDescriptor(shape=(50, 40), element="float32")
    wide = fill(plan, desc, np.random.default_rng(0)).arrays["x"]
    near = fill(plan, desc, np.random.default_rng(0), smooth=True).arrays["x"]
    assert np.abs(wide).max() > 1e30 and 0 < np.abs(near).max() < 1e3
    assert (np.abs(wide) == 50).any()
    special = fill(plan, desc, np.random.default_rng(1), special=True).arrays["x"]
    assert special.dtype == np.float32
