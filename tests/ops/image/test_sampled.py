"""grid_sample, affine_grid, warps, map_coordinates, fractional pools, deformable ops: values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
F = torch.nn.functional


def close(mine: Any, theirs: Any) -> None:
    assert mine.shape == theirs.shape
    mine, theirs = (np.asarray(one.detach() if hasattr(one, "detach") else one) for one in (mine, theirs))
    np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-11)


def randn(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "rank"), [("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3), ("nearest", 3)]
)
def test_grid_sample_is_that_of_torch(mode: str, rank: int, padding: str, align: bool) -> None:
    torch.manual_seed(0)
    x, grid = randn(2, 3, *(4, 5, 6)[:rank]), (randn(2, *(3, 2, 4)[:rank], rank) * 1.2).detach().requires_grad_()
    y, wanted = bc.grid_sample(x, grid, mode, padding, align), F.grid_sample(x, grid, mode, padding, align)
    dy = torch.randn_like(wanted)
    close(y, wanted)
    found = torch.autograd.grad(y, (x, grid), dy, allow_unused=True)
    for mine, theirs in zip(found, torch.autograd.grad(wanted, (x, grid), dy), strict=True):
        if mine is None:  # the nearest place has no gradient for the grid
            assert mode == "nearest" and not theirs.any()
        else:
            close(mine, theirs)


def test_places_that_are_not_finite_read_nothing() -> None:
    x = np.ones((1, 2, 3, 4), np.float32)
    grid = np.float32([[[[np.nan, 0], [np.inf, 0], [-np.inf, np.nan], [0, 0], [1e30, -1e30]]]])
    y = bc.grid_sample(x, grid)
    assert y[0, 0, 0].tolist() == [0, 0, 0, 1, 0]
    assert bc.grid_sample(x, grid, padding_mode="border")[0, 1, 0].tolist() == [0, 1, 0, 1, 1]


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 3, 4, 5)])
@pytest.mark.parametrize("align", [False, True])
def test_affine_grid_is_that_of_torch(size: tuple[int, ...], align: bool) -> None:
    rank = len(size) - 2
    theta = randn(size[0], rank, rank + 1)
    y, wanted = bc.affine_grid(theta, size, align), F.affine_grid(theta, size, align)
    dy = torch.randn_like(wanted)
    close(y, wanted)
    close(torch.autograd.grad(y, theta, dy)[0], torch.autograd.grad(wanted, theta, dy)[0])


def test_affine_grid_writes_an_output_that_no_view_flattens() -> None:
    theta = np.random.default_rng(0).standard_normal((1, 2, 3))
    out = np.zeros((1, 3, 8, 2))[:, :, ::2]
    assert bc.affine_grid(theta, (1, 2, 3, 4), out=out) is out
    close(out, bc.affine_grid(theta, (1, 2, 3, 4)))


@pytest.mark.parametrize("mode", ["constant", "nearest", "wrap", "mirror", "reflect"])
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates_is_that_of_jax(mode: str, order: int) -> None:
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    for rank in (1, 2, 3):
        x = rng.standard_normal((5, 4, 6)[:rank]).astype(np.float32)
        places = [rng.uniform(-7, 9, (3, 8)).astype(np.float32) for _ in range(rank)]
        for cval in (0.0, 2.5):
            wanted = jax.scipy.ndimage.map_coordinates(x, places, order, mode, cval)
            np.testing.assert_allclose(bc.map_coordinates(x, places, order, mode, cval), wanted, rtol=1e-4, atol=1e-5)


def test_warps_read_through_the_inverse() -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 6, 7))
    m = np.array([[[1.1, 0.2, -0.7], [0.1, 0.9, 0.4], [0.01, 0.02, 1.0]]])
    rows, columns = np.meshgrid(np.arange(5.0), np.arange(8.0), indexing="ij")
    there = np.linalg.inv(m[0]) @ np.stack([columns, rows, np.ones((5, 8))]).reshape(3, -1)
    there = (there / there[2]).reshape(3, 1, 5, 8)
    grid = torch.tensor(np.stack([there[0] / 3 - 1, there[1] / 2.5 - 1], -1))
    wanted = F.grid_sample(torch.tensor(x), grid, align_corners=True)
    close(bc.warp_perspective(x, m, (5, 8)), wanted)
    close(bc.remap(x, there[0], there[1]), wanted)
    flat = m.copy()
    flat[0, 2] = 0, 0, 1
    close(bc.warp_affine(x, flat[:, :2], (5, 8)), bc.warp_perspective(x, flat, (5, 8)))
    shifted = bc.warp_affine(x, np.array([[[1.0, 0, 1], [0, 1, 0]]]), (6, 7))
    np.testing.assert_array_equal(shifted[..., 1:], x[..., :-1])
    assert not shifted[..., 0].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_pools_take_the_windows_of_torch(rank: int, dtype: Any) -> None:
    for kernel, outputs in ((2, (5, 4, 3)), (3, (1, 4, 3)), (1, (8, 7, 6))):
        x = torch.randn((2, 3, 9, 8, 7)[: 2 + rank], dtype=dtype, requires_grad=True)
        samples = torch.rand(2, 3, rank, dtype=dtype)
        name = f"fractional_max_pool{rank}d_with_indices"
        y, places = getattr(bc, name)(x, kernel, outputs[:rank], samples=samples)
        wanted, there = getattr(F, name)(x, kernel, outputs[:rank], _random_samples=samples)
        dy = torch.randint(-8, 9, wanted.shape).to(dtype)
        assert torch.equal(y, wanted) and torch.equal(places, there)
        close(torch.autograd.grad(y, x, dy)[0], torch.autograd.grad(wanted, x, dy)[0])
    with pytest.raises(bc.InvalidProblemError, match="more places"):
        bc.fractional_max_pool2d(np.zeros((1, 4, 4), np.float32), 3, 3, samples=np.zeros((1, 2), np.float32))


def test_deform_conv2d_without_offsets_is_a_convolution() -> None:
    for groups in (1, 2):
        x, weight, bias = randn(2, 4, 6, 7), randn(6, 4 // groups, 3, 2), randn(6)
        wanted = F.conv2d(x, weight, bias, (2, 1), (1, 0), (1, 2), groups)
        offset = torch.zeros(2, 24, *wanted.shape[2:], dtype=torch.float64)
        mask = torch.ones(2, 12, *wanted.shape[2:], dtype=torch.float64)
        y = bc.deform_conv2d(x, offset, weight, bias, (2, 1), (1, 0), (1, 2), mask)
        dy = torch.randn_like(wanted)
        close(y, wanted)
        mine = torch.autograd.grad(y, (x, weight, bias), dy)
        for one, other in zip(mine, torch.autograd.grad(wanted, (x, weight, bias), dy), strict=True):
            close(one, other)


def test_deform_conv2d_of_one_tap_is_grid_sample() -> None:
    x, offset, mask = randn(2, 3, 5, 6), randn(2, 2, 5, 6), torch.rand(2, 1, 5, 6, dtype=torch.float64)
    weight = torch.eye(3, dtype=torch.float64).reshape(3, 3, 1, 1)
    rows, columns = torch.arange(5.0)[:, None] + offset[:, 0], torch.arange(6.0) + offset[:, 1]
    wanted = F.grid_sample(x, torch.stack([columns / 2.5 - 1, rows / 2 - 1], -1), align_corners=True) * mask
    y, dy = bc.deform_conv2d(x, offset, weight, mask=mask), torch.randn_like(wanted)
    close(y, wanted)
    mine = torch.autograd.grad(y, (x, offset), dy)
    for one, other in zip(mine, torch.autograd.grad(wanted, (x, offset), dy), strict=True):
        close(one, other)


def test_ms_deformable_attention_is_grid_sample_by_levels() -> None:
    levels, heads, points = [(4, 5), (2, 3)], 3, 4
    value, places, weights = (
        randn(2, 26, heads, 4),
        torch.rand(2, 5, heads, 2, points, 2),
        torch.rand(2, 5, heads, 2, points),
    )
    places, weights = (one.double().requires_grad_() for one in (places * 1.2 - 0.1, weights))
    parts = []
    for level, ((h, w), part) in enumerate(zip(levels, value.split([20, 6], 1), strict=True)):
        images = part.flatten(2).transpose(1, 2).reshape(2 * heads, 4, h, w)
        grid = (2 * places - 1)[:, :, :, level].transpose(1, 2).flatten(0, 1)
        parts.append(F.grid_sample(images, grid, align_corners=False))
    shares = weights.transpose(1, 2).reshape(2 * heads, 1, 5, 2 * points)
    wanted = (torch.stack(parts, -2).flatten(-2) * shares).sum(-1).view(2, heads * 4, 5).transpose(1, 2)
    y, dy = bc.ms_deformable_attention(value, levels, places, weights), torch.randn_like(wanted)
    close(y, wanted)
    given = (value, places, weights)
    for one, other in zip(torch.autograd.grad(y, given, dy), torch.autograd.grad(wanted, given, dy), strict=True):
        close(one, other)
