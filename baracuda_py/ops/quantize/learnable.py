"""Fake quantisation with learned scales and zero points, by its scopes and torch's names."""

from __future__ import annotations

from typing import Any

from ...core import Array, InvalidProblemError, Scalar
from ...calls.functional import functional
from ...calls.entries import entry
from ...core.views import reshaped, shape_of
from ..random.draws import is_array
from .learnable_fake_quantize import LearnableFakeQuantizePlan
from .scopes import along_axis, given_only

_learnable = functional(LearnableFakeQuantizePlan)


@entry(LearnableFakeQuantizePlan)
def learnable_fake_quantize(
    x: Array, scale: Array, zero_points: Array | None = None, *, quant_min: int = -128, quant_max: int = 127,
    grad_factor: Scalar = 1.0, block_shape: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`fake_quantize` with gradients of x, scale and zero_points, which are floats: learned step sizes.

    scale: an array with an item for each block, of as many along each axis as it has items there (1, or missing: one
    for the whole axis). zero_points: likewise, of scale's element; each counts as the nearest integer in the range.
    block_shape: the extents of blocks, 0 for a whole axis, where they do not divide x. grad_factor: what gradients of
    scale and zero_points are multiplied by (1 / sqrt(numbers in a block · quant_max) in Esser et al., 2020).
    See `LearnableFakeQuantizePlan`.
    """
    rank, arrays = len(shape_of(x, "x")), {"scales": scale, "zero_points": zero_points}
    for name, one in arrays.items():
        if one is None and name == "zero_points":
            continue
        if not is_array(one):
            raise InvalidProblemError(f"{name} must be an array, as it has a gradient, got {type(one).__name__}")
        own = shape_of(one, name)
        if len(own) < rank:
            arrays[name] = reshaped(one, (*(1 for _ in range(rank - len(own))), *own), name)
        elif len(own) == 1 and own[0] == 1 and rank == 0:
            arrays[name] = reshaped(one, (), name)
    return _learnable(
        x, **arrays, **given_only(block_shape=block_shape), quant_min=quant_min, quant_max=quant_max,
        grad_factor=grad_factor, out=out, stream=stream, preference=preference,
    )  # fmt: skip


@entry(LearnableFakeQuantizePlan)
def fake_quantize_learnable_per_tensor_affine(
    x: Array, scale: Array, zero_point: Array, quant_min: int, quant_max: int, grad_factor: Scalar = 1.0, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`learnable_fake_quantize` with arrays of one item (torch._fake_quantize_learnable_per_tensor_affine)."""
    for name, one in (("scale", scale), ("zero_point", zero_point)):
        if is_array(one) and shape_of(one, name) not in ((), (1,)):
            raise InvalidProblemError(f"{name} must have one item, got shape {shape_of(one, name)}")
    return learnable_fake_quantize(
        x, scale, zero_point, quant_min=quant_min, quant_max=quant_max, grad_factor=grad_factor, out=out,
        stream=stream, preference=preference,
    )  # fmt: skip


@entry(LearnableFakeQuantizePlan)
def fake_quantize_learnable_per_channel_affine(
    x: Array, scale: Array, zero_point: Array, axis: int, quant_min: int, quant_max: int, grad_factor: Scalar = 1.0, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`learnable_fake_quantize` of places along `axis` (torch._fake_quantize_learnable_per_channel_affine)."""
    facts = along_axis(x, {}, axis, {"scales": scale, "zero_points": zero_point})
    return _learnable(
        x, **facts, quant_min=quant_min, quant_max=quant_max, grad_factor=grad_factor, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
