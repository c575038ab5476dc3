"""A library and a runtime that record what they are told."""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from baracuda_py.backends import cublas
from baracuda_py.backends.cublas import Gemm
from baracuda_py.jit import launch

KINDS = ("MatrixLayout", "MatmulDesc", "MatmulPreference")
ATTRIBUTE = {  # number -> (name, C type), read from cublasLt.h
    "MatrixLayout": {5: ("batch", ctypes.c_int32), 6: ("batch_stride", ctypes.c_int64)},
    "MatmulDesc": {2: ("pointer_mode", ctypes.c_int32), 3: ("op_a", ctypes.c_int32), 4: ("op_b", ctypes.c_int32)},
    "MatmulPreference": {
        1: ("workspace", ctypes.c_uint64),
        3: ("reduction", ctypes.c_uint32),
        5: ("align_a", ctypes.c_uint32),
        6: ("align_b", ctypes.c_uint32),
        7: ("align_c", ctypes.c_uint32),
        8: ("align_d", ctypes.c_uint32),
    },
}
ARGUMENTS = ("handle", "op", "alpha", "a", "a_layout", "b", "b_layout", "beta", "c", "c_layout", "d", "d_layout",
             "algo", "workspace", "nbytes", "stream")  # fmt: skip


class FakeCublas:
    """Records descriptors, attributes and calls; answers the heuristic with `offers` (workspace bytes of each)."""

    def __init__(self) -> None:
        self.numbers = itertools.count(0x1000)
        self.live: dict[int, dict[str, Any]] = {}
        self.calls: list[SimpleNamespace] = []
        self.handles: list[int] = []
        self.offers = [4096]
        self.states = [0] * 8  # of each offer: a status
        self.waves = [1.0] * 8
        self.heuristic_status = self.matmul_status = 0
        for kind in KINDS:
            setattr(self, f"cublasLt{kind}Create", self._creator(kind))
            setattr(self, f"cublasLt{kind}SetAttribute", self._setter(kind))
            setattr(self, f"cublasLt{kind}Destroy", lambda pointer: int(self.live.pop(pointer.value) is None))

    def _creator(self, kind: str) -> Any:
        def create(out: Any, *args: int) -> int:
            out._obj.value = next(self.numbers)
            self.live[out._obj.value] = {"kind": kind, "args": args}
            return 0

        return create

    def _setter(self, kind: str) -> Any:
        def set_attribute(pointer: Any, attribute: int, value: Any, size: int) -> int:
            name, ctype = ATTRIBUTE[kind][attribute]
            assert type(value._obj) is ctype and size == ctypes.sizeof(ctype)
            self.live[pointer.value][name] = value._obj.value
            return 0

        return set_attribute

    def cublasLtCreate(self, out: Any) -> int:
        out._obj.value = next(self.numbers)
        self.handles.append(out._obj.value)
        return 0

    def cublasLtGetStatusName(self, status: int) -> bytes:
        return {13: b"CUBLAS_STATUS_EXECUTION_FAILED", 15: b"CUBLAS_STATUS_NOT_SUPPORTED"}.get(status, b"CUBLAS_?")

    def cublasLtMatmulAlgoGetHeuristic(self, *args: Any) -> int:
        *_, preference, count, results, found = args
        self.preference = dict(self.live[preference.value])
        offers = self.offers[:count]
        for i, workspace in enumerate(offers):
            result = results._obj[i]
            result.workspace_size, result.state, result.waves = workspace, self.states[i], self.waves[i]
            result.algo[0] = 100 + i
        found._obj.value = len(offers)
        return self.heuristic_status

    def cublasLtMatmul(self, *args: Any) -> int:
        call = SimpleNamespace(**dict(zip(ARGUMENTS, args, strict=True)))
        for name in ("op", "a_layout", "b_layout", "c_layout", "d_layout"):
            setattr(call, name, dict(self.live[getattr(call, name).value]))
        call.algo = ctypes.c_uint64.from_address(call.algo.value).value
        self.calls.append(call)
        return self.matmul_status


class FakeRuntime:
    """The part of a CUDA runtime that a library needs: which device is current."""

    def __init__(self) -> None:
        self.device = 7
        self.visited: list[int] = []

    def current_device(self) -> int:
        return self.device

    def use_device(self, ordinal: int) -> None:
        self.device = ordinal
        self.visited.append(ordinal)


def install(lib: FakeCublas, patch: pytest.MonkeyPatch) -> FakeRuntime:
    runtime = FakeRuntime()
    patch.setattr(cublas, "_cublas", lambda: lib)
    patch.setattr(cublas, "_free_handles", {})
    patch.setattr(cublas, "_leases", cublas._Leases())
    patch.setattr(launch, "_fake", runtime)
    return runtime


def run(gemm: Gemm, **change: Any) -> None:
    args = {"a": 1 << 12, "b": 2 << 12, "c": 0, "d": 3 << 12, "alpha": 1.0, "beta": 0.0, "workspace": 4 << 12}
    gemm.run(**(args | {"workspace_bytes": gemm.workspace_size, "stream": 5} | change))
