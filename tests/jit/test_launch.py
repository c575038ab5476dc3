"""Loading on a stand-in for CuPy: the driver gets the bytes that were verified, each image once a device."""

from __future__ import annotations

import contextlib
import ctypes
import types
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import Device, fake_device
from baracuda_py.core.errors import BaracudaError
from baracuda_py.core.params import Params
from baracuda_py.jit import Cache, Cubin, KernelInfo, Unit, launch
from baracuda_py.testing.recording import Recorder, pointer_view, recording

INFO = KernelInfo(registers=24, spill_stores=0, spill_loads=0, stack=0, static_smem=1024)
DEVICE = Device("cuda", 0, (9, 0), 227 * 1024, 132)
UNIT = Unit("u", "", symbols=("a", "b"))


class Module:
    loaded: ClassVar[list[tuple[int, bytes]]] = []

    def load(self, image: bytes) -> None:
        Module.loaded.append((Stub.current, image))

    def get_function(self, name: str) -> Any:
        return types.SimpleNamespace(ptr={"a": 11, "b": 12}[name])


class Stub:
    """`cupy.cuda`, of what loading asks."""

    current = 0
    attributes: ClassVar[list[tuple[int, int, int]]] = []
    Module = Module
    driver = types.SimpleNamespace(funcSetAttribute=lambda *call: Stub.attributes.append(call))

    @staticmethod
    @contextlib.contextmanager
    def Device(ordinal: int) -> Iterator[None]:
        previous, Stub.current = Stub.current, ordinal
        yield
        Stub.current = previous


@pytest.fixture
def cuda(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> launch.Cuda:
    """The real loader on the stand-in; what it compiles is in the cache, and the file is changed as soon as read."""
    made = launch.Cuda.__new__(launch.Cuda)
    made._cupy, made._modules, made._handles = types.SimpleNamespace(cuda=Stub), {}, set()
    Module.loaded.clear()
    Stub.attributes.clear()

    def compile_all(units: Sequence[Unit], target: str) -> list[Cubin]:
        return [compiled(unit) for unit in units]

    def compiled(unit: Unit) -> Cubin:
        cache.store("k", "s", Cubin(None, b"image", {"a": INFO, "b": INFO}, 0.1, cached=False), {})
        found = Cache(cache.dir).lookup("k")
        assert found is not None and found.path is not None
        found.path.write_bytes(b"another image, put there between check and load")
        return found

    monkeypatch.setattr(launch, "compile_all", compile_all)
    return made


def load(cuda: launch.Cuda, device: Device, *symbols: str, smem: int = 0) -> list[int]:
    return cuda.load(device, [launch.Wanted(UNIT, symbol, smem) for symbol in symbols])


def test_the_bytes_that_were_verified_are_loaded(cuda: launch.Cuda) -> None:
    assert load(cuda, DEVICE, "a") == [11] and load(cuda, DEVICE, "b") == [12]
    assert Module.loaded == [(0, b"image")], "the second kernel is in the module of the first"
    assert load(cuda, Device("cuda", 1, (9, 0), 227 * 1024), "a", "b") == [11, 12]
    assert Module.loaded == [(0, b"image"), (1, b"image")] and cuda._handles == {11, 12}


def test_a_kernel_may_take_all_a_block_has(cuda: launch.Cuda) -> None:
    load(cuda, DEVICE, "a", smem=47 * 1024)
    assert not Stub.attributes
    load(cuda, DEVICE, "a", smem=47 * 1024 + 1)
    assert Stub.attributes == [(11, 8, 226 * 1024)]


def test_the_attribute_is_the_one_the_driver_means() -> None:
    driver = pytest.importorskip("cupy_backends.cuda.api.driver")
    assert launch._MAX_DYNAMIC_SMEM == driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


@pytest.mark.parametrize("bound", [False, True])
def test_a_thread_without_a_context_gets_one(bound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver refuses it, as in torch's threads of gradients; the device is set there and the launch repeated."""
    real, refused, seen = Recorder.launch, [201], list[str]()

    def launching(self: Recorder, *given: Any, **more: Any) -> Any:
        seen.append("launch")
        return (refused.pop(),) if refused else real(self, *given, **more)

    monkeypatch.setattr(Recorder, "launch", launching)
    monkeypatch.setattr(Recorder, "use_device", lambda self, ordinal: seen.append("device"))
    x, y = (pointer_view(np.zeros(8, np.float32)) for _ in range(2))
    desc = bc.UnaryPlan.descriptor(kind="exp", shape=(8,), element="float32")
    plan = bc.UnaryPlan.select(desc, device=fake_device(9.0))
    args = plan.args(x=x, y=y)
    with recording() as record:
        plan.prepare(args)
        call = plan.bind(args) if bound else lambda: plan.run(args)
        call()
        assert len(record.launches) == 1
        first = seen.index("launch")
        assert seen[first : first + 3] == ["launch", "device", "launch"]
        refused.extend([201, 201])
        with pytest.raises(BaracudaError, match="kernel launch failed"):
            call()
        refused.clear()
        call()
    assert len(record.launches) == 2


@pytest.mark.parametrize("bound", [False, True])
def test_a_step_taken_several_times_counts(bound: bool) -> None:
    """Each launch finds its number in its parameters, and the pointers, too; a buffer is used again."""
    params = Params("P", x="ptr", turn="i64", start="i64")
    seen: list[tuple[int, ...]] = []

    def launched(function: int, *given: int) -> tuple[int]:
        address = ctypes.cast(given[-2], ctypes.POINTER(ctypes.c_void_p))[0]
        seen.append((function, given[-3], *(ctypes.c_int64 * 3).from_address(address)))
        return (0,)

    runtime: Any = types.SimpleNamespace(launch=launched)
    image = params.template({"turn": 0, "start": 5})
    made = launch.Launch(runtime, 9, (1, 1, 1), 32, 0, params, image, [(0, 16)], [], times=3)
    for pointer, stream in ((256, 1), (512, 2)):
        if bound:
            made.fixed((pointer,), ())(stream)
        else:
            made.call((pointer,), (), stream)
    assert seen == [(9, at, pointer + 16, n, 5) for pointer, at in ((256, 1), (512, 2)) for n in range(3)]
