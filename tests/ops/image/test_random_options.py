"""Functions of images and boxes with options drawn at random: results and gradients against torch and SciPy."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
ndimage = pytest.importorskip("scipy.ndimage")
F = torch.nn.functional
DRAWS = 10
BORDERS = ("constant", "reflect", "replicate", "circular")
PADDINGS = ("zeros", "border", "reflection")
CASES: dict[str, Callable[[Draw], Case]] = {}
Case = tuple[Callable[..., Any], Callable[..., Any], "list[Any]"]
"""Ours, theirs, and operands, of which those of floats have gradients unless they say that they have none."""


class Draw:
    """Options and operands of one case."""

    def __init__(self, name: str, turn: int) -> None:
        self.rng = np.random.default_rng((zlib.crc32(name.encode()), turn))

    def one(self, *of: Any) -> Any:
        return of[int(self.rng.integers(len(of)))]

    def whole(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def real(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def laid(self, x: Any) -> Any:
        """x with other strides: as it is, its axes turned in memory, or every second of a wider one."""
        order = list(self.rng.permutation(x.ndim))
        if self.one(True, False):
            x = x.permute(order).contiguous().permute([order.index(a) for a in range(x.ndim)])
        if self.one(True, False):
            x = torch.stack([x, x + 1], -1)[..., 0]
        return x.detach()

    def array(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        return self.laid(torch.from_numpy(self.rng.uniform(low, high, shape))).requires_grad_()

    def fixed(self, x: Any) -> Any:
        return self.laid(torch.as_tensor(np.asarray(x)))

    def image(self, least: int = 1) -> Any:
        return self.array(self.whole(1, 2), self.whole(1, 3), self.whole(least, 9), self.whole(least, 11))

    def boxes(self, count: int, size: float = 8.0) -> Any:
        corners, sizes = self.rng.uniform(0, size, (count, 2)), self.rng.uniform(0.1, size, (count, 2))
        return np.concatenate([corners, corners + sizes], 1)

    def odd(self) -> tuple[int, int]:
        return self.one(1, 3, 5), self.one(1, 3, 5)


def case(function: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    CASES[function.__name__] = function
    return function


@case
def interpolate(draw: Draw) -> Case:
    rank = draw.whole(1, 3)
    filters = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}[rank]
    mode = draw.one("nearest", "nearest-exact", "area", *filters, *filters)
    options: dict[str, Any] = {"mode": mode}
    if mode in filters:
        options["align_corners"] = draw.one(True, False, None)
        options |= {"antialias": draw.one(True, False)} if rank == 2 else {}
    wide = options.get(
        "antialias", False
    )  # torch on the CPU takes one column for the last of channels, and makes others
    space = [draw.whole(4 if wide else 2, 7) for _ in range(rank)]
    if draw.one(True, False):
        options["size"] = tuple(draw.whole(1 + wide, 12) for _ in range(rank))
    else:
        options["scale_factor"] = factor = draw.one(draw.real(0.6, 2.5), tuple(draw.real(0.6, 2.5) for _ in space))
        options["recompute_scale_factor"] = draw.one(True, False, None)
        whole = any(int(n * f) in (n, 2 * n) for n, f in zip(space, np.broadcast_to(factor, rank), strict=True))
        # There torch goes by the sizes along an axis that keeps or doubles its size, whatever the factor is, and with
        # the gradient of the nearest place in three axes, against differences.
        if whole or wide or (rank == 3 and mode.startswith("nearest")):
            options["recompute_scale_factor"] = True
    x = draw.array(draw.whole(1, 2), draw.whole(1, 3), *space)
    return lambda x: bc.interpolate(x, **options), lambda x: F.interpolate(x, **options), [x]


@case
def grid_sample(draw: Draw) -> Case:
    rank = draw.one(2, 2, 3)
    options = {
        "mode": draw.one("bilinear", "nearest", *["bicubic"][: 3 - rank]), "padding_mode": draw.one(*PADDINGS),
        "align_corners": draw.one(True, False),
    }  # fmt: skip
    x = draw.array(2, draw.whole(1, 3), *[draw.whole(2, 6) for _ in range(rank)])
    grid = draw.array(2, *[draw.whole(1, 4) for _ in range(rank)], rank, low=-1.4, high=1.4)
    return lambda x, g: bc.grid_sample(x, g, **options), lambda x, g: F.grid_sample(x, g, **options), [x, grid]


@case
def affine_grid(draw: Draw) -> Case:
    rank, align = draw.whole(2, 3), draw.one(True, False)
    size = (draw.whole(1, 3), draw.whole(1, 3), *[draw.whole(1 + align, 5) for _ in range(rank)])
    theta = draw.array(size[0], rank, rank + 1)
    return lambda t: bc.affine_grid(t, size, align), lambda t: F.affine_grid(t, list(size), align), [theta]


def bin_weights(start: float, length: float, bins: int, ratio: int, extent: int) -> Any:
    """[bins, extent]: how much a bin takes of each place along an axis, the mean of what its samples do."""
    samples = ratio if ratio > 0 else int(np.ceil(length / bins))
    made = torch.zeros(bins, extent, dtype=torch.float64)
    for b in range(bins):
        for s in range(samples):
            at = start + length / bins * (b + (s + 0.5) / samples)
            if not -1 <= at <= extent:
                continue
            at = max(at, 0.0)
            low = min(int(at), extent - 1)
            share = 0.0 if low == extent - 1 else at - low
            made[b, low] += (1 - share) / samples
            made[b, min(low + 1, extent - 1)] += share / samples
    return made


def aligned(x: Any, rois: Any, size: tuple[int, int], scale: float, ratio: int, half: bool) -> Any:
    made = []
    for image, *corners in rois.tolist():
        x1, y1, x2, y2 = (c * scale - (0.5 if half else 0.0) for c in corners)
        height, width = (n if half else max(n, 1.0) for n in (y2 - y1, x2 - x1))
        rows = bin_weights(y1, height, size[0], ratio, x.shape[2])
        columns = bin_weights(x1, width, size[1], ratio, x.shape[3])
        made.append(rows @ x[int(image)] @ columns.T)
    return torch.stack(made)


def by_bin(y: Any, bins: tuple[int, int]) -> Any:
    """Of [K, C, rows, columns] each bin's own channel."""
    rows, columns = bins
    y = y.reshape(y.shape[0], -1, rows, columns, rows, columns)
    return torch.stack(
        [torch.stack([y[:, :, i, j, i, j] for j in range(columns)], -1) for i in range(rows)], -2
    )  # fmt: skip


def regions(draw: Draw, sensitive: bool) -> tuple[Any, Any, tuple[int, int], float]:
    size = draw.whole(1, 3), draw.whole(1, 3)
    channels = draw.whole(1, 2) * (size[0] * size[1] if sensitive else 1)
    x = draw.array(2, channels, draw.whole(2, 7), draw.whole(2, 8))
    count = draw.whole(1, 4)
    rois = np.concatenate([draw.rng.integers(0, 2, (count, 1)), draw.boxes(count, 7.0) - 1], 1)
    return x, draw.fixed(rois), size, draw.one(1.0, 0.5, 0.7)


@case
def roi_align(draw: Draw) -> Case:
    x, rois, size, scale = regions(draw, False)
    ratio, half = draw.one(-1, 1, 2, 3), draw.one(True, False)
    return (
        lambda x, r: bc.roi_align(x, r, size, scale, ratio, half),
        lambda x, r: aligned(x, r, size, scale, ratio, half), [x, rois],
    )  # fmt: skip


@case
def ps_roi_align(draw: Draw) -> Case:
    x, rois, size, scale = regions(draw, True)
    ratio = draw.one(-1, 1, 2)
    return (
        lambda x, r: bc.ps_roi_align(x, r, size, scale, ratio),
        lambda x, r: by_bin(aligned(x, r, size, scale, ratio, True), size), [x, rois],
    )  # fmt: skip


def pooled(x: Any, rois: Any, size: tuple[int, int], scale: float, sensitive: bool) -> Any:
    """Bin by bin, cut in integers."""

    def ends(first: float, last: float, bins: int, limit: int) -> list[tuple[int, int]]:
        start, stop = (int(np.copysign(np.floor(abs(c * scale) + 0.5), c)) for c in (first, last))
        long = max(stop - start + (not sensitive), 1)
        pairs = [(start + b * long // bins, start - (-(b + 1) * long // bins)) for b in range(bins)]
        return [(min(max(a, 0), limit), min(max(b, 0), limit)) for a, b in pairs]

    made = []
    for image, x1, y1, x2, y2 in rois.tolist():
        rows = ends(y1, y2, size[0], x.shape[2] - sensitive)
        columns = ends(x1, x2, size[1], x.shape[3] - sensitive)
        for top, bottom in rows:
            for left, right in columns:
                own = x[int(image), :, top:bottom, left:right].flatten(1)
                none = 0 * x[0, :, 0, 0]
                made.append(none if not own.shape[1] else own.mean(1) if sensitive else own.amax(1))
    return torch.stack(made, -1).reshape(x.shape[1], len(rois), *size).movedim(0, 1)


@case
def roi_pool(draw: Draw) -> Case:
    x, rois, size, scale = regions(draw, False)
    return lambda x, r: bc.roi_pool(x, r, size, scale), lambda x, r: pooled(x, r, size, scale, False), [x, rois]


@case
def ps_roi_pool(draw: Draw) -> Case:
    x, rois, size, scale = regions(draw, True)
    return (
        lambda x, r: bc.ps_roi_pool(x, r, size, scale),
        lambda x, r: by_bin(pooled(x, r, size, scale, True), size), [x, rois],
    )  # fmt: skip


def shared(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """(iou, the sizes of the boxes about both, v's angle between aspects) of all pairs."""
    a, b = a[:, None], b[None]
    size = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    both = size.prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - both
    about = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    return both / union, union, about


def iou_of(kind: str, a: Any, b: Any) -> Any:
    iou, union, about = shared(a, b)
    if kind == "box_iou":
        return iou
    if kind == "generalized_box_iou":
        area = about.prod(-1)
        return iou - (area - union) / area
    centres = (a[:, None, :2] + a[:, None, 2:] - b[:, :2] - b[:, 2:]) / 2
    distance = iou - (centres**2).sum(-1) / ((about**2).sum(-1) + 1e-7)
    if kind == "distance_box_iou":
        return distance
    angles = [torch.atan((x[:, 2] - x[:, 0]) / (x[:, 3] - x[:, 1])) for x in (a, b)]
    v = 4 / np.pi**2 * (angles[1] - angles[0][:, None]) ** 2
    return distance - v * v / (1 - iou + v + 1e-7)


def _pairs(kind: str) -> Callable[[Draw], Case]:
    def made(draw: Draw) -> Case:
        a, b = (draw.fixed(draw.boxes(draw.whole(1, 6), draw.real(1, 9))).requires_grad_() for _ in range(2))
        return lambda a, b: getattr(bc, kind)(a, b), lambda a, b: iou_of(kind, a, b), [a, b]

    made.__name__ = kind
    return made


for _kind in ("box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou"):
    case(_pairs(_kind))


@case
def box_convert(draw: Draw) -> Case:
    forms = ("xyxy", "xywh", "cxcywh")
    given, wanted = draw.one(*forms), draw.one(*forms)

    def theirs(x: Any) -> Any:
        a, b = x[..., :2], x[..., 2:]
        low, size = (a, b - a) if given == "xyxy" else (a, b) if given == "xywh" else (a - b / 2, b)
        first = low + size / 2 if wanted == "cxcywh" else low
        return torch.cat([first, low + size if wanted == "xyxy" else size], -1)

    return lambda x: bc.box_convert(x, given, wanted), theirs, [draw.array(*draw.one((4,), (3, 4), (2, 3, 4)))]


@case
def nms(draw: Draw) -> Case:
    count = draw.whole(0, 40)
    boxes, scores, most = draw.boxes(count), np.round(draw.rng.random(count), 1), draw.real(0.05, 0.8)
    groups = draw.rng.integers(0, draw.whole(1, 3), count)
    batched = draw.one(True, False)

    def theirs(boxes: Any, scores: Any, groups: Any) -> Any:
        iou, left, kept = shared(boxes, boxes)[0], list(np.argsort(-scores.numpy(), kind="stable")), []
        while left:
            kept.append(left.pop(0))
            left = [i for i in left if iou[kept[-1], i] <= most or (batched and groups[i] != groups[kept[-1]])]
        return torch.tensor([*kept, *[-1] * (len(boxes) - len(kept))], dtype=torch.int64)

    def ours(boxes: Any, scores: Any, groups: Any) -> Any:
        keep, found = bc.batched_nms(boxes, scores, groups, most) if batched else bc.nms(boxes, scores, most)
        assert int(found) == int((keep >= 0).sum())
        return keep

    return ours, theirs, [draw.fixed(boxes), draw.fixed(scores), draw.fixed(groups)]


def at_places(x: Any, columns: Any, rows: Any, mode: str, padding: str, align: bool) -> Any:
    """torch's grid_sample of places."""
    ends = [(columns, x.shape[3]), (rows, x.shape[2])]
    grid = [2 * at / (n - 1) - 1 if align else (2 * at + 1) / n - 1 for at, n in ends]
    return F.grid_sample(x, torch.stack(grid, -1), mode, padding, align)


def _warp(name: str, rows: int) -> Callable[[Draw], Case]:
    def made(draw: Draw) -> Case:
        x = draw.array(2, draw.whole(1, 2), draw.whole(3, 6), draw.whole(3, 7))
        size = draw.whole(1, 6), draw.whole(1, 6)
        mode, padding = draw.one("bilinear", "nearest", "bicubic"), draw.one(*PADDINGS)
        spans = np.array([[1, 1, 3], [1, 1, 3], [0.1, 0.1, 0.2]])
        near = np.eye(3)[:rows] + draw.rng.uniform(-0.3, 0.3, (2, rows, 3)) * spans[:rows]

        def theirs(x: Any, m: Any) -> Any:
            whole = m if rows == 3 else torch.cat([m, torch.tensor([[[0.0, 0.0, 1.0]]] * 2, dtype=m.dtype)], 1)
            j, i = torch.meshgrid(torch.arange(size[1]), torch.arange(size[0]), indexing="xy")
            places = torch.stack([j, i, torch.ones_like(i)]).to(m.dtype).reshape(3, -1)
            at = (torch.linalg.inv(whole) @ places).reshape(2, 3, *size)
            return at_places(x, at[:, 0] / at[:, 2], at[:, 1] / at[:, 2], mode, padding, True)

        m = draw.fixed(near).requires_grad_()
        return lambda x, m: getattr(bc, name)(x, m, size, mode, padding), theirs, [x, m]

    made.__name__ = name
    return made


for _name, _rows in (("warp_affine", 2), ("warp_perspective", 3)):
    case(_warp(_name, _rows))


@case
def remap(draw: Draw) -> Case:
    x, size = draw.array(2, draw.whole(1, 2), draw.whole(2, 6), draw.whole(2, 7)), (draw.whole(1, 5), draw.whole(1, 4))
    maps = [draw.array(2, *size, low=-2, high=n + 1) for n in (x.shape[3], x.shape[2])]
    mode, padding, align = draw.one("bilinear", "nearest", "bicubic"), draw.one(*PADDINGS), draw.one(True, False)
    return (
        lambda x, a, b: bc.remap(x, a, b, mode, padding, align_corners=align),
        lambda x, a, b: at_places(x, a, b, mode, padding, align), [x, *maps],
    )  # fmt: skip


@case
def map_coordinates(draw: Draw) -> Case:
    shape = tuple(draw.whole(2, 6) for _ in range(draw.whole(1, 3)))
    order, mode, fill = draw.whole(0, 1), draw.one("constant", "nearest", "wrap", "mirror", "reflect"), draw.real(-1, 1)
    places = [draw.rng.uniform(-n, 2 * n, (3, 4)) for n in shape]
    scipys = {"constant": "grid-constant", "wrap": "grid-wrap"}.get(mode, mode)
    return (
        lambda x, *at: bc.map_coordinates(x, at, order, mode, fill),
        lambda x, *at: torch.as_tensor(
            ndimage.map_coordinates(x.numpy(), [a.numpy() for a in at], order=order, mode=scipys, cval=fill)
        ),
        [draw.array(*shape).detach(), *map(draw.fixed, places)],
    )  # fmt: skip


def largest(x: Any, size: tuple[int, int]) -> Any:
    return F.max_pool2d(x, size, 1, (size[0] // 2, size[1] // 2))


def smallest(x: Any, size: tuple[int, int]) -> Any:
    return -largest(-x, size)


MORPHOLOGY: dict[str, Callable[[Any, Any], Any]] = {
    "dilation": largest, "erosion": smallest, "opening": lambda x, size: largest(smallest(x, size), size),
    "closing": lambda x, size: smallest(largest(x, size), size),
}  # fmt: skip


def _morphology(name: str) -> Callable[[Draw], Case]:
    def made(draw: Draw) -> Case:
        size = draw.odd()
        return lambda x: getattr(bc, name)(x, size), lambda x: MORPHOLOGY[name](x, size), [draw.image()]

    made.__name__ = name
    return made


for _name in MORPHOLOGY:
    case(_morphology(_name))


def windows(x: Any, size: tuple[int, int], border: str) -> Any:
    """[N, C, kh, kw, H, W]."""
    before = [(k - 1) // 2 for k in size]
    sides = [before[1], size[1] - 1 - before[1], before[0], size[0] - 1 - before[0]]
    about = F.pad(x, sides, border)
    return about.unfold(2, size[0], 1).unfold(3, size[1], 1).permute(0, 1, 4, 5, 2, 3)


def correlated(x: Any, kernel: Any, border: str) -> Any:
    return torch.einsum("ncklhw,kl->nchw", windows(x, tuple(kernel.shape), border), kernel)


@case
def median_blur(draw: Draw) -> Case:
    size, border = draw.odd(), draw.one(*BORDERS)
    return (
        lambda x: bc.median_blur(x, size, border),
        lambda x: windows(x, size, border).flatten(2, 3).median(2).values, [draw.image(3)],
    )  # fmt: skip


@case
def filter2d(draw: Draw) -> Case:
    kernel, border = draw.array(draw.whole(1, 4), draw.whole(1, 4)), draw.one(*BORDERS)
    return lambda x, k: bc.filter2d(x, k, border), lambda x, k: correlated(x, k, border), [draw.image(4), kernel]


@case
def separable_filter2d(draw: Draw) -> Case:
    kernels, border = [draw.array(draw.whole(1, 4)) for _ in range(2)], draw.one(*BORDERS)
    return (
        lambda x, a, b: bc.separable_filter2d(x, a, b, border),
        lambda x, a, b: correlated(correlated(x, a[:, None], border), b[None], border), [draw.image(4), *kernels],
    )  # fmt: skip


def normal(size: int, sigma: float) -> Any:
    at = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    weights = torch.exp(-(at**2) / (2 * sigma**2))
    return weights / weights.sum()


@case
def gaussian_blur(draw: Draw) -> Case:
    size, border = draw.odd(), draw.one(*BORDERS)
    sigma = draw.one(None, draw.real(0.4, 2), (draw.real(0.4, 2), draw.real(0.4, 2)))
    given = [0.15 * k + 0.35 for k in size] if sigma is None else np.broadcast_to(sigma, 2)

    def theirs(x: Any) -> Any:
        return correlated(x, torch.outer(normal(size[0], given[0]), normal(size[1], given[1])), border)

    return lambda x: bc.gaussian_blur(x, size, sigma, border), theirs, [draw.image(3)]


@case
def sobel(draw: Draw) -> Case:
    scaled, eps = draw.one(True, False), draw.one(1e-6, 0.1)

    def theirs(x: Any) -> Any:
        across = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=x.dtype) / (8 if scaled else 1)
        slopes = [correlated(x, k, "replicate") for k in (across, across.T)]
        return torch.sqrt(slopes[0] ** 2 + slopes[1] ** 2 + eps)

    return lambda x: bc.sobel(x, scaled, eps), theirs, [draw.image()]


@case
def ssim(draw: Draw) -> Case:
    size, sigma, extent = draw.one(3, 5), draw.real(0.5, 2), draw.one(1.0, 4.0)
    k1, k2 = draw.one(0.01, 0.1), draw.one(0.03, 0.2)
    weights = torch.outer(normal(size, sigma), normal(size, sigma))

    def theirs(a: Any, b: Any) -> Any:
        def mean(x: Any) -> Any:
            return correlated(x, weights, "reflect")

        c1, c2 = (k1 * extent) ** 2, (k2 * extent) ** 2
        ma, mb = mean(a), mean(b)
        va, vb, both = mean(a * a) - ma**2, mean(b * b) - mb**2, mean(a * b) - ma * mb
        return (2 * ma * mb + c1) * (2 * both + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))

    a = draw.image(4)
    return lambda a, b: bc.ssim(a, b, size, sigma, extent, k1, k2), theirs, [a, draw.array(*a.shape)]


@pytest.mark.parametrize("name", CASES)
def test_options_at_random(name: str) -> None:
    for turn in range(DRAWS):
        draw = Draw(name, turn)
        ours, theirs, operands = CASES[name](draw)
        y, want = ours(*operands), theirs(*operands)
        assert y.dtype == want.dtype and y.shape == want.shape, turn
        torch.testing.assert_close(y, want, rtol=1e-9, atol=1e-9, msg=lambda text, turn=turn: f"{turn}: {text}")
        sources = [x for x in operands if x.requires_grad]
        if not sources:
            continue
        dy = torch.from_numpy(draw.rng.uniform(-1, 1, tuple(want.shape)))
        found = torch.autograd.grad(y, sources, dy, allow_unused=True)
        slopes = torch.autograd.grad(want, sources, dy, allow_unused=True)
        for x, *both in zip(sources, found, slopes, strict=True):
            one, slope = (torch.zeros_like(x) if dx is None else dx for dx in both)  # of the nearest place
            torch.testing.assert_close(one, slope, rtol=1e-8, atol=1e-8, msg=lambda text, turn=turn: f"{turn}: {text}")
