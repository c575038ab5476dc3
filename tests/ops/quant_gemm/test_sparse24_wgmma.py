"""Products by a 2:4 sparse matrix on the tensor cores of warpgroups, emulated: those of small integers are exact."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int8": np.int8}


def padded(a: Any, pitch: int) -> Any:
    """The same rows so many elements apart, with what is no number of the matrix between them."""
    whole = np.full((len(a), max(pitch, a.shape[1])), -1, np.int8).astype(a.dtype)
    whole[:, : a.shape[1]] = a
    return whole[:, : a.shape[1]]


def run(m: int, n: int, k: int, element: str, pitch: int, bias: bool, sms: int = 2) -> tuple[Any, Any, str]:
    """y, what it should be, and the kernel that made it."""
    rng, dtype = np.random.default_rng(m + n + k), DTYPES[element]
    x, w = (rng.integers(-3, 4, (rows, k)).astype(dtype) for rows in (m, n))
    values, metadata = bc.sparse24_compress(w)
    want = x.astype(np.int64) @ bc.sparse24_prune(w).astype(np.int64).T
    y = np.full((m, n), -1, np.int32 if element == "int8" else dtype)
    given = {"x": x, "values": padded(values, pitch), "metadata": padded(metadata, pitch), "y": y}
    if bias:
        given["bias"] = rng.integers(-9, 10, n).astype(dtype)
        want += given["bias"].astype(np.int64)
    desc = bc.Sparse24GemmDescriptor(m=m, n=n, k=k, element=element)
    with emulating(seed=m):
        plan = bc.Sparse24GemmPlan.select(desc, device=emulated_device(9.0, sms))
        args = bc.Sparse24GemmArgs(**{name: pointer_view(a) for name, a in given.items()})
        row, geometry, _ = plan.plan_layout(args)
        plan.run(args)
    assert row.name == "wgmma_sparse"
    return y, want.astype(y.dtype), geometry.steps[0].kernel


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("m", "n", "k", "element", "pitch", "bias", "kernel"), [
    (1, 37, 128, "float16", 0, True, "wgmma_128"),
    (70, 130, 1024, "bfloat16", 0, False, "wgmma_128"),  # two tiles along each axis, the ring filled again
    (65, 24, 200, "float16", 208, True, "wgmma_128"),  # k ends within a slice
    (9, 40, 304, "int8", 320, False, "wgmma_128"),
    (100, 392, 640, "bfloat16", 0, True, "wgmma_256"),  # a cluster, five slices
    (130, 500, 512, "float16", 0, False, "wgmma_256"),
    (100, 392, 1152, "int8", 0, False, "wgmma_256"),
])  # fmt: skip
def test_products_of_small_integers_are_exact(
    m: int, n: int, k: int, element: str, pitch: int, bias: bool, kernel: str
) -> None:
    y, want, ran = run(m, n, k, element, pitch, bias)
    assert ran == kernel
    assert (y == want).all()
