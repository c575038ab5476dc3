"""Products emulated: of a warpgroup, of every element and width, and of a warp in double, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.jit import Unit
from baracuda_py.testing.emulator import run_kernel, translated
from baracuda_py.testing.layouts import aligned_bytes

pytestmark = pytest.mark.usefixtures("emulation")

ELEMENTS = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "float": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip
WIDTHS = {"f16": (256,), "bf16": (256,), "float": (64, 128, 256), "e4m3": (64, 128, 256), "e5m2": (64, 128, 256)}
CASES = [(element, n) for element, widths in WIDTHS.items() for n in widths]

CODE = """
#include <baracuda/wgmma_wide.cuh>
using namespace baracuda;
struct P { const uint4* tiles; float* y; };
// Rows of 128 bytes, in the swizzle already: 64 of a, then N of b; y = a b over all of k.
template <class T, int N> BARACUDA_D void product(const P& p) {
  BARACUDA_DYNAMIC_SMEM(unsigned char, s);
  unsigned char* const tiles = s + (1024 - smem_address(s) % 1024) % 1024;
  for (int n = threadIdx.x; n < (64 + N) * 8; n += 128) reinterpret_cast<uint4*>(tiles)[n] = p.tiles[n];
  wgmma_publish();
  __syncthreads();
  float d[N / 8][4];
  const u64 a = wgmma_operand(tiles), b = wgmma_operand(tiles + 64 * 128);
  wgmma_fence();
  for (int k = 0; k < 4; ++k) {
    if constexpr (sizeof(T) == 2) wgmma<T, false, false>(d, a + 2 * k, b + 2 * k, k != 0);
    else wgmma_along<T>(d, a + 2 * k, b + 2 * k, k != 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  hold(d);
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int n = 0; n < N / 8; ++n) {
    for (int e = 0; e < 4; ++e) p.y[(row + e / 2 * 8) * N + 8 * n + column + e % 2] = d[n][e];
  }
}
"""
ENTRY = 'extern "C" __global__ void {name}(const __grid_constant__ P p) {{ product<{element}, {n}>(p); }}\n'
NAMES = tuple(f"{element}_{n}" for element, n in CASES)
UNIT = Unit(
    "emulator_products",
    CODE + "".join(ENTRY.format(name=f"{element}_{n}", element=element, n=n) for element, n in CASES),
    symbols=NAMES,
)


def swizzled(rows: np.ndarray) -> np.ndarray:
    """Rows of 128 bytes as they lie in shared memory."""
    pieces = np.ascontiguousarray(rows).view(np.uint8).reshape(-1, 8, 16)
    order = np.arange(8)[None, :] ^ np.arange(len(pieces))[:, None] % 8
    return np.take_along_axis(pieces, order[:, :, None], 1).reshape(-1)


@pytest.mark.parametrize(("element", "n"), CASES)
def test_products(element: str, n: int) -> None:
    dtype, rng = ELEMENTS[element], np.random.default_rng(n)
    k = 128 // dtype.itemsize
    a, b = (rng.integers(-8, 9, (rows, k)).astype(np.float32) / 4 for rows in (64, n))
    if element == "float":  # digits that are not read
        a[0, 0], b[0, 0] = np.nextafter(np.float32(1), np.float32(2)), np.float32(1)
    tiles = aligned_bytes((64 + n) * 128)
    tiles[:] = np.concatenate([swizzled(x.astype(dtype)) for x in (a, b)])
    y = np.full((64, n), np.nan, np.float32)
    params = np.array([tiles.ctypes.data, y.ctypes.data], np.uint64).tobytes()
    name = f"{element}_{n}"
    run_kernel(translated(UNIT, "sm_90a", name), name, (1, 1, 1), (128, 1, 1), 1024 + len(tiles), params, 1)
    a[0, 0] = np.float32(1) if element == "float" else a[0, 0]
    assert (y == a.astype(np.float64) @ b.astype(np.float64).T).all()


DOUBLES = """
#include <baracuda/mma_f64.cuh>
using namespace baracuda;
struct P { const double* a; const double* b; double* y; };
extern "C" __global__ void doubles(const __grid_constant__ P p) {
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  double d[2] = {1.0, -1.0};
  for (int k = 0; k < 8; k += 4) mma_m8n8k4(d, p.a[g * 8 + k + t], p.b[(k + t) * 8 + g]);
  p.y[g * 8 + 2 * t] = d[0], p.y[g * 8 + 2 * t + 1] = d[1];
}
"""


def test_products_in_double() -> None:
    """Integers whose sums pass 32 bits; what is added to has 1 in even columns and -1 in odd ones."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(2**24), 2**24, (8, 8)).astype(np.float64) for _ in range(2))
    y = np.full((8, 8), np.nan)
    params = np.array([x.ctypes.data for x in (a, b, y)], np.uint64).tobytes()
    unit = Unit("emulator_doubles", DOUBLES, symbols=("doubles",))
    run_kernel(translated(unit, "sm_80", "doubles"), "doubles", (1, 1, 1), (32, 1, 1), 0, params, 1)
    assert (y == a @ b + np.tile([1.0, -1.0], 4)).all()
