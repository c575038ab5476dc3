"""Half spectra of the windowed frames of signals in one launch (kernels/fft/framed.cu), by the schedule stockham.

A transform a frame, read from the signal where it stands. Lengths are those of `schedules/stockham.py` that every
device has room for: powers of two up to 16384 real numbers of float32 and 8192 of float64, and products of 2, 3, 5, 7.
"""

from __future__ import annotations

from typing import Any

from ..core.element import ElementKind
from ..core.variant import Geometry, Problem
from .stockham import MIXED, THREADS, kernel_of, launch, passes_of, powers, shared_bytes, stockham_params

SOURCE = "fft/framed.cu"
RESULTS = ("complex", "magnitude", "power")
PADDINGS = ("constant", "reflect", "replicate", "circular")
"""What stands beyond the ends of a signal: 0, or numbers of it."""
_BYTES = 99 << 10  # of shared memory that every device has
_PARAMS = stockham_params(
    "FramedParams", window="ptr", frames="i64", hop="i64", outside="i64", extent="i64", tap_stride="i64", left="i32",
    taps="i32", mode="i32", result="i32", PadMode=PADDINGS, FrameResult=RESULTS,
)  # fmt: skip
_ABOUT: Any = (_PARAMS, SOURCE)
FRAMED = (
    *(kernel_of("framed", "Powers<{RADICES}>", "{T}", n, powers(n, {}, _BYTES), *_ABOUT) for n in THREADS[:2]),
    *(kernel_of("framed", "Mixed", "{T}", n, {}, *_ABOUT) for n in MIXED),
)


def frames_fit(length: int, element: ElementKind) -> bool:
    """Whether frames of so many real numbers are transformed here."""
    double, points = element is ElementKind.F64, length // 2 if length % 2 == 0 else length
    return passes_of(points, double) is not None and shared_bytes(points, double) <= _BYTES


def framed(p: Problem, n: int, hop: int, padding: int, mode: str, result: str, factor: float) -> Geometry | str:
    """y[..., frame, k], of x[..., place] and the window's taps, with `padding` places before and behind x."""
    x, y, window = p.views["x"], p.views["y"], p.views["window"]
    taps = p.desc.win_length
    if not y.size:
        return Geometry(())
    double, points = x.element is ElementKind.F64, n // 2 if n % 2 == 0 else n
    made = passes_of(points, double)
    if made is None:
        return f"frames of {n} are no product of 2, 3, 5 and 7 that a block holds"
    rows = sorted(range(len(x.shape) - 1), key=lambda a: -abs(y.strides[a]))
    frames = y.shape[-2]
    batch = [(*(v.strides[a] for a in rows), step) for v, step in ((y, y.strides[-2]), (x, 0))]
    more = {
        "factor": factor, "between": 1.0, "length": n, "paired": False, "frames": frames, "hop": hop,
        "outside": padding, "extent": x.shape[-1], "left": (n - taps) // 2, "taps": taps,
        "tap_stride": 0 if window is None else window.strides[0], "mode": PADDINGS.index(mode),
        "result": RESULTS.index(result),
    }  # fmt: skip
    shape = (*(x.shape[a] for a in rows), frames)
    steps = launch("framed", points, made, double, shape, batch, (y.strides[-1], x.strides[-1]), more)
    return steps if isinstance(steps, str) else Geometry(steps)
