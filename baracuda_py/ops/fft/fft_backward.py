"""fft_backward: the gradient of a Fourier transform, which is the transform of the other sign with the same factor."""

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
from ...core.element import COMPLEX
from ...schedules.fourier import OF_COMPLEX, SOURCE, complex_geometry
from ...schedules.stockham import WHOLE, SOURCE as STOCKHAM, stockham_complex
from .fft import FftDescriptor, FftPlan
from .transforms import GUARANTEE, INVARIANT, drawn, error, numbers


@dataclass(frozen=True, kw_only=True)
class FftBackwardDescriptor(FftDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class FftBackwardArgs(Args):
    """Any strides; dx may be dy itself."""

    dy: Array = operand("*shape", values=numbers)
    dx: Array = output("*shape", inplace=("dy",))


def reference(desc: FftBackwardDescriptor, *, dy: Any) -> Mapping[str, Any]:
    """NumPy's transform of the other sign."""
    scale = dy.real.dtype.type(desc.factor)
    if desc.inverse:
        return {"dx": np.fft.fftn(dy, axes=desc.axis) * scale}
    return {"dx": np.fft.ifftn(dy, axes=desc.axis, norm="forward") * scale}


def residual(desc: FftBackwardDescriptor, name: str, *, dy: Any, dx: Any) -> Any:
    """As the forward's."""
    truth = reference(desc, dy=dy)["dx"]
    return error(truth, dx, dy, desc.axis, math.prod(desc.lengths), desc.factor)


def _geometry(p: Problem) -> Geometry | str:
    return complex_geometry(p, "dy", "dx", p.desc.axis, p.desc.factor, not p.desc.inverse)


def _in_shared_memory(p: Problem) -> Geometry | str:
    return stockham_complex(p, "dy", "dx", p.desc.axis, p.desc.factor, not p.desc.inverse)


class FftBackwardPlan(Plan):
    """dx = factor Σ dy[k] exp(±2πi j·k / n): the adjoint of `FftPlan`, of whose bounds it has the same."""

    op = "fft.fft_backward"
    direction = "backward"
    descriptor = FftBackwardDescriptor
    args = FftBackwardArgs
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = FftPlan.value_policy
    variants = (
        Variant(
            "stockham", _in_shared_memory, STOCKHAM, WHOLE, elements=COMPLEX, guarantee=INVARIANT, may_spill=True,
        ),
        Variant(
            "cufft", _geometry, SOURCE, OF_COMPLEX, elements=COMPLEX, backend=BackendKind.CUFFT, guarantee=GUARANTEE,
            missing=CUFFT.unavailable,
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[65536, 1024] complex64", shape=(1 << 16, 1024), axis=(1,), element="complex64", target=None,
                  peers=()),
    )  # fmt: skip

    @staticmethod
    def torch(torch: Any, desc: FftBackwardDescriptor, *, dy: Any) -> Any:
        """torch's transform of the other sign."""
        if desc.inverse:
            return torch.fft.fftn(dy, dim=desc.axis) * desc.factor
        return torch.fft.ifftn(dy, dim=desc.axis, norm="forward") * desc.factor

    @staticmethod
    def case(draw: Any) -> FftBackwardDescriptor:
        return FftBackwardDescriptor(**drawn(draw), inverse=draw.flag())

    flops = FftPlan.flops


fft_backward = functional(FftBackwardPlan)
