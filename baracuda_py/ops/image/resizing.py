"""interpolate, upsample, resize_image and scale_and_translate: images of other sizes, as PyTorch and JAX have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...core import Array, ElementKind
from ...core.checked import real, sequence, truth, wholes
from ...core.element import HALVES
from ...core.errors import InvalidProblemError
from ...core.views import shape_of
from ..elementwise.cast import cast
from ..layout.moves import copy
from ..layout.views import movedim
from .integers import in_floats, of_integers
from .interpolate import InterpolatePlan, interpolated
from .resample import InterpolateKind, step_of
from .sampling import float_like, one_of

_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_MODES = {
    "nearest": InterpolateKind.NEAREST, "nearest-exact": InterpolateKind.NEAREST_EXACT, "area": InterpolateKind.AREA,
    "linear": InterpolateKind.LINEAR, "bilinear": InterpolateKind.LINEAR, "trilinear": InterpolateKind.LINEAR,
    "bicubic": InterpolateKind.CUBIC,
}  # fmt: skip


def numbers_of(name: str, value: Any, rank: int) -> list[Any]:
    """A number for each of `rank` axes, of one for all or as many."""
    found = [value] * rank if isinstance(value, (int, float, np.number)) else list(sequence(name, value, "numbers"))
    if len(found) != rank:
        raise InvalidProblemError(f"{name} must be a number, or one for each of {rank} spatial axes, got {value}")
    return found


def _sizes(own: Sequence[int], size: Any, scale_factor: Any, recompute: bool) -> tuple[tuple[int, ...], list[Any]]:
    """The size, and how far apart outputs lie (None: what the sizes say)."""
    rank = len(own)
    if (size is None) is (scale_factor is None):
        raise InvalidProblemError(f"give one of size and scale_factor, got {size} and {scale_factor}")
    if size is not None:
        if recompute:
            raise InvalidProblemError("recompute_scale_factor goes with scale_factor, not with size")
        return wholes("size", numbers_of("size", size, rank), 1), [None] * rank
    factors = [real("scale_factor", f) for f in numbers_of("scale_factor", scale_factor, rank)]
    if not all(0 < f < math.inf for f in factors):
        raise InvalidProblemError(f"scale_factor must be above 0 and finite, got {scale_factor}")
    sizes = tuple(math.floor(n * f) for n, f in zip(own, factors, strict=True))
    if min(sizes) < 1:
        raise InvalidProblemError(f"scale_factor {scale_factor} leaves no place of {tuple(own)}; give a larger one")
    return sizes, [None] * rank if recompute else [1 / f for f in factors]


def _each_axis(
    x: Any, kind: InterpolateKind, axes: Sequence[tuple[int, int, float, float]], antialias: bool, bounded: bool,
    out: Any, options: dict[str, Any],
) -> Any:  # fmt: skip
    """One axis after the other: (axis, size, step, shift); a filter of many taps along each is cheaper so.

    What lies between two axes is float32 where x has 16 bits, so that results, and gradients, are rounded once.
    """
    element = float_like(x)
    half = element in HALVES and len(axes) > 1
    made = cast(x, ElementKind.F32, **options) if half else x
    for axis, size, step, shift in axes:
        moved = interpolated(
            movedim(made, axis, -1), kind=kind, spatial_rank=1, size=size, step=step, shift=shift,
            antialias=antialias, zero_outside=bounded, **options,
        )  # fmt: skip
        made = movedim(moved, -1, axis)
    if half:
        return cast(made, element, out=out, **options)
    return made if out is None and axes else copy(made, out=out, **options)


@entry(InterpolatePlan)
def interpolate(
    x: Array, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Images of another size (torch.nn.functional.interpolate); see `InterpolatePlan`.

    x: [N, C, *spatial], one to three spatial axes of a float; give size or scale_factor, a number or one for each.
    mode: "nearest", "nearest-exact", "area"; "linear", "bilinear", "trilinear" of one, two, three axes; "bicubic" of
    two. align_corners: the outermost places stay where they are. scale_factor sets the distance of outputs unless
    recompute_scale_factor takes it from the sizes. antialias ("bilinear", "bicubic"): a filter wide enough for what
    shrinks, one axis after the other; of 16 bits in float32 between two casts, so that results and gradients are
    rounded once. The gradient sums in a fixed order, without atomics. Integers of 8 and 16 bits and int32 are
    interpolated in floats and rounded once, halves to even, within the element; torch's uint8, whose weights are
    integers, may be one off.
    """
    options = {"stream": stream, "preference": preference}
    shape = shape_of(x, "x")
    rank, mode = len(shape) - 2, one_of("mode", mode, tuple(_MODES))
    if of_integers(x):
        more = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
        return in_floats(lambda wide: interpolate(wide, *more, **options), x, out, options)
    float_like(x)
    if not 1 <= rank <= 3 or _RANKS.get(mode, rank) != rank:
        wanted = _RANKS.get(mode, "one to three")
        raise InvalidProblemError(f"x must be [N, C, *spatial] with {wanted} spatial axes for {mode}, got {shape}")
    if min(shape[2:]) < 1:
        raise InvalidProblemError(f"x must have spatial axes of 1 or more, got shape {shape}")
    if align_corners is not None and mode not in _RANKS:
        raise InvalidProblemError(f"align_corners is for {', '.join(_RANKS)}, got it for {mode}; leave it out")
    align = align_corners is not None and truth("align_corners", align_corners)
    recompute = recompute_scale_factor is not None and truth("recompute_scale_factor", recompute_scale_factor)
    sizes, steps = _sizes(shape[2:], size, scale_factor, recompute)
    if truth("antialias", antialias):
        if mode not in ("bilinear", "bicubic"):
            raise InvalidProblemError(f"antialias is for bilinear and bicubic, got it for {mode}")
        kind = InterpolateKind.TRIANGLE if mode == "bilinear" else InterpolateKind.KEYS
        # torch widens and places its filters by the step of align_corners, but keeps the halves of a place
        axes = [
            (2 + a, n, step_of(m, n, align) if align or step is None else step, 0.0)
            for a, (m, n, step) in enumerate(zip(shape[2:], sizes, steps, strict=True))
        ]
        return _each_axis(x, kind, axes, True, False, out, options)
    known = None if steps[0] is None or align or mode == "area" else tuple(steps)
    return interpolated(
        x, kind=_MODES[mode], spatial_rank=rank, size=sizes, step=known, align_corners=align, out=out, **options
    )


@entry(InterpolatePlan)
def upsample(
    x: Array, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Images of another size (torch.nn.functional.upsample): `interpolate`."""
    return interpolate(x, size, scale_factor, mode, align_corners, out=out, stream=stream, preference=preference)


@entry(InterpolatePlan)
def upsample_nearest(
    x: Array, size: Any = None, scale_factor: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Images of another size, each place the nearest before it (torch.nn.functional.upsample_nearest)."""
    return interpolate(x, size, scale_factor, "nearest", out=out, stream=stream, preference=preference)


@entry(InterpolatePlan)
def upsample_bilinear(
    x: Array, size: Any = None, scale_factor: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Images of another size, bilinear with the corners kept (torch.nn.functional.upsample_bilinear)."""
    return interpolate(x, size, scale_factor, "bilinear", True, out=out, stream=stream, preference=preference)


_FILTERS = {
    "linear": InterpolateKind.TRIANGLE, "bilinear": InterpolateKind.TRIANGLE, "trilinear": InterpolateKind.TRIANGLE,
    "triangle": InterpolateKind.TRIANGLE, "cubic": InterpolateKind.KEYS, "bicubic": InterpolateKind.KEYS,
    "tricubic": InterpolateKind.KEYS, "lanczos3": InterpolateKind.LANCZOS3, "lanczos5": InterpolateKind.LANCZOS5,
}  # fmt: skip


@entry(InterpolatePlan)
def resize_image(
    x: Array, shape: Any, method: str, antialias: bool = True, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x as another shape of as many axes, each resampled (jax.image.resize).

    method: "nearest"; or a filter, "linear" ("bilinear", "trilinear", "triangle"), "cubic" ("bicubic", "tricubic", of
    Keys with a = -½), "lanczos3", "lanczos5", which antialias widens along axes that shrink. Weights are divided by
    their sum at the edges. One launch an axis that changes; of 16 bits, where several change, in float32 between two
    casts.
    """
    options = {"stream": stream, "preference": preference}
    own, wanted = shape_of(x, "x"), wholes("shape", shape, 1)
    method = one_of("method", method, ("nearest", *_FILTERS))
    float_like(x)
    if len(wanted) != len(own) or min(own, default=1) < 1:
        raise InvalidProblemError(f"shape must have one size for each axis of x, 1 or more, got {wanted} for {own}")
    kind = _FILTERS.get(method, InterpolateKind.NEAREST_EXACT)
    if kind.picks:
        made = x
        for axis, (m, n) in enumerate(zip(own, wanted, strict=True)):
            if m != n:
                moved = interpolated(movedim(made, axis, -1), kind=kind, spatial_rank=1, size=n, **options)
                made = movedim(moved, -1, axis)
        return made if out is None and own != wanted else copy(made, out=out, **options)
    axes = [(a, n, m / n, 0.0) for a, (m, n) in enumerate(zip(own, wanted, strict=True)) if m != n]
    return _each_axis(x, kind, axes, truth("antialias", antialias), True, out, options)


@entry(InterpolatePlan)
def scale_and_translate(
    x: Array, shape: Any, spatial_dims: Any, scale: Any, translation: Any, method: str, antialias: bool = True, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x scaled and moved along some axes into another shape (jax.image.scale_and_translate).

    Place i of axis spatial_dims[k] comes to (i + ½) · scale[k] + translation[k] - ½; places from outside x are 0. scale
    and translation: numbers, one for each of spatial_dims. method and antialias are those of `resize_image`.
    """
    options = {"stream": stream, "preference": preference}
    own, wanted = shape_of(x, "x"), wholes("shape", shape, 1)
    kind = _FILTERS[one_of("method", method, tuple(_FILTERS))]
    float_like(x)
    dims = wholes("spatial_dims", spatial_dims, -len(own), len(own) - 1)
    places = [d % len(own) for d in dims] if own else []
    factors = [real("scale", s) for s in sequence("scale", scale, "numbers")]
    moves = [real("translation", t) for t in sequence("translation", translation, "numbers")]
    same = len(wanted) == len(own) and all(
        n == m for a, (n, m) in enumerate(zip(wanted, own, strict=True)) if a not in places
    )
    if not same or len({*places}) != len(places) or min(own, default=1) < 1:
        raise InvalidProblemError(
            f"shape must be that of x but along spatial_dims, each named once, got {wanted} for {own} and {dims}"
        )
    if len(factors) != len(places) or len(moves) != len(places) or not all(0 < s < math.inf for s in factors):
        raise InvalidProblemError(
            f"scale must have one number above 0 for each of spatial_dims, translation too, got {scale}, {translation}"
        )
    axes = [(a, wanted[a], 1 / s, -t / s) for a, s, t in zip(places, factors, moves, strict=True)]
    return _each_axis(x, kind, axes, truth("antialias", antialias), True, out, options)
