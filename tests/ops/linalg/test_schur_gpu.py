"""schur, rsf2csf, funm and qdwh on a device: every order that is one launch, many matrices, hard ones, graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.core.errors import UnsupportedError
from baracuda_py.ops.linalg.schur import SchurPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import DEVICE, wrong_plan

pytestmark = pytest.mark.gpu
DTYPES = ("float32", "float64", "complex64", "complex128")


def wide(x: Any) -> np.ndarray:
    """On the host, in complex128."""
    return x.get().astype(np.complex128)


def off(got: np.ndarray, want: np.ndarray) -> float:
    """The largest error, beside the largest number."""
    return float(np.abs(got - want).max() / np.abs(want).max())


@pytest.mark.parametrize("element", ["complex64", "complex128"])
def test_every_order(element: str) -> None:
    for n, batch in ((1, 7), (2, 100), (3, 33), (8, 17), (16, 9), (31, 5), (32, 4), (33, 3), (63, 2), (64, 2)):
        desc = SchurPlan.descriptor(batch_shape=(batch,), n=n, element=element)
        case = fill(SchurPlan, desc, np.random.default_rng(n))
        assert wrong_plan(case, [SchurPlan.select(desc, device=DEVICE)]) is None, n


@pytest.mark.parametrize("dtype", DTYPES)
def test_forms(dtype: str) -> None:
    """a = z t zᴴ, z unitary, t triangular, of random, defective, cyclic, zero and equal-rowed matrices."""
    import cupy

    eps = np.finfo(dtype).eps
    for n in (5, 24, 64):
        a = drawn(np.random.default_rng(n), (200 if n < 64 else 20, n, n), dtype)
        a[1], a[2], a[3] = np.diag(np.full(n, 2.0)) + np.diag(np.ones(n - 1), 1), np.roll(np.eye(n), 1, 0), 0
        a[4] = a[4, 0]
        made = bc.schur(cupy.asarray(a), return_info=True)
        t, z, info = wide(made[0]), wide(made[1]), made[2].get()
        assert not info.any()
        assert not np.tril(t, -1).any()
        zh = z.conj().swapaxes(-1, -2)
        size = np.maximum(np.linalg.norm(a, axis=(-2, -1)), 1e-30)
        assert (np.linalg.norm(z @ t @ zh - a, axis=(-2, -1)) <= 20 * n * eps * size).all()
        assert np.abs(zh @ z - np.eye(n)).max() <= 20 * n * eps
        alone = bc.schur(cupy.asarray(a[-1:]))
        np.testing.assert_array_equal(alone[0].get()[0], made[0].get()[-1])  # what a matrix gets is its own
    with pytest.raises(UnsupportedError, match="64"):
        bc.schur(cupy.eye(65, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real_forms_become_complex_ones(dtype: str) -> None:
    import cupy

    linalg = pytest.importorskip("scipy.linalg")
    a = drawn(np.random.default_rng(0), (6, 40, 40), dtype)
    real = [linalg.schur(one.astype(np.float64)) for one in a]
    given = [cupy.asarray(np.stack([one[i] for one in real]).astype(dtype)) for i in (0, 1)]
    t, z = (wide(x) for x in bc.rsf2csf(*given))
    assert not np.tril(t, -1).any()
    assert off(z @ t @ z.conj().swapaxes(-1, -2), a) <= 400 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_functions_of_eigenvalues(dtype: str) -> None:
    import cupy

    linalg = pytest.importorskip("scipy.linalg")
    a = drawn(np.random.default_rng(3), (5, 12, 12), dtype) / 4
    for ours, theirs in ((bc.exp, linalg.expm), (bc.cos, linalg.cosm), (bc.sinh, linalg.sinhm)):
        want = np.stack([theirs(one) for one in a])
        assert off(bc.funm(cupy.asarray(a), ours).get(), want) <= 1e-9


@pytest.mark.parametrize("dtype", DTYPES)
def test_polar_factors(dtype: str) -> None:
    """Of tall and square matrices, in a batch, beside those by singular values; the same in a graph."""
    import cupy

    eps = np.finfo(dtype).eps
    for shape in ((3, 50, 50), (2, 300, 40), (1, 1), (128, 7, 3)):
        a = drawn(np.random.default_rng(shape[-2]), shape, dtype)
        a = a + (4 * np.eye(*shape[-2:])).astype(dtype)
        held = cupy.asarray(a)
        u, h, _, converged = bc.qdwh(held)
        assert converged.get().all()
        left, s, right = np.linalg.svd(a.astype(np.complex128), full_matrices=False)
        bound = 40 * shape[-1] * eps * float((s[..., 0] / s[..., -1]).max())
        assert off(wide(u), left @ right) <= bound
        assert off(wide(h), right.conj().swapaxes(-1, -2) * s[..., None, :] @ right) <= bound
    replay = bc.graph(lambda: bc.qdwh(held)[:2])
    held *= 2
    again = [wide(x) for x in replay()]
    assert off(again[0], wide(u)) <= 40 * eps and off(again[1], 2 * wide(h)) <= 40 * eps
