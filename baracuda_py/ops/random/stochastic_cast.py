"""stochastic_cast: y = x in a float of fewer bits, rounded up or down at random so that the mean is x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, Params, Plan, Problem, Scalar,
    Variant, extents, flag, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...calls.entries import entry
from ...schedules.map import map_geometry, map_kernels, map_params
from .draws import numbered, streams
from .philox import philox_bits

K = ElementKind
TARGETS = (K.F16, K.BF16, K.FP8E4M3, K.FP8E5M2)


@dataclass(frozen=True, kw_only=True)
class StochasticCastDescriptor(Descriptor):
    """x holds `element`, y holds `to_element`; both have shape `shape`. saturate: no overflow, of infinities, too."""

    shape: tuple[int, ...] = extents()
    to_element: ElementKind = element_field(TARGETS)
    saturate: bool = flag(False)
    element: ElementKind = element_field()

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element

    @property
    def codes(self) -> dict[str, int]:
        """What the bits of the target mean: see kernels/random/stochastic_cast.cu."""
        goal, fraction = self.to_element, int(self.to_element.limits.digits)
        sign = 1 << (goal.bits - 1)
        top = int(np.array(goal.limits.max, goal.dtype).view(f"u{goal.itemsize}"))
        infinity = sign - 1 if goal is K.FP8E4M3 else top + 1  # it has none, so that its only NaN stands for it
        nan = sign - 1 if goal is K.FP8E4M3 else infinity | 1 << (fraction - 1)
        bias = 2 ** (goal.bits - 2 - fraction) - 1
        return {
            "fraction": fraction, "least": 1 - bias, "max_code": top, "over_code": top if self.saturate else infinity,
            "nan_code": nan, "sign": sign, "bytes": goal.itemsize,
        }  # fmt: skip


def _points(desc: StochasticCastDescriptor) -> tuple[float, ...]:
    """The ends of the target's range."""
    limits = desc.to_element.limits
    return (0, 1, float(limits.max), limits.tiny, 2.0**limits.min_exponent)


@dataclass(slots=True, kw_only=True)
class StochasticCastArgs(Args):
    """Any strides; fp8 travels as uint8. seed and offset are 64-bit, see `DropoutPlan`."""

    x: Array = operand("*shape", values=Everywhere(_points))
    y: Array = output("*shape", element="to_element")
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def reference(desc: StochasticCastDescriptor, *, x: Any, seed: Any, offset: Any) -> Mapping[str, Any]:
    """The stored values in float64, which has all of them, and so the way to the next number of the target."""
    c = desc.codes
    with np.errstate(all="ignore"):
        value = x.astype(np.float64)
        size = np.where(np.isfinite(value), np.abs(value), 0)
        e = np.where(size == 0, c["least"], np.maximum(np.frexp(size)[1] - 1, c["least"]))
        steps = np.ldexp(size, c["fraction"] - e)
        below = np.floor(steps)
        words = philox_bits(seed, offset, x.size).reshape(x.shape)
        up = words < ((steps - below) * 2.0**32).astype(np.uint64)
        code = ((e - c["least"]) << c["fraction"]) + below.astype(np.int64) + up
        code = np.where((code > c["max_code"]) | np.isinf(value), c["over_code"], code)
        code = np.where(np.isnan(value), c["nan_code"], code) | np.where(np.signbit(value), c["sign"], 0)
    return {"y": code.astype(f"u{desc.to_element.itemsize}").view(desc.to_element.carrier)}


PARAMS = Params(
    "StochasticCastParams", y="ptr", x="ptr", seed="iscalar", offset="iscalar", fraction="i32", least="i32",
    bytes="i32", max_code="u32", over_code="u32", nan_code="u32", sign="u32", **map_params(3),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.y, p.x, numbered(p.desc.shape, p.desc.element)), p.desc.codes)


class StochasticCastPlan(Plan):
    """y = x in float16, bfloat16, float8_e4m3fn or float8_e5m2, rounded to one of its two neighbours there.

    x is `part` of the way from the neighbour nearer to 0 to the other one, and becomes that one with probability
    part, cut to a multiple of 2⁻³², so that the mean of many roundings is x (Gupta et al. 2015); what the target has
    stays. The draw of an element is the word of its row-major number in the stream of `seed` and `offset`, see
    `DropoutPlan`: equal calls give equal bits, on every device; give every call another offset.

    Beyond the largest number lies the one that would follow it, which is infinity, or NaN where the target has none
    (float8_e4m3fn), and with `saturate` the largest number itself. NaN stays NaN. There is no gradient: that of the
    mean is dy.
    """

    op = "random.stochastic_cast"
    descriptor = StochasticCastDescriptor
    args = StochasticCastArgs
    reference = staticmethod(reference)
    raw = True
    variants = (
        Variant(
            "map", _geometry, source="random/stochastic_cast.cu",
            kernels=map_kernels("stochastic_cast<{T}, {LAYOUT}>", PARAMS), elements=FLOATS,
            guarantee=Guarantee(Exact(), native=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("f32 to bf16 134M", shape=1 << 27, element="float32", to_element="bfloat16", peers=(),
                  make=lambda torch, desc: {"seed": 1}),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> StochasticCastDescriptor:
        goal = draw.choice(TARGETS)
        return StochasticCastDescriptor(
            shape=draw.shape(0, 4, 0, 17), to_element=goal, saturate=draw.flag(), element=draw.element
        )

    @classmethod
    def complete(cls, desc: StochasticCastDescriptor, arrays: dict[str, Any]) -> None:
        streams(desc.shape, arrays)


_cast = functional(StochasticCastPlan)


@entry(StochasticCastPlan)
def stochastic_cast(
    x: Array, to_element: Any, *, seed: Scalar = None, offset: Scalar = 0, saturate: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x as float16, bfloat16, float8_e4m3fn or float8_e5m2, its mean kept by random rounding.

    seed, offset: integers or 0-d device arrays, of which equal ones give equal bits. See `StochasticCastPlan`.
    """
    return _cast(
        x, to_element=to_element, saturate=saturate, seed=seed, offset=offset, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
