"""Complex arithmetic: against exact products and quotients over the whole range, numbers, gradients, refusals."""

import complex_truth as truth
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import COMPLEX, ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.elementwise.complex_binary import ComplexBinaryDescriptor, ComplexBinaryPlan
from baracuda_py.ops.elementwise.complex_binary_kinds import WITH_GRADIENT, ComplexBinaryKind
from baracuda_py.testing import places
from baracuda_py.testing.tolerance import assert_within

INF, NAN = np.inf, np.nan
mp = truth.mp


def pairs(element):
    """Finite numbers of every size."""
    a = truth.points(element, 150)
    b = np.random.default_rng(1).permutation(truth.points(element, 150, 1))
    keep = (b != 0) & (a != 0)
    return a[keep], b[keep]


def exactly(function, a, b):
    found = []
    for x, y in zip(a, b, strict=True):
        with mp.workdps(800):
            z = mp.mpc(function(mp.mpc(complex(x)), mp.mpc(complex(y))))
            found.append((truth.wide(z.real), truth.wide(z.imag)))
    return truth.joined(*np.array(found, np.longdouble).T)


@pytest.mark.parametrize("element", COMPLEX, ids=str)
@pytest.mark.parametrize("name", ["mul", "div"])
def test_products_and_quotients(name, element):
    a, b = pairs(element)
    wanted = exactly((lambda x, y: x * y) if name == "mul" else (lambda x, y: x / y), a, b)
    got = getattr(bc, name)(a, b)
    assert_within(ComplexBinaryKind(name).row.bound, got, wanted, element=element)
    inside = (np.abs(wanted.real) < element.limits.max) & (np.abs(wanted.imag) < element.limits.max)
    assert np.isfinite(got[inside]).all()


@pytest.mark.parametrize("element", COMPLEX, ids=str)
def test_sums_are_rounded_once(element):
    a, b = pairs(element)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(bc.add(a, b), a + b)
        np.testing.assert_array_equal(bc.sub(a, b), a - b)


def test_isclose_where_magnitudes_leave_the_range(place):
    top = np.finfo(np.float64).max
    a = np.array([complex(np.nextafter(-top, 0), top), complex(top / 2, top / 2), complex(top, top)])
    b = np.array([complex(-44, top), complex(top, top), complex(np.nextafter(top, 0), top)])
    desc = ComplexBinaryDescriptor(kind="isclose", shape=(3,), rtol=0.1, atol=0.0, element="complex128")
    found = places.call(ComplexBinaryPlan, desc, ("y",), place, a=a, b=b)["y"]
    np.testing.assert_array_equal(found, [False, False, True])


def test_special_values():
    one = np.array([1 + 1j])
    for b, wanted in ((0, complex(INF, INF)), (complex(INF, 1), 0), (complex(INF, INF), complex(NAN, NAN))):
        np.testing.assert_array_equal(bc.div(one, np.array([b], complex)), [wanted])
    np.testing.assert_array_equal(bc.div(np.array([complex(INF, 1)]), one), [complex(INF, -INF)])
    np.testing.assert_array_equal(bc.mul(np.array([complex(INF, 1)]), one), [complex(INF, INF)])
    zero = np.zeros(4, complex)
    got = bc.pow(zero, np.array([0, 2, 1 + 1j, -1]))
    np.testing.assert_array_equal(got, [1, 0, 0, complex(NAN, NAN)])
    np.testing.assert_array_equal(
        bc.eq(np.array([1j, complex(NAN, 0)]), np.array([1j, complex(NAN, 0)])), [True, False]
    )
    np.testing.assert_array_equal(bc.ne(np.array([1j, 1j]), np.array([1j, 1 + 1j])), [False, True])


def test_powers():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(100) + 1j * rng.standard_normal(100) for _ in range(2))
    np.testing.assert_allclose(bc.pow(a, b), a**b, rtol=1e-12)
    np.testing.assert_allclose(bc.pow(a, 2), a * a, rtol=1e-13)
    np.testing.assert_allclose(bc.power(2j, b), 2j**b, rtol=1e-13)


def test_numbers_stand_in_either_place():
    z = np.array([1 + 2j, -3j], np.complex64)
    np.testing.assert_array_equal(bc.mul(z, 2j), z * np.complex64(2j))
    np.testing.assert_array_equal(bc.sub(1, z), 1 - z)
    np.testing.assert_array_equal(bc.subtract(z, 0.5), z - np.float32(0.5))
    np.testing.assert_allclose(bc.divide(1j, z), 1j / z, rtol=1e-6)
    np.testing.assert_array_equal(bc.eq(z, 1 + 2j), [True, False])
    assert bc.mul(z, np.complex64(1j)).dtype == np.complex64


def test_broadcasting_and_places():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4, 1, 6)) + 1j * rng.standard_normal((4, 1, 6))
    b = (rng.standard_normal((5, 12)) + 1j * rng.standard_normal((5, 12)))[:, ::-2]
    np.testing.assert_allclose(bc.mul(a, b), a * b)
    same = a.copy()
    assert bc.add(same, a, out=same) is same
    np.testing.assert_array_equal(same, a + a)


@pytest.mark.parametrize("kind", WITH_GRADIENT, ids=lambda kind: kind.value)
@pytest.mark.parametrize("shapes", [((3, 5), (3, 5)), ((3, 1), (4, 3, 5)), ((), (2, 3)), ((40, 300), (300,))])
def test_gradients_are_those_of_torch(kind, shapes):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in shapes)
    leaves = [torch.from_numpy(np.array(x)).requires_grad_() for x in (a, b)]
    y = getattr(torch, kind.value)(*leaves)
    dy = rng.standard_normal(y.shape) + 1j * rng.standard_normal(y.shape)
    wanted = torch.autograd.grad(y, leaves, torch.from_numpy(dy))
    got = getattr(bc, f"{kind.value}_backward")(dy, np.array(a), np.array(b))
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs.resolve_conj().numpy(), rtol=1e-9, atol=1e-10)


def test_gradients_beside_numbers_and_at_zero():
    z, dy = np.array([1 + 2j, -3j]), np.array([1j, 2 + 0j])
    np.testing.assert_allclose(bc.mul_backward(dy, z, 2j), dy * -2j)
    np.testing.assert_allclose(bc.div_backward(dy, 1, z), dy * np.conj(-1 / z**2))
    da, db = bc.pow_backward(np.ones(2, complex), np.zeros(2, complex), np.array([0, 2], complex))
    np.testing.assert_array_equal(da, [0, 0])
    np.testing.assert_array_equal(db, [0, 0])


def test_refusals():
    z, x = np.ones(3, np.complex64), np.ones(3, np.float32)
    with pytest.raises(InvalidProblemError, match=r"write add\(a, cast\(b, 'complex64'\)\)"):
        bc.add(z, x)
    with pytest.raises(InvalidProblemError, match=r"write add\(cast\(a, 'complex64'\), b\)"):
        bc.add(x, z)
    with pytest.raises(UnsupportedError, match=r"cast\(a, 'complex64'\)"):
        bc.mul(x, 2j)
    with pytest.raises(UnsupportedError, match="maximum is not defined for complex numbers"):
        bc.maximum(z, z)
    with pytest.raises(UnsupportedError, match=r"write add\(a, mul\(b, alpha\)\)"):
        bc.add(z, z, alpha=2)
    with pytest.raises(InvalidProblemError, match="do not broadcast"):
        bc.mul(z, np.ones(2, np.complex64))
    with pytest.raises(InvalidProblemError, match="truth value"):
        bc.ComplexBinaryBackwardDescriptor(kind="eq", shape=(2,), element=ElementKind.C64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_polar_and_complex(dtype):
    rng = np.random.default_rng(0)
    r, angle = rng.standard_normal((2, 3, 7)).astype(dtype)
    z = bc.polar(r, angle)
    assert z.dtype == np.result_type(dtype, np.complex64)
    np.testing.assert_allclose(z, r * np.exp(1j * angle), rtol=1e-5 if dtype is np.float32 else 1e-13)
    np.testing.assert_array_equal(bc.complex(r[:, ::-1], angle), r[:, ::-1] + 1j * angle)
    da, db = bc.complex_backward(z, r, angle)
    np.testing.assert_array_equal(da, z.real)
    np.testing.assert_array_equal(db, z.imag)
    da = bc.polar_backward(z, r, angle, return_db=False)
    np.testing.assert_allclose(da, r, rtol=1e-5)
    with pytest.raises(UnsupportedError, match="element float16 is not supported"):
        bc.complex(r.astype(np.float16), r.astype(np.float16))


def test_casts():
    x = np.array([1.5, -INF, NAN, 2.0**24 + 1])
    np.testing.assert_array_equal(bc.cast(x, "complex64"), x.astype(np.complex64))
    np.testing.assert_array_equal(bc.cast(np.array([True, False]), "complex128"), [1, 0])
    z = np.array([0.1 + 1e300j, complex(NAN, 0), 0j])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(bc.cast(z, np.complex64), z.astype(np.complex64))
    np.testing.assert_array_equal(bc.cast(z, bool), [True, True, False])
    for call, message in (
        (lambda: bc.cast(z, "float32"), r"cannot cast complex128 to float32: take real\(x\), imag\(x\) or abs\(x\)"),
        (lambda: bc.cast(x, "complex64", saturate=True), "saturate is for real elements"),
        (lambda: bc.cast(np.zeros(3, np.uint8), "complex64", element="float8_e5m2"), "cast it to float32 first"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            call()
