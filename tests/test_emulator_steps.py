"""Kernels as lists of steps do what the same kernels do as one function of C++, and compile what is new in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baracuda_py.jit import Unit
from baracuda_py.testing import emulator
from baracuda_py.testing.emulator import run_kernel, steps, translated
from baracuda_py.testing.emulator.translate import listed, translate

pytestmark = pytest.mark.usefixtures("emulation")

CODE = """
struct P { float* x; };
__device__ __noinline__ float called(float x, int n) { return n == 0 ? x : called(x + 1.0f, n - 1); }
__device__ const float TABLE[5] = {1.0f, -2.0f, 4.5f, 1e-40f, 8.0f};
extern "C" __global__ void walked(const __grid_constant__ P p) {  // branches, registers of braces, arrays of both kinds
  __shared__ float s[64];
  float mine[64];
  const int t = threadIdx.x;
  for (int n = 0; n < 64; ++n) mine[n] = p.x[(t + n) % 64] * TABLE[n % 5];
  s[t] = mine[int(p.x[t]) & 63];
  __syncthreads();
  float sum = 0.0f;
  for (int n = 0; n < 64; ++n) {
    if (mine[(n * t) & 63] > s[n]) sum += s[63 - n];
    else sum = __fmaf_rn(sum, 0.5f, mine[n]);
  }
  int other;
  asm volatile("{ .reg .pred q; .reg .b32 w; setp.gt.s32 q, %1, 20; @q bra DONE; add.s32 w, %1, -7; mov.b32 %0, w;"
               " bra OUT; DONE: mov.b32 %0, -1; OUT: }" : "=r"(other) : "r"(t));
  p.x[64 + t] = sum + __shfl_xor_sync(~0u, sum, 5) + other;
}
extern "C" __global__ void calls(const __grid_constant__ P p) {
  p.x[64 + threadIdx.x] = called(p.x[threadIdx.x], threadIdx.x);
}
"""  # fmt: skip
UNIT = Unit("steps_test", CODE, symbols=("walked", "calls"))


def run(kernel: Any, name: str) -> bytes:
    x = np.random.default_rng(1).normal(0, 30, 128).astype(np.float32)
    run_kernel(kernel, name, (1, 1, 1), (64, 1, 1), 0, np.uint64(x.ctypes.data).tobytes(), 1)
    return x.tobytes()


def as_library(name: str) -> Any:
    return emulator._library(name, "-O0", lambda: translate(emulator.ptx(UNIT, "sm_80"), name))


def test_steps_give_the_bits_of_one_function() -> None:
    kernel = translated(UNIT, "sm_80", "walked")
    assert isinstance(kernel, emulator.Kernel)
    assert run(kernel, "walked") == run(as_library("walked"), "walked")


def test_a_kernel_that_calls_functions_is_a_library() -> None:
    assert listed(emulator.ptx(UNIT, "sm_80"), "calls") is None
    kernel = translated(UNIT, "sm_80", "calls")
    assert not isinstance(kernel, emulator.Kernel)
    x = np.frombuffer(run(kernel, "calls"), np.float32)
    assert np.allclose(x[64:], x[:64] + np.arange(64), rtol=1e-4)


def test_a_kind_of_step_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))

    def made(*statements: str) -> int:
        listing = steps.listing(statements, {"_r": ("b32", 9)}, {}, {}, (0, 0))
        process = emulator._Functions()
        process.addresses(listing.kinds)
        return len(list(tmp_path.rglob("*.so")))

    assert made("_r[1] = u32(_r[2]) + u32(7);", "L:;", "if (_r[3]) { goto L; }") == 1
    assert made("_r[8] = u32(_r[8]) + u32(-9);", "leave(t);") == 1, "registers and numbers are operands"
    assert made("_r[8] = u32(_r[8]) + u32(0x9u);") == 2, "and their types are not"


def test_numbers_have_the_types_of_cpp() -> None:
    texts = ["1", "-1", "2147483648", "0x7fffffff", "0xffffffff", "0xffffffffffffffff", "1u", "0x1ull"]
    kinds = ["s32", "s32", "s64", "s32", "u32", "u64", "u32", "u64"]
    made = steps.listing([f"f({', '.join(texts)});"], {}, {}, {}, (0, 0))
    assert made.kinds[0] == f"f({', '.join(f'{kind}(o[{n}])' for n, kind in enumerate(kinds))});"


def test_steps_are_kept_whatever_compiles_their_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made by NVRTC and by Python, which take longer than all functions do."""
    translated(UNIT, "sm_80", "walked")
    translated.cache_clear()
    monkeypatch.setattr(emulator, "_FLAGS", (*emulator._FLAGS, "-DOTHER"))
    monkeypatch.delattr(emulator, "ptx")
    assert isinstance(translated(UNIT, "sm_80", "walked"), emulator.Kernel)
