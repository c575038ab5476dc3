"""cross against NumPy's, its gradient against torch's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(3)
A, B = RNG.standard_normal((4, 3, 5)), RNG.standard_normal((1, 3, 5))


def test_against_numpy() -> None:
    np.testing.assert_array_equal(bc.cross(A, B, 1), np.cross(A, B, axis=1))
    np.testing.assert_array_equal(bc.cross(A.swapaxes(1, 2), B.swapaxes(1, 2)), np.cross(A, B, axis=1).swapaxes(1, 2))
    whole = (9 * A[:, :, 0]).astype(np.int32)
    np.testing.assert_array_equal(bc.cross(whole, whole[::-1]), np.cross(whole, whole[::-1]))
    out = np.zeros((4, 3, 5))
    assert bc.cross(A, B, -2, out=out) is out and (out == np.cross(A, B, axis=1)).all()
    assert bc.cross(A[:0], B, 1).shape == (0, 3, 5)
    a, b = A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)
    exact = np.cross(a.astype(np.float32), b.astype(np.float32), axis=1).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(bc.cross(a, b, 1), exact)


def test_gradient() -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    leaves = [torch.from_numpy(x.copy()).requires_grad_() for x in (A, B)]
    y, want = bt.cross(*leaves, 1), torch.linalg.cross(*leaves, dim=1)
    way = torch.randn_like(want)
    for one, other in zip(torch.autograd.grad(y, leaves, way), torch.autograd.grad(want, leaves, way), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("call", [lambda: bc.cross(A, B), lambda: bc.cross(A, B[0], 1), lambda: bc.cross(A, B, 3)])
def test_bad_input_is_refused(call: object) -> None:
    with pytest.raises(InvalidProblemError, match="as many axes, and 3 along axis"):
        call()  # type: ignore[operator]
