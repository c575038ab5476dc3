"""sddmm: known values, what is outside, in place, and the bits of an entry alone."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.sparse.sddmm import SddmmDescriptor, SddmmPlan
from tests.call_emulated import call

RNG = np.random.default_rng(5)


def pattern(rows, columns, count):
    offsets = np.sort(RNG.integers(0, count + 1, rows + 1))
    offsets[0], offsets[-1] = 0, count
    return RNG.integers(0, columns, count), offsets


def test_known_values():
    a, b = np.array([[1.0, 2], [3, 4]]), np.array([[1.0, 0], [0, 1], [1, 1]])
    y = bc.sddmm(a, b, np.array([2, 0, 1, 2]), np.array([0, 2, 4]))
    np.testing.assert_array_equal(y, [3, 1, 4, 7])
    np.testing.assert_array_equal(bc.sddmm(a, b, np.array([2, 1]), np.array([1, 0]), by="ids"), [7, 2])
    c = np.ones(4)
    assert bc.sddmm(a, b, np.array([2, 0, 1, 2]), np.array([0, 2, 4]), c, alpha=2.0, beta=-1.0, out=c) is c
    np.testing.assert_array_equal(c, [5, 1, 7, 13])


def test_entries_outside_have_no_product():
    a, b = np.ones((2, 3)), np.ones((2, 3))
    y = bc.sddmm(a, b, np.array([0, -1, 2, 1, 1]), np.array([1, 3, 4]), np.full(5, 10.0))
    np.testing.assert_array_equal(y, [10, 10, 10, 13, 10])


@pytest.mark.parametrize("element", ["float32", "float16", "float64"])
@pytest.mark.parametrize("width", [1, 7, 64, 128, 136, 300])
def test_kernels_have_the_values(element, width):
    """Widths of one lane to several chunks of a warp, rows of several tiles, every layout with the same bits."""
    rows, columns, count = 9, 11, 400
    at, offsets = pattern(rows, columns, count)
    a, b = (RNG.standard_normal((n, width)).astype(element) for n in (rows, columns))
    c = RNG.standard_normal(count).astype(element)
    desc = SddmmDescriptor(num_segments=rows, rows=columns, tokens=count, row_shape=(width,), element=element)
    operands = {"columns": at, "index": offsets, "c": c, "alpha": 0.5, "beta": 2.0}
    y = call(SddmmPlan, desc, {"y": np.empty(count, element)}, a=a, b=b, **operands)["y"]
    ids = np.repeat(np.arange(rows), np.diff(offsets))
    want = 0.5 * (a[ids].astype(float) * b[at].astype(float)).sum(1) + 2.0 * c
    np.testing.assert_allclose(
        y, want, rtol=1e-3 if element == "float16" else 1e-4, atol=2e-2 if element == "float16" else 1e-4
    )
    apart = np.empty((columns, width + 1), element)
    apart[:, :width] = b
    again = call(SddmmPlan, desc, {"y": np.empty(count, element)}, a=a, b=apart[:, :width], **operands)["y"]
    assert again.tobytes() == y.tobytes()


def test_what_does_not_fit_is_refused():
    a, b, at, offsets = np.ones((2, 3)), np.ones((4, 3)), np.array([0, 1]), np.array([0, 1, 2])
    for bad in (
        lambda: bc.sddmm(a, np.ones((4, 2)), at, offsets),
        lambda: bc.sddmm(a, b, at, np.array([0, 2])),
        lambda: bc.sddmm(a, b, at.astype(float), offsets),
        lambda: bc.sddmm(a, b.astype(np.float32), at, offsets),
        lambda: bc.sddmm(a, b, at, offsets, np.ones(3)),
    ):
        with pytest.raises(InvalidProblemError):
            bad()
