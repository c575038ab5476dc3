"""conv_backward: the gradients of `ConvPlan`: of x, the filter and the bias, those that are wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, ElementKind, Forward, Guarantee, InvalidProblemError, Plan, Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.benchmark import FLOPS, Benchmark
from ...core.checked import require_some
from ...core.error_bound import PerOutput
from ...schedules.conv_backward import backward
from ...schedules.conv_kernels import MMA_BACKWARD, SIMT_BACKWARD, WGMMA_BACKWARD
from ...schedules.gemm import for_precision
from ..gated.gated_kinds import GatedActivationKind
from ..gemm.mma import HALVES, TF32
from .conv import (
    ConvDescriptor, ConvPlan, backwards, channels_last, conv_case, in_torch_sums, spread, sums, terms,
    torch_serves, windows,
)  # fmt: skip
from .layers import PROBLEMS


@dataclass(frozen=True, kw_only=True)
class ConvBackwardDescriptor(ConvDescriptor):
    """The fields of `ConvDescriptor`."""


@finite_only
def _finite(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    """The error of a sum is bounded by absolute values: infinite ones say nothing where relu has left out the term."""
    return rng.standard_normal(shape)


@dataclass(slots=True, kw_only=True)
class ConvBackwardArgs(Args):
    """Any strides; of the outputs those that are wanted. pre: what the forward saved, where there is an activation."""

    dy: Array = operand("*out_shape", values=_finite)
    x: Array = operand("*shape")
    w: Array = operand("*filter_shape")
    pre: Array | None = operand(
        "*out_shape", optional=True, values=_finite, spared=lambda desc, given: desc.activation == "none"
    )
    dx: Array | None = output("*shape", optional=True)
    dw: Array | None = output("*filter_shape", optional=True)
    dbias: Array | None = output("out_channels", optional=True)


_G = GatedActivationKind
_KINDS = {"relu": _G.REGLU, "gelu": _G.GEGLU, "gelu_tanh": _G.GEGLU_TANH, "silu": _G.SWIGLU}


def turned(desc: Any) -> Any:
    """The descriptor of the convolution of dy that is dx."""
    axes = zip(
        desc.in_shape, desc.spatial_shape, desc.kernel_size, desc.stride, desc.padding, desc.dilation,
        desc.input_dilation, strict=True,
    )  # fmt: skip
    padding = []
    for n, m, k, s, (low, _), d, e in axes:
        before = (k - 1) * d - low
        padding.append((before, (n - 1) * e + (k - 1) * d + 1 - max((m - 1) * s + 1, 0) - before))
    return ConvDescriptor(
        shape=desc.out_shape, filter_shape=desc.filter_shape, stride=desc.input_dilation, padding=padding,
        dilation=desc.dilation, input_dilation=desc.stride, groups=desc.groups, transposed=not desc.transposed,
        element=desc.element,
    )  # fmt: skip


def reference(
    desc: ConvBackwardDescriptor, *, dy: Any, x: Any, w: Any, pre: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in: products with the windows, whose gradient is added up place by place."""
    rank, groups, batch = len(desc.kernel_size), desc.groups, math.prod(desc.batch_shape)
    found: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        g = dy if desc.activation == "none" else np.asarray(_KINDS[desc.activation].row.gradient(dy, pre), dy.dtype)
        g = g.reshape(batch, desc.out_channels, *desc.spatial_shape)
        if "dbias" in wanted:
            found["dbias"] = g.sum((0, *range(2, 2 + rank)))
        cols, places = desc.out_channels // groups, math.prod(desc.spatial_shape)
        own = g.reshape(batch, groups, cols, places)
        if "dw" in wanted:
            seen = windows(desc, spread(desc, x.reshape(batch, *x.shape[len(desc.batch_shape) :])))
            inner = seen.shape[2 : 3 + rank]
            seen = seen.reshape(batch, groups, math.prod(inner), places)
            dw = np.matmul(own, np.swapaxes(seen, 2, 3)).sum(0).reshape(groups, cols, *inner)
            if desc.transposed:
                dw = np.swapaxes(dw, 1, 2)[backwards(desc)]
            found["dw"] = dw.reshape(desc.filter_shape)
        if "dx" in wanted:
            found["dx"] = sums(turned(desc), g, w).reshape(desc.shape)
    return found


def in_torch(torch: Any, desc: ConvBackwardDescriptor, *, dy: Any, x: Any, w: Any, pre: Any, wanted: set[str]) -> Any:
    """By torch's autograd."""
    if not torch_serves(desc):
        return NotImplemented
    f, g = torch.nn.functional, dy
    act = {
        "relu": torch.relu, "gelu": f.gelu, "silu": f.silu, "gelu_tanh": lambda x: f.gelu(x, approximate="tanh"),
    }  # fmt: skip
    with torch.enable_grad():
        if desc.activation != "none":
            leaf = pre.detach().requires_grad_()
            (g,) = torch.autograd.grad(act[desc.activation](leaf), leaf, dy)
        own = {"x": x.detach(), "w": w.detach()}
        leaves = {f"d{name}": one.requires_grad_() for name, one in own.items() if f"d{name}" in wanted}
        found: dict[str, Any] = {}
        if leaves:
            y = in_torch_sums(torch, desc, **own)
            grads = torch.autograd.grad(y, list(leaves.values()), g, allow_unused=True, materialize_grads=True)
            found = dict(zip(leaves, grads, strict=True))
    if "dbias" in wanted:
        rank = len(desc.kernel_size)
        found["dbias"] = g.sum([a for a in range(g.dim()) if a != g.dim() - rank - 1])
    return found


def _bound(depth: float) -> Callable[[ElementKind, Any], PerOutput]:
    """Sums of what is rounded to the element on its way through the activation."""

    def bound(kind: ElementKind, _: Any) -> PerOutput:
        rounding = float(kind.limits.eps) / float(kind.acc.limits.eps) if kind is not kind.acc else 0.0
        return PerOutput((*((name, Forward(depth + rounding)) for name in ("dx", "dw")),
                          ("dbias", Forward(128 + rounding))))  # fmt: skip

    return bound


def _longest(desc: Any) -> int:
    """Terms of the longest sum."""
    return int(max(terms(turned(desc)), math.prod(desc.batch_shape) * math.prod(desc.spatial_shape)))


def _laid(*grads: str) -> Callable[[Any, Any], dict[str, Any]]:
    """A benchmark's operands, channels last, and of the gradients those that are wanted."""

    def make(torch: Any, desc: Any) -> dict[str, Any]:
        dtype = getattr(torch, str(desc.element))
        made = {"dy": desc.out_shape, "x": desc.shape, "w": desc.filter_shape}
        made |= {name: {"dx": desc.shape, "dw": desc.filter_shape}[name] for name in grads}
        return {name: channels_last(torch, torch.randn(shape).to(dtype)) for name, shape in made.items()}

    return make


_STRICT = Guarantee(_bound(128), roundings=_longest)
_MMA = replace(_STRICT, order="mma")


class ConvBackwardPlan(Plan):
    """dx, dw and dbias of `ConvPlan`, of which each may be None and is then free.

    With g = dy act'(pre), rounded to the element: dx is the convolution of g with the filter that is transposed, stride
    and input_dilation exchanged; dw[o, c, k] = Σ_n Σ_p g[n, o, p] x̂[n, c, stride p - padding + dilation k];
    dbias = Σ_n Σ_p g. Sums over the places p are cut by their number alone and added in order, so the bits are the same
    every time.
    """

    op = "conv.conv_backward"
    direction = "backward"
    descriptor = ConvBackwardDescriptor
    args = ConvBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant("wgmma", backward(True, True), source="conv/conv_wgmma.cu", kernels=WGMMA_BACKWARD, elements=HALVES,
                design=ArchSku.SM90A, guarantee=replace(_MMA, order="wgmma"), may_spill=True),
        Variant("mma", backward(True), source="conv/filter.cu", kernels=MMA_BACKWARD, elements=HALVES, guarantee=_MMA),
        Variant("mma_tf32", backward(True), source="conv/filter.cu", kernels=MMA_BACKWARD, elements=TF32,
                guarantee=replace(_MMA, error=_bound(2.0**14), math="tf32"), refuses=for_precision("tf32")),
        Variant("simt", backward(False), source="conv/filter.cu", kernels=SIMT_BACKWARD, guarantee=_STRICT),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            " ".join((name, *label, "bf16")), also=also, share=len(also) / 2, element="bfloat16", work=FLOPS,
            target=None, peers=(), make=_laid(*also), **facts
        )
        for name, facts in PROBLEMS
        for label, also in (((), ("dx", "dw")), (("dx",), ("dx",)), (("dw",), ("dw",)))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ConvBackwardDescriptor:
        return conv_case(draw, ConvBackwardDescriptor, (8, 64))  # type: ignore[no-any-return]

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, "dx", "dw", "dbias")
        if desc.activation != "none" and views["pre"] is None:
            raise InvalidProblemError(
                "pre, which an activation needs, is None; give what conv_nd(return_pre=True) saves"
            )

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Tests: what the forward would have saved is there."""
        if desc.activation == "none":
            arrays["pre"] = None
        elif arrays["pre"] is None:
            dy = arrays["dy"]
            arrays["pre"] = np.random.default_rng(dy.size).standard_normal(dy.shape).astype(dy.dtype)

    @classmethod
    def flops(cls, desc: ConvBackwardDescriptor) -> int:
        """Of dx and dw."""
        return 2 * ConvPlan.flops(desc)


conv_backward = functional(ConvBackwardPlan)
