"""Devices: the real ones, the CPU, and fake ones for choosing and compiling without a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .._forking import in_child
from ..interop.jax_arrays import TRACED
from . import config
from .checked import shown, whole
from .errors import DeviceMismatchError, InvalidProblemError, UnsupportedError
from .unreadable import traced_error

_SMEM = {
    (8, 0): 163,
    (8, 6): 99,
    (8, 7): 163,
    (8, 9): 99,
    (9, 0): 227,
    (10, 0): 227,
    (10, 3): 227,
    (12, 0): 99,
    (12, 1): 99,
}
MOST_SMEM = max(_SMEM.values()) * 1024
"""Bytes of dynamic shared memory that a block may ask on any device known here."""
_SMS = {(8, 0): 108, (8, 6): 84, (8, 9): 128, (9, 0): 132, (10, 0): 148, (12, 0): 170}


@dataclass(frozen=True)
class Device:
    """What dispatch knows of a device. `smem` is the most dynamic shared memory a block may ask, in bytes."""

    kind: str  # "cpu" | "cuda"
    ordinal: int = -1
    cc: tuple[int, int] = (0, 0)
    smem: int = 0
    sms: int = 0
    name: str = "cpu"
    fake: bool = False

    def __str__(self) -> str:
        return "cpu" if self.kind == "cpu" else f"cuda:{self.ordinal}"

    @property
    def target(self) -> str:
        """The NVRTC target: the device's own architecture, with its specific features on 9.0."""
        return "sm_90a" if self.cc == (9, 0) else f"sm_{self.cc[0]}{self.cc[1]}"

    def expect(self, name: str, at: int) -> None:
        """Raise DeviceMismatchError unless memory of the ordinal `at`, -1 for the host's, is this device's."""
        if at == TRACED:
            raise traced_error(name)
        if at != self.ordinal:
            place = "in host memory" if at < 0 else f"on cuda:{at}"
            hint = f"select it with device={at}" if self.ordinal < 0 else "copy the array there first"
            raise DeviceMismatchError(f"{name} is {place}, the plan is on {self}; {hint}")


CPU = Device("cpu")
_CUDA = re.compile(r"cuda(:[0-9]{1,4})?")


def fake_device(cc: float | tuple[int, int], ordinal: int = 0) -> Device:
    """A CUDA device that is not there: `fake_device(8.6)`. Choosing and compiling work, loading does not."""
    if isinstance(cc, (int, float, np.integer, np.floating)) and 0 <= cc < 100:
        pair = (int(cc), round(float(cc) * 10) % 10)
    elif isinstance(cc, tuple) and len(cc) == 2:
        pair = (whole("the major number", cc[0], 0, 99), whole("the minor number", cc[1], 0, 9))
    else:
        raise InvalidProblemError(f"a compute capability is a number such as 8.6 or a pair (8, 6), got {shown(cc)}")
    smem = _SMEM.get(pair, 99) * 1024
    return Device("cuda", ordinal, pair, smem, _SMS.get(pair, 100), f"fake sm_{pair[0]}{pair[1]}", fake=True)


_used: set[bool] = set()  # what this process uses: False the CUDA driver, True the runtime of fake devices
_lost: set[bool] = set()  # what its parent used before the fork that made it: neither works any more
_NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED; of cuInit itself in a child whose parent called it


def mark_used(fake: bool) -> None:
    """Note that children forked from now on cannot use the driver (or fake devices)."""
    _used.add(fake)


def forked(fake: bool) -> bool:
    """Whether this process was forked from one that used the driver (or fake devices)."""
    return fake in _lost


def refuse_forked(fake: bool) -> None:
    """Raise DeviceMismatchError in a child forked from a process that used the driver (or fake devices)."""
    if forked(fake):
        raise forked_error()


def forked_error() -> DeviceMismatchError:
    """The error of `refuse_forked`."""
    return DeviceMismatchError(
        "this process was forked from one that used CUDA, and CUDA does not work in it; start it by spawn or forkserver"
    )


in_child(lambda: _lost.update(_used))


_INSTALL = 'pip install "baracuda_py[cu12]" (or [cu13], by your driver)'


@cache
def driver_device_count() -> int:
    """Devices the driver reports, without CuPy and without creating a context; 0 with no driver.

    From then on a forked child cannot use CUDA; where a parent did this in any other way, the driver tells it here.
    """
    import ctypes

    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        count = ctypes.c_int(0)
        status = driver.cuInit(0)
        if status == _NOT_INITIALIZED:
            raise forked_error()
        if status == 0:
            mark_used(False)
            if driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
                return count.value
    return 0


@cache
def cuda_device(ordinal: int) -> Device:
    """The CUDA device `ordinal`; raises when it, or CuPy, is not there."""
    refuse_forked(False)
    count = driver_device_count()
    if count == 0:
        raise DeviceMismatchError(
            "a CUDA device was asked for, but the driver reports none; device='cpu' is the NumPy backend"
        )
    if not 0 <= ordinal < count:
        raise DeviceMismatchError(f"cuda:{ordinal} was asked for; this machine has cuda:0 … cuda:{count - 1}")
    try:
        from cupy.cuda import runtime

        facts = runtime.getDeviceProperties(ordinal)
    except Exception as error:
        raise DeviceMismatchError(
            f"a CUDA device is present but CuPy does not work ({error}); install it: {_INSTALL}"
        ) from error
    return Device(
        "cuda",
        ordinal,
        (facts["major"], facts["minor"]),
        facts["sharedMemPerBlockOptin"],
        facts["multiProcessorCount"],
        facts["name"].decode(),
    )


def resolve_device(device: Any = None) -> Device:
    """None, an ordinal, "cuda:N", "cuda", "cpu", or a Device.

    None means the current CUDA device when the driver reports one, else the NumPy backend. A GPU
    whose CuPy is missing or broken raises: NumPy is never taken in its place.
    """
    if isinstance(device, Device):
        chosen = device
    elif device is None:
        if config.get("BARACUDA_BACKEND") == "numpy" or driver_device_count() == 0:
            return CPU
        refuse_forked(False)
        cuda_device(0)
        from cupy.cuda import runtime

        chosen = cuda_device(runtime.getDevice())
    elif device == "cpu":
        return CPU
    elif isinstance(device, int) and not isinstance(device, bool):
        chosen = cuda_device(device)
    elif isinstance(device, str) and _CUDA.fullmatch(device):
        chosen = cuda_device(int(device[5:] or 0))
    else:
        raise InvalidProblemError(f"device must be None, an ordinal, 'cuda:N', 'cpu' or a Device, got {shown(device)}")
    if chosen.kind == "cuda" and not chosen.fake:  # choosing for a fake device needs no driver
        refuse_forked(False)
    if chosen.kind == "cuda" and chosen.cc < (8, 0):
        raise UnsupportedError(
            f"{chosen.name} has compute capability {chosen.cc[0]}.{chosen.cc[1]}; 8.0 or newer is needed"
        )
    return chosen


def in_use(device: Device) -> Device:
    """The device, made the current one of this thread where it is a GPU that is there: arrays are then made on it."""
    if device.kind == "cuda" and not device.fake:
        from cupy.cuda import runtime

        runtime.setDevice(device.ordinal)
    return device
