"""What the pages of Fourier transforms share: norms, the ends of a half spectrum, the error, test data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import Backward, Guarantee
from ...core.args import finite_only
from ...core.element import HALVES
from ...core.errors import InvalidProblemError

NORMS = ("backward", "ortho", "forward")
MOST = 3  # axes of a plan
GUARANTEE = Guarantee(Backward(2.0), order="cufft")
INVARIANT = Guarantee(Backward(2.0), batch_invariant=True)


def check_axes(axis: Sequence[int], shape: Sequence[int]) -> None:
    """One to three axes, each with a length."""
    if not 1 <= len(axis) <= MOST:
        raise InvalidProblemError(f"axis must name one to {MOST} axes of shape {tuple(shape)}, got {tuple(axis)}")
    for a in axis:
        if shape[a] < 1:
            raise InvalidProblemError(f"axis {a} has no elements to transform: shape is {tuple(shape)}")


def factor_of(norm: str, inverse: bool, lengths: Sequence[int]) -> float:
    """What a norm multiplies by: 1, 1/√N or 1/N, N the product of the lengths."""
    count = math.prod(lengths)
    if norm == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if inverse == (norm == "backward") else 1.0


def half(shape: Sequence[int], axis: Sequence[int]) -> tuple[int, ...]:
    """The shape of a half spectrum: n // 2 + 1 along the last axis that is named."""
    made = list(shape)
    made[axis[-1]] = made[axis[-1]] // 2 + 1
    return tuple(made)


def between(z: Any, axis: int, n: int, factor: float) -> Any:
    """A half spectrum, times `factor` between the ends of its halved axis of length n: all but 0 and n / 2."""
    places = np.arange(n // 2 + 1)
    weight = np.where((places == 0) | (2 * places == n), 1.0, factor).astype(z.real.dtype)
    return z * weight.reshape(-1, *(1,) * (z.ndim - axis - 1))


def half_of_real(name: str) -> Callable[[Any, Any], dict[str, Any]]:
    """For a benchmark: the half of a real array's transform, whose ends are real as cuFFT wants them, in torch."""
    return lambda torch, desc: {name: torch.fft.rfftn(torch.randn(desc.shape), dim=desc.axis)}


def weighted(torch: Any, z: Any, axis: int, n: int, factor: float) -> Any:
    """`between` of tensors."""
    weight = between(np.ones(n // 2 + 1), 0, n, factor)
    return z * torch.from_numpy(weight).to(device=z.device, dtype=z.real.dtype).reshape(
        -1, *(1,) * (z.dim() - axis - 1)
    )


def error(truth: Any, found: Any, given: Any, axis: Sequence[int], count: int, factor: float) -> Any:
    """‖found - truth‖ / (factor √N log2(2 N) ‖given‖) of each transform; 0 where what was given is not finite."""
    with np.errstate(all="ignore"):
        off, size = (np.sqrt(np.square(np.abs(one)).sum(tuple(axis))) for one in (found - truth, given))
        scale = factor * math.sqrt(count) * math.log2(2 * count) * size
        return np.where(np.isfinite(size) & (off != 0), off / np.where(scale == 0, 1, scale), 0)


@finite_only  # one NaN reaches all of its transform, of which a norm of errors says nothing then
def numbers(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: real parts, and imaginary ones that real operands leave out."""
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


@finite_only  # as `numbers`
def reals(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data of real operands."""
    return rng.standard_normal(shape)


def drawn(draw: Any, each: int = 1) -> dict[str, Any]:
    """One to three axes in any order among others; lengths 1, primes, powers of two, odd and even ones.

    each: numbers of an operand that are one complex number of a long transform.
    """
    more = {"norm": draw.choice(NORMS), "element": draw.element}
    if draw.rarely():
        n, way = draw.choice((210, 1024, 2048, 8192, 16384)), draw.integer(0, 2)
        if way == 2 and draw.element not in HALVES:  # the long axis is not the halved one
            return {"shape": (n, 2), "axis": (0, 1), **more}
        return {"shape": (each * n, 2) if way else (2, each * n), "axis": (0 if way else 1,), **more}
    shape = tuple(draw.sizes(1, 2, 3, 4, 5, 7, 8, 16, 11) for _ in range(draw.integer(1, 4)))
    axis = [a for a in range(len(shape)) if draw.flag()][:MOST] or [draw.integer(0, len(shape) - 1)]
    if draw.flag():
        axis.reverse()
    if draw.element in HALVES:  # one axis, without cuFFT
        axis, shape = axis[:1], tuple(12 if n == 11 else n for n in shape)
    if draw.rarely():
        shape = tuple(n if a in axis else 0 for a, n in enumerate(shape))
    return {"shape": shape, "axis": tuple(axis), **more}
