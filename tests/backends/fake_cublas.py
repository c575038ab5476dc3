"""A library and a runtime that record what they are told."""

from __future__ import annotations

import ctypes
import itertools
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from baracuda_py.backends import library
from baracuda_py.backends.cublas import CUBLAS_LT, Gemm
from baracuda_py.jit import launch

KINDS = ("matrix_layout", "matmul_desc", "matmul_preference")
ATTRIBUTE = {  # number -> (name, dtype), read from cublasLt.h
    "matrix_layout": {5: ("batch", np.int32), 6: ("batch_stride", np.int64)},
    "matmul_desc": {
        2: ("pointer_mode", np.int32),
        3: ("op_a", np.int32),
        4: ("op_b", np.int32),
        7: ("epilogue", np.uint32),
        8: ("bias", np.int64),
        17: ("scale_a", np.int64),
        18: ("scale_b", np.int64),
        20: ("scale_d", np.int64),
        31: ("scale_a_mode", np.int32),
        32: ("scale_b_mode", np.int32),
    },
    "matmul_preference": {
        1: ("workspace", np.uint64),
        3: ("reduction", np.uint32),
        5: ("align_a", np.uint32),
        6: ("align_b", np.uint32),
        7: ("align_c", np.uint32),
        8: ("align_d", np.uint32),
    },
}
ARGUMENTS = ("handle", "op", "alpha", "a", "a_layout", "b", "b_layout", "beta", "c", "c_layout", "d", "d_layout",
             "algo", "workspace", "nbytes", "stream")  # fmt: skip


class FakeError(Exception):
    """As the bindings raise where a status is not 0."""

    def __init__(self, status: int) -> None:
        self.status = status


def check(status: int) -> None:
    if status:
        raise FakeError(status)


class FakeCublas:
    """The bindings, recording descriptors, attributes and calls; the heuristic offers `offers` (workspace bytes)."""

    MatrixLayoutAttribute = IntEnum("MatrixLayoutAttribute", {"BATCH_COUNT": 5, "STRIDED_BATCH_OFFSET": 6})
    MatmulDescAttribute = IntEnum(
        "MatmulDescAttribute",
        {
            "POINTER_MODE": 2, "TRANSA": 3, "TRANSB": 4, "EPILOGUE": 7, "BIAS_POINTER": 8, "A_SCALE_POINTER": 17,
            "B_SCALE_POINTER": 18, "D_SCALE_POINTER": 20, "A_SCALE_MODE": 31, "B_SCALE_MODE": 32,
        },
    )  # fmt: skip
    MatmulPreferenceAttribute = IntEnum(
        "MatmulPreferenceAttribute",
        {"MAX_WORKSPACE_BYTES": 1, "REDUCTION_SCHEME_MASK": 3}
        | {f"MIN_ALIGNMENT_{place}_BYTES": 5 + i for i, place in enumerate("ABCD")},
    )
    cuBLASLtError = FakeError
    matmul_heuristic_result_dtype = np.dtype(
        [("algo", [("data_", "<u8", (8,))]), ("workspace_size", "<u8"), ("state", "<i4"), ("waves_count", "<f4"),
         ("reserved", "<i4", (4,))])  # fmt: skip

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
            setattr(self, f"{kind}_create", self._creator(kind))
            setattr(self, f"{kind}_set_attribute", self._setter(kind))
            setattr(self, f"{kind}_destroy", lambda pointer: check(self.live.pop(pointer) is None))
            setattr(self, f"get_{kind}_attribute_dtype", lambda attribute, kind=kind: ATTRIBUTE[kind][attribute][1])

    def _creator(self, kind: str) -> Any:
        def create(*args: int) -> int:
            pointer = next(self.numbers)
            self.live[pointer] = {"kind": kind, "args": args}
            return pointer

        return create

    def _setter(self, kind: str) -> Any:
        def set_attribute(pointer: int, attribute: int, at: int, size: int) -> None:
            name, dtype = ATTRIBUTE[kind][attribute]
            assert size == np.dtype(dtype).itemsize
            self.live[pointer][name] = int(np.frombuffer(ctypes.string_at(at, size), dtype)[0])

        return set_attribute

    def create(self) -> int:
        self.handles.append(next(self.numbers))
        return self.handles[-1]

    def get_status_name(self, status: int) -> str:
        return {7: "CUBLAS_STATUS_INVALID_VALUE", 13: "CUBLAS_STATUS_EXECUTION_FAILED",
                15: "CUBLAS_STATUS_NOT_SUPPORTED"}.get(status, "CUBLAS_?")  # fmt: skip

    def matmul_algo_get_heuristic(self, *args: Any) -> None:
        *_, preference, count, results, found = args
        self.preference = dict(self.live[preference])
        check(self.heuristic_status)
        offers = self.offers[:count]
        dtype = self.matmul_heuristic_result_dtype
        room = (ctypes.c_char * (count * dtype.itemsize)).from_address(results)
        for i, (result, workspace) in enumerate(zip(np.frombuffer(room, dtype), offers, strict=False)):
            result["workspace_size"], result["state"], result["waves_count"] = workspace, self.states[i], self.waves[i]
            result["algo"]["data_"][0] = 100 + i
        ctypes.c_int.from_address(found).value = len(offers)

    def matmul(self, *args: Any) -> None:
        call = SimpleNamespace(**dict(zip(ARGUMENTS, args, strict=True)))
        for name in ("op", "a_layout", "b_layout", "c_layout", "d_layout"):
            setattr(call, name, dict(self.live[getattr(call, name)]))
        call.algo = ctypes.c_uint64.from_address(call.algo).value
        if not call.op["pointer_mode"]:
            ctype = ctypes.c_double if call.op["args"][1] == 1 else ctypes.c_float
            call.alpha, call.beta = (ctype.from_address(at).value for at in (call.alpha, call.beta))
        self.calls.append(call)
        apart = call.c_layout != call.d_layout  # as the library: C is somewhere, and D only where it is laid out as D
        check(self.matmul_status or (7 if not call.c or (apart and call.c == call.d) else 0))


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
    patch.setitem(CUBLAS_LT.__dict__, "bindings", lib)
    patch.setitem(CUBLAS_LT.__dict__, "error", FakeError)
    patch.setattr(CUBLAS_LT, "_free", {})
    patch.setattr(CUBLAS_LT, "_leases", library._Leases())
    patch.setattr(launch, "_fake", runtime)
    return runtime


def run(gemm: Gemm, **change: Any) -> None:
    args = {"a": 1 << 12, "b": 2 << 12, "c": 0, "d": 3 << 12, "alpha": 1.0, "beta": 0.0, "workspace": 4 << 12}
    gemm.run(**(args | {"workspace_bytes": gemm.workspace_size, "stream": 5} | change))
