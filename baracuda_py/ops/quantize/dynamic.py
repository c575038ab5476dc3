"""dynamic_quantize and choose_qparams by what shares a scale: a tensor, a channel, tokens, groups, blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core import Array, InvalidProblemError
from ...calls.functional import functional
from ...core.checked import shown, truth, whole, wholes
from ...calls.entries import entry
from ...core.tensor import Shape
from ...core.views import shape_of
from .choose_qparams import ChooseQParamsPlan, RangeKind
from .dynamic_quantize import DynamicQuantizePlan

SCOPES = ("tensor", "channel", "token", "group", "block")
_quantize = {kind: functional(DynamicQuantizePlan, kind=kind) for kind in RangeKind}
_choose = {kind: functional(ChooseQParamsPlan, kind=kind) for kind in RangeKind}


def scope_blocks(shape: Shape, scope: Any, axis: Any, group_size: Any, block: Any) -> Shape:
    """The extents of the blocks of a scope, 0 for a whole axis."""
    rank = len(shape)
    if scope not in SCOPES:
        raise InvalidProblemError(f"scope must be one of {', '.join(SCOPES)}, got {shown(scope)}")
    if not rank and scope != "tensor":
        raise InvalidProblemError(f"scope {scope} needs an axis, got shape ()")
    at = whole("axis", axis, -rank, rank - 1) % rank if rank else whole("axis", axis, -1, 0)
    size, sizes = whole("group_size", group_size, 1), wholes("block", block, 1)
    if scope == "channel":
        return tuple(1 if a == at else 0 for a in range(rank))
    if scope == "token":
        return (*(1 for _ in shape[1:]), 0)
    if scope == "group":
        if shape[-1] % size:
            raise InvalidProblemError(f"group_size must divide the last axis of x, got {size} and shape {shape}")
        return (*(1 for _ in shape[1:]), size)
    if scope == "block":
        if len(sizes) > rank:
            raise InvalidProblemError(f"block has {len(sizes)} extents, more than the axes of x, shape {shape}")
        return (*(1 for _ in shape[len(sizes) :]), *sizes)
    return tuple(0 for _ in shape)


def _called(of: Mapping[RangeKind, Any], x: Any, symmetric: Any, facts: dict[str, Any]) -> Any:
    """A function of the table, with zero points where the range is asymmetric."""
    if truth("symmetric", symmetric):
        return of[RangeKind.SYMMETRIC](x, **facts)
    return of[RangeKind.ASYMMETRIC](x, return_zero_points=True, **facts)


def _facts(
    x: Any, scope: Any, axis: Any, group_size: Any, block: Any, block_shape: Any, **facts: Any
) -> dict[str, Any]:
    """The attributes of a call; block_shape instead of a scope."""
    found = scope_blocks(shape_of(x, "x"), scope, axis, group_size, block)
    return {**facts, "block_shape": found if block_shape is None else block_shape}


@entry(DynamicQuantizePlan)
def dynamic_quantize(
    x: Array, *, scope: str = "tensor", axis: int = 0, group_size: int = 128, block: Sequence[int] = (128, 128),
    block_shape: Any = None, symmetric: bool = True, to_element: Any = "int8", scale_element: Any = "float32",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(y, scales), or with `symmetric=False` (y, scales, zero_points): x as codes, with scales by the range of x.

    scope: what has a scale: the tensor, each channel (place along `axis`), each token (row along the last axis), each
    group of `group_size` neighbours of a row, each block of the last axes, of extents `block`, which may end short; or
    block_shape says the extents along every axis, 0 for all. Scales have x's rank, and as many items along each axis as
    there are blocks; `dequantize(y, scales)` takes them so. to_element: int8, int4, float8 and float4 (symmetric),
    int8, uint8, int4, uint4 (asymmetric, ONNX DynamicQuantizeLinear). scale_element: float32, or float8_e8m0fnu for
    powers of two. See `DynamicQuantizePlan`.
    """
    facts = _facts(
        x, scope, axis, group_size, block, block_shape, to_element=to_element, scale_element=scale_element, out=out,
        stream=stream, preference=preference,
    )  # fmt: skip
    return _called(_quantize, x, symmetric, facts)


@entry(ChooseQParamsPlan)
def choose_qparams(
    x: Array, *, scope: str = "tensor", axis: int = 0, group_size: int = 128, block: Sequence[int] = (128, 128),
    block_shape: Any = None, symmetric: bool = False, to_element: Any = "uint8", scale_element: Any = "float32",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(scales, zero_points), or with `symmetric=True` scales alone, by the range of x; see `dynamic_quantize`."""
    facts = _facts(
        x, scope, axis, group_size, block, block_shape, to_element=to_element, scale_element=scale_element, out=out,
        stream=stream, preference=preference,
    )  # fmt: skip
    return _called(_choose, x, symmetric, facts)


@entry(DynamicQuantizePlan)
def quantize_per_tensor_dynamic(
    x: Array, to_element: Any = "int8", *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """(y, scale, zero_point) of x by its whole range, int8 or uint8 (torch.quantize_per_tensor_dynamic).

    It is `dynamic_quantize(x, symmetric=False)`: scale and zero_point have x's rank.
    """
    return dynamic_quantize(x, symmetric=False, to_element=to_element, out=out, stream=stream, preference=preference)
