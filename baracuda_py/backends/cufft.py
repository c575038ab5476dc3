"""cuFFT's transforms: a plan of the library for each layout, kept and shared, its work area given with each call.

Called through nvmath-python's bindings (docs/design/libraries.md).
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from baracuda_py.backends.library import Library, current
from baracuda_py.core.device import Device
from baracuda_py.core.errors import InvalidProblemError

from .._forking import Mutex
from ..core.checked import INT64
from ..jit.launch import runtime_for


class _Transforms(Library):
    """Its bindings have no function for a status's name. It keeps plans, which are handles themselves.

    kept: those of a device that equal problems find again, the last one used at the end. graves: those that nobody has.
    """

    kept: dict[int, OrderedDict[Transform, Fft]]
    graves: dict[int, deque[int]]

    def forget(self) -> None:
        """Keep no plan, and destroy none that there is: in a child they are its parent's."""
        super().forget()
        self.kept, self.graves = {}, {}

    def status_name(self, error: Exception) -> str:
        """CUFFT_…, as the manual has it."""
        return f"CUFFT_{self.bindings.Result(error.status).name}"  # type: ignore[attr-defined]


CUFFT = _Transforms(
    "cufft", bindings="nvmath.bindings.cufft", package="nvmath-python", error="cuFFTError",
    unsupported=("CUFFT_NOT_SUPPORTED", "CUFFT_NOT_IMPLEMENTED"), behind=1,  # 11 is of CUDA 12
)  # fmt: skip
KEPT = 64  # plans a device that equal problems find again
FORWARD, INVERSE = -1, 1  # the sign of the exponent
_TYPES = {"float32": (0, 4), "float64": (1, 5)}  # cudaDataType of real and complex numbers with such parts


@dataclass(frozen=True)
class Strided:
    """Where cuFFT's advanced layout has the element (j, i_0, i_1, …) of a batch: at `apart` j + `step` i, in elements.

    i counts as (i_0 embed[1] + i_1) embed[2] + …; embed[0] is not read.
    """

    embed: tuple[int, ...]
    step: int
    apart: int


@dataclass(frozen=True)
class Transform:
    """A batch of transforms over `lengths`, of complex numbers whose parts are `part`s.

    kind: "c2c", "r2c" or "c2r"; of the last two the real array has `lengths`, the complex one the first n // 2 + 1
    elements of its last axis.
    """

    kind: str
    part: str
    lengths: tuple[int, ...]
    source: Strided
    target: Strided
    batch: int

    def __post_init__(self) -> None:
        if self.kind not in ("c2c", "r2c", "c2r") or self.part not in _TYPES or not 1 <= len(self.lengths) <= 3:
            raise InvalidProblemError(f"cuFFT has no {self.kind} of {self.part} over {len(self.lengths)} axes")
        for numbers in (self.lengths, (self.batch,), (self.source.step, self.target.step)):
            if not all(1 <= n <= INT64 for n in numbers):
                raise InvalidProblemError(f"lengths, batch and steps must be at least 1, got {self}")


class Fft:
    """cuFFT's plan of a transform. `workspace`: the bytes of the work area that each call gives.

    It holds one stream and one work area, which calls set: they take turns, for as long as a launch takes. It goes when
    nobody has it, but one that a graph may run again stays: a graph reads the tables that are the plan's.
    """

    def __init__(self, transform: Transform, device: Device) -> None:
        lib, (real, pairs) = CUFFT.bindings, _TYPES[transform.part]
        given = real if transform.kind == "r2c" else pairs
        made = real if transform.kind == "c2r" else pairs
        source, target, lengths = transform.source, transform.target, list(transform.lengths)
        self._device, self._runtime = device, runtime_for(device)
        self._mutex, self._captured = Mutex(), False
        self._set_stream, self._set_work_area, self._exec = lib.set_stream, lib.set_work_area, lib.xt_exec
        with current(device), CUFFT.calling("cufftXtMakePlanMany"):
            graves = CUFFT.graves.setdefault(device.ordinal, deque())
            while graves:  # here memory may be freed and waited for, not where the last one lets go of a plan
                lib.destroy(graves.popleft())
            self._plan = int(lib.create())
            self._grave = weakref.finalize(self, graves.append, self._plan)
            self._grave.atexit = False
            lib.set_auto_allocation(self._plan, 0)
            self.workspace = int(
                lib.xt_make_plan_many(
                    self._plan, len(lengths), lengths, list(source.embed), source.step, source.apart, given,
                    list(target.embed), target.step, target.apart, made, transform.batch, pairs,
                )
            )  # fmt: skip

    def run(self, pairs: Sequence[tuple[int, int]], workspace: int, stream: int, sign: int) -> None:
        """Transform what lies at the first of each pair of addresses to the second; sign counts for c2c alone."""
        captured = self._runtime.capturing(stream)
        try:
            with self._mutex():
                if captured and not self._captured:
                    self._captured = True
                    self._grave.detach()
                self._set_stream(self._plan, stream)
                self._set_work_area(self._plan, workspace)
                for source, target in pairs:
                    self._exec(self._plan, source, target, sign)
        except CUFFT.error as error:
            raise CUFFT.failure(error, "cufftXtExec") from None


_mutex = Mutex()


def fft_of(transform: Transform, device: Device) -> Fft:
    """The plan of a transform, one for all that want it; the `KEPT` last ones of a device are kept."""
    with _mutex():
        kept = CUFFT.kept.setdefault(device.ordinal, OrderedDict())
        found = kept.get(transform)
        if found is None:
            found = kept[transform] = Fft(transform, device)
        kept.move_to_end(transform)
        while len(kept) > KEPT:
            kept.popitem(last=False)
        return found
