"""Rows that blocks hold, of which they hold a sample, and others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.ops.sort.searchsorted import SearchsortedDescriptor, SearchsortedPlan
from baracuda_py.testing.places import call

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize(
    ("element", "count", "values"),
    [("float32", 1, 9), ("float32", 1023, 3000), ("float32", 1024, 1100), ("int8", 300, 2000), ("float64", 5000, 2600),
     ("float32", 20001, 7000), ("float64", 5000, 40)],
)  # fmt: skip
def test_rows_of_every_length(element: str, count: int, values: int, right: bool, place: str) -> None:
    """Ties within and across the groups of a sample; values beyond both ends, and NaN behind all numbers."""
    row = np.sort(RNG.integers(-count // 3 - 1, count // 3 + 1, count)).astype(element)
    x: Any = RNG.integers(-count // 3 - 9, count // 3 + 9, values).astype(element)
    if element != "int8":
        row[-min(3, count - 1) or count :] = np.nan
        x[::7], x[1::97] = np.nan, np.inf
    else:
        row = np.sort(row)
    desc = SearchsortedDescriptor(shape=(count,), values_shape=(values,), right=right, element=element)
    got = call(SearchsortedPlan, desc, ["index"], place, sorted_sequence=row, values=x)["index"]
    np.testing.assert_array_equal(got, np.searchsorted(row, x, "right" if right else "left"))


@pytest.mark.parametrize("count", [50, 9000])
def test_a_row_that_a_sorter_orders(count: int, place: str) -> None:
    row, x = RNG.standard_normal(count).astype(np.float32), RNG.standard_normal(9000).astype(np.float32)
    sorter = np.argsort(row, kind="stable").astype(np.int32)
    desc = SearchsortedDescriptor(shape=(count,), values_shape=x.shape, index_element="int32", element="float32")
    got = call(SearchsortedPlan, desc, ["index"], place, sorted_sequence=row, values=x, sorter=sorter)["index"]
    np.testing.assert_array_equal(got, np.searchsorted(row, x, sorter=sorter))
