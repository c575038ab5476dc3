"""detrend against SciPy, and its gradient against differences."""

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

RNG = np.random.default_rng(0)
SHAPES = [((7,), -1), ((3, 8), 0), ((3, 8), 1), ((2, 3, 9), 1), ((1,), 0), ((2, 1), 1), ((2,), 0)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_rows_are_those_of_scipy(shape, axis):
    scipy = pytest.importorskip("scipy.signal")
    x = (
        RNG.standard_normal(shape)
        + 5
        + 3 * np.arange(shape[axis]).reshape([-1] + [1] * (len(shape) - 1 - axis % len(shape)))
    )
    for kind in ("linear", "constant", "l", "c"):
        out = np.empty(shape[::-1]).T
        assert bc.detrend(x, axis, kind, out=out) is out
        np.testing.assert_allclose(out, scipy.detrend(x, axis, kind), atol=1e-12)


def test_pieces_have_lines_of_their_own():
    scipy = pytest.importorskip("scipy.signal")
    x = RNG.standard_normal((3, 10))
    for bp in (0, 4, [3, 7], (7, 3, 3), [1, 2], [0, 10]):
        np.testing.assert_allclose(bc.detrend(x, 1, bp=bp), scipy.detrend(x, 1, bp=bp), atol=1e-12)
    out = np.empty((3, 20))[:, ::2]
    assert bc.detrend(x, bp=4, out=out) is out


def test_no_rows_and_no_elements():
    for shape in ((0,), (4, 0), (0, 4)):
        for kind in ("linear", "constant"):
            assert bc.detrend(np.zeros(shape), -1, kind).shape == shape


def test_16_bits_are_summed_in_float32():
    x = (100 + RNG.standard_normal((2, 4000))).astype(ml_dtypes.bfloat16)
    y = bc.detrend(x)
    assert y.dtype == x.dtype
    exact = bc.detrend(x.astype(float))
    np.testing.assert_allclose(y.astype(float), exact, rtol=2**-8, atol=1e-4)


def test_the_gradient_is_the_projection_itself():
    torch = pytest.importorskip("torch")
    x = torch.tensor(RNG.standard_normal((2, 6)), requires_grad=True)
    for facts in ({"axis": 1}, {"axis": 1, "bp": 2}, {"axis": 0, "type": "constant"}):
        assert torch.autograd.gradcheck(lambda x, facts=facts: bc.detrend(x, **facts), (x,), fast_mode=True)


def test_what_is_refused():
    x = np.zeros((2, 6))
    with pytest.raises(InvalidProblemError, match='type must be "linear"'):
        bc.detrend(x, type="quadratic")
    with pytest.raises(InvalidProblemError, match="bp"):
        bc.detrend(x, bp=7)
    with pytest.raises(InvalidProblemError, match="axis"):
        bc.detrend(x, 2)
    for element in (np.int32, np.complex64):
        with pytest.raises(UnsupportedError, match="detrend is of floats"):
            bc.detrend(x.astype(element))
