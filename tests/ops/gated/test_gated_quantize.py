"""A gated activation as float8 with a scale for each row: rounded to nearest, scales, special rows, packed halves."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from call_placed import on

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

CODES = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("columns", [8, 33, 1000, 4096])
def test_of_an_activation_that_is_exact(name, columns, place):
    """reglu of small whole numbers is exact, so that codes are those of the quotients rounded once."""
    rng = np.random.default_rng(columns)
    gate, up = rng.integers(-12, 13, (2, 3, 5, columns)).astype(np.float32)
    y, scales = on(place, bc.gated_quantize, gate, up, kind="reglu", to_element=name)
    u = np.maximum(gate, 0) * up
    largest = float(ml_dtypes.finfo(CODES[name]).max)
    wanted = np.maximum(np.abs(u).max(-1) / np.float32(largest), np.float32(2.0**-126))
    np.testing.assert_array_equal(scales, wanted)
    np.testing.assert_array_equal(
        y.view(CODES[name]).astype(float), (u / wanted[..., None]).astype(CODES[name]).astype(float)
    )


def test_special_rows(place):
    gate = np.ones((5, 40), np.float32)
    up = np.ones((5, 40), np.float32)
    up[0] = 0
    up[1, 3] = np.nan
    up[2, 3] = np.inf
    up[3] = 1e-44
    y, scales = on(place, bc.gated_quantize, gate, up, kind="relu2_glu")
    values = y.view(ml_dtypes.float8_e4m3fn).astype(float)
    assert scales[0] == 2.0**-126 and not values[0].any()
    assert np.isnan(scales[1]) and np.isnan(values[1]).all()
    assert scales[2] == np.inf and np.isnan(values[2, 3]) and not np.delete(values[2], 3).any()
    assert scales[3] == 2.0**-126 and not values[3].any()
    np.testing.assert_array_equal(values[4], 448)


@pytest.mark.parametrize("kind", ["swiglu", "geglu", "geglu_tanh", "swiglu_oai"])
def test_what_is_quantised_is_the_gated_activation(kind, place):
    rng = np.random.default_rng(2)
    x = (2 * rng.standard_normal((17, 2 * 264))).astype(ml_dtypes.bfloat16)
    order = "interleaved" if kind == "swiglu_oai" else "gate_first"
    y, scales = on(place, bc.gated_quantize, *bc.halves(x, order), kind=kind)
    np.testing.assert_array_equal(bc.gated_quantize(x, kind=kind)[1].shape, (17,))
    u = bc.gated_activation(x.astype(np.float64), kind=kind)
    back = y.view(ml_dtypes.float8_e4m3fn).astype(float) * scales[:, None]
    np.testing.assert_allclose(np.abs(back).max(-1), np.abs(u).max(-1), rtol=1e-5)
    assert (np.abs(back - u) <= np.abs(u) * 2.0**-4 * 1.001 + scales[:, None] * 2.0**-10 * 1.001).all()


def test_shapes_and_refusals():
    y, scales = bc.gated_quantize(np.ones((3, 0), np.float32), np.ones((3, 0), np.float32))
    assert y.shape == (3, 0) and scales.shape == (3,)
    y, scales = bc.gated_quantize(np.ones(8, np.float16))
    assert y.shape == (4,) and scales.shape == ()
    with pytest.raises(InvalidProblemError, match="kind must be swiglu, geglu"):
        bc.gated_quantize(np.ones(8, np.float16), kind="mish_glu")
    with pytest.raises(InvalidProblemError, match="there is nothing to split"):
        bc.gated_quantize(np.ones(8, np.float16), np.ones(8, np.float16), order="gate_first")
    with pytest.raises(bc.UnsupportedError, match="float64"):
        bc.gated_quantize(np.ones(8))
