"""Linear recurrences: known ones, the edges of the range, and gradients by differences."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind, cast
from baracuda_py.core.tensor import TensorRef
from baracuda_py.ops.scan.linear_scan import LinearScanDescriptor, LinearScanPlan
from baracuda_py.testing.emulator import emulated_device, emulating


def on_device(a, b, element):
    """h by the kernels on the emulator."""
    h = np.full(b.shape, 77, element.dtype)
    refs = {n: TensorRef(v.ctypes.data, v.shape, tuple(s // v.itemsize for s in v.strides), element)
            for n, v in (("a", a), ("b", b), ("h", h))}  # fmt: skip
    plan = LinearScanPlan.select(LinearScanDescriptor(shape=b.shape, element=element), device=emulated_device(9.0))
    with emulating(1):
        plan.run(plan.args(**refs))
    return h


def step_by_step(a, b, first=0.0):
    h, out = first, []
    for x, y in zip(a, b, strict=True):
        h = x * h + y
        out.append(h)
    return np.array(out)


def test_known_recurrences():
    ones = np.ones(6)
    assert bc.linear_scan(ones, np.arange(6.0)).tolist() == bc.cumsum(np.arange(6.0)).tolist()
    assert bc.linear_scan(np.full(5, 2.0), np.zeros(5), np.array(3.0)).tolist() == [6, 12, 24, 48, 96]
    rewards = np.array([1.0, 0.0, 2.0, 4.0])
    assert bc.linear_scan(np.full(4, 0.5), rewards, reverse=True).tolist() == [2, 2, 4, 4]  # discounted returns
    decay = np.broadcast_to(np.array([0.5, 2.0]), (3, 2))  # along time it stays where it is
    assert bc.linear_scan(decay, np.ones((3, 2)), axis=0).tolist() == [[1, 1], [1.5, 3], [1.75, 7]]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [ElementKind.F32, ElementKind.BF16, ElementKind.F64], ids=str)
def test_coefficients_beyond_the_range(element):
    """What one step after another does not see: products of coefficients that overflow and underflow over zeros."""
    n = 700
    a, b = np.full(n, 16.0), np.zeros(n)
    a[400:] = 1 / 16
    b[500:] = 1
    given = [np.array(cast(v, element)) for v in (a, b)]
    wanted = step_by_step(a, b)
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(on_device(*given, element).astype(float), wanted, rtol=0.01)


@pytest.mark.usefixtures("emulation")
def test_from_an_infinity_on_all_is_nan():
    a, b = np.full(300, 0.5, np.float32), np.ones(300, np.float32)
    b[131] = np.inf
    h = on_device(a, b, ElementKind.F32)
    assert np.isfinite(h[:131]).all()
    assert np.isnan(h[131:]).all()
    np.testing.assert_array_equal(np.isnan(bc.linear_scan(a, b)), np.isnan(h))


@pytest.mark.usefixtures("emulation")
def test_sums_against_exact_ones_in_float32():
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-1, 1, 900).astype(np.float32), rng.standard_normal(900).astype(np.float32)
    wanted = step_by_step(a.astype(np.longdouble), b.astype(np.longdouble), np.longdouble(0))
    h = on_device(a, b, ElementKind.F32)
    assert (np.abs(h - wanted) <= 0.51 * np.spacing(np.abs(wanted).astype(np.float32))).all()


def test_gradients_by_differences():
    rng = np.random.default_rng(4)
    a, b, dh = rng.uniform(-1, 1, (3, 2, 7))
    first, dlast = rng.standard_normal((2, 2))

    def total(a, b, first):
        h, last = bc.linear_scan(a, b, first, return_carry=True)
        return float((h * dh).sum() + (last * dlast).sum())

    h = bc.linear_scan(a, b, first)
    found = bc.linear_scan_backward(dh, a, h, first, dlast)
    point = [a, b, first]
    for i, gradient in enumerate(found):
        for at in np.ndindex(point[i].shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = [v.copy() for v in point]
                moved[i][at] += step
                sides.append(total(*moved))
            assert abs((sides[0] - sides[1]) / 2e-6 - gradient[at]) < 1e-7


def test_the_gradient_of_a_broadcast_a_has_its_shape():
    rng = np.random.default_rng(6)
    b, dh = rng.standard_normal((2, 3, 5, 4))
    for shape in ((4,), (5, 1), (3, 1, 4), (1, 5, 4), ()):
        a = rng.uniform(-1, 1, shape)
        whole = np.broadcast_to(a, b.shape)
        h = bc.linear_scan(a, b, axis=1)
        np.testing.assert_array_equal(h, bc.linear_scan(whole, b, axis=1))
        da, db = bc.linear_scan_backward(dh, a, h, axis=1)
        every, same = bc.linear_scan_backward(dh, whole, h, axis=1)
        lead = tuple(range(3 - len(shape)))
        ones = tuple(3 - len(shape) + i for i, n in enumerate(shape) if n == 1)
        np.testing.assert_allclose(da, every.sum((*lead, *ones)).reshape(shape), rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(db, same)
