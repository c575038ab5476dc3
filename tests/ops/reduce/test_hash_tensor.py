"""hash_tensor against torch's, and against words put together in Python."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

FLOATS = ("float16", "bfloat16", "float32", "float64")
WHOLE = ("int8", "uint8", "int16", "int32", "int64", "bool")


def _drawn(dtype: str, *shape: int) -> Any:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(np.random.default_rng(7).standard_normal(shape) * 50)
    return x.to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", FLOATS + WHOLE)
@pytest.mark.parametrize("axis", (None, 0, -1, (0, 2), (0, 1, 2)))
@pytest.mark.parametrize("keepdims", (False, True))
def test_torchs_words(dtype: str, axis: Any, keepdims: bool) -> None:
    x = _drawn(dtype, 3, 5, 7)
    import torch

    want = torch.hash_tensor(x, dim=tuple(range(3)) if axis is None else axis, keepdim=keepdims)
    got = bc.hash_tensor(x, axis, keepdims=keepdims)
    assert got.dtype == torch.uint64 and torch.equal(got.view(torch.int64), want.view(torch.int64))
    strided = bc.hash_tensor(x.transpose(0, 2).flip(1), keepdims=keepdims)
    assert int(strided.view(torch.int64).reshape(())) == int(torch.hash_tensor(x).view(torch.int64))


@pytest.mark.parametrize("dtype", ("uint16", "uint32", "uint64", "int16"))
def test_integers_are_widened_with_their_sign(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, 5, info.max // 3], dtype)
    words = [int(value) % (1 << 64) for value in x]
    assert int(bc.hash_tensor(x)) == functools.reduce(operator.xor, words)


def test_of_no_elements_it_is_zero() -> None:
    for dtype in ("float32", "bool", "int8", "uint64"):
        np.testing.assert_array_equal(bc.hash_tensor(np.zeros((3, 0), dtype), axis=1), np.zeros(3, np.uint64))


def test_zeros_of_either_sign_differ() -> None:
    assert int(bc.hash_tensor(np.float32([-0.0]))) == 1 << 63 and int(bc.hash_tensor(np.float32([0.0]))) == 0


@pytest.mark.parametrize("x", (np.ones(3), np.ones(3, np.int8), np.ones(3, np.uint64)))
def test_an_output_that_is_given(x: np.ndarray) -> None:
    out = np.empty((), np.uint64)
    assert bc.hash_tensor(x, out=out) is out and int(out) == int(bc.hash_tensor(x))


def test_what_is_refused() -> None:
    with pytest.raises(bc.InvalidProblemError, match="mode must be 0, the exclusive or of the bits, got 1"):
        bc.hash_tensor(np.ones(3), mode=1)
    with pytest.raises(bc.UnsupportedError, match="got complex64"):
        bc.hash_tensor(np.ones(3, np.complex64))
