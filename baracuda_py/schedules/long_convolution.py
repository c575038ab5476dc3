"""Convolutions with long filters by Fourier transforms there and back in one launch (kernels/fft/long_convolution.cu).

A row is transformed, multiplied and transformed back in the shared memory of a block, for a power of two of complex
numbers that is not below its length; filters are transformed once before, to the workspace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Kernel, Step
from .map import divider
from .stockham import THREADS, bound_of, bounds_of, passes_of, shared_bytes, side_by_side

SOURCE = "fft/long_convolution.cu"
LEAST, _BITS = 16, 14  # points of a transform: at least, and the logarithm of the most
_PLACES = ("y", "x", "pre", "post", "twin", "other", "spectrum")
_PARAMS = Params(
    "ConvolutionParams", **dict.fromkeys(_PLACES, "ptr"), count="i64", items="i64", batch_shape=f"i64[{AXES}]",
    batch=f"i64[{len(_PLACES)}][{AXES}]", steps=f"i64[{len(_PLACES)}]", along=f"i64[{len(_PLACES)}]", factor="f64",
    groups="u32[3]", batch_rank="i32", points="i32", length="i32", lanes="i32", many="i32", across="i32", causal="i32",
    conjugate="i32",
)  # fmt: skip


def points_of(length: int) -> int:
    """Complex numbers of the transform that a row of such a length takes."""
    return max(LEAST, 1 << max(length - 1, 0).bit_length())


def fits(length: int, element: ElementKind) -> bool:
    """Whether a block holds the transform."""
    points = points_of(length)
    return points <= 1 << _BITS and passes_of(points, element.acc is ElementKind.F64) is not None


def _instances(threads: int) -> Any:
    """The transforms that blocks of so many threads do."""

    def axes(element: ElementKind) -> Mapping[str, Any]:
        double = element.acc is ElementKind.F64
        lengths = [LEAST << i for i in range(_BITS - 3) if threads in bounds_of(LEAST << i, double)]
        return {"RADICES": [passes_of(n, double).digits for n in lengths]}  # type: ignore[union-attr]

    return axes


def _kernels(name: str, element: str) -> tuple[Kernel, ...]:
    call, blocks = f"{name}<{element}, Powers<{{RADICES}}>>", _two if name == "correlate" else 0
    return tuple(
        Kernel(f"{name}_{n}", call, _PARAMS, _instances(n), n, blocks if n == THREADS[0] else 0, source=SOURCE,
               shared="long_convolution")
        for n in THREADS
    )  # fmt: skip


def _two(element: ElementKind, kind: Any) -> int:
    """Blocks of a multiprocessor at least: three spectra take registers for one alone."""
    return 0 if element.acc is ElementKind.F64 else 2


FORWARD = (*_kernels("spectrum", "{A}"), *_kernels("convolve", "{T}"))
BACKWARD = (*FORWARD, *_kernels("correlate", "{T}"), *_kernels("taps", "{A}"))


@dataclass(frozen=True)
class Row:
    """An operand of a launch: what it is in `Step.params`, strides of the rows' axes, in a row, and of items summed."""

    name: Any
    rows: tuple[int, ...]
    step: int
    along: int = 0


def signal(name: str, view: View | None) -> Row | None:
    """[batch, channels, length] with a row for each batch and channel."""
    return None if view is None else Row(name, view.strides[:2], view.strides[2])


def summed(name: str, view: View | None) -> Row | None:
    """[batch, channels, length] with a row for each channel, to be summed over the batch."""
    return None if view is None else Row(name, view.strides[1:2], view.strides[2], view.strides[0])


def of_channels(name: str, view: View | None) -> Row | None:
    """[channels, taps] or [channels]."""
    return None if view is None else Row(name, view.strides[:1], view.strides[1] if len(view.shape) > 1 else 0)


def spectra(points: int, batched: bool = False) -> Row:
    """[channels, points] in the workspace, the same for all of a batch."""
    return Row(("@workspace", 0), (0, points) if batched else (points,), 1)


def launch(
    kernel: str, shape: Sequence[int], element: ElementKind, length: int, points: int, *, causal: bool,
    factor: float = 1.0, conjugate: bool = False, items: int = 0, **given: Row | None,
) -> tuple[Step, ...] | str:  # fmt: skip
    """The launch of a kernel for rows that `shape` counts, the axis of channels last; or why there is none."""
    count, double = math.prod(shape), element.acc is ElementKind.F64
    if not count:
        return ()
    made = passes_of(points, double)
    assert made is not None
    rows = [given.get(name) or Row("@null", (0,) * len(shape), 0) for name in _PLACES]
    main = next((row for row in rows[:2] if row.name != "@null"), rows[0])
    across = abs(main.rows[-1]) < abs(main.step)
    order = sorted(range(len(shape)), key=lambda a: -abs(main.rows[a])) if across else range(len(shape))[::-1]
    merged, batch = merge_axes(tuple(shape[a] for a in order), [tuple(row.rows[a] for a in order) for row in rows])
    many = side_by_side(points, made.lanes, double, across)
    bound = bound_of(many * made.lanes)
    many = min(many, count)
    blocks = -(-count // many)
    if blocks >= 2**31:
        return "2^31 or more blocks"
    params = {
        **{name: row.name for name, row in zip(_PLACES, rows, strict=True)}, "count": count, "items": items,
        "batch_shape": pad(merged), "batch": [pad(s) for s in batch], "batch_rank": len(merged),
        "steps": [row.step for row in rows], "along": [row.along for row in rows], "factor": factor, "points": points,
        "length": length, "lanes": made.lanes, "many": many, "across": across, "causal": causal,
        "conjugate": conjugate, "groups": divider(many if across else made.lanes),
    }  # fmt: skip
    threads = -(-many * made.lanes // 32) * 32
    axes = {"RADICES": made.digits}
    return (
        Step(
            f"{kernel}_{bound}",
            (blocks, 1, 1),
            params,
            axes,
            threads,
            shared_bytes(many * points, double) + many * 8 * (16 if double else 8),
        ),
    )
