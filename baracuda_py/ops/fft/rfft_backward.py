"""rfft_backward: the gradient of rfft, an inverse transform of dy, times 1/2 between the ends of its halved axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cufft import CUFFT
from ...core import Args, Array, BackendKind, Geometry, Plan, Problem, Variant, operand, output
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...schedules.fourier import OF_PARTS, PARTS, SOURCE, hermitian_geometry
from ...schedules.stockham import FROM_HALF, REALS, SOURCE as STOCKHAM, stockham_half
from .rfft import RfftDescriptor, RfftPlan
from .transforms import GUARANTEE, INVARIANT, between, drawn, error, half_of_real, numbers, weighted


@dataclass(frozen=True, kw_only=True)
class RfftBackwardDescriptor(RfftDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class RfftBackwardArgs(Args):
    """Any strides. dy is complex, and not written; dx is real."""

    dy: Array = operand("*half_shape", element="spectrum", values=numbers)
    dx: Array = output("*shape")


def reference(desc: RfftBackwardDescriptor, *, dy: Any) -> Mapping[str, Any]:
    """NumPy's inverse, of which each pair of mirrored elements has one share."""
    shared = between(dy, desc.axis[-1], desc.lengths[-1], 0.5)
    made = np.fft.irfftn(shared, desc.lengths, desc.axis, "forward")
    return {"dx": made * made.dtype.type(desc.factor)}


def residual(desc: RfftBackwardDescriptor, name: str, *, dy: Any, dx: Any) -> Any:
    """As the forward's."""
    truth = reference(desc, dy=dy)["dx"]
    return error(truth, dx, dy, desc.axis, math.prod(desc.lengths), desc.factor)


def _geometry(p: Problem) -> Geometry | str:
    return hermitian_geometry(p, "dy", "dx", p.desc.axis, p.desc.factor, halved=True)


def _in_shared_memory(p: Problem) -> Geometry | str:
    return stockham_half(p, "dy", "dx", p.desc.axis, p.desc.factor, halved=True)


class RfftBackwardPlan(Plan):
    """dx of `RfftPlan`, its adjoint as PyTorch pairs complex numbers: dx = factor Re Σ dy[k] exp(2πi j·k / n).

    The sum is over the half spectrum alone.
    """

    op = "fft.rfft_backward"
    direction = "backward"
    descriptor = RfftBackwardDescriptor
    args = RfftBackwardArgs
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = RfftPlan.value_policy
    variants = (
        Variant(
            "stockham", _in_shared_memory, STOCKHAM, FROM_HALF, elements=REALS, guarantee=INVARIANT, may_spill=True,
        ),
        Variant(
            "cufft", _geometry, SOURCE, OF_PARTS, elements=PARTS, backend=BackendKind.CUFFT, guarantee=GUARANTEE,
            missing=CUFFT.unavailable,
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "[65536, 1024] float32",
            shape=(1 << 16, 1024),
            axis=(1,),
            element="float32",
            target=None,
            peers=(),
            make=half_of_real("dy"),
        ),
    )

    @staticmethod
    def torch(torch: Any, desc: RfftBackwardDescriptor, *, dy: Any) -> Any:
        """torch's inverse, of which each pair of mirrored elements has one share."""
        shared = weighted(torch, dy, desc.axis[-1], desc.lengths[-1], 0.5)
        made = torch.fft.irfftn(shared, desc.lengths, dim=desc.axis, norm="forward") * desc.factor
        return made.to(getattr(torch, str(desc.element)))

    @staticmethod
    def case(draw: Any) -> RfftBackwardDescriptor:
        return RfftBackwardDescriptor(**drawn(draw, 2))

    flops = RfftPlan.flops


rfft_backward = functional(RfftBackwardPlan)
