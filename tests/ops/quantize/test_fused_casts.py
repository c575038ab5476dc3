"""Norms and gated activations as fp8 with their transposes: float64 formulas of torch, codes of ml_dtypes."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import BaracudaError, InvalidProblemError
from baracuda_py.testing.places import call

torch = pytest.importorskip("torch")
CODES = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
SHAPES = [(5, 33), (3, 7, 130), (80, 144), (1, 16), (2, 2064), (0, 16), (3, 0)]
GATES = {
    "swiglu": torch.nn.functional.silu,
    "geglu": torch.nn.functional.gelu,
    "geglu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "reglu": torch.relu,
    "relu2_glu": lambda x: torch.relu(x).square(),
}


def drawn(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    return np.asarray(2 * rng.standard_normal(shape), dtype)


def compare(made: dict[str, Any], u: np.ndarray, scale: float, to: str, before: float = 0.25) -> None:
    """Codes of u · scale but for a step where u lies next to a tie; the transpose is the same codes."""
    dtype = CODES[to]
    largest = float(ml_dtypes.finfo(dtype).max)
    y = made["y"].view(dtype).astype(np.float64)
    spread = 1e-5 * np.abs(u) + 2e-6  # float32, also where terms cancel
    low, high = (np.clip(scale * z, -largest, largest).astype(dtype).astype(float) for z in (u - spread, u + spread))
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal) / 100
    assert ((y >= low - tiny) & (y <= high + tiny)).all()
    np.testing.assert_array_equal(made["yt"], made["y"].reshape(math.prod(u.shape[:-1]), u.shape[-1]).T)
    np.testing.assert_allclose(made["amax"], max(before, np.abs(u).max(initial=0)), rtol=1e-5)


@pytest.mark.parametrize("to", CODES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_norms(kind: str, shape: tuple[int, ...], to: str, place: str) -> None:
    x, layer = drawn(*shape) + np.float32(0.5), kind == "layer_norm"
    weight, bias = drawn(shape[-1], seed=1), drawn(shape[-1], seed=2) if layer else None
    offset, eps, scale = 0.0 if layer else 1.0, 1e-5, 3.0
    desc = bc.NormCastTransposeDescriptor(
        kind=kind, shape=shape, eps=eps, weight_offset=offset, to_element=to, element="float32"
    )
    made = call(
        bc.NormCastTransposePlan, desc, ("y", "yt", "mean", "rstd"), place, x=x, weight=weight, bias=bias,
        amax=np.float32(0.25), scale=scale,
    )  # fmt: skip
    wide = x.astype(np.float64)
    count = max(shape[-1], 1)
    mean = wide.sum(-1) / count if layer else np.zeros(shape[:-1])
    rstd = 1 / np.sqrt(np.square(wide - mean[..., None]).sum(-1) / count + eps)
    u = (wide - mean[..., None]) * rstd[..., None] * (weight.astype(np.float64) + offset)
    u = u if bias is None else u + bias
    compare(made, u, scale, to)
    np.testing.assert_allclose(made["rstd"], rstd, rtol=1e-6)
    np.testing.assert_allclose(made["mean"], mean, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_sixteen_bits_with_wide_weights(element: str, place: str) -> None:
    """u is never rounded to 16 bits: codes are those of the float64 formula."""
    dtype = np.float16 if element == "float16" else ml_dtypes.bfloat16
    x, weight = drawn(32, 64, dtype=dtype), drawn(64, seed=1)
    desc = bc.NormCastTransposeDescriptor(
        kind="rms_norm", shape=(32, 64), eps=0.0, weight_element="float32", element=element
    )
    made = call(bc.NormCastTransposePlan, desc, ("y", "yt"), place, x=x, weight=weight, amax=np.float32(0.25))
    wide = x.astype(np.float64)
    u = wide / np.sqrt(np.square(wide).mean(-1, keepdims=True)) * weight
    compare(made, u, 1.0, "float8_e4m3fn")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", GATES)
def test_gates(kind: str, shape: tuple[int, ...], place: str) -> None:
    gate, up = drawn(*shape), drawn(*shape, seed=1)
    desc = bc.GatedCastTransposeDescriptor(kind=kind, shape=shape, element="float32")
    made = call(bc.GatedCastTransposePlan, desc, ("y", "yt"), place, gate=gate, up=up, amax=np.float32(0.25), scale=5.0)
    u = (GATES[kind](torch.from_numpy(gate).double()) * torch.from_numpy(up)).numpy()
    compare(made, u, 5.0, "float8_e4m3fn")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", GATES)
def test_gradients_of_gates(kind: str, shape: tuple[int, ...], place: str) -> None:
    dy, gate, up = (drawn(*shape, seed=n) for n in range(3))
    desc = bc.GatedCastTransposeBackwardDescriptor(kind=kind, shape=shape, to_element="float8_e5m2", element="float32")
    made = call(
        bc.GatedCastTransposeBackwardPlan, desc, ("y", "yt"), place, dy=dy, gate=gate, up=up,
        amax=np.float32(0.25), scale=7.0,
    )  # fmt: skip
    leaves = [torch.from_numpy(one).double().requires_grad_() for one in (gate, up)]
    y = GATES[kind](leaves[0]) * leaves[1]
    d = torch.cat(torch.autograd.grad(y, leaves, torch.from_numpy(dy).double()), -1).numpy()
    compare(made, d, 7.0, "float8_e5m2")


def test_nan_and_what_is_too_large(place: str) -> None:
    gate, up = np.ones((2, 3), np.float32), np.array([[1, np.nan, -1], [1e30, 2, -np.inf]], np.float32)
    desc = bc.GatedCastTransposeDescriptor(kind="reglu", shape=(2, 3), element="float32")
    made = call(bc.GatedCastTransposePlan, desc, ("y", "yt"), place, gate=gate, up=up, amax=np.float32(0))
    y = made["y"].view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    np.testing.assert_array_equal(y, [[1, np.nan, -1], [448, 2, -448]])
    assert np.isnan(made["amax"])


def test_what_they_refuse() -> None:
    x = drawn(4, 16)
    with pytest.raises(InvalidProblemError, match="weight_offset is of rms_norm"):
        bc.norm_cast_transpose(x, kind="layer_norm", weight_offset=1.0)
    with pytest.raises(InvalidProblemError, match="bias must be None"):
        bc.norm_cast_transpose(x, None, x[0], kind="rms_norm")
    with pytest.raises(InvalidProblemError, match="at least one axis"):
        bc.gated_cast_transpose(*(np.zeros((), np.float32),) * 2, kind="swiglu")
    with pytest.raises(InvalidProblemError, match="kind must be"):
        bc.gated_cast_transpose(x, x, kind="swiglu_oai")
    with pytest.raises(BaracudaError, match="float64"):
        bc.gated_cast_transpose_backward(*(x.astype(np.float64),) * 3, kind="swiglu")
    with pytest.raises(InvalidProblemError):
        bc.gated_cast_transpose(x, x[:2], kind="swiglu")
