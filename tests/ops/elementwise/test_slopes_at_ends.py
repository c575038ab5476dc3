"""dy f'(x) where x or dy is 0, subnormal, huge, infinite or NaN: the kernels on the emulator, and the formulas.

dx is dy times the limit of the slope. A slope that is a number leaves 0 where dy is 0, also where the slope alone has
no place in any type; only an infinite one, at a pole, leaves NaN.
"""

import numpy as np
import pytest
import truth
from everywhere import own, slope, wide
from run_functors import elements, files, gradients_of

import baracuda_py as bc
from baracuda_py.ops.elementwise.unary_kinds import DIFFERENTIABLE
from baracuda_py.testing.draw import stored

SIZES = (
    0, 1e-30, 1e-20, 1e-10, 1e-3, 0.5, 1, 1.5, 2, 5, 10, 11, 20, 30, 87, 89, 100, 150, 171, 300, 700,
    710, 746, 1e3, 1430, 1450, 1e5, 1e8, 1e10, 1e15, 1e20, 1e31, 1e38, 1e100, 1e150, 1e155, 1e200, 1e300, np.inf,
)  # fmt: skip
"""Kinks, and ends of what exponentials, squares and cubes of a type can hold."""
FACTORS = (0, 1, 3, 1e-300, 1e-30, 1e-5, 1e5, 1e30, 1e300, np.inf)


def both_signs(element, sizes):
    limits = element.limits
    least = 2.0**limits.min_exponent
    kept = [
        s for s in (*sizes, float(limits.max), float(limits.tiny), least, 3 * least) if s <= limits.max or s == np.inf
    ]
    return stored(np.array([*kept, *(-s for s in kept), np.nan]), element)


def problem(element):
    """Every dy with every x."""
    pairs = np.broadcast_arrays(both_signs(element, FACTORS)[:, None], both_signs(element, SIZES)[None])
    return tuple(np.ascontiguousarray(x).reshape(-1) for x in pairs)


def poles(kind, x):
    """Where the slope is infinite."""
    found = np.isinf(x) | np.isin(x.astype(np.float64), truth.POLES.get(kind.value, ()))
    if kind.value in ("lgamma", "digamma", "polygamma"):
        found |= (x <= 0) & (x == np.floor(x))
    return found


@pytest.mark.usefixtures("emulation")
@elements()
@files()
def test_kernels_have_the_limit(element, kernel):
    dy, x = problem(element)
    kinds = [kind for kind in DIFFERENTIABLE if kind.row.kernel == kernel]
    beyond = np.finfo(element.acc.dtype).tiny  # a slope below it may be 0 in a kernel, and NaN beside an infinite dy
    for kind, row in zip(kinds, gradients_of(element, kernel, kinds, dy, x), strict=True):
        got, wanted = wide(row, element), wide(stored(slope(kind, element, dy, x), element), element)
        with np.errstate(all="ignore"):
            vanishes = np.isinf(dy.astype(float)) & (np.abs(slope(kind, element, np.ones_like(dy), x)) < beyond)
            close = np.abs(got - wanted) <= 0.01 * np.abs(wanted) + 4 * 2.0**element.limits.min_exponent
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (np.isfinite(got) & close)
        wrong = np.flatnonzero(~(same | (vanishes & np.isnan(got))))
        shown = [f"dy {dy[i]} x {x[i]}: {got[i]}, not {wanted[i]}" for i in wrong[:5]]
        assert not wrong.size, f"{kind.value} {element}: {shown}"


@elements()
def test_a_gradient_of_nothing_is_nothing(element):
    """dy = 0: the slope of a finite x in the domain is a number, off the poles."""
    x = both_signs(element, SIZES)
    x = x[~np.isnan(x.astype(np.float64))]
    for kind in DIFFERENTIABLE:
        found = np.asarray(getattr(bc, f"{kind.value}_backward")(np.zeros_like(x), x, **own(kind)), float)
        with np.errstate(all="ignore"):
            inside = ~np.isnan(slope(kind, element, np.ones_like(x), x)) & ~poles(kind, x)
        np.testing.assert_array_equal(found[inside], 0, err_msg=f"{kind.value} {x[inside][found[inside] != 0]}")


@pytest.mark.parametrize("power", [np.inf, complex(0, -np.inf), complex(np.nan, 1), 1e300])
def test_drawn_powers_do_not_warn(power):
    """Problems with infinite powers are drawn where warnings are errors."""
    from baracuda_py.ops.elementwise.complex_binary_backward import ComplexBinaryBackwardDescriptor as Descriptor
    from baracuda_py.ops.elementwise.complex_binary_backward import ComplexBinaryBackwardPlan

    arrays = {"a": np.ones(2, complex), "b": np.array([power, 1.0], complex), "number": 0.5, "imag": 0.0}
    ComplexBinaryBackwardPlan.complete(Descriptor(kind="pow", shape=(2,), element="complex128"), arrays)
    assert np.isnan(arrays["b"][0]) if not np.isfinite(power) else abs(arrays["b"][0]) <= 3
