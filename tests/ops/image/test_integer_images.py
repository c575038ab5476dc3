"""Images of integers: rounded once, halves to even, within the element; exact where no sum is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

ELEMENTS = ("uint8", "int8", "uint16", "int16", "int32")
M = np.array([[[1.1, 0.2, 0.3], [0.1, 0.9, 0.4]]])
RNG = np.random.default_rng(0)
MAPS = RNG.uniform(0, 5, (2, 1, 4, 5))
FILTER = RNG.standard_normal((3, 3))
CALLS: dict[str, Any] = {
    "bilinear": lambda x, to: bc.interpolate(x, size=(9, 5), mode="bilinear"),
    "bicubic": lambda x, to: bc.interpolate(x, size=(9, 13), mode="bicubic"),
    "antialias": lambda x, to: bc.interpolate(x, size=(4, 3), mode="bicubic", antialias=True),
    "area": lambda x, to: bc.interpolate(x, size=(4, 3), mode="area"),
    "nearest": lambda x, to: bc.interpolate(x, scale_factor=2.0),
    "blur": lambda x, to: bc.gaussian_blur(x, 3),
    "filter": lambda x, to: bc.filter2d(x, FILTER.astype(to)),
    "separable": lambda x, to: bc.separable_filter2d(x, FILTER[0].astype(to), FILTER[1].astype(to), "constant"),
    "median": lambda x, to: bc.median_blur(x, 3, "replicate"),
    "dilation": lambda x, to: bc.dilation(x, 3),
    "erosion": lambda x, to: bc.erosion(x, (3, 1)),
    "opening": lambda x, to: bc.opening(x, 3),
    "closing": lambda x, to: bc.closing(x, 3),
    "affine": lambda x, to: bc.warp_affine(x, M.astype(to), (5, 6)),
    "remap": lambda x, to: bc.remap(x, MAPS[0].astype(to), MAPS[1].astype(to)),
}


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", list(CALLS))
def test_rounded_once_within_the_element(name: str, element: str) -> None:
    limits = np.iinfo(element)
    x = RNG.integers(limits.min, limits.max, (1, 2, 6, 7), endpoint=True).astype(element)
    y = CALLS[name](x, "float64" if element == "int32" else "float32")
    wanted = CALLS[name](x.astype(np.float64), "float64")
    assert y.dtype == element
    near = 0.5 + (1e-3 if limits.bits < 32 else 0) + np.abs(wanted) * 1e-6
    assert (np.abs(y.astype(np.float64) - wanted.clip(limits.min, limits.max)) <= near).all()
    if name in ("nearest", "median", "dilation", "erosion", "opening", "closing"):
        np.testing.assert_array_equal(y, wanted)


def test_halves_go_to_even_and_sums_stay_within() -> None:
    x = np.array([[[[1, 2, 5, 0]]]], np.uint8)
    assert bc.interpolate(x, size=(1, 2), mode="area").tolist() == [[[[2, 2]]]]
    sharp = bc.filter2d(np.array([[[[0, 255, 0]]]], np.uint8), np.float32([[-1, 3, -1]]), "constant")
    assert sharp.tolist() == [[[[0, 255, 0]]]]


def test_out_and_torch() -> None:
    x = RNG.integers(0, 256, (2, 3, 8, 9)).astype(np.uint8)
    out = np.zeros((2, 3, 5, 6), np.uint8)
    assert bc.interpolate(x, size=(5, 6), mode="bilinear", antialias=True, out=out) is out
    torch = pytest.importorskip("torch")
    for facts in (
        {"mode": "bilinear"},
        {"mode": "bilinear", "antialias": True},
        {"mode": "bicubic", "antialias": True},
    ):
        theirs = torch.nn.functional.interpolate(torch.tensor(x), size=(5, 6), **facts).numpy()
        ours = bc.interpolate(x, size=(5, 6), **facts)
        assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1


def test_what_is_not_served_says_the_cast() -> None:
    x = RNG.integers(0, 256, (2, 3, 8, 9)).astype(np.uint8)
    for call in (
        lambda: bc.sobel(x),
        lambda: bc.rgb_to_hsv(x),
        lambda: bc.interpolate(x.astype(np.int64), size=(4, 4)),
    ):
        with pytest.raises(bc.UnsupportedError, match=r"cast\(x, 'float32'\)"):
            call()
