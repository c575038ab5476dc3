"""Cosine and sine transforms against SciPy's, every type and norm; gradients against differences."""

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

scipy = pytest.importorskip("scipy.fft")
RNG = np.random.default_rng(0)
NAMES = ("dct", "idct", "dst", "idst")


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_every_norm_and_length_is_scipys(name: str, kind: int) -> None:
    for n in (1, 2, 3, 7, 16):
        if n == 1 and kind == 1 and name.endswith("dct"):
            continue
        x = RNG.standard_normal((3, n))
        for norm in (None, "backward", "ortho", "forward"):
            for orthogonal in (None, True, False):
                facts = {"norm": norm, "orthogonalize": orthogonal}
                truth = getattr(scipy, name)(x, kind, **facts)
                y = getattr(bc, name)(x, kind, **facts)
                np.testing.assert_allclose(y, truth, atol=1e-12)
                out = np.empty((n, 3)).T
                assert getattr(bc, name)(x, kind, **facts, out=out) is out
                np.testing.assert_array_equal(out, y)


@pytest.mark.parametrize("seed", range(12))
def test_random_options_are_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 9, 3))
    x = rng.standard_normal(shape)
    kind, norm = int(rng.integers(1, 5)), [None, "ortho", "forward"][rng.integers(3)]
    n, axis = [None, 2, 5, 11][rng.integers(4)], int(rng.integers(-3, 3))
    for name in NAMES:
        facts: dict[str, Any] = {"norm": norm, "n": n, "axis": axis}
        np.testing.assert_allclose(
            getattr(bc, name)(x, kind, **facts), getattr(scipy, name)(x, kind, **facts), atol=1e-11
        )
    axes = [None, (0, 2), (1,), (-1, 0)][rng.integers(4)]
    s = None if axes is None else [None, [int(rng.integers(2, 9)) for _ in axes]][rng.integers(2)]
    for name in ("dctn", "idctn", "dstn", "idstn"):
        truth = getattr(scipy, name)(x, kind, s, axes, norm)
        y = getattr(bc, name)(x, kind, s, axes, norm)
        np.testing.assert_allclose(y, truth, atol=1e-11)
        out = np.empty_like(y)
        assert getattr(bc, name)(x, kind, s, axes, norm, out=out) is out


def test_there_and_back_in_float32() -> None:
    x = RNG.standard_normal((4, 33)).astype(np.float32)
    for kind in (1, 2, 3, 4):
        for there, here in ((bc.dct, bc.idct), (bc.dst, bc.idst)):
            y = here(there(x, kind), kind)
            assert y.dtype == np.float32
            np.testing.assert_allclose(y, x, atol=1e-5)
    assert bc.dct(x[:0]).shape == (0, 33)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(RNG.standard_normal((2, 5)), requires_grad=True)
    for kind in (1, 2, 3, 4):
        for facts in ({"norm": "ortho"}, {"n": 7}, {"axis": 0, "norm": "forward"}):
            assert torch.autograd.gradcheck(
                lambda x, f=facts, t=kind: getattr(bc, name)(x, t, **f), (x,), fast_mode=True
            )


def test_what_is_refused() -> None:
    x = np.zeros((2, 1))
    with pytest.raises(InvalidProblemError, match="two elements at least, got 1"):
        bc.dct(x, 1)
    with pytest.raises(InvalidProblemError, match="type"):
        bc.dct(x, 5)
    with pytest.raises(InvalidProblemError, match="norm must be one of"):
        bc.dst(x, norm="unit")
    with pytest.raises(InvalidProblemError, match="must have elements along axis 1"):
        bc.idct(np.zeros((2, 0)))
    with pytest.raises(InvalidProblemError, match="out must have 2 axes"):
        bc.idct(x, out=np.zeros(2))
    with pytest.raises(UnsupportedError, match="dst takes x of float32"):
        bc.dst(np.zeros(3, np.int32))
    with pytest.raises(UnsupportedError, match="dctn takes x of float32"):
        bc.dctn(np.zeros((3, 3), complex))
