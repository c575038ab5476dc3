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
template <class T> BARACUDA_D u32 nonfinite_signs(u32 pair) {  // 0x8000 in each half that is not finite
  return ((pair & exponent_pair<T>)+exponent_step<T>)&0x80008000u;
}

// Whether a tile holds an infinite or NaN element; called by all THREADS of the block, which all get the answer.
template <int WORDS, int THREADS, class T> BARACUDA_D bool has_nonfinite(const T* tile) {
  const uint4* const words = reinterpret_cast<const uint4*>(tile);
  u32 found = 0;
#pragma unroll 4
  for (int n = threadIdx.x; n < WORDS / 4; n += THREADS) {
    const uint4 x = words[n];
    found |= nonfinite_signs<T>(x.x) | nonfinite_signs<T>(x.y) | nonfinite_signs<T>(x.z) | nonfinite_signs<T>(x.w);
  }
  return __syncthreads_or(found != 0);
}
template <int WORDS, int THREADS, class T> BARACUDA_D void clear_nonfinite(T* tile) {
  u32* const words = reinterpret_cast<u32*>(tile);
#pragma unroll 1
  for (int n = threadIdx.x; n < WORDS; n += THREADS) words[n] &= ~((nonfinite_signs<T>(words[n]) >> 15) * 0xffffu);
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
BARACUDA_D void score(float (&s)[MT][KEYS / 8][4], const tile::Reader<D, false>& query,
                      const tile::Reader<D, true>& key, u32 at) {
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

// acc += weights times the infinite and NaN values of a tile, key by key: keys that is_seen(row, key) denies a row of
// the warp add nothing; keys from `left` on are zeros. value(j, n, e): column e of the lane, of piece n, of the tile's
// row j.
template <int D, int MT, int KEYS, bool RUNS, class Value, class Seen>
BARACUDA_D void add_nonfinite_values(float (&acc)[MT][D / 8][4], const u32 (&weights)[MT][KEYS / 16][4],
                                     const Value& value, int left, const Seen& is_seen) {
  u64 weighty[MT][2][(KEYS + 63) / 64] = {};  // bits of the keys whose weight is not 0
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
        const u32 pair = weights[m][n / 2][n % 2 * 2 + half];
        weighty[m][half][n / 8] |= static_cast<u64>((pair & 0xffffu ? 1 : 0) | (pair >> 16 ? 2 : 0))
                                   << (n % 8 * 8 + lane_id() % 4 * 2);
      }
#pragma unroll
      for (u64& bits : weighty[m][half]) {
        bits |= __shfl_xor_sync(all_lanes, bits, 1);
        bits |= __shfl_xor_sync(all_lanes, bits, 2);
      }
    }
  }
#pragma unroll 1
  for (int j = 0; j < (RUNS ? KEYS : min(left, KEYS)); ++j) {
    const int key = RUNS ? tile::Runs<KEYS>::row(j) : j;
    // the factor of an infinite value: 1, NaN for a weight of 0, or 0 (adds nothing) where it is masked
    float due[MT][2];
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u64 bits = KEYS > 64 && j >= 64 ? weighty[m][half][(KEYS - 1) / 64] : weighty[m][half][0];
        const bool seen = is_seen(16 * m + lane_id() / 4 + 8 * half, key);
        due[m][half] = !seen ? 0.0f : bits >> j % 64 & 1 ? 1.0f : numeric<float>::nan();
      }
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {  // without branches, which compile ten times slower
      const float x[2] = {to_acc(value(j, n, 0)), to_acc(value(j, n, 1))};
#pragma unroll
      for (int m = 0; m < MT; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          acc[m][n][e] += math::isfinite(x[e % 2]) || due[m][e / 2] == 0.0f ? 0.0f : x[e % 2] * due[m][e / 2];
        }
      }
    }
  }
}

}  // namespace attention
}  // namespace baracuda
