"""ONNX operators of images and boxes as calls of ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import baracuda_py as bc

from .onnx_node import Node, need

Handler = Callable[[Node], Any]
GRID_MODES = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic",
              "bicubic": "bicubic"}  # fmt: skip


def _grid_sample(n: Node) -> Any:
    mode = GRID_MODES[n.get("mode", "linear")]
    need(mode != "bicubic" or n[0].ndim == 4, "bicubic is for images of two axes")
    return bc.grid_sample(n[0], n[1], mode, n.get("padding_mode", "zeros"), bool(n.get("align_corners", 0)))


def _affine_grid(n: Node) -> Any:
    return bc.affine_grid(n[0], tuple(n[1].tolist()), bool(n.get("align_corners", 0)))


def _roi_align(n: Node) -> Any:
    need(n.get("mode", "avg") == "avg", "the largest of a bin's samples; means alone are there")
    boxes = bc.concat([bc.reshape(bc.cast(n[2], n[1].dtype), (-1, 1)), n[1]], axis=1)
    size = (n.get("output_height", 1), n.get("output_width", 1))
    aligned = n.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    return bc.roi_align(n[0], boxes, size, n.get("spatial_scale", 1.0), n.get("sampling_ratio", 0) or -1, aligned)


def _non_max_suppression(n: Node) -> Any:
    """Class by class of an image: the boxes above the score threshold, at most so many of each."""
    most = 0 if n[2] is None else int(n[2].item())
    threshold, least = (0.0 if n[k] is None else float(n[k].item()) for k in (3, 4))
    rows: list[list[int]] = []
    for image, (boxes, classes) in enumerate(zip(n[0], n[1], strict=True)):
        if n.get("center_point_box", 0):
            corners = bc.box_convert(boxes, "cxcywh", "xyxy")
        else:  # (y, x) of two opposite corners
            low, high = bc.minimum(boxes[:, :2], boxes[:, 2:]), bc.maximum(boxes[:, :2], boxes[:, 2:])
            corners = bc.concat([low, high], axis=1)
        for number, scores in enumerate(classes):
            keep, count = bc.nms(corners, scores, threshold)
            found = [i for i in keep[: int(count)].tolist() if n[4] is None or float(scores[i]) > least]
            rows += [[image, number, i] for i in found[:most]]
    return n.xp.asarray(np.array(rows, np.int64).reshape(-1, 3))


def _resized(n: Node) -> tuple[list[int], list[float], list[int]]:
    """The axes that are resized, how much each is scaled, and their sizes."""
    shape = n[0].shape
    axes = [a % len(shape) for a in n.get("axes", range(len(shape)))]
    if n[2] is not None and n[2].size:
        scales = [float(s) for s in n[2].tolist()]
        return axes, scales, [math.floor(shape[a] * s) for a, s in zip(axes, scales, strict=True)]
    sizes = [int(s) for s in n[3].tolist()]
    scales = [s / shape[a] for a, s in zip(axes, sizes, strict=True)]
    policy = n.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        one = min(scales) if policy == "not_larger" else max(scales)
        scales = [one] * len(axes)
        sizes = [math.floor(shape[a] * one + 0.5) for a in axes]
    return axes, scales, sizes


def _nearest(n: Node, place: str, size: int, step: float) -> dict[str, Any]:
    """The kind that picks the places that the node names."""
    rounding = n.get("nearest_mode", "round_prefer_floor")
    if (place, rounding) == ("asymmetric", "floor"):
        return {"kind": "nearest", "step": step}
    tie = any((o + 0.5) * step % 1 == 0 for o in range(size))
    near = rounding == "round_prefer_ceil" or (rounding == "round_prefer_floor" and not tie)
    need(place == "half_pixel" and near, f"nearest of {place}, {rounding}")
    return {"kind": "nearest_exact", "step": step}


def _resize(n: Node) -> Any:
    """One axis after the other, by the kinds of `interpolated`."""
    mode, place = n.get("mode", "nearest"), n.get("coordinate_transformation_mode", "half_pixel")
    antialias = bool(n.get("antialias", 0))
    need(mode == "nearest" or place in ("half_pixel", "align_corners", "pytorch_half_pixel"), f"{mode} of {place}")
    need(antialias == bool(n.get("exclude_outside", 0)), "a filter's taps outside, repeated or left out")
    coefficient = n.get("cubic_coeff_a", -0.75)
    need(mode != "cubic" or coefficient == (-0.5 if antialias else -0.75), f"cubic of {coefficient}")
    need(not antialias or place == "half_pixel", f"antialias of {place}")
    axes, scales, sizes = _resized(n)
    x = n[0]
    for axis, scale, size in zip(axes, scales, sizes, strict=True):
        if x.shape[axis] == size and scale == 1:
            continue
        if mode == "nearest":
            facts = _nearest(n, place, size, 1 / scale)
        elif antialias:
            facts = {"kind": "triangle" if mode == "linear" else "keys", "antialias": True, "step": 1 / scale}
        else:
            need(place != "pytorch_half_pixel" or size > 1, "one place, which is the first")
            need(place != "align_corners" or scale * x.shape[axis] == size, "a size that is no whole number")
            facts = {"kind": mode} | ({"align_corners": True} if place == "align_corners" else {"step": 1 / scale})
        x = bc.movedim(bc.interpolated(bc.movedim(x, axis, -1), spatial_rank=1, size=size, **facts), -1, axis)
    return bc.copy(x)


IMAGES: dict[str, Handler] = {
    "AffineGrid": _affine_grid,
    "GridSample": _grid_sample,
    "NonMaxSuppression": _non_max_suppression,
    "Resize": _resize,
    "RoiAlign": _roi_align,
}
