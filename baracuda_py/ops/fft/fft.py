"""fft: the discrete Fourier transform of complex numbers over one to three axes, and its inverse.

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
    Args, Array, BackendKind, Descriptor, ElementKind, Geometry, Plan, Problem, Variant, Vjp, axes, choice, element,
    extents, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.element import COMPLEX
from ...schedules.fourier import OF_COMPLEX, SOURCE, complex_geometry
from ...schedules.stockham import WHOLE, SOURCE as STOCKHAM, stockham_complex
from .transforms import GUARANTEE, INVARIANT, NORMS, check_axes, drawn, error, factor_of, numbers


@dataclass(frozen=True, kw_only=True)
class FftDescriptor(Descriptor):
    """x and y have shape `shape`; the axes named are transformed, inverse: with the exponent's other sign.

    norm: "backward", the inverse is divided by N, the product of the lengths; "forward", the other one is; "ortho",
    both are divided by √N.
    """

    shape: tuple[int, ...] = extents()
    axis: tuple[int, ...] = axes()
    inverse: bool = flag(False)
    norm: str = choice(NORMS, "backward")
    element: ElementKind = element(COMPLEX)

    def validate(self) -> None:
        check_axes(self.axis, self.shape)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Those of the axes."""
        return tuple(self.shape[a] for a in self.axis)

    @property
    def factor(self) -> float:
        """What the norm multiplies by."""
        return factor_of(self.norm, self.inverse, self.lengths)


@dataclass(slots=True, kw_only=True)
class FftArgs(Args):
    """Any strides; y may be x itself."""

    x: Array = operand("*shape", values=numbers)
    y: Array = output("*shape", inplace=("x",))


def reference(desc: FftDescriptor, *, x: Any) -> Mapping[str, Any]:
    """numpy.fft.fftn and ifftn."""
    call = np.fft.ifftn if desc.inverse else np.fft.fftn
    norm: Any = desc.norm
    return {"y": call(x, axes=desc.axis, norm=norm)}


def residual(desc: FftDescriptor, name: str, *, x: Any, y: Any) -> Any:
    """The error in the norm of the result, over log2(2 N)."""
    truth = reference(desc, x=x)["y"]
    return error(truth, y, x, desc.axis, math.prod(desc.lengths), desc.factor)


def _geometry(p: Problem) -> Geometry | str:
    return complex_geometry(p, "x", "y", p.desc.axis, p.desc.factor, p.desc.inverse)


def _in_shared_memory(p: Problem) -> Geometry | str:
    return stockham_complex(p, "x", "y", p.desc.axis, p.desc.factor, p.desc.inverse)


def in_torch(torch: Any, desc: FftDescriptor, *, x: Any) -> Any:
    """torch.fft.fftn and ifftn."""
    call = torch.fft.ifftn if desc.inverse else torch.fft.fftn
    return call(x, dim=desc.axis, norm=desc.norm)


class FftPlan(Plan):
    """y[k] = factor Σ x[j] exp(∓2πi j·k / n) over one to three axes of complex numbers (torch.fft.fftn, ifftn).

    complex64 and complex128. Powers of two to 16384 (8192 of complex128) and products of 2, 3, 5 and 7 that a block
    holds are one launch an axis, in shared memory: whatever the strides, without workspace, and a transform has the
    bits that it has alone. Others are one plan of cuFFT, whose work area is the plan's workspace: operands whose axes
    it does not take as they lie are copied by the way, and so is what a norm multiplies, once; the order of sums is
    cuFFT's, and may depend on the batch. The error of a transform over N elements is at most 2 eps log2(2 N) of its
    norm.
    """

    op = "fft.fft"
    descriptor = FftDescriptor
    args = FftArgs
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    vjp = Vjp("FftBackwardPlan", grads={"x": "dx"})
    value_policy = "a NaN or an infinity reaches its own transform alone, where it makes numbers NaN or infinite"
    variants = (
        Variant(
            "stockham", _in_shared_memory, STOCKHAM, WHOLE, elements=COMPLEX, guarantee=INVARIANT, may_spill=True,
        ),
        Variant(
            "cufft", _geometry, SOURCE, OF_COMPLEX, elements=COMPLEX, backend=BackendKind.CUFFT, guarantee=GUARANTEE,
            missing=CUFFT.unavailable,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        *(
            Benchmark(f"[{(1 << 23) // n}, {n}] complex64", shape=((1 << 23) // n, n), axis=(1,), element="complex64",
                      target=0.85, peers=(EAGER,))
            for n in (256, 1024, 4096, 16384)
        ),
        Benchmark("[65536, 1024] complex64", shape=(1 << 16, 1024), axis=(1,), element="complex64", target=None,
                  peers=(EAGER,)),
        Benchmark("[64, 1024, 1024] complex64, two axes", shape=(64, 1024, 1024), axis=(1, 2), element="complex64",
                  target=None, peers=(EAGER,)),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> FftDescriptor:
        return FftDescriptor(**drawn(draw), inverse=draw.flag())

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(5 * math.prod(desc.shape) * math.log2(max(math.prod(desc.lengths), 1)))


_fft: Any = functional(FftPlan)
