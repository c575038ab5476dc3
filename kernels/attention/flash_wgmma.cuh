#pragma once
// flash_wgmma    the products of the forward's wgmma kernels: a warpgroup's 64 queries with tiles of keys and values.
//
// Operands stand in shared memory as panels of 64 columns (tile::Panels), the stages of an operand one behind the
// other. A warp has 16 of the group's rows, lanes as in Rows (flash.cuh).
#include "attention/flash.cuh"
#include "attention/terms.cuh"
#include <baracuda/wgmma.cuh>

namespace baracuda {
namespace attention {

template <class T, int D, int ROWS, int KEYS> struct GroupProducts {
  // columns of v in one instruction
  static constexpr int PANEL = KEYS * 64, TILE = KEYS * D, COLUMNS = D % 128 == 0 ? 128 : 64;
  // in a wgmma descriptor: from 16 elements of k to the next, along rows and across them
  static constexpr u64 within = 32 >> 4, across = 2048 >> 4;
  u64 query, key, value;

  // Given stage 0 of each operand, queries as [ROWS][D]; the group is number `group` in the block.
  BARACUDA_D GroupProducts(const T* queries, const T* keys, const T* values, int group)
      : query(wgmma_operand(queries) + group * (64 * 8)), key(wgmma_operand(keys)),
        value(wgmma_operand(values, KEYS * 128)) {}

  // Starts s = q kᵀ and commits it; the queries come from shared memory or as A fragments.
  BARACUDA_D void start_scores(float (&s)[KEYS / 8][4], u32 queries, u32 keys) const {
    const u64 x = query + queries * (ROWS * D / 8);
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      wgmma<T, false, false>(s, x + d / 64 * (ROWS * 8) + d % 64 / 16 * within, key_at(keys, d), d != 0);
    }
    wgmma_commit();
  }
  BARACUDA_D void start_scores(float (&s)[KEYS / 8][4], const u32 (&held)[D / 16][4], u32 keys) const {
#pragma unroll
    for (int d = 0; d < D; d += 16) wgmma<T, false>(s, held[d / 16], key_at(keys, d), d != 0);
    wgmma_commit();
  }
  // Starts acc += weights v and commits it; with add = 0, acc = weights v.
  BARACUDA_D void start_outputs(float (&acc)[D / 8][4], const u32 (&weights)[KEYS / 16][4], u32 values,
                                int add = 1) const {
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
#pragma unroll
      for (int d = 0; d < D; d += COLUMNS) {
        const u64 y = value + values * (TILE / 8) + d / 64 * (PANEL / 8) + j / 16 * across;
        wgmma<T, true>(reinterpret_cast<float(&)[COLUMNS / 8][4]>(acc[d / 8]), weights[j / 16], y, j == 0 ? add : 1);
      }
    }
    wgmma_commit();
  }

 private:
  BARACUDA_D u64 key_at(u32 keys, int d) const {
    return key + keys * (TILE / 8) + d / 64 * (PANEL / 8) + d % 64 / 16 * within;
  }
};

// Writes a warp's 16 rows of an accumulator, times their factors, to rows r < `rows` and columns c < `cols` of out[r *
// stride + c], in 16-byte pieces, by way of `stage`: PANELS of [16][64] that belong to the warp, APART elements from
// each other. beside() is done while the first of them are on their way. Shared memory is faster here than exchanges
// between lanes (docs/design/attention-forward.md).
template <int PANELS, int APART, class T, int N, class F>
BARACUDA_D void put_staged(T* stage, T* out, i64 stride, int rows, int cols, const float (&x)[N][4],
                           const float (&factors)[2], const F& beside) {
  const int lane = forgotten(lane_id()), row = lane / 8, col = lane % 8 * 8;
  const T* const from[2] = {stage + tile::at<64>(row, col / 8), stage + tile::at<64>(row + 4, col / 8)};
  T* const to = out + row * stride + col;
  const i64 four = static_cast<i64>(forgotten(static_cast<u64>(4 * stride)));  // or each address is computed anew
#pragma unroll
  for (int first = 0; first < N / 8; first += PANELS) {
    __syncwarp();
    tile::put_panels<APART>(stage, reinterpret_cast<const float(&)[8 * PANELS][4]>(x[8 * first]), factors);
    if (first == 0) beside();
    __syncwarp();
    uint4 y[4 * PANELS];  // rows row + 4 k
#pragma unroll
    for (int n = 0; n < 4 * PANELS; ++n)
      y[n] = *reinterpret_cast<const uint4*>(from[n % 2] + n / 4 * APART + n % 4 / 2 * (8 * 64));
    T* at = to + 64 * first;
#pragma unroll
    for (int k = 0; k < 4; ++k, at += four) {
#pragma unroll
      for (int n = 0; n < PANELS; ++n) {
        store_whole(at + 64 * n, y[4 * n + k], row + 4 * k < rows && col + 64 * (first + n) < cols);
      }
    }
  }
}

// The score terms besides sinks that a loop is compiled for.
template <bool CAPPED, bool SLOPED> struct Kind {
  static constexpr bool capped = CAPPED, sloped = SLOPED;
};
// Calls f with the Kind that p has; one Kind for all where rows are not WIDE, which is rare.
template <int TERMS, bool WIDE, class P, class F> BARACUDA_D void with_kind_of(const P& p, const F& f) {
  if constexpr (TERMS == 0) {
    f(Kind<false, false>{});
  } else if constexpr (!WIDE) {
    f(Kind<true, true>{});
  } else {
    const bool capped = p.softcap > 0, sloped = p.slopes != nullptr;
    if (capped && sloped) f(Kind<true, true>{});
    else if (capped) f(Kind<true, false>{});
    else if (sloped) f(Kind<false, true>{});
    else f(Kind<false, false>{});
  }
}

// Online softmax: turns a warp's scores of the tile of keys at `key` into weights. cut() hides keys that a query does
// not see; the warp's first query is `query`.
template <class Kind, class Rows, class Terms, class Cut>
BARACUDA_D void online_softmax(Rows& rows, const Terms& terms, float scale_log2, int query, int key, const Cut& cut) {
  if constexpr (Kind::sloped) rows.template add_apart<Kind::capped>(terms, query, key);
  cut();
  if constexpr (Kind::sloped) {
    // Whether scores rise by more than 2^64 from one tile to the next, where keys that come first are farther away.
    const bool steep = math::abs(terms.slope) * scale_log2 * Rows::TILE_KEYS > 64.0f;
    rows.template weigh_lazily<Scores::apart>(scale_log2, steep);
  }
  if constexpr (!Kind::sloped && Kind::capped) rows.weigh_capped(terms);
  if constexpr (!Kind::sloped && !Kind::capped) rows.weigh_lazily(scale_log2);
}

}  // namespace attention
}  // namespace baracuda
