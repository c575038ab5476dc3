"""convolve, correlate and their forms of images, against NumPy and SciPy, and gradients against torch's differences."""

import itertools
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from tests.call_emulated import call

RNG = np.random.default_rng(0)
MODES = ("full", "same", "valid")


def drawn(shape, dtype=np.float64):
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_vectors_of_every_pair_of_lengths(name, dtype):
    for n, m, mode in itertools.product(range(1, 8), range(1, 8), MODES):
        a, v = drawn(n, dtype), drawn(m, dtype)
        found, wanted = getattr(bc, name)(a, v, mode), getattr(np, name)(a, v, mode)
        assert found.shape == wanted.shape, (n, m, mode)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["convolve2d", "correlate2d"])
def test_images_of_every_pair_of_shapes(name):
    scipy = pytest.importorskip("scipy.signal")
    for n, m in itertools.product(itertools.product((1, 2, 5), repeat=2), itertools.product((1, 2, 3, 4), repeat=2)):
        for mode in MODES:
            a, v = drawn(n), drawn(m)
            if mode == "valid" and (n[0] - m[0]) * (n[1] - m[1]) < 0:
                with pytest.raises(InvalidProblemError, match="contain the other"):
                    getattr(bc, name)(a, v, mode)
                continue
            wanted = getattr(scipy, name)(a, v, mode)
            np.testing.assert_allclose(getattr(bc, name)(a, v, mode), wanted, rtol=1e-12, atol=1e-13)


def test_complex_images():
    scipy = pytest.importorskip("scipy.signal")
    a, v = drawn((5, 6), np.complex128), drawn((2, 3), np.complex128)
    for name, mode in itertools.product(("convolve2d", "correlate2d"), MODES):
        np.testing.assert_allclose(getattr(bc, name)(a, v, mode), getattr(scipy, name)(a, v, mode), atol=1e-12)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("n", "m"), [(50, 5), (5, 400)])
def test_kernels_read_windows_that_lie_over_each_other(n, m):
    x, taps = drawn(n + m - 1, np.float32), drawn(m, np.float32)
    seen = bc.unfold(x, 0, m, 1)
    assert seen.base is not None and seen.strides == (4, 4)
    desc = bc.VecdotDescriptor(shape=(n, m), axis=(1,), conjugate=False, element="float32")
    made = call(bc.VecdotPlan, desc, {"y": np.empty(n, np.float32)}, a=seen, b=taps)["y"]
    np.testing.assert_allclose(made, seen.astype(float) @ taps.astype(float), rtol=1e-5, atol=1e-5)


def test_strides_are_honoured_and_out_is_written():
    a, v = drawn(18)[::-2], drawn(8)[::2]
    out = np.empty(24)[::2]
    assert bc.convolve(a, v, out=out) is out
    np.testing.assert_allclose(out, np.convolve(a, v), atol=1e-13)
    assert bc.convolve(a, v, out=(out,)) is out
    image = drawn((6, 5)).T
    dense = bc.correlate2d(image.copy(), image[:2, 1:].copy())
    np.testing.assert_array_equal(bc.correlate2d(image, image[:2, 1:]), dense)


def test_elements():
    a, v = RNG.integers(-100, 100, 9), RNG.integers(-100, 100, 4)
    for dtype in (np.int8, np.uint8, np.int32, np.int64, np.uint64):
        found = bc.convolve(a.astype(dtype), v.astype(dtype))
        assert found.dtype == (np.uint64 if dtype is np.uint64 else np.int64)
        wide = found.dtype
        np.testing.assert_array_equal(found, np.convolve(a.astype(dtype).astype(wide), v.astype(dtype).astype(wide)))
    for dtype, eps in ((np.float16, 2**-11), (ml_dtypes.bfloat16, 2**-8)):
        x, y = drawn(50).astype(dtype), drawn(7).astype(dtype)
        found = bc.correlate(x, y, "same")
        assert found.dtype == x.dtype
        wanted = np.correlate(x.astype(float), y.astype(float), "same")
        np.testing.assert_allclose(found.astype(float), wanted, rtol=eps, atol=1e-6)  # rounded once


@pytest.mark.parametrize("name", ["convolve", "correlate", "convolve2d", "correlate2d"])
@pytest.mark.parametrize("element", ["float64", "complex128"])
def test_gradients_are_those_of_differences(name, element):
    torch = pytest.importorskip("torch")
    for (n, m), mode in itertools.product(((5, 3), (3, 4)), MODES):
        shapes = [(k, k + 1) if name.endswith("2d") else (k,) for k in (n, m)]
        a, v = (torch.tensor(drawn(shape, element), requires_grad=True) for shape in shapes)
        made = lambda a, v, mode=mode: getattr(bc, name)(a, v, mode)  # noqa: E731
        assert torch.autograd.gradcheck(made, (a, v), fast_mode=True)


def test_gradients_are_written_to_out():
    a, v, dy = drawn(9), drawn(4), drawn(12)
    da, dv = np.empty(9), np.empty(4)
    found = bc.convolve_backward(dy, a, v, out=(da, dv))
    assert found[0] is da and found[1] is dv
    np.testing.assert_allclose(da, np.correlate(dy, v), atol=1e-13)
    np.testing.assert_allclose(dv, np.correlate(dy, a), atol=1e-13)


def test_jax_says_the_same():
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    import baracuda_py.jax as bj

    a, v = (jnp.asarray(drawn(n), jnp.float32) for n in (9, 4))
    for name, mode in itertools.product(("convolve", "correlate"), MODES):

        def squares(a, v, package, name=name, mode=mode):
            return (getattr(package, name)(a, v, mode=mode) ** 2).sum()

        ours, theirs = (jax.jit(jax.grad(partial(squares, package=one), (0, 1))) for one in (bj, jnp))
        for one, other in zip(ours(a, v), theirs(a, v), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_what_is_refused():
    a = drawn(4)
    with pytest.raises(InvalidProblemError, match='mode must be "full"'):
        bc.convolve(a, a, "circular")
    with pytest.raises(InvalidProblemError, match="a must have 1 axis, and elements"):
        bc.convolve(a[:0], a)
    with pytest.raises(InvalidProblemError, match="v must have 1 axis"):
        bc.correlate(a, a[None])
    with pytest.raises(InvalidProblemError, match="a must have 2 axes"):
        bc.convolve2d(a, a)
    with pytest.raises(InvalidProblemError, match="v must hold float64 as a does, got float32"):
        bc.convolve(a, a.astype(np.float32))
    with pytest.raises(InvalidProblemError, match="dy must have the shape of y"):
        bc.convolve_backward(a, a, a)
    with pytest.raises(InvalidProblemError, match="out"):
        bc.convolve(a, a, out=np.empty(4))
