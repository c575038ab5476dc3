"""Convolutions whose operands TMA copies, on a GPU: layers of networks, every element, beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.schedules import conv_boxes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
F = torch.nn.functional
ROUNDING = {torch.float16: 1e-3, torch.bfloat16: 8e-3}

# Shape, filter, how, and which of y, dx and dw are products of boxes.
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], str]] = {
    "3x3": ((8, 128, 28, 28), (128, 128, 3, 3), {"padding": 1}, "y dx dw"),
    "UNet 320": ((2, 320, 64, 64), (320, 320, 3, 3), {"padding": 1}, "y dx dw"),
    "UNet 640": ((2, 640, 32, 32), (640, 640, 3, 3), {"padding": 1}, "y dx dw"),
    "UNet 1280": ((2, 1280, 8, 8), (1280, 1280, 3, 3), {"padding": 1}, "y dx dw"),
    "14": ((24, 256, 14, 14), (256, 256, 3, 3), {"padding": 1}, "y dx dw"),
    "7, a part of a batch": ((58, 256, 7, 7), (192, 256, 3, 3), {"padding": 1}, "y dx dw"),
    "1x1": ((8, 256, 56, 56), (64, 256, 1, 1), {}, "y dx dw"),
    "1x1 down": ((8, 256, 56, 56), (512, 256, 1, 1), {"stride": 2}, "y dx dw"),
    "3x3 down": ((8, 128, 56, 56), (128, 128, 3, 3), {"stride": 2, "padding": 1}, "y dx dw"),
    "down along one axis": ((4, 64, 32, 48), (136, 64, 3, 5), {"stride": (1, 3), "padding": (1, 2)}, "y dw"),
    "groups": ((8, 256, 28, 28), (256, 64, 3, 3), {"padding": 1, "groups": 4}, "y dx dw"),
    "dilated": ((4, 128, 32, 32), (192, 128, 3, 3), {"padding": 2, "dilation": 2}, "y dx dw"),
    "in part": ((3, 192, 20, 24), (200, 192, 3, 2), {"padding": (1, 0)}, "y"),
    "96": ((8, 96, 32, 32), (160, 96, 3, 3), {"padding": 1}, "dw"),
    "3d": ((1, 128, 8, 32, 32), (128, 128, 3, 3, 3), {"padding": 1}, "y dx dw"),
    "1d": ((4, 192, 1504), (384, 192, 3), {"padding": 1}, "y dx dw"),
}


def made(shape: tuple[int, ...], dtype: Any, scale: float, last: bool) -> Any:
    """Random numbers, channels last where asked for."""
    x = (torch.randn(shape, device="cuda") * scale).to(dtype)
    return x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x


def steps_of(plan: Any, args: Any) -> set[str]:
    return {step.kernel for step in plan.plan_layout(args)[1].steps}


def close(got: Any, wanted: Any, size: Any, dtype: Any) -> None:
    """Within the rounding of an element, and of sums of terms of the size of `size`."""
    worst = ((got.double() - wanted).abs() / (ROUNDING[dtype] * wanted.abs() + 4e-6 * size + 3e-8)).max().item()
    assert worst <= 1, worst


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
@pytest.mark.parametrize("layer", list(LAYERS))
def test_layers(layer: str, dtype: Any, last: bool) -> None:
    shape, filters, given, boxed = LAYERS[layer]
    torch.manual_seed(0)
    x, w = made(shape, dtype, 1.0, last), made(filters, dtype, float(np.prod(filters[1:])) ** -0.5, last)
    kind = str(dtype).removeprefix("torch.")
    desc = bc.ConvDescriptor(shape=shape, filter_shape=filters, element=kind, **given)
    dy = made(desc.out_shape, dtype, 1.0, last)
    truth = [t.double().requires_grad_() for t in (x, w)]
    sizes = [t.double().abs().requires_grad_() for t in (x, w)]
    conv = getattr(F, f"conv{len(filters) - 2}d")
    y = torch.empty_like(dy)
    plan = bc.ConvPlan.select(desc)
    plan(x=x, w=w, y=y)
    if plan.sku.arch is bc.ArchSku.SM90A:
        assert ("boxes" in steps_of(plan, bc.ConvArgs(x=x, w=w, y=y))) == ("y" in boxed.split())
    wanted, size = conv(*truth, **given), conv(*sizes, **given)
    close(y, wanted, size, dtype)
    backward = bc.ConvBackwardPlan.select(bc.ConvBackwardDescriptor(
        shape=shape, filter_shape=filters, element=kind, **given
    ))  # fmt: skip
    found = [(torch.empty_like(x), torch.empty_like(w)) for _ in range(2)]
    for dx, dw in found:
        backward(dy=dy, x=x, w=w, dx=dx, dw=dw)
    if backward.sku.arch is bc.ArchSku.SM90A:
        alone = steps_of(backward, bc.ConvBackwardArgs(dy=dy, x=x, w=w, dw=found[0][1]))
        assert ("filter_boxes" in alone) == ("dw" in boxed.split())
    right = torch.autograd.grad(wanted, truth, dy.double())
    large = torch.autograd.grad(size, sizes, dy.double().abs())
    for got, same, a, b in zip(*found, right, large, strict=True):
        assert torch.equal(got, same)
        close(got, a, b, dtype)


@pytest.mark.parametrize("layer", ["3x3", "UNet 320", "3x3 down", "groups", "in part", "3d"])
def test_the_bits_are_those_of_tiles_that_threads_copy(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, filters, given, _ = LAYERS[layer]
    torch.manual_seed(0)
    x, w = made(shape, torch.bfloat16, 1.0, True), made(filters, torch.bfloat16, 0.05, True)
    desc = bc.ConvDescriptor(shape=shape, filter_shape=filters, element="bfloat16", **given)
    device = bc.ConvPlan.select(desc).device
    found, kernels = [], []
    for full in (conv_boxes._FULL, 2.0):
        monkeypatch.setattr(conv_boxes, "_FULL", full)
        plan = bc.ConvPlan(desc, bc.PlanPreference(), device)
        y = torch.empty(desc.out_shape, device="cuda", dtype=torch.bfloat16)
        plan(x=x, w=w, y=y)
        found.append(y)
        kernels.append(steps_of(plan, bc.ConvArgs(x=x, w=w, y=y)))
    if "wgmma" in kernels[1]:
        assert "boxes" in kernels[0]
    assert torch.equal(*found)


def test_infinite_elements_reach_the_taps_that_see_them_alone() -> None:
    """Boxes of a filter's gradient pass no extents: an element beside a window is not in its sums."""
    x = torch.zeros(2, 64, 32, 32, device="cuda", dtype=torch.bfloat16)
    x[0, 3, 31, 31] = float("inf")
    dy = torch.ones(2, 64, 32, 32, device="cuda", dtype=torch.bfloat16)
    dw = torch.empty(64, 64, 3, 3, device="cuda", dtype=torch.bfloat16)
    desc = bc.ConvBackwardDescriptor(shape=(2, 64, 32, 32), filter_shape=(64, 64, 3, 3), padding=1, element="bfloat16")
    bc.ConvBackwardPlan.select(desc)(dy=dy, x=x, w=torch.zeros_like(dw), dw=dw)
    wanted = torch.zeros(64, 64, 3, 3, device="cuda")
    wanted[:, 3, 1:, 1:] = float("inf")
    assert torch.equal(dw.float(), wanted)


@pytest.mark.parametrize(
    ("shape", "filters", "given"),
    [((8, 128, 28, 28), (136, 128, 3, 3), {"padding": 1}), ((8, 256, 56, 56), (64, 256, 1, 1), {}),
     ((4, 256, 32, 32), (96, 128, 3, 3), {"padding": 1, "stride": 2, "groups": 2})],
)  # fmt: skip
@pytest.mark.parametrize("pair", [(torch.int8, torch.int8), (torch.uint8, torch.int8)], ids=str)
def test_integers(shape: Any, filters: Any, given: Any, pair: Any) -> None:
    made = torch.Generator("cuda").manual_seed(0)

    def integers(size: Any, dtype: Any) -> Any:
        info = torch.iinfo(dtype)
        drawn = torch.randint(info.min, info.max + 1, size, dtype=dtype, device="cuda", generator=made)
        return drawn.contiguous(memory_format=torch.channels_last)

    x, w = integers(shape, pair[0]), integers(filters, pair[1])
    sums = F.conv2d(x.double(), w.double(), None, **given)
    assert torch.equal(bc.conv_integer(x, w, **given).double(), sums)
    sw = torch.rand(filters[0], device="cuda", generator=made) * 0.1 + 0.01
    sy = torch.tensor(40.0, device="cuda")
    for bias in (None, torch.randint(-900, 900, filters[:1], device="cuda", dtype=torch.int32),
                 torch.randn(filters[0], device="cuda")):  # fmt: skip
        more = 0.0 if bias is None else bias.double()[:, None, None]
        by, whole = sw.double()[:, None, None], bias is not None and bias.dtype is torch.int32
        real = ((sums + more) * by if whole else sums * by + more) / sy.double()
        got = bc.quantized_conv(x, w, scale_w=sw, bias=bias, scale_y=sy, out_element="int8", **given)
        wanted = torch.round(real).clamp(-128, 127)
        near = (real - real.floor() - 0.5).abs() < 1e-9  # where the order of its own roundings says which it is
        assert torch.equal(torch.where(near, wanted, got.double()), wanted)


def test_fp8() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 256, 28, 28, device="cuda").to(torch.float8_e4m3fn)
    w = torch.randn(136, 256, 3, 3, device="cuda").to(torch.float8_e4m3fn)
    x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
    y = bc.scaled_conv(x, w, out_element="float32", padding=1)
    wanted = F.conv2d(x.double(), w.double(), padding=1)
    size = F.conv2d(x.double().abs(), w.double().abs(), padding=1)
    assert ((y.double() - wanted).abs() <= 2e-4 * size).all()
