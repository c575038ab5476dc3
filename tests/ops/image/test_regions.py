"""roi_pool, ps_roi_pool and soft_nms against loops that follow torchvision's and the paper's text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc


def rounded(c: float) -> int:
    return int(math.copysign(math.floor(abs(c) + 0.5), c))


def clipped(value: int, limit: int) -> int:
    return min(max(value, 0), limit)


def bins(corners: Any, size: Any, places: Any, scale: float, closed: bool) -> Any:
    """torchvision's loop over the bins of a region: (i, j, rows, columns)."""
    x1, y1, x2, y2 = (rounded(scale * c) for c in corners)
    height, width = (max(b - a + closed, 1) for a, b in ((y1, y2), (x1, x2)))
    for i, j in np.ndindex(*size):
        ends = []
        for at, start, long, many, limit in ((i, y1, height, size[0], places[0]), (j, x1, width, size[1], places[1])):
            low, high = (at * long) // many, -((-(at + 1) * long) // many)
            ends.append(slice(*(clipped(e + start, limit - (not closed)) for e in (low, high))))
        yield i, j, *ends


ROIS = np.array([
    [0, 1.5, 2.5, 9.4, 11.6], [1, 0, 0, 15, 13], [1, -4.5, -3, 6, 2.5], [0, 8, 8, 8, 8], [0, 7, 9, 3, 4],
    [1, 30, 30, 40, 44], [2, 0, 0, 4, 4], [-1, 0, 0, 4, 4], [0, np.nan, 0, 4, 4], [0, 0, 0, np.inf, 4],
])  # fmt: skip


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 7)])
def test_roi_pool_is_torchvisions_loop(size: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 8))
    y, argmax = bc.roi_pool(x, ROIS, size, 0.5, return_argmax=True)
    np.testing.assert_array_equal(bc.roi_pool(x, ROIS, size, 0.5), y)
    for k, (image, *corners) in enumerate(ROIS):
        if k >= 6:
            assert (y[k] == 0).all()
            assert (argmax[k] == -1).all()
            continue
        for i, j, rows, columns in bins(corners, size, x.shape[2:], 0.5, True):
            part = x[int(image), :, rows, columns]
            wanted = part.max((1, 2)) if part.size else np.zeros(3)
            np.testing.assert_array_equal(y[k, :, i, j], wanted)
            if part.size:
                own = x[int(image)].reshape(3, -1)[np.arange(3), argmax[k, :, i, j]]
                np.testing.assert_array_equal(own, wanted)
            else:
                assert (argmax[k, :, i, j] == -1).all()


@pytest.mark.parametrize("size", [(1, 1), (2, 3)])
def test_ps_roi_pool_is_torchvisions_loop(size: tuple[int, int]) -> None:
    rows_of, columns_of = size
    x = np.random.default_rng(0).standard_normal((2, 2 * rows_of * columns_of, 7, 8))
    y = bc.ps_roi_pool(x, ROIS, size, 0.5)
    assert y.shape == (len(ROIS), 2, *size)
    for k, (image, *corners) in enumerate(ROIS[:6]):
        for i, j, rows, columns in bins(corners, size, x.shape[2:], 0.5, False):
            for c in range(2):
                part = x[int(image), (c * rows_of + i) * columns_of + j, rows, columns]
                assert y[k, c, i, j] == pytest.approx(part.mean() if part.size else 0.0, abs=1e-14)
    assert (y[6:] == 0).all()


def test_of_equal_elements_and_of_nan_the_first_counts() -> None:
    x = np.zeros((1, 1, 3, 4), np.float32)
    region = np.float32([[0, 0, 0, 3, 2]])
    assert bc.roi_pool(x, region, 1, return_argmax=True)[1].item() == 0
    x[0, 0, 1, 2] = 5
    x[0, 0, 2, 0] = 5
    assert bc.roi_pool(x, region, 1, return_argmax=True)[1].item() == 6
    x[0, 0, 1, 3] = x[0, 0, 2, 1] = np.nan
    y, argmax = bc.roi_pool(x, region, 1, return_argmax=True)
    assert np.isnan(y.item())
    assert argmax.item() == 7
    x[:] = -np.inf
    y, argmax = bc.roi_pool(x, region, 1, return_argmax=True)
    assert (y.item(), argmax.item()) == (-np.inf, 0)


def test_gradients_by_differences() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor([[0.0, 0, 0, 5, 4], [1, 1, 1, 3, 4], [1, 2, 0, 5, 2], [0, 4, 4, 2, 2]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: bc.roi_pool(x, rois, 2), (x,))
    assert torch.autograd.gradcheck(lambda x: bc.roi_pool(x, rois, (3, 2), 0.5), (x,))
    assert torch.autograd.gradcheck(lambda x: bc.ps_roi_pool(x, rois, 2), (x,))


def test_a_list_of_boxes_and_wrong_channels() -> None:
    x = np.random.default_rng(0).standard_normal((2, 12, 6, 7)).astype(np.float32)
    lists = [np.float32([[0, 0, 3, 3], [1, 1, 5, 4]]), np.float32([[2, 0, 6, 5]])]
    rois = np.concatenate([np.float32([[0], [0], [1]]), np.concatenate(lists)], 1)
    np.testing.assert_array_equal(bc.roi_pool(x, lists, 2), bc.roi_pool(x, rois, 2))
    np.testing.assert_array_equal(bc.ps_roi_pool(x, lists, 2), bc.ps_roi_pool(x, rois, 2))
    with pytest.raises(bc.InvalidProblemError, match="multiple of the 25 bins"):
        bc.ps_roi_pool(x, rois, 5)


def overlap(a: Any, b: Any) -> float:
    width, height = (max(0.0, min(a[2 + i], b[2 + i]) - max(a[i], b[i])) for i in (0, 1))
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / both


@pytest.mark.parametrize("method", ["linear", "gaussian"])
@pytest.mark.parametrize("count", [0, 1, 7, 60])
@pytest.mark.parametrize("grouped", [False, True])
def test_soft_nms_is_the_papers_loop(method: str, count: int, grouped: bool) -> None:
    rng = np.random.default_rng(count)
    corners, sizes = rng.random((2, count, 2))
    boxes, scores = np.concatenate([corners, corners + sizes], 1), np.round(rng.random(count), 1)
    groups = rng.integers(0, 2, count) if grouped else None
    left, kept = dict(enumerate(scores)), []
    while left := {i: s for i, s in left.items() if s >= 0.05}:
        best = max(left, key=lambda i: (left[i], -i))
        kept.append((best, left.pop(best)))
        for i in left:
            iou = overlap(boxes[best], boxes[i])
            if groups is not None and groups[best] != groups[i]:
                continue
            if method == "gaussian":
                left[i] *= math.exp(-(iou**2) / 0.4)
            elif iou > 0.2:
                left[i] *= 1 - iou
    keep, found, n = bc.soft_nms(
        boxes, scores, 0.2, method=method, sigma=0.4, score_threshold=0.05, groups=groups
    )  # fmt: skip
    assert keep[: int(n)].tolist() == [i for i, _ in kept]
    np.testing.assert_allclose(found[: int(n)], [s for _, s in kept], rtol=1e-12)
    assert (keep[int(n) :] == -1).all()
    assert (found[int(n) :] == 0).all()


def test_soft_nms_drops_nan_and_says_what_methods_there_are() -> None:
    boxes = np.float32([[0, 0, 1, 1], [0, 0, 1, 1], [4, 4, 4, 4], [4, 4, 4, 4]])
    keep, scores, n = bc.soft_nms(boxes, np.float32([np.nan, 0.5, 0.25, 0.25]))
    assert keep.tolist() == [1, 2, 3, -1]
    assert scores.tolist() == [0.5, 0.25, 0.25, 0.0]
    assert int(n) == 3
    with pytest.raises(bc.InvalidProblemError, match="linear"):
        bc.soft_nms(boxes, np.float32([1, 1, 1, 1]), method="hard")
