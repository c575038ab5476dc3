"""masked_softmax: softmax or log_softmax of scaled, biased, masked, causal rows along one axis, in one read.

    z = scale x + bias        -inf where mask is False, and with `causal` where j > i + diagonal
    softmax      y = exp(z - max) / Σ exp(z - max)
    log          y = z - max - log Σ exp(z - max)

i counts along the axis before the last and j along the last, so that diagonal = 0 is a lower triangle
(torch.tril). A row of which nothing is left is NaN, as softmax of masked_fill(-inf) is in PyTorch; `safe` makes it
zeros (log: -inf) with a gradient of 0, as torch.nn.functional.scaled_dot_product_attention does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative, Scalar, Variant, View,
    Vjp, derived, element, extents, integer, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.descriptor import axis, flag
from ...core.errors import InvalidProblemError
from ...schedules.row_groups import FLUSHED
from ...schedules.row_terms import last_axis, outputs, term_geometry, term_kernels, term_params


@dataclass(frozen=True, kw_only=True)
class MaskedSoftmaxDescriptor(Descriptor):
    """x has shape `shape`; the sum is along `axis`. out_element: default `element`; float32 for 16-bit operands."""

    shape: tuple[int, ...] = extents()
    axis: int = axis(-1, scalar=True)
    log: bool = flag(False)
    causal: bool = flag(False)
    diagonal: int = integer(0)
    safe: bool = flag(False)
    out_element: ElementKind = element(default=derived(lambda desc: desc.element))
    element: ElementKind = element()

    def validate(self) -> None:
        if self.out_element not in (self.element, self.element.acc):
            raise InvalidProblemError(
                f"out_element must be {self.element} or {self.element.acc}, got {self.out_element}"
            )
        if self.causal and (len(self.shape) < 2 or self.axis != len(self.shape) - 1):
            raise InvalidProblemError(
                f"causal is for rows along the last of two axes or more, got axis {self.axis} of shape {self.shape}"
            )


@dataclass(slots=True, kw_only=True)
class MaskedSoftmaxArgs(Args):
    """mask (True: the column counts) and bias, which is added, broadcast to the shape of x; neither has a gradient."""

    x: Array = operand("*shape")
    mask: Array | None = operand("*shape", element=ElementKind.BOOL, optional=True, broadcast=True)
    bias: Array | None = operand("*shape", optional=True, broadcast=True)
    y: Array = output("*shape", element="out_element", inplace=("x",))
    scale: Scalar = scalar(1.0)


def kept(desc: MaskedSoftmaxDescriptor, mask: Any) -> Any:
    """Which columns count, broadcast to the shape; None where all do."""
    seen = None if mask is None else np.broadcast_to(mask, desc.shape)
    if not desc.causal:
        return seen
    below = np.arange(desc.shape[-1]) <= np.arange(desc.shape[-2])[:, None] + desc.diagonal
    return np.broadcast_to(below, desc.shape) if seen is None else seen & below


def reference(desc: MaskedSoftmaxDescriptor, *, x: Any, mask: Any, bias: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    if x.size == 0:
        return {"y": x}
    with np.errstate(all="ignore"):
        z = x * x.dtype.type(scale)
        z = z if bias is None else z + bias
        seen = kept(desc, mask)
        z = z if seen is None else np.where(seen, z, x.dtype.type(-np.inf))
        return {"y": rows_of(z.reshape(desc.shape or (1,)), desc.axis, desc.log, desc.safe).reshape(desc.shape)}


def rows_of(z: Any, axis: int, log: bool, safe: bool) -> Any:
    """softmax of z, or its logarithm; `safe`: rows of -inf are zeros."""
    top = z.max(axis=axis, keepdims=True)
    empty = top == -np.inf
    z = z - np.where(empty, 0, top)
    e = np.exp(z)
    total = np.where(empty, 1 if safe else np.nan, e.sum(axis=axis, keepdims=True))
    return z - np.log(total) if log else e / total


PARAMS = Params(
    "MaskedSoftmaxParams", x="ptr", y="ptr", mask="ptr", bias="ptr", scale="scalar", diagonal="i64", causal="i32",
    log="i32", safe="i32", **term_params(5),
)  # fmt: skip


def causal_rows(desc: MaskedSoftmaxDescriptor) -> View:
    """An operand without memory, whose offsets are i."""
    strides = tuple(int(desc.causal and a == len(desc.shape) - 2) for a in range(len(desc.shape)))
    return View(0, desc.shape, strides, desc.element)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    mask, bias = (None if v is None else v.broadcast_to(desc.shape) for v in (p.mask, p.bias))
    params = {
        "diagonal": desc.diagonal, "causal": int(desc.causal), "log": int(desc.log), "safe": int(desc.safe),
    }  # fmt: skip
    views = last_axis((p.x, p.y, mask, bias, causal_rows(desc)), desc.axis)
    return term_geometry(views, desc.element, params, {"OUT": desc.out_element})


def in_torch(torch: Any, desc: MaskedSoftmaxDescriptor, *, x: Any, mask: Any, bias: Any, scale: Any) -> Any:
    """masked_fill and softmax."""
    out = getattr(torch, str(desc.out_element)) if x.dtype is getattr(torch, str(desc.element)) else x.dtype
    z = x.to(torch.promote_types(x.dtype, torch.float32)) * scale
    z = z if bias is None else z + bias
    if mask is not None:
        z = z.masked_fill(~mask, -torch.inf)
    if desc.causal:
        z = z.masked_fill(
            torch.ones(desc.shape[-2:], dtype=torch.bool, device=z.device).tril(desc.diagonal).logical_not(), -torch.inf
        )
    y = (torch.log_softmax if desc.log else torch.softmax)(z, desc.axis)
    if desc.safe and z.numel():
        empty = (z == -torch.inf).all(desc.axis, keepdim=True) if z.ndim else z == -torch.inf
        y = y.masked_fill(empty, -torch.inf if desc.log else 0.0)
    return y.to(out)


class MaskedSoftmaxPlan(Plan):
    """softmax or log_softmax of scale x + bias along `axis`, without what `mask` and `causal` leave out.

    mask is True where an element counts; with `causal`, j > i + diagonal does not, j counted along the last axis and i
    along the one before. A row of which nothing is left is NaN, as of masked_fill(-inf) in PyTorch; with `safe` it is 0
    (its logarithm -inf). Either way what is left out has a gradient of 0.
    """

    op = "softmax.masked_softmax"
    descriptor = MaskedSoftmaxDescriptor
    args = MaskedSoftmaxArgs
    reference = staticmethod(reference)
    vjp = Vjp("MaskedSoftmaxBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "row", _geometry, source="softmax/masked_softmax.cu",
            kernels=term_kernels(
                "masked_softmax_rows<{T}, {OUT}, {WHOLE}, {GROUP}>", "masked_softmax_long<{T}, {OUT}, {WHOLE}>", PARAMS,
                outputs,
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True, flushes=FLUSHED),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("causal [32, 1024, 1024] bf16", shape=(32, 1024, 1024), causal=True, element="bfloat16"),
        Benchmark("mask [32, 1024, 1024] bf16", shape=(32, 1024, 1024), element="bfloat16", also=("mask",)),
    )

    @staticmethod
    def case(draw: Any) -> MaskedSoftmaxDescriptor:
        """Rows of every schedule, along any axis or causal."""
        return drawn(draw)


def drawn(draw: Any) -> MaskedSoftmaxDescriptor:
    """A problem of the forward and the backward op."""
    kind = draw.element
    cols = draw.sizes(5, 1, 0, 17, 64, 257, 1000, 4099, 20011, rare=(200, 3000))
    outer = draw.shape(0, 3 if cols <= 300 else 1, 0, draw.sizes(2 if cols > 4000 else 5))
    axis = draw.integer(0, len(outer))
    causal = bool(outer) and axis == len(outer) and draw.choice((False, True))
    return MaskedSoftmaxDescriptor(
        shape=(*outer[:axis], cols, *outer[axis:]), axis=axis, log=draw.choice((False, True)), causal=causal,
        diagonal=draw.choice((0, 1, -1, 30)) if causal else 0, safe=draw.choice((False, True)), element=kind,
        out_element=draw.choice((kind, kind.acc)),
    )  # fmt: skip


masked_softmax = functional(
    MaskedSoftmaxPlan, "masked_softmax",
    "softmax of scale x + bias along `axis`, but for what mask and causal leave out.", log=False,
)  # fmt: skip
masked_log_softmax = functional(
    MaskedSoftmaxPlan, "masked_log_softmax", "The logarithm of masked_softmax, from one pass.", log=True
)
