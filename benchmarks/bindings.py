"""Host cost of a library call by what binds it: ctypes and nvmath-python, over functions that return at once. No GPU.

    python benchmarks/bindings.py

Nanoseconds of CPU a call, best of nine rounds. The library is a stand-in that g++ makes, in a process of its own: no
other may meet a driver that is none. `Gemm.run` is the whole call of a prepared product.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import checkout  # noqa: F401

_NAMES = {"cublasLt": "libcublasLt.so.12", "cublas": "libcublas.so.12"}
_CODE = """extern "C" {
int cuDriverGetVersion(int* version) { *version = 12090; return 0; }
int cublasLtCreate(void** handle) { *handle = (void*)1; return 0; }
int cublasLtMatmul() { return 0; }
int cublasGemmEx() { return 0; }
int cublasGemmStridedBatchedEx() { return 0; }
}"""


def cost(call: Callable[[], Any], calls: int) -> float:
    """Nanoseconds."""
    return min(timeit.repeat(call, number=calls, repeat=9, timer=time.process_time)) / calls * 1e9


def rows(folder: Path) -> dict[str, Callable[[], Any]]:
    """Name → a call, on the stand-in."""
    import numpy as np
    from cuda import pathfinder

    def find(name: str) -> Any:
        if name not in _NAMES:
            raise pathfinder.DynamicLibNotFoundError(name)
        path = str(folder / _NAMES[name])
        return SimpleNamespace(abs_path=path, _handle_uint=ctypes.CDLL(path, ctypes.RTLD_GLOBAL)._handle)

    pathfinder.load_nvidia_dynamic_lib = find
    from baracuda_py.backends import cublas, library
    from baracuda_py.core.device import fake_device
    from baracuda_py.jit import launch

    library.cupy_major = lambda: 12  # type: ignore[attr-defined]
    launch._fake = SimpleNamespace(current_device=lambda: 0, use_device=lambda ordinal: None)  # type: ignore[assignment]
    lt = cublas.CUBLAS_LT.bindings
    from nvmath.bindings import cublas as blas

    c_float, address = ctypes.c_float, ctypes.addressof
    plain = ctypes.CDLL(str(folder / _NAMES["cublasLt"])).cublasLtMatmul
    plain.argtypes = [*[ctypes.c_void_p] * 14, ctypes.c_size_t, ctypes.c_void_p]
    p = [0x1000 * (i + 1) for i in range(14)]
    gemm = (1, 0, 0, 8, 8, 8, p[0], p[1], 0, 8, p[2], 0, 8, p[3], p[4], 0, 8, 68, -1)
    batched = (1, 0, 0, 8, 8, 8, p[0], p[1], 0, 8, 64, p[2], 0, 8, 64, p[3], p[4], 0, 8, 64, 2, 68, -1)
    found: dict[str, Callable[[], Any]] = {
        "ctypes cublasLtMatmul": lambda: plain(*p, 4096, 0),
        "nvmath cublasLt.matmul": lambda: lt.matmul(*p, 4096, 0),
        "nvmath cublasLt.matmul, two new scalars": lambda: lt.matmul(
            *p[:2], address(c_float(1.0)), *p[3:7], address(c_float(0.0)), *p[8:], 4096, 0
        ),
        "nvmath cublas.gemm_ex": lambda: blas.gemm_ex(*gemm),
        "nvmath cublas.gemm_strided_batched_ex": lambda: blas.gemm_strided_batched_ex(*batched),
    }
    matrix = cublas.Matrix("float16", False, 8)
    layouts: Any = dict.fromkeys("abcd", SimpleNamespace(pointer=1))
    for where, scalars in (("host", (1.0, 0.0)), ("device", (0x500, 0x504))):
        problem = cublas.GemmProblem(m=8, n=8, k=8, a=matrix, b=matrix, d=matrix, device_scalars=where == "device")
        choice = np.zeros(1, lt.matmul_heuristic_result_dtype)
        ready = cublas.Gemm(lt, problem, fake_device(9.0), layouts["a"], layouts, choice, None)
        found[f"Gemm.run, scalars on the {where}"] = lambda run=ready.run, s=scalars: run(*p[:4], *s, p[4], 4096, 0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stand_ins", nargs="?", type=Path, help=argparse.SUPPRESS)  # in the process that measures
    parser.add_argument("--calls", type=int, default=100_000, help="in each round (default: 100000)")
    given = parser.parse_args()
    if given.stand_ins is not None:
        for name, call in rows(given.stand_ins).items():
            print(f"{name:45s} {cost(call, given.calls):6.0f} ns", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "library.cpp")
        source.write_text(_CODE)
        for name in (*_NAMES.values(), "libcuda.so.1"):
            build = ["g++", "-O2", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", f"{folder}/{name}", str(source)]
            subprocess.run(build, check=True)
        own = [sys.executable, __file__, folder, "--calls", str(given.calls)]
        subprocess.run(own, check=True, env=os.environ | {"LD_LIBRARY_PATH": folder})


if __name__ == "__main__":
    main()
