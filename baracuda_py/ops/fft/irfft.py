"""irfft: the real inverse of half a Fourier transform over one to three axes.

Lengths that a block holds are one launch an axis, in shared memory; others are cuFFT's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cufft import CUFFT
from ...core import (
    Args, Array, BackendKind, Geometry, Plan, Problem, Variant, Vjp, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...schedules.fourier import OF_PARTS, PARTS, SOURCE, hermitian_geometry
from ...schedules.stockham import FROM_HALF, REALS, SOURCE as STOCKHAM, stockham_half
from .rfft import HalfDescriptor
from .transforms import GUARANTEE, INVARIANT, drawn, error, factor_of, half_of_real, numbers


@dataclass(frozen=True, kw_only=True)
class IrfftDescriptor(HalfDescriptor):
    """y, real, has shape `shape`; x is half of its transform over the axes named, of which the last one is halved.

    norm: "backward", y is divided by N, the product of the lengths; "ortho", by √N; "forward", by nothing.
    """

    @property
    def factor(self) -> float:
        """What the norm multiplies by."""
        return factor_of(self.norm, True, self.lengths)


@dataclass(slots=True, kw_only=True)
class IrfftArgs(Args):
    """Any strides. x is complex, and not written; y is real."""

    x: Array = operand("*half_shape", element="spectrum", values=numbers)
    y: Array = output("*shape")


def reference(desc: IrfftDescriptor, *, x: Any) -> Mapping[str, Any]:
    """numpy.fft.irfftn."""
    norm: Any = desc.norm
    return {"y": np.fft.irfftn(x, desc.lengths, desc.axis, norm)}


def residual(desc: IrfftDescriptor, name: str, *, x: Any, y: Any) -> Any:
    """The error in the norm of the result, over log2(2 N)."""
    truth = reference(desc, x=x)["y"]
    return error(truth, y, x, desc.axis, math.prod(desc.lengths), desc.factor)


def _geometry(p: Problem) -> Geometry | str:
    return hermitian_geometry(p, "x", "y", p.desc.axis, p.desc.factor, halved=False)


def _in_shared_memory(p: Problem) -> Geometry | str:
    return stockham_half(p, "x", "y", p.desc.axis, p.desc.factor, halved=False)


class IrfftPlan(Plan):
    """y[j] = factor Σ x[k] exp(2πi j·k / n), x taken on by its mirrored conjugates (torch.fft.irfftn).

    float32 and float64, of complex64 and complex128, and of one axis float16 and bfloat16, of complex64, computed in
    float32. Where x must be its own mirror image, at 0 and, for an even n, at n / 2 of the halved axis, only that
    part of it counts: of one axis, the real part. Lengths that a block holds, twice those of `FftPlan` where they are
    even, are one launch an axis, in shared memory, all but the last one to the workspace; a transform then has the
    bits that it has alone. Others are one plan of cuFFT, whose work area is the plan's workspace: over several axes
    it works on a copy of x; the order of sums is cuFFT's, and may depend on the batch. The error of a transform over
    N elements is at most 2 eps log2(2 N) of its norm.
    """

    op = "fft.irfft"
    descriptor = IrfftDescriptor
    args = IrfftArgs
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    vjp = Vjp("IrfftBackwardPlan", grads={"x": "dx"})
    value_policy = "a NaN or an infinity reaches its own transform alone, where it makes numbers NaN or infinite"
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
        Benchmark("[16384, 1024] bfloat16", shape=(1 << 14, 1024), axis=(1,), element="bfloat16", peers=(),
                  make=half_of_real("x")),
        Benchmark("[65536, 1024] float32", shape=(1 << 16, 1024), axis=(1,), element="float32", target=None,
                  peers=(EAGER,), make=half_of_real("x")),
    )  # fmt: skip

    @staticmethod
    def torch(torch: Any, desc: IrfftDescriptor, *, x: Any) -> Any:
        """torch.fft.irfftn."""
        made = torch.fft.irfftn(x, desc.lengths, dim=desc.axis, norm=desc.norm)
        return made.to(getattr(torch, str(desc.element)))

    @staticmethod
    def case(draw: Any) -> IrfftDescriptor:
        return IrfftDescriptor(**drawn(draw, 2))

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2.5 * math.prod(desc.shape) * math.log2(max(math.prod(desc.lengths), 1)))


_irfft: Any = functional(IrfftPlan)
