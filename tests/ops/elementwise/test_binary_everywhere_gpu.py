"""Binary ops on a GPU over the whole range of each element, against the NumPy formulas."""

import numpy as np
import pytest
from everywhere import ATOL, RTOL, pairs, report, wrong_binary, wrong_partial
import truth

from baracuda_py.calls.functional import functional
from baracuda_py.core.element import FLOATS
from baracuda_py.ops.elementwise import binary_functions
from baracuda_py.ops.elementwise.binary import BinaryPlan
from baracuda_py.ops.elementwise.binary_backward import BinaryBackwardPlan
from baracuda_py.ops.elementwise.binary_kinds import WITH_GRADIENT, BinaryKind
from baracuda_py.ops.elementwise.operations.row import EVERY

pytestmark = pytest.mark.gpu
MORE = {"isclose": {"rtol": RTOL, "atol": ATOL, "equal_nan": True}}


def call(kind, *given, **more):
    """On the device and back; alpha and the tolerances as `wrong_binary` has them."""
    import cupy

    function = functional(BinaryPlan, kind=kind)
    return function(*(cupy.asarray(x) for x in given), alpha=3.0, **MORE.get(kind.value, {})).get()


@pytest.mark.parametrize("element", EVERY, ids=str)
def test_binary(element):
    (a, b), found = pairs(element), {}
    with np.errstate(all="ignore"):
        for kind in (kind for kind in BinaryKind if element in kind.row.elements):
            found[kind.value] = wrong_binary(element, kind, a, b, call(kind, a, b))
    report(found)


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_gradients(element):
    import cupy

    (a, b), found = pairs(element), {}
    dy = np.where(np.arange(a.size) % 4 == 0, truth.cotangents(element, a.size), np.ones_like(a))
    given = [cupy.asarray(x) for x in (dy, a, b)]
    for kind in WITH_GRADIENT:
        for side, got in enumerate(functional(BinaryBackwardPlan, kind=kind)(*given, alpha=1.5)):
            found[f"{kind.value} {side}"] = wrong_partial(element, kind, side, dy, a, b, got.get())
    report(found)


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_order_of_zeros_and_nan(element):
    values = np.array([0.0, -0.0, 1.0, np.nan, -np.inf]).astype(element.dtype)
    a, b = np.repeat(values, values.size), np.tile(values, values.size)
    for kind in (BinaryKind.MAXIMUM, BinaryKind.MINIMUM, BinaryKind.FMAX, BinaryKind.FMIN):
        got, wanted = call(kind, a, b).astype(float), getattr(binary_functions, kind.value)(a, b).astype(float)
        np.testing.assert_array_equal(got, wanted)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))
