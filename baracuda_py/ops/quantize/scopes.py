"""quantize and dequantize, and their names by what shares a scale: a tensor, a channel, a token, a group, a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import Array, ElementKind, InvalidProblemError, Scalar
from ...calls.functional import functional
from ...core.checked import whole, wholes
from ...calls.interpreters import recorder
from ...calls.entries import entry
from ...core.tensor import Shape
from ...core.views import reshaped, shape_of
from ...core.arrays import read
from ..elementwise.cast import PACKED
from ..random.draws import is_array
from .dequantize import DequantizePlan
from .quantize import QuantizePlan

_quantize = functional(QuantizePlan)
_dequantize = functional(DequantizePlan)
_NUMBERS = (ElementKind.F32, ElementKind.F64)  # of a 0-d array that may stand for a number


def scales_of(scale: Any, zero_points: Any, *, learned: bool = False) -> dict[str, Any]:
    """Numbers, and 0-d arrays of what a kernel reads as one, are of all blocks; other arrays have one for each.

    learned: a scale has a gradient, so that a 0-d one that autograd records is an array.
    """
    if scale is None:
        raise InvalidProblemError("scale must be a number or an array, got None")
    alone = not is_array(scale)
    if not alone and not shape_of(scale, "scale") and not is_array(zero_points):
        alone = read(scale, "scale").element in _NUMBERS and not (learned and recorder((scale,)) is not None)
    if not alone:
        if zero_points is not None and not is_array(zero_points):
            if whole("zero_points", zero_points):
                raise InvalidProblemError(f"zero_points beside an array of scales must be an array, got {zero_points}")
            zero_points = None
        return {"scales": scale, "zero_points": zero_points}
    zero = 0 if zero_points is None else zero_points
    return {"uniform": True, "uniform_scale": scale, "uniform_zero_point": zero}


def check_zero(zero_points: Any, low: int, high: int) -> None:
    """Refuses a number beyond the range of the codes; arrays, which may be on a device, are not looked into."""
    if zero_points is not None and not is_array(zero_points) and not low <= whole("zero_points", zero_points) <= high:
        raise InvalidProblemError(
            f"zero_points must be from {low} to {high}, the range of the codes; got {zero_points}"
        )


def given_only(**facts: Any) -> dict[str, Any]:
    """What the caller said."""
    return {name: value for name, value in facts.items() if value is not None}


@entry(QuantizePlan)
def quantize(
    x: Array, scale: Any, zero_points: Any = None, *, to_element: Any = "int8", block_shape: Any = None,
    scale_element: Any = None, stochastic: bool = False, seed: Scalar = None, offset: Scalar = 0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """clamp(round(x / scale) + zero point) in integers, x / scale as float8 or float4 (ONNX QuantizeLinear).

    scale: a number, a 0-d array, or an array with an item for each block, of which there are as many along each axis
    as it has items there (1, or missing: one for the whole axis). block_shape: the extents of blocks, 0 for a whole
    axis, where they do not divide x. scale_element: float8_e8m0fnu where scales are powers of two in uint8.
    zero_points: likewise, int32 or of the target's element (of 4 bits int8 or uint8); a number must be in the
    target's range, arrays count within it.
    to_element: int8, uint8, int16, uint16, int32, int4 and uint4 (two a byte in uint8), float8_e4m3fn, float8_e5m2,
    float4_e2m1fn. stochastic: round at random, by `seed` and `offset`. It has no gradient: `quantize_backward` is the
    straight-through one, `fake_quantize` and `learnable_fake_quantize` have theirs. See `QuantizePlan`.
    """
    if (goal := ElementKind.of(to_element)).is_integer:
        check_zero(zero_points, int(goal.limits.min), int(goal.limits.max))
    facts = given_only(block_shape=block_shape, scale_element=scale_element)
    return _quantize(
        x, **scales_of(scale, zero_points), **facts, to_element=to_element, stochastic=stochastic, seed=seed,
        offset=offset, out=out, stream=stream, preference=preference,
    )  # fmt: skip


@entry(DequantizePlan)
def dequantize(
    x: Array, scale: Any, zero_points: Any = None, *, to_element: Any = "float32", block_shape: Any = None,
    scale_element: Any = None, element: Any = None, shape: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(x - zero point) scale (ONNX DequantizeLinear); scale, zero_points and block_shape are as of `quantize`.

    element: what x holds where its dtype does not say it (uint8 for float8 and packed elements). shape: of the
    elements; of packed ones it is by default twice as long along the last axis as x. Scales have a gradient but
    for powers of two. See `DequantizePlan`.
    """
    facts = given_only(block_shape=block_shape, shape=shape, element=element, scale_element=scale_element)
    return _dequantize(
        x,
        **scales_of(scale, zero_points, learned=True),
        **facts,
        to_element=to_element,
        out=out,
        stream=stream,
        preference=preference,
    )


def _shape(x: Any, facts: dict[str, Any]) -> Shape:
    """The shape of x in elements."""
    if facts.get("shape") is not None:
        return wholes("shape", facts["shape"])
    own = shape_of(x, "x")
    packed = facts.get("element") is not None and ElementKind.of(facts["element"]) in PACKED
    return (*own[:-1], 2 * own[-1]) if packed and own else own


def along_axis(x: Any, facts: dict[str, Any], axis: int, arrays: dict[str, Any]) -> dict[str, Any]:
    """Scales and zero points along one axis, as views of x's rank."""
    shape = _shape(x, facts)
    axis = whole("axis", axis, -len(shape), len(shape) - 1) % len(shape) if shape else 0
    if not shape:
        raise InvalidProblemError("x must have an axis of channels, got shape ()")
    for name, one in arrays.items():
        if one is not None and shape_of(one, name) != (shape[axis],):
            raise InvalidProblemError(
                f"{name} must have shape ({shape[axis]},), as axis {axis} has channels, got {shape_of(one, name)}"
            )
    wanted = tuple(n if a == axis else 1 for a, n in enumerate(shape))
    block = tuple(1 if a == axis else 0 for a in range(len(shape)))
    return {"block_shape": block, **_viewed(arrays, wanted)}


def _by_token(x: Any, facts: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """Scales and zero points of rows, with or without a last axis of extent 1."""
    shape = _shape(x, facts)
    if not shape:
        raise InvalidProblemError("x must have an axis along which a token lies, got shape ()")
    rows = shape[:-1]
    for name, one in arrays.items():
        if one is not None and shape_of(one, name) not in (rows, (*rows, 1)):
            raise InvalidProblemError(f"{name} must have shape {rows} or {(*rows, 1)}, got {shape_of(one, name)}")
    return {"block_shape": (*(1 for _ in rows), 0), **_viewed(arrays, (*rows, 1))}


def _by_group(x: Any, facts: dict[str, Any], group_size: int) -> dict[str, Any]:
    """Blocks along the last axis, which groups must divide."""
    shape = _shape(x, facts)
    size = whole("group_size", group_size, 1)
    if not shape or shape[-1] % size:
        raise InvalidProblemError(f"group_size must divide the last axis of x, got {size} and shape {shape}")
    return {"block_shape": (*(1 for _ in shape[1:]), size)}


def _by_block(x: Any, facts: dict[str, Any], block: Sequence[int]) -> dict[str, Any]:
    """Blocks of the last axes; the last ones may be shorter."""
    shape, sizes = _shape(x, facts), wholes("block", block, 1)
    if len(sizes) > len(shape):
        raise InvalidProblemError(f"block has {len(sizes)} extents, more than the axes of x, shape {shape}")
    return {"block_shape": (*(1 for _ in shape[len(sizes) :]), *sizes)}


def _viewed(arrays: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """Arrays in another shape, without a copy: axes of extent 1 more or less."""
    return {name: None if one is None else reshaped(one, shape, name) for name, one in arrays.items()}


@entry(QuantizePlan)
def quantize_per_tensor(
    x: Array, scale: Any, zero_point: Any = 0, *, to_element: Any = "int8", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with one scale and zero point, numbers or 0-d arrays (torch.quantize_per_tensor); see `quantize`."""
    return quantize(x, scale, zero_point, to_element=to_element, out=out, stream=stream, preference=preference)


@entry(DequantizePlan)
def dequantize_per_tensor(
    x: Array, scale: Any, zero_point: Any = 0, *, to_element: Any = "float32", element: Any = None, shape: Any = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x - zero_point) scale with one scale and zero point, numbers or 0-d arrays; see `dequantize`."""
    return dequantize(
        x, scale, zero_point, to_element=to_element, element=element, shape=shape, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip


@entry(QuantizePlan)
def quantize_per_channel(
    x: Array, scale: Array, zero_points: Array | None = None, *, axis: int = 0, to_element: Any = "int8",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with a scale, and a zero point, for each place along `axis` (torch.quantize_per_channel); see `quantize`."""
    facts = along_axis(x, {}, axis, {"scales": scale, "zero_points": zero_points})
    return _quantize(x, **facts, to_element=to_element, out=out, stream=stream, preference=preference)


@entry(DequantizePlan)
def dequantize_per_channel(
    x: Array, scale: Array, zero_points: Array | None = None, *, axis: int = 0, to_element: Any = "float32",
    element: Any = None, shape: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x - zero_points) scale, one for each place along `axis`; see `dequantize`."""
    facts = given_only(shape=shape, element=element)
    facts |= along_axis(x, facts, axis, {"scales": scale, "zero_points": zero_points})
    return _dequantize(x, **facts, to_element=to_element, out=out, stream=stream, preference=preference)


@entry(QuantizePlan)
def quantize_per_token(
    x: Array, scale: Array, zero_points: Array | None = None, *, to_element: Any = "int8", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with a scale, and a zero point, for each row along the last axis; see `quantize`."""
    facts = _by_token(x, {}, {"scales": scale, "zero_points": zero_points})
    return _quantize(x, **facts, to_element=to_element, out=out, stream=stream, preference=preference)


@entry(DequantizePlan)
def dequantize_per_token(
    x: Array, scale: Array, zero_points: Array | None = None, *, to_element: Any = "float32", element: Any = None,
    shape: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x - zero_points) scale, one for each row along the last axis; see `dequantize`."""
    facts = given_only(shape=shape, element=element)
    facts |= _by_token(x, facts, {"scales": scale, "zero_points": zero_points})
    return _dequantize(x, **facts, to_element=to_element, out=out, stream=stream, preference=preference)


@entry(QuantizePlan)
def quantize_per_group(
    x: Array, scale: Array, zero_points: Array | None = None, *, group_size: int = 128, to_element: Any = "int4",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with a scale, and a zero point, for each group of `group_size` neighbours along the last axis; see `quantize`.

    scale: x's shape with as many items along the last axis as there are groups, which divide it.
    """
    facts = _by_group(x, {}, group_size)
    return _quantize(
        x, scale, zero_points, **facts, to_element=to_element, out=out, stream=stream, preference=preference
    )


@entry(DequantizePlan)
def dequantize_per_group(
    x: Array, scale: Array, zero_points: Array | None = None, *, group_size: int = 128, to_element: Any = "float32",
    element: Any = None, shape: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x - zero_points) scale, one for each group of neighbours along the last axis; see `quantize_per_group`."""
    facts = given_only(shape=shape, element=element)
    facts |= _by_group(x, facts, group_size)
    return _dequantize(
        x, scale, zero_points, **facts, to_element=to_element, out=out, stream=stream, preference=preference
    )


@entry(QuantizePlan)
def quantize_per_block(
    x: Array, scale: Array, zero_points: Array | None = None, *, block: Sequence[int] = (128, 128),
    to_element: Any = "float8_e4m3fn", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with a scale, and a zero point, for each block of its last axes; see `quantize`.

    block: the blocks' extents along as many last axes; those at the ends may be shorter. scale: x's shape with the
    numbers of blocks along these axes.
    """
    facts = _by_block(x, {}, block)
    return _quantize(
        x, scale, zero_points, **facts, to_element=to_element, out=out, stream=stream, preference=preference
    )


@entry(DequantizePlan)
def dequantize_per_block(
    x: Array, scale: Array, zero_points: Array | None = None, *, block: Sequence[int] = (128, 128),
    to_element: Any = "float32", element: Any = None, shape: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(x - zero_points) scale, one for each block of the last axes; see `quantize_per_block`."""
    facts = given_only(shape=shape, element=element)
    facts |= _by_block(x, facts, block)
    return _dequantize(
        x, scale, zero_points, **facts, to_element=to_element, out=out, stream=stream, preference=preference
    )
