"""The emulator tells what it is there to tell: each kernel here is right, or wrong in one way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from baracuda_py.jit import Unit
from baracuda_py.testing import emulator
from baracuda_py.testing.emulator import EmulationError, run_kernel, translated

pytestmark = pytest.mark.usefixtures("emulation")

CODE = """
#include <baracuda/pipeline.cuh>
#include <baracuda/wgmma.cuh>
using namespace baracuda;
struct P { float* x; int how; };
extern "C" __global__ void reversed(const __grid_constant__ P p) {  // how 1: without a barrier
  __shared__ float s[128];
  s[threadIdx.x] = p.x[threadIdx.x];
  if (p.how == 0) __syncthreads();
  p.x[threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void copied(const __grid_constant__ P p) {  // how 1: waits for a group that was never committed
  __shared__ alignas(16) float s[128];
  cp_async_16(s + 4 * threadIdx.x, p.x + 4 * threadIdx.x);
  if (p.how == 0) cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  for (int n = 0; n < 4; ++n) p.x[128 + 4 * threadIdx.x + n] = s[(4 * threadIdx.x + n + 4) % 128];
}
extern "C" __global__ void met(const __grid_constant__ P p) {  // how 1: a warp goes elsewhere
  if (p.how == 0 || threadIdx.x >= 32) sync_threads<64>(1);
  p.x[threadIdx.x] = 1.0f;
}
extern "C" __global__ void counted(const __grid_constant__ P p) {  // how 1: one arrival too few
  __shared__ Barrier b;
  if (threadIdx.x == 0) b.init(64 + p.how);
  __syncthreads();
  b.arrive();
  b.wait(0);
  p.x[threadIdx.x] = 1.0f;
}
extern "C" __global__ void slept(const __grid_constant__ P p) {  // how many times a thread asks for a phase
  __shared__ Barrier b[2];
  if (threadIdx.x < 2) b[threadIdx.x].init(1);
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 asked = 0, over = 0;
    for (; over == 0; ++asked) {
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                   : "=r"(over) : "r"(smem_address(b)) : "memory");
    }
    p.x[0] = asked, p.x[1] = p.x[2];
  } else if (threadIdx.x >= 32) {
    for (int n = 1; n < 99; ++n) {
      p.x[2] = __shfl_xor_sync(~0u, n, 1);
      if (threadIdx.x == 32) (n == 50 ? b[1].arrive() : n == 98 ? b[0].arrive() : void());
    }
  }
}
extern "C" __global__ void inside(const __grid_constant__ P p) {  // how 1: past the end of shared memory
  BARACUDA_DYNAMIC_SMEM(float, s);
  s[threadIdx.x + p.how] = 1.0f;
  p.x[threadIdx.x] = s[threadIdx.x + p.how];
}
extern "C" __global__ void multiplied(const __grid_constant__ P p) {  // how 1: no fence; 2: overwritten too early
  BARACUDA_DYNAMIC_SMEM(f16, s);
  f16* const a = s + (1024 - smem_address(s) % 1024) % 1024 / 2;
  for (int n = threadIdx.x; n < 64 * 64; n += 128) a[n] = f16(1.0f);
  if (p.how != 1) wgmma_publish();
  __syncthreads();
  float d[8][4];
  wgmma_fence();
  wgmma<f16, false, false>(d, wgmma_operand(a), wgmma_operand(a), 0);
  wgmma_commit();
  if (p.how == 2) a[0] = f16(2.0f);
  wgmma_wait<0>();
  hold(d);
  p.x[threadIdx.x] = d[0][0];
}
"""
NAMES = ("reversed", "copied", "met", "counted", "slept", "inside", "multiplied")
UNIT = Unit("emulator_test", CODE, symbols=NAMES)


def run(name: str, how: int, threads: int, smem: int = 0, seed: int = 1) -> np.ndarray:
    """256 floats, 0 … 255, after a kernel."""
    x = np.arange(256, dtype=np.float32)
    params = np.array([x.ctypes.data, how], np.uint64).tobytes()
    run_kernel(translated(UNIT, "sm_90a", name), name, (1, 1, 1), (threads, 1, 1), smem, params, seed)
    return x


def test_a_barrier_orders_threads_and_its_lack_shows() -> None:
    wanted = np.arange(128)[::-1]
    assert all((run("reversed", 0, 128, seed=seed)[:128] == wanted).all() for seed in range(4))
    assert not all((run("reversed", 1, 128, seed=seed)[:128] == wanted).all() for seed in range(4))


def test_copies_land_when_their_group_is_waited_for_and_not_before() -> None:
    assert (run("copied", 0, 32)[128:] == np.roll(np.arange(128), -4)).all()
    assert np.isnan(run("copied", 1, 32)[128:]).all()


@pytest.mark.parametrize("name", ["met", "counted"])
def test_threads_that_wait_for_ever_are_told(name: str) -> None:
    assert (run(name, 0, 64)[:64] == 1).all()
    with pytest.raises(EmulationError, match=r"all threads wait: \d+ at line \d+"):
        run(name, 1, 64)


@pytest.mark.parametrize("seed", range(4))
def test_a_thread_that_waits_for_a_phase_sleeps_until_it_ends(seed: int) -> None:
    """Whatever other phases end before."""
    assert run("slept", 0, 64, seed=seed)[:2].tolist() == [1, 98]


def test_shared_memory_has_bounds() -> None:
    assert (run("inside", 0, 64, 256)[:64] == 1).all()
    with pytest.raises(EmulationError, match=r"line \d+: outside shared memory \(0x100\), thread 63 of block 0"):
        run("inside", 1, 64, 256)


def test_operands_of_tensor_cores_are_fenced_and_left_alone() -> None:
    assert (run("multiplied", 0, 128, 9216)[:128] == 16).all()
    with pytest.raises(EmulationError, match="without a fence"):
        run("multiplied", 1, 128, 9216)
    with pytest.raises(EmulationError, match="may read it"):
        run("multiplied", 2, 128, 9216)


def test_libraries_are_those_of_this_cpu_and_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    assert b"__VERSION__" in emulator._machine("c++")

    def made() -> int:
        emulator._library("one", "-O0", lambda: "")
        return len(list(tmp_path.rglob("*.so")))

    assert [made(), made()] == [1, 1]
    monkeypatch.setattr(emulator, "_machine", lambda _: b"another")
    assert made() == 2
