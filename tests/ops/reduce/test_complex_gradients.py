"""Norms, variances and gradients of complex reductions: torch's, by the kernels; zeros, infinities, range."""

import numpy as np
import pytest
from run_emulated import laid_out, run

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.ops.reduce.reduce import ReduceDescriptor, ReduceKind, ReducePlan
from baracuda_py.ops.reduce.reduce_backward import ReduceBackwardDescriptor, ReduceBackwardPlan
from baracuda_py.testing import emulate, emulated_device, operands
from baracuda_py.testing.draw import Case

K = ReduceKind
SHAPES = [((2, 700), 1), ((300, 9), 0), ((2, 3, 5), (0, 2)), ((40,), None)]


def numbers(*shape, seed=0, dtype=np.complex128):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def forward(kind, x, axis=None, **options):
    desc = ReduceDescriptor(kind=kind, shape=x.shape, axis=axis, element=ElementKind.of(x.dtype), **options)
    return run(ReducePlan, desc, x=laid_out(x))["y"]


def backward(kind, dy, x, y, axis=None, **options):
    desc = ReduceBackwardDescriptor(kind=kind, shape=x.shape, axis=axis, element=ElementKind.of(x.dtype), **options)
    given = {"dy": laid_out(np.asarray(dy)), "x": laid_out(x), "y": laid_out(np.asarray(y))}
    reads = {"x": kind not in (K.SUM, K.MEAN), "y": kind in (K.L2_NORM, K.STD), "dy": True}
    return run(ReduceBackwardPlan, desc, **{n: given[n] if used else None for n, used in reads.items()})["dx"]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize(
    ("kind", "options"),
    [(K.SUM, {}), (K.MEAN, {}), (K.PROD, {}), (K.L1_NORM, {}), (K.L2_NORM, {}), (K.P_NORM, {"p": 3.0}),
     (K.P_NORM, {"p": -1.5}), (K.MAX_NORM, {}), (K.MIN_NORM, {}), (K.VAR, {}), (K.STD, {"correction": 0})],
    ids=str,
)  # fmt: skip
def test_values_and_gradients_are_those_of_torch(dtype, shape, axis, kind, options):
    torch = pytest.importorskip("torch")
    x = numbers(*shape, dtype=dtype)
    if kind is K.PROD:
        x = (x / np.abs(x) ** 0.95).astype(dtype)
    leaf = torch.tensor(x.astype(complex), requires_grad=True)
    if kind in (K.VAR, K.STD):
        wanted = getattr(torch, kind.value)(leaf, axis, correction=options.get("correction", 1))
    elif "norm" in kind.value:
        order = {K.L1_NORM: 1, K.L2_NORM: 2, K.MAX_NORM: np.inf, K.MIN_NORM: -np.inf}.get(kind, options.get("p"))
        wanted = torch.linalg.vector_norm(leaf, order, axis)
    elif kind is K.PROD:
        moved = leaf.flatten() if axis is None else leaf if axis != (0, 2) else leaf.movedim(1, 0).flatten(1)
        wanted = moved.prod(-1 if axis != 0 else 0)
    else:
        wanted = getattr(torch, kind.value)(leaf, axis)
    y, rtol = forward(kind, x, axis, **options), 2e-5 if dtype is np.complex64 else 1e-11
    assert y.dtype == (x.real.dtype if not wanted.is_complex() else x.dtype)
    np.testing.assert_allclose(y, wanted.detach().numpy(), rtol=rtol)
    dy = numbers(*y.shape, seed=5, dtype=dtype)
    dy = dy if y.dtype.kind == "c" else np.array(np.real(dy))
    (truth,) = torch.autograd.grad(wanted, leaf, torch.tensor(dy.astype(wanted.detach().numpy().dtype)))
    found = backward(kind, dy, x, y, axis, **options)
    assert found.dtype == dtype
    truth = truth.resolve_conj().numpy()
    np.testing.assert_allclose(found, truth, rtol=rtol, atol=rtol * np.abs(truth).max())


@pytest.mark.usefixtures("emulation")
def test_products_with_zeros_and_out_of_range():
    one = np.ones((), complex)
    x = np.array([2j, 0, 1 + 1j])
    np.testing.assert_array_equal(backward(K.PROD, one, x, 0), [0, np.conj(2j * (1 + 1j)), 0])
    x = np.array([2j, 0, 0])
    np.testing.assert_array_equal(backward(K.PROD, one, x, 0), [0, 0, 0])
    bad = backward(K.PROD, one, np.array([2j, np.inf, 3]), 0)
    assert np.isnan(bad[[0, 2]].real).all() and np.isnan(bad[[0, 2]].imag).all() and bad[1] == np.conj(6j)
    big = np.array([1e300, 1e300j, 1e-300, 1e-300, 5e-324])  # no partial product but the last is in range
    found = backward(K.PROD, one, big, 0)
    np.testing.assert_allclose(found[4], -1j, rtol=1e-12)
    np.testing.assert_allclose(found[0] * 1e300, -5e-324j, atol=5e-324)
    many = np.exp(1j * np.arange(4000))
    wanted = np.conj(np.exp(1j * np.longdouble(3999 * 2000)) / many)
    np.testing.assert_allclose(backward(K.PROD, one, many, 0), wanted, atol=1e-11)


@pytest.mark.usefixtures("emulation")
def test_slopes_at_zero_and_ties():
    x, real = np.array([3 + 4j, 0, -5j, 5]), np.ones(())
    np.testing.assert_allclose(backward(K.L1_NORM, real, x, 15), [0.6 + 0.8j, 0, -1j, 1])
    np.testing.assert_allclose(backward(K.MAX_NORM, real, x, 5), np.array([0.6 + 0.8j, 0, -1j, 1]) / 3)
    np.testing.assert_array_equal(backward(K.MIN_NORM, real, x, 0), np.zeros(4))
    zero = np.zeros(3, np.complex64)
    for kind, options in ((K.L2_NORM, {}), (K.P_NORM, {"p": 3.0}), (K.STD, {})):
        dy = np.ones((), np.float32)
        np.testing.assert_array_equal(backward(kind, dy, zero, dy * 0, **options), zero)


@pytest.mark.usefixtures("emulation")
def test_the_variance_of_numbers_far_off_zero_keeps_its_digits():
    z = numbers(3000, seed=4)
    far = z + (1e9 - 3e9j)
    exact = far - (1e9 - 3e9j)  # what the addition left of z
    np.testing.assert_allclose(forward(K.VAR, far), np.var(exact, ddof=1), rtol=1e-12)
    assert bc.var(far, axis=0, keepdims=True).shape == (1,)


def test_norms_of_complex_numbers():
    x = np.array([3 + 4j, 0, 1j])
    for order, wanted in ((0, 2), (1, 6), (2, np.sqrt(26)), (np.inf, 5), (-np.inf, 0), (3, 126 ** (1 / 3))):
        found = bc.vector_norm(x, order)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, wanted, rtol=1e-15)


@pytest.mark.usefixtures("emulation")
def test_the_spread_of_equal_numbers_is_zero():
    """Their sum is rounded, so that a quotient of it need not be the number itself."""
    x = np.repeat(numbers(3, 1, seed=8) / 3, 2500, 1)
    for kind in (K.VAR, K.STD):
        for held, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
            np.testing.assert_array_equal(forward(kind, held, axis, correction=0), np.zeros(3))
            np.testing.assert_array_equal(getattr(bc, kind.value)(held, axis=axis, correction=0), np.zeros(3))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_infinite_norms_of_what_is_not_finite(dtype):
    """The slope is NaN in both parts at the extreme, as in PyTorch; 0 elsewhere, whatever stands there."""
    inf, nan, both, dy = np.inf, np.nan, complex(np.nan, np.nan), np.ones((), dtype(0).real.dtype)
    for kind, x, wanted in (
        (K.MIN_NORM, [complex(2, -inf)], [both]),
        (K.MAX_NORM, [complex(inf, 1), 1j], [both, 0]),
        (K.MIN_NORM, [complex(inf, 1), 1j], [0, 1j]),
        (K.MAX_NORM, [complex(nan, 1), complex(inf, 1), 2], [both, 0, 0]),
        (K.L1_NORM, [complex(inf, 1), 2j], [both, 1j]),
    ):
        held = np.array(x, dtype)
        name = f"{kind.value}_backward"
        for dx in (backward(kind, dy, held, dy), getattr(bc, name)(dy, held)):
            for part in (np.real, np.imag):
                np.testing.assert_array_equal(part(dx), part(np.array(wanted)))


@pytest.mark.usefixtures("emulation")
def test_directions_of_the_smallest_and_the_largest_numbers():
    """Their magnitudes have few digits, or leave the range."""
    dy, half = np.ones(()), np.sqrt(0.5)
    for part in (5e-324, 3 * 5e-324, 1e-310, 1.7e308):
        x = np.array([complex(part, -part)])
        for kind in (K.L1_NORM, K.MIN_NORM, K.MAX_NORM):
            np.testing.assert_allclose(backward(kind, dy, x, dy), [complex(half, -half)], rtol=1e-15)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", [K.MIN_NORM, K.MAX_NORM])
@pytest.mark.parametrize(
    "x", [[-3 * 5e-324, 5e-324 - 3j * 5e-324, 9e-324j], [3 + 4j, complex(0, np.nextafter(5, 6)), -5, 5j, 4 - 3j]]
)
def test_magnitudes_that_hypot_cannot_tell_apart_are_drawn_as_one(kind, x):
    """Whether such two count as one extreme depends on the last bit of the device's hypot."""
    desc = ReduceBackwardDescriptor(kind=kind, shape=(len(x),), axis=0, element="complex128")
    arrays = {"dy": np.ones(()), "x": np.array(x), "y": None}
    ReduceBackwardPlan.complete(desc, arrays)
    made = arrays["x"]
    size = np.abs(made.astype(np.clongdouble))
    near = size == (size.min() if kind is K.MIN_NORM else size.max())
    count = np.count_nonzero(near)
    assert count > 1 and (not made[near].real.all()) and (near | (np.abs(size - size[near][0]) > 1e-323)).all()
    np.testing.assert_allclose(np.abs(made), np.abs(x), rtol=1e-15, atol=1e-323)
    wanted = np.where(near, np.sign(made.real) + 1j * np.sign(made.imag), 0) / count
    np.testing.assert_array_equal(backward(kind, arrays["dy"], made, arrays["dy"]), wanted)
    emulate(ReduceBackwardPlan.select(desc, device=emulated_device(8.0)),
            operands(Case(ReduceBackwardPlan, desc, arrays, frozenset({"dx"}), kind)))  # fmt: skip
