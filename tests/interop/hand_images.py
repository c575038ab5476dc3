"""Operands for the functions of images and boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[list[Any], dict[str, Any]]


def _x(*shape: int, seed: int = 0, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def _boxes(count: int, seed: int = 0) -> np.ndarray:
    corners = _x(count, 2, seed=seed)
    return np.concatenate([corners, corners + _x(count, 2, seed=seed + 9, low=0.2)], axis=1)


_THETA = np.float32([[[0.9, 0.1, 0.2], [-0.2, 1.1, 0.1]]])
_ROIS = np.float32([[0, 1, 1, 5, 4], [0, 0, 2, 3, 5]])

IMAGES: dict[str, Callable[[], Call]] = {
    "affine_grid": lambda: ([_THETA, (1, 2, 3, 4)], {}),
    "affine_grid_generator": lambda: ([_THETA, (1, 2, 3, 4), True], {}),
    "batched_nms": lambda: ([_boxes(5), _x(5, seed=3), np.array([0, 1, 0, 1, 0]), 0.3], {}),
    "box_area": lambda: ([_boxes(3)], {}),
    "box_convert": lambda: ([_boxes(3), "xyxy", "cxcywh"], {}),
    **{
        name: lambda: ([_boxes(3), _boxes(2, seed=1)], {})
        for name in ("box_iou", "complete_box_iou", "distance_box_iou", "generalized_box_iou")
    },
    **{
        name: lambda: ([_x(1, 2, 5, 6), 3], {})
        for name in ("closing", "dilation", "erosion", "opening", "median_blur", "gaussian_blur")
    },
    "connected_components": lambda: ([_x(2, 5, 6) < 0.4, 8], {"compact": True}),
    "correlation_cost_volume": lambda: ([_x(1, 2, 4, 5), _x(1, 2, 4, 5, seed=1), 1], {}),
    "correlation_volume": lambda: ([_x(1, 2, 3, 4), _x(1, 2, 2, 3, seed=1)], {}),
    "deform_conv2d": lambda: (
        [_x(1, 2, 4, 5), _x(1, 8, 3, 4, seed=1, low=-0.4, high=0.4), _x(3, 2, 2, 2, seed=2)], {}
    ),
    "distance_transform": lambda: ([_x(2, 5, 6) < 0.9, (0.5, 1.0)], {"return_indices": True}),
    "drop_block2d": lambda: ([_x(2, 2, 6, 5), 0.5, 2], {"seed": 3}),
    "drop_block3d": lambda: ([_x(1, 2, 4, 6, 5), 0.5, 2], {"seed": 3}),
    "filter2d": lambda: ([_x(1, 2, 5, 6), _x(3, 3, seed=1)], {}),
    **{
        f"fractional_max_pool2d{end}": lambda: ([_x(1, 2, 6, 5), 2, (3, 2)], {"samples": _x(1, 2, 2, seed=1)})
        for end in ("", "_with_indices")
    },
    **{
        f"fractional_max_pool3d{end}": lambda: ([_x(1, 2, 4, 6, 5), 2, (2, 3, 2)], {"samples": _x(1, 2, 3, seed=1)})
        for end in ("", "_with_indices")
    },
    "grid_sample": lambda: ([_x(1, 2, 4, 5), _x(1, 2, 3, 2, seed=1, low=-0.9, high=0.9)], {}),
    "grid_sampler": lambda: ([_x(1, 2, 4, 5), _x(1, 2, 3, 2, seed=1, low=-0.9, high=0.9), 0, 0, False], {}),
    "grid_sampler_2d": lambda: ([_x(1, 2, 4, 5), _x(1, 2, 3, 2, seed=1, low=-0.9, high=0.9), 0, 0, False], {}),
    "grid_sampler_3d": lambda: ([_x(1, 2, 3, 4, 5), _x(1, 2, 3, 1, 3, seed=1, low=-0.9, high=0.9), 0, 0, True], {}),
    "interpolate": lambda: ([_x(1, 2, 4, 5)], {"scale_factor": 1.5, "mode": "bilinear"}),
    "map_coordinates": lambda: ([_x(4, 5), [_x(3, seed=1, high=3.0), _x(3, seed=2, high=4.0)], 1], {"mode": "nearest"}),
    "masks_to_boxes": lambda: ([_x(2, 4, 5) < 0.3], {}),
    "ms_deformable_attention": lambda: (
        [_x(1, 10, 2, 3), [(2, 3), (2, 2)], _x(1, 2, 2, 2, 2, 2, seed=1), _x(1, 2, 2, 2, 2, seed=2)], {}
    ),
    "nms": lambda: ([_boxes(5), _x(5, seed=3), 0.3], {}),
    "normalize_image": lambda: (
        [np.arange(24, dtype=np.uint8).reshape(2, 4, 3), _x(3, seed=1), _x(3, seed=2, low=0.5)], {}
    ),
    "ps_roi_align": lambda: ([_x(1, 8, 5, 6), _ROIS, 2], {}),
    "ps_roi_pool": lambda: ([_x(1, 8, 5, 6), _ROIS, 2], {}),
    "remap": lambda: ([_x(1, 2, 4, 5), _x(1, 2, 3, seed=1, high=3.9), _x(1, 2, 3, seed=2, high=2.9)], {}),
    "resize_image": lambda: ([_x(2, 4, 5), (2, 3, 7), "linear"], {}),
    "roi_align": lambda: ([_x(1, 2, 5, 6), _ROIS, 2], {"sampling_ratio": 2}),
    "roi_pool": lambda: ([_x(1, 2, 5, 6), _ROIS, 2], {}),
    "scale_and_translate": lambda: ([_x(4, 5), (3, 5), (0, 1), (0.7, 1.2), (0.4, -0.6), "cubic"], {}),
    "separable_filter2d": lambda: ([_x(1, 2, 5, 6), _x(3, seed=1), _x(3, seed=2)], {}),
    "sobel": lambda: ([_x(1, 2, 5, 6)], {}),
    "soft_nms": lambda: ([_boxes(5), _x(5, seed=3), 0.3], {}),
    "ssim": lambda: ([_x(1, 2, 6, 6), _x(1, 2, 6, 6, seed=1), 5], {}),
    "upsample": lambda: ([_x(1, 2, 3, 4)], {"scale_factor": 2.0}),
    "upsample_bilinear": lambda: ([_x(1, 2, 3, 4)], {"scale_factor": 2.0}),
    "upsample_nearest": lambda: ([_x(1, 2, 3, 4)], {"size": (6, 5)}),
    "warp_affine": lambda: ([_x(1, 2, 4, 5), np.float32([[[1.1, 0.2, 0.3], [0.1, 0.9, 0.4]]]), (3, 4)], {}),
    "warp_perspective": lambda: (
        [_x(1, 2, 4, 5), np.float32([[[1.1, 0.2, 0.3], [0.1, 0.9, 0.4], [0.01, 0.02, 1.0]]]), (3, 4)], {}
    ),
    **{
        name: lambda: ([_x(3, 4, 5, low=0.1, high=0.9)], {})
        for name in (
            "hsv_to_rgb", "lab_to_rgb", "rgb_to_gray", "rgb_to_hsv", "rgb_to_lab", "rgb_to_ycbcr", "ycbcr_to_rgb",
        )
    },
}  # fmt: skip
