"""cast: y = x in another element, rounded once: any float, integer or bool, fp8, e8m0, and packed 4-bit elements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, InvalidProblemError,
    Kernel, Params, Plan, Problem, Step, Variant, View, extents, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core import registry
from ...core.element import HALVES, INTS, decode, encode
from ...core.element import cast as cast_values
from ...calls.composed import composed
from ...calls.entries import entry
from ...core.arrays import read
from ...schedules.map import THREADS, chunked, lay_out, map_geometry, map_params
from ...core.benchmark import Benchmark, EAGER
from .complex_cast import call_complex_cast

K = ElementKind
PACKED = (K.FP4E2M1, K.S4, K.U4)
CODES = (
    K.F16, K.BF16, K.F32, K.F64, K.I8, K.I16, K.I32, K.I64, K.U8, K.U16, K.U32, K.U64, K.BOOL, K.FP8E4M3, K.FP8E5M2,
    K.E8M0, *PACKED,
)  # fmt: skip
"""The elements by their codes: `ElementCode` of kernels/include/baracuda/convert.cuh, which a test compares."""


@dataclass(frozen=True, kw_only=True)
class CastDescriptor(Descriptor):
    """x holds `element`, y holds `to_element`; both have shape `shape`, in elements.

    Two 4-bit elements share a byte, the first in its lower half, so that an operand that holds them is an array of
    bytes with half as many along its last axis (rounded up).
    """

    shape: tuple[int, ...] = extents()
    to_element: ElementKind = element_field(CODES)
    saturate: bool = flag(False)
    element: ElementKind = element_field(CODES)

    def validate(self) -> None:
        if not self.shape and (packed := [e for e in (self.element, self.to_element) if e in PACKED]):
            raise InvalidProblemError(f"packed {packed[0]} needs at least one axis, got shape ()")

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element

    @property
    def x_shape(self) -> tuple[int, ...]:
        """The shape of the array that holds x."""
        return carrier_shape(self.shape, self.element)

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The shape of the array that holds y."""
        return carrier_shape(self.shape, self.to_element)


def carrier_shape(shape: tuple[int, ...], element: ElementKind) -> tuple[int, ...]:
    """The shape of the array that holds so many elements: half as many bytes along the last axis of 4-bit ones."""
    return (*shape[:-1], -(-shape[-1] // 2)) if element in PACKED else shape


def _points(desc: CastDescriptor) -> tuple[float, ...]:
    """The ends of the target's range, and halves, where rounding and clamping change."""
    limits = desc.to_element.limits
    return (0, 0.5, 1, 1.5, 2.5, float(limits.max), float(limits.max) + 0.5, float(-limits.min), limits.tiny)


@dataclass(slots=True, kw_only=True)
class CastArgs(Args):
    """Any strides; fp8, e8m0 and packed elements travel as uint8. y may be x itself where both elements are one."""

    x: Array = operand("*x_shape", values=Everywhere(_points))
    y: Array = output("*y_shape", element="to_element", inplace=("x",))


def reference(desc: CastDescriptor, *, x: Any) -> Mapping[str, Any]:
    """One rounding of the stored values."""
    if desc.element in PACKED and x.dtype != desc.element.carrier:
        raise InvalidProblemError(f"x holds one {desc.element} in a byte ({x.dtype}); pack two in a uint8")
    values = decode(x, desc.element)
    if desc.element in PACKED:
        values = values[..., : desc.shape[-1]]
    return {"y": np.array(encode(cast_values(values, desc.to_element, desc.saturate), desc.to_element))}


_PAIRS = 2  # bytes of two elements that a thread has
PARAMS = Params(
    "CastParams", y="ptr", x="ptr", to="i32", saturate="i32", step="i64", columns="i64", cast_pairs=_PAIRS,
    **map_params(3),
)  # fmt: skip
_WIDTHS = (1, 2, 4, 8)  # bytes of the destination's element


def _from(element: ElementKind) -> dict[str, tuple[int, ...]]:
    return {"FROM": (CODES.index(element),)}


def _flat_axes(element: ElementKind) -> Mapping[str, Any]:
    return {**_from(element), "TO": (0, *_WIDTHS)}  # 0: half a byte


def _strided_axes(element: ElementKind) -> Mapping[str, Any]:
    return {**_from(element), "TO": () if element in PACKED else _WIDTHS}


def _one_axes(element: ElementKind) -> Mapping[str, Any]:
    return {"FROM": ()} if element in PACKED else _from(element)


KERNELS = (
    Kernel("flat", "cast_flat<{FROM}, {TO}>", PARAMS, _flat_axes, threads=THREADS, min_blocks=4),
    Kernel("strided", "cast_strided<{FROM}, {TO}>", PARAMS, _strided_axes, threads=THREADS),
    Kernel("one", "cast_one<{FROM}>", PARAMS, _one_axes, threads=THREADS),
    Kernel("bytes", "cast_bytes<{FROM}>", PARAMS, _from, threads=THREADS),
)


def _geometry(p: Problem) -> Geometry | str:
    desc, last = p.desc, p.desc.shape[-1:]
    source = {"FROM": CODES.index(desc.element)}
    values = {"to": CODES.index(desc.to_element), "saturate": desc.saturate, "step": 0, "columns": sum(last)}
    if desc.element in PACKED or desc.to_element in PACKED:
        return _in_pairs(p, values, source) if _pairs_as_they_lie(p) else _in_bytes(p, values, source)
    found = map_geometry(p, (p.y, p.x), values)
    if isinstance(found, str):
        return found
    (step,) = found.steps
    assert isinstance(step, Step)
    if step.kernel == "strided" and step.axes["VEC"] == 1:
        return replace(found, steps=(replace(step, kernel="one", axes=source),))
    return replace(found, steps=(replace(step, axes={**source, "TO": desc.to_element.itemsize}),))


def _pair_width(desc: CastDescriptor) -> int:
    """Elements of a chunk where 4-bit ones lie in pairs: 16 bytes of the wider element."""
    plain = [e.itemsize for e in (desc.element, desc.to_element) if e not in PACKED]
    return 16 // plain[0] if plain else 32


def _pairs_as_they_lie(p: Problem) -> bool:
    """Whether rows have whole bytes, without gaps, and every chunk of both operands is one access."""
    width = _pair_width(p.desc)
    wide = [width // 2 if view.element in PACKED else 16 for view in (p.y, p.x)]
    aligned = all(view.ptr % nbytes == 0 for view, nbytes in zip((p.y, p.x), wide, strict=True))
    return p.desc.shape[-1] % 2 == 0 and p.y.dense and p.x.dense and aligned


def _in_pairs(p: Problem, values: Mapping[str, Any], source: Mapping[str, int]) -> Geometry | str:
    desc, vec = p.desc, _pair_width(p.desc)
    found = lay_out((View(0, (math.prod(desc.shape),), (1,), K.U8),))
    assert not isinstance(found, str)
    params = {**values, **chunked(found, vec)}
    width = 0 if desc.to_element in PACKED else desc.to_element.itemsize
    grid = max(1, -(-params["chunks"] // THREADS))
    step = Step("flat", (grid, 1, 1), params, {**source, "TO": width}, THREADS)
    return Geometry((step,), layout="contiguous")


def _in_bytes(p: Problem, values: Mapping[str, Any], source: Mapping[str, int]) -> Geometry | str:
    """A thread for each byte of packed elements: operands y, x, and the byte's number in its row."""
    desc = p.desc
    shape = carrier_shape(desc.shape, K.U4)
    views, steps = [], [0]
    for view in (p.y, p.x):
        if view.element in PACKED:
            views.append(view)
        else:
            steps.append(view.strides[-1])
            views.append(View(view.ptr, shape, (*view.strides[:-1], 2 * view.strides[-1]), view.element))
    number = View(0, shape, (*(0 for _ in shape[1:]), 1), K.U8)
    found = lay_out((*views, number))
    if isinstance(found, str):
        return found
    params = {**values, **chunked(found, 1), "step": steps[-1]}
    grid = max(1, -(-params["chunks"] // (THREADS * _PAIRS)))
    return Geometry((Step("bytes", (grid, 1, 1), params, source, THREADS),), layout=found.layout(found.inner))


def in_torch(torch: Any, desc: CastDescriptor, *, x: Any) -> Any:
    """`Tensor.to`; floats clamped to an integer's range first, float64 rounded to odd on its way to 16 bits."""
    source, goal = desc.element, desc.to_element
    if source not in _IN_TORCH or goal not in _IN_TORCH or (desc.saturate and not source.is_float):
        return NotImplemented
    target = getattr(torch, str(goal))
    if goal.is_float:
        y = (_odd_float32(torch, x) if x.dtype is torch.float64 and goal in HALVES else x).to(target)
        return y.clamp(-goal.limits.max, goal.limits.max) if desc.saturate else y
    if not source.is_float or target is torch.bool:
        return x.to(target)
    limits = torch.iinfo(target)
    low, high = x <= limits.min, x >= limits.max
    inside = torch.where(low | high | x.isnan(), torch.zeros_like(x), x).to(target).to(torch.int64)
    return inside.masked_fill(low, limits.min).masked_fill(high, min(limits.max, 2**63 - 1)).to(target)


_IN_TORCH = (*FLOATS, *INTS, K.BOOL)


def _odd_float32(torch: Any, x: Any) -> Any:
    """x in float32, cut off, with the last bit set when anything was lost: torch goes by float32, and rounds twice."""
    single = x.float()
    bits = single.view(torch.int32) - (single.abs() > x.abs()).int()
    return (bits | (single != x).int()).view(torch.float32)


class CastPlan(Plan):
    """y = x.to(to_element), between any two elements but complex ones, which are `ComplexCastPlan`'s.

    To a float: to nearest even, once, whatever x is; overflow gives infinity, or NaN where the element has none
    (float8_e4m3fn), and with `saturate` the largest finite number, of infinities, too. NaN stays NaN. float8_e8m0fnu, a
    power of two, rounds halves up and has NaN for 0 (with `saturate` 2⁻¹²⁷) and for what is negative. float4_e2m1fn has
    neither infinity nor NaN: it always saturates, and NaN becomes 6, as the hardware does.
    To an integer: of a float toward zero, clamped to the range, NaN to 0; of an integer modulo 2ⁿ, with `saturate`
    clamped. To bool: x != 0, so that NaN is True.
    """

    op = "elementwise.cast"
    descriptor = CastDescriptor
    args = CastArgs
    reference = staticmethod(reference)
    raw = True
    variants = (
        Variant(
            "map", _geometry, source="elementwise/cast.cu", kernels=KERNELS, elements=CODES,
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("bf16 to f32 134M", shape=1 << 27, element="bfloat16", to_element="float32", peers=(EAGER,)),
        Benchmark(
            "f32 to e4m3 134M", shape=1 << 27, element="float32", to_element="float8_e4m3fn", saturate=True, peers=()
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CastDescriptor:
        goal = draw.choice(CODES)
        packed = draw.element in PACKED or goal in PACKED
        shape = draw.shape(1 if packed else 0, 4, 0, 17)
        if packed and draw.flag():
            shape = (*shape[:-1], draw.choice((2, 32, 64, 90)))
        return CastDescriptor(shape=shape, to_element=goal, saturate=draw.flag(), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        shape = tuple(shapes["x"])
        if facts.get("element") in PACKED and shape:
            shape = (*shape[:-1], 2 * shape[-1])
        facts.setdefault("shape", shape)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        held = (desc.x_shape, desc.element), (desc.y_shape, desc.to_element)
        return sum(int(math.prod(shape)) * int(element.itemsize) for shape, element in held)


_cast = functional(CastPlan, "cast")


def _between_floats(given: dict[str, Any]) -> bool:
    """Whether a cast is from floats to floats whose results have a dtype of their own and keep their range."""
    plain = given["element"] is given["shape"] is None and not given["saturate"]
    kinds = (read(given["x"], "x").element, ElementKind.of(given["to_element"]))
    return plain and all(kind.is_inexact and kind.bits >= 16 for kind in kinds)


def _cast_back(dy: Any, x: Any, preference: Any, **given: Any) -> Any:
    if read(dy, "dy").element.is_complex and not ElementKind.of(x.dtype).is_complex:
        dy = registry.public("real")(dy, preference=preference)  # the imaginary part of x is 0, whatever x is
    return registry.public("cast")(dy, x.dtype, preference=preference)


@composed(_cast_back, "x", reads=(), where=_between_floats)
@entry(CastPlan)
def cast(
    x: Array, to_element: Any, *, saturate: bool = False, element: Any = None, shape: Any = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x as `to_element` (any dtype-like), rounded once; `saturate` clamps to its range. See `CastPlan`.

    element: what x holds where its dtype does not say it (uint8 for fp8 and packed elements). shape: of the elements;
    of packed ones it is by default twice as long along the last axis as x, which may be one too many.
    """
    rest = {} if shape is None else {"shape": shape}
    held = ElementKind.of(element) if element is not None else read(x, "x").element
    goal = ElementKind.of(to_element)
    more = {"out": out, "stream": stream, "preference": preference, **rest}
    if held.is_complex or goal.is_complex:
        return call_complex_cast(x, held, goal, saturate, **more)
    return _cast(x, to_element=goal, saturate=saturate, element=held, **more)


astype = convert_element_type = cast
