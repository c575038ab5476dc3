"""irfft_backward: the gradient of irfft, the half transform of dy, times 2 between the ends of the halved axis."""

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
from ...schedules.fourier import OF_PARTS, PARTS, SOURCE, real_geometry
from ...schedules.stockham import REALS, TO_HALF, SOURCE as STOCKHAM, stockham_real
from .irfft import IrfftDescriptor, IrfftPlan
from .rfft import widened
from .transforms import GUARANTEE, INVARIANT, between, drawn, error, reals, weighted


@dataclass(frozen=True, kw_only=True)
class IrfftBackwardDescriptor(IrfftDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class IrfftBackwardArgs(Args):
    """Any strides. dy is real, dx complex."""

    dy: Array = operand("*shape", values=reals)
    dx: Array = output("*half_shape", element="spectrum")


def reference(desc: IrfftBackwardDescriptor, *, dy: Any) -> Mapping[str, Any]:
    """NumPy's transform, of which each element between the ends stands for its mirror image, too."""
    made = between(np.fft.rfftn(dy, axes=desc.axis), desc.axis[-1], desc.lengths[-1], 2.0)
    return {"dx": made * made.real.dtype.type(desc.factor)}


def residual(desc: IrfftBackwardDescriptor, name: str, *, dy: Any, dx: Any) -> Any:
    """As the forward's."""
    truth = reference(desc, dy=dy)["dx"]
    return error(truth, dx, dy, desc.axis, math.prod(desc.lengths), desc.factor)


def _geometry(p: Problem) -> Geometry | str:
    return real_geometry(p, "dy", "dx", p.desc.axis, p.desc.factor, doubled=True)


def _in_shared_memory(p: Problem) -> Geometry | str:
    return stockham_real(p, "dy", "dx", p.desc.axis, p.desc.factor, doubled=True)


class IrfftBackwardPlan(Plan):
    """dx of `IrfftPlan`, its adjoint as PyTorch pairs complex numbers: dx = factor w[k] Σ dy[j] exp(-2πi j·k / n).

    w is 1 at the ends of the halved axis, 0 and n / 2, and 2 between them.
    """

    op = "fft.irfft_backward"
    direction = "backward"
    descriptor = IrfftBackwardDescriptor
    args = IrfftBackwardArgs
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = IrfftPlan.value_policy
    variants = (
        Variant(
            "stockham", _in_shared_memory, STOCKHAM, TO_HALF, elements=REALS, guarantee=INVARIANT, may_spill=True,
        ),
        Variant(
            "cufft", _geometry, SOURCE, OF_PARTS, elements=PARTS, backend=BackendKind.CUFFT, guarantee=GUARANTEE,
            missing=CUFFT.unavailable,
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[65536, 1024] float32", shape=(1 << 16, 1024), axis=(1,), element="float32", target=None, peers=()),
    )

    @staticmethod
    def torch(torch: Any, desc: IrfftBackwardDescriptor, *, dy: Any) -> Any:
        """torch's transform, of which each element between the ends stands for its mirror image, too."""
        made = torch.fft.rfftn(widened(dy), dim=desc.axis)
        return weighted(torch, made, desc.axis[-1], desc.lengths[-1], 2.0) * desc.factor

    @staticmethod
    def case(draw: Any) -> IrfftBackwardDescriptor:
        return IrfftBackwardDescriptor(**drawn(draw, 2))

    flops = IrfftPlan.flops


irfft_backward = functional(IrfftBackwardPlan)
