"""Fake quantisation by torch's names, and the gradients of quantisers."""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind
from ...calls.functional import functional
from ...core.checked import truth, whole
from ...calls.entries import entry
from .fake_quantize import FakeQuantizeBackwardPlan, FakeQuantizePlan
from .scopes import along_axis, check_zero, given_only, scales_of

_fake = functional(FakeQuantizePlan)
_fake_backward = functional(FakeQuantizeBackwardPlan)


@entry(FakeQuantizePlan)
def fake_quantize(
    x: Array, scale: Any, zero_points: Any = None, *, quant_min: int = -128, quant_max: int = 127,
    block_shape: Any = None, scale_element: Any = None, return_mask: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(clamp(round(x / scale) + zero point, quant_min, quant_max) - zero point) scale; its gradient is dy in the range.

    scale, zero_points (int32) and block_shape are as of `quantize`; a zero point that is a number must be in the range,
    arrays count within it. return_mask: also whether integers are in the range
    (torch's _cachemask functions). See `FakeQuantizePlan`.
    """
    check_zero(zero_points, whole("quant_min", quant_min), whole("quant_max", quant_max))
    facts = given_only(block_shape=block_shape, scale_element=scale_element)
    return _fake(
        x, **scales_of(scale, zero_points), **facts, quant_min=quant_min, quant_max=quant_max,
        return_mask=truth("return_mask", return_mask), out=out, stream=stream, preference=preference,
    )  # fmt: skip


@entry(FakeQuantizePlan)
def fake_quantize_per_tensor_affine(
    x: Array, scale: Any, zero_point: Any, quant_min: int, quant_max: int, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`fake_quantize` with one scale and zero point, numbers or 0-d arrays (torch's function of this name)."""
    return fake_quantize(
        x, scale, zero_point, quant_min=quant_min, quant_max=quant_max, out=out, stream=stream, preference=preference
    )


@entry(FakeQuantizePlan)
def fake_quantize_per_channel_affine(
    x: Array, scale: Array, zero_point: Array | None, axis: int, quant_min: int, quant_max: int, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`fake_quantize` with a scale and zero point for each place along `axis` (torch's function of this name)."""
    facts = along_axis(x, {}, axis, {"scales": scale, "zero_points": zero_point})
    return _fake(x, **facts, quant_min=quant_min, quant_max=quant_max, out=out, stream=stream, preference=preference)


@entry(FakeQuantizeBackwardPlan)
def fake_quantize_backward(
    dy: Array, x: Array, scale: Any, zero_points: Any = None, *, quant_min: int = -128, quant_max: int = 127,
    block_shape: Any = None, scale_element: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx = dy where the integer of x is in the range, else 0: the gradient of `fake_quantize`."""
    facts = given_only(block_shape=block_shape, scale_element=scale_element)
    return _fake_backward(
        dy, x, **scales_of(scale, zero_points), **facts, quant_min=quant_min, quant_max=quant_max, out=out,
        stream=stream, preference=preference,
    )  # fmt: skip


@entry(FakeQuantizeBackwardPlan)
def quantize_backward(
    dy: Array, x: Array, scale: Any, zero_points: Any = None, *, to_element: Any = "int8", block_shape: Any = None,
    scale_element: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx = dy / scale where `quantize` does not saturate x, else 0 (straight-through); dy has x's element.

    Of targets of up to 16 bits; those of float8 and float4 saturate where |x / scale| is above their largest number.
    """
    goal = ElementKind.of(to_element)
    facts = given_only(block_shape=block_shape, scale_element=scale_element)
    return _fake_backward(
        dy, x, **scales_of(scale, zero_points), **facts, quant_min=int(goal.limits.min), quant_max=int(goal.limits.max),
        divided=True, whole=goal.is_integer, out=out, stream=stream, preference=preference,
    )  # fmt: skip
