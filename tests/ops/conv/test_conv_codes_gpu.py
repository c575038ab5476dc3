"""Convolutions of codes, and with formulas, on a GPU: layers of networks, every element, beside float64."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
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
}


def laid(x: Any, last: bool) -> Any:
    return x.contiguous(memory_format=torch.channels_last) if last else x.contiguous()


def integers(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    made = torch.Generator("cuda").manual_seed(seed)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, shape, dtype=dtype, device="cuda", generator=made)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("zero_w", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8], ids=str)
@pytest.mark.parametrize("layer", list(LAYERS))
def test_integers_are_exact(layer: str, dtype: Any, zero_w: bool, last: bool) -> None:
    shape, filters, given = LAYERS[layer]
    x, w = laid(integers(shape, dtype, 0), last), laid(integers(filters, torch.int8, 1), last)
    zx = integers((1,), dtype, 2)
    zw = integers(filters[:1], torch.int8, 3) if zero_w else None
    right = w.double() if zw is None else w.double() - zw.double()[:, None, None, None]
    want = F.conv2d(x.double() - zx.double(), right, None, **given)
    got = bc.conv_integer(x, w, zx, zw, **given)
    assert torch.equal(got.double(), want)
    sx, sy = torch.tensor([0.02], device="cuda"), torch.tensor([40.0], device="cuda")
    sw = torch.rand(filters[0], device="cuda", generator=torch.Generator("cuda").manual_seed(4)) * 0.1 + 0.01
    bias, zy = integers(filters[:1], torch.int8, 5).int() * 100, torch.tensor([-7], dtype=torch.int8, device="cuda")
    codes = bc.qlinear_conv(x, sx, zx, w, sw, zw, sy, zy, bias, **given)
    real = (want + bias.double()[:, None, None]) * (sx.double() * sw.double()[:, None, None]) / sy.double()
    wanted = (torch.round(real) - 7).clamp(-128, 127)
    # Where a number is half way between two integers the order of its own roundings says which it is.
    near = (real - real.floor() - 0.5).abs() < 1e-9
    assert torch.equal(torch.where(near, wanted, codes.double()), wanted)
    assert torch.equal(codes, bc.qlinear_conv(x, sx, zx, w, sw, zw, sy, zy, bias, **given))


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("out", ["float32", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("layer", list(LAYERS))
def test_fp8(layer: str, both: bool, out: str, last: bool) -> None:
    shape, filters, given = LAYERS[layer]
    made = torch.Generator("cuda").manual_seed(0)
    x, w = (laid(torch.randn(s, device="cuda", generator=made), last) for s in (shape, filters))
    x, w = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn if both else torch.float8_e5m2)
    sx, sy = (torch.tensor(v, device="cuda") for v in (0.5, 4.0))
    sw = torch.rand(filters[0], device="cuda", generator=made) + 0.25
    bias = torch.randn(filters[0], device="cuda", generator=made)
    y = bc.scaled_conv(x, w, scale_x=sx, scale_w=sw, bias=bias, scale_y=sy, out_element=out, activation="relu", **given)
    by = 0.5 * sw.double()[:, None, None]
    sums = F.conv2d(x.double(), w.double(), None, **given) * by + bias.double()[:, None, None]
    size = F.conv2d(x.double().abs(), w.double().abs(), None, **given) * by + bias.double().abs()[:, None, None]
    want = 4.0 * sums.clamp(min=0)
    assert str(y.dtype) == f"torch.{out}"
    if out == "float8_e4m3fn":
        want = want.clamp(max=448.0)
    eps = {"float32": 1e-6, "bfloat16": 8e-3, "float8_e4m3fn": 0.0626}[out]
    bound = eps * want + 4.0 * size * 2.0**-11 + (2.0**-9 if out == "float8_e4m3fn" else 1e-30)
    assert ((y.double() - want).abs() <= bound).all()


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("layer", list(LAYERS))
def test_formulas_have_the_bits_of_the_built_in(layer: str, dtype: Any, last: bool) -> None:
    shape, filters, given = LAYERS[layer]
    made = torch.Generator("cuda").manual_seed(0)
    x, w = (laid(torch.randn(s, device="cuda", generator=made).to(dtype), last) for s in (shape, filters))
    bias = torch.randn(filters[0], device="cuda", generator=made).to(dtype)
    plain = bc.conv_nd(x, w, **given)
    r = laid(torch.randn(plain.shape, device="cuda", generator=made).to(dtype), last)
    want = bc.conv_nd(x, w, bias=bias, z=r, activation="relu", **given)
    f = bc.conv_formula("relu(x + bias + r)")
    got = f(x, w, bias=bias, r=r, **given)
    assert torch.equal(got, want)
    single = f(x, w, bias=bias, r=r, **given, out_element="float32")
    assert torch.equal(single.to(dtype), got)
    codes = bc.conv_formula("relu(x + bias + r) * s")(x, w, bias=bias, r=r, s=2.0, **given, out_element="int8")
    assert torch.equal(codes.float(), torch.round(single * 2).clamp(-128, 127))
    coded = f(x, w, bias=bias, r=r, **given, out_element="float8_e4m3fn")
    assert torch.equal(coded.float(), single.clamp(-448, 448).to(torch.float8_e4m3fn).float())


def test_gradients_of_a_residual_block() -> None:
    made = torch.Generator("cuda").manual_seed(0)
    shapes = ((4, 64, 28, 28), (64, 64, 3, 3), (64,), (4, 64, 28, 28))
    leaves = [torch.randn(s, device="cuda", generator=made, dtype=torch.float64).requires_grad_() for s in shapes]
    x, w, bias, r = leaves
    y = bc.conv_formula("relu(x + bias + r)")(x, w, bias=bias, r=r, padding=1)
    want = torch.relu(F.conv2d(x, w, bias, padding=1) + r)
    torch.testing.assert_close(y, want)
    dy = torch.randn(y.shape, device="cuda", generator=made, dtype=torch.float64)
    for one, other in zip(torch.autograd.grad(y, leaves, dy), torch.autograd.grad(want, leaves, dy), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-9)
