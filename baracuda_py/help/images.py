"""Examples of the functions of images and boxes: rows of `TABLE`."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_X = f"{_RNG}x = rng.random((1, 3, 6, 8), dtype=np.float32)\n"
_BOXES = f"""{_RNG}corners, sizes = rng.random((2, 5, 2), dtype=np.float32)
boxes = np.concatenate([corners, corners + sizes], axis=1)
"""
_GRID = f"{_X}grid = rng.uniform(-1.0, 1.0, (1, 4, 5, 2)).astype(np.float32)\n"
_PAIR = f"{_RNG}a, b = rng.random((2, 1, 3, 12, 12), dtype=np.float32)\n"
_AFFINE = f"{_X}m = np.float32([[[1, 0, 2], [0, 1, 1]]])\n"

IMAGES: dict[str, str] = {
    "affine_grid": "theta = np.float32([[[1, 0, 0], [0, 1, 0]]])\ngrid = bc.affine_grid(theta, (1, 3, 4, 5))",
    "affine_grid_generator": """theta = np.float32([[[1, 0, 0], [0, 1, 0]]])
grid = bc.affine_grid_generator(theta, (1, 3, 4, 5), False)""",
    "batched_nms": f"""{_BOXES}scores = rng.random(5, dtype=np.float32)
keep, count = bc.batched_nms(boxes, scores, np.array([0, 1, 0, 1, 0]), 0.5)""",
    "box_area": f"{_BOXES}y = bc.box_area(boxes)",
    "box_convert": f'{_BOXES}y = bc.box_convert(boxes, "xyxy", "cxcywh")',
    **{
        name: f"{_BOXES}y = bc.{name}(boxes, boxes[:2])"
        for name in ("box_iou", "complete_box_iou", "distance_box_iou", "generalized_box_iou")
    },
    **{name: f"{_X}y = bc.{name}(x, 3)" for name in ("closing", "dilation", "erosion", "opening", "median_blur")},
    "connected_components": f"{_RNG}labels = bc.connected_components(rng.random((6, 8)) < 0.5, 8, compact=True)",
    "correlation_cost_volume": f"{_PAIR}y = bc.correlation_cost_volume(a, b, 2)",
    "correlation_volume": f"{_PAIR}y = bc.correlation_volume(a, b)",
    "deform_conv2d": f"""{_X}weight = rng.standard_normal((4, 3, 3, 3), dtype=np.float32)
offset = rng.standard_normal((1, 18, 4, 6), dtype=np.float32)
y = bc.deform_conv2d(x, offset, weight)""",
    "distance_transform": f"{_RNG}y = bc.distance_transform(rng.random((6, 8)) < 0.9, (0.5, 1.0))",
    "drop_block2d": f"{_X}y = bc.drop_block2d(x, 0.2, block_size=3, seed=7)",
    "drop_block3d": f"{_RNG}x = rng.random((1, 2, 4, 6, 8), dtype=np.float32)\ny = bc.drop_block3d(x, 0.2, seed=7)",
    "filter2d": f"{_X}y = bc.filter2d(x, np.full((3, 3), 1 / 9, np.float32))",
    **{
        f"fractional_max_pool2d{end}": f"""{_X}samples = rng.random((1, 3, 2), dtype=np.float32)
{made} = bc.fractional_max_pool2d{end}(x, 2, (3, 4), samples=samples)"""
        for end, made in (("", "y"), ("_with_indices", "y, indices"))
    },
    **{
        f"fractional_max_pool3d{end}": f"""{_RNG}x = rng.random((1, 2, 4, 6, 8), dtype=np.float32)
samples = rng.random((1, 2, 3), dtype=np.float32)
{made} = bc.fractional_max_pool3d{end}(x, 2, (2, 3, 4), samples=samples)"""
        for end, made in (("", "y"), ("_with_indices", "y, indices"))
    },
    "gaussian_blur": f"{_X}y = bc.gaussian_blur(x, 5, 1.2)",
    "grid_sample": f'{_GRID}y = bc.grid_sample(x, grid, padding_mode="border")',
    "grid_sampler": f"{_GRID}y = bc.grid_sampler(x, grid, 0, 0, False)",
    "grid_sampler_2d": f"{_GRID}y = bc.grid_sampler_2d(x, grid, 0, 0, False)",
    "grid_sampler_3d": f"""{_RNG}x = rng.random((1, 2, 4, 6, 8), dtype=np.float32)
grid = rng.uniform(-1.0, 1.0, (1, 2, 4, 5, 3)).astype(np.float32)
y = bc.grid_sampler_3d(x, grid, 0, 0, False)""",
    "interpolate": f'{_X}y = bc.interpolate(x, scale_factor=2.0, mode="bilinear")',
    "map_coordinates": f"""{_RNG}x = rng.random((6, 8), dtype=np.float32)
rows, columns = rng.uniform(0.0, 6.0, (2, 10)).astype(np.float32)
y = bc.map_coordinates(x, [rows, columns], order=1, mode="nearest")""",
    "masks_to_boxes": f"{_RNG}masks = rng.random((2, 6, 8)) < 0.1\nboxes = bc.masks_to_boxes(masks)",
    "ms_deformable_attention": f"""{_RNG}value = rng.random((1, 26, 2, 4), dtype=np.float32)
places = rng.random((1, 3, 2, 2, 4, 2), dtype=np.float32)
weights = rng.random((1, 3, 2, 2, 4), dtype=np.float32)
y = bc.ms_deformable_attention(value, [(4, 5), (2, 3)], places, weights)""",
    "nms": f"{_BOXES}scores = rng.random(5, dtype=np.float32)\nkeep, count = bc.nms(boxes, scores, 0.5)",
    "normalize_image": f"""{_RNG}x = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
y = bc.normalize_image(x, mean, std)""",
    "ps_roi_align": f"""{_RNG}x = rng.random((1, 8, 6, 8), dtype=np.float32)
y = bc.ps_roi_align(x, np.float32([[0, 1, 1, 6, 5]]), 2)""",
    "ps_roi_pool": f"""{_RNG}x = rng.random((1, 8, 6, 8), dtype=np.float32)
y = bc.ps_roi_pool(x, np.float32([[0, 1, 1, 6, 5]]), 2)""",
    "remap": f"""{_X}map_x, map_y = rng.uniform(0.0, 5.0, (2, 1, 4, 5)).astype(np.float32)
y = bc.remap(x, map_x, map_y)""",
    "resize_image": f'{_X}y = bc.resize_image(x, (1, 3, 3, 4), "cubic")',
    "roi_align": f"{_X}y = bc.roi_align(x, np.float32([[0, 1, 1, 6, 5]]), 2, sampling_ratio=2, aligned=True)",
    "roi_pool": f"{_X}y, argmax = bc.roi_pool(x, np.float32([[0, 1, 1, 6, 5]]), 2, return_argmax=True)",
    "roi_pool_backward": f"""{_X}rois = np.float32([[0, 1, 1, 6, 5]])
y, argmax = bc.roi_pool(x, rois, 2, return_argmax=True)
dx = bc.roi_pool_backward(np.ones_like(y), rois, argmax, batch=1, height=6, width=8)""",
    "scale_and_translate": f"""{_RNG}x = rng.random((6, 8), dtype=np.float32)
y = bc.scale_and_translate(x, (4, 8), (0, 1), (0.5, 1.0), (0.0, 2.0), "linear")""",
    "separable_filter2d": f"""{_X}kernel = np.float32([1, 2, 1]) / 4
y = bc.separable_filter2d(x, kernel, kernel)""",
    "sobel": f"{_X}y = bc.sobel(x)",
    "soft_nms": f"""{_BOXES}scores = rng.random(5, dtype=np.float32)
keep, kept_scores, count = bc.soft_nms(boxes, scores, method="gaussian", sigma=0.5)""",
    "ssim": f"{_PAIR}y = bc.ssim(a, b, window_size=5)",
    "upsample": f'{_X}y = bc.upsample(x, scale_factor=2, mode="nearest")',
    "upsample_bilinear": f"{_X}y = bc.upsample_bilinear(x, scale_factor=2)",
    "upsample_nearest": f"{_X}y = bc.upsample_nearest(x, size=(12, 16))",
    "warp_affine": f"{_AFFINE}y = bc.warp_affine(x, m, (6, 8))",
    "warp_perspective": f"""{_X}m = np.float32([[[1, 0, 2], [0, 1, 1], [0, 0.01, 1]]])
y = bc.warp_perspective(x, m, (6, 8))""",
    **{
        name: f"{_X}y = bc.{name}(x)"
        for name in (
            "hsv_to_rgb", "lab_to_rgb", "rgb_to_gray", "rgb_to_hsv", "rgb_to_lab", "rgb_to_ycbcr", "ycbcr_to_rgb",
        )
    },
}  # fmt: skip
