"""amax_scale: known values, ends of the range, and casts that then fit; by the kernels too."""

import math

import ml_dtypes
import numpy as np
import pytest
from run_emulated import laid_out, run

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.reduce.amax_scale import AmaxScaleDescriptor, AmaxScalePlan


def scaled(x, **options):
    """(scale, amax) by the kernels, which are those of the function."""
    desc = AmaxScaleDescriptor(shape=x.shape, element=ElementKind.of(x.dtype), **options)
    made = run(AmaxScalePlan, desc, x=laid_out(x))
    for found, wanted in zip(bc.amax_scale(x, **options), (made["scale"], made["amax"]), strict=True):
        np.testing.assert_array_equal(found, wanted)
    return made["scale"], made["amax"]


@pytest.mark.usefixtures("emulation")
def test_known_values():
    x = np.array([[1, -7, 3], [0, 0, 0]], np.float32)
    scale, amax = scaled(x, axis=1)
    np.testing.assert_array_equal(amax, [7, 0])
    np.testing.assert_array_equal(scale, [64, 1])
    assert scaled(x, target="float8_e5m2")[0] == np.float32(57344 / 7)
    assert scaled(x, target="int8", inverse=True)[0] == np.float32(7 / 127)
    assert scaled(x, target="int8", power_of_two=True)[0] == 16
    assert scaled(x, limit=7.0, power_of_two=True)[0] == 1
    assert scaled(x, eps=14.0)[0] == 32
    for bad in (math.inf, math.nan):
        scale, amax = scaled(np.array([1, bad], np.float16))
        assert scale == 1 and amax.dtype == np.float32 and (amax == bad or math.isnan(amax))
    scale, amax = scaled(np.zeros((3, 0), np.float32), axis=1)
    assert (scale == 1).all() and (amax == 0).all()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_powers_of_two_never_bring_a_value_beyond_the_limit(dtype):
    """Beside every quotient that is a power of two, and at both ends of the range."""
    info = ml_dtypes.finfo(dtype)
    near = np.array([448, 448 * (1 + float(info.eps)), 448 * (1 - float(info.eps)), float(info.max), float(info.tiny),
                     float(info.smallest_subnormal)]).astype(dtype)  # fmt: skip
    for x in near:
        scale, amax = scaled(np.array([x], dtype), power_of_two=True)
        assert math.frexp(scale)[0] == 0.5 and np.longdouble(scale) * np.longdouble(amax) <= 448
        whole = bc.amax_scale(np.array([x], dtype))[0]
        assert np.isfinite(whole) and whole / 2 < scale and scale / 2 < whole
        inverse, _ = scaled(np.array([x], dtype), power_of_two=True, inverse=True)
        assert inverse * scale == 1


@pytest.mark.parametrize("target", ["float8_e4m3fn", "float8_e5m2", "int8"])
def test_what_is_scaled_fills_the_range(target):
    x = np.random.default_rng(0).standard_normal((9, 200)).astype(np.float32)
    scale, amax = bc.amax_scale(x, axis=1, keepdims=True, target=target)
    top = ElementKind.of(target).limits.max
    np.testing.assert_allclose(np.abs(x * scale).max(1), top, rtol=1e-6)
    np.testing.assert_array_equal(amax[:, 0], np.abs(x).max(1))


def test_what_is_refused():
    x = np.ones(3, np.float32)
    for name, value in (("limit", 0.0), ("limit", math.inf), ("eps", -1.0), ("limit", math.nan)):
        with pytest.raises(InvalidProblemError, match=name):
            bc.amax_scale(x, **{name: value})
