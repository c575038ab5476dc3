"""Scales in tiles of 128 × 4: the documented place of every scale, and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc


@pytest.mark.parametrize(("rows", "columns"), [(128, 4), (256, 8), (300, 9), (1, 1), (130, 3)])
def test_every_scale_has_the_documented_place(rows: int, columns: int) -> None:
    x = np.random.default_rng(1).integers(1, 256, (rows, columns), dtype=np.uint8)
    y = bc.swizzle_scales(x)
    across = -(-columns // 4)
    assert y.shape == (-(-rows // 128) * 128, across * 4)
    flat, left = y.reshape(-1), y.size
    for r in range(rows):
        for c in range(columns):
            tile = r // 128 * across + c // 4
            assert flat[512 * tile + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] == x[r, c]
            left -= 1
    assert np.count_nonzero(flat == 0) == left
    assert np.array_equal(bc.unswizzle_scales(y, rows=rows, columns=columns), x)


def test_scales_of_formats_go_there_and_back() -> None:
    w = np.random.default_rng(2).standard_normal((2, 200, 160)).astype(np.float32)
    for kind, dtype in (("mxfp4", ml_dtypes.float8_e8m0fnu), ("nvfp4", ml_dtypes.float8_e4m3fn)):
        _, scales = bc.block_quantize(w, kind=kind)
        scales = scales.view(np.uint8).view(dtype)
        y = bc.swizzle_scales(scales)
        columns = scales.shape[-1]
        assert y.dtype == np.uint8 and y.shape == (2, 256, -(-columns // 4) * 4)
        back = bc.unswizzle_scales(y, rows=200, columns=columns)
        assert np.array_equal(back.view(np.uint8), scales.view(np.uint8))
        assert np.array_equal(y[1].view(np.uint8), bc.swizzle_scales(scales[1]).view(np.uint8))
    turned = np.ascontiguousarray(np.swapaxes(scales, 1, 2))
    assert np.array_equal(bc.swizzle_scales(np.swapaxes(turned, 1, 2)).view(np.uint8), y.view(np.uint8))
    assert bc.swizzle_scales(np.zeros((0, 4), np.uint8)).shape == (0, 4)


def test_bad_input_is_named() -> None:
    with pytest.raises(bc.InvalidProblemError, match="x must have shape"):
        bc.unswizzle_scales(np.zeros((128, 4), np.uint8), rows=129, columns=4)
    with pytest.raises(bc.InvalidProblemError, match="rows"):
        bc.unswizzle_scales(np.zeros((128, 4), np.uint8), columns=4)
    with pytest.raises(bc.UnsupportedError, match="float32"):
        bc.swizzle_scales(np.zeros((128, 4), np.float32))
    with pytest.raises(bc.InvalidProblemError):
        bc.swizzle_scales(np.zeros(128, np.uint8))
