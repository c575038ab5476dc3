"""Orthogonal matrices against what is known of Haar's measure; of fixed seeds one in 10⁵ would fail a test."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.random.orthogonal import _of_cupy

stats = pytest.importorskip("scipy.stats")
LEVEL = 1e-5


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 5), (7, 3), (3, 7), (1, 4), (4, 1)])
def test_rows_or_columns_are_orthonormal(n: int, m: int) -> None:
    y = bc.orthogonal(n, m, shape=(2, 3), gain=1.5, seed=3, element="float64")
    assert y.shape == (2, 3, n, m)
    inner = y @ y.swapaxes(-1, -2) if n <= m else y.swapaxes(-1, -2) @ y
    np.testing.assert_allclose(inner, np.broadcast_to(2.25 * np.eye(min(n, m)), inner.shape), atol=1e-13)


def test_they_are_the_factors_with_a_positive_diagonal() -> None:
    """Q of Gram and Schmidt's process, whose R has one."""
    z = bc.randn((4, 5, 3), seed=9, offset=2, element="float64")
    for n, m, matrices in ((5, 3, z), (3, 5, z)):
        y = bc.orthogonal(n, m, shape=4, seed=9, offset=2, element="float64")
        for found, a in zip(y if n > m else y.swapaxes(-1, -2), matrices, strict=True):
            columns: list[np.ndarray] = []
            for column in a.T:
                left = column - sum((c * (c @ column) for c in columns), np.zeros(5))
                columns.append(left / np.linalg.norm(left))
            np.testing.assert_allclose(found, np.stack(columns, 1), atol=1e-12)


def test_moments_of_traces_and_determinants() -> None:
    """Over O(n) traces have the moments 0, 1, 0, 3 of a normal number (Diaconis, Shahshahani 1994), det is ±1 alike."""
    count = 4000
    y = bc.orthogonal(6, shape=count, seed=5, element="float64")
    trace, powers = np.trace(y, axis1=1, axis2=2), np.trace(y @ y, axis1=1, axis2=2)
    bound = stats.norm.isf(LEVEL / 2) / np.sqrt(count)
    assert abs(trace.mean()) < bound and abs((trace**2).mean() - 1) < bound * np.sqrt(2)
    assert abs((trace**3).mean()) < bound * np.sqrt(15) and abs((trace**4).mean() - 3) < bound * np.sqrt(96)
    assert abs(powers.mean() - 1) < bound * np.sqrt(2)
    ups = int((np.linalg.det(y) > 0).sum())
    assert stats.binomtest(ups, count).pvalue > LEVEL


def test_phases_of_rotations_and_single_entries() -> None:
    """Angles of O(2) are uniform; entries of one of O(n) have the density of (1 - x²)^((n - 3) / 2)."""
    y = bc.orthogonal(2, shape=4000, seed=7, element="float64")
    angle = np.arctan2(y[:, 1, 0], y[:, 0, 0])
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > LEVEL
    y = bc.orthogonal(5, 3, shape=4000, seed=8)
    for i, j in ((0, 0), (4, 2), (0, 2)):
        assert stats.kstest(y[:, i, j] ** 2, stats.beta(0.5, 2).cdf).pvalue > LEVEL


@pytest.mark.parametrize(("element", "steps"), [("float32", 0), ("float16", 2**-11), ("bfloat16", 2**-8)])
def test_halves_are_rounded_once(element: str, steps: float) -> None:
    y, wide = (bc.orthogonal(9, 4, shape=3, seed=2, element=e) for e in (element, "float32"))
    assert str(y.dtype) == element
    assert np.abs(y.astype(np.float32) - wide).max() <= steps


def test_results_of_nothing_and_in_place() -> None:
    for n, m, shape in ((0, 0, ()), (3, 0, (2,)), (0, 3, ()), (3, 3, (0, 2))):
        assert bc.orthogonal(n, m, shape=shape, seed=1).shape == (*shape, n, m)
    wide = np.zeros((4, 8, 3), np.float16)
    out = wide[:, ::2]
    assert bc.orthogonal(4, 3, shape=4, seed=1, element="float16", out=out) is out
    np.testing.assert_array_equal(out, bc.orthogonal(4, 3, shape=4, seed=1, element="float16"))
    assert not wide[:, 1::2].any()


def test_of_torch() -> None:
    torch = pytest.importorskip("torch")
    like = torch.zeros(1)
    y = bc.orthogonal(3, 5, shape=(2,), gain=2.0, seed=4, like=like)
    assert isinstance(y, torch.Tensor)
    np.testing.assert_allclose(y.numpy(), bc.orthogonal(3, 5, shape=(2,), gain=2.0, seed=4), atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "m"), [(5, 5), (7, 3), (3, 7)])
def test_on_a_gpu(n: int, m: int) -> None:
    """CuPy's factors are NumPy's but for rounding, on a stream of the caller's too."""
    cupy = pytest.importorskip("cupy")
    for element, atol in (("float64", 1e-12), ("float32", 1e-5), ("bfloat16", 2**-7)):
        for stream in (None, cupy.cuda.Stream(non_blocking=True)):
            y = bc.orthogonal(n, m, shape=(2, 3), seed=4, element=element, like=cupy.zeros(1), stream=stream)
            cupy.cuda.Device().synchronize()
            drawn = "float64" if element == "float64" else "float32"  # whose normal numbers are of other words
            wanted = bc.orthogonal(n, m, shape=(2, 3), seed=4, element=drawn, like=np.zeros(1))
            np.testing.assert_allclose(cupy.asnumpy(y).astype(np.float64), wanted, atol=atol)


def test_cusolver_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by a typed error with what to install."""
    cupy = pytest.importorskip("cupy")

    def missing(z: object) -> None:
        raise ImportError("libcusolver.so.11")

    monkeypatch.setattr(cupy.cuda, "Device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(cupy.linalg, "qr", missing)
    with pytest.raises(UnsupportedError, match="pip install nvidia-cusolver"):
        _of_cupy(SimpleNamespace(data=SimpleNamespace(device_id=0)))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"n": -1}, InvalidProblemError, "n must be"),
        ({"n": 3, "m": 1.5}, InvalidProblemError, "m must be"),
        ({"n": 3, "gain": float("nan")}, InvalidProblemError, "gain must be finite"),
        ({"n": 3, "element": "int32"}, UnsupportedError, "orthogonal of int32"),
        ({"n": 3, "element": "float8_e4m3fn"}, UnsupportedError, "orthogonal of float8"),
        ({"n": 3, "seed": None}, InvalidProblemError, "seed is None"),
        ({"n": 0, "seed": None}, InvalidProblemError, "seed is None"),
        ({"n": 3, "shape": (-1,)}, InvalidProblemError, "shape"),
        ({"n": 3, "out": np.zeros((3, 4), np.float32)}, InvalidProblemError, "shape"),
    ],
)
def test_what_is_refused(given: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        bc.orthogonal(**{"seed": 1, **given})
