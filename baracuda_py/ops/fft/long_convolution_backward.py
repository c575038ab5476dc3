"""long_convolution_backward: gradients of long_convolution, convolutions the other way and correlations with dy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Args, Array, Geometry, Plan, Problem, Variant, operand, output
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...schedules.in_library import Steps, sequence
from ...schedules.long_convolution import BACKWARD, SOURCE, launch, of_channels, signal, spectra, summed
from ...schedules.stockham import REALS
from .long_convolution import (
    GUARANTEE, LongConvolutionDescriptor, LongConvolutionPlan, convolved, drawn, far, filter_spectra, spectra_bytes,
    times,
)  # fmt: skip
from .transforms import reals


@dataclass(frozen=True, kw_only=True)
class LongConvolutionBackwardDescriptor(LongConvolutionDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class LongConvolutionBackwardArgs(Args):
    """Any strides. Each output may be None; dfilter and dskip are sums over the batch."""

    dy: Array = operand("batch channels length", values=reals)
    x: Array = operand("batch channels length", values=reals)
    filter: Array = operand("channels taps", element="acc", values=reals)
    skip: Array | None = operand("channels", element="acc", optional=True, values=reals)
    pre_gate: Array | None = operand("batch channels length", optional=True, values=reals)
    post_gate: Array | None = operand("batch channels length", optional=True, values=reals)
    dx: Array | None = output("batch channels length", optional=True)
    dfilter: Array | None = output("channels taps", element="acc", optional=True)
    dskip: Array | None = output("channels", element="acc", optional=True, needs="skip")
    dpre_gate: Array | None = output("batch channels length", optional=True, needs="pre_gate")
    dpost_gate: Array | None = output("batch channels length", optional=True, needs="post_gate")


def reference(
    desc: LongConvolutionBackwardDescriptor, *, dy: Any, x: Any, filter: Any, skip: Any, pre_gate: Any,
    post_gate: Any, wanted: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy's rfft and irfft, of twice the length where the convolution is causal."""
    u, inner = times(x, pre_gate), times(dy, post_gate)
    du = convolved(desc, inner, filter, skip, adjoint=True)
    found = {"dx": times(du, pre_gate)}
    if pre_gate is not None:
        found["dpre_gate"] = du * x
    if post_gate is not None:
        found["dpost_gate"] = convolved(desc, u, filter, skip) * dy
    sums = np.zeros((desc.channels, max(desc.length, 1)), x.dtype)
    if u.size:
        product = np.conj(np.fft.rfft(u, desc.period)) * np.fft.rfft(inner, desc.period)
        sums = np.fft.irfft(product.sum(0), desc.period).astype(x.dtype)
    found["dfilter"] = sums[:, : desc.taps].astype(filter.dtype)
    if skip is not None:
        found["dskip"] = sums[:, 0].astype(skip.dtype)
    return found


def residual(
    desc: LongConvolutionBackwardDescriptor, name: str, *, dy: Any, x: Any, filter: Any, skip: Any = None,
    pre_gate: Any = None, post_gate: Any = None, **found: Any,
) -> Any:  # fmt: skip
    """As the forward's; of dfilter and dskip beside what all products of two rows come to at most."""
    given = {"dy": dy, "x": x, "filter": filter, "skip": skip, "pre_gate": pre_gate, "post_gate": post_gate}
    truth = reference(desc, **given, wanted={name})[name]
    u, inner = times(x, pre_gate), times(dy, post_gate)
    if name == "dx":
        return far(desc, truth, found[name], inner, filter, skip, pre_gate)
    if name == "dpre_gate":
        return far(desc, truth, found[name], inner, filter, skip, x)
    if name == "dpost_gate":
        return far(desc, truth, found[name], u, filter, skip, dy)
    off = np.square(found[name] - truth)
    off = np.sqrt(off.sum(-1)) if name == "dfilter" else np.sqrt(off)
    if not u.size:
        return off
    most = np.abs(np.fft.rfft(u, 4 * desc.points)).max(-1) * np.sqrt(np.square(inner).sum(-1))
    scale = most.sum(0) * (math.log2(2 * desc.points) + desc.batch)
    return np.where(off != 0, off / np.where(scale == 0, 1, scale), 0)


def _convolve(p: Problem, conjugate: bool, **given: Any) -> Steps | str:
    desc = p.desc
    if not p.x.size:
        return ()
    rows: dict[str, Any] = {name: signal(one, p.views[one]) for name, one in given.items()}
    return launch(
        "convolve", (desc.batch, desc.channels), desc.element, desc.length, desc.points, causal=not desc.circular,
        conjugate=conjugate, spectrum=spectra(desc.points, batched=True), **rows,
    )  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    """Filters forth; dx and dpre_gate in one launch, dpost_gate in another; what dfilter and dskip are of, and back.

    The spectra of the filters' gradients take the place of those of the filters when these have been read.
    """
    desc = p.desc
    steps: list[Steps | str] = []
    if p.dx is not None:
        twin = {"twin": "dpre_gate", "other": "x"} if p.dpre_gate is not None else {}
        steps.append(_convolve(p, True, x="dy", pre="post_gate", y="dx", post="pre_gate", **twin))
    elif p.dpre_gate is not None:
        steps.append(_convolve(p, True, x="dy", pre="post_gate", y="dpre_gate", post="x"))
    if p.dpost_gate is not None:
        steps.append(_convolve(p, False, x="x", pre="pre_gate", y="dpost_gate", post="dy"))
    if steps:
        steps.insert(0, filter_spectra(p) if p.x.size else ())
    if p.dfilter is not None or p.dskip is not None:
        each: dict[str, Any] = {"causal": not desc.circular, "spectrum": spectra(desc.points)}
        steps.append(launch(
            "correlate", (desc.channels,), desc.element, desc.length, desc.points, items=desc.batch, **each,
            x=summed("x", p.x), pre=summed("pre_gate", p.pre_gate), post=summed("dy", p.dy),
            other=summed("post_gate", p.post_gate),
        ))  # fmt: skip
        steps.append(launch(
            "taps", (desc.channels,), desc.element, desc.taps, desc.points, factor=1 / desc.points, **each,
            y=of_channels("dfilter", p.dfilter), twin=of_channels("dskip", p.dskip),
        ))  # fmt: skip
    made = sequence(*steps)
    return made if isinstance(made, str) else Geometry(made, spectra_bytes(desc) if made else 0, "strided")


class LongConvolutionBackwardPlan(Plan):
    """Gradients of `LongConvolutionPlan`; with v = dy post_gate and u = x pre_gate:

    du[s] = Σ_t filter[t - s] v[t] + skip v[s], dx = du pre_gate, dpre_gate = du x, dfilter[s] = Σ over the batch
    Σ_t v[t] u[t - s], dskip = dfilter[0], dpost_gate = dy times what the forward's post_gate multiplies. What is summed
    over the batch is summed in its order, as spectra. Errors as the forward's; those of dfilter and dskip are beside
    the sum of all rows' products.
    """

    op = "fft.long_convolution_backward"
    direction = "backward"
    descriptor = LongConvolutionBackwardDescriptor
    args = LongConvolutionBackwardArgs
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = LongConvolutionPlan.value_policy
    variants = (
        Variant("right_angle", _geometry, SOURCE, BACKWARD, elements=REALS, guarantee=GUARANTEE, may_spill=True),
    )
    benchmarks = tuple(
        Benchmark(f"[16, 768, 4096] bfloat16{label}", batch=16, channels=768, length=4096, taps=4096,
                  element="bfloat16", also=also, target=None, peers=())
        for label, also in (
            ("", ("dx", "dfilter")),
            (", skip and gates", ("skip", "pre_gate", "post_gate", "dx", "dfilter", "dskip", "dpre_gate",
                                  "dpost_gate")),
        )
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> LongConvolutionBackwardDescriptor:
        return LongConvolutionBackwardDescriptor(**drawn(draw))

    @classmethod
    def flops(cls, desc: Any) -> int:
        return 2 * LongConvolutionPlan.flops(desc)


long_convolution_backward = functional(LongConvolutionBackwardPlan)
