"""Layers of fp8 by delayed scales: results and gradients against float64, scales that follow, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
bcn = pytest.importorskip("baracuda_py.torch.nn")
F = torch.nn.functional
GATES = {"swiglu": F.silu, "geglu": F.gelu, "relu2_glu": lambda x: torch.relu(x).square()}


def drawn(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng([seed, *shape])
    return torch.from_numpy(rng.standard_normal(shape)).bfloat16()


def normed(layer: Any, x: Any, weight: Any, bias: Any) -> Any:
    if layer.norm is None:
        return x
    if layer.norm == "rms_norm":
        return F.rms_norm(x, x.shape[-1:], weight, layer.eps)
    return F.layer_norm(x, x.shape[-1:], weight, bias, layer.eps)


def step(layer: Any, x: Any, way: Any) -> tuple[Any, list[Any]]:
    """A forward and a backward; y, and the gradients of x and all parameters."""
    leaves = [x.detach().requires_grad_(), *layer.parameters()]
    y = layer(leaves[0])
    return y, list(torch.autograd.grad((y * way).sum(), leaves))


def wanted(layer: Any, formula: Any, x: Any, way: Any) -> tuple[Any, list[Any]]:
    """The same in float64."""
    wide = {name: one.detach().double().requires_grad_() for name, one in layer.named_parameters()}
    x = x.detach().double().requires_grad_()
    y = formula(normed(layer, x, wide.get("norm_weight"), wide.get("norm_bias")), wide)
    return y, list(torch.autograd.grad((y * way.double()).sum(), [x, *wide.values()]))


def close(found: Any, other: Any, most: float) -> None:
    assert found.shape == other.shape
    assert float((found.double() - other).detach().norm() / other.detach().norm().clamp(min=1e-30)) < most


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("norm", [None, "rms_norm", "layer_norm"])
def test_linear(norm: str | None, bias: bool) -> None:
    torch.manual_seed(0)
    layer = bcn.Fp8NormLinear(48, 33, bias, norm=norm, dtype=torch.bfloat16)
    x, way = drawn(3, 7, 48), drawn(3, 7, 33, seed=1)
    for most in (0.06, 0.04):  # slopes have 2 bits, and weights below 1 fewer digits by a scale of 1
        y, found = step(layer, x, way)
        other, slopes = wanted(layer, lambda n, p: F.linear(n, p["weight"], p.get("bias")), x, way)
        close(y, other, most)
        for one, slope in zip(found, slopes, strict=True):
            close(one, slope, 0.1)
        bcn.update_fp8(torch.nn.Sequential(layer))
    inputs, slopes_of = layer.recipes
    most = float(layer.weight.detach().abs().max())
    assert float(inputs.scale[1]) == pytest.approx(448 / most, rel=1e-5)
    assert float(slopes_of.scale[0]) == pytest.approx(57344 / float(way.abs().max()), rel=1e-5)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("norm", [None, "rms_norm", "layer_norm"])
def test_mlp(norm: str | None, kind: str) -> None:
    torch.manual_seed(1)
    layer = bcn.Fp8GatedMLP(32, 80, kind=kind, norm=norm, dtype=torch.bfloat16)
    x, way = drawn(5, 11, 32), drawn(5, 11, 32, seed=1)

    def formula(n: Any, p: Any) -> Any:
        gate, up = F.linear(n, p["gate_up"]).chunk(2, -1)
        return F.linear(GATES[kind](gate) * up, p["down"])

    other, slopes = wanted(layer, formula, x, way)
    step(layer, x, way)
    layer.update()
    y, found = step(layer, x, way)
    close(y, other, 0.08)
    for one, slope in zip(found, slopes, strict=True):
        close(one, slope, 0.15)


def test_what_they_refuse() -> None:
    with pytest.raises(InvalidProblemError, match="norm must be"):
        bcn.Fp8NormLinear(16, 16, norm="batch_norm")
    with pytest.raises(InvalidProblemError, match="kind must be swiglu"):
        bcn.Fp8GatedMLP(16, 16, kind="silu")
    layer = bcn.Fp8NormLinear(16, 16)
    with pytest.raises(UnsupportedError, match="x must be float16 or bfloat16"):
        layer(torch.zeros(2, 16))
    with pytest.raises(InvalidProblemError, match=r"x must be \[\.\.\., 16\]"):
        layer(torch.zeros(2, 15, dtype=torch.bfloat16))
    assert "norm='rms_norm'" in repr(layer)
    y = layer(drawn(0, 16))  # master weights of float32, no rows
    assert y.shape == (0, 16)
    layer(drawn(2, 16)).float().sum().backward()
    assert layer.weight.grad.dtype == layer.norm_weight.grad.dtype == torch.float32
