"""Devices: real, fake and absent; NumPy is never taken where a GPU was asked for or is broken."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from baracuda_py.core import device as module
from baracuda_py.core.device import CPU, Device, cuda_device, fake_device, in_use, resolve_device
from baracuda_py.core.errors import DeviceMismatchError, InvalidProblemError, UnsupportedError


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A machine with as many (made-up) devices as the test says; `working=False` breaks CuPy."""

    def build(count: int, cc: tuple[int, int] = (9, 0), working: bool = True, current: int = 0) -> None:
        def properties(ordinal: int) -> dict[str, Any]:
            if not working:
                raise RuntimeError("libcudart is missing")
            return {
                "major": cc[0],
                "minor": cc[1],
                "sharedMemPerBlockOptin": 1234,
                "multiProcessorCount": 7,
                "name": b"Test GPU",
            }

        runtime = types.ModuleType("cupy.cuda.runtime")
        runtime.getDeviceProperties = properties  # type: ignore[attr-defined]
        runtime.getDevice = lambda: current  # type: ignore[attr-defined]
        cuda = types.ModuleType("cupy.cuda")
        cuda.runtime = runtime  # type: ignore[attr-defined]
        cupy = types.ModuleType("cupy")
        cupy.cuda = cuda  # type: ignore[attr-defined]
        for name, fake in {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.runtime": runtime}.items():
            monkeypatch.setitem(sys.modules, name, fake)
        monkeypatch.setattr(module, "driver_device_count", lambda: count)
        cuda_device.cache_clear()

    yield build
    cuda_device.cache_clear()


def test_none_means_cuda_where_there_is_some(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(2, current=1)
    found = resolve_device(None)
    assert (found.kind, found.ordinal, found.cc, found.smem, found.sms, found.name) == (
        "cuda",
        1,
        (9, 0),
        1234,
        7,
        "Test GPU",
    )
    assert resolve_device("cuda:1") == resolve_device(1) == found and resolve_device("cuda").ordinal == 0
    assert resolve_device("cpu") is CPU
    monkeypatch.setenv("BARACUDA_BACKEND", "numpy")
    assert resolve_device(None) is CPU and resolve_device(0).kind == "cuda"


def test_none_means_numpy_where_there_is_none(machine: Any) -> None:
    machine(0)
    assert resolve_device(None) is CPU
    for asked in (0, "cuda", "cuda:0"):
        with pytest.raises(DeviceMismatchError, match="the driver reports none; device='cpu' is the NumPy backend"):
            resolve_device(asked)


def test_a_device_that_is_not_there_is_told(machine: Any) -> None:
    machine(2)
    with pytest.raises(DeviceMismatchError, match="cuda:2 was asked for; this machine has cuda:0 … cuda:1"):
        resolve_device(2)


def test_a_gpu_with_broken_cupy_raises_and_never_falls_back(machine: Any) -> None:
    machine(1, working=False)
    for asked in (None, 0):
        with pytest.raises(
            DeviceMismatchError, match=r'CuPy does not work \(libcudart is missing\).*pip install "baracuda_py'
        ):
            resolve_device(asked)


def test_an_old_gpu_is_refused(machine: Any) -> None:
    machine(1, cc=(7, 5))
    with pytest.raises(UnsupportedError, match=r"Test GPU has compute capability 7\.5"):
        resolve_device(None)


@pytest.mark.parametrize("asked", ["gpu", "cuda:x", "cuda:-1", 1.5, True, object()])
def test_what_is_no_device_is_refused(asked: Any) -> None:
    with pytest.raises(InvalidProblemError, match="device must be None, an ordinal, 'cuda:N', 'cpu' or a Device"):
        resolve_device(asked)


@pytest.mark.parametrize(
    ("cc", "pair", "target", "kilobytes"),
    [(8.0, (8, 0), "sm_80", 163), (8.6, (8, 6), "sm_86", 99), (8.9, (8, 9), "sm_89", 99), (9.0, (9, 0), "sm_90a", 227),
     (10.0, (10, 0), "sm_100", 227), (12.0, (12, 0), "sm_120", 99), (12.1, (12, 1), "sm_121", 99),
     ((13, 5), (13, 5), "sm_135", 99)],
)  # fmt: skip
def test_fake_devices(cc: Any, pair: tuple[int, int], target: str, kilobytes: int) -> None:
    fake = fake_device(cc)
    assert (fake.cc, fake.target, fake.smem) == (pair, target, kilobytes * 1024) and fake.sms > 0 and fake.fake
    assert resolve_device(fake) is fake and str(fake) == "cuda:0" and str(CPU) == "cpu"


def test_the_device_in_use_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    from cupy.cuda import runtime

    used: list[int] = []
    monkeypatch.setattr(runtime, "setDevice", used.append)
    for device in (CPU, fake_device(9.0, ordinal=2), Device("cuda", 1, (9, 0))):
        assert in_use(device) is device
    assert used == [1]
