"""long_convolution: causal or circular convolution of every channel with a filter as long as the signal, in one launch.

Longer signals, and circular ones whose length is no power of two, are `bc.long_convolution`'s by rfft and irfft.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Backward, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Variant, Vjp, element,
    extent, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.variant import aligned
from ...schedules.in_library import Steps, sequence
from ...schedules.long_convolution import (
    FORWARD, LEAST, SOURCE, fits, launch, of_channels, points_of, signal, spectra,
)  # fmt: skip
from ...schedules.stockham import REALS
from .transforms import reals

GUARANTEE = Guarantee(Backward(2.0), batch_invariant=True)


def in_one_launch(length: int, circular: bool, element: ElementKind) -> bool:
    """Whether signals of a length are convolved in the shared memory of a block."""
    return fits(length, element) and not (circular and length != points_of(length))


@dataclass(frozen=True, kw_only=True)
class LongConvolutionDescriptor(Descriptor):
    """x and y are [batch, channels, length], filter [channels, taps], taps <= length."""

    batch: int = extent()
    channels: int = extent()
    length: int = extent()
    taps: int = extent()
    circular: bool = flag(False)
    element: ElementKind = element(REALS)

    def validate(self) -> None:
        if self.taps > self.length:
            raise InvalidProblemError(
                f"filter must have at most as many taps as x has elements along its last axis, {self.length}, got "
                f"{self.taps}; cut it, as the rest reaches no output"
            )
        if not in_one_launch(self.length, self.circular, self.element):
            most = "8192 of float64" if self.element is ElementKind.F64 else "16384"
            kept = f"lengths that are powers of two from {LEAST} on" if self.circular else "any lengths"
            raise UnsupportedError(
                f"long convolutions in one launch are of {kept} up to {most}, got {self.length}: call "
                "bc.long_convolution, which does others by rfft and irfft"
            )

    @property
    def points(self) -> int:
        """Complex numbers of a row's transform."""
        return points_of(self.length)

    @property
    def period(self) -> int:
        """Real numbers of a transform whose products are this convolution."""
        return self.length if self.circular else 2 * self.length


@dataclass(slots=True, kw_only=True)
class LongConvolutionArgs(Args):
    """Any strides. filter and skip hold float32, float64 where x does."""

    x: Array = operand("batch channels length", values=reals)
    filter: Array = operand("channels taps", element="acc", values=reals)
    skip: Array | None = operand("channels", element="acc", optional=True, values=reals)
    pre_gate: Array | None = operand("batch channels length", optional=True, values=reals)
    post_gate: Array | None = operand("batch channels length", optional=True, values=reals)
    y: Array = output("batch channels length", inplace=("x", "pre_gate", "post_gate"))


def times(x: Any, gate: Any) -> Any:
    """A product with a gate, which may be absent."""
    return x if gate is None else x * gate


def convolved(desc: Any, u: Any, filter: Any, skip: Any, adjoint: bool = False) -> Any:
    """The convolution by NumPy's transforms of real numbers, twice as many of them where it is causal."""
    if not u.size:
        return u
    spectrum = np.fft.rfft(filter, desc.period) if desc.taps else np.zeros((1, 1), u.dtype)
    made = np.fft.rfft(u, desc.period) * (np.conj(spectrum) if adjoint else spectrum)
    y = np.fft.irfft(made, desc.period)[..., : desc.length].astype(u.dtype)
    return y if skip is None else y + skip[:, None] * u


def reference(
    desc: LongConvolutionDescriptor, *, x: Any, filter: Any, skip: Any, pre_gate: Any, post_gate: Any
) -> Mapping[str, Any]:
    """NumPy's rfft and irfft of twice the length, of the length itself where it is circular."""
    return {"y": times(convolved(desc, times(x, pre_gate), filter, skip), post_gate)}


def far(desc: Any, truth: Any, found: Any, u: Any, filter: Any, skip: Any, gate: Any) -> Any:
    """‖found - truth‖ / (log2(2 points) max |spectrum| ‖u‖ max |gate|) of each row."""
    if not truth.size:
        return np.zeros(truth.shape[:2])
    spectrum = np.fft.rfft(filter, 4 * desc.points) if desc.taps else np.zeros((desc.channels, 1))
    size = np.abs(spectrum).max(-1) + (0 if skip is None else np.abs(skip))
    size = size * np.sqrt(np.square(u).sum(-1)) * (1 if gate is None else np.abs(gate).max(-1))
    off = np.sqrt(np.square(found - truth).sum(-1))
    return np.where(off != 0, off / np.where(size == 0, 1, size * math.log2(2 * desc.points)), 0)


def residual(
    desc: LongConvolutionDescriptor, name: str, *, x: Any, filter: Any, y: Any, skip: Any = None, pre_gate: Any = None,
    post_gate: Any = None,
) -> Any:  # fmt: skip
    """The error of a row in its norm, beside what the filter makes of it at most."""
    truth = reference(desc, x=x, filter=filter, skip=skip, pre_gate=pre_gate, post_gate=post_gate)["y"]
    return far(desc, truth, y, times(x, pre_gate), filter, skip, post_gate)


def filter_spectra(p: Problem) -> Steps | str:
    """The launch that transforms filters, what skips their first tap by added, to the workspace."""
    desc = p.desc
    return launch(
        "spectrum", (desc.channels,), desc.element, desc.taps, desc.points, causal=not desc.circular,
        factor=1 / desc.points, x=of_channels("filter", p.filter), pre=of_channels("skip", p.skip),
        spectrum=spectra(desc.points),
    )  # fmt: skip


def spectra_bytes(desc: Any) -> int:
    """Of the workspace."""
    return aligned(desc.channels * desc.points * 2 * desc.element.acc.itemsize)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    if not p.y.size:
        return Geometry(())
    convolve = launch(
        "convolve", (desc.batch, desc.channels), desc.element, desc.length, desc.points, causal=not desc.circular,
        x=signal("x", p.x), pre=signal("pre_gate", p.pre_gate), post=signal("post_gate", p.post_gate),
        y=signal("y", p.y), spectrum=spectra(desc.points, batched=True),
    )  # fmt: skip
    made = sequence(filter_spectra(p), convolve)
    return made if isinstance(made, str) else Geometry(made, spectra_bytes(desc), "strided")


def in_torch(
    torch: Any, desc: LongConvolutionDescriptor, *, x: Any, filter: Any, skip: Any, pre_gate: Any, post_gate: Any
) -> Any:
    """The composition that models have: rfft of twice the length, product, irfft, skip, gates."""
    u = times(x, pre_gate).to(filter.dtype)
    if not u.numel() or not desc.taps:
        y = torch.zeros_like(u) + 0 * filter.sum()
    else:
        product = torch.fft.rfft(u, desc.period) * torch.fft.rfft(filter, desc.period)
        y = torch.fft.irfft(product, desc.period)[..., : desc.length]
    y = y if skip is None else y + skip[:, None] * u
    return times(y, post_gate).to(x.dtype)


class LongConvolutionPlan(Plan):
    """y[t] = post_gate[t] (Σ_{s <= t} filter[s] u[t - s] + skip u[t]), u = x pre_gate, of each channel.

    circular: the sum is over all s, t - s modulo the length (H3 and Hyena's fftconv, FlashFFTConv). float16 and
    bfloat16 are computed in float32; filter and skip hold float32, or float64 where x does. Lengths up to 16384, of
    float64 8192; circular ones are powers of two from 16 on.

    Two launches: filters are transformed to the workspace, then each row is transformed, multiplied and transformed
    back in shared memory. A causal convolution takes as many complex numbers as the signal has real ones, without zeros
    behind them: turned through a quarter of a circle from the first to the last, they leave what wraps around in the
    imaginary parts (right-angle convolution). A row has the bits that it has alone. Its error is at most
    2 eps log2(2 n) of the norm of x pre_gate times the largest magnitudes of the filter's spectrum, skip added, and of
    post_gate.
    """

    op = "fft.long_convolution"
    descriptor = LongConvolutionDescriptor
    args = LongConvolutionArgs
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    vjp = Vjp(
        "LongConvolutionBackwardPlan",
        grads={"x": "dx", "filter": "dfilter", "skip": "dskip", "pre_gate": "dpre_gate", "post_gate": "dpost_gate"},
    )
    value_policy = "a NaN or an infinity reaches all of its own row, and one of a filter or skip all of its channel"
    variants = (
        Variant("right_angle", _geometry, SOURCE, FORWARD, elements=REALS, guarantee=GUARANTEE, may_spill=True),
    )
    torch = staticmethod(in_torch)
    benchmarks = (
        *(
            Benchmark(f"[16, 768, {n}] {kind}", batch=16, channels=768, length=n, taps=n, element=kind, target=0.6,
                      peers=(EAGER,))
            for n in (1024, 4096, 8192) for kind in ("float32", "bfloat16")
        ),
        Benchmark("[16, 768, 4096] bfloat16, skip and gates", batch=16, channels=768, length=4096, taps=4096,
                  element="bfloat16", also=("skip", "pre_gate", "post_gate"), target=0.6, peers=(EAGER,)),
        Benchmark("[8, 768, 4096] float32, circular", batch=8, channels=768, length=4096, taps=4096, circular=True,
                  element="float32", target=None, peers=(EAGER,)),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> LongConvolutionDescriptor:
        return LongConvolutionDescriptor(**drawn(draw))

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(10 * desc.batch * desc.channels * desc.points * math.log2(desc.points))


def drawn(draw: Any) -> dict[str, Any]:
    """Small rows of any length, a filter from one tap on, now and then a longer one of each kernel."""
    more = {"batch": draw.sizes(1, 2, 3), "channels": draw.sizes(1, 2, 5), "element": draw.element}
    circular = draw.flag()
    if draw.rarely():
        n = draw.choice((128, 512, 1024, 2048, 4096, 8192, 16384))
        n, more["batch"], more["channels"] = min(n, 8192 if draw.element is ElementKind.F64 else n), 1, 2
        return {"length": n, "taps": draw.choice((n, n // 2)), "circular": circular, **more}
    n = draw.choice((16, 32, 64)) if circular else draw.sizes(1, 2, 7, 16, 31, 33, 64)
    if draw.rarely():
        more["batch"] = 0
    return {"length": n, "taps": draw.choice((n, -(-n // 2))), "circular": circular, **more}


_long_convolution: Any = functional(LongConvolutionPlan)
