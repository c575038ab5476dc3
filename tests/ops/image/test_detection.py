"""roi_align, nms and boxes against formulas written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc


def boxes(count: int, seed: int = 0, size: float = 1.0) -> np.ndarray:
    corners, sizes = np.random.default_rng(seed).random((2, count, 2)) * size
    return np.concatenate([corners, corners + sizes], axis=1)


def overlap(a: Any, b: Any) -> float:
    width, height = (max(0.0, min(a[2 + i], b[2 + i]) - max(a[i], b[i])) for i in (0, 1))
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / both


def bilinear(x: Any, y: float, c: float) -> Any:
    h, w = x.shape[-2:]
    if not (-1 <= y <= h and -1 <= c <= w):
        return np.zeros(x.shape[:-2])
    y, c = min(max(y, 0), h - 1), min(max(c, 0), w - 1)
    i, j = min(int(y), max(h - 2, 0)), min(int(c), max(w - 2, 0))
    u, v, k, m = y - i, c - j, min(i + 1, h - 1), min(j + 1, w - 1)
    return (1 - u) * ((1 - v) * x[..., i, j] + v * x[..., i, m]) + u * ((1 - v) * x[..., k, j] + v * x[..., k, m])


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
def test_roi_align_samples_as_torchvision(aligned: bool, ratio: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 6, 7))
    rois = np.concatenate([np.array([[0.0], [1.0], [1.0]]), boxes(3, 1, 9.0)], 1)
    y = bc.roi_align(x, rois, (2, 3), 0.5, ratio, aligned)
    for k, (image, *corners) in enumerate(rois):
        x1, y1, x2, y2 = (0.5 * c - (0.5 if aligned else 0) for c in corners)
        height, width = y2 - y1, x2 - x1
        if not aligned:
            height, width = max(height, 1.0), max(width, 1.0)
        ny, nx = (ratio, ratio) if ratio > 0 else (math.ceil(height / 2), math.ceil(width / 3))
        for i, j in np.ndindex(2, 3):
            parts = [
                bilinear(x[int(image)], y1 + height / 2 * (i + (a + 0.5) / ny), x1 + width / 3 * (j + (b + 0.5) / nx))
                for a in range(ny) for b in range(nx)
            ]  # fmt: skip
            np.testing.assert_allclose(y[k, :, i, j], np.mean(parts, 0), atol=1e-12)


def test_roi_align_has_a_gradient_by_differences() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(2, 4, 3, 4, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor(np.concatenate([np.array([[0.0], [1.0], [1.0]]), boxes(3, 1, 3.0)], 1))
    assert torch.autograd.gradcheck(lambda x: bc.roi_align(x, rois, 2, sampling_ratio=2, aligned=True), (x,))
    assert torch.autograd.gradcheck(lambda x: bc.ps_roi_align(x, rois, 2), (x,))


def test_a_list_of_boxes_is_numbered_and_bins_read_their_channels() -> None:
    x = np.random.default_rng(0).standard_normal((2, 12, 6, 7)).astype(np.float32)
    lists = [boxes(2, 1, 5.0).astype(np.float32), boxes(1, 2, 5.0).astype(np.float32)]
    rois = np.concatenate([np.float32([[0], [0], [1]]), np.concatenate(lists)], 1)
    np.testing.assert_array_equal(bc.roi_align(x, lists, 2), bc.roi_align(x, rois, 2))
    whole, own = bc.roi_align(x, rois, 2, aligned=True), bc.ps_roi_align(x, rois, 2)
    for c, i, j in np.ndindex(3, 2, 2):
        np.testing.assert_array_equal(own[:, c, i, j], whole[:, 4 * c + 2 * i + j, i, j])


def test_regions_that_are_no_place_give_zero() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    rois = np.float32([[1, 0, 0, 2, 2], [0, np.nan, 0, 2, 2], [0, 0, 0, np.inf, 2], [0, 0, 0, 2, 2], [-1, 0, 0, 2, 2]])
    assert bc.roi_align(x, rois, 1)[:, 0, 0, 0].tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("count", [0, 1, 7, 90])
def test_nms_is_the_greedy_loop(count: int) -> None:
    rng = np.random.default_rng(count)
    own = boxes(count, count)
    scores = np.round(rng.random(count), 1)  # ties: the lowest index is the better
    groups = rng.integers(0, 2, count)
    for given in (None, groups):
        order, kept = sorted(range(count), key=lambda i: (-scores[i], i)), []
        for i in order:
            same = [j for j in kept if given is None or given[i] == given[j]]
            if all(overlap(own[j], own[i]) <= 0.3 for j in same):
                kept.append(i)
        found, n = bc.nms(own, scores, 0.3) if given is None else bc.batched_nms(own, scores, given, 0.3)
        assert found[: int(n)].tolist() == kept
        assert (found[int(n) :] == -1).all()


def test_boxes_against_formulas() -> None:
    a, b = boxes(4), boxes(3, 5)
    plain, hull, far, full = (
        getattr(bc, f"{name}box_iou")(a, b) for name in ("", "generalized_", "distance_", "complete_")
    )
    for i, p in enumerate(a):
        for j, q in enumerate(b):
            iou = overlap(p, q)
            union = ((p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1])) / (1 + iou)
            wide, high = max(p[2], q[2]) - min(p[0], q[0]), max(p[3], q[3]) - min(p[1], q[1])
            gap = ((p[0] + p[2] - q[0] - q[2]) / 2) ** 2 + ((p[1] + p[3] - q[1] - q[3]) / 2) ** 2
            distance = iou - gap / (wide**2 + high**2 + 1e-7)
            turn = math.atan((p[2] - p[0]) / (p[3] - p[1])) - math.atan((q[2] - q[0]) / (q[3] - q[1]))
            v = 4 / math.pi**2 * turn**2
            wanted = (
                iou,
                iou - (wide * high - union) / (wide * high),
                distance,
                distance - v * v / (1 - iou + v + 1e-7),
            )
            found = (plain[i, j], hull[i, j], far[i, j], full[i, j])
            np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("name", ["box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou"])
@pytest.mark.parametrize("kinds", [("int32", "int32"), ("int64", "float32"), ("float32", "uint8")])
def test_boxes_of_integers_are_taken_as_float32(name: str, kinds: tuple[str, str]) -> None:
    a, b = np.array([[0, 0, 4, 4], [1, 1, 3, 5]]), np.array([[2, 2, 6, 6], [0, 0, 1, 1], [1, 1, 3, 5]])
    y = getattr(bc, name)(*(one.astype(kind) for one, kind in zip((a, b), kinds, strict=True)))
    assert y.dtype == np.float32
    assert np.array_equal(y, getattr(bc, name)(a.astype(np.float32), b.astype(np.float32)))


def test_forms_of_boxes_come_back() -> None:
    a = boxes(4)
    forms = ("xyxy", "xywh", "cxcywh")
    for one in forms:
        for other in forms:
            there = bc.box_convert(bc.box_convert(a, "xyxy", one), one, other)
            np.testing.assert_allclose(bc.box_convert(there, other, "xyxy"), a, atol=1e-14)
    masks = np.zeros((3, 4, 5), bool)
    masks[0, 1:3, 2:4] = masks[1, 3, 0] = True
    assert bc.masks_to_boxes(masks).tolist() == [[2, 1, 3, 2], [0, 3, 0, 3], [0, 0, 0, 0]]
