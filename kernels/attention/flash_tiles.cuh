#pragma once
// flash_tiles    operations of the tensor-core attention kernels on tiles of keys and values in shared memory: products
//                by mma.sync, and the search for elements that are infinite or NaN.
#include <baracuda/mma_tile.cuh>

namespace baracuda {
namespace attention {

// The exponent bits of two packed elements, and their lowest exponent bit: adding the latter to the former sets the
// sign bit where the exponent is all ones, that is, where the element is infinite or NaN.
template <class T> constexpr u32 exponent_pair = is_same<T, f16> ? 0x7c007c00u : 0x7f807f80u;
template <class T> constexpr u32 exponent_step = is_same<T, f16> ? 0x04000400u : 0x00800080u;
template <class T> BARACUDA_D u32 odd_signs(u32 pair) {  // 0x8000 in each half that is not finite
  return ((pair & exponent_pair<T>) + exponent_step<T>) & 0x80008000u;
}

// Whether a tile holds an infinite or NaN element; called by all THREADS of the block, which all get the answer.
template <int WORDS, int THREADS, class T> BARACUDA_D bool has_odd(const T* tile) {
  const uint4* const words = reinterpret_cast<const uint4*>(tile);
  u32 found = 0;
#pragma unroll 4
  for (int n = threadIdx.x; n < WORDS / 4; n += THREADS) {
    const uint4 x = words[n];
    found |= odd_signs<T>(x.x) | odd_signs<T>(x.y) | odd_signs<T>(x.z) | odd_signs<T>(x.w);
  }
  return __syncthreads_or(found != 0);
}
template <int WORDS, int THREADS, class T> BARACUDA_D void clear_odd(T* tile) {
  u32* const words = reinterpret_cast<u32*>(tile);
#pragma unroll 1
  for (int n = threadIdx.x; n < WORDS; n += THREADS) words[n] &= ~((odd_signs<T>(words[n]) >> 15) * 0xffffu);
}

// s += q kᵀ; the tiles stand `query_at` and `key_at` bytes behind those of the readers.
template <class T, int D, int MT, int KEYS, int FROM = 0, int TO = D>
BARACUDA_D void add_scores(float (&s)[MT][KEYS / 8][4], const tile::Reader<D, false>& query,
                           const tile::Reader<D, true>& key, u32 query_at, u32 key_at) {
#pragma unroll
  for (int d = FROM; d < TO; d += 16) {
    u32 x[MT][4];
#pragma unroll
    for (int m = 0; m < MT; ++m) query.read(x[m], 16 * m, d, query_at);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n += 2) {
      u32 y[4];
      key.read(y, 8 * n, d, key_at);
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        mma_m16n8k16<T>(s[m][n], x[m], {y[0], y[1]});
        mma_m16n8k16<T>(s[m][n + 1], x[m], {y[2], y[3]});
      }
    }
  }
}

// s = q kᵀ
template <class T, int D, int MT, int KEYS>
BARACUDA_D void score(float (&s)[MT][KEYS / 8][4], const tile::Reader<D, false>& query, const tile::Reader<D, true>& key,
                      u32 at) {
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.0f;
  }
  if constexpr (D <= 256) {
    add_scores<T, D, MT, KEYS>(s, query, key, 0, at);
  } else {  // in halves: tensor cores truncate at every step of a long sum
    float rest[MT][KEYS / 8][4] = {};
    add_scores<T, D, MT, KEYS, 0, D / 2>(s, query, key, 0, at);
    add_scores<T, D, MT, KEYS, D / 2, D>(rest, query, key, 0, at);
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s[m][n][e] += rest[m][n][e];
      }
    }
  }
}

// acc += weights v
template <class T, int D, int MT, int KEYS>
BARACUDA_D void multiply(float (&acc)[MT][D / 8][4], const u32 (&weights)[MT][KEYS / 16][4],
                         const tile::Reader<D, false>& value, u32 at) {
#pragma unroll
  for (int j = 0; j < KEYS; j += 16) {
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      u32 y[4];
      value.read_transposed(y, j, 8 * n, at);
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        mma_m16n8k16<T>(acc[m][n], weights[m][j / 16], {y[0], y[1]});
        mma_m16n8k16<T>(acc[m][n + 1], weights[m][j / 16], {y[2], y[3]});
      }
    }
  }
}

}  // namespace attention
}  // namespace baracuda
