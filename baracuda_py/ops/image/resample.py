"""How places of an image make those of another along one axis: PyTorch's interpolation modes and JAX's filters."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class InterpolateKind(enum.Enum):
    """What an output is: one input, a line or a cubic through neighbours, a mean, or a filter that is normalised."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest_exact"
    LINEAR = "linear"
    CUBIC = "cubic"
    AREA = "area"
    TRIANGLE = "triangle"
    KEYS = "keys"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"

    @property
    def cpp(self) -> str:
        """The enumerator's name in kernels/image/resample.cuh."""
        return str(self.value)

    @property
    def radius(self) -> int:
        """Of a filter; 0 for what is none."""
        return {"triangle": 1, "keys": 2, "lanczos3": 3, "lanczos5": 5}.get(self.value, 0)

    @property
    def picks(self) -> bool:
        """Whether an output is one input."""
        return self in (InterpolateKind.NEAREST, InterpolateKind.NEAREST_EXACT)


NAMES = tuple(kind.value for kind in InterpolateKind)  # the kernels' enumeration, filters last


@dataclass(frozen=True)
class ResampleAxis:
    """One axis; the formulas of kernels/image/resample.cuh, operation by operation, in float64."""

    kind: InterpolateKind
    inputs: int
    outputs: int
    scale: float
    shift: float
    widened: float
    align: bool
    bounded: bool

    def _filter(self, x: Any) -> Any:
        if self.kind is InterpolateKind.TRIANGLE:
            return np.where(x < 1, 1 - x, 0)
        if self.kind is InterpolateKind.KEYS:
            near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
            return np.where(x < 1, near, np.where(x < 2, far, 0))
        radius, y = float(self.kind.radius), np.pi * np.where(x > 1e-3, x, 1)
        curve = radius * np.sin(y) * np.sin(y / radius) / (y * y)
        return np.where(x < radius, np.where(x > 1e-3, curve, 1), 0)

    def taps(self) -> tuple[Any, Any, Any]:
        """For every output the inputs it reads, their weights (float64), and which of them exist: [outputs, taps]."""
        o, last, kind = np.arange(self.outputs), self.inputs - 1, self.kind
        c = o * self.scale if self.align else self.scale * (o + 0.5) + self.shift - 0.5
        if kind.picks:
            place = o.astype(np.float32) + np.float32(0 if kind is InterpolateKind.NEAREST else 0.5)
            low = high = np.minimum(np.floor(place * np.float32(self.scale)).astype(np.int64), last)
        elif kind is InterpolateKind.LINEAR:
            c = np.clip(c, 0, last)
            low = np.floor(c).astype(np.int64)
            high = np.minimum(low + 1, last)
        elif kind is InterpolateKind.CUBIC:
            low, high = (np.clip(np.floor(c) + k, 0, last).astype(np.int64) for k in (-1, 2))
        elif kind is InterpolateKind.AREA:
            low, high = o * self.inputs // self.outputs, -(-(o + 1) * self.inputs // self.outputs) - 1
        else:
            reach = kind.radius * self.widened
            low = np.clip(np.ceil(c - reach), 0, last).astype(np.int64)
            high = np.clip(np.floor(c + reach), 0, last).astype(np.int64)
        taps = low[:, None] + np.arange(int((high - low).max()) + 1)
        there = taps <= high[:, None]
        return np.where(there, taps, 0), np.where(there, self._weights(c[:, None], taps, low, high, there), 0), there

    def _weights(self, c: Any, taps: Any, low: Any, high: Any, there: Any) -> Any:
        kind, floor = self.kind, np.floor(c)
        if kind.picks:
            return np.ones(taps.shape)
        if kind is InterpolateKind.AREA:
            return np.broadcast_to(1 / (high - low + 1.0)[:, None], taps.shape)
        if kind is InterpolateKind.LINEAR:
            t = c - low[:, None]
            return np.where((low == high)[:, None], 1, np.where(taps == low[:, None], 1 - t, t))
        if kind is InterpolateKind.CUBIC:
            total, a, t = np.zeros(taps.shape), -0.75, c - floor
            for k in range(4):
                x = (t + 1, t, 1 - t, 2 - t)[k]
                near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
                named = np.clip(floor + (k - 1), 0, self.inputs - 1) == taps
                total = np.where(named, total + (near if k in (1, 2) else far), total)
            return total
        weights = np.where(there, self._filter(np.abs(c - taps) / self.widened), 0)
        total = np.cumsum(weights, 1)[:, -1:]  # in the order of the taps
        if self.bounded:
            total = np.where((c >= -0.5) & (c <= self.inputs - 0.5), total, np.inf)
        return weights / np.where(np.abs(total) > 1e-4, total, np.inf)


def products(axes: Sequence[ResampleAxis]) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """One after the other, in row-major order, the taps of all axes: their places, weights and which exist.

    Each is an array that broadcasts over the outputs of the axes; weights are products, float64.
    """
    found = [axis.taps() for axis in axes]
    for combination in np.ndindex(*(taps.shape[1] for taps, _, _ in found)):
        parts = []
        for a, (own, k) in enumerate(zip(found, combination, strict=True)):
            side = (-1,) + (1,) * (len(axes) - a - 1)
            parts.append([one[:, k].reshape(side) for one in own])
        there = np.ones((1,) * len(axes), bool)
        for part in parts:
            there = there & part[2]
        yield tuple(part[0] for part in parts), [part[1] for part in parts], there


def step_of(inputs: int, outputs: int, align: bool) -> float:
    """How far apart outputs lie among the inputs."""
    if align:
        return (inputs - 1) / (outputs - 1) if outputs > 1 else 0.0
    return inputs / outputs


def usable(value: float) -> bool:
    """Whether a coordinate's factor is one that every kernel takes."""
    return math.isfinite(value) and 0 <= value <= 2**31
