"""Convolutions on a GPU: layers of networks, every element, beside torch in float64; the same bits twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
bt = pytest.importorskip("baracuda_py.torch")
pytestmark = pytest.mark.gpu
F = torch.nn.functional

LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((8, 128, 28, 28), (128, 128, 3, 3), {"padding": 1}),
    "1x1": ((8, 256, 28, 28), (64, 256, 1, 1), {}),
    "stem": ((4, 3, 112, 112), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
    "down": ((4, 96, 28, 28), (192, 96, 3, 3), {"stride": 2, "padding": 1}),
    "odd": ((3, 37, 19, 23), (41, 37, 3, 2), {"padding": (1, 0), "dilation": (1, 2)}),
    "groups": ((4, 128, 28, 28), (128, 32, 3, 3), {"padding": 1, "groups": 4}),
    "depthwise": ((4, 96, 28, 28), (96, 1, 7, 7), {"padding": 3, "groups": 96}),
    "depthwise down": ((4, 96, 29, 27), (96, 1, 3, 3), {"padding": 1, "groups": 96, "stride": 2}),
    "depthwise 5x5 down": ((4, 48, 29, 27), (48, 1, 5, 5), {"padding": 2, "groups": 48, "stride": 2}),
    "depthwise wide": ((4, 40, 23, 31), (40, 1, 7, 7), {"padding": 6, "groups": 40, "dilation": 2}),
    "depthwise 1d": ((4, 64, 1000), (64, 1, 31), {"padding": 15, "groups": 64}),
    "depthwise 3d": ((2, 24, 5, 14, 15), (24, 1, 3, 3, 3), {"padding": 1, "groups": 24}),
    "multiplier": ((4, 24, 20, 22), (72, 1, 3, 3), {"padding": 1, "groups": 24, "stride": (2, 1)}),
    "cardinality": ((2, 128, 28, 28), (128, 4, 3, 3), {"padding": 1, "groups": 32, "stride": 2}),
    "few in": ((2, 4, 40, 36), (96, 4, 3, 3), {"padding": 1}),
    "few out": ((2, 96, 40, 36), (3, 96, 3, 3), {"padding": 1}),
    "patches": ((4, 3, 64, 64), (128, 3, 16, 16), {"stride": 16}),
    "stride 3": ((4, 64, 28, 31), (72, 64, 4, 3), {"stride": (2, 3), "padding": (0, 2), "dilation": (1, 2)}),
    "down 3d": ((1, 32, 9, 20, 24), (64, 32, 3, 3, 3), {"stride": 2, "padding": 1}),
    "1d": ((4, 80, 1500), (384, 80, 3), {"padding": 1}),
    "3d": ((1, 64, 6, 24, 24), (64, 64, 3, 3, 3), {"padding": 1}),
}
ROUNDING = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-6, torch.float64: 1e-14}


def close(got: Any, wanted: Any, size: Any, dtype: Any) -> None:
    """Within the rounding of an element, and of sums of terms of the size of `size`."""
    assert got.dtype is dtype
    bound = (
        ROUNDING[dtype] * wanted.abs()
        + 4e-6 * size * (1e-7 if dtype is torch.float64 else 1.0)
        + (3e-8 if dtype is torch.float16 else 1e-30)
    )
    worst = ((got.double() - wanted).abs() / bound).max().item()
    assert worst <= 1, worst


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
@pytest.mark.parametrize("layer", list(LAYERS))
def test_forward_and_gradients(layer: str, dtype: Any, last: bool) -> None:
    shape, filters, given = LAYERS[layer]
    rank = len(filters) - 2
    if last and rank == 1:
        pytest.skip("torch has no channels last of three axes")
    torch.manual_seed(0)
    x, w = torch.randn(shape, device="cuda"), torch.randn(filters, device="cuda") / np.sqrt(np.prod(filters[1:]))
    b = torch.randn(filters[0], device="cuda")
    form = {"memory_format": torch.channels_last if rank == 2 else torch.channels_last_3d} if last else {}
    leaves = [t.to(dtype).contiguous(**(form if t.dim() > 2 else {})).requires_grad_() for t in (x, w, b)]
    truth = [t.detach().double().requires_grad_() for t in leaves]
    sizes = [t.detach().double().abs().requires_grad_() for t in leaves]
    name = f"conv{rank}d"
    y, again = (getattr(bt, name)(*leaves, **given) for _ in range(2))
    wanted, size = getattr(F, name)(*truth, **given), getattr(F, name)(*sizes, **given)
    assert torch.equal(y, again)
    close(y, wanted, size, dtype)
    slope = torch.randn_like(y)
    grads = torch.autograd.grad(y, leaves, slope, retain_graph=True)
    twice = torch.autograd.grad(y, leaves, slope)
    asked = torch.autograd.grad(wanted, truth, slope.double())
    of = torch.autograd.grad(size, sizes, slope.double().abs())
    for got, same, right, large in zip(grads, twice, asked, of, strict=True):
        assert torch.equal(got, same)
        close(got, right, large, dtype)


@pytest.mark.parametrize("row", ["wgmma", "mma", "simt"])
def test_every_row_of_halves(row: str) -> None:
    shape, filters, given = LAYERS["down"]
    torch.manual_seed(0)
    x, w = torch.randn(shape, device="cuda").bfloat16(), (torch.randn(filters, device="cuda") / 30).bfloat16()
    desc = bc.ConvDescriptor(shape=shape, filter_shape=filters, element="bfloat16", **given)
    plan = bc.ConvPlan(desc, bc.PlanPreference(), bc.ConvPlan.select(desc).device)
    plan.rows = tuple(r for r in plan.rows if r.name == row)
    y = torch.empty(desc.out_shape, device="cuda", dtype=torch.bfloat16)
    plan(x=x, w=w, y=y)
    wanted = F.conv2d(x.double(), w.double(), **given)
    close(y, wanted, F.conv2d(x.double().abs(), w.double().abs(), **given), torch.bfloat16)


def test_tf32_and_activation() -> None:
    shape, filters, given = LAYERS["3x3"]
    torch.manual_seed(0)
    x, w, b = (torch.randn(s, device="cuda") for s in (shape, filters, filters[:1]))
    y = bt.conv2d(x, w / 30, b, activation="silu", math_precision="tf32", **given)
    wanted = F.silu(F.conv2d(x.double(), w.double() / 30, b.double(), **given))
    assert (y.double() - wanted).abs().max().item() < 3e-2


def test_same_bits_in_every_batch() -> None:
    shape, filters, given = LAYERS["3x3"]
    torch.manual_seed(0)
    x = torch.randn(shape, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)
    w = (torch.randn(filters, device="cuda") / 30).bfloat16()
    whole = bt.conv2d(x, w, **given)
    for n in range(shape[0]):
        assert torch.equal(bt.conv2d(x[n : n + 1], w, **given)[0], whole[n])


@pytest.mark.parametrize(
    ("kernel", "given"),
    [(4, {"stride": 2, "padding": 1}), (2, {"stride": 2}), (3, {"stride": 3, "dilation": 2}),
     (3, {"stride": 2, "padding": 1, "output_padding": 1, "groups": 64})],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed(rank: int, dtype: Any, kernel: int, given: dict[str, Any]) -> None:
    torch.manual_seed(0)
    outputs = 1 if "groups" in given else 32
    x = torch.randn(2, 64, *(20, 14, 9)[:rank], device="cuda").to(dtype).requires_grad_()
    w = (torch.randn(64, outputs, *(kernel,) * rank, device="cuda") / 30).to(dtype).requires_grad_()
    y = getattr(bt, f"conv_transpose{rank}d")(x, w, **given)
    truth = [t.detach().double().requires_grad_() for t in (x, w)]
    sizes = [t.detach().double().abs().requires_grad_() for t in (x, w)]
    wanted = getattr(F, f"conv_transpose{rank}d")(*truth, **given)
    size = getattr(F, f"conv_transpose{rank}d")(*sizes, **given)
    close(y, wanted, size, dtype)
    slope = torch.randn_like(y)
    got = torch.autograd.grad(y, (x, w), slope)
    right = torch.autograd.grad(wanted, truth, slope.double())
    large = torch.autograd.grad(size, sizes, slope.double().abs())
    for a, c, s in zip(got, right, large, strict=True):
        close(a, c, s, dtype)


def test_cupy_and_a_graph() -> None:
    """Prepared once, a captured launch gives the same."""
    cp = pytest.importorskip("cupy")
    x, w = cp.random.standard_normal((2, 32, 14, 14), dtype=cp.float32), cp.ones((32, 32, 3, 3), cp.float32)
    y = bc.conv2d(x, w, padding=1)
    wanted = F.conv2d(torch.as_tensor(x), torch.as_tensor(w), padding=1)
    assert (torch.as_tensor(y) - wanted).abs().max().item() < 1e-3
