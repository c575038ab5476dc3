"""rrelu: leaky_relu whose slope is drawn for each element (Xu, Wang, Chen, Li 2015), and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Scalar, Ulp, Variant,
    Vjp, element, extents, number, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import truth
from ...core.element import HALVES
from ...core.error_bound import ErrorBound
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...schedules.map import map_geometry, map_kernels, map_params
from ..elementwise.unary import leaky_relu  # type: ignore[attr-defined]
from ..elementwise.unary_backward import leaky_relu_backward  # type: ignore[attr-defined]
from .draws import numbered, streams
from .philox import philox_uniform

LOWER, UPPER = 1 / 8, 1 / 3


@dataclass(frozen=True, kw_only=True)
class RreluDescriptor(Descriptor):
    """x and y have shape `shape`; slopes lie in [lower, upper)."""

    shape: tuple[int, ...] = extents()
    lower: float = number(LOWER)
    upper: float = number(UPPER)
    element: ElementKind = element()

    def validate(self) -> None:
        if not self.lower <= self.upper:
            raise InvalidProblemError(f"rrelu needs lower <= upper, got {self.lower} and {self.upper}")


@dataclass(slots=True, kw_only=True)
class RreluArgs(Args):
    """Any strides; y may be x itself. seed and offset are 64-bit, see `DropoutPlan`."""

    x: Array = operand("*shape", values=Everywhere())
    y: Array = output("*shape", inplace=("x",))
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def _times_slope(desc: RreluDescriptor, factor: Any, x: Any, seed: Any, offset: Any) -> Any:
    """factor where x > 0, else factor times the element's slope; coefficients as the kernels have them."""
    lower, span = (x.dtype.type(desc.element.acc.dtype.type(v)) for v in (desc.lower, desc.upper - desc.lower))
    uniform = philox_uniform(seed, offset, x.size).astype(x.dtype).reshape(x.shape)
    with np.errstate(all="ignore"):
        return np.where(x <= 0, factor * (uniform * span + lower), factor)


def reference(desc: RreluDescriptor, *, x: Any, seed: Any, offset: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    return {"y": _times_slope(desc, x, x, seed, offset)}


PARAMS = Params(
    "RreluParams", y="ptr", x="ptr", dy="ptr", seed="iscalar", offset="iscalar", lower="f64", span="f64",
    **map_params(4),
)  # fmt: skip
_KERNELS = map_kernels("rrelu<{T}, {LAYOUT}>", PARAMS)


def _values(desc: RreluDescriptor) -> dict[str, float]:
    return {"lower": desc.lower, "span": desc.upper - desc.lower}


def _geometry(p: Problem) -> Geometry | str:
    views = (p.y, p.x, None, numbered(p.desc.shape, p.desc.element))
    return map_geometry(p, views, {"dy": "@null", **_values(p.desc)})


def _bound(kind: ElementKind, _: Any) -> ErrorBound:
    return Ulp(0.51 if kind in HALVES else 1.5)


def in_torch(torch: Any, desc: RreluDescriptor, *, x: Any, seed: Any, offset: Any) -> Any:
    """torch draws by no Philox of ours: where there is one slope alone, its results are ours."""
    if desc.lower != desc.upper:
        return NotImplemented
    return torch.nn.functional.rrelu(x, desc.lower, desc.upper, True)


_BENCHMARK = Benchmark("134M bf16", shape=1 << 27, element="bfloat16", make=lambda torch, desc: {"seed": 1}, peers=())


def _case(draw: Any) -> RreluDescriptor:
    lower, upper = draw.choice(((LOWER, UPPER), (0.25, 0.25), (-0.5, 2.0), (0.0, 0.0), (0.0, 1.0)))
    return RreluDescriptor(shape=draw.shape(0, 4, 0, 17), lower=lower, upper=upper, element=draw.element)


class RreluPlan(Plan):
    """y = x where x > 0, else a x with a uniform in [lower, upper) (torch.nn.functional.rrelu in training).

    a = lower + u (upper - lower), u the uniform of the element's number in row-major order in the stream of `seed` and
    `offset`, see `DropoutPlan`: the gradient draws it again, so that nothing is saved. Out of training use leaky_relu
    with the mean slope, which the function `rrelu` does.
    """

    op = "random.rrelu"
    descriptor = RreluDescriptor
    args = RreluArgs
    reference = staticmethod(reference)
    vjp = Vjp("RreluBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant("map", _geometry, source="random/rrelu.cu", kernels=_KERNELS, guarantee=Guarantee(_bound)),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (_BENCHMARK,)

    @staticmethod
    def case(draw: Any) -> RreluDescriptor:
        return _case(draw)

    @classmethod
    def complete(cls, desc: RreluDescriptor, arrays: dict[str, Any]) -> None:
        streams(desc.shape, arrays)


@dataclass(slots=True, kw_only=True)
class RreluBackwardArgs(Args):
    """Any strides; dx may be dy or x itself. x, seed and offset are those of the forward call."""

    dy: Array = operand("*shape", values=Everywhere())
    x: Array = operand("*shape", values=Everywhere())
    dx: Array = output("*shape", inplace=("dy", "x"))
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def backward_reference(desc: RreluDescriptor, *, dy: Any, x: Any, seed: Any, offset: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    return {"dx": _times_slope(desc, dy, x, seed, offset)}


def _backward_geometry(p: Problem) -> Geometry | str:
    views = (p.dx, p.x, p.dy, numbered(p.desc.shape, p.desc.element))
    return map_geometry(p, views, {"y": "dx", **_values(p.desc)})


class RreluBackwardPlan(Plan):
    """dx = dy where x > 0, else dy times the slope of the forward call, drawn again from seed and offset."""

    op = "random.rrelu_backward"
    direction = "backward"
    descriptor = RreluDescriptor
    args = RreluBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant("map", _backward_geometry, source="random/rrelu.cu", kernels=_KERNELS, guarantee=Guarantee(_bound)),
    )  # fmt: skip
    benchmarks = (_BENCHMARK,)

    @staticmethod
    def case(draw: Any) -> RreluDescriptor:
        return _case(draw)

    @classmethod
    def complete(cls, desc: RreluDescriptor, arrays: dict[str, Any]) -> None:
        streams(desc.shape, arrays)


_forward, _backward = functional(RreluPlan), functional(RreluBackwardPlan)


def _mean(lower: Any, upper: Any) -> float:
    desc = RreluDescriptor(shape=(), lower=lower, upper=upper, element=ElementKind.F32)
    return (desc.lower + desc.upper) / 2


@entry(RreluPlan)
def rrelu(
    x: Array, lower: float = LOWER, upper: float = UPPER, *, training: bool = False, seed: Scalar = None,
    offset: Scalar = 0, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x where x > 0, else x times a slope (torch.nn.functional.rrelu): (lower + upper) / 2, in training one drawn for
    each element from `seed` and `offset`, integers or 0-d device arrays. See `RreluPlan`."""
    rest = {"out": out, "stream": stream, "preference": preference}
    if not truth("training", training):
        return leaky_relu(x, negative_slope=_mean(lower, upper), **rest)
    return _forward(x, lower=lower, upper=upper, seed=seed, offset=offset, **rest)


@entry(RreluBackwardPlan)
def rrelu_backward(
    dy: Array, x: Array, lower: float = LOWER, upper: float = UPPER, *, training: bool = False, seed: Scalar = None,
    offset: Scalar = 0, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx of y = rrelu(x), given what the forward call was given. See `RreluBackwardPlan`."""
    rest = {"out": out, "stream": stream, "preference": preference}
    if not truth("training", training):
        return leaky_relu_backward(dy, x, negative_slope=_mean(lower, upper), **rest)
    return _backward(dy, x, lower=lower, upper=upper, seed=seed, offset=offset, **rest)
