"""Layers of networks that benchmarks of convolutions take."""

from __future__ import annotations

from typing import Any

PROBLEMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ResNet-50 3 × 3", {"shape": (64, 128, 28, 28), "filter_shape": (128, 128, 3, 3), "padding": 1}),
    ("ResNet-50 1 × 1", {"shape": (64, 256, 56, 56), "filter_shape": (64, 256, 1, 1)}),
    ("ResNet-50 stem", {"shape": (64, 3, 224, 224), "filter_shape": (64, 3, 7, 7), "stride": 2, "padding": 3}),
    ("UNet 3 × 3", {"shape": (8, 320, 64, 64), "filter_shape": (320, 320, 3, 3), "padding": 1}),
    ("VAE 3 × 3 × 3", {"shape": (1, 128, 8, 64, 64), "filter_shape": (128, 128, 3, 3, 3), "padding": 1}),
    ("ConvNeXt depthwise 7 × 7", {"shape": (64, 96, 56, 56), "filter_shape": (96, 1, 7, 7), "padding": 3,
                                  "groups": 96}),
    ("ResNet-50 3 × 3 stride 2", {"shape": (64, 128, 56, 56), "filter_shape": (128, 128, 3, 3), "stride": 2,
                                  "padding": 1}),
    ("MobileNet depthwise 3 × 3 stride 2", {"shape": (64, 96, 112, 112), "filter_shape": (96, 1, 3, 3), "stride": 2,
                                            "padding": 1, "groups": 96}),
    ("UNet 3 × 3, 640 channels", {"shape": (8, 640, 32, 32), "filter_shape": (640, 640, 3, 3), "padding": 1}),
    ("UNet 3 × 3, 1280 channels", {"shape": (8, 1280, 16, 16), "filter_shape": (1280, 1280, 3, 3), "padding": 1}),
    ("UNet upsampling 2 × 2", {"shape": (8, 512, 32, 32), "filter_shape": (512, 256, 2, 2), "input_dilation": 2,
                               "padding": 1, "transposed": True}),
)  # fmt: skip
