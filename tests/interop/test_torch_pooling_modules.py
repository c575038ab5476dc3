"""Pools and resizing modules of `baracuda_py.torch.nn` beside torch's own: values, gradients, keywords, repr."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from baracuda_py.torch import nn  # noqa: E402

F64 = torch.float64
SHAPES = {1: (2, 3, 13), 2: (2, 3, 9, 11), 3: (2, 2, 7, 8, 9)}


def compared(name: str, facts: dict[str, Any], *inputs: Any) -> None:
    """Values, and gradients of inputs of floats, are torch's; so are repr and state_dict."""
    results = []
    for package in (nn, torch.nn):
        torch.manual_seed(3)
        module = getattr(package, name)(**facts)
        given = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        made = module(*given)
        y = made[0] if isinstance(made, tuple) else made
        weights = torch.linspace(0.5, 2, y.numel(), dtype=F64).reshape(y.shape)
        leaves = [x for x in given if x.requires_grad]
        gradients = torch.autograd.grad((y * weights).sum(), leaves)
        results.append([*(made if isinstance(made, tuple) else (made,)), *gradients])
        assert repr(module) == repr(getattr(torch.nn, name)(**facts))
        assert not module.state_dict()
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


def images(rank: int, batch: bool = True) -> Any:
    x = torch.randn(SHAPES[rank], dtype=F64, generator=torch.Generator().manual_seed(7))
    return x if batch else x[0]


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools(rank: int, batch: bool) -> None:
    x = images(rank, batch)
    shared: tuple[dict[str, Any], ...] = (
        {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    )  # fmt: skip
    for facts in shared:
        compared(f"MaxPool{rank}d", facts, x)
        compared(f"MaxPool{rank}d", facts | {"dilation": 2, "return_indices": True}, x)
        compared(f"AvgPool{rank}d", facts, x)
        compared(f"AvgPool{rank}d", facts | {"count_include_pad": False}, x)
        if rank > 1:
            compared(f"AvgPool{rank}d", facts | {"divisor_override": 5}, x)
        few = {k: v for k, v in facts.items() if k in ("kernel_size", "stride")}
        for norm_type in (2, 3.5):
            compared(f"LPPool{rank}d", few | {"norm_type": norm_type}, x.abs() + 0.1)
    for size in (1, 4, *([(None,) * (rank - 1) + (3,)] if rank > 1 else [])):
        compared(f"AdaptiveAvgPool{rank}d", {"output_size": size}, x)
        for indices in (False, True):
            compared(f"AdaptiveMaxPool{rank}d", {"output_size": size, "return_indices": indices}, x)


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_pools(rank: int, batch: bool) -> None:
    for facts in ({"output_size": 3}, {"output_ratio": 0.5}, {"output_size": 3, "return_indices": True}):
        compared(f"FractionalMaxPool{rank}d", {"kernel_size": 2} | facts, images(rank, batch))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_maxima_come_back(rank: int) -> None:
    x = images(rank)
    pooled, indices = getattr(torch.nn, f"MaxPool{rank}d")(2, return_indices=True)(x[(..., *[slice(6)] * rank)])
    compared(f"MaxUnpool{rank}d", {"kernel_size": 2}, pooled, indices)
    pooled, indices = getattr(torch.nn, f"MaxPool{rank}d")(2, return_indices=True)(x)
    module = getattr(nn, f"MaxUnpool{rank}d")(2)
    wanted = getattr(torch.nn, f"MaxUnpool{rank}d")(2)(pooled, indices, output_size=x.shape)
    assert torch.equal(module(pooled, indices, output_size=x.shape), wanted)


def test_sizes() -> None:
    for rank, mode in ((1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear")):
        for facts in ({"scale_factor": 1.7}, {"size": 5, "align_corners": True}):
            compared("Upsample", {"mode": mode} | facts, images(rank))
        compared("Upsample", {"scale_factor": 1.7, "mode": mode, "recompute_scale_factor": True}, images(rank))
        compared("Upsample", {"scale_factor": 2}, images(rank))
    compared("UpsamplingNearest2d", {"scale_factor": 2}, images(2))
    compared("UpsamplingBilinear2d", {"size": (5, 14)}, images(2))
    x = torch.randn(2, 8, 3, 4, dtype=F64)
    compared("PixelShuffle", {"upscale_factor": 2}, x)
    compared("PixelUnshuffle", {"downscale_factor": 2}, x.reshape(2, 4, 6, 4))


def test_channels_last_stay_last() -> None:
    x = images(2).contiguous(memory_format=torch.channels_last)
    for module in (nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Upsample(scale_factor=2)):
        assert module(x).is_contiguous(memory_format=torch.channels_last)
