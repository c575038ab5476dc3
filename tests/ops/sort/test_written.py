"""Every element of a result is written, whatever indices say: equal ones, and ones outside."""

import numpy as np
import pytest
from call_emulated import call

from baracuda_py.ops.sort.sort_backward import SortBackwardDescriptor, SortBackwardPlan
from baracuda_py.ops.sort.unique import UniqueConsecutiveDescriptor, UniqueConsecutivePlan


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float16", "float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_gradient_of_a_sort_whose_indices_repeat_or_lie_outside(element, axis):
    indices = np.array([[0, 0, 2, 5], [9, -1, 1, 2], [0, 1, 2, 3]])
    indices = np.ascontiguousarray(indices.T if axis == 0 else indices)
    desc = SortBackwardDescriptor(shape=indices.shape, picked_shape=indices.shape, axis=axis, element=element)
    dy = np.full(indices.shape, 3, element)
    wanted = np.array([[3, 0, 3, 0], [0, 3, 3, 0], [3, 3, 3, 3]], element)
    wanted = wanted.T if axis == 0 else wanted
    dx = {"dx": np.full(indices.shape, 77, element)}
    np.testing.assert_array_equal(call(SortBackwardPlan, desc, dx, dy=dy, indices=indices)["dx"], wanted)
    dx = np.full(indices.shape, 77, element)
    SortBackwardPlan.select(desc, device="cpu")(dy=dy, indices=indices, dx=dx)
    np.testing.assert_array_equal(dx, wanted)


@pytest.mark.usefixtures("emulation")
def test_the_inverse_of_unique_where_no_index_names_an_entry():
    n = 5000
    x, indices = np.arange(n, dtype=np.int32) // 7, np.arange(n)[::-1].copy()
    indices[::3], indices[1::9] = -1, n
    desc = UniqueConsecutiveDescriptor(n=n, size=n, element="int32")
    wanted = np.full(n, -1)
    known = (indices >= 0) & (indices < n)
    wanted[indices[known]] = x[known]
    found = call(UniqueConsecutivePlan, desc, {"inverse": np.full(n, 77)}, x=x, indices=indices)["inverse"]
    np.testing.assert_array_equal(found, wanted)
    found = np.full(n, 77)
    UniqueConsecutivePlan.select(desc, device="cpu")(x=x, indices=indices, inverse=found)
    np.testing.assert_array_equal(found, wanted)
