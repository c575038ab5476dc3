"""Complex functions on NumPy: against mpmath over the whole range, special values, gradients, dispatch, refusals."""

import cmath
import math

import complex_truth as truth
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import COMPLEX, ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.elementwise.complex_kinds import DIFFERENTIABLE, ComplexUnaryKind
from baracuda_py.testing.tolerance import assert_within

INF, NAN = math.inf, math.nan


def value(kind):
    return kind.value


def run(name, *operands):
    return getattr(bc, name)(*operands)


@pytest.mark.parametrize("kind", [k for k in ComplexUnaryKind if k.value in truth.FORWARD], ids=value)
def test_forward(kind):
    for element in COMPLEX:
        z = truth.inside(kind.value, truth.points(element, 60))
        wanted = truth.evaluate(truth.FORWARD[kind.value], z)
        got = run(kind.value, z)
        assert_within(kind.row.error, got, wanted.real if kind.row.real else wanted, element=kind.row.result(element))


@pytest.mark.parametrize("name", truth.SLOPE)
def test_gradient(name):
    for element in COMPLEX:
        z = truth.inside(name, truth.points(element, 60))
        dy = np.random.default_rng(1).permutation(truth.points(element, 60, 1))[: z.size]
        wanted = truth.evaluate(truth.SLOPE[name], z, dy)
        assert_within(ComplexUnaryKind(name).row.slope_error, run(f"{name}_backward", dy, z), wanted, element=element)


@pytest.mark.parametrize("name", ["abs", "angle", "sgn", "real", "imag", "conj", "neg"])
def test_gradient_of_what_is_not_holomorphic(name):
    """Directional differences: the change of f along v is Re(conj(gradient) v) summed."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal(50) + 1j * rng.standard_normal(50)
    v = rng.standard_normal(50) + 1j * rng.standard_normal(50)
    h = 1e-6
    change = (run(name, z + h * v) - run(name, z - h * v)) / (2 * h)
    dy = rng.standard_normal(50) + (0 if change.dtype.kind == "f" else 1j * rng.standard_normal(50))
    gradient = run(f"{name}_backward", dy, z)
    np.testing.assert_allclose((np.conj(gradient) * v).real, (np.conj(dy) * change).real, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kind", DIFFERENTIABLE, ids=value)
def test_gradient_is_that_of_torch(kind):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    z = rng.standard_normal(40) * 3 + 3j * rng.standard_normal(40)
    z[:2] = 0.3, 2j
    leaf = torch.from_numpy(z.copy()).requires_grad_()
    y = kind.row.in_torch(torch, leaf)
    dy = rng.standard_normal(40) + (1j * rng.standard_normal(40) if y.is_complex() else 0)
    (wanted,) = torch.autograd.grad(y, leaf, torch.from_numpy(dy))
    np.testing.assert_allclose(
        run(f"{kind.value}_backward", dy, z), wanted.resolve_conj().numpy(), rtol=1e-10, atol=1e-13
    )


@pytest.mark.parametrize("name", ["abs", "angle", "sgn"])
def test_gradients_at_zero_are_zero(name):
    zero = np.zeros(1, np.complex64)
    dy = np.ones(1, np.complex64 if name == "sgn" else np.float32)
    np.testing.assert_array_equal(run(f"{name}_backward", dy, zero), [0])


ANNEX_G = {
    "sqrt": {-4 + 0j: 2j, complex(-9, -0.0): -3j, complex(-INF, 1): complex(0, INF),
             complex(NAN, INF): complex(INF, INF)},
    "exp": {complex(-INF, INF): 0, complex(INF, 0): complex(INF, 0), complex(INF, NAN): complex(INF, NAN)},
    "log": {0j: -INF, complex(-1, -0.0): complex(0, -math.pi), complex(INF, NAN): complex(INF, NAN)},
    "sinh": {complex(-INF, INF): complex(-INF, NAN), complex(INF, 0): complex(INF, 0),
             complex(0, INF): complex(0, NAN)},
    "cosh": {complex(INF, INF): complex(INF, NAN), complex(-INF, 0): INF, complex(0, INF): complex(NAN, 0)},
    "tanh": {complex(INF, 3): 1, complex(-INF, NAN): -1, complex(0, INF): complex(0, NAN)},
    "acos": {2 + 0j: -1.3169578969248166j, complex(-INF, INF): complex(3 * math.pi / 4, -INF)},
    "asin": {complex(2, -0.0): complex(math.pi / 2, -1.3169578969248166), complex(0, NAN): complex(0, NAN)},
    "atan": {complex(INF, NAN): math.pi / 2, complex(0, 2): complex(math.pi / 2, math.atanh(0.5))},
    "acosh": {0.5 + 0j: 1.0471975511965979j, complex(NAN, INF): complex(INF, NAN),
              -2 + 0j: 1.3169578969248166 + math.pi * 1j},
    "asinh": {complex(-INF, 2): -INF, complex(NAN, 0): complex(NAN, 0)},
    "atanh": {1 + 0j: INF, complex(INF, 1): math.pi / 2 * 1j,
              complex(2, -0.0): complex(math.atanh(0.5), -math.pi / 2)},
    "log1p": {-1 + 0j: -INF, 1e-300 + 1e-300j: 1e-300 + 1e-300j},
    "expm1": {complex(-INF, INF): -1, 1e-300 + 1e-300j: 1e-300 + 1e-300j},
    "reciprocal": {0j: complex(INF, NAN), complex(INF, 1): 0, complex(INF, INF): complex(NAN, NAN)},
    "sigmoid": {complex(INF, INF): 1, complex(-INF, NAN): 0, 0j: 0.5},
    "sgn": {0j: 0, complex(-INF, 3): -1, complex(1e-320, 0): 1, complex(INF, INF): complex(NAN, NAN)},
    "abs": {complex(-INF, NAN): INF, complex(1e300, 1e300): math.sqrt(2) * 1e300},
    "isnan": {complex(INF, NAN): 1, 1j: 0}, "isinf": {complex(NAN, -INF): 1, 1j: 0},
    "isfinite": {complex(1, INF): 0, complex(NAN, 1): 0, 1j: 1},
}  # fmt: skip


@pytest.mark.parametrize(("name", "values"), ANNEX_G.items(), ids=list(ANNEX_G))
def test_special_values(name, values):
    given = np.array(list(values), complex)
    got = np.asarray(run(name, given)).astype(complex)
    np.testing.assert_allclose(got.real, [complex(w).real for w in values.values()], rtol=1e-14)
    np.testing.assert_allclose(got.imag, [complex(w).imag for w in values.values()], rtol=1e-14)


def test_identities():
    rng = np.random.default_rng(3)
    z = rng.standard_normal(200) + 1j * rng.standard_normal(200)
    np.testing.assert_allclose(bc.mul(bc.conj(z), z), bc.abs(z) ** 2, atol=1e-14)
    np.testing.assert_allclose(bc.polar(bc.abs(z), bc.angle(z)), z)
    np.testing.assert_allclose(bc.exp(bc.log(z)), z)
    np.testing.assert_allclose(bc.complex(bc.real(z), bc.imag(z)), z)
    np.testing.assert_allclose(bc.square(bc.sin(z)) + bc.square(bc.cos(z)), np.ones_like(z))
    np.testing.assert_allclose(bc.sigmoid(z) + bc.sigmoid(-z), np.ones_like(z))
    np.testing.assert_array_equal(bc.conjugate(z), np.conj(z))
    assert all(abs(a - cmath.tanh(b)) < 1e-14 for a, b in zip(bc.tanh(z), z, strict=True))


def test_one_function_for_real_and_complex():
    z = np.array([3 + 4j, -1], np.complex64)
    assert bc.abs(z).dtype == np.float32 and bc.abs(z.real).dtype == np.float32
    np.testing.assert_array_equal(bc.abs(z), [5, 1])
    np.testing.assert_array_equal(bc.sgn(np.array([-2.0, 0])), [-1, 0])
    assert bc.exp(z).dtype == np.complex64 and bc.isnan(z).dtype == np.bool_
    out = np.empty_like(z)
    assert bc.neg(z, out=out) is out and out[0] == -3 - 4j
    assert bc.exp_backward(z, z).dtype == np.complex64


def test_refusals():
    z = np.ones(3, np.complex64)
    with pytest.raises(UnsupportedError, match="element complex64 is not supported"):
        bc.relu(z)
    with pytest.raises(UnsupportedError, match="element float32 is not supported"):
        bc.angle(z.real)
    with pytest.raises(InvalidProblemError, match="dy must be float32"):
        bc.abs_backward(z, z)
    with pytest.raises(InvalidProblemError, match="isnan is a truth value"):
        bc.ComplexUnaryBackwardDescriptor(kind="isnan", shape=(3,), element="complex64")
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidProblemError, match="resolve_conj"):
        bc.exp(torch.ones(3, dtype=torch.complex64).conj())


@pytest.mark.parametrize("kind", list(ComplexUnaryKind), ids=value)
def test_corners_agree_with_those_of_numpy(kind):
    """Both elements have the same special values, whatever the range."""
    z = truth.corners(ElementKind.C64)
    narrow, wide = np.asarray(run(kind.value, z)), np.asarray(run(kind.value, z.astype(np.complex128)))
    same = np.isnan(narrow) == np.isnan(wide)
    assert same.all(), (z[~same], narrow[~same], wide[~same])


def test_views_share_memory():
    z = (np.arange(12) + 1j * np.arange(12, 24)).reshape(3, 4)[:, ::-2]
    pairs = bc.view_as_real(z)
    assert pairs.shape == (3, 2, 2) and np.shares_memory(pairs, z)
    np.testing.assert_array_equal(pairs[..., 1], z.imag)
    back = bc.view_as_complex(pairs)
    assert np.shares_memory(back, z)
    np.testing.assert_array_equal(back, z)
    assert bc.view_as_real(np.zeros((0, 3), np.complex64)).shape == (0, 3, 2)
    ref = bc.view_as_real(bc.TensorRef(4096, (5,), (3,), "complex64"))
    assert (ref.shape, ref.strides, ref.element) == ((5, 2), (6, 1), ElementKind.F32)
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, dtype=torch.complex64)
    bc.view_as_real(tensor)[:, 1] = 2
    assert tensor[0] == 2j
    cupy = pytest.importorskip("cupy")
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(1 << 20, 1024, None, device_id=0), 0)
    seen = bc.view_as_real(cupy.ndarray((3, 2), np.complex128, memory, (96, 32)))
    assert (seen.shape, seen.strides, seen.dtype) == ((3, 2, 2), (96, 32, 8), np.float64)


def test_what_is_no_view_is_refused():
    with pytest.raises(UnsupportedError, match="z must be complex64 or complex128, got float32"):
        bc.view_as_real(np.ones(2, np.float32))
    with pytest.raises(UnsupportedError, match="x must be float32 or float64"):
        bc.view_as_complex(np.ones(2, np.int32))
    with pytest.raises(InvalidProblemError, match="dense last axis of 2"):
        bc.view_as_complex(np.ones((2, 3)))
    with pytest.raises(InvalidProblemError, match="dense last axis of 2"):
        bc.view_as_complex(np.ones((2, 4))[:, ::2])
    with pytest.raises(InvalidProblemError, match="even strides"):
        bc.view_as_complex(np.ones((2, 3))[:, :2])


@pytest.mark.parametrize("package", ["numpy", "torch", "jax"])
def test_arrays_of_other_packages(package):
    z = np.array([3 + 4j, -1j], np.complex64)
    if package == "torch":
        torch = pytest.importorskip("torch")
        assert bc.abs(torch.from_numpy(z)).dtype is torch.float32
        assert bc.mul(torch.from_numpy(z), torch.from_numpy(z)).dtype is torch.complex64
    elif package == "jax":
        jax = pytest.importorskip("jax")
        np.testing.assert_array_equal(np.asarray(bc.abs(jax.numpy.asarray(z))), [5, 1])
        assert bc.exp(jax.numpy.asarray(z)).dtype == np.complex64
    else:
        np.testing.assert_array_equal(bc.abs(z), [5, 1])
