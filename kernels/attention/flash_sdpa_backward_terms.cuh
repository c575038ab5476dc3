#pragma once
// flash_sdpa_backward_terms.cuh    weights and ds under score terms (terms.cuh), for the tensor-core rows of the backward.
//
// Term by term over all scores of a thread: a branch a term, and latencies of all scores overlap. A bias of -inf makes its
// weight 0 by arithmetic alone, since weights are powers of score minus lse; only where ds then comes out infinite or NaN
// are the hidden ones looked up.
#include "attention/flash_sdpa_backward.cuh"

namespace baracuda {
namespace attention {

// Biases straight from memory: the thread's first score is that of query i and key j.
template <class Terms> struct Direct {
  const Terms& terms;
  int i, j;

  template <int FROM, int M> BARACUDA_D void add_to(float (&x)[M][4]) const {
    with_kind<float>(terms.p.mask_kind, [&](auto kind) {
#pragma unroll
      for (int n = 0; n < M; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float bias = terms.template bias_as<decltype(kind)>(i + 8 * (FROM + n) + e % 2, j + e / 2 * 8);
          x[n][e] = math::fma(bias, terms.units, x[n][e]);
        }
      }
    });
  }
  BARACUDA_D bool hides(int n, int e) const { return terms.hides(i + 8 * n + e % 2, j + e / 2 * 8); }
};

// Biases of a warp's ROWS queries by 16 keys as floats in shared memory. Where rows of the mask are whole 16-byte pieces
// they are copied there a step ahead (fetch), those of less than 4 bytes behind the place that they spread over (put); else
// put loads elements. A mask of one row for all queries and heads of a block is put once.
//
// Two rows are 128 bytes, of eight pieces in which those of rows 2 u and 2 u + 1 trade places by 2 (u % 4) + u / 4 % 2:
// neither the lanes that put nor those that read meet in a bank.
template <class Terms, int ROWS> struct Staged {
  const Terms& terms;
  float* tile;
  bool wide, same;

  BARACUDA_D Staged(const Terms& of, float* tiles) : terms(of), tile(tiles + threadIdx.x / warp_size * (ROWS * 16)) {
    const auto& p = terms.p;
    const i64 size = p.mask_kind == 0 ? 1 : p.mask_kind == 3 ? 4 : 2;
    const i64 odd = reinterpret_cast<i64>(p.mask) | p.mask_pitch[0] | p.mask_pitch[1] | p.mask_pitch[2] | p.key_len * size;
    wide = p.mask_pitch[3] == size && odd % 16 == 0;
    same = p.mask_pitch[2] == 0 && (p.mask_pitch[1] == 0 || p.group == 1);
  }

  // The warp's first score is that of query i and key j. The caller commits the copies and waits for them.
  BARACUDA_D void fetch(int i, int j) {
    __syncwarp();  // all have read the step before
    if (!wide) return;
    const int kind = terms.p.mask_kind;
    if (kind == 0) fetch_as<1>(i, j);
    else if (kind == 3) fetch_as<4>(i, j);
    else fetch_as<2>(i, j);
  }
  BARACUDA_D void put(int i, int j) {
    with_kind<float>(terms.p.mask_kind, [&](auto kind) {
      using M = decltype(kind);
      constexpr int SIZE = sizeof(M), QUADS = 4 / SIZE;
      if (!wide) {
        const int row = lane_id() / 16, col = lane_id() % 16;
#pragma unroll 8
        for (int m = 0; m < ROWS; m += 2) {
          tile[at(m + row, col / 4) + col % 4] = terms.template bias_as<M>(i + m + row, j + col);
        }
      } else if constexpr (SIZE < 4) {
#pragma unroll
        for (int m = 0; m < ROWS * SIZE / 32; ++m) {
          const auto x = load<16 / SIZE>(reinterpret_cast<const M*>(copied<SIZE>(m)));
          __syncwarp();  // before one of the lanes writes there
#pragma unroll
          for (int c = 0; c < QUADS; ++c) {
            *reinterpret_cast<float4*>(tile + at(row_of<SIZE>(m), lane_id() % SIZE * QUADS + c)) =
                float4{Terms::as_bias(x[4 * c]), Terms::as_bias(x[4 * c + 1]), Terms::as_bias(x[4 * c + 2]),
                       Terms::as_bias(x[4 * c + 3])};
          }
        }
      }
    });
    __syncwarp();
  }

  template <int FROM, int M> BARACUDA_D void add_to(float (&x)[M][4]) const {
#pragma unroll
    for (int n = 0; n < M; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[n][e] = math::fma(bias(FROM + n, e), terms.units, x[n][e]);
    }
  }
  BARACUDA_D bool hides(int n, int e) const { return bias(n, e) == -numeric<float>::infinity(); }

 private:
  static BARACUDA_D int at(int row, int piece) {
    return row / 2 * 32 + ((row % 2 * 4 + piece) ^ (row / 2 % 4 * 2 + row / 8 % 2)) * 4;
  }
  BARACUDA_D float bias(int n, int e) const {  // at(8 n + 2 t + e % 2, g / 4 + e / 2 * 2) + g % 4
    const int g = lane_id() / 4, t = lane_id() % 4, own = t * 32 + (g / 4 ^ 2 * t) * 4 + g % 4;
    return tile[n * 128 + (own ^ (e % 2 * 16 + e / 2 * 8 + n % 2 * 4))];
  }
  // Of the lane's piece m.
  template <int SIZE> static BARACUDA_D int row_of(int m) {
    const int l = lane_id() / SIZE;
    if constexpr (SIZE == 4) return 8 * m + l;
    else if constexpr (SIZE == 2) return 16 * m + (l & 1) + (l & 2) * 4 + (l & 12) / 2;
    else return 32 * m + (l & 19) + (l & 4) * 2 + (l & 8) / 2;
  }
  // Where the lane's piece m is copied to: its place, or that of the last to be put.
  template <int SIZE> BARACUDA_D float* copied(int m) const {
    if constexpr (SIZE == 4) return tile + at(row_of<4>(m), lane_id() % 4);
    else return tile + ROWS * (16 - 4 * SIZE) + (m * 32 + lane_id()) * 4;
  }
  template <int SIZE> BARACUDA_D void fetch_as(int i, int j) {
    const int col = min(j + lane_id() % SIZE * (16 / SIZE), terms.key_len - 16 / SIZE);
    const char* const from = terms.mask + static_cast<i64>(col) * SIZE;
#pragma unroll
    for (int m = 0; m < ROWS * SIZE / 32; ++m) {
      const i64 row = min(i + row_of<SIZE>(m), terms.query_len - 1);
      cp_async_16(copied<SIZE>(m), from + row * terms.p.mask_pitch[2]);
    }
  }
};

struct Unbiased {  // of a kernel without terms
  template <class Terms> BARACUDA_D Unbiased(const Terms&, float*) {}
};

// Whether an element is infinite or NaN.
template <class T, int N> BARACUDA_D bool any_odd(const u32 (&a)[N][4]) {
  using Pair = conditional<is_same<T, f16>, __half2, __nv_bfloat162>;
  const u32 zeros = 0;
  Pair sum[2] = {*reinterpret_cast<const Pair*>(&zeros), *reinterpret_cast<const Pair*>(&zeros)};
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {  // 0 times it is NaN
      sum[e % 2] = __hfma2(*reinterpret_cast<const Pair*>(&a[n][e]), *reinterpret_cast<const Pair*>(&zeros), sum[e % 2]);
    }
  }
  return ((*reinterpret_cast<const u32*>(&sum[0]) | *reinterpret_cast<const u32*>(&sum[1])) & 0x7fff7fffu) != 0;
}

// Scores of 16 keys (transposed) by 8 M queries, 8 FROM after the thread's first, to weights: s times what the soft cap
// lets through, p16 those that dropout leaves. ahead: i + shift - j of the thread's first score.
template <class T, bool CAPPED, int FROM, int M, int N, class Terms, class Biases>
BARACUDA_D void weigh_some(float (&s)[N][4], u32 (&p16)[N / 2][4], u32 kept, const float2* stats, int i0, int key0,
                           const Mask& mask, const Terms& terms, const Biases& biases, float ahead) {
  float x[M][4];
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int n = 0; n < M; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) f(x[n][e], n, e);
    }
  };
  each([&](float& to, int n, int e) {
    float& from = s[FROM + n][e];
    to = from = CAPPED ? terms.squash(from) : from;
  });
  if (terms.sloped()) {
    each([&](float& to, int n, int e) {
      to = math::fma(-terms.slope, math::abs(ahead + static_cast<float>(8 * (FROM + n) + e % 2 - e / 2 * 8)), to);
    });
  }
  if (terms.masked()) biases.template add_to<FROM>(x);
#pragma unroll
  for (int n = 0; n < M; ++n) {
    const float4 stat = *reinterpret_cast<const float4*>(stats + i0 + 8 * (FROM + n) + lane_id() % 4 * 2);
#pragma unroll
    for (int e = 0; e < 4; ++e) x[n][e] = exp2_fast(math::fma(x[n][e], terms.c, e % 2 ? -stat.z : -stat.x));
  }
  if (mask.cut) hide(x, stats, i0 + 8 * FROM, key0, mask);
  each([&](float& to, int n, int e) {
    float& from = s[FROM + n][e];
    from = CAPPED ? to * math::fma(-from, from, 1.0f) : to;
  });
  if (terms.drops()) each([&](float& to, int n, int e) { to = kept >> (4 * (FROM + n) + e) & 1 ? to : 0.0f; });
#pragma unroll
  for (int n = 0; n < M; ++n) {
    p16[(FROM + n) / 2][n % 2 * 2] = pack_pair<T>(x[n][0], x[n][1]);
    p16[(FROM + n) / 2][n % 2 * 2 + 1] = pack_pair<T>(x[n][2], x[n][3]);
  }
}
// All of them, 8 N queries from i0. kept: bits of dropout (terms.cuh).
template <class T, int N, class Terms, class Biases>
BARACUDA_D void weigh(float (&s)[N][4], u32 (&p16)[N / 2][4], u32 kept, const float2* stats, int i0, int key0,
                      const Mask& mask, const Terms& terms, const Biases& biases, float ahead) {
  if (terms.capped()) {  // in parts: tanh must be kept beside the weight
    weigh_some<T, true, 0, min(N, 4)>(s, p16, kept, stats, i0, key0, mask, terms, biases, ahead);
    if constexpr (N > 4) weigh_some<T, true, 4, N - 4>(s, p16, kept, stats, i0, key0, mask, terms, biases, ahead);
  } else {
    weigh_some<T, false, 0, N>(s, p16, kept, stats, i0, key0, mask, terms, biases, ahead);
  }
}
// dy v to ds = s (kept dy v again - delta), also as fragments.
template <class T, int N, class Terms, class Biases>
BARACUDA_D void differ(float (&ds)[N][4], u32 (&ds16)[N / 2][4], const float (&s)[N][4], u32 kept, const float2* stats,
                       int i0, int key0, const Mask& mask, const Terms& terms, const Biases& biases) {
  if (terms.drops()) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[n][e] = kept >> (4 * n + e) & 1 ? ds[n][e] * terms.again : 0.0f;
    }
  }
  differ(ds, s, stats, i0, key0, mask);
  to_fragments<T>(ds16, ds);
  if (terms.masked() && any_odd<T>(ds16)) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[n][e] = biases.hides(n, e) ? 0.0f : ds[n][e];
    }
    to_fragments<T>(ds16, ds);
  }
}

}  // namespace attention
}  // namespace baracuda
