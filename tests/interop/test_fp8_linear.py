"""Linear layers of fp8: their products and gradients against float64, modules, whole models."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.quant_gemm import fp8_linear as linear

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")
bcn = pytest.importorskip("baracuda_py.torch.nn")
RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: object = torch.bfloat16) -> object:
    return torch.from_numpy(RNG.standard_normal(shape)).to(dtype)


def quantised(x: object, recipe: str, second: bool, largest: float) -> object:
    """x as numbers of fp8 times its scales, in float64, by torch alone."""
    to = torch.float8_e4m3fn if largest == 448 else torch.float8_e5m2
    x = x.double()
    size = x.abs()
    if recipe == "tensor":
        most = size.amax().expand_as(x)
    elif recipe == "rows":
        most = size.amax(-1, keepdim=True).expand_as(x)
    else:
        high, pad = (128 if second else 1), torch.nn.functional.pad
        padded = pad(size, (0, -x.shape[1] % 128, 0, -x.shape[0] % high))
        blocks = padded.unflatten(0, (-1, high)).unflatten(2, (-1, 128)).amax((1, 3))
        most = blocks.repeat_interleave(high, 0).repeat_interleave(128, 1)[: x.shape[0], : x.shape[1]]
    scale = (most.float() / largest).double()
    return (x / scale).float().clamp(-largest, largest).to(to).double() * scale


@pytest.mark.parametrize("recipe", ["tensor", "rows", "blocks"])
@pytest.mark.parametrize("shape", [(5, 32), (2, 3, 140), (1, 16), (0, 16)])
def test_products_are_those_of_the_codes(recipe: str, shape: tuple[int, ...]) -> None:
    """Forward, dx and dW of operands quantised by another hand; the bias's gradient is exact but for its rounding."""
    n = 130
    x, w, b = (drawn(*s).requires_grad_() for s in (shape, (n, shape[-1]), (n,)))
    y = bct.fp8_linear(x, w, b, recipe=recipe)
    way = drawn(*y.shape)
    found = torch.autograd.grad((y * way).sum(), (x, w, b))
    rows, slope = x.detach().reshape(-1, shape[-1]), way.reshape(-1, n)
    grad = 57344 if recipe == "tensor" else 448
    product = lambda a, c, first, second: quantised(a, recipe, False, first) @ quantised(c, recipe, True, second).T  # noqa: E731
    if rows.shape[0]:
        wanted = product(rows, w.detach(), 448, 448) + b.double()
        torch.testing.assert_close(y.double().reshape(wanted.shape), wanted, rtol=1e-2, atol=2e-2)
        wanted = product(slope, w.detach().T, grad, 448)
        torch.testing.assert_close(found[0].double().reshape(wanted.shape), wanted, rtol=1e-2, atol=2e-2)
        wanted = product(slope.T, rows.T, grad, 448)
        torch.testing.assert_close(found[1].double(), wanted, rtol=1e-2, atol=2e-2)
    else:
        assert y.shape == (0, n) and not found[1].any()
    torch.testing.assert_close(found[2].double(), slope.double().sum(0), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("recipe", ["tensor", "rows", "blocks"])
def test_errors_are_those_of_the_formats(recipe: str) -> None:
    """Of normal data 4 % forward; e5m2 of dy has half the digits."""
    x, w = drawn(64, 256).requires_grad_(), (drawn(96, 256) / 16).requires_grad_()
    y = bct.fp8_linear(x, w, recipe=recipe)
    z = x.double() @ w.double().T
    way = drawn(64, 96)
    found = (y, *torch.autograd.grad((y * way).sum(), (x, w)))
    wanted = (z, *torch.autograd.grad((z * way).sum(), (x, w)))
    for one, other, most in zip(found, wanted, (0.04, 0.07, 0.07), strict=True):
        assert float((one.double() - other.double()).norm() / other.double().norm().detach()) < most


def test_what_it_refuses() -> None:
    x, w = RNG.standard_normal((4, 32)).astype(np.float16), RNG.standard_normal((3, 32)).astype(np.float16)
    with pytest.raises(InvalidProblemError, match="recipe must be one of"):
        bc.fp8_linear(x, w, recipe="delayed")
    with pytest.raises(InvalidProblemError, match=r"weight \[n, k\]"):
        bc.fp8_linear(x, w[:, :16])
    with pytest.raises(UnsupportedError, match="weight must be float16 or bfloat16"):
        bc.fp8_linear(x, w.astype(np.float32))
    with pytest.raises(UnsupportedError, match="format"):
        bc.fp8_linear(x, w, grad_element="int8")
    y = np.empty((4, 3), np.float16)
    assert bc.fp8_linear(x, w, out=y) is y


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "plain", "measured"),
    [
        (4096, 8192, 16384, 4194, (2895, 2930, 3626)),
        (8192, 4096, 14336, 3810, (2589, 2635, 3640)),
        (16384, 2048, 8192, 2149, (1590, 1659, 2295)),
        (4096, 4096, 4096, 688, (1175, 1502, 1040)),
        (1024, 2048, 2048, 310, (992, 1057, 777)),
        (2048, 4096, 4096, 574, (1077, 1077, 1077)),
    ],
)
def test_modules_choose_what_was_faster(
    rows: int, inner: int, columns: int, plain: float, measured: tuple[float, ...]
) -> None:
    """Forward and backward in us on an H200 (docs/design/quantise.md), by recipe."""
    for recipe, time in zip(("tensor", "rows", "blocks"), measured, strict=True):
        assert bcn.fp8_pays(rows, columns, inner, recipe) == (time < plain)


def test_modules_choose_and_convert() -> None:
    """Small products stay in 16 bits; a model keeps its parameters and its head."""
    assert bcn.fp8_pays(4096, 16384, 8192) and not bcn.fp8_pays(1024, 1024, 2048) and not bcn.fp8_pays(0, 16, 16)
    assert bcn.fp8_pays(8192, 14336, 4096, "rows") and not bcn.fp8_pays(2048, 2048, 1024, "rows")
    model = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.ReLU(), torch.nn.Linear(48, 7)).bfloat16()
    model.add_module("lm_head", torch.nn.Linear(7, 16).bfloat16())
    held, x = list(model.parameters()), drawn(9, 32)
    wanted = model(x)
    assert bcn.convert_to_fp8(model, recipe="rows") is model
    assert [type(m) is bcn.Fp8Linear for m in model if isinstance(m, torch.nn.Linear)] == [True, False, False]
    assert all(a is b for a, b in zip(held, model.parameters(), strict=True))
    torch.testing.assert_close(model(x), wanted, rtol=2e-2, atol=2e-2)  # too small to pay: products of 16 bits
    model[0].always = True
    y = model(x)
    assert not torch.equal(y, wanted)
    torch.testing.assert_close(y, wanted, rtol=0.1, atol=0.1)
    assert "recipe='rows', always=True" in repr(model[0])


def test_master_weights_and_autocast() -> None:
    layer = bcn.Fp8Linear(32, 16, always=True)  # float32
    x = drawn(5, 32, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32 and layer.weight.grad.abs().sum() > 0
    with pytest.raises(UnsupportedError, match="x must be float16 or bfloat16"):
        layer(x)
    with pytest.raises(InvalidProblemError, match="recipe"):
        bcn.Fp8Linear(32, 16, recipe="mx")


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)])
def test_gradients_that_nobody_wants_are_not_made(wanted: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are wanted are the same bits."""
    given = [drawn(5, 2, 32), drawn(48, 32), drawn(48)]
    way = drawn(5, 2, 48)

    def gradients(places: tuple[int, ...]) -> list[object]:
        leaves = [one.clone().requires_grad_(i in places) for i, one in enumerate(given)]
        return torch.autograd.grad(bct.fp8_linear(*leaves), [leaves[i] for i in places], way)

    every = gradients((0, 1, 2))
    products = []
    plain = linear.fp8_gemm
    monkeypatch.setattr(linear, "fp8_gemm", lambda *a, **k: products.append(1) or plain(*a, **k))
    for i, one in zip(wanted, gradients(wanted), strict=True):
        assert torch.equal(one, every[i])
    assert len(products) == 1 + (0 in wanted) + (1 in wanted)


@pytest.mark.parametrize("recipe", ["tensor", "rows", "blocks"])
@pytest.mark.parametrize("shape", [(5, 32), (2, 3, 160), (0, 16)])
def test_codes_that_are_kept_give_the_same_bits(recipe: str, shape: tuple[int, ...]) -> None:
    """And x is not among what autograd holds, when they are."""
    layer = bcn.Fp8Linear(shape[-1], 144, recipe=recipe, always=True).bfloat16()
    x, way, found = drawn(*shape), drawn(*shape[:-1], 144), []
    for kept in (True, False):
        layer.keep_codes, held = kept, []
        leaf = x.clone().requires_grad_()
        inner = leaf * 1.0

        def hold(one: object, held: list[object] = held) -> object:
            held.append(one)
            return one

        with torch.autograd.graph.saved_tensors_hooks(hold, lambda one: one):
            y = layer(inner)
        of_x = [one for one in held if one.data_ptr() == inner.data_ptr() and one.numel()]
        assert len(of_x) == (not kept and x.numel() > 0)
        found.append((y, *torch.autograd.grad((y * way).sum(), (leaf, layer.weight, layer.bias))))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_codes_are_made_where_they_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of frozen weights, without gradients, or where one asks for none; refusals are those of the function."""
    layer, x, made = bcn.Fp8Linear(32, 16, always=True).bfloat16(), drawn(4, 32), []
    module = __import__("sys").modules[bcn.Fp8Linear.__module__]
    plain = module.codes_of
    monkeypatch.setattr(module, "codes_of", lambda *a, **k: made.append(1) or plain(*a, **k))
    with torch.no_grad():
        wanted = layer(x)
    assert not made and torch.equal(layer(x), wanted) and len(made) == 1
    layer.weight.requires_grad_(False)
    layer(x.requires_grad_()).float().sum().backward()
    assert len(made) == 1 and x.grad is not None
    model = torch.nn.Sequential(torch.nn.Linear(32, 16).bfloat16())
    bcn.convert_to_fp8(model, always=True, keep_codes=False)
    model(x)
    assert len(made) == 1
    with pytest.raises(InvalidProblemError, match="weight"):
        bcn.Fp8Linear(32, 16, always=True).bfloat16()(drawn(4, 16))
