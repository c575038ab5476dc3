"""Run by test_bindings.py in a process of its own: products on the recording library, reported as JSON."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cuda import pathfinder

_FOLDER = Path(sys.argv[1])
_NAMES = {"cublasLt": "libcublasLt.so.12"}


def _find(name: str) -> Any:
    """Only the recording library exists: NVRTC above all must not meet a driver that is none."""
    if name not in _NAMES:
        raise pathfinder.DynamicLibNotFoundError(name)
    path = str(_FOLDER / _NAMES[name])
    handle = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    return SimpleNamespace(abs_path=path, _handle_uint=handle._handle)


pathfinder.load_nvidia_dynamic_lib = _find

from baracuda_py.backends import library  # noqa: E402
from baracuda_py.backends.cublas import Gemm, GemmProblem, Matrix, prepare  # noqa: E402
from baracuda_py.core.device import fake_device  # noqa: E402
from baracuda_py.core.errors import BaracudaError  # noqa: E402
from baracuda_py.jit import launch  # noqa: E402

library.cupy_major = lambda: 12  # type: ignore[attr-defined]
launch._fake = SimpleNamespace(current_device=lambda: 0, use_device=lambda ordinal: None)  # type: ignore[assignment]

PROBLEM = GemmProblem(
    m=2, n=3, k=5, batch=4, compute="tf32", max_workspace=1 << 20, a=Matrix("float16", False, 6, 20, alignment=2),
    b=Matrix("bfloat16", True, 7, 0, alignment=4), d=Matrix("float32", False, 10, 40),
)  # fmt: skip


def run(gemm: Gemm, alpha: Any = 0.5, beta: Any = 0.25) -> None:
    gemm.run(1, 2, 0, 4, alpha, beta, 4096, 512, 5)


def error(act: Any) -> list[str]:
    try:
        act()
    except BaracudaError as error:
        return [type(error).__name__, str(error)]
    return []


def main() -> dict[str, Any]:
    recording = ctypes.CDLL(str(_FOLDER / _NAMES["cublasLt"]))
    recording.recording_report.restype = ctypes.c_char_p

    def read(which: int) -> Any:
        return json.loads(recording.recording_report(which))

    device = fake_device(9.0)
    gemm = prepare(PROBLEM, device)
    run(gemm)
    found: dict[str, Any] = {
        "heuristic": read(0), "call": read(1), "preference": read(2), "handle": 0x7001,
        "workspace_size": gemm.workspace_size, "waves": gemm.waves,
    }  # fmt: skip
    on_device = prepare(GemmProblem(**{**PROBLEM.__dict__, "device_scalars": True}), device)
    run(on_device, 0x500, 0x504)
    found["device"] = read(1)
    halves = {name: Matrix("float16", False, 8) for name in "abd"}
    beside = GemmProblem(m=2, n=8, k=8, **halves, beside=("bias", "scale_a"), activation="relu", scaled_lines=True)
    prepare(beside, device).run(1, 2, 0, 4, 1.0, 0.0, 4096, 512, 5, (0x123456789, 0x600))
    found["beside"] = read(1)["op"]
    small = {name: Matrix("float8_e4m3fn", name == "b", 32) for name in "abd"}
    prepare(GemmProblem(m=2, n=16, k=16, **small), device).run(1, 2, 0, 4, 1.0, 0.0, 4096, 512, 5)
    found["fp8"] = read(1)
    for name, status in (("failed", 13), ("unsupported", 15)):
        recording.recording_fail(status)
        found[name] = error(partial(run, gemm))
    found["no algorithm"] = error(partial(prepare, PROBLEM, device))
    del gemm, on_device
    gc.collect()
    return found | {"live": [recording.recording_live(0), recording.recording_live(1)]}


print(json.dumps(main()))
