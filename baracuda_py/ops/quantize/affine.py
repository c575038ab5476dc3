"""Affine quantisers as fields and in NumPy: q = clamp(round(x / scale) + zero), x = (q - zero) scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import ElementKind, InvalidProblemError, Problem, UnsupportedError, derived, extents, flag, per_axis
from ...core import element as element_field
from ...core.checked import Checked
from ...core.element import FP8, cast, decode
from ...core.tensor import Shape
from ...schedules.blocks import block_for, block_of, blocks_of
from ..elementwise.cast import CODES, PACKED, carrier_shape

E = ElementKind
WHOLE = (E.I8, E.U8, E.I16, E.U16, E.I32, E.S4, E.U4)
TARGETS = (*WHOLE, *FP8, E.FP4E2M1)
SCALES = (E.F32, E.F16, E.BF16, E.F64, E.E8M0)
ZEROS = (E.I32, E.I8, E.U8, E.I16, E.U16)
_OF_TARGET = {E.S4: E.I8, E.U4: E.U8}  # zero points of 4-bit targets are not packed


@dataclass(frozen=True, kw_only=True)
class BlockFields(Checked):
    """An array of `shape` in blocks of `block_shape` elements.

    block_shape: extents along every axis, where 0 (the default) is all of the axis; a last block may be shorter.
    """

    shape: Shape = extents()
    block_shape: Any = per_axis(derived(lambda desc: (0,) * len(desc.shape)), of="shape")

    @property
    def block(self) -> Shape:
        """The extents of a block within the array."""
        return block_of(self.shape, self.block_shape)

    @property
    def scale_shape(self) -> Shape:
        """How many blocks there are along every axis."""
        return blocks_of(self.shape, self.block)

    def check_bytes(self, code: ElementKind) -> None:
        """Blocks of packed codes end where bytes do."""
        if code not in PACKED:
            return
        if not self.shape:
            raise InvalidProblemError(f"packed {code} needs at least one axis, got shape ()")
        size, extent = self.block[-1], self.shape[-1]
        if size % 2 and size != 1 and size < extent:
            raise InvalidProblemError(
                f"block_shape of packed {code} must be 1, even or 0 along the last axis of {extent}, got {size}"
            )


@dataclass(frozen=True, kw_only=True)
class AffineFields(BlockFields):
    """An array of `shape`, of which every block of `block_shape` elements has a scale, and may have a zero point.

    Blocks are as in `BlockFields`. Scales have shape `scale_shape`, so many as there are blocks along each axis.
    uniform: a number or a 0-d array is the scale of all, `uniform_scale`, and another one the zero point. Of packed
    elements (two of 4 bits a byte along the last axis) blocks have 1, all, or an even number along the last axis.
    """

    uniform: bool = flag(False)
    scale_element: ElementKind = element_field(SCALES, derived(lambda desc: E.F32))
    zero_element: ElementKind = element_field(ZEROS, derived(lambda desc: E.I32))
    if TYPE_CHECKING:
        element: ElementKind  # declared by every page

    def check(self, float_element: ElementKind, code: ElementKind) -> None:
        """The elements go together, and blocks end where bytes do."""
        if self.scale_element is E.F64 and float_element is not E.F64:
            raise UnsupportedError(
                f"scale_element float64 is for float64, got {float_element}; it may be float32, float16, bfloat16"
            )
        own = _OF_TARGET.get(code, code)
        if code in WHOLE and self.zero_element not in (E.I32, own):
            allowed = "int32" if own is E.I32 else f"int32 or {own}"
            raise UnsupportedError(f"zero_element of {code} must be {allowed}, got {self.zero_element}")
        self.check_bytes(code)


def infer_block_shape(shape: Shape, shapes: Mapping[str, Any], facts: dict[str, Any], name: str = "scales") -> None:
    """Blocks of equal extents, as many as there are scales along every axis, where nothing is said of them."""
    if facts.get("block_shape") is None and shapes.get(name) is not None:
        scales = tuple(shapes[name])
        found = block_for(shape, scales)
        if found is None:
            raise InvalidProblemError(
                f"{name} {scales} has no number for each of equal blocks of {shape}; along every axis it must have 1 "
                "or a divisor of the extent, or block_shape= says how long blocks are"
            )
        facts["block_shape"] = found


# --- NumPy -----------------------------------------------------------------------------------------------------------


def over_blocks(values: Any, desc: BlockFields) -> Any:
    """What each block has one of, for each element."""
    spread = np.broadcast_to(values, desc.scale_shape)
    for axis, (extent, size) in enumerate(zip(desc.shape, desc.block, strict=True)):
        spread = np.take(spread, np.arange(extent) // size, axis)
    return spread


def wide(array: Any, element: ElementKind, acc: ElementKind) -> Any:
    """Stored values in the accumulator."""
    return decode(array, element).astype(acc.dtype)


def shared(desc: AffineFields, acc: ElementKind, scales: Any, zeros: Any, number: Any, zero: Any) -> tuple[Any, Any]:
    """(scales, zero points) that broadcast to the elements: in the accumulator, and in int64."""
    if desc.uniform:
        return acc.dtype.type(number), np.int64(min(max(int(zero), -(2**31)), 2**31 - 1))
    factors = over_blocks(wide(scales, desc.scale_element, acc), desc)
    return factors, np.int64(0) if zeros is None else over_blocks(np.asarray(zeros).astype(np.int64), desc)


def clamped(zeros: Any, element: ElementKind) -> Any:
    """Zero points within the range of a target, in float64."""
    return np.clip(zeros, int(element.limits.min), int(element.limits.max)).astype(np.float64)


def codes_of(quotients: Any, zeros: Any, goal: ElementKind) -> Any:
    """Values of the target: of a float the quotient, rounded and saturating; else integers, of NaN the zero point."""
    if goal not in WHOLE:
        return cast(quotients, goal, saturate=True)
    v = np.asarray(quotients, np.float64)
    q = np.rint(np.where(np.isnan(v), 0, v)) + clamped(zeros, goal)
    return np.clip(q, float(goal.limits.min), float(goal.limits.max)).astype(goal.dtype)


def values_of(codes: Any, element: ElementKind, scales: Any, zeros: Any, acc: ElementKind) -> Any:
    """(q - zero) scale in the accumulator, of int32 in float64."""
    acc = E.F64 if element is E.I32 else acc
    q = codes.astype(acc.dtype)
    if element in WHOLE:
        q = q - clamped(zeros, element).astype(acc.dtype)
    return q * np.asarray(scales).astype(acc.dtype)


# --- launches --------------------------------------------------------------------------------------------------------


def affine_params(desc: Any) -> dict[str, Any]:
    """The constants that kernels/quantize/affine.cuh reads."""
    return {
        "scale_code": CODES.index(desc.scale_element), "zero_code": CODES.index(desc.zero_element),
        "uniform": desc.uniform,
    }  # fmt: skip


def shared_views(p: Problem) -> dict[str, Any]:
    """Scales and zero points with an item for each block."""
    full = p.desc.scale_shape
    views = {"scales": p.scales, "zero_points": p.zero_points}
    return {name: None if view is None else view.broadcast_to(full) for name, view in views.items()}


def check_zeros(desc: Any, views: Mapping[str, Any], element: ElementKind) -> None:
    """Zero points belong to integers, and stand beside an array of scales."""
    if views["zero_points"] is None:
        return
    if desc.uniform:
        raise InvalidProblemError(
            "zero_points must be None: with uniform scales uniform_zero_point stands in their place"
        )
    if element not in WHOLE:
        raise InvalidProblemError(f"zero_points must be None: {element} has no zero point")


def held_shape(shape: Shape, element: ElementKind) -> Shape:
    """The shape of the array that holds so many elements."""
    return carrier_shape(shape, element)


# --- tests -----------------------------------------------------------------------------------------------------------


def complete_numbers(desc: Any, arrays: dict[str, Any], element: ElementKind) -> None:
    """The numbers in the place of arrays, and zero points where codes of `element` have them."""
    arrays["uniform_scale"] = 0.25 if math.prod(desc.shape) % 2 else 0.3
    if desc.uniform or element not in WHOLE:
        arrays["zero_points"] = None
    arrays["uniform_zero_point"] = len(desc.shape) if element in WHOLE else 0


def random_scales(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """Powers of two, whose quotients may be halves, and others of all sizes that matter; few that are not positive."""
    found = np.where(rng.random(shape) < 0.5, np.exp2(rng.integers(-8, 4, shape)), np.exp(rng.normal(-2, 2, shape)))
    odd = rng.choice(np.array([0.0, -0.5, 1e-38, 3e38, np.inf, np.nan]), shape)
    return np.where(rng.random(shape) < 0.02, odd, found)


def plain_scales(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """Positive ones."""
    return np.exp(rng.normal(-2, 1, shape))


def random_zeros(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """Within the range of the codes, some at its ends and some beyond."""
    code = getattr(desc, "to_element", None) if getattr(desc, "to_element", E.F32) in TARGETS else desc.element
    code = code if code in WHOLE else E.I8
    low, high = max(int(code.limits.min), -200), min(int(code.limits.max), 200)
    return rng.integers(low, high + 1, shape)


def draw_scope(draw: Any, packed: bool) -> dict[str, Any]:
    """A shape and blocks of it: a tensor, rows, columns, groups, boxes, and blocks that leave a rest."""
    least = 1 if packed else 0
    if draw.flag():
        shape = draw.shape(least, 4, 0, 9)
    else:
        rows = draw.choice(((), (3,), (2, 5)))
        shape = (*rows, draw.sizes(32, 64, 1, 7, 48, 130, rare=(256,)))
    uniform = draw.integer(0, 3) == 0
    rank = len(shape)
    if uniform or rank == 0:
        return {"shape": shape, "uniform": uniform}
    how = draw.choice(("tensor", "rows", "columns", "axis", "groups", "box"))
    whole = [0] * rank
    if how == "rows":
        whole = [*(1 for _ in shape[1:]), 0]
    elif how == "columns":
        whole[-1] = 1
    elif how == "axis":
        whole[draw.integer(0, rank - 1)] = 1
    elif how == "groups":
        whole = [*(1 for _ in shape[1:]), draw.choice((16, 4, 32, 2, 6))]
    elif how == "box":
        whole = [draw.choice((2, 0, 3, 1)) for _ in shape]
        if packed and whole[-1] == 3:
            whole[-1] = 4
    return {"shape": shape, "block_shape": tuple(whole), "uniform": False}


def draw_runs(draw: Any) -> dict[str, Any]:
    """A shape and blocks of it: runs, and boxes of some rows of them, up to lengths that several warps sum."""
    size = draw.sizes(32, 64, 128, rare=(1024, 2048, 4096))
    rows = draw.sizes(1, 2, 4, rare=(8,))
    return {"shape": (2 * rows, 2 * size), "block_shape": (rows, size)}


def draw_elements(draw: Any, wide_element: ElementKind, code: ElementKind) -> dict[str, Any]:
    """Elements of scales and zero points that go with those of the numbers and the codes."""
    scales = [
        E.F32,
        E.E8M0,
        E.F16 if E.F64 in (wide_element, draw.element) or draw.element in (E.I32, E.U8) else E.BF16,
    ]
    scales += [E.F64] if wide_element is E.F64 else []
    own = _OF_TARGET.get(code, code)
    zeros = (E.I32, own) if code in WHOLE and own is not E.I32 else (E.I32,)
    return {"scale_element": draw.choice(scales), "zero_element": draw.choice(zeros)}
