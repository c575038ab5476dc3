#pragma once
// flash      what a warp of the tensor-core attention kernels keeps of its queries, and the online softmax on it
//            (Milakov and Gimelshein 2018).
//
// c = |scale| log2(e); a weight is 2^(s c - base) with base = max(s) c rounded, one fma and one exp2. The rounding of
// base cancels in y, and the lse takes it back out.
#include <baracuda/attention.cuh>
#include <baracuda/mma_tile.cuh>

namespace baracuda {
namespace attention {

// Exponent and lowest exponent bit of two packed elements: adding the latter to the former sets a sign bit where the
// exponent is all ones, that is, where the element is infinite or NaN.
template <class T> constexpr u32 exponent_pair = is_same<T, f16> ? 0x7c007c00u : 0x7f807f80u;
template <class T> constexpr u32 exponent_step = is_same<T, f16> ? 0x04000400u : 0x00800080u;
template <class T> BARACUDA_D u32 odd_signs(u32 pair) {  // 0x8000 in each half that is not finite
  return ((pair & exponent_pair<T>) + exponent_step<T>) & 0x80008000u;
}

// Whether a tile holds an infinite or NaN element; all THREADS of the block call, and all get the answer.
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
  } else {  // in halves: tensor cores cut bits off at every step of a long sum
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

// What a warp keeps: 16 MT rows of scores or weights, of outputs, and each row's running maximum and sum. Lane (g, t) of
// mma.sync's accumulators has rows g and g + 8 ("half" 0 and 1) of each 16.
template <class T, int D, int MT, int KEYS> struct Rows {
  static_assert(KEYS <= 128, "add_odd keeps two words of bits a row");
  float acc[MT][D / 8][4], s[MT][KEYS / 8][4], top[MT][2], sum[MT][2], factor[MT][2];
  bool moved;
  u32 weights[MT][KEYS / 16][4];

  BARACUDA_D Rows() {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n) acc[m][n][0] = acc[m][n][1] = acc[m][n][2] = acc[m][n][3] = 0.0f;
      top[m][0] = top[m][1] = -numeric<float>::infinity();
      sum[m][0] = sum[m][1] = 0.0f;
    }
  }

  // f(score, r, c) for each score, at row r and key c of the lane's own: see terms.cuh.
  template <class F> BARACUDA_D void each(const F& f) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) f(s[m][n][e], 16 * m + e / 2 * 8, 8 * n + e % 2);
      }
    }
  }
  // The warp's first row is query i, the tile's first key j.
  template <class Terms> BARACUDA_D void add(const Terms& terms, int i, int j) {
    terms.add_to([&](const auto& f) { each(f); }, i + lane_id() / 4, j + lane_id() % 4 * 2);
  }

  // A sink takes part in the sum like a key without a value: the rows begin with it.
  template <class Terms> BARACUDA_D void begin_with(const Terms& terms) {
    const float weight = lane_id() % 4 == 0 ? terms.sink_weight() : 0.0f;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      top[m][0] = top[m][1] = terms.sink;
      sum[m][0] = sum[m][1] = weight;
    }
  }

  // Zeros for the weights that dropout takes.
  template <class Terms> BARACUDA_D void drop(const Terms& terms, int i, int j) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
        const u32 kept = terms.kept_by_rows(i + 16 * m + lane_id() / 4, j + 8 * n + lane_id() % 4 * 2);
#pragma unroll
        for (int e = 0; e < 4; ++e) s[m][n][e] = kept >> e & 1 ? s[m][n][e] : 0.0f;
      }
    }
  }

  // -inf for keys from `left` on, and in row r of the warp before from + r and from past + r on.
  BARACUDA_D void mask(int left, int from, int past) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = 16 * m + lane_id() / 4 + e / 2 * 8, key = 8 * n + lane_id() % 4 * 2 + e % 2;
          if (key >= min(left, past + row) || key < from + row) s[m][n][e] = -numeric<float>::infinity();
        }
      }
    }
  }

  // -inf for keys whose bit is not set in their row's.
  BARACUDA_D void hide(const u64 (&seen)[MT][2]) {
    static_assert(KEYS <= 64, "a word of bits a row");
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u64 mine = seen[m][half] >> (lane_id() % 4 * 2);
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
          if (!(mine >> (8 * n) & 1)) s[m][n][2 * half] = -numeric<float>::infinity();
          if (!(mine >> (8 * n + 1) & 1)) s[m][n][2 * half + 1] = -numeric<float>::infinity();
        }
      }
    }
  }

  // Scores to weights 2^(s c - base), in place and added up; `factor` is for what was summed under the old maximum.
  BARACUDA_D void weigh(float c) {
    moved = false;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float high = top[m][half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) high = fmaxf(high, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
        high = fmaxf(high, __shfl_xor_sync(all_lanes, high, 1));
        high = fmaxf(high, __shfl_xor_sync(all_lanes, high, 2));
        const float base = high == -numeric<float>::infinity() ? 0.0f : high * c;  // the row may have seen nothing yet
        factor[m][half] = exp2_fast(top[m][half] * c - base);
        moved |= high != top[m][half];
        top[m][half] = high;
        float part = 0.0f;
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
          s[m][n][2 * half] = exp2_fast(math::fma(s[m][n][2 * half], c, -base));
          s[m][n][2 * half + 1] = exp2_fast(math::fma(s[m][n][2 * half + 1], c, -base));
          part += s[m][n][2 * half] + s[m][n][2 * half + 1];
        }
        sum[m][half] = math::fma(sum[m][half], factor[m][half], part);
      }
    }
  }
  BARACUDA_D void pack() {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          weights[m][n / 2][n % 2 * 2 + half] = pack_pair<T>(s[m][n][2 * half], s[m][n][2 * half + 1]);
        }
      }
    }
  }
  BARACUDA_D void rescale() {
    if (!__any_sync(all_lanes, moved)) return;  // every factor is 1
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[m][n][e] *= factor[m][e / 2];
      }
    }
  }

  // acc += weights times the infinite and NaN values of a tile, by hand: keys that seen(r, key) denies row r of the warp
  // add nothing. Layout::at(row, piece) says where a tile's pieces stand.
  template <class Layout, class Seen> BARACUDA_D void add_odd(const T* values, int left, const Seen& is_seen) {
    u64 weighty[MT][2][(KEYS + 63) / 64] = {};  // keys whose weight is not 0
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
    for (int j = 0; j < min(left, KEYS); ++j) {
      float due[MT][2];  // what an infinite value is multiplied by: 1, NaN for a weight of 0, nothing (0) where it is masked
#pragma unroll
      for (int m = 0; m < MT; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const u64 bits = KEYS > 64 && j >= 64 ? weighty[m][half][(KEYS - 1) / 64] : weighty[m][half][0];
          const bool seen = is_seen(16 * m + lane_id() / 4 + 8 * half, j);
          due[m][half] = !seen ? 0.0f : bits >> j % 64 & 1 ? 1.0f : numeric<float>::nan();
        }
      }
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {  // without branches, which compile ten times slower
        const T* const pair = values + Layout::at(j, n) + lane_id() % 4 * 2;
        const float x[2] = {to_acc(pair[0]), to_acc(pair[1])};
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

  // The outputs, divided by the sums and times `again`, to the warp's rows of a tile, from `row` on; lse[r] for r < rows
  // if lse is not null.
  template <class Layout>
  BARACUDA_D void finish(T* tile, int row, float* lse, int rows, float c, float scale, float again = 1.0f) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      float factor[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float total = sum[m][half] + __shfl_xor_sync(all_lanes, sum[m][half], 1);
        total += __shfl_xor_sync(all_lanes, total, 2);
        factor[half] = total == 0.0f ? 0.0f : again / total;
        const int r = 16 * m + 8 * half + lane_id() / 4;
        if (lse != nullptr && lane_id() % 4 == 0 && r < rows) {
          const float rest = math::fma(top[m][half], c, -(top[m][half] * c));  // what rounding took from base
          const float found = math::fma(top[m][half], scale, math::fma(rest, -ln_2<float>, math::log(total)));
          lse[r] = total == 0.0f ? -numeric<float>::infinity() : found;
        }
      }
#pragma unroll
      for (int n = 0; n < D / 8; ++n) tile::put<Layout>(tile, row + 16 * m, 8 * n, acc[m][n], factor[0], factor[1]);
    }
  }
};

}  // namespace attention
}  // namespace baracuda
