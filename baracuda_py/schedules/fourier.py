"""Fourier transforms by cuFFT: which layouts it takes as they lie, and the copies around it where it does not.

cuFFT's advanced layout has the transformed axes nested in one another, a batch of one stride, and positive steps. An
operand that lies otherwise is copied to a dense piece of the workspace, the transformed axes last, and a result from
one. The factor of a norm goes with a copy where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..backends.cufft import FORWARD, INVERSE, Strided, Transform, fft_of
from ..backends.library import Call
from ..core.device import Device
from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View, dense_strides, merge_axes
from ..core.variant import Geometry, Kernel, LibraryStep, Problem, Step, aligned
from .geometry import grid
from .in_library import Place, Steps, offsets, sequence
from .map import THREADS, map_geometry, map_kernels, map_params, widths

PARTS = (ElementKind.F32, ElementKind.F64)
SOURCE = "fft/scaled.cu"
_SCALED = Params("ScaledParams", y="ptr", x="ptr", factor="f64", **map_params(2))
_PLANES = Params(
    "PlanesParams", z="ptr", count="i64", ends="i64", rows="i64", cols="i64", half="i64", factor="f64"
)  # fmt: skip
_CALLS = 8  # of cuFFT, where a batch has no one stride; beyond, its elements are brought together
_SLACK, _SMOOTH, _ROUGH = 1 << 20, 2, 8  # bytes, and operands: more than cuFFT asks for (the GPU tests say so)
_PRIMES = (2, 3, 5, 7, 11, 13)  # lengths of others may be convolutions of twice their length, padded


def _copies(prefix: str, number: str, times: int) -> tuple[Kernel, ...]:
    made = map_kernels(f"scaled<{number}, {{LAYOUT}}>", _SCALED, widths_of=lambda kind: widths(times * kind.itemsize))
    return tuple(replace(kernel, name=prefix + kernel.name, shared="fourier") for kernel in made)


OF_COMPLEX = _copies("", "{T}", 1)
"""The kernels of a page whose element is complex."""
OF_PARTS = (
    *_copies("real_", "{T}", 1), *_copies("complex_", "complex<{T}>", 2),
    Kernel("planes", "planes<{T}>", _PLANES, threads=THREADS, source="fft/planes.cu", shared="fourier"),
)  # fmt: skip
"""Those of a page whose element is that of the real numbers."""


def copied(to: Place, of: Place, factor: float = 1.0, prefix: str = "") -> Steps | str:
    """The step of y = factor x; none without elements, or where nothing is done."""
    if not to.view.size or (to == of and factor == 1):
        return ()
    made = map_geometry(Problem(None, None, {}), (to.view, of.view), {"factor": factor, "y": to.name, "x": of.name})  # type: ignore[arg-type]
    if isinstance(made, str):
        return made
    (step,) = made.steps
    assert isinstance(step, Step)
    return (replace(step, kernel=prefix + step.kernel),)


def _embedded(view: View, axes: Sequence[int]) -> tuple[tuple[int, ...], int] | None:
    """(embed, step) of the axes, outermost first, or None where they are not nested so."""
    extents = [view.shape[axis] for axis in axes]
    step = level = view.strides[axes[-1]] if extents[-1] > 1 else 1
    embed = []
    for at in range(len(axes) - 2, -1, -1):
        inner = extents[at + 1]
        stride = view.strides[axes[at]] if extents[at] > 1 else level * inner
        if level < 1 or stride % level or stride // level < inner:
            return None
        embed.append(stride // level)
        level = stride
    return ((extents[0], *reversed(embed)), step) if step >= 1 else None


@dataclass(frozen=True)
class Fitted:
    """A transform as cuFFT takes it, and the bytes from the start of source and target at which each call begins."""

    transform: Transform
    starts: tuple[tuple[int, int], ...]


def fitted(kind: str, x: View, y: View, axes: Sequence[int], part: ElementKind) -> Fitted | None:
    """x and y as they lie, or None. axes: the last one is halved, if one is; of c2c any order will do."""
    held = y if kind == "c2r" else x  # which has the lengths
    fixed = [] if kind == "c2c" else list(axes[-1:])
    free = [axis for axis in axes if axis not in fixed]
    order = sorted(free, key=lambda a: (held.shape[a] > 1, -x.strides[a])) + fixed
    layouts = [_embedded(view, order) for view in (x, y)]
    rest = sorted((a for a in range(len(x.shape)) if a not in axes), key=lambda a: -abs(y.strides[a]))
    shape, strides = merge_axes(tuple(x.shape[a] for a in rest), [tuple(v.strides[a] for a in rest) for v in (x, y)])
    batch, apart, outer = 1, [1, 1], list(range(len(shape)))
    usable = [a for a in outer if strides[0][a] > 0 and strides[1][a] > 0]
    if usable:
        best = max(usable, key=lambda a: shape[a])
        outer.remove(best)
        batch, apart = shape[best], [s[best] for s in strides]
    found = [Strided(*layout, at) for layout, at in zip(layouts, apart, strict=True) if layout is not None]
    if math.prod(shape[a] for a in outer) > _CALLS or len(found) < 2:
        return None
    starts = [
        offsets(View(0, tuple(shape[a] for a in outer), tuple(s[a] for a in outer), v.element), 0)
        for v, s in zip((x, y), strides, strict=True)
    ]
    if any(
        (view.ptr + start) % (2 * part.itemsize) for view, many in zip((x, y), starts, strict=True) for start in many
    ):
        return None  # cuFFT moves real numbers by pairs, too
    lengths = tuple(held.shape[a] for a in order)
    return Fitted(Transform(kind, str(part), lengths, found[0], found[1], batch), tuple(zip(*starts, strict=True)))


def _piece(view: View, axes: Sequence[int], start: int) -> tuple[Place, int]:
    """A dense piece for the elements of a view, the transformed axes last, and where the next one may start."""
    order = [a for a in range(len(view.shape)) if a not in axes] + list(axes)
    strides = [0] * len(order)
    for axis, stride in zip(order, dense_strides([view.shape[a] for a in order]), strict=True):
        strides[axis] = stride
    made = View(0, view.shape, tuple(strides), view.element)
    return Place("", start, made), start + aligned(view.nbytes)


def _bound(lengths: Sequence[int], nbytes: int) -> int:
    """More than cuFFT's work area takes."""
    for prime in _PRIMES:
        lengths = [_without(n, prime) for n in lengths]
    return _SLACK + aligned(nbytes) * (_SMOOTH if all(n == 1 for n in lengths) else _ROUGH)


def _without(n: int, prime: int) -> int:
    while n % prime == 0:
        n //= prime
    return n


def _called(made: Fitted, x: Place, y: Place, operands: Sequence[str], end: int, sign: int) -> LibraryStep:
    """cuFFT from x to y; from byte `end` on the workspace is its own."""
    source, target = x.finder(operands), y.finder(operands)

    def prepare(device: Device) -> Callable[..., None]:
        fft, starts = fft_of(made.transform, device), made.starts

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            x, y = source(pointers, workspace), target(pointers, workspace)
            fft.run([(x + a, y + b) for a, b in starts], workspace + end, stream, sign)

        return Call(run, end + fft.workspace)

    return LibraryStep(prepare)


def complex_geometry(p: Problem, x: str, y: str, axes: Sequence[int], factor: float, inverse: bool) -> Geometry | str:
    """y = factor · the transform of x, both complex and of one shape."""
    if not p.views[x].size:
        return Geometry(())
    source, target, end = Place(x, 0, p.views[x]), Place(y, 0, p.views[y]), 0
    part, sign = p.desc.element.part, INVERSE if inverse else FORWARD
    piece, after = _piece(source.view, axes, 0)
    for given, made in ((source, target), (piece, target), (source, piece), (piece, piece)):
        found = fitted("c2c", given.view, made.view, axes, part)
        if found is None:
            continue
        end = after if piece in (given, made) else 0
        steps = sequence(
            copied(given, source, factor) if given is piece else (),
            (_called(found, given, made, list(p.views), end, sign),),
            copied(target, made, 1.0 if given is piece else factor),
        )
        return _whole(steps, found, end, source.view.nbytes, end == 0)
    return "no layout of x and y is one of cuFFT's"


def _whole(steps: Steps | str, found: Fitted, end: int, nbytes: int, direct: bool) -> Geometry | str:
    if isinstance(steps, str):
        return steps
    return Geometry(steps, end + _bound(found.transform.lengths, nbytes), "contiguous" if direct else "strided")


def _ends(z: Place, axes: Sequence[int], n: int, factor: float) -> Steps:
    """The step that makes the ends of the halved axis of a piece Hermitian: the mean for a factor of 1/2."""
    inner = [z.view.shape[a] for a in axes]
    rows, cols, half = (1,) * (3 - len(inner)) + tuple(inner)
    ends = 1 if n % 2 or half == 1 else 2
    count = z.view.size // half * ends
    params = {"z": z.name, "count": count, "ends": ends, "rows": rows, "cols": cols, "half": half, "factor": factor}
    return (Step("planes", grid(-(-count // THREADS)), params, block=THREADS),)


def real_geometry(p: Problem, x: str, y: str, axes: Sequence[int], factor: float, doubled: bool) -> Geometry | str:
    """y = factor · half of the transform of the real x; doubled: between the ends of the halved axis twice that."""
    if not p.views[y].size:
        return Geometry(())
    source, target, part = Place(x, 0, p.views[x]), Place(y, 0, p.views[y]), p.desc.element
    inner, after = _piece(source.view, axes, 0)
    for held, begin in ((source, 0), (inner, after)):
        outer, end = _piece(target.view, axes, begin)
        for made in (outer,) if doubled else (target, outer):
            found = fitted("r2c", held.view, made.view, axes, part)
            if found is None:
                continue
            end = end if made is outer else begin
            n = source.view.shape[axes[-1]]
            steps = sequence(
                copied(held, source, 1.0, "real_") if held is inner else (),
                (_called(found, held, made, list(p.views), end, FORWARD),),
                _ends(outer, axes, n, 0.25) if doubled else (),
                copied(target, made, 2 * factor if doubled else factor, "complex_"),
            )
            return _whole(steps, found, end, target.view.nbytes, end == 0)
    return "no layout of x and y is one of cuFFT's"


def hermitian_geometry(p: Problem, x: str, y: str, axes: Sequence[int], factor: float, halved: bool) -> Geometry | str:
    """The real y = factor · the inverse transform of what x is half of; halved: half of x between its ends counts.

    Over several axes cuFFT overwrites what it reads, and takes ends that are Hermitian: it works on a copy.
    """
    if not p.views[y].size:
        return Geometry(())
    source, target, part = Place(x, 0, p.views[x]), Place(y, 0, p.views[y]), p.desc.element
    n, own = target.view.shape[axes[-1]], halved or len(axes) > 1
    inner, after = _piece(source.view, axes, 0)
    for held, begin in ((inner, after),) if own else ((source, 0), (inner, after)):
        outer, end = _piece(target.view, axes, begin)
        for made in (target, outer):
            found = fitted("c2r", held.view, made.view, axes, part)
            if found is None:
                continue
            end = end if made is outer else begin
            before = factor * (0.5 if halved else 1.0) if held is inner else 1.0
            steps = sequence(
                copied(inner, source, before, "complex_") if held is inner else (),
                _ends(inner, axes, n, 1.0 if halved else 0.5) if own else (),
                (_called(found, held, made, list(p.views), end, INVERSE),),
                copied(target, made, 1.0 if held is inner else factor, "real_"),
            )
            return _whole(steps, found, end, source.view.nbytes, end == 0)
    return "no layout of x and y is one of cuFFT's"
