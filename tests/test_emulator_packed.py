"""Products of a warp emulated whose left operand is 2:4 sparse, and of bits, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.jit import Unit
from baracuda_py.testing.emulator import run_kernel, translated

pytestmark = pytest.mark.usefixtures("emulation")

CODE = """
#include <baracuda/mma_bits.cuh>
#include <baracuda/mma_sparse.cuh>
using namespace baracuda;
struct P { const u32* a; const u32* b; const u32* places; void* y; };
// Rows of a of 32 bytes, columns of b of 32 · N bytes, of k; rows of places of 4 bytes, or 8 of bytes.
template <int N> BARACUDA_D void fragments(const P& p, u32 (&a)[4], u32 (&b)[2 * N]) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  for (int r = 0; r < 4; ++r) a[r] = p.a[(g + r % 2 * 8) * 8 + t + r / 2 * 4];
  for (int r = 0; r < 2 * N; ++r) b[r] = p.b[g * 8 * N + t + 4 * r];
}
template <class S> BARACUDA_D void put(const P& p, const S (&d)[4]) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  for (int e = 0; e < 4; ++e) static_cast<S*>(p.y)[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = d[e];
}
template <class T> BARACUDA_D void sparse(const P& p) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  u32 a[4], b[4];
  fragments<2>(p, a, b);
  conditional<is_half<T>, float, int> d[4] = {1, -1, 1, -1};
  const u32 places = is_half<T> ? metadata_of(p.places[g], p.places[g + 8]) : p.places[(g + t % 2 * 8) * 2 + t / 2];
  mma_sparse<T>(d, a, b, places);
  put(p, d);
}
BARACUDA_D void bits(const P& p) {
  u32 a[4], b[2];
  fragments<1>(p, a, b);
  int d[4] = {1, -1, 1, -1};
  mma_bits(d, a, b);
  put(p, d);
}
extern "C" __global__ void sparse_f16(const __grid_constant__ P p) { sparse<f16>(p); }
extern "C" __global__ void sparse_bf16(const __grid_constant__ P p) { sparse<bf16>(p); }
extern "C" __global__ void sparse_i8(const __grid_constant__ P p) { sparse<i8>(p); }
extern "C" __global__ void bits_differ(const __grid_constant__ P p) { bits(p); }
"""
DTYPES = {"sparse_f16": np.float16, "sparse_bf16": ml_dtypes.bfloat16, "sparse_i8": np.int8}
UNIT = Unit("emulator_packed", CODE, symbols=(*DTYPES, "bits_differ"))
ADDED = np.tile([1, -1], (16, 4))


def run(name: str, y: np.ndarray, *operands: np.ndarray) -> Any:
    places = [x.ctypes.data for x in operands] + [0] * (3 - len(operands))
    params = np.array([*places, y.ctypes.data], np.uint64).tobytes()
    run_kernel(translated(UNIT, "sm_80", name), name, (1, 1, 1), (32, 1, 1), 0, params, 1)
    return y


@pytest.mark.parametrize("name", DTYPES)
def test_sparse_products(name: str) -> None:
    rng, dtype = np.random.default_rng(0), np.dtype(DTYPES[name])
    k, whole = 64 // dtype.itemsize, dtype == np.int8
    dense, x = (rng.integers(-8, 9, (rows, k)).astype(dtype) for rows in (16, 8))
    values, metadata = bc.sparse24_compress(dense)
    y = run(name, np.zeros((16, 8), np.int32 if whole else np.float32), values, x, metadata)
    pruned = bc.sparse24_prune(dense).astype(np.float64)
    assert (y == pruned @ x.astype(np.float64).T + ADDED).all()


def test_bits_that_differ() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, (rows, 32), dtype=np.uint8) for rows in (16, 8))
    y = run("bits_differ", np.zeros((16, 8), np.int32), a, b)
    assert (y == np.unpackbits(a[:, None] ^ b, axis=-1).sum(-1) + ADDED).all()
