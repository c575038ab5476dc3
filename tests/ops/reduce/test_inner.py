"""dot, vdot, inner and complex vecdot: known values, NumPy's and torch's results and gradients, by the kernels too."""

import numpy as np
import pytest
from run_emulated import laid_out, run

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.reduce.vecdot import VecdotBackwardDescriptor, VecdotBackwardPlan, VecdotDescriptor, VecdotPlan


def numbers(*shape, seed=0, dtype=np.complex128):
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return np.asarray(made if np.dtype(dtype).kind == "c" else np.real(made), dtype)


def test_known_values():
    a, b = np.array([1 + 2j, 3j]), np.array([1j, 2 + 0j])
    assert bc.vdot(a, b) == 1j + 2 - 6j == np.vdot(a, b)
    assert bc.dot(a, b) == 1j - 2 + 6j == np.dot(a, b)
    assert bc.vecdot(a, b) == np.vdot(a, b)
    whole = np.arange(6.0).reshape(2, 3)
    assert bc.vdot(whole, whole) == 55
    np.testing.assert_array_equal(bc.inner(whole, whole), np.inner(whole, whole))
    big = np.array([200, 100], np.uint8)
    assert bc.vdot(big, big) == 50000 % 256 == np.vdot(big, big)  # in their own type


@pytest.mark.parametrize(
    "shapes", [((4,), (4,)), ((3, 4), (4,)), ((4,), (2, 5, 4)), ((3, 2, 4), (5, 4)), ((0, 4), (3, 4))]
)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.int16])
def test_inner(shapes, dtype):
    a, b = (numbers(*shape, seed=i) * 9 for i, shape in enumerate(shapes))
    a, b = (x.astype(dtype) if dtype == np.complex128 else x.real.astype(dtype) for x in (a, b))
    np.testing.assert_allclose(bc.inner(a, b), np.inner(a, b), rtol=1e-12)


def test_gradients_are_those_of_torch():
    torch = pytest.importorskip("torch")

    def both(ours, theirs, *arrays):
        leaves = [torch.tensor(x, requires_grad=True) for x in arrays]
        y = theirs(*leaves)
        dy = numbers(*y.shape, seed=9, dtype=arrays[0].dtype)
        wanted = torch.autograd.grad(y, leaves, torch.tensor(dy))
        for found, one in zip(ours(dy, *arrays), wanted, strict=True):
            np.testing.assert_allclose(found, one.resolve_conj().numpy(), rtol=1e-12, atol=1e-12)

    options = {"return_da": True, "return_db": True}
    for dtype in (np.float64, np.complex128):
        a, b = (numbers(3, 5, seed=s, dtype=dtype) for s in (1, 2))
        both(bc.inner_backward, torch.inner, a, b)
        both(bc.vdot_backward, torch.vdot, a[0], b[0])
        both(lambda dy, a, b: bc.vecdot_backward(dy, a, b, axis=1, **options), torch.linalg.vecdot, a, b)
        both(
            lambda dy, a, b: bc.vecdot_backward(dy, a, b, axis=0, conjugate=False, **options),
            lambda a, b: (a * b).sum(0), a, b[:, :1],
        )  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("conjugate", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((3, 700), 1), ((700, 9), 0), ((2, 3, 5), (0, 2))])
def test_by_the_kernels(dtype, conjugate, shape, axis):
    a, b = numbers(*shape, seed=1, dtype=dtype), numbers(*shape, seed=2, dtype=dtype)
    element, rtol = ElementKind.of(a.dtype), 1e-4 if dtype is np.complex64 else 1e-11
    facts = {"shape": shape, "axis": axis, "conjugate": conjugate, "element": element}
    first = np.conj(a.astype(complex)) if conjugate else a.astype(complex)
    y = run(VecdotPlan, VecdotDescriptor(**facts), a=laid_out(a), b=laid_out(b))["y"]
    np.testing.assert_allclose(y, (first * b).sum(axis), rtol=rtol)
    dy = numbers(*y.shape, seed=3, dtype=dtype)
    made = run(VecdotBackwardPlan, VecdotBackwardDescriptor(**facts), dy=laid_out(dy), a=laid_out(a), b=laid_out(b))
    wide = np.expand_dims(dy, axis).astype(complex)
    wanted = (np.conj(wide) * b, wide * a) if conjugate else (wide * np.conj(b), wide * np.conj(a))
    np.testing.assert_allclose(made["da"], wanted[0], rtol=rtol)
    np.testing.assert_allclose(made["db"], wanted[1], rtol=rtol)


def test_what_is_refused():
    a = np.ones((2, 3))
    with pytest.raises(InvalidProblemError, match="two vectors"):
        bc.dot(a, a)
    with pytest.raises(InvalidProblemError, match="one shape"):
        bc.vdot(a, a[0])
    for bad in (np.ones(()), np.ones(4)):
        with pytest.raises(InvalidProblemError, match="as long along their last axes"):
            bc.inner(a, bad)
