"""rfft: half of the Fourier transform of real numbers over one to three axes.

Lengths that a block holds are one launch an axis, in shared memory; others are cuFFT's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from ...core.element import HALVES
from ...core.errors import UnsupportedError
from ...schedules.fourier import OF_PARTS, PARTS, SOURCE, real_geometry
from ...schedules.stockham import REALS, TO_HALF, SOURCE as STOCKHAM, reaches, stockham_real
from .transforms import GUARANTEE, INVARIANT, NORMS, check_axes, drawn, error, factor_of, half, reals


def alone(lengths: Sequence[int], element: ElementKind) -> bool:
    """Whether real numbers are transformed without cuFFT: those of 16 bits are not otherwise."""
    return len(lengths) == 1 and reaches(lengths[0], element, real=True)


@dataclass(frozen=True, kw_only=True)
class HalfDescriptor(Descriptor):
    """A real array of shape `shape` and half of its transform over the axes named, the last of which is halved.

    Of that axis, of length n, the spectrum has the first n // 2 + 1 elements: the others are their conjugates mirrored.
    """

    shape: tuple[int, ...] = extents()
    axis: tuple[int, ...] = axes(ordered=True)
    norm: str = choice(NORMS, "backward")
    element: ElementKind = element(REALS)

    def validate(self) -> None:
        check_axes(self.axis, self.shape)
        if self.element in HALVES and not alone(self.lengths, self.element):
            raise UnsupportedError(
                f"numbers of {self.element} are transformed over one axis, in shared memory, got axes {self.axis} of "
                f'shape {self.shape}: give cast(x, "float32"), or transform the other axes of the complex result'
            )

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
        """The complex element whose parts are of `element`; complex64 of 16-bit ones, which are computed in float32."""
        return self.element.paired or ElementKind.C64


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


def widened(x: Any) -> Any:
    """A tensor of 16-bit numbers as torch transforms it."""
    return x.float() if x.element_size() < 4 else x


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


def _in_shared_memory(p: Problem) -> Geometry | str:
    return stockham_real(p, "x", "y", p.desc.axis, p.desc.factor, doubled=False)


class RfftPlan(Plan):
    """y[k] = factor Σ x[j] exp(-2πi j·k / n) for the k that x being real leaves open (torch.fft.rfftn).

    float32 and float64, and of one axis float16 and bfloat16, computed in float32; y is complex64 or complex128.
    Lengths that a block holds, twice those of `FftPlan` where they are even, are one launch an axis, in shared
    memory: an even number of real numbers as half as many complex ones. A transform then has the bits that it has
    alone. Others are one plan of cuFFT, whose work area is the plan's workspace: operands whose axes it does not take
    as they lie are copied by the way; the order of sums is cuFFT's, and may depend on the batch. The error of a
    transform over N elements is at most 2 eps log2(2 N) of its norm.
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
            "stockham", _in_shared_memory, STOCKHAM, TO_HALF, elements=REALS, guarantee=INVARIANT, may_spill=True,
        ),
        Variant(
            "cufft", _geometry, SOURCE, OF_PARTS, elements=PARTS, backend=BackendKind.CUFFT, guarantee=GUARANTEE,
            missing=CUFFT.unavailable,
        ),
    )  # fmt: skip
    benchmarks = (
        *(
            Benchmark(f"[{(1 << 24) // n}, {n}] float32", shape=((1 << 24) // n, n), axis=(1,), element="float32",
                      target=0.85, peers=(EAGER,))
            for n in (256, 1024, 4096, 16384)
        ),
        Benchmark("[16384, 1024] bfloat16", shape=(1 << 14, 1024), axis=(1,), element="bfloat16", peers=()),
        Benchmark("[65536, 1024] float32", shape=(1 << 16, 1024), axis=(1,), element="float32", target=None,
                  peers=(EAGER,)),
    )  # fmt: skip

    @staticmethod
    def torch(torch: Any, desc: RfftDescriptor, *, x: Any) -> Any:
        """torch.fft.rfftn."""
        return torch.fft.rfftn(widened(x), dim=desc.axis, norm=desc.norm)

    @staticmethod
    def case(draw: Any) -> RfftDescriptor:
        return RfftDescriptor(**drawn(draw, 2))

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2.5 * math.prod(desc.shape) * math.log2(max(math.prod(desc.lengths), 1)))


_rfft: Any = functional(RfftPlan)
