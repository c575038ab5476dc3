"""Images on a GPU: sizes of networks, every element, beside torch or a formula in float64; the same bits twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
bt = pytest.importorskip("baracuda_py.torch")
pytestmark = pytest.mark.gpu
F = torch.nn.functional
DEVICE = "cuda"
ROUNDING = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-6, torch.float64: 1e-13}

MODES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "nearest": ((4, 64, 56, 56), {"scale_factor": 2, "mode": "nearest"}),
    "nearest odd": ((2, 19, 65, 127), {"size": (96, 61), "mode": "nearest"}),
    "nearest-exact": ((2, 19, 65, 127), {"size": (96, 61), "mode": "nearest-exact"}),
    "area": ((4, 32, 56, 60), {"size": (14, 17), "mode": "area"}),
    "bilinear": ((4, 64, 56, 56), {"scale_factor": 2, "mode": "bilinear"}),
    "bilinear corners": ((2, 19, 33, 65), {"size": (129, 257), "mode": "bilinear", "align_corners": True}),
    "bilinear down": ((2, 19, 128, 96), {"size": (50, 31), "mode": "bilinear"}),
    "bilinear antialias": ((2, 3, 224, 160), {"size": (96, 64), "mode": "bilinear", "antialias": True}),
    "bicubic": ((4, 32, 28, 28), {"size": (61, 57), "mode": "bicubic"}),
    "bicubic corners": ((2, 32, 16, 16), {"size": (32, 24), "mode": "bicubic", "align_corners": True}),
    "bicubic antialias": ((2, 3, 224, 160), {"size": (96, 64), "mode": "bicubic", "antialias": True}),
    "linear": ((8, 64, 500), {"size": 1203, "mode": "linear"}),
    "trilinear": ((2, 16, 12, 20, 20), {"scale_factor": 2, "mode": "trilinear"}),
    "nearest of three axes": ((2, 16, 12, 20, 20), {"scale_factor": 2, "mode": "nearest"}),
}


def close(got: Any, wanted: Any, dtype: Any, size: float = 1.0) -> None:
    """Within the rounding of an element, and of sums of terms as large as `size`."""
    assert got.dtype is dtype
    assert got.shape == wanted.shape
    bound = ROUNDING[dtype] * wanted.abs() + size * (1e-13 if dtype is torch.float64 else 4e-6) + 1e-30
    bound = bound + (6e-8 if dtype is torch.float16 else 0.0)
    worst = ((got.double() - wanted).abs() / bound).max().item() if got.numel() else 0.0
    assert worst <= 1, worst


def leaf(shape: tuple[int, ...], dtype: Any, last: bool = False) -> Any:
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(shape)) if last else None
    x = torch.randn(shape, device=DEVICE).to(dtype)
    return (x.contiguous(memory_format=form) if form else x).requires_grad_()


def both(function: Any, truth: Any, leaves: list[Any], size: float) -> None:
    """Values and gradients of a function beside those of another in float64, and the same bits twice."""
    own = [one.detach().double().requires_grad_() for one in leaves]
    y, again, wanted = function(*leaves), function(*leaves), truth(*own)
    assert torch.equal(y, again)
    close(y, wanted, leaves[0].dtype, size)
    slope = torch.randn_like(y)
    got, twice = (torch.autograd.grad(one, leaves, slope) for one in (y, again))
    for one, same, right in zip(got, twice, torch.autograd.grad(wanted, own, slope.double()), strict=True):
        assert torch.equal(one, same)
        close(one, right, one.dtype, size * max(1.0, right.abs().max().item()))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
@pytest.mark.parametrize("name", list(MODES))
def test_interpolate(name: str, dtype: Any, last: bool) -> None:
    shape, facts = MODES[name]
    if last and len(shape) == 3:
        pytest.skip("torch has no channels last of three axes")
    torch.manual_seed(0)
    both(lambda x: bt.interpolate(x, **facts), lambda x: F.interpolate(x, **facts), [leaf(shape, dtype, last)], 8.0)


@pytest.mark.parametrize("method", ["lanczos3", "lanczos5", "cubic", "nearest"])
def test_filters_of_jax(method: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 130, 97, device=DEVICE)
    wanted = bc.resize_image(x.cpu().double().numpy(), (3, 61, 150), method)
    close(bt.resize_image(x, (3, 61, 150), method), torch.tensor(wanted, device=DEVICE), torch.float32, 8.0)


@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("rank", [2, 3])
def test_grid_sample(rank: int, mode: str, padding: str, dtype: Any) -> None:
    if rank == 3 and mode == "bicubic":
        pytest.skip("bicubic is of two axes")
    torch.manual_seed(0)
    shape, points = ((2, 32, 40, 56), (2, 48, 33, 2)) if rank == 2 else ((2, 8, 9, 15, 17), (2, 8, 12, 15, 3))
    x = leaf(shape, dtype)
    # of these sizes and steps none lies at the first or last place, where a gradient has two sides
    grid = ((torch.rand(points, device=DEVICE) * 156 - 78).round() / 64 + 1 / 512).to(dtype).requires_grad_()
    facts = {"mode": mode, "padding_mode": padding, "align_corners": False}
    if mode == "nearest":  # of places there is none
        fixed, wide = grid.detach(), grid.detach().double()
        both(lambda x: bt.grid_sample(x, fixed, **facts), lambda x: F.grid_sample(x, wide, **facts), [x], 40.0)
        return
    both(lambda x, g: bt.grid_sample(x, g, **facts), lambda x, g: F.grid_sample(x, g, **facts), [x, grid], 40.0)


IMAGES, REGIONS, SIZE, SCALE = (2, 98, 50, 76), 96, (7, 7), 1 / 16


def regions(dtype: Any) -> Any:
    """Regions about the images, some beyond them, in whole numbers, which every element has."""
    corners = torch.rand(REGIONS, 2, 2, device=DEVICE) * torch.tensor([1400.0, 900.0], device=DEVICE) - 100
    corners = corners.sort(1).values.reshape(REGIONS, 4).round()
    return torch.cat([torch.randint(0, 2, (REGIONS, 1), device=DEVICE), corners], 1).to(dtype)


def bilinear_rows(low: Any, high: Any, bins: int, extent: int, ratio: int, aligned: bool) -> Any:
    """[regions, bins, extent]: the share that each place has in the mean of a bin's samples along one axis."""
    made = torch.zeros(len(low), bins, extent, dtype=torch.float64)
    for k, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        start, end = a * SCALE - 0.5 * aligned, b * SCALE - 0.5 * aligned
        long = (end - start if aligned else max(end - start, 1.0)) / bins
        count = ratio or max(int(np.ceil(long)), 0)
        c = (
            start
            + torch.arange(bins)[:, None].double() * long
            + (torch.arange(count).double() + 0.5) * long / max(count, 1)
        )
        inside = ((c >= -1) & (c <= extent)).double() / max(count, 1)
        c = c.clamp(0, extent - 1)
        first = c.floor().long()
        share = c - first
        made[k].scatter_add_(1, first, inside * (1 - share))
        made[k].scatter_add_(1, (first + 1).clamp(max=extent - 1), inside * share)
    return made.to(DEVICE)


def bin_rows(low: Any, high: Any, bins: int, extent: int, closed: bool) -> Any:
    """[regions, bins, extent]: which places a bin has along one axis, of rounded regions."""
    made = torch.zeros(len(low), bins, extent, dtype=torch.float64)
    for k, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        start, end = (int(np.sign(c) * np.floor(abs(c) * SCALE + 0.5)) for c in (a, b))
        long, limit = max(end - start + closed, 1), extent - (not closed)
        for i in range(bins):
            first, last = start + i * long // bins, start - (-(i + 1) * long // bins)
            made[k, i, min(max(first, 0), limit) : min(max(last, 0), limit)] = 1
    return made.to(DEVICE)


def both_axes(make: Any, rois: Any, *facts: Any) -> Any:
    own = rois.double().cpu()
    return (make(own[:, low], own[:, low + 2], SIZE[2 - low], IMAGES[4 - low], *facts) for low in (2, 1))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align(ratio: int, dtype: Any, last: bool) -> None:
    torch.manual_seed(0)
    x, rois = leaf(IMAGES, dtype, last), regions(dtype)
    images = rois[:, 0].long()
    for aligned in (False, True):
        rows, columns = both_axes(bilinear_rows, rois, ratio, aligned)
        both(
            lambda x, a=aligned: bt.roi_align(x, rois, SIZE, SCALE, ratio, a),
            lambda x, r=rows, c=columns: torch.einsum("kph,kchw,kqw->kcpq", r, x[images], c), [x], 40.0,
        )  # fmt: skip
    rows, columns = both_axes(bilinear_rows, rois, ratio, True)
    both(
        lambda x: bt.ps_roi_align(x, rois, SIZE, SCALE, ratio),
        lambda x: torch.einsum("kph,kcpqhw,kqw->kcpq", rows, x[images].unflatten(1, (-1, *SIZE)), columns), [x], 40.0,
    )  # fmt: skip


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
def test_roi_pool(dtype: Any, last: bool) -> None:
    torch.manual_seed(0)
    x, rois = leaf(IMAGES, dtype, last), regions(dtype)
    images = rois[:, 0].long()
    rows, columns = both_axes(bin_rows, rois, True)
    y, argmax = bt.roi_pool(x, rois, SIZE, SCALE, return_argmax=True)
    slope = torch.randn_like(y)
    got, twice = (torch.autograd.grad(bt.roi_pool(x, rois, SIZE, SCALE), x, slope)[0] for _ in range(2))
    wanted, own = torch.zeros(IMAGES, dtype=torch.float64, device=DEVICE), x.detach()[images].flatten(2)
    places = torch.arange(own.shape[2], device=DEVICE)
    for i, j in np.ndindex(*SIZE):
        there = (rows[:, i, :, None] * columns[:, j, None, :]).flatten(1)[:, None] > 0
        masked = own.masked_fill(~there, -torch.inf)
        best = masked.amax(2)
        first = torch.where(masked == best[..., None], places, len(places)).amin(2)
        some = there.any(2)
        assert torch.equal(y[:, :, i, j], torch.where(some, best, 0))
        assert torch.equal(argmax[:, :, i, j], torch.where(some, first, -1))
        flat = wanted.view(-1)
        at = (images[:, None] * IMAGES[1] + torch.arange(IMAGES[1], device=DEVICE)) * len(places) + first
        kept = some.expand_as(first)
        flat.index_add_(0, at[kept], slope[:, :, i, j].double()[kept])
    assert torch.equal(got, twice)
    close(got, wanted, dtype, 40.0)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
def test_ps_roi_pool(dtype: Any, last: bool) -> None:
    torch.manual_seed(0)
    x, rois = leaf(IMAGES, dtype, last), regions(dtype)
    images = rois[:, 0].long()
    rows, columns = (one / one.sum(2, keepdim=True).clamp(min=1) for one in both_axes(bin_rows, rois, False))
    both(
        lambda x: bt.ps_roi_pool(x, rois, SIZE, SCALE),
        lambda x: torch.einsum("kph,kcpqhw,kqw->kcpq", rows, x[images].unflatten(1, (-1, *SIZE)), columns), [x], 40.0,
    )  # fmt: skip


def some_boxes(count: int, dtype: Any = torch.float32) -> Any:
    """Boxes in eighths, whose overlaps are fractions that float32 tells from a threshold."""
    low, size = (8 * torch.rand(2, count, 2, dtype=torch.float64) * torch.tensor([[[60.0]], [[12.0]]])).round() / 8
    return torch.cat([low, low + size], 1).to(DEVICE, dtype), torch.rand(count, dtype=torch.float64).to(DEVICE, dtype)


def overlaps(box: Any, others: Any) -> Any:
    size = (np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])).clip(0)
    shared, areas = size.prod(1), (others[:, 2:] - others[:, :2]).prod(1)
    whole = np.prod(box[2:] - box[:2]) + areas - shared
    return np.where(whole > 0, shared / np.where(whole > 0, whole, 1), 0)


@pytest.mark.parametrize("count", [1, 64, 65, 100, 3000])
@pytest.mark.parametrize("grouped", [False, True])
def test_nms(count: int, grouped: bool) -> None:
    torch.manual_seed(count)
    boxes, scores = some_boxes(count)
    groups = torch.randint(0, 3, (count,), device=DEVICE)
    keep, n = bt.batched_nms(boxes, scores, groups, 0.5) if grouped else bt.nms(boxes, scores, 0.5)
    own, group = boxes.cpu().double().numpy(), groups.cpu().numpy() * grouped
    left, wanted = np.argsort(-scores.cpu().numpy(), kind="stable"), []
    while left.size:
        best, left = left[0], left[1:]
        wanted.append(best)
        left = left[(overlaps(own[best], own[left]) <= 0.5) | (group[left] != group[best])]
    assert keep[: int(n)].tolist() == wanted
    assert bool((keep[int(n) :] == -1).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("method", "count"), [("linear", 900), ("linear", 4500), ("gaussian", 3000)])
def test_soft_nms(method: str, count: int, dtype: Any) -> None:
    torch.manual_seed(0)
    boxes, scores = some_boxes(count, dtype)
    groups = torch.randint(0, 3, (count,), device=DEVICE)
    keep, kept, n = bt.soft_nms(boxes, scores, 0.3, method=method, score_threshold=0.05, groups=groups)
    found, order = kept.cpu().double().numpy(), keep.cpu().numpy()
    own, group = boxes.cpu().double().numpy(), groups.cpu().numpy()
    left, rounding = scores.cpu().double().numpy().copy(), 1e-4 if dtype is torch.float32 else 1e-10
    for step in range(int(n)):  # float32 may take either of two scores that lie within its rounding first
        best = order[step]
        assert left[best] >= left.max() * (1 - rounding)
        assert abs(found[step] - left[best]) <= rounding * left[best]
        iou = np.where(group == group[best], overlaps(own[best], own), 0)
        sinks = np.where(iou > 0.3, 1 - iou, 1) if method == "linear" else np.exp(-(iou**2) / 0.5)
        left *= sinks
        left[best] = -1
    assert left.max() <= 0.05 * (1 + rounding)
    assert set(order[int(n) :]) <= {-1}


def test_same_bits_in_every_batch() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 32, 28, 30, device=DEVICE).bfloat16()
    whole = bt.interpolate(x, size=(61, 57), mode="bicubic")
    for n in range(4):
        assert torch.equal(bt.interpolate(x[n : n + 1], size=(61, 57), mode="bicubic")[0], whole[n])
