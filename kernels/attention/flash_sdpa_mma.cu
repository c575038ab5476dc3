// flash_sdpa_mma    y[i] = sum_j softmax_j(scale q[i] k[j]) v[j];   lse[i] = log sum_j exp(scale q[i] k[j])
//
// One block a tile of queries of one head, q, k and v in swizzled shared memory by cp.async, both products on
// mma.sync m16n8k16. A warp owns 16 MT rows of the tile: scores and outputs stay in its registers, and a score tile is
// the second product's A operand as it stands, rounded to T. STAGES 1 keeps one tile of keys and one of values, each
// loaded while the other is multiplied; STAGES 2 keeps two of each and loads a whole tile ahead (one barrier a tile).
// Tiles of keys that no query of the block sees are not visited. The order of every sum is fixed by (element, D) and by
// where the tiles start, so neither the batch nor alignment changes a bit.
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

// What a warp keeps: 16 MT rows of scores or weights, of outputs, and each row's running maximum and sum. Lane (g, t) of
// mma.sync's accumulators has rows g and g + 8 ("half" 0 and 1) of each 16.
template <class T, int D, int MT, int KEYS> struct Rows {
  static_assert(KEYS <= 64, "a row's weights have a bit each");
  float acc[MT][D / 8][4], s[MT][KEYS / 8][4], top[MT][2], sum[MT][2];
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

  // s = q kᵀ
  BARACUDA_D void score(const tile::Reader<D, false>& query, const tile::Reader<D, true>& key, u32 at) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.0f;
    }
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      u32 x[MT][4];
#pragma unroll
      for (int m = 0; m < MT; ++m) query.read(x[m], 16 * m, d);
#pragma unroll
      for (int n = 0; n < KEYS / 8; n += 2) {
        u32 y[4];
        key.read(y, 8 * n, d, at);
#pragma unroll
        for (int m = 0; m < MT; ++m) {
          mma_m16n8k16<T>(s[m][n], x[m], {y[0], y[1]});
          mma_m16n8k16<T>(s[m][n + 1], x[m], {y[2], y[3]});
        }
      }
    }
  }

  // -inf for keys from `left` on, and from past + r on in row r of the warp.
  BARACUDA_D void mask(int left, int past) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int limit = min(left, past + 16 * m + lane_id() / 4 + e / 2 * 8);
          if (8 * n + lane_id() % 4 * 2 + e % 2 >= limit) s[m][n][e] = -numeric<float>::infinity();
        }
      }
    }
  }

  // Scores to weights 2^(s c - base), what was summed under the old maximum rescaled.
  BARACUDA_D void weigh(float c) {
    float factor[MT][2];
    bool moved = false;
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
          const float p0 = exp2_fast(math::fma(s[m][n][2 * half], c, -base));
          const float p1 = exp2_fast(math::fma(s[m][n][2 * half + 1], c, -base));
          part += p0 + p1;
          weights[m][n / 2][n % 2 * 2 + half] = pack_pair<T>(p0, p1);
        }
        sum[m][half] = math::fma(sum[m][half], factor[m][half], part);
      }
    }
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

  // acc += weights times the infinite and NaN values of a tile, by hand: masked keys, from past + r on, add nothing.
  BARACUDA_D void add_odd(const T* values, int left, int past) {
    u64 weighty[MT][2];  // keys whose weight is not 0
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u64 bits = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
          const u32 pair = weights[m][n / 2][n % 2 * 2 + half];
          bits |= static_cast<u64>((pair & 0xffffu ? 1 : 0) | (pair >> 16 ? 2 : 0)) << (8 * n + lane_id() % 4 * 2);
        }
        bits |= __shfl_xor_sync(all_lanes, bits, 1);
        weighty[m][half] = bits | __shfl_xor_sync(all_lanes, bits, 2);
      }
    }
#pragma unroll 1
    for (int j = 0; j < min(left, KEYS); ++j) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        const T* const pair = values + tile::at<D>(j, n) + lane_id() % 4 * 2;
        if (odd_signs<T>(*reinterpret_cast<const u32*>(pair)) == 0) continue;
#pragma unroll
        for (int m = 0; m < MT; ++m) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float x = to_acc(pair[e % 2]);
            const bool seen = j < past + 16 * m + lane_id() / 4 + e / 2 * 8;
            if (seen && !math::isfinite(x)) acc[m][n][e] += weighty[m][e / 2] >> j & 1 ? x : x * 0.0f;
          }
        }
      }
    }
  }

  // acc += weights v
  BARACUDA_D void multiply(const tile::Reader<D, false>& value, u32 at) {
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

  // The outputs, divided by the sums, to the warp's rows of a tile; lse[r] for r < rows if lse is not null.
  BARACUDA_D void finish(T* tile, float* lse, int rows, float c, float scale) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      float factor[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float total = sum[m][half] + __shfl_xor_sync(all_lanes, sum[m][half], 1);
        total += __shfl_xor_sync(all_lanes, total, 2);
        factor[half] = total == 0.0f ? 0.0f : 1.0f / total;
        const int r = 16 * m + 8 * half + lane_id() / 4;
        if (lse != nullptr && lane_id() % 4 == 0 && r < rows) {
          const float rest = math::fma(top[m][half], c, -(top[m][half] * c));  // what rounding took from base
          const float found = math::fma(top[m][half], scale, math::fma(rest, -ln_2<float>, math::log(total)));
          lse[r] = total == 0.0f ? -numeric<float>::infinity() : found;
        }
      }
#pragma unroll
      for (int n = 0; n < D / 8; ++n) tile::put<D>(tile, 16 * m, 8 * n, acc[m][n], factor[0], factor[1]);
    }
  }
};

}  // namespace attention

// WIDE: every row of q, k, v and y starts 16-byte aligned and is whole 16-byte pieces.
template <class T, int D, int WARPS, int MT, int KEYS, int STAGES, bool WIDE, class P>
BARACUDA_D void flash_sdpa_mma(const P& p) {
  using namespace attention;
  constexpr int THREADS = WARPS * warp_size, ROWS = WARPS * MT * 16, TILE = KEYS * D;
  BARACUDA_DYNAMIC_SMEM(T, queries);       // [ROWS][D], at the end the outputs
  T* const keys = queries + ROWS * D;      // [STAGES][KEYS][D]
  T* const values = keys + STAGES * TILE;  // [STAGES][KEYS][D]

  const Place place(p);
  const u32 b = place.head / p.num_heads, h = place.head % p.num_heads, kv = h / p.group;
  const i64 q0 = static_cast<i64>(place.tile) * ROWS;
  const T* q = static_cast<const T*>(p.q) + b * p.stride[0][0] + h * p.stride[0][1] + q0 * p.stride[0][2];
  const T* k = static_cast<const T*>(p.k) + b * p.stride[1][0] + kv * p.stride[1][1];
  const T* v = static_cast<const T*>(p.v) + b * p.stride[2][0] + kv * p.stride[2][1];
  const int rows = inside<ROWS>(p.query_len, q0), row0 = static_cast<int>(threadIdx.x) / warp_size * MT * 16;
  const float c = static_cast<float>(p.scale * 1.4426950408889634);

  // Keys that every row sees, that this warp's last row sees, and that the block's last row sees; they may be <= 0.
  const int key_len = static_cast<int>(p.key_len);
  const int seen = p.causal ? static_cast<int>(max(q0 + p.shift, i64(-ROWS))) : key_len;
  const int whole = p.causal ? min(key_len, seen + 1) : key_len;
  const int own = p.causal ? min(key_len, seen + min(rows, row0 + 16 * MT)) : key_len;
  const int last = p.causal ? min(key_len, seen + rows) : key_len;

  const auto load_keys = [&](int k0, int stage) {
    tile::copy<KEYS, D, THREADS>(keys + stage * TILE, k + k0 * p.stride[1][2], p.stride[1][2], key_len - k0, p.d_k, WIDE);
  };
  const auto load_values = [&](int k0, int stage) {
    tile::copy<KEYS, D, THREADS>(values + stage * TILE, v + k0 * p.stride[2][2], p.stride[2][2], key_len - k0, p.d_v, WIDE);
  };
  tile::copy<ROWS, D, THREADS>(queries, q, p.stride[0][2], rows, p.d_k, WIDE);
  load_keys(0, 0);
  if (STAGES == 2) load_values(0, 0);
  cp_async_commit();

  T* const mine = queries + row0 * D;
  if (p.sign != 1.0) {
    cp_async_wait<0>();
    __syncthreads();
    for (int n = lane_id(); n < 16 * MT * D; n += warp_size) mine[n] = from_acc<T>(to_acc(mine[n]) * float(p.sign));
    __syncwarp();
  }
  const tile::Reader<D, false> query(mine), value(values);
  const tile::Reader<D, true> key(keys);
  Rows<T, D, MT, KEYS> r;

  // A tile of keys: `begin` before the scores, `middle` before the values are read.
  int stage = 0;
  const auto begin = [&](int k0) {
    cp_async_wait<0>();
    __syncthreads();  // this tile is there, and all are done with the one before
    if (STAGES == 1) {
      load_values(k0, 0);
    } else if (k0 + KEYS < last) {
      load_keys(k0 + KEYS, stage ^ 1);
      load_values(k0 + KEYS, stage ^ 1);
    }
    cp_async_commit();
  };
  const auto middle = [&](int k0) {
    if (STAGES == 2) return;
    cp_async_wait<0>();
    __syncthreads();  // the values are there, and all are done with the keys
    if (k0 + KEYS < last) load_keys(k0 + KEYS, 0);
    cp_async_commit();
  };
  const auto odd = [&] { return p.causal && has_odd<TILE / 2, THREADS>(values + stage * TILE); };
  const auto clear = [&] {
    __syncthreads();
    clear_odd<TILE / 2, THREADS>(values + stage * TILE);
    __syncthreads();
  };

  int k0 = 0;
#pragma unroll 1
  for (; k0 < own; k0 += KEYS, stage ^= STAGES - 1) {
    const u32 at = stage * TILE * static_cast<u32>(sizeof(T));
    const int left = key_len - k0, past = p.causal ? seen + 1 - k0 + row0 : KEYS;
    begin(k0);
    r.score(query, key, at);
    middle(k0);
    const bool cut = k0 + KEYS > whole;
    if (cut) r.mask(left, past);
    r.weigh(c);
    if (cut && odd()) {  // 0 times infinity is NaN, but a masked value adds nothing
      r.add_odd(values + stage * TILE, left, past);
      clear();
    }
    r.multiply(value, at);
  }
#pragma unroll 1
  for (; k0 < last; k0 += KEYS, stage ^= STAGES - 1) {  // tiles that only warps further down see
    begin(k0);
    middle(k0);
    if (odd()) clear();
  }

  cp_async_wait<0>();
  if (last <= 0) __syncthreads();  // the copies of q, by other threads, must not meet the outputs
  float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + place.head * p.query_len + q0 + row0;
  r.finish(mine, lse, rows - row0, c, static_cast<float>(p.scale));
  __syncwarp();
  T* const y = static_cast<T*>(p.y) + b * p.stride[3][0] + h * p.stride[3][1] + (q0 + row0) * p.stride[3][2];
  tile::copy_out<16 * MT, D, warp_size>(y, p.stride[3][2], mine, lane_id(), rows - row0, p.d_v, WIDE);
}

}  // namespace baracuda
