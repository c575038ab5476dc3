"""The checks that need a GPU, on a stand-in for CuPy whose device is the NumPy backend: they pass, and see defects."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frame_toys import AxpyPlan, UpdatePlan

from baracuda_py.backends import evaluation as backend
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.testing import GPU_CHECKS, SeededDraw, exercise, gpu


class Buffer(np.ndarray):
    """Device memory that is host memory: `.data` is an address, `get` and `set` copy."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return Address(self.__array_interface__["data"][0])

    def get(self) -> np.ndarray:
        return np.array(self)

    def set(self, values: np.ndarray) -> None:
        self[...] = values


class Address(int):
    @property
    def ptr(self) -> int:
        return int(self)

    def __add__(self, other: int) -> Address:
        return Address(int(self) + other)


def view(shape: tuple[int, ...], dtype: Any, address: Address, strides: tuple[int, ...]) -> np.ndarray:
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0 and n)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0 and n) + dtype.itemsize
    raw = (ctypes.c_char * max(high - low, 1)).from_address(int(address) + low)
    return np.ndarray(shape, dtype, raw, -low, strides)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy: Any = types.ModuleType("cupy")
    cupy.asarray = lambda a: np.array(a).view(Buffer)
    cupy.ndarray = view
    cupy.uint8 = np.uint8
    cupy.full = lambda count, value, dtype: np.full(count, value, dtype).view(Buffer)
    cupy.cuda = types.SimpleNamespace(
        runtime=types.SimpleNamespace(deviceSynchronize=lambda: None), Device=Nothing, Stream=Stream
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(gpu, "DEVICE", "cpu")


class Nothing:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def use(self) -> None: ...


class Stream:
    """A stream whose graph is the calls that were made while it captured."""

    def __init__(self, non_blocking: bool) -> None:
        self.calls: list[Callable[[], None]] = []

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def begin_capture(self) -> None:
        real, calls = Plan.run, self.calls

        def recorded(plan: Plan, args: Any, workspace: Any = None, stream: Any = None) -> None:
            calls.append(lambda: real(plan, args))

        self.restore = real
        Plan.run = recorded  # type: ignore[method-assign]

    def end_capture(self) -> Any:
        Plan.run = self.restore  # type: ignore[method-assign]
        return types.SimpleNamespace(launch=lambda stream: [call() for call in self.calls])


@pytest.mark.parametrize("plan", [AxpyPlan, UpdatePlan])
@pytest.mark.parametrize("check", GPU_CHECKS)
def test_a_right_backend_passes(stand_in: None, plan: type[Plan], check: Any) -> None:
    exercise(plan, check, examples=5)


def changed(target: np.ndarray, change: Callable[[np.ndarray], Any]) -> None:
    if target.size:
        change(target)


def scale(y: np.ndarray) -> None:
    y[...] = y * y.dtype.type(1.01)


def skip_last(y: np.ndarray) -> None:
    y[(-1,) * y.ndim] = 77


def write_before(y: np.ndarray) -> None:
    ctypes.c_ubyte.from_address(y.__array_interface__["data"][0] - 1).value ^= 1


COUNT = iter(range(10**9))


def jitter(y: np.ndarray) -> None:
    ctypes.c_ubyte.from_address(y.__array_interface__["data"][0]).value = next(COUNT) % 251


def by_layout(y: np.ndarray) -> None:
    if not y.flags.c_contiguous:
        y[...] = np.nextafter(y, y.dtype.type(np.inf)) if y.dtype.kind == "f" and y.dtype.itemsize > 2 else y


@pytest.mark.parametrize(
    ("defect", "check", "says"),
    [
        (scale, gpu.gpu_error, "outside"), (skip_last, gpu.gpu_error, "outside"),
        (write_before, gpu.gpu_error, "outside the view"),
        (scale, gpu.gpu_capture, "replayed with new inputs"), (scale, gpu.gpu_workspace, "poisoned workspace"),
        (jitter, gpu.gpu_determinism, "run again"), (jitter, gpu.gpu_threads, "from eight threads"),
        (by_layout, gpu.gpu_layout_bits, "promise the same"), (write_before, gpu.gpu_inplace, "in place of"),
    ],
)  # fmt: skip
def test_a_defect_is_seen(
    stand_in: None, monkeypatch: pytest.MonkeyPatch, defect: Callable[[np.ndarray], Any], check: Any, says: str
) -> None:
    real = backend._store

    def broken(spec: Any, desc: Any, target: Any, result: Any) -> None:
        real(spec, desc, target, result)
        changed(target, defect)

    monkeypatch.setattr(backend, "_store", broken)
    with pytest.raises(AssertionError, match=says):
        for seed in range(40):
            check(AxpyPlan, SeededDraw(seed, ElementKind.F32))
