"""cuFFT's stand-in for the emulator: its bindings on host memory, by NumPy's transforms.

It keeps cuFFT's conventions: no factor, batches and embedded axes by steps, the halved axis last, a work area of the
size that it told, filled with rubbish, and the operand of a real result over several axes overwritten.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .host import HostError

_DTYPES: dict[int, Any] = {
    0: np.dtype("float32"),
    1: np.dtype("float64"),
    4: np.dtype("complex64"),
    5: np.dtype("complex128"),
}
_INVERSE = 1


@dataclass
class _Plan:
    """What was said of a plan."""

    layout: tuple[Any, ...] = ()
    workspace: int = 0
    area: int = 0
    allocates: bool = field(default=True)


class HostFft:
    """cufft."""

    Result = enum.IntEnum("Result", {"SETUP_FAILED": HostError.status})

    def __init__(self) -> None:
        self.plans: dict[int, _Plan] = {}
        self._numbers = itertools.count(1)

    def create(self) -> int:
        self.plans[number := next(self._numbers)] = _Plan()
        return number

    def destroy(self, plan: int) -> None:
        del self.plans[plan]

    def set_auto_allocation(self, plan: int, auto_allocate: int) -> None:
        self.plans[plan].allocates = bool(auto_allocate)

    def set_stream(self, plan: int, stream: int) -> None:
        """All is done at once."""

    def set_work_area(self, plan: int, work_area: int) -> None:
        self.plans[plan].area = work_area

    def xt_make_plan_many(
        self, plan: int, rank: int, n: Sequence[int], inembed: Sequence[int], istride: int, idist: int, inputtype: int,
        onembed: Sequence[int], ostride: int, odist: int, outputtype: int, batch: int, executiontype: int,
    ) -> int:  # fmt: skip
        held = self.plans[plan]
        source, target = _DTYPES[inputtype], _DTYPES[outputtype]
        if held.allocates or rank != len(n) or min(*n, istride, ostride, batch) < 1 or executiontype not in (4, 5):
            raise HostError
        sides = []
        for dtype, other, embed, step, apart in (
            (source, target, inembed, istride, idist), (target, source, onembed, ostride, odist),
        ):  # fmt: skip
            extents = [*n[:-1], n[-1] // 2 + 1 if dtype.kind + other.kind == "cf" else n[-1]]
            if any(room < needed for room, needed in zip(embed[1:], extents[1:], strict=True)):
                raise HostError
            steps = [step]
            for room in reversed(embed[1:]):
                steps.insert(0, steps[0] * room)
            sides.append((dtype, (batch, *extents), [apart, *steps]))
        held.layout, held.workspace = (tuple(n), *sides), 7 + 3 * source.itemsize * n[-1]
        return held.workspace

    def xt_exec(self, plan: int, given: int, made: int, direction: int) -> None:
        held = self.plans[plan]
        n, *sides = held.layout
        source, target = (_at(p, *side) for p, side in zip((given, made), sides, strict=True))
        axes, pair = range(1, len(n) + 1), max(source.itemsize, target.itemsize)
        if given % pair or made % pair or min(held.area, given, made) < 1:
            raise HostError
        ctypes.memset(held.area, 0xAB, held.workspace)
        x: Any = np.array(source)
        if target.dtype.kind == "f":
            if len(n) > 1:
                source[...] = np.nan
            y: Any = np.fft.irfftn(x, n, axes, norm="forward")
        elif x.dtype.kind == "f":
            y = np.fft.rfftn(x, n, axes)
        else:
            y = np.fft.ifftn(x, n, axes, norm="forward") if direction == _INVERSE else np.fft.fftn(x, n, axes)
        target[...] = y


def _at(pointer: int, dtype: Any, shape: tuple[int, ...], steps: Sequence[int]) -> np.ndarray:
    """The array at an address, its steps in elements."""
    nbytes = (sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True)) + 1) * dtype.itemsize
    memory = (ctypes.c_char * nbytes).from_address(pointer)
    made: np.ndarray = np.ndarray(shape, dtype, memory, strides=[step * dtype.itemsize for step in steps])
    return made
