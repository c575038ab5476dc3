"""Filters, morphology, colours and measures of images against SciPy and colorsys."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
from scipy import ndimage

import baracuda_py as bc

RNG = np.random.default_rng(0)
X = RNG.random((2, 3, 9, 8))


def test_filters_are_correlations() -> None:
    kernel, rows, columns = RNG.random((3, 5)), RNG.random(3), RNG.random(5)
    for border, mode in (
        ("reflect", "mirror"),
        ("replicate", "nearest"),
        ("constant", "constant"),
        ("circular", "wrap"),
    ):
        wanted = ndimage.correlate(X, kernel[None, None], mode=mode)
        np.testing.assert_allclose(bc.filter2d(X, kernel, border), wanted, atol=1e-13)
        wanted = ndimage.correlate(X, np.outer(rows, columns)[None, None], mode=mode)
        np.testing.assert_allclose(bc.separable_filter2d(X, rows, columns, border), wanted, atol=1e-13)
    wanted = ndimage.gaussian_filter(X, (0, 0, 1.2, 1.2), mode="mirror", radius=(0, 0, 2, 2))
    np.testing.assert_allclose(bc.gaussian_blur(X, 5, 1.2), wanted, atol=1e-13)
    with pytest.raises(bc.InvalidProblemError, match="odd"):
        bc.gaussian_blur(X, 4)


def test_edges_medians_and_morphology() -> None:
    planes = X.reshape(-1, 9, 8)
    slopes = [np.stack([ndimage.sobel(p, a, mode="nearest") for p in planes]).reshape(X.shape) / 8 for a in (0, 1)]
    np.testing.assert_allclose(bc.sobel(X), np.sqrt(slopes[0] ** 2 + slopes[1] ** 2 + 1e-6), atol=1e-13)
    about = (1, 1, 3, 5)
    np.testing.assert_array_equal(bc.median_blur(X, about[2:]), ndimage.median_filter(X, about, mode="constant"))
    np.testing.assert_array_equal(bc.dilation(X, about[2:]), ndimage.maximum_filter(X, about, mode="nearest"))
    np.testing.assert_array_equal(bc.erosion(X, about[2:]), ndimage.minimum_filter(X, about, mode="nearest"))
    np.testing.assert_array_equal(bc.opening(X, 3), bc.dilation(bc.erosion(X, 3), 3))
    assert (bc.opening(X, 3) <= X).all() and (bc.closing(X, 3) >= X).all()


def test_measures() -> None:
    y = RNG.random(X.shape)
    np.testing.assert_allclose(bc.ssim(X, X, 5), np.ones(X.shape))
    assert bc.ssim(X, y, 5).mean() < 0.5
    wanted = np.einsum("ncij,nckl->nijkl", X, y) / 3**0.5
    np.testing.assert_allclose(bc.correlation_volume(X, y), wanted, atol=1e-13)
    wide = np.pad(y, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = np.stack([(X * wide[:, :, i : i + 9, j : j + 8]).mean(1) for i in range(3) for j in range(3)], 1)
    np.testing.assert_allclose(bc.correlation_cost_volume(X, y, 1), wanted, atol=1e-13)


def test_colours() -> None:
    pixels = RNG.random((3, 4, 4))
    wanted = np.array([colorsys.rgb_to_hsv(*p) for p in pixels.reshape(3, -1).T]).T.reshape(3, 4, 4)
    np.testing.assert_allclose(bc.rgb_to_hsv(pixels), wanted, atol=1e-14)
    np.testing.assert_allclose(bc.hsv_to_rgb(wanted), pixels, atol=1e-14)
    np.testing.assert_allclose(bc.ycbcr_to_rgb(bc.rgb_to_ycbcr(pixels)), pixels, atol=1e-14)
    np.testing.assert_allclose(bc.lab_to_rgb(bc.rgb_to_lab(pixels)), pixels, atol=2e-6)
    red = bc.rgb_to_lab(np.array([1.0, 0, 0]).reshape(3, 1, 1)).ravel()
    np.testing.assert_allclose(red, [53.2408, 80.0925, 67.2032], atol=1e-3)
    gray = np.einsum("c,chw->hw", [0.299, 0.587, 0.114], pixels)[None]
    np.testing.assert_allclose(bc.rgb_to_gray(pixels), gray, atol=1e-14)
    bytes_ = RNG.integers(0, 256, (2, 4, 5, 3)).astype(np.uint8)
    mean, std = np.float32([0.1, 0.2, 0.3]), np.float32([0.4, 0.5, 0.6])
    y = bc.normalize_image(bytes_, mean, std)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, ((bytes_ / 255 - mean) / std).transpose(0, 3, 1, 2), atol=1e-6)
