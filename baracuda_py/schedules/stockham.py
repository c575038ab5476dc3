"""Fourier transforms in shared memory: a batch in one launch for each axis (kernels/fft/stockham.cuh).

Lengths are powers of two that a block holds (16384 complex float32, 8192 complex float64), products of 2, 3, 5 and 7,
and twice as many real numbers of an even length. Any strides: neighbouring threads have neighbouring elements of a
transform, or neighbouring transforms, whichever are closer in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..core.element import FLOATS, HALVES, ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Problem, Step, aligned
from .in_library import Place, Steps, sequence
from .map import divider

SOURCE = "fft/stockham.cu"
REALS = FLOATS
"""Elements of real operands: 16-bit ones are computed in float32."""
_BITS, _PASSES = 14, 14  # the longest power of two, and radices of a length
THREADS = (256, 512, 1024)  # at most, of a block: registers follow
MIXED = (256, 512)  # the same of other lengths than powers of two
_ACROSS = 4  # transforms that stand side by side: a sector of 32 bytes
_NEAR, _MOST = 48 << 10, 96 << 10  # bytes of shared memory that several transforms take together
_ONE = "16-bit numbers over more than one axis"


def stockham_params(name: str, **more: Any) -> Params:
    """The parameters of a kernel that makes such transforms; `more` are further fields, behind those of their kind."""
    return Params(
        name, y="ptr", x="ptr", count="i64", batch_shape=f"i64[{AXES}]", batch=f"i64[2][{AXES}]",
        strides="i64[2]", factor="f64", between="f64", before=f"u32[{_PASSES}][3]", radix=f"i32[{_PASSES}]",
        butterflies=f"i32[{_PASSES}]", groups="u32[3]", batch_rank="i32", points="i32", length="i32", lanes="i32",
        many="i32", across="i32", paired="i32", passes="i32", **more,
    )  # fmt: skip


_PARAMS = stockham_params("StockhamParams")


@dataclass(frozen=True)
class Passes:
    """The radices of a transform of so many complex numbers, and the threads that share it."""

    radices: tuple[int, ...]
    lanes: int
    mixed: bool

    @property
    def digits(self) -> int:
        """As the kernel of a power of two is told them."""
        return int("".join(str(radix.bit_length() - 1) for radix in self.radices))


def _powers(bits: int, most: int) -> tuple[int, ...]:
    """Radices of 2^bits, as few and as equal as may be, the larger ones first."""
    count = max(1, -(-bits // most))
    return tuple(1 << (bits // count + (i < bits % count)) for i in range(count))


@lru_cache(4096)
def passes_of(points: int, double: bool) -> Passes | None:
    """How a transform is done, or None where it is not."""
    rest, odd = points, []
    for prime in (7, 5, 3):
        while rest % prime == 0:
            rest //= prime
            odd.append(prime)
    if rest & (rest - 1):
        return None
    bits = rest.bit_length() - 1
    if not odd:
        radices = (4, 4) if points == 16 else _powers(bits, 3 if double else 4)  # 4 threads, as of all short ones
        lanes = points // max(radices)
        return Passes(radices, lanes, False) if bits <= _BITS and lanes <= THREADS[-1] else None
    radices = (*odd, *(_powers(bits, 3) if bits else ()))
    lanes = points // min(radices)
    return Passes(radices, lanes, True) if lanes <= MIXED[-1] and len(radices) <= _PASSES else None


def reaches(length: int, element: ElementKind, real: bool) -> bool:
    """Whether a transform of such a length is done here: of real numbers, or of complex ones."""
    points = length // 2 if real and length % 2 == 0 else length
    return passes_of(points, element.part is ElementKind.F64) is not None


def shared_bytes(elements: int, double: bool) -> int:
    """Of shared memory for so many complex numbers; some stay free."""
    return (elements + (elements >> (3 if double else 4)) + 1) * (16 if double else 8)


def side_by_side(points: int, lanes: int, double: bool, across: bool) -> int:
    """Transforms of a block."""
    many = max(1, THREADS[0] // lanes)
    while many > 1 and shared_bytes(many * points, double) > _NEAR:
        many //= 2
    beside = across and lanes * _ACROSS <= THREADS[1] and shared_bytes(_ACROSS * points, double) <= _MOST
    return max(many, _ACROSS if beside else 1)


def bound_of(threads: int, bounds: Sequence[int] = THREADS) -> int:
    """The most threads of the kernel that so many take."""
    return next(most for most in bounds if threads <= most)


def bounds_of(points: int, double: bool) -> set[int]:
    """The most threads of the kernels of a length."""
    made = passes_of(points, double)
    ways = (False, True) if made else ()
    return {bound_of(side_by_side(points, made.lanes, double, across) * made.lanes) for across in ways}  # type: ignore[union-attr]


def powers(
    threads: int, more: Mapping[str, Any], nbytes: int | None = None
) -> Callable[[ElementKind], Mapping[str, Any]]:  # fmt: skip
    """The instances of a kernel: the powers of two of which a block may have so many threads, in so many bytes."""

    def axes(element: ElementKind) -> Mapping[str, Any]:
        double = element.part is ElementKind.F64
        held = [1 << bits for bits in range(_BITS + 1) if nbytes is None or shared_bytes(1 << bits, double) <= nbytes]
        lengths = [n for n in held if threads in bounds_of(n, double)]
        return {**_instances(element, more), "RADICES": [passes_of(n, double).digits for n in lengths]}  # type: ignore[union-attr]

    return axes


def _instances(element: ElementKind, more: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of complex numbers none where the element is a 16-bit one: only the halved axis is done then."""
    return dict.fromkeys(more, ()) if element in HALVES else more


def kernel_of(
    name: str, radices: str, template: str, threads: int, axes: Any, params: Params = _PARAMS, source: str = SOURCE
) -> Kernel:  # fmt: skip
    """The kernel of a name for some radices in blocks of up to `threads` threads."""
    call = f"stockham_{name}<{template}, {radices}>"
    named = f"{name}_{'mixed_' if radices == 'Mixed' else ''}{threads}"
    return Kernel(named, call, params, axes, threads, source=source, shared="stockham")


def _kernels(name: str, template: str, **axes: Sequence[Any]) -> tuple[Kernel, ...]:
    """The kernels of powers of two and of other lengths, by the most threads of a block."""
    known = [kernel_of(name, "Powers<{RADICES}>", template, threads, powers(threads, axes)) for threads in THREADS]
    mixed = [kernel_of(name, "Mixed", template, n, lambda element: _instances(element, axes)) for n in MIXED]
    return (*known, *mixed)


WHOLE = _kernels("whole", "part_t<{A}>, {INVERSE}", INVERSE=(False, True))
"""The kernels of a page whose element is complex."""
TO_HALF = (*_kernels("real", "{T}"), *_kernels("whole", "{A}, {INVERSE}", INVERSE=(False,)))
"""Those from real numbers to half a spectrum."""
FROM_HALF = (*_kernels("half", "{T}"), *_kernels("whole", "{A}, {INVERSE}", INVERSE=(True,)))
"""Those from half a spectrum to real numbers."""


def _line(
    kernel: str, y: Place, x: Place, axis: int, length: int, factor: float, between: float = 1.0,
    axes: Mapping[str, Any] | None = None,
) -> Steps | str:  # fmt: skip
    """The launch for one axis; kernel: "whole", "real" or "half"."""
    whole, double = kernel == "whole", x.view.element.part is ElementKind.F64
    points = length if whole or length % 2 else length // 2
    made = passes_of(points, double)
    if made is None:
        return f"axis {axis} of length {length} is no product of 2, 3, 5 and 7 that a block holds"
    views, rank = (y.view, x.view), len(y.view.shape)
    rest = sorted((a for a in range(rank) if a != axis), key=lambda a: -abs(y.view.strides[a]))
    batch = [tuple(v.strides[a] for a in rest) for v in views]
    real = {"real": x.view, "half": y.view}.get(kernel)
    more = {"y": y.name, "x": x.name, "factor": factor, "between": between, "length": length,
            "paired": real is not None and length % 2 == 0 and _paired(real, axis)}  # fmt: skip
    shape, steps = tuple(y.view.shape[a] for a in rest), tuple(v.strides[axis] for v in views)
    return launch(kernel, points, made, double, shape, batch, steps, more, axes)


def launch(
    kernel: str, points: int, made: Passes, double: bool, shape: tuple[int, ...], batch: Sequence[tuple[int, ...]],
    steps: tuple[int, ...], more: Mapping[str, Any], axes: Mapping[str, Any] | None = None,
) -> Steps | str:  # fmt: skip
    """The launch for a batch of a shape, of which y and x have strides, and `steps` between elements of a transform.

    more: what the kernel is told besides.
    """
    count = math.prod(shape)
    if not count:
        return ()
    merged, strides = merge_axes(shape, batch)
    if len(merged) > AXES:
        return f"more than {AXES} axes of the batch remain after merging"
    across = bool(merged) and points > 1 and abs(strides[0][-1]) < abs(steps[0])
    many = side_by_side(points, made.lanes, double, across)
    bound = bound_of(many * made.lanes, MIXED if made.mixed else THREADS)
    many = min(many, count)
    blocks = -(-count // many)
    if blocks >= 2**31:
        return "2^31 or more blocks"
    before = [math.prod(made.radices[:i]) for i in range(len(made.radices))]
    params = {
        "count": count, "batch_shape": pad(merged), "batch": [pad(s) for s in strides], "batch_rank": len(merged),
        "strides": steps, "points": points, "lanes": made.lanes, "many": many, "across": across,
        "passes": len(made.radices), "radix": _filled(made.radices),
        "butterflies": _filled([points // radix for radix in made.radices]),
        "before": [divider(n) for n in _filled(before, 1)], "groups": divider(many if across else made.lanes), **more,
    }  # fmt: skip
    name, threads = f"{kernel}_{'mixed_' if made.mixed else ''}{bound}", -(-many * made.lanes // 32) * 32
    chosen = dict(axes or {}) if made.mixed else {**(axes or {}), "RADICES": made.digits}
    return (Step(name, (blocks, 1, 1), params, chosen, threads, shared_bytes(many * points, double)),)


def _paired(real: View, axis: int) -> bool:
    """Whether two neighbouring real numbers are always one access."""
    nbytes = 2 * real.element.itemsize
    apart = all(
        n == 1 or s % 2 == 0 for a, (n, s) in enumerate(zip(real.shape, real.strides, strict=True)) if a != axis
    )
    return real.strides[axis] == 1 and real.ptr % nbytes == 0 and apart


def _filled(values: Sequence[int], by: int = 0) -> list[int]:
    return [*values, *(by,) * (_PASSES - len(values))]


def _whole(made: Steps | str, workspace: int = 0) -> Geometry | str:
    if isinstance(made, str):
        return made
    return Geometry(made, workspace, "strided" if len(made) > 1 else "contiguous")


def stockham_complex(p: Problem, x: str, y: str, axes: Sequence[int], factor: float, inverse: bool) -> Geometry | str:
    """y = factor · the transform of x, both complex and of one shape: axis after axis, from the second on in y."""
    source, target = Place(x, 0, p.views[x]), Place(y, 0, p.views[y])
    return _whole(_over(target, source, axes, factor, inverse)) if target.view.size else Geometry(())


def _over(y: Place, x: Place, axes: Sequence[int], factor: float, inverse: bool) -> Steps | str:
    made: list[Steps | str] = []
    for number, axis in enumerate(reversed(axes)):
        last = number == len(axes) - 1
        length = y.view.shape[axis]
        made.append(_line("whole", y, x if number == 0 else y, axis, length, factor if last else 1.0,
                          axes={"INVERSE": inverse}))  # fmt: skip
    return sequence(*made)


def stockham_real(p: Problem, x: str, y: str, axes: Sequence[int], factor: float, doubled: bool) -> Geometry | str:
    """y = factor · half of the transform of the real x; doubled: between the ends of the halved axis twice that."""
    source, target = Place(x, 0, p.views[x]), Place(y, 0, p.views[y])
    if not target.view.size:
        return Geometry(())
    n, more = source.view.shape[axes[-1]], axes[:-1]
    if more and source.view.element in HALVES:
        return _ONE
    first = _line("real", target, source, axes[-1], n, 1.0 if more else factor, 2.0 if doubled else 1.0)
    return _whole(sequence(first, _over(target, target, more, factor, False)))


def stockham_half(p: Problem, x: str, y: str, axes: Sequence[int], factor: float, halved: bool) -> Geometry | str:
    """The real y = factor · the inverse transform of what x is half of; halved: half of x between its ends counts.

    Of several axes all but the halved one go first, to a piece of the workspace.
    """
    source, target = Place(x, 0, p.views[x]), Place(y, 0, p.views[y])
    if not target.view.size:
        return Geometry(())
    n, more, workspace = target.view.shape[axes[-1]], axes[:-1], 0
    before: Steps | str = ()
    if more and target.view.element in HALVES:
        return _ONE
    if more:
        view = source.view
        order = sorted(range(len(view.shape)), key=lambda a: -abs(view.strides[a]))
        strides, step = [0] * len(order), 1
        for axis in reversed(order):
            strides[axis], step = step, step * view.shape[axis]
        piece = Place("", 0, View(0, view.shape, tuple(strides), view.element))
        before, workspace, source = _over(piece, source, more, 1.0, True), aligned(view.nbytes), piece
    last = _line("half", target, source, axes[-1], n, factor, 0.5 if halved else 1.0)
    return _whole(sequence(before, last), workspace)
