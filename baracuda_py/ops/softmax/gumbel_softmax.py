"""gumbel_softmax: a differentiable sample of categories along one axis (Jang, Gu, Poole 2017; Maddison et al. 2017).

    z = (x + g) / tau with g = -log(-log u)        y = softmax(z), or with `hard` 1 at the first largest z, else 0

u = (n + ½) 2⁻²⁴, n the upper 24 bits of the element's word in the Philox stream of `seed` and `offset`: the element's
number counts row-major over the whole array, see `DropoutPlan`. So u is never 0 or 1 and every g is finite. `soft` is
softmax(z), which the gradient of a hard sample takes (straight-through: the gradient of y is that of soft).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative, Scalar, Variant, Vjp,
    element, extents, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import real, shown
from ...core.descriptor import axis, flag
from ...core.element import cast
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...schedules.row_slopes import slope_geometry, slope_kernels
from ...schedules.row_groups import FLUSHED
from ...schedules.row_terms import last_axis, term_geometry, term_kernels, term_params
from ..random.draws import is_array, numbered, streams
from ..random.philox import philox_uniform
from .masked_softmax import rows_of

_HALF = 2.0**-25


@dataclass(frozen=True, kw_only=True)
class GumbelSoftmaxDescriptor(Descriptor):
    """x and y have shape `shape`; the categories lie along `axis`."""

    shape: tuple[int, ...] = extents()
    axis: int = axis(-1, scalar=True)
    hard: bool = flag(False)
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class GumbelSoftmaxArgs(Args):
    """seed and offset are 64-bit, see `DropoutPlan`; tau > 0 is the temperature: a 0 on the device makes NaN."""

    x: Array = operand("*shape")
    y: Array = output("*shape", inplace=("x",))
    soft: Array | None = output("*shape", optional=True)
    tau: Scalar = scalar(1.0)
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def gumbels(seed: Any, offset: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The noise of an array, in `dtype`."""
    low = philox_uniform(seed, offset, int(np.prod(shape, dtype=np.int64))).astype(dtype).reshape(shape)
    half, one = dtype.type(_HALF), dtype.type(1)
    return -np.log(np.where(low < 0.5, -np.log(low + half), -np.log1p(half - (one - low))))


def reference(
    desc: GumbelSoftmaxDescriptor, *, x: Any, tau: Any, seed: Any, offset: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    del wanted
    if x.size == 0:
        return {"y": x, "soft": x}
    with np.errstate(all="ignore"):
        z = ((x + gumbels(seed, offset, desc.shape, x.dtype)) / x.dtype.type(tau)).reshape(desc.shape or (1,))
        soft = rows_of(z, desc.axis, False, False)
        y = soft
        if desc.hard:
            first = np.expand_dims(z.argmax(axis=desc.axis), desc.axis)
            y = np.where(np.isnan(soft), soft, np.zeros_like(soft))
            ones = np.where(np.isnan(np.take_along_axis(soft, first, desc.axis)), np.nan, 1).astype(x.dtype)
            np.put_along_axis(y, first, ones, desc.axis)
    return {"y": y.reshape(desc.shape), "soft": soft.reshape(desc.shape)}


PARAMS = Params(
    "GumbelSoftmaxParams", x="ptr", y="ptr", soft="ptr", tau="scalar", seed="iscalar", offset="iscalar", hard="i32",
    log="i32", safe="i32", **term_params(4),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    views = last_axis((p.x, p.y, p.soft, numbered(desc.shape, desc.element)), desc.axis)
    return term_geometry(views, desc.element, {"hard": int(desc.hard), "log": 0, "safe": 0}, {})


def in_torch(
    torch: Any, desc: GumbelSoftmaxDescriptor, *, x: Any, tau: Any, seed: Any, offset: Any, wanted: set[str]
) -> Any:
    """torch's formula on the noise of our stream: its own draws are others."""
    wide = torch.promote_types(x.dtype, torch.float32)
    noise = gumbels(seed, offset, desc.shape, np.dtype(str(wide).removeprefix("torch.")))
    soft = torch.softmax((x.to(wide) + torch.from_numpy(np.asarray(noise)).to(x.device)) / tau, desc.axis)
    y = soft
    if desc.hard and soft.numel():
        first = soft.argmax(desc.axis, keepdim=True)
        y = torch.zeros_like(soft).scatter_(desc.axis, first, 1.0) - soft.detach() + soft
    return {name: made.to(x.dtype) for name, made in (("y", y), ("soft", soft)) if name in wanted}


def _case(draw: Any) -> GumbelSoftmaxDescriptor:
    cols = draw.sizes(5, 1, 0, 17, 64, 257, 1000, 4099, 20011, rare=(200, 3000))
    outer = draw.shape(0, 3 if cols <= 300 else 1, 0, draw.sizes(2 if cols > 4000 else 5))
    axis = draw.integer(0, len(outer))
    return GumbelSoftmaxDescriptor(
        shape=(*outer[:axis], cols, *outer[axis:]), axis=axis, hard=draw.choice((False, True)), element=draw.element
    )


class GumbelSoftmaxPlan(Plan):
    """softmax((x + Gumbel noise) / tau) along `axis`, or with `hard` its largest element as one-hot
    (torch.nn.functional.gumbel_softmax; the draws are those of our own stream)."""

    op = "softmax.gumbel_softmax"
    descriptor = GumbelSoftmaxDescriptor
    args = GumbelSoftmaxArgs
    reference = staticmethod(reference)
    vjp = Vjp("GumbelSoftmaxBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "row", _geometry, source="softmax/gumbel_softmax.cu",
            kernels=term_kernels(
                "gumbel_softmax_rows<{T}, {WHOLE}, {GROUP}>", "gumbel_softmax_long<{T}, {WHOLE}>", PARAMS, {}
            ),
            # Two logarithms make a sample, and the error of a row's sum is in all of its shares.
            guarantee=Guarantee(Relative(3, mean=3), flushes=FLUSHED),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[32768, 4096] bf16", shape=(32768, 4096), element="bfloat16", make=lambda torch, desc: {"seed": 1},
            peers=(),
        ),
    )  # fmt: skip
    case = staticmethod(_case)

    @staticmethod
    def gradient_case(draw: Any) -> GumbelSoftmaxDescriptor:
        """A soft sample: the gradient of a hard one is by definition that of the soft one beside it."""
        return replace(_case(draw), hard=False)

    @classmethod
    def complete(cls, desc: GumbelSoftmaxDescriptor, arrays: dict[str, Any]) -> None:
        """Seeds, offsets and a temperature."""
        streams(desc.shape, arrays)
        arrays["tau"] = (1.0, 0.5, 3.0)[sum(desc.shape) % 3]


@dataclass(slots=True, kw_only=True)
class GumbelSoftmaxBackwardArgs(Args):
    """`y` is the output of a soft forward, `soft` that of a hard one; tau is what the forward was given."""

    dy: Array = operand("*shape")
    y: Array | None = operand("*shape", optional=True, spared=lambda desc, given: desc.hard)
    soft: Array | None = operand("*shape", optional=True, spared=lambda desc, given: not desc.hard)
    dx: Array = output("*shape", inplace=("dy", "y", "soft"))
    tau: Scalar = scalar(1.0)


def backward_reference(
    desc: GumbelSoftmaxDescriptor, *, dy: Any, y: Any, soft: Any, tau: Any
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the operands come in."""
    grad, saved = (a.reshape(desc.shape or (1,)) for a in (dy, soft if desc.hard else y))
    with np.errstate(all="ignore"):
        dx = saved * (grad - (saved * grad).sum(axis=desc.axis, keepdims=True)) / dy.dtype.type(tau)
    return {"dx": dx.reshape(desc.shape)}


def _backward_geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    name = "soft" if desc.hard else "y"
    views = (p.dy, p.views[name], p.dx, None, None)
    return slope_geometry(p, views, desc.axis, divide=True, y=name, mask="@null", scale_ptr="tau")


class GumbelSoftmaxBackwardPlan(Plan):
    """dx = soft · (dy - Σ soft · dy) / tau, hard or not."""

    op = "softmax.gumbel_softmax_backward"
    direction = "backward"
    descriptor = GumbelSoftmaxDescriptor
    args = GumbelSoftmaxBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "row", _backward_geometry, source="softmax/row_slopes.cu", kernels=slope_kernels("slope_softmax"),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(lambda torch, desc, *, dy, y, soft, tau: _torch_backward(torch, desc, dy, y, soft, tau))
    benchmarks = (
        Benchmark(
            "[32768, 4096] bf16", shape=(32768, 4096), element="bfloat16", also=("y",), peers=(),
            make=lambda torch, desc: {"seed": 1},
        ),
    )  # fmt: skip
    case = staticmethod(_case)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        name = "soft" if desc.hard else "y"
        if views[name] is None:
            raise InvalidProblemError(f"{name} is None; give the forward's, with hard={desc.hard}")

    @classmethod
    def complete(cls, desc: GumbelSoftmaxDescriptor, arrays: dict[str, Any]) -> None:
        """The saved output is one of the forward."""
        x = np.random.default_rng(sum(desc.shape)).standard_normal(desc.shape)
        made = reference(desc, x=x, tau=1.0, seed=1, offset=0, wanted=set())
        wanted = "soft" if desc.hard else "y"
        for name in ("y", "soft"):
            given = np.array(cast(made["soft"], desc.element))
            arrays[name] = given if name == wanted or arrays[name] is not None else None
        arrays["tau"] = (1.0, 0.5, 3.0)[sum(desc.shape) % 3]


def _torch_backward(torch: Any, desc: Any, dy: Any, y: Any, soft: Any, tau: Any) -> Any:
    """torch's gradient from the saved output."""
    saved = soft if desc.hard else y
    return torch.ops.aten._softmax_backward_data(dy, saved, desc.axis, dy.dtype) / tau


_forward = functional(GumbelSoftmaxPlan)


@entry(GumbelSoftmaxPlan)
def gumbel_softmax(
    x: Array, *, axis: int = -1, hard: bool = False, tau: Scalar = 1.0, seed: Scalar = None, offset: Scalar = 0,
    return_soft: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax((x + Gumbel noise) / tau) along `axis`, or with `hard` its largest element as one-hot
    (torch.nn.functional.gumbel_softmax; the draws are those of our own stream).

    tau: a number above 0, or a 0-d array on the device. seed, offset: integers or 0-d arrays. return_soft: the soft
    sample beside a hard one, whose gradient it has. See `GumbelSoftmaxPlan`.
    """
    if not is_array(tau) and not real("tau", tau) > 0:
        raise InvalidProblemError(f"tau must be above 0, got {shown(tau)}")
    return _forward(
        x, axis=axis, hard=hard, tau=tau, seed=seed, offset=offset, return_soft=return_soft,
        out=out, stream=stream, preference=preference,
    )  # fmt: skip


gumbel_softmax_backward = functional(GumbelSoftmaxBackwardPlan)
