"""Columns of images whose rows end within the windows that a thread makes, on every backend."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.ops.layout.im2col import Im2colDescriptor, Im2colPlan
from baracuda_py.testing.places import call

RNG = np.random.default_rng(11)


@pytest.mark.parametrize(
    ("spatial", "kernel", "stride", "dilation", "padding"),
    [((4, 4), 3, 1, 1, 1), ((6, 6), 3, 1, 1, 0), ((2, 4, 2), 2, 1, 2, 1), ((9, 9), 2, 2, 1, 0), ((16,), 3, 1, 1, 1),
     ((3, 8), 1, 1, 1, 0)],
)  # fmt: skip
@pytest.mark.parametrize("element", ["float16", "float32", "uint8"])
def test_windows_across_rows(spatial, kernel, stride, dilation, padding, element, place):
    rank = len(spatial)
    desc = Im2colDescriptor(
        batch=2, channels=3, spatial=spatial, kernel_size=kernel, stride=stride, dilation=dilation,
        padding=((padding, padding),) * rank, element=element,
    )  # fmt: skip
    x = RNG.integers(1, 100, desc.image).astype(element)
    got = call(Im2colPlan, desc, ["y"], place, x=x)["y"]
    wanted = np.zeros(desc.columns, element)
    ks, os = (kernel,) * rank, tuple(desc.windows)
    for row, (c, *k) in enumerate(np.ndindex(3, *ks)):
        for column, o in enumerate(np.ndindex(*os)):
            at = [o[a] * stride + k[a] * dilation - padding for a in range(rank)]
            if all(0 <= i < n for i, n in zip(at, spatial, strict=True)):
                wanted[:, row, column] = x[(slice(None), c, *at)]
    np.testing.assert_array_equal(got, wanted)
