"""framed_rfft: half spectra of windowed frames of real signals, or their magnitudes, without frames in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Plan, Problem, Variant, choice, element, extents, integer,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.errors import InvalidProblemError, UnsupportedError
from ...schedules.fourier import PARTS
from ...schedules.framed import FRAMED, PADDINGS, RESULTS, SOURCE, framed, frames_fit
from .transforms import INVARIANT, NORMS, factor_of, reals


def frames_of(length: int, n_fft: int, hop_length: int, padding: int) -> int:
    """Whole frames of a signal with `padding` places before and behind it."""
    return max((length + 2 * padding - n_fft) // hop_length + 1, 0)


@dataclass(frozen=True, kw_only=True)
class FramedRfftDescriptor(Descriptor):
    """x has shape `shape`, the last axis being time; y [..., frames, n_fft // 2 + 1].

    Frames of n_fft numbers begin every hop_length, the first of them `padding` places before x, and there are as many
    as end at most `padding` places behind it. The window's win_length taps stand in a frame's middle. pad_mode: what
    stands beyond x, "constant" (0), "reflect", "replicate" or "circular". result: "complex", "magnitude", or "power",
    a magnitude's square. norm: as of `RfftDescriptor`.
    """

    shape: tuple[int, ...] = extents()
    n_fft: int = integer(minimum=1)
    hop_length: int = integer(minimum=1)
    win_length: int = integer(minimum=1)
    padding: int = integer(0, minimum=0)
    pad_mode: str = choice(PADDINGS, "reflect")
    result: str = choice(RESULTS, "complex")
    norm: str = choice(NORMS, "backward")
    element: ElementKind = element(PARTS)

    def validate(self) -> None:
        if not self.shape:
            raise InvalidProblemError("x must have an axis of time, got a single number")
        n = self.shape[-1]
        most = n - 1 if self.pad_mode == "reflect" else n
        if self.padding > most and self.pad_mode in ("reflect", "circular"):
            raise InvalidProblemError(
                f"padding must be at most {most} in mode {self.pad_mode!r} of {n} elements, got {self.padding}"
            )
        if self.padding and not n and self.pad_mode != "constant":
            raise InvalidProblemError(f"x has no elements along its last axis to pad with in mode {self.pad_mode!r}")
        if self.win_length > self.n_fft:
            raise InvalidProblemError(f"win_length must be at most n_fft {self.n_fft}, got {self.win_length}")
        if not self.frames:
            raise InvalidProblemError(
                f"x must have {self.n_fft} elements along its last axis with its padding, a frame, got "
                f"{n + 2 * self.padding}"
            )
        if not frames_fit(self.n_fft, self.element):
            raise UnsupportedError(
                f"frames of {self.n_fft} {self.element} numbers are no product of 2, 3, 5 and 7 that a block holds: "
                "call stft, which transforms them by cuFFT"
            )

    @property
    def frames(self) -> int:
        """How many there are of each signal."""
        return frames_of(self.shape[-1], self.n_fft, self.hop_length, self.padding)

    @property
    def spectra_shape(self) -> tuple[int, ...]:
        """The shape of y."""
        return (*self.shape[:-1], self.frames, self.n_fft // 2 + 1)

    @property
    def spectrum(self) -> ElementKind:
        """The element of y."""
        paired = self.element.paired
        return self.element if self.result != "complex" or paired is None else paired

    @property
    def factor(self) -> float:
        """What the norm multiplies by."""
        return factor_of(self.norm, False, (self.n_fft,))


@dataclass(slots=True, kw_only=True)
class FramedRfftArgs(Args):
    """Any strides. Without a window its taps are 1."""

    x: Array = operand("*shape", values=reals)
    window: Array | None = operand("win_length", optional=True, values=reals)
    y: Array = output("*spectra_shape", element="spectrum")


def places(desc: FramedRfftDescriptor) -> tuple[Any, Any]:
    """Where in x the elements of frames stand, [frames, n_fft], and whether they do."""
    n = desc.shape[-1]
    at = np.arange(desc.frames)[:, None] * desc.hop_length + np.arange(desc.n_fft) - desc.padding
    inside = (at >= 0) & (at < n)
    if desc.pad_mode == "constant":
        return np.where(inside, at, 0), inside
    if desc.pad_mode == "replicate":
        at = np.clip(at, 0, n - 1)
    elif desc.pad_mode == "circular":
        at = at % n
    else:
        at = np.where(at < 0, -at, at)
        at = np.where(at >= n, 2 * (n - 1) - at, at)
    return at, np.ones(at.shape, bool)


def windowed(desc: FramedRfftDescriptor, x: Any, window: Any) -> Any:
    """The frames times the window."""
    at, held = places(desc)
    taps = np.zeros(desc.n_fft, x.dtype)
    left = (desc.n_fft - desc.win_length) // 2
    taps[left : left + desc.win_length] = 1 if window is None else window
    if not x.size:  # of zeros only
        return np.zeros((*desc.shape[:-1], *at.shape), x.dtype)
    return np.where(held, x[..., at], x.dtype.type(0)) * taps


def reference(desc: FramedRfftDescriptor, *, x: Any, window: Any) -> Mapping[str, Any]:
    """numpy.fft.rfft of the frames."""
    norm: Any = desc.norm
    z = np.fft.rfft(windowed(desc, x, window), norm=norm)
    if desc.result == "complex":
        return {"y": z}
    return {"y": np.hypot(z.real, z.imag) if desc.result == "magnitude" else np.square(z.real) + np.square(z.imag)}


def residual(desc: FramedRfftDescriptor, name: str, *, x: Any, y: Any, window: Any = None) -> Any:
    """The error of a frame's result in its norm, beside what a transform of its numbers comes to, over log2(2 n).

    Of squares beside twice the product of the largest magnitude there may be and that.
    """
    given = windowed(desc, x, window)
    with np.errstate(all="ignore"):
        off = np.sqrt(np.square(np.abs(y - reference(desc, x=x, window=window)["y"])).sum(-1))
        size = desc.factor * math.sqrt(desc.n_fft) * np.sqrt(np.square(given).sum(-1))
        scale = math.log2(2 * desc.n_fft) * (2 * size * size if desc.result == "power" else size)
        return np.where(np.isfinite(scale) & (off != 0), off / np.where(scale == 0, 1, scale), 0)


def _in_shared_memory(p: Problem) -> Geometry | str:
    desc = p.desc
    return framed(p, desc.n_fft, desc.hop_length, desc.padding, desc.pad_mode, desc.result, desc.factor)


def in_torch(torch: Any, desc: FramedRfftDescriptor, *, x: Any, window: Any) -> Any:
    """Padding by places, frames, the window and torch.fft.rfft."""
    if not x.numel():
        return NotImplemented
    at, held = (torch.as_tensor(one, device=x.device) for one in places(desc))
    left = (desc.n_fft - desc.win_length) // 2
    taps = x.new_ones(desc.win_length) if window is None else window
    taps = torch.nn.functional.pad(taps, (left, desc.n_fft - desc.win_length - left))
    frames = torch.where(held, x[..., at], x.new_zeros(()))
    z = torch.fft.rfft(frames * taps, norm=desc.norm)
    if desc.result == "complex":
        return z
    return z.abs() if desc.result == "magnitude" else z.real.square() + z.imag.square()


class FramedRfftPlan(Plan):
    """y[..., t, k] = result(factor Σ_j window[j] x[..., t hop + j - padding] exp(-2πi j k / n_fft)), k up to n_fft / 2.

    What `stft` and `spectrogram` launch for lengths that are products of 2, 3, 5 and 7 (powers of two up to 16384, of
    float64 8192): one launch in shared memory, a transform a frame, which is read from the signal where it stands,
    so that neither frames nor padding nor, of magnitudes and their squares, complex numbers stand in memory. A frame
    has the bits that it has alone, which are those of `RfftPlan` of the product in memory. The error of a frame's
    spectrum is at most 2 eps log2(2 n) of the norm of frame times window times √n_fft and the factor; that of
    magnitudes too, of squares beside twice the square of that norm.
    """

    op = "fft.framed_rfft"
    descriptor = FramedRfftDescriptor
    args = FramedRfftArgs
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = "a NaN or an infinity reaches the frames that it lies in, also where their window is 0"
    variants = (
        Variant(
            "stockham", _in_shared_memory, SOURCE, FRAMED, elements=PARTS, guarantee=INVARIANT, may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        *(
            Benchmark(f"[64, 2^20] float32, {n} every {n // 4}, {result}", shape=(64, 1 << 20), n_fft=n,
                      hop_length=n // 4, win_length=n, padding=n // 2, result=result, element="float32",
                      also=("window",), target=0.7, peers=())
            for n, result in ((512, "complex"), (512, "power"), (1024, "power"), (2048, "complex"))
        ),
        Benchmark("[64, 480000] float32, 400 every 160, power", shape=(64, 480000), n_fft=400, hop_length=160,
                  win_length=400, padding=200, result="power", element="float32", also=("window",), target=0.7,
                  peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> FramedRfftDescriptor:
        more = {"result": draw.choice(RESULTS), "norm": draw.choice(NORMS),
                "pad_mode": draw.choice(PADDINGS), "element": draw.element}  # fmt: skip
        batch = draw.choice(((), (2,), (3,), (2, 3), (0,)))
        if draw.rarely():
            n = draw.choice((210, 1000, 1024, 2048, 4096, 8192, 16384))
            n = min(n, 8192) if draw.element is ElementKind.F64 else n
            return FramedRfftDescriptor(shape=(n + 5,), n_fft=n, hop_length=7, win_length=n, padding=4, **more)
        n = draw.sizes(1, 2, 3, 4, 5, 7, 8, 12, 16, 32, 64)
        length, padding = draw.integer(n, n + 20), draw.choice((0, n // 2, min(3, n - 1)))
        taps, hop = draw.choice((n, n, -(-n // 2), 1)), draw.integer(1, n + 1)
        return FramedRfftDescriptor(
            shape=(*batch, length), n_fft=n, hop_length=hop, win_length=taps, padding=padding, **more
        )

    @classmethod
    def bytes(cls, desc: Any) -> int:
        read, written = math.prod(desc.shape), math.prod(desc.spectra_shape)
        return int(read * desc.element.itemsize + written * desc.spectrum.itemsize)

    @classmethod
    def flops(cls, desc: Any) -> int:
        rows = math.prod(desc.spectra_shape[:-1])
        return int(2.5 * rows * desc.n_fft * math.log2(max(desc.n_fft, 2)))


_framed_rfft: Any = functional(FramedRfftPlan)
