#pragma once
// flash_sdpa_backward_terms.cuh    weights and ds under score terms (terms.cuh), for the tensor-core rows of the backward.
//
// A thread applies one term to all its scores before the next: one branch for each term, and the latencies of all
// scores overlap. A bias of -inf makes the weight 0 by arithmetic alone, as a weight is a power of (score - lse).
// Masked pairs are looked up only where ds still comes out infinite or NaN.
#include "attention/dense/flash_sdpa_backward.cuh"

namespace baracuda {
namespace attention {

// Reads biases directly from global memory. (i, j): query and key of the thread's first score.
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
          x[n][e] = math::fma(x[n][e], terms.out, bias);
        }
      }
    });
  }
};

// Stages a mask's elements for a warp's ROWS queries by 16 keys in shared memory: 4-byte and 2-byte ones unchanged,
// bool as bf16 0 or -inf. Where rows of the mask are whole 16-byte pieces, fetch copies them one step ahead and put
// only converts bool; else put loads them element by element. A mask with one row for all queries and heads of a block
// (`same`) is staged once and then serves all tiles of queries: a copy reads that row whichever queries exist.
//
// A line of 128 bytes is eight pieces, of four rows or of two; pieces are swizzled so that neither ldmatrix nor the
// lanes that read floats have bank conflicts.
template <class Terms, int ROWS> struct Staged {
  static constexpr int RAW = ROWS * 32;  // offset of the staged bytes of bool
  const Terms& terms;
  char* tile;
  bool wide, same;

  BARACUDA_D Staged(const Terms& of, void* tiles)
      : terms(of), tile(static_cast<char*>(tiles) + threadIdx.x / warp_size * (ROWS * 64)) {
    const auto& p = terms.p;
    const i64 size = p.mask_kind == 0 ? 1 : p.mask_kind == 3 ? 4 : 2;
    const i64 odd =
        reinterpret_cast<i64>(p.mask) | p.mask_pitch[0] | p.mask_pitch[1] | p.mask_pitch[2] | p.key_len * size;
    wide = p.mask_pitch[3] == size && odd % 16 == 0;
    same = p.mask_pitch[2] == 0 && (p.mask_pitch[1] == 0 || p.group == 1);
  }

  // (i, j): query and key of the warp's first score. The caller commits the copies and waits for them.
  BARACUDA_D void fetch(int i, int j) {
    __syncwarp();  // all have read the last step's
    if (!wide) return;
    const int kind = terms.p.mask_kind;
    if (kind == 0) fetch_as<1>(i, j);
    else if (kind == 3) fetch_as<4>(i, j);
    else fetch_as<2>(i, j);
  }
  BARACUDA_D void put(int i, int j) {
    const int kind = terms.p.mask_kind;
    if (!wide) {
      if (kind == 0) put_as<u8>(i, j);
      else if (kind == 3) put_as<u32>(i, j);
      else put_as<u16>(i, j);
    } else if (kind == 0) {
#pragma unroll
      for (int row = 0; row < ROWS; row += 32) {
        const uint4 x = *reinterpret_cast<const uint4*>(tile + RAW + (row + lane_id()) * 16);
        *reinterpret_cast<uint4*>(tile + at<2>(row + lane_id(), 0)) = spread(x.x, x.y);
        *reinterpret_cast<uint4*>(tile + at<2>(row + lane_id(), 1)) = spread(x.z, x.w);
      }
    }
    __syncwarp();
  }

  template <int FROM, int M> BARACUDA_D void add_to(float (&x)[M][4]) const {
    const int kind = terms.p.mask_kind, g = lane_id() / 4, t = lane_id() % 4;
    const float out = terms.out;
    if (kind == 3) {
      const int own = at<4>(2 * t, g / 4) + g % 4 * 4;
#pragma unroll
      for (int n = 0; n < M; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int trade = e % 2 * 64 + e / 2 * 32 + (FROM + n) % 2 * 16;
          x[n][e] = math::fma(x[n][e], out, *reinterpret_cast<const float*>(tile + (FROM + n) * 512 + (own ^ trade)));
        }
      }
      return;
    }
    const u32 from = smem_address(tile) + at<2>(lane_id() / 16 * 8 + lane_id() % 8, lane_id() / 8 % 2);
    u32 pair[M / 2][4];  // pairs of scores {0, 1} and {2, 3} for two times 8 queries
#pragma unroll
    for (int n = 0; n < M; n += 2) ldmatrix_x4_trans(pair[n / 2], from + (FROM + n) * 256);
    const auto each = [&](const auto& pick) {
#pragma unroll
      for (int n = 0; n < M; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) x[n][e] = math::fma(x[n][e], out, pick(pair[n / 2][n % 2 * 2 + e / 2], e % 2));
      }
    };
    if (kind == 1) {
      each([](u32 two, int high) { return __half2float(__ushort_as_half(static_cast<u16>(high ? two >> 16 : two))); });
    } else {
      each([](u32 two, int high) { return __uint_as_float(high ? two & 0xffff0000u : two << 16); });
    }
  }

 private:
  // Byte offset of piece `piece` of a row of elements of SIZE bytes.
  template <int SIZE> static BARACUDA_D int at(int row, int piece) {
    if constexpr (SIZE == 2) return row * 32 + (piece ^ row / 4 % 2) * 16;
    else return row / 2 * 128 + ((row % 2 * 4 + piece) ^ (row / 2 % 4 * 2 + row / 8 % 2)) * 16;
  }
  template <int SIZE> BARACUDA_D void fetch_as(int i, int j) {
    const int l = lane_id() / SIZE, piece = lane_id() % SIZE;
    const i64 pitch = terms.p.mask_pitch[2];
    const int col = min(j + piece * (16 / SIZE), terms.key_len - 16 / SIZE);
    const char* from = terms.mask + (i + l) * pitch + static_cast<i64>(col) * SIZE;
    const int rows = pitch == 0 ? ROWS : terms.query_len - i;  // that exist
#pragma unroll
    for (int row = 0; row < ROWS; row += 32 / SIZE, from += 32 / SIZE * pitch) {
      char* const to = SIZE == 1 ? tile + RAW + (row + l) * 16 : tile + at<SIZE>(row + l, piece);
      cp_async_16(to, from, row + l < rows);
    }
  }
  template <class M> BARACUDA_D void put_as(int i, int j) {
    constexpr int SIZE = sizeof(M) == 4 ? 4 : 2;
    const int first = lane_id() / 16, col = lane_id() % 16, byte = col * SIZE;
#pragma unroll 8
    for (int row = 0; row < ROWS; row += 2) {
      const M x = terms.template element_of<M>(i + row + first, j + col);
      char* const to = tile + at<SIZE>(row + first, byte / 16) + byte % 16;
      if constexpr (SIZE == 4) *reinterpret_cast<u32*>(to) = x;
      else *reinterpret_cast<u16*>(to) = sizeof(M) == 2 ? x : x ? 0 : 0xff80;
    }
  }
  // Converts eight bytes of bool to bf16 biases.
  static BARACUDA_D uint4 spread(u32 low, u32 high) {
    // 1 in each byte that is not 0
    const auto ones = [](u32 x) { return (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7 & 0x01010101u; };
    const auto two = [](u32 x, u32 bytes) { return 0xff80ff80u - __byte_perm(x, 0, bytes) * 0xff80u; };
    const u32 a = ones(low), b = ones(high);
    return {two(a, 0x4140), two(a, 0x4342), two(b, 0x4140), two(b, 0x4342)};
  }
};

// Whether any packed element is infinite or NaN.
template <class T, int N> BARACUDA_D bool any_nonfinite(const u32 (&a)[N][4]) {
  using Pair = conditional<is_same<T, f16>, __half2, __nv_bfloat162>;
  const u32 zeros = 0;
  Pair sum[2] = {*reinterpret_cast<const Pair*>(&zeros), *reinterpret_cast<const Pair*>(&zeros)};
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {  // 0 times such an element is NaN
      sum[e % 2] =
          __hfma2(*reinterpret_cast<const Pair*>(&a[n][e]), *reinterpret_cast<const Pair*>(&zeros), sum[e % 2]);
    }
  }
  return ((*reinterpret_cast<const u32*>(&sum[0]) | *reinterpret_cast<const u32*>(&sum[1])) & 0x7fff7fffu) != 0;
}

// Turns scores of 16 keys (transposed) by 8 M queries, 8 FROM after the thread's first, into weights: s becomes the
// weight times the soft cap's derivative, p16 the weight after dropout. ahead: i + shift - j of the thread's first
// score.
template <class T, bool CAPPED, int FROM, int M, int N, class Terms, class Biases, class Far>
BARACUDA_D void weigh_some(float (&s)[N][4], u32 (&p16)[N / 2][4], u32 kept, const Far& far, int i0, int key0,
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
  if constexpr (!Far::may_have_rests()) far.lower(x, i0 + 8 * FROM, terms.unit());
  else far.lower(x, i0 + 8 * FROM, terms.unit(), [&](int n, int e) { return s[FROM + n][e] * terms.out; });
#pragma unroll
  for (int n = 0; n < M; ++n) {
    const float2 lse = far.stats[i0 / 2 + 4 * (FROM + n) + lane_id() % 4].lse;
#pragma unroll
    for (int e = 0; e < 4; ++e) x[n][e] = exp2_fast(math::fma(x[n][e], terms.c, e % 2 ? -lse.y : -lse.x));
  }
  if (mask.cut) hide(x, i0 + 8 * FROM, key0, mask);
  each([&](float& to, int n, int e) {
    float& from = s[FROM + n][e];
    from = CAPPED ? to * math::fma(-from, from, 1.0f) : to;
  });
  if (far.spares(terms.drops())) {
    each([&](float& to, int n, int e) { s[FROM + n][e] = rounds_to_one<T>(to) ? 0.0f : s[FROM + n][e]; });
  }
  if (terms.drops()) each([&](float& to, int n, int e) { to = kept >> (4 * (FROM + n) + e) & 1 ? to : 0.0f; });
#pragma unroll
  for (int n = 0; n < M; ++n) {
    p16[(FROM + n) / 2][n % 2 * 2] = pack_pair<T>(x[n][0], x[n][1]);
    p16[(FROM + n) / 2][n % 2 * 2 + 1] = pack_pair<T>(x[n][2], x[n][3]);
  }
}
// The same for all 8 N queries from i0. kept: bits of the weights that dropout keeps (terms.cuh).
template <class T, int N, class Terms, class Biases, class Far>
BARACUDA_D void weigh(float (&s)[N][4], u32 (&p16)[N / 2][4], u32 kept, const Far& far, int i0, int key0,
                      const Mask& mask, const Terms& terms, const Biases& biases, float ahead) {
  if (terms.capped()) {  // in parts, as tanh is kept beside the weight
    weigh_some<T, true, 0, min(N, 4)>(s, p16, kept, far, i0, key0, mask, terms, biases, ahead);
    if constexpr (N > 4) weigh_some<T, true, 4, N - 4>(s, p16, kept, far, i0, key0, mask, terms, biases, ahead);
  } else {
    weigh_some<T, false, 0, N>(s, p16, kept, far, i0, key0, mask, terms, biases, ahead);
  }
}
// Turns dy v into ds = s (kept dy v again - delta), also packed. (i, j): query and key of the thread's first score.
template <class T, int N, class Terms>
BARACUDA_D void make_ds(float (&ds)[N][4], u32 (&ds16)[N / 2][4], const float (&s)[N][4], u32 kept, const Stats* stats,
                        int i0, int key0, const Mask& mask, const Terms& terms, int i, int j) {
  if (terms.drops()) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[n][e] = kept >> (4 * n + e) & 1 ? ds[n][e] * terms.again : 0.0f;
    }
  }
  make_ds(ds, s, stats, i0, key0, mask);
  to_fragments<T>(ds16, ds);
  if (terms.masked() && any_nonfinite<T>(ds16)) {
    u32 hidden = 0;
#pragma unroll 1
    for (int n = 0; n < 4 * N; ++n) {
      hidden |= static_cast<u32>(terms.hides(i + n / 4 * 8 + n % 2, j + n / 2 % 2 * 8)) << n;
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[n][e] = hidden >> (4 * n + e) & 1 ? 0.0f : ds[n][e];
    }
    to_fragments<T>(ds16, ds);
  }
}

// Weights are passed on for ds as f16 whatever T is, in units of 2^-8: three more bits than bf16, and weights down to
// 2^-22.
constexpr float weight_unit = 256.0f, log2_weight_unit = 8.0f;

// Weights of 64 queries in that unit: p16 for dv, and w16 for ds. of: the Stats of the thread's first two queries.
template <class T>
BARACUDA_D void weigh_apart(u32 (&p16)[4][4], u32 (&w16)[4][4], const float (&s)[8][4], const Stats* of, float c) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 lse = of[4 * n].lse;
    float w[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) w[e] = exp2_fast(math::fma(s[n][e], c, log2_weight_unit - (e % 2 ? lse.y : lse.x)));
    put_pairs<T>(p16, n, w), put_pairs<f16>(w16, n, w);
  }
}
// ds of the n-th 16 of 64 queries, from their weights w16 in that unit and dp = dy v.
template <class T>
BARACUDA_D void make_ds_of(u32 (&ds16)[4][4], int n, uint4 w16, const float (&dp)[8][4], const Stats* of) {
  const u32 pairs[4] = {w16.x, w16.y, w16.z, w16.w};
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const float2 delta = of[4 * (2 * n + k)].delta;
    const float low = delta.x * (1 / weight_unit), high = delta.y * (1 / weight_unit);
    float ds[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 w = __half22float2(*reinterpret_cast<const __half2*>(&pairs[2 * k + half]));
      ds[2 * half] = w.x * math::fma(dp[2 * n + k][2 * half], 1 / weight_unit, -low);
      ds[2 * half + 1] = w.y * math::fma(dp[2 * n + k][2 * half + 1], 1 / weight_unit, -high);
    }
    put_pairs<T>(ds16, 2 * n + k, ds);
  }
}
// Weights of 64 queries under a soft cap and ALiBi, in that unit: p16 for dv, and w16, times the soft cap's derivative,
// for ds. of, far and ahead are those of weigh_and_make_ds.
template <class T, bool CAPPED, class Terms, class Far>
BARACUDA_D void weigh_apart(u32 (&p16)[4][4], u32 (&w16)[4][4], const float (&s)[8][4], const Stats* of, const Far& far,
                            const Terms& terms, float ahead) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 lse = of[4 * n].lse;
    float t[4], x[1][4], p[4], w[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      x[0][e] = t[e] = CAPPED ? terms.squash(s[n][e]) : s[n][e];
      if (terms.sloped()) {
        x[0][e] = math::fma(-terms.slope, math::abs(ahead + static_cast<float>(8 * n + e % 2 - e / 2 * 8)), x[0][e]);
      }
    }
    far.lower(x, 8 * n, terms.unit());
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      p[e] = exp2_fast(math::fma(x[0][e], terms.c, log2_weight_unit - (e % 2 ? lse.y : lse.x)));
      w[e] = CAPPED ? p[e] * math::fma(-t[e], t[e], 1.0f) : p[e];
    }
    put_pairs<T>(p16, n, p), put_pairs<f16>(w16, n, w);
  }
}

// weigh_and_make_ds under a soft cap and ALiBi. of: the Stats of the thread's first two queries; far: of the tile;
// ahead: i + shift - j of its first score.
template <class T, bool CAPPED, class Terms, class Far>
BARACUDA_D void weigh_and_make_ds(u32 (&p16)[4][4], u32 (&ds16)[4][4], const float (&s)[8][4], const float (&dp)[8][4],
                                  int from, const Stats* of, const Far& far, const Terms& terms, float ahead) {
  constexpr int PART = 2;  // eights of queries at a time
#pragma unroll
  for (int first = from; first < from + 4; first += PART) {
    float t[PART][4], x[PART][4];
    const auto each = [&](const auto& f) {
#pragma unroll
      for (int n = 0; n < PART; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) f(n, e);
      }
    };
    each([&](int n, int e) { x[n][e] = t[n][e] = CAPPED ? terms.squash(s[first + n][e]) : s[first + n][e]; });
    if (terms.sloped()) {
      each([&](int n, int e) {
        const float distance = math::abs(ahead + static_cast<float>(8 * (first + n) + e % 2 - e / 2 * 8));
        x[n][e] = math::fma(-terms.slope, distance, x[n][e]);
      });
    }
    far.lower(x, 8 * first, terms.unit());
    float ds[PART][4];
    each([&](int n, int e) {
      const Stats stats = of[4 * (first + n)];
      const float p = exp2_fast(math::fma(x[n][e], terms.c, e % 2 ? -stats.lse.y : -stats.lse.x));
      const float w = CAPPED ? p * math::fma(-t[n][e], t[n][e], 1.0f) : p;
      ds[n][e] = w * (dp[first + n][e] - (e % 2 ? stats.delta.y : stats.delta.x));
      x[n][e] = p;
    });
#pragma unroll
    for (int n = 0; n < PART; ++n) put_pairs<T>(p16, first + n, x[n]), put_pairs<T>(ds16, first + n, ds[n]);
  }
}

}  // namespace attention
}  // namespace baracuda
