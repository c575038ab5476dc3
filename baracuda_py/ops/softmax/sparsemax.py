"""sparsemax and entmax15: softmax's kin that give exact zeros (Martins, Astudillo 2016; Peters, Niculae, Martins 2019).

    sparsemax   y = max(z - t, 0)     z = scale x
    entmax15    y = max(z - t, 0)²    z = scale x / 2        t such that Σ y = 1

Rows of any length along any axis. A row whose maximum is not finite is NaN throughout; other -inf have y = 0.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative, Scalar, Variant, Vjp,
    choice, element, extents, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.descriptor import axis
from ...core.element import cast
from ...schedules.row_slopes import slope_geometry, slope_kernels
from ...schedules.row_terms import last_axis, term_geometry, term_kernels, term_params


class SparsemaxKind(enum.Enum):
    """Which of the two a SparsemaxPlan computes."""

    SPARSEMAX = "sparsemax"
    ENTMAX15 = "entmax15"

    @property
    def cpp(self) -> str:
        """The template argument SQUARE."""
        return "true" if self is SparsemaxKind.ENTMAX15 else "false"


@dataclass(frozen=True, kw_only=True)
class SparsemaxDescriptor(Descriptor):
    """x and y have shape `shape`; Σ y = 1 along `axis`."""

    kind: SparsemaxKind = choice(SparsemaxKind, SparsemaxKind.SPARSEMAX)
    shape: tuple[int, ...] = extents()
    axis: int = axis(-1, scalar=True)
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class SparsemaxArgs(Args):
    """Any strides; y may be x itself."""

    x: Array = operand("*shape")
    y: Array = output("*shape", inplace=("x",))
    scale: Scalar = scalar(1.0)


def threshold(z: Any, squares: bool) -> Any:
    """t of rows z along the last axis, whose maximum is 0, by sorting: the k largest are the support of each row."""
    z = -np.sort(-np.maximum(z, -1), -1)  # nothing at -1 or below is in the support
    k = np.arange(1, z.shape[-1] + 1).astype(z.dtype)
    mean = np.cumsum(z, -1) / k
    if squares:
        spread = k * (np.cumsum(z * z, -1) / k - mean * mean)
        found = mean - np.sqrt(np.maximum((1 - spread) / k, 0))
        size = (found <= z).sum(-1, keepdims=True)
    else:
        found = mean - 1 / k
        size = (found < z).sum(-1, keepdims=True)
    return np.take_along_axis(found, size - 1, -1)


def reference(desc: SparsemaxDescriptor, *, x: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    if x.size == 0:
        return {"y": x}
    squares = desc.kind is SparsemaxKind.ENTMAX15
    with np.errstate(all="ignore"):
        z = np.moveaxis((x * x.dtype.type(scale)).reshape(desc.shape or (1,)), desc.axis, -1)
        top = z.max(axis=-1, keepdims=True)
        finite = np.isfinite(top)
        z = np.where(finite, z - np.where(finite, top, 0), 0) * x.dtype.type(0.5 if squares else 1)
        inside = np.maximum(z - threshold(z, squares), 0)
        y = np.where(finite, inside * inside if squares else inside, x.dtype.type(np.nan))
    return {"y": np.moveaxis(y, -1, desc.axis).reshape(desc.shape)}


PARAMS = Params("SparsemaxParams", x="ptr", y="ptr", scale="scalar", **term_params(2))


def _geometry(p: Problem) -> Geometry | str:
    return term_geometry(last_axis((p.x, p.y), p.desc.axis), p.desc.element, {}, {})


def in_torch(torch: Any, desc: SparsemaxDescriptor, *, x: Any, scale: Any) -> Any:
    """The same thresholds by torch.sort."""
    if not x.numel():
        return x
    squares = desc.kind is SparsemaxKind.ENTMAX15
    wide = torch.promote_types(x.dtype, torch.float32)
    z = (x.to(wide) * scale).reshape(desc.shape or (1,)).movedim(desc.axis, -1)
    z = (z - z.amax(-1, keepdim=True)) * (0.5 if squares else 1)
    ordered = z.clamp(min=-1).sort(-1, descending=True).values
    k = torch.arange(1, z.shape[-1] + 1, dtype=wide, device=z.device)
    mean = ordered.cumsum(-1) / k
    if squares:
        spread = k * ((ordered * ordered).cumsum(-1) / k - mean * mean)
        found = mean - ((1 - spread) / k).clamp(min=0).sqrt()
        size = (found <= ordered).sum(-1, keepdim=True)
    else:
        found = mean - 1 / k
        size = (found < ordered).sum(-1, keepdim=True)
    y = (z - found.gather(-1, size - 1)).clamp(min=0)
    return (y * y if squares else y).movedim(-1, desc.axis).reshape(desc.shape).to(x.dtype)


def _case(draw: Any) -> SparsemaxDescriptor:
    cols = draw.sizes(5, 1, 0, 17, 64, 257, 1000, 4099, 20011, rare=(200, 3000))
    outer = draw.shape(0, 3 if cols <= 300 else 1, 0, draw.sizes(2 if cols > 4000 else 5))
    axis = draw.integer(0, len(outer))
    shape = (*outer[:axis], cols, *outer[axis:])
    return SparsemaxDescriptor(kind=draw.kind, shape=shape, axis=axis, element=draw.element)


class SparsemaxPlan(Plan):
    """sparsemax or entmax15 of scale x along `axis`: probabilities of which most are exactly 0.

    sparsemax max(scale x - t, 0), entmax15 max(scale x / 2 - t, 0)², t such that the row's sum is 1 (Martins, Astudillo
    2016; Peters, Niculae, Martins 2019). A row whose maximum is not finite is NaN; other -inf have a probability of 0.
    """

    op = "softmax.sparsemax"
    descriptor = SparsemaxDescriptor
    args = SparsemaxArgs
    kinds = SparsemaxKind
    reference = staticmethod(reference)
    vjp = Vjp("SparsemaxBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "row", _geometry, source="softmax/sparsemax.cu",
            kernels=term_kernels(
                "sparsemax_rows<{T}, {KIND}, {WHOLE}, {GROUP}>", "sparsemax_long<{T}, {KIND}, {WHOLE}>", PARAMS, {}
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("sparsemax [32768, 4096] bf16", shape=(32768, 4096), element="bfloat16", peers=()),
        Benchmark("entmax15 [32768, 4096] bf16", shape=(32768, 4096), kind="entmax15", element="bfloat16", peers=()),
    )
    case = staticmethod(_case)


@dataclass(slots=True, kw_only=True)
class SparsemaxBackwardArgs(Args):
    """`y` is the output of the forward, `scale` what it was given; dx may be either input itself."""

    dy: Array = operand("*shape")
    y: Array = operand("*shape")
    dx: Array = output("*shape", inplace=("dy", "y"))
    scale: Scalar = scalar(1.0)


def backward_reference(desc: SparsemaxDescriptor, *, dy: Any, y: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in."""
    grad, saved = (a.reshape(desc.shape or (1,)) for a in (dy, y))
    with np.errstate(all="ignore"):
        weight = np.sqrt(saved) if desc.kind is SparsemaxKind.ENTMAX15 else np.where(saved > 0, 1, saved)
        mean = (weight * grad).sum(axis=desc.axis, keepdims=True) / weight.sum(axis=desc.axis, keepdims=True)
        dx = weight * (grad - mean) * dy.dtype.type(scale)
    return {"dx": np.asarray(dx, dy.dtype).reshape(desc.shape)}


def _backward_geometry(p: Problem) -> Geometry | str:
    views = (p.dy, p.y, p.dx, None, None)
    return slope_geometry(p, views, p.desc.axis, mask="@null")


def _torch_backward(torch: Any, desc: SparsemaxDescriptor, *, dy: Any, y: Any, scale: Any) -> Any:
    """The formula on tensors."""
    weight = y.sqrt() if desc.kind is SparsemaxKind.ENTMAX15 else (y > 0).to(y.dtype)
    mean = (weight * dy).sum(desc.axis, keepdim=True) / weight.sum(desc.axis, keepdim=True)
    return weight * (dy - mean) * scale


class SparsemaxBackwardPlan(Plan):
    """dx = scale w (dy - Σ w dy / Σ w) with w = [y > 0] for sparsemax, √y for entmax15."""

    op = "softmax.sparsemax_backward"
    direction = "backward"
    descriptor = SparsemaxDescriptor
    args = SparsemaxBackwardArgs
    kinds = SparsemaxKind
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "row", _backward_geometry, source="softmax/row_slopes.cu",
            kernels=slope_kernels("{KIND} ? slope_entmax15 : slope_sparsemax"),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(_torch_backward)
    benchmarks = (Benchmark("[32768, 4096] bf16", shape=(32768, 4096), element="bfloat16", peers=()),)
    case = staticmethod(_case)

    @classmethod
    def complete(cls, desc: SparsemaxDescriptor, arrays: dict[str, Any]) -> None:
        """y becomes an output of the forward."""
        x = np.random.default_rng(sum(desc.shape)).standard_normal(desc.shape)
        arrays["y"] = np.array(cast(reference(desc, x=x, scale=1.0)["y"], desc.element))


sparsemax = functional(
    SparsemaxPlan,
    "sparsemax",
    "Probabilities max(scale x - t, 0) along `axis`, with t such that their sum is 1; see `SparsemaxPlan`.",
    kind=SparsemaxKind.SPARSEMAX,
)
entmax15 = functional(
    SparsemaxPlan,
    "entmax15",
    "Probabilities max(scale x / 2 - t, 0)² along `axis`, with t such that their sum is 1; see `SparsemaxPlan`.",
    kind=SparsemaxKind.ENTMAX15,
)
sparsemax_backward = functional(SparsemaxBackwardPlan)
