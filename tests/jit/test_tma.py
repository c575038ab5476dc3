"""Tensor maps and clusters: the parameter struct, the driver's calls, and launches of a plan that has both."""

from __future__ import annotations

import ctypes
import types
from typing import Any

import pytest

from baracuda_py.core import ElementKind, Params, TensorMap
from baracuda_py.core.errors import BaracudaError, CompileError
from baracuda_py.jit import Unit, compile_unit, nvrtc, tma
from baracuda_py.jit.launch import Launch
from baracuda_py.testing.recording import encoded_map

PARAMS = Params("P", x="ptr", to="map", n="i32", of="map", k="i64")
ONE = TensorMap("x", ElementKind.BF16, (64, 8), (128,), (64, 8))
TWO = TensorMap("y", ElementKind.F32, (32, 8, 2), (128, 1024), (32, 4, 1), 0, offset=16)


def test_maps_come_first_and_the_struct_is_whole_multiples_of_their_alignment() -> None:
    offsets = {name: slot.offset for name, slot in PARAMS.slots.items()}
    assert offsets == {"to": 0, "of": 128, "x": 256, "k": 264, "n": 272} and PARAMS.size == 320
    assert PARAMS.template({"n": 7, "k": 8})[264:276] == (8).to_bytes(8, "little") + (7).to_bytes(4, "little")
    with pytest.raises(TypeError, match="not an array"):
        Params("P", maps="map[2]")


def test_the_compiler_agrees() -> None:
    try:
        nvrtc.load()
    except CompileError as error:
        pytest.skip(f"not compiled: {error}")
    text = "#include <baracuda/types.cuh>\n#include <baracuda/tensor_map.cuh>\nnamespace baracuda {\n" + PARAMS.cpp
    compile_unit(Unit("maps", f'{text}\n}}\nextern "C" __global__ void entry() {{}}\n', (), ("entry",)), "sm_90a")


class Runtime:
    """Counts what is encoded, and keeps the bytes that are launched."""

    def __init__(self) -> None:
        self.encoded: list[tuple[TensorMap, int]] = []
        self.launched: list[tuple[int, bytes]] = []

    def encode(self, tensor_map: TensorMap, pointer: int) -> bytes:
        self.encoded.append((tensor_map, pointer))
        return encoded_map(tensor_map, pointer)

    def launch(self, *call: Any, cluster: int = 1) -> tuple[int]:
        params = ctypes.c_void_p.from_address(call[9]).value
        assert params is not None and params % 64 == 0
        self.launched.append((cluster, ctypes.string_at(params, PARAMS.size)))
        return (0,)

    def clustered(self, cluster: int) -> Any:
        return lambda *call: self.launch(*call, cluster=cluster)


def test_maps_are_encoded_once_a_pointer_and_packed_for_each_call() -> None:
    runtime: Any = Runtime()
    image = PARAMS.template({"n": 1, "k": 2})
    maps = [(0, 0, ONE), (128, 1, TWO)]
    launch = Launch(runtime, 1, (4, 1, 1), 128, 0, PARAMS, image, [(0, 0)], [], maps, cluster=2)
    for x, y in ((4096, 8192), (4096, 12288), (4096, 8192), (4096, 0)):
        launch.call((x, y, 0), (), 5)
        cluster, got = runtime.launched[-1]
        assert got[:128] == encoded_map(ONE, x) and got[128:256] == (encoded_map(TWO, y) if y else bytes(128))
        assert cluster == 2 and got[256:264] == x.to_bytes(8, "little")
    assert runtime.encoded == [(ONE, 4096), (TWO, 8192), (TWO, 12288)]
    launch.fixed((64, 128, 0), ())(5)
    assert runtime.launched[-1][1][:256] == encoded_map(ONE, 64) + encoded_map(TWO, 128)


def test_what_the_driver_is_told() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    calls: list[Any] = []

    def encode(*call: Any) -> tuple[int, Any]:
        calls.append(call)
        return int(call[2] == 16), driver.CUtensorMap()

    names = ("CUtensorMapDataType", "CUtensorMapSwizzle", "CUtensorMapInterleave", "CUtensorMapL2promotion",
             "CUtensorMapFloatOOBfill", "cuuint32_t", "cuuint64_t")  # fmt: skip
    fake = types.SimpleNamespace(cuTensorMapEncodeTiled=encode, **{name: getattr(driver, name) for name in names})
    assert len(tma.encoder(fake)(TWO, 4096)) == 128
    kind, rank, pointer, shape, strides, box, steps, _, swizzle, _, fill = calls[0]
    assert (kind.name[-7:], int(rank), pointer, swizzle.value, fill.value) == ("FLOAT32", 3, 4112, 0, 0)
    assert [list(map(int, n)) for n in (shape, strides, box, steps)] == [[32, 8, 2], [128, 1024], [32, 4, 1], [1, 1, 1]]
    tma.encoder(fake)(ONE, 4096)
    assert calls[1][0].name.endswith("BFLOAT16") and calls[1][8].name.endswith("128B")
    with pytest.raises(BaracudaError, match="does not encode"):
        tma.encoder(fake)(ONE, 16)


def test_clusters_are_launched_with_their_attribute() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    calls: list[Any] = []

    def launch(config: Any, function: int, params: int, extra: int) -> tuple[int]:
        calls.append((config, int(config.hStream), function, params))
        return (0,)

    names = ("CUlaunchAttribute", "CUlaunchAttributeID", "CUlaunchConfig")
    fake = types.SimpleNamespace(cuLaunchKernelEx=launch, **{name: getattr(driver, name) for name in names})
    call = tma.clustered(fake, 2)
    for stream in (5, 6):
        assert call(11, 4, 2, 1, 384, 1, 1, 1000, stream, 99, 0) == (0,)
    config = calls[0][0]
    assert calls[1][0] is config and [c[1:] for c in calls] == [(5, 11, 99), (6, 11, 99)]
    assert (config.gridDimX, config.gridDimY, config.blockDimX, config.sharedMemBytes) == (4, 2, 384, 1000)
    assert config.numAttrs == 1 and config.attrs[0].value.clusterDim.x == 2
