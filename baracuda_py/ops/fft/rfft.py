"""rfft: half of the Fourier transform of real numbers over one to three axes, by cuFFT."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cufft import CUFFT
from ...core import (
    Args, Array, BackendKind, Descriptor, ElementKind, Geometry, Plan, Problem, Variant, Vjp,
    axes, choice, element, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...schedules.fourier import OF_PARTS, PARTS, SOURCE, real_geometry
from .transforms import GUARANTEE, NORMS, check_axes, drawn, error, factor_of, half, reals


@dataclass(frozen=True, kw_only=True)
class HalfDescriptor(Descriptor):
    """A real array of shape `shape` and half of its transform over the axes named, the last of which is halved.

    Of that axis, of length n, the spectrum has the first n // 2 + 1 elements: the others are their conjugates mirrored.
    """

    shape: tuple[int, ...] = extents()
    axis: tuple[int, ...] = axes(ordered=True)
    norm: str = choice(NORMS, "backward")
    element: ElementKind = element(PARTS)

    def validate(self) -> None:
        check_axes(self.axis, self.shape)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Those of the axes, in their order."""
        return tuple(self.shape[a] for a in self.axis)

    @property
    def half_shape(self) -> tuple[int, ...]:
        """The shape of the half spectrum."""
        return half(self.shape, self.axis)

    @property
    def spectrum(self) -> ElementKind:
        """The complex element whose parts are of `element`."""
        found = self.element.paired
        assert found is not None
        return found


@dataclass(frozen=True, kw_only=True)
class RfftDescriptor(HalfDescriptor):
    """x, real, has shape `shape`; y its transform over the axes named, of which the last one is halved.

    norm: "backward", nothing is divided; "ortho", by √N, N the product of the lengths; "forward", by N.
    """

    @property
    def factor(self) -> float:
        """What the norm multiplies by."""
        return factor_of(self.norm, False, self.lengths)


@dataclass(slots=True, kw_only=True)
class RfftArgs(Args):
    """Any strides. x is real, y complex."""

    x: Array = operand("*shape", values=reals)
    y: Array = output("*half_shape", element="spectrum")


def reference(desc: RfftDescriptor, *, x: Any) -> Mapping[str, Any]:
    """numpy.fft.rfftn."""
    norm: Any = desc.norm
    return {"y": np.fft.rfftn(x, axes=desc.axis, norm=norm)}


def residual(desc: RfftDescriptor, name: str, *, x: Any, y: Any) -> Any:
    """The error in the norm of the result, over log2(2 N)."""
    truth = reference(desc, x=x)["y"]
    return error(truth, y, x, desc.axis, math.prod(desc.lengths), desc.factor)


def _geometry(p: Problem) -> Geometry | str:
    return real_geometry(p, "x", "y", p.desc.axis, p.desc.factor, doubled=False)


class RfftPlan(Plan):
    """y[k] = factor Σ x[j] exp(-2πi j·k / n) for the k that x being real leaves open (torch.fft.rfftn).

    float32 and float64; y is complex64 or complex128. One plan of cuFFT, whose work area is the plan's workspace;
    operands whose axes cuFFT does not take as they lie are copied by the way. The order of sums is cuFFT's, and may
    depend on the batch. The error of a transform over N elements is at most 2 eps log2(2 N) of its norm.
    """

    op = "fft.rfft"
    descriptor = RfftDescriptor
    args = RfftArgs
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    vjp = Vjp("RfftBackwardPlan", grads={"x": "dx"})
    value_policy = "a NaN or an infinity reaches its own transform alone, where it makes numbers NaN or infinite"
    variants = (
        Variant(
            "cufft", _geometry, SOURCE, OF_PARTS, elements=PARTS, backend=BackendKind.CUFFT, guarantee=GUARANTEE,
            missing=CUFFT.unavailable,
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[65536, 1024] float32", shape=(1 << 16, 1024), axis=(1,), element="float32", target=None,
                  peers=(EAGER,)),
    )  # fmt: skip

    @staticmethod
    def torch(torch: Any, desc: RfftDescriptor, *, x: Any) -> Any:
        """torch.fft.rfftn."""
        return torch.fft.rfftn(x, dim=desc.axis, norm=desc.norm)

    @staticmethod
    def case(draw: Any) -> RfftDescriptor:
        return RfftDescriptor(**drawn(draw), element=draw.element)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2.5 * math.prod(desc.shape) * math.log2(max(math.prod(desc.lengths), 1)))


_rfft: Any = functional(RfftPlan)
