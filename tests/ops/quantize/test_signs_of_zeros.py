"""Codes of zeros and of what rounds to them have the sign of the number, in every op that makes float8 and float4."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import ElementKind
from baracuda_py.core.element import cast
from baracuda_py.core.plan import Plan
from baracuda_py.testing.places import call

E4, E5, F4, E8 = "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "float8_e8m0fnu"
ROWS, COLS = 6, 256
RNG = np.random.default_rng(4)


def numbers() -> np.ndarray:
    """Both zeros and small numbers of both signs among others; a row of zeros, and one of small numbers."""
    x: np.ndarray = RNG.standard_normal((ROWS, COLS)).astype(np.float32)
    x[:, ::3] *= np.float32(0)
    x[:, 1::5] *= np.float32(1e-12)
    x[1], x[2], x[3] = x[1] * np.float32(0), x[2] * np.float32(1e-30), -0.0
    return x


def minus(y: Any, to: str) -> np.ndarray:
    """Where codes have a minus sign."""
    held = np.asarray(y).view(np.uint8)
    if to == F4:
        held = np.stack([held << 4, held], -1).reshape(*held.shape[:-1], -1)
    return (held & 0x80) != 0


def made(place: str, plan: type[Plan], facts: dict[str, Any], wanted: tuple[str, ...] = ("y",), **given: Any) -> Any:
    return call(plan, plan.descriptor(**facts), wanted, place, **given)["y"]


@pytest.mark.parametrize("element", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("scale", [0.5, -0.5, 1e-35, 1e35])
@pytest.mark.parametrize("to", [E4, E5, F4])
@pytest.mark.parametrize("block", [None, (1, 0), (1, 32), (0, 1)], ids=["number", "tokens", "groups", "columns"])
def test_quantize(place: str, block: Any, to: str, scale: float, element: str) -> None:
    x = cast(numbers(), ElementKind(element))
    facts: dict[str, Any] = {"shape": x.shape, "to_element": to, "element": element}
    facts |= {"uniform": True} if block is None else {"block_shape": block}
    given: dict[str, Any] = {"uniform_scale": scale}
    if block is not None:
        given = {"scales": np.full(bc.QuantizePlan.descriptor(**facts).scale_shape, scale, np.float32)}
    y = made(place, bc.QuantizePlan, facts, x=x, **given)
    np.testing.assert_array_equal(minus(y, to), np.signbit(x.astype(np.float32)) != (scale < 0))


@pytest.mark.parametrize("to", [E4, E5, F4])
@pytest.mark.parametrize("block", [(0, 0), (1, 0), (1, 32), (0, 1), (2, 32)])
def test_dynamic_quantize(place: str, block: Any, to: str) -> None:
    x = numbers()
    facts = {"shape": x.shape, "block_shape": block, "to_element": to, "kind": "symmetric", "element": "float32"}
    y = made(place, bc.DynamicQuantizePlan, facts, ("y", "scales"), x=x)
    np.testing.assert_array_equal(minus(y, to), np.signbit(x))


@pytest.mark.parametrize("stochastic", [False, True])
def test_draws_and_casts(place: str, stochastic: bool) -> None:
    x = numbers()
    facts: dict[str, Any] = {"shape": x.shape, "to_element": E4, "element": "float32"}
    if stochastic:
        y = made(place, bc.QuantizePlan, {**facts, "uniform": True, "stochastic": True}, x=x, uniform_scale=3.0, seed=7)
    else:
        y = made(place, bc.Fp8CastPlan, facts, x=x, scale=3.0)
    np.testing.assert_array_equal(minus(y, E4), np.signbit(x))


@pytest.mark.parametrize("zero", [None, 3])
def test_fake_quantize(place: str, zero: int | None) -> None:
    """Without a zero point nothing is added; a quotient that rounds to 0 keeps its sign."""
    x = numbers()
    facts = {"shape": x.shape, "block_shape": (1, 32), "quant_min": -8, "quant_max": 7, "element": "float32"}
    scales = np.full(bc.FakeQuantizePlan.descriptor(**facts).scale_shape, 0.3, np.float32)
    zeros = None if zero is None else np.full(scales.shape, zero, np.int32)
    y = made(place, bc.FakeQuantizePlan, facts, x=x, scales=scales, zero_points=zeros)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(x))


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("columns", [COLS, COLS - 1])
def test_norms(place: str, columns: int, weight: bool, static: bool) -> None:
    x = numbers()[:, :columns]
    facts = {"kind": "rms_norm", "batch_shape": (ROWS,), "normalized_shape": (columns,), "static": static}
    scaled = {"weight": np.full(columns, 2, np.float32)} if weight else {}
    given = scaled | ({"scale": 0.5} if static else {})
    y = made(place, bc.NormQuantizePlan, {**facts, "to_element": E4, "element": "float32"}, x=x, **given)
    np.testing.assert_array_equal(minus(y, E4), np.signbit(x))


@pytest.mark.parametrize(
    ("to", "scale", "whole"), [(E4, "float32", 1.0), (F4, E8, 1.0), (F4, E4, 1e30), (F4, E4, -1e30)]
)
def test_blocks_of_norms_and_transforms(place: str, to: str, scale: str, whole: float) -> None:
    """Of the last two the scales of blocks are 0, whose sign is that of the whole's: they turn no sign."""
    x = numbers()
    facts = {"to_element": to, "scale_element": scale, "element": "float32"}
    rows = {"kind": "rms_norm", "batch_shape": (ROWS,), "normalized_shape": (COLS,), "block": 32}
    y = made(place, bc.NormQuantizeBlocksPlan, {**rows, **facts}, ("y", "scales"), x=x, scale=whole)
    np.testing.assert_array_equal(minus(y, to), np.signbit(x))
    turned = {"shape": x.shape, "block": 16, "group": 32}
    y = made(place, bc.HadamardQuantizePlan, {**turned, **facts}, ("y", "scales"), x=x, y_scale=whole)
    np.testing.assert_array_equal(minus(y, to)[3], np.arange(COLS) % 16 == 0)  # a sum of -0 is -0, a difference is 0


@pytest.mark.parametrize("columns", [COLS, COLS - 1])
def test_gates(place: str, columns: int) -> None:
    up = numbers()[:, :columns]
    facts = {"shape": up.shape, "kind": "reglu", "to_element": E4, "element": "float32"}
    y = made(place, bc.GatedQuantizePlan, facts, ("y", "scales"), gate=np.ones_like(up), up=up)
    np.testing.assert_array_equal(minus(y, E4), np.signbit(up))


def test_learnable_fake_quantize(place: str) -> None:
    x = numbers()
    facts = {"shape": x.shape, "block_shape": (1, 0), "quant_min": -8, "quant_max": 7, "element": "float32"}
    y = made(place, bc.LearnableFakeQuantizePlan, facts, x=x, scales=np.full((ROWS, 1), 0.3, np.float32))
    np.testing.assert_array_equal(np.signbit(y), np.signbit(x))


@pytest.mark.parametrize("scale", [0.25, 1e35])
@pytest.mark.parametrize("width", [8, 3])
def test_caches(place: str, width: int, scale: float) -> None:
    rows = numbers()[:, : 2 * width].reshape(ROWS, 2, width)
    cache = np.zeros((ROWS, 2, 1, width), np.uint8)
    desc = bc.PagedKvAppendFp8Plan.descriptor(
        batch_size=ROWS, num_tokens=ROWS, num_heads=2, num_pages=ROWS, page_size=1, d_k=width, d_v=width, max_pages=1,
        aux_element=E4, element="float32",
    )  # fmt: skip
    given = {"k_new": rows, "v_new": rows, "k_cache": cache, "v_cache": cache, "k_scale": scale, "v_scale": scale}
    pages = {"page_table": np.arange(ROWS)[:, None], "cache_offsets": np.zeros(ROWS, np.int64)}
    y = call(bc.PagedKvAppendFp8Plan, desc, ("k_cache", "v_cache"), place, **given, **pages)
    for name in ("k_cache", "v_cache"):
        np.testing.assert_array_equal(minus(y[name], E4)[:, :, 0], np.signbit(rows))
